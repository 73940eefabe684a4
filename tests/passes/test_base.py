"""The runner: order, counts, reasons, the check after each pass, and whom an error blames."""

import logging

import onnx_ir as ir
import pytest
from graph_text import graph, listing, weights

from paceline.passes.base import Fusion, PassReport, explain, remove_dead_nodes, run_fusion, run_passes
from paceline.passes.errors import PassError
from paceline.passes.target import Target

TEXT = "(float[T,4] x) => (float[T,4] y) { a = Relu(x)  b = Neg(a)  y = Relu(b) }"


def swap_relus(model: ir.Model, target: Target) -> int:
    """A fusion as they are written: Relu becomes Abs, unless it makes an output."""

    def pattern(node: ir.Node) -> ir.Node | None:
        return node if node.op_type == "Relu" else None

    def check(node: ir.Node, target: Target) -> ir.Node | str:
        return f"{node.outputs[0].name} is an output" if node.outputs[0].is_graph_output() else node

    def rewrite(graph: ir.Graph, node: ir.Node) -> None:
        old = node.outputs[0]
        new = ir.Value(name=old.name, type=old.type, shape=old.shape)
        graph.insert_before(node, ir.node("Abs", node.inputs, outputs=[new]))
        old.replace_all_uses_with(new)

    return run_fusion(model, target, Fusion(pattern, check, rewrite))


def do_nothing(model: ir.Model, target: Target) -> int:
    return 0


def test_reports_count_reasons_and_order(caplog: pytest.LogCaptureFixture) -> None:
    model = graph(TEXT)
    seen: list[tuple[str, int]] = []
    with caplog.at_level(logging.INFO):
        reports = run_passes(model, Target(), (do_nothing, swap_relus), lambda r, m: seen.append((r.name, r.count)))
    assert listing(model) == "a = Abs(x)\nb = Neg(a)\ny = Relu(b)"
    assert [(r.name, r.count, r.reasons) for r in reports] == [
        ("do_nothing", 0, ()),
        ("swap_relus", 1, ("y: y is an output",)),
    ]
    assert seen == [("do_nothing", 0), ("swap_relus", 1)]
    assert all(r.seconds >= 0 for r in reports)
    assert "swap_relus: 1 rewrites" in caplog.text


def test_reasons_do_not_leak_into_the_next_pass() -> None:
    model = graph(TEXT)
    reports = run_passes(model, Target(), (swap_relus, do_nothing))
    assert reports[1].reasons == ()


def test_reasons_do_not_stay_in_the_model() -> None:
    model = graph(TEXT)
    run_passes(model, Target(), (swap_relus,))
    assert not model.meta


def test_a_reason_noted_outside_a_fusion_is_reported() -> None:
    def notes(model: ir.Model, target: Target) -> int:
        explain(model, model.graph.outputs[0], "too small")
        return 0

    assert run_passes(graph(TEXT), Target(), (notes,))[0].reasons == ("y: too small",)


def test_an_error_names_the_pass_and_those_before_it() -> None:
    def breaks(model: ir.Model, target: Target) -> int:
        raise KeyError("hidden_size")

    with pytest.raises(
        PassError, match=r"pass breaks failed.*KeyError: 'hidden_size'.*before it: do_nothing"
    ) as caught:
        run_passes(graph(TEXT), Target(), (do_nothing, breaks, swap_relus))
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_pass_that_leaves_an_unsound_graph_is_blamed() -> None:
    def retypes(model: ir.Model, target: Target) -> int:
        model.graph.outputs[0].type = ir.TensorType(ir.DataType.DOUBLE)
        return 1

    with pytest.raises(PassError, match=r"pass retypes .* y was FLOAT and became DOUBLE"):
        run_passes(graph(TEXT), Target(), (retypes,))


@pytest.mark.parametrize("answer", [None, True, 1.0])
def test_a_pass_must_answer_with_a_count(answer: object) -> None:
    with pytest.raises(PassError, match="number of its rewrites"):
        run_passes(graph(TEXT), Target(), (lambda model, target: answer,))  # type: ignore[arg-type,return-value]


def test_an_observer_is_not_called_after_a_failure() -> None:
    seen: list[PassReport] = []

    def breaks(model: ir.Model, target: Target) -> int:
        raise RuntimeError

    with pytest.raises(PassError):
        run_passes(graph(TEXT), Target(), (breaks,), lambda report, model: seen.append(report))
    assert seen == []


def test_dead_nodes_and_initializers_go_in_one_walk() -> None:
    model = graph(
        "(float[T,4] x) => (float[T,4] y) { y = Relu(x)  a = Add(x, w)  b = Mul(a, v)  c = Neg(b) }",
        **weights(w=[4], v=[4]),
    )
    assert remove_dead_nodes(model) == 5
    assert listing(model) == "y = Relu(x)"
    assert not model.graph.initializers
    assert remove_dead_nodes(model) == 0
