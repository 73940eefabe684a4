"""All passes on the graphs that are really exported: which fusions fire for which family, and that numbers stay.

Each portable pass is run on its own and the graph before it compared with the graph after it on stock onnxruntime, so
that a wrong pass is named by the test that fails. Then the graph is lowered to each CPU format and compared again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import pytest
from exports import export_of
from tiny_models import FAMILIES, VOCAB_SIZE
from tolerances import TOLERANCES

from paceline.passes import pipeline
from paceline.passes.base import PassReport, run_passes
from paceline.passes.compare_graphs import compare_graphs, run_graph
from paceline.passes.insert_paged_attention import insert_paged_attention
from paceline.passes.name_bindings import name_bindings
from paceline.passes.select_logit_rows import select_logit_rows
from paceline.passes.target import Target
from paceline.plugins import contract

NUM_ROWS = 19
INPUTS = {
    contract.INPUT_IDS: np.random.default_rng(0).integers(0, VOCAB_SIZE, NUM_ROWS),
    contract.POSITIONS: np.arange(NUM_ROWS),
}
CHANGES_THE_INTERFACE = (select_logit_rows, insert_paged_attention, name_bindings)
FUSIONS = tuple(one_pass for one_pass in pipeline.PORTABLE if one_pass not in CHANGES_THE_INTERFACE)
LOWERING = (*pipeline.PRECISION, *pipeline.CPU)

# root mean square of the difference over that of the logits, two layers of random weights: about 2^-9 a product of
# rounded operands, and 1/127/sqrt(12) with int8; measured 0.9-1.3 % and 2.8-4.4 % over the families; 16-bit rows leave
# the error of the weights; E4M3 has 4 bits of mantissa, int4 blocks 15 levels
LOWERED_RMS = {
    "fp32": 1e-5,
    "bf16": 0.025,
    "fp16": 0.01,
    "int8": 0.08,
    "int8_rows16": 0.06,
    "int8_weight_only": 0.05,
    "int4_weight_only": 0.5,
}
NEAR_RELATIVES = 2  # times that: some have more layers in a row (a norm behind the embedding, four projections an MLP)


@dataclass(frozen=True)
class Fired:
    """How often each fusion fires in a graph of two layers, and how many nodes are left in all."""

    fuse_rope: int = 2
    merge_qkv: int = 2
    merge_gate_up: int = 2
    fuse_swiglu: int = 2
    fuse_residual_norm: int = 4
    merge_slices: int = 0
    nodes: int = 27


EXPECTED = {
    "llama": Fired(),
    "llama3_tied": Fired(nodes=28),  # a Transpose of the table for the head
    "mistral": Fired(),
    "qwen2": Fired(nodes=29),  # Add of the biases
    "qwen3": Fired(nodes=40),  # Reshape, norm, Reshape of q and k; tied
    "gemma2": Fired(fuse_swiglu=0, nodes=40),  # GELU is no SwiGLU; a norm after attention and one after the MLP
    "gemma3": Fired(fuse_swiglu=0, nodes=53),  # both, and two tables of angles
    "phi3": Fired(merge_qkv=0, merge_gate_up=0, merge_slices=2),  # stored as one matrix each
    "smollm3": Fired(fuse_rope=1, nodes=28),  # one layer has no rotation; tied
}


@dataclass(frozen=True)
class Optimized:
    """A family's graph after all fusions, and what each pass said and changed."""

    name: str
    model: ir.Model
    reports: Mapping[str, PassReport]
    differences: Mapping[str, float]
    repeated: Mapping[str, int]


@pytest.fixture(scope="module")
def family(request: pytest.FixtureRequest) -> Optimized:
    model = export_of(request.param)[1].model
    reports, differences, repeated = {}, {}, {}
    for one_pass in FUSIONS:
        before = model.clone()
        (report,) = run_passes(model, Target(), (one_pass,))
        reports[report.name] = report
        differences[report.name] = compare_graphs(before, model, INPUTS).max_abs
        repeated[report.name] = run_passes(model, Target(), (one_pass,))[0].count
    return Optimized(request.param, model, reports, differences, repeated)


def test_every_pass_keeps_the_numbers_and_has_nothing_left_to_do(family: Optimized) -> None:
    wrong = {name: gap for name, gap in family.differences.items() if gap > TOLERANCES["float32"]["atol"]}
    assert wrong == {}
    assert set(family.repeated.values()) == {0}, family.repeated


def test_the_fusions_that_should_fire_do(family: Optimized) -> None:
    """Of the other families docs/architectures.md says it, which has a test of its own."""
    if family.name not in EXPECTED:
        return
    counts = {name: report.count for name, report in family.reports.items() if hasattr(Fired, name)}
    assert Fired(**counts, nodes=len(family.model.graph)) == EXPECTED[family.name]


