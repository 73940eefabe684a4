"""Every family: exported, optimized, run ragged on stock onnxruntime and with our kernels, compared with transformers.

The comparison is per request: whatever shares a step with it, in whatever chunks it comes, a request must get the
logits that transformers gives for its whole sequence alone. And every family that cannot be had is refused, with the
reason.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir
import pytest
from exports import TARGET, export_of, refusal_of
from ragged import kernel_session, run_ragged
from tiny_families import MAX_POSITIONS, MORE_REFUSED, REFUSED
from tiny_models import VOCAB_SIZE, WINDOW, RandomCheckpoint
from tolerances import TOLERANCES

from paceline.passes.base import PassReport
from paceline.passes.compare_graphs import run_graph
from paceline.plugins import contract
from paceline.toolchain.export import ExportedModel
from paceline.toolchain.optimize import lower, optimize, set_precision


@dataclass(frozen=True)
class Family:
    """One family's checkpoint, its optimized graph, and what was seen on the way."""

    checkpoint: RandomCheckpoint
    exported: ExportedModel
    rows_of_export: dict[int, np.ndarray]  # logits of the graph as exported, by number of tokens
    reports: tuple[PassReport, ...]

    @property
    def attention(self) -> list[ir.Node]:
        return [node for node in self.exported.model.graph if node.op_type == "PagedAttention"]

    def attributes(self, name: str) -> list[object]:
        return [node.attributes[name].value for node in self.attention]


def tokens(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + count).integers(0, VOCAB_SIZE, count)


@pytest.fixture(scope="module")
def family(request: pytest.FixtureRequest) -> Family:
    checkpoint, exported = export_of(request.param)
    rows = {
        count: run_graph(exported.model, {contract.INPUT_IDS: tokens(count), contract.POSITIONS: np.arange(count)})[
            contract.LOGITS
        ]
        for count in (1, 2, 23)
    }
    return Family(checkpoint, exported, rows, optimize(exported.model, TARGET))


def test_the_export_answers_as_transformers_does(family: Family) -> None:
    """One row, too: an exporter likes to bake in that there are at least two."""
    for count, logits in family.rows_of_export.items():
        np.testing.assert_allclose(logits, family.checkpoint.logits(tokens(count)), **TOLERANCES["float32"])


def test_the_ragged_graph_answers_as_transformers_does_per_request(family: Family) -> None:
    requests = [tokens(28), tokens(9), tokens(22)]
    wanted = [family.checkpoint.logits(request) for request in requests]
    compared = 0
    for rows, logits in run_ragged(family.exported.model, family.exported.facts, requests):
        expected = np.stack([wanted[request][position] for request, position in rows])
        np.testing.assert_allclose(logits, expected, **TOLERANCES["float32"], err_msg=str(rows))
        compared += len(rows)
    assert compared >= 20


Logits = dict[tuple[int, int], np.ndarray]  # of each request and position


@pytest.mark.parametrize("weights", ["fp32", "bf16"])
def test_kernels_answer_as_transformers_does_and_a_row_alone_has_the_bits_of_a_row_in_company(
    family: Family, weights: str, request: pytest.FixtureRequest
) -> None:
    """The old bug: the sine of a request's angles changed its last bit with the number of rows in the step."""
    target = replace(TARGET, weights=weights, page_size=contract.PAGE_SIZE)
    exported = export_of(request.node.callspec.params["family"])[1]
    optimize(exported.model, target)
    set_precision(exported.model, target)
    lower(exported.model, target)
    facts = replace(exported.facts, page_size=contract.PAGE_SIZE)
    requests = [tokens(28), tokens(9), tokens(22)]
    mixed = _logits(run_ragged(exported.model, facts, requests, session_of=kernel_session))
    for number, ids in enumerate(requests):
        one_by_one = _logits(run_ragged(exported.model, facts, [ids], [(1,)] * len(ids), session_of=kernel_session))
        wanted = family.checkpoint.logits(ids)
        for (_, position), logits in one_by_one.items():
            if weights == "fp32":
                np.testing.assert_allclose(logits, wanted[position], **TOLERANCES["float32"])
            if (number, position) in mixed:
                np.testing.assert_array_equal(logits, mixed[number, position])
    assert len(mixed) >= 20


