"""What a step takes between the layers, by hand on a small graph, and what stands in a real engine."""

import tomllib
from pathlib import Path

import onnx_ir as ir

from paceline.plugins import contract
from paceline.runtime.bundle import open_bundle
from paceline.runtime.manifest import EngineEntry
from paceline.toolchain.engine_facts import ONNXRUNTIME, row_bytes, with_needs


def value(name: str, *shape: int | str, dtype: ir.DataType = ir.DataType.FLOAT) -> ir.Value:
    return ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype))


def node(inputs: list[ir.Value], output: ir.Value) -> ir.Node:
    return ir.Node("", "Op", inputs, outputs=[output])


def test_values_live_until_their_last_reader() -> None:
    """
    a [T, 100] -> b [T, 50] -> c [T, 10] bf16 -> d (out)
       \\_________________________/
    While b makes c, a is still wanted: 400 + 200 + 20. The output and what has no rows count nothing.
    """
    x, fixed = value("x", "T", 7), value("fixed", 1000)
    a, b, c = value("a", "T", 100), value("b", "T", 50), value("c", "T", 10, dtype=ir.DataType.BFLOAT16)
    d = value("d", "T", 9999)
    nodes = [node([x], a), node([x], fixed), node([a], b), node([b], c), node([c, a], d)]
    graph = ir.Graph([x], [d], nodes=nodes, opset_imports={"": 23})
    assert row_bytes(graph) == 400 + 200 + 20


def test_a_value_that_nobody_reads_is_gone_at_once() -> None:
    x = value("x", "T", 1)
    a, b, out = value("a", "T", 100), value("b", "T", 30), value("out", "T", 1)
    graph = ir.Graph([x], [out], nodes=[node([x], a), node([x], b), node([b], out)], opset_imports={"": 23})
    assert row_bytes(graph) == 400


def test_an_engine_says_what_reads_it(tiny_whole: Path) -> None:
    engine = open_bundle(tiny_whole).manifest.roles["target"].engines["cpu"]
    bare = EngineEntry(engine.path, engine.weights)
    assert with_needs(bare, tiny_whole) == engine
    assert 64 * 4 * 2 <= engine.row_bytes <= 64 * 4 * 20  # hidden size 64: a handful of rows live at one time


def test_the_oldest_onnxruntime_is_the_one_that_the_package_asks_for() -> None:
    """Another opset needs a newer one: then this constant, the extra `cpu` and this test change together."""
    project = tomllib.loads((Path(__file__).parent.parent.parent / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["cpu"] == [f"onnxruntime>={ONNXRUNTIME}"]
    assert contract.OPSET_VERSION == 23
