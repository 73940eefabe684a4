"""Every family: exported, optimized, run ragged on stock onnxruntime, and compared with transformers' own output.

The comparison is per request: whatever shares a step with it, in whatever chunks it comes, a request must get the
logits that transformers gives for its whole sequence alone.
"""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import pytest
from exports import TARGET, export_of
from ragged import run_ragged
from tiny_models import FAMILIES, VOCAB_SIZE, WINDOW, RandomCheckpoint
from tolerances import TOLERANCES

from paceline.passes.base import PassReport
from paceline.passes.compare_graphs import run_graph
from paceline.plugins import contract
from paceline.toolchain.export import ExportedModel
from paceline.toolchain.optimize import optimize


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


@pytest.fixture(scope="module", params=sorted(FAMILIES))
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


def test_every_layer_is_one_paged_attention_and_the_facts_say_so(family: Family) -> None:
    config = family.checkpoint.config
    assert family.attributes("layer") == list(range(config.num_hidden_layers))
    assert family.exported.facts == contract.GraphFacts(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        max_positions=256,
        page_size=4,
        cache_dtype="float32",
        layers=(contract.LayerCache(kv_heads=2, head_dim=16),) * 2,
    )


def test_the_projections_are_one_product_each(family: Family) -> None:
    """Fusions fire for every family, or nothing but a fused checkpoint keeps them from it."""
    graph = family.exported.model.graph
    products = sum(node.op_type == "MatMul" for node in graph)
    assert products == 2 * 4 + 1, "qkv, o, gate-up, down in each layer, and the head"
    assert not any(node.op_type in {"RotaryEmbedding", "Softmax"} for node in graph)


@dataclass(frozen=True)
class Expected:
    """What a family is in the tests for, as attributes of its two layers."""

    window: tuple[int, int] = (0, 0)
    rotary_dim: tuple[int, int] = (16, 16)
    scale: float = 0.25
    softcap: float = 0.0


EXPECTED = {
    "gemma2": Expected(window=(WINDOW, 0), scale=24**-0.5, softcap=3.0),
    "gemma3": Expected(window=(WINDOW, 0), scale=24**-0.5),
    "mistral": Expected(window=(WINDOW, WINDOW)),
    "phi3": Expected(rotary_dim=(8, 8)),
    "smollm3": Expected(rotary_dim=(16, 0)),
}


def test_window_rotation_scale_and_softcap_reach_the_operator(family: Family, request: pytest.FixtureRequest) -> None:
    expected = EXPECTED.get(request.node.callspec.params["family"], Expected())
    assert tuple(family.attributes("window")) == expected.window
    assert tuple(family.attributes("rotary_dim")) == expected.rotary_dim
    assert family.attributes("scale") == pytest.approx([expected.scale] * 2)
    assert family.attributes("softcap") == [expected.softcap] * 2


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