def _logits(steps: Iterator[tuple[list[tuple[int, int]], np.ndarray]]) -> Logits:
    return {row: one for rows, logits in steps for row, one in zip(rows, logits, strict=True)}


def test_every_layer_is_one_paged_attention_and_the_facts_say_so(family: Family) -> None:
    config = family.checkpoint.config
    assert family.attributes("layer") == list(range(config.num_hidden_layers))
    assert family.exported.facts == contract.GraphFacts(
        vocab_size=VOCAB_SIZE,
        hidden_size=config.hidden_size,
        max_positions=MAX_POSITIONS,
        page_size=4,
        cache_dtype="float32",
        layers=(contract.LayerCache(_kv_heads(family), head_dim=16),) * 2,
    )


def _kv_heads(family: Family) -> int:
    config = family.checkpoint.config
    return getattr(config, "num_key_value_heads", None) or config.num_attention_heads


NOT_ONE_PRODUCT = {  # products of the whole graph, and why they are not nine
    "bitnet": 11,  # a gate of another kind: gate and up stay apart
    "cohere": 13,  # qk-norm in small operators
    "ministral3": 13,  # q is scaled behind the rotation
    "modernbert_decoder": 10,  # a layer between the last norm and the head
    "olmo": 13,  # q, k and v are clipped one by one
    "opt": 15,  # q is scaled by itself; a layer behind the embedding and one before the head
    "stablelm_parallel": 13,  # a norm for each head, and the heads put together again
}


def test_the_projections_are_one_product_each(family: Family, request: pytest.FixtureRequest) -> None:
    """Fusions fire for every family, or what keeps them from it is named above."""
    graph = family.exported.model.graph
    products = sum(node.op_type == "MatMul" for node in graph)
    expected = NOT_ONE_PRODUCT.get(request.node.callspec.params["family"], 2 * 4 + 1)
    assert products == expected, "qkv, o, gate-up or fc, down in each layer, and the head"
    assert not any(node.op_type in {"Gemm", "Softmax"} for node in graph)


@dataclass(frozen=True)
class Expected:
    """What a family is in the tests for, as attributes of its two layers."""

    window: tuple[int, int] = (0, 0)
    rotary_dim: tuple[int, int] = (16, 16)
    interleaved: tuple[int, int] = (0, 0)
    scale: tuple[float, float] = (0.25, 0.25)
    softcap: float = 0.0
    sinks: bool = False