def test_what_does_not_fire_says_why(family: Optimized) -> None:
    if family.name not in EXPECTED:
        return
    reasons = {name: len(report.reasons) for name, report in family.reports.items() if report.reasons}
    wanted = {
        "gemma2": {"fuse_swiglu": 2, "transpose_weights": 1},
        "gemma3": {"fuse_swiglu": 2, "transpose_weights": 1},
        "phi3": {"merge_qkv": 2, "merge_gate_up": 2},
        "smollm3": {"fuse_rope": 1, "transpose_weights": 1},
    }
    tied = {"transpose_weights": 1} if FAMILIES[family.name].tie_word_embeddings else {}
    assert reasons == wanted.get(family.name, tied)


@pytest.mark.parametrize("weights", sorted(LOWERED_RMS))
def test_lowered_graphs_compute_the_same_as_far_as_their_format_allows(family: Optimized, weights: str) -> None:
    lowered = family.model.clone()
    run_passes(lowered, Target(weights=weights), LOWERING)
    assert not any(node.op_type in ("Gemm", "MatMul") for node in lowered.graph)
    assert not any(
        value.is_initializer() for node in lowered.graph if node.op_type == "Transpose" for value in node.inputs
    )
    wanted = run_graph(family.model, INPUTS)[contract.LOGITS]
    found = run_graph(lowered, INPUTS)[contract.LOGITS]
    limit = LOWERED_RMS[weights] * (1 if family.name in FAMILIES else NEAR_RELATIVES)
    assert np.sqrt(np.mean((found - wanted) ** 2) / np.mean(wanted**2)) < limit
    assert {report.count for report in run_passes(lowered, Target(weights=weights), LOWERING)} == {0}


CPU_LLAMA = """\
model.embed_tokens = Gather
model.Cast = Cast
model.layers.0.input_layernorm = RMSNormalization
model.layers.0.self_attn.q_proj+k_proj+v_proj = LinearBf16
model.layers.0.Unsqueeze = Unsqueeze
model.layers.0.Cast = Cast
model.rotary_emb = Mul
model.layers.0.Pad = Pad
model.layers.0.Cos = Cos
model.layers.0.Slice = Slice
model.layers.0.Sin = Sin
model.layers.0.Slice#2 = Slice
model.layers.0.Concat = Concat
model.layers.0.PagedAttention = PagedAttention
model.layers.0.self_attn.o_proj = LinearBf16
model.layers.0.post_attention_layernorm = ResidualNorm
model.layers.0.mlp.gate_proj+up_proj = GatedLinearBf16
model.layers.0.mlp.down_proj = LinearBf16
model.layers.1.input_layernorm = ResidualNorm
model.layers.1.Gather = Gather
model.layers.1.self_attn.q_proj+k_proj+v_proj = LinearBf16
model.layers.1.PagedAttention = PagedAttention
model.layers.1.Gather#2 = Gather
model.layers.1.self_attn.o_proj = LinearBf16
model.layers.1.post_attention_layernorm = ResidualNorm
model.layers.1.mlp.gate_proj+up_proj = GatedLinearBf16
model.layers.1.mlp.down_proj = LinearBf16
model.norm = ResidualNorm
logits = LinearBf16"""


def test_a_layer_of_the_cpu_graph_is_seven_nodes() -> None:
    """The golden of what a CPU engine runs: seven nodes a layer, the angles once, wanted rows only at the end."""
    model = export_of("llama")[1].model
    run_passes(model, Target(weights="bf16"), (*pipeline.PORTABLE, *pipeline.PRECISION, *pipeline.CPU))
    assert "\n".join(f"{node.outputs[0].name} = {node.op_type}" for node in model.graph) == CPU_LLAMA


def test_fusing_and_lowering_reads_no_weight_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights come from the disk when the graph is written; a pass that reads them holds a model in memory."""
    checkpoint, exported = export_of("qwen3")
    model, read = exported.model, list[str]()

    def noting_read(name: str, start: int, stop: int) -> np.ndarray:
        read.append(name)
        return checkpoint.weights[name][start:stop]

    monkeypatch.setattr(checkpoint, "read_rows", noting_read)
    run_passes(model, Target(weights="int8"), (*pipeline.PORTABLE, *pipeline.PRECISION, *pipeline.CPU))
    assert [name for name in read if checkpoint.weights[name].ndim > 1] == []
    gate_up = "model.layers.0.mlp.gate_proj.weight+model.layers.0.mlp.up_proj.weight/int8/packed_int8"
    packed = model.graph.initializers[gate_up].const_value
    assert packed is not None
    assert packed.numpy().shape == (6, 16, 16, 4)
    assert [name for name in read if checkpoint.weights[name].ndim > 1] == gate_up.removesuffix(
        "/int8/packed_int8"
    ).split("+")