NUM_INPUTS = 9  # of PagedAttention where it has sinks, which are the last
GEMMA_SCALE = (24**-0.5,) * 2
EXPECTED = {
    "biogpt": Expected(rotary_dim=(0, 0)),
    "codegen": Expected(rotary_dim=(8, 8), interleaved=(1, 1)),
    "cohere": Expected(interleaved=(1, 1)),
    "cohere2": Expected(window=(WINDOW, 0), rotary_dim=(16, 0), interleaved=(1, 0)),
    "cwm": Expected(window=(WINDOW, 0)),
    "ernie4_5": Expected(interleaved=(1, 1)),
    "exaone4": Expected(window=(WINDOW, 0), rotary_dim=(16, 0)),
    "gemma2": Expected(window=(WINDOW, 0), scale=GEMMA_SCALE, softcap=3.0),
    "gemma3": Expected(window=(WINDOW, 0), scale=GEMMA_SCALE),
    "glm": Expected(rotary_dim=(8, 8), interleaved=(1, 1)),
    "glm4": Expected(rotary_dim=(8, 8), interleaved=(1, 1)),
    "gpt2": Expected(rotary_dim=(0, 0)),
    "gpt2_scaled_by_layer": Expected(rotary_dim=(0, 0), scale=(0.25, 0.125)),
    "gpt_bigcode": Expected(rotary_dim=(0, 0)),
    "gpt_neox": Expected(rotary_dim=(4, 4)),
    "gpt_neox_sequential": Expected(rotary_dim=(4, 4)),
    "gptj": Expected(rotary_dim=(8, 8), interleaved=(1, 1)),
    "granite": Expected(scale=(0.3, 0.3)),
    "granite_swa": Expected(window=(WINDOW, 0), scale=(0.3, 0.3), sinks=True),
    "helium": Expected(interleaved=(1, 1)),
    "hunyuan": Expected(rotary_dim=(0, 0)),  # norms behind the rotation, which stays outside
    "hyperclovax": Expected(scale=(0.3, 0.3)),
    "ministral3": Expected(rotary_dim=(0, 0)),  # q is scaled behind the rotation
    "mistral": Expected(window=(WINDOW, WINDOW)),
    "modernbert_decoder": Expected(window=(0, 4)),
    "nanochat": Expected(rotary_dim=(0, 0)),  # as hunyuan
    "nemotron": Expected(rotary_dim=(8, 8)),
    "olmo3": Expected(window=(WINDOW, 0)),
    "opt": Expected(rotary_dim=(0, 0), scale=(1.0, 1.0)),
    "persimmon": Expected(rotary_dim=(8, 8)),
    "phi": Expected(rotary_dim=(8, 8)),
    "phi3": Expected(rotary_dim=(8, 8)),
    "smollm3": Expected(rotary_dim=(16, 0)),
    "stablelm": Expected(rotary_dim=(4, 4)),
    "stablelm_parallel": Expected(rotary_dim=(4, 4)),
    "starcoder2": Expected(window=(WINDOW, WINDOW)),
    "vaultgemma": Expected(window=(WINDOW, 0), scale=GEMMA_SCALE, softcap=3.0),
}


def test_window_rotation_scale_softcap_and_sinks_reach_the_operator(
    family: Family, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.params["family"]
    expected = EXPECTED.get(name, Expected())
    assert tuple(family.attributes("window")) == expected.window
    assert tuple(family.attributes("rotary_dim")) == expected.rotary_dim
    assert tuple(family.attributes("interleaved")) == expected.interleaved
    assert family.attributes("scale") == pytest.approx(list(expected.scale))
    assert family.attributes("softcap") == [expected.softcap] * 2
    assert [len(node.inputs) == NUM_INPUTS for node in family.attention] == [expected.sinks] * 2


PLANTED = {"scale": 0.02, "window": 1, "softcap": 0.5}


def test_a_planted_fault_is_noticed(family: Family) -> None:
    """The matrix above can fail: an attribute of one layer, a little off, is far outside the tolerance."""
    request = tokens(23)
    wanted = family.checkpoint.logits(request)
    node = family.attention[0]
    for attribute, change in PLANTED.items():
        old = node.attributes[attribute]
        if old.value == 0:  # this family does not have it
            continue
        node.attributes[attribute] = ir.Attr(attribute, old.type, old.value + change)
        ((rows, logits),) = run_ragged(family.exported.model, family.exported.facts, [request], [(23,)])
        node.attributes[attribute] = old
        expected = np.stack([wanted[position] for _, position in rows])
        assert np.abs(logits - expected).max() > 1e-3, attribute


def test_a_family_that_cannot_be_had_is_refused_by_name(refused_family: str) -> None:
    """Before anything wrong can run, with what is unsupported and what to do instead."""
    config, words = {**REFUSED, **MORE_REFUSED}[refused_family]
    error = refusal_of(refused_family)
    assert words in error.found
    assert type(config).__name__[:3] in error.found
    assert "choose" in error.do
