"""The check after every pass: each fault that a pass can leave behind is found and named."""

from collections.abc import Callable

import onnx_ir as ir
import pytest
from graph_text import graph, weights

from paceline.passes.check_graph import UnsoundGraphError, check_graph, types_of

TEXT = "(float[T,4] x) => (float[T,4] y) { a = Add(x, w)  b = Relu(a)  y = Neg(b) }"


def sound() -> ir.Model:
    return graph(TEXT, **weights(w=[4]))


def value(model: ir.Model, name: str) -> ir.Value:
    return next(output for node in model.graph for output in node.outputs if output.name == name)


def dangle(model: ir.Model) -> None:
    model.graph.node(1).replace_input_with(0, ir.Value(name="ghost"))


def reorder(model: ir.Model) -> None:
    node = model.graph.node(0)
    model.graph.remove(node)
    model.graph.append(node)


def name_twice(model: ir.Model) -> None:
    value(model, "b").name = "a"


def forget_name(model: ir.Model) -> None:
    value(model, "b").name = ""


def empty_initializer(model: ir.Model) -> None:
    model.graph.initializers["w"].const_value = None


def rename_initializer(model: ir.Model) -> None:
    dict.__setitem__(model.graph.initializers.data, "v", model.graph.initializers["w"])


def orphan_output(model: ir.Model) -> None:
    model.graph.outputs[0] = ir.Value(name="z", type=ir.TensorType(ir.DataType.FLOAT))


def retype(model: ir.Model) -> None:
    value(model, "b").type = ir.TensorType(ir.DataType.INT64)


def lose_an_axis(model: ir.Model) -> None:
    value(model, "b").shape = ir.Shape([4])


def resize(model: ir.Model) -> None:
    value(model, "b").shape = ir.Shape(["T", 5])


def take_over_name(model: ir.Model) -> None:
    """A new value under an old name, of another type."""
    node = model.graph.node(1)
    new = ir.Value(name="b", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape(["T", 4]))
    model.graph.insert_before(node, ir.node("Cast", node.inputs, {"to": 7}, outputs=[new]))
    node.outputs[0].replace_all_uses_with(new)
    model.graph.remove(node, safe=True)


def untyped_output(model: ir.Model) -> None:
    model.graph.outputs.append(value(model, "a"))
    value(model, "a").type = None


FAULTS: list[tuple[Callable[[ir.Model], None], str]] = [
    (dangle, "Relu .* reads ghost before anything makes it"),
    (reorder, "reads a before anything makes it"),
    (name_twice, "two values are called a"),
    (forget_name, "no name"),
    (empty_initializer, "initializer w holds no tensor"),
    (rename_initializer, "initializer v calls itself w"),
    (orphan_output, "nothing makes the output z"),
    (retype, "b was FLOAT and became INT64"),
    (lose_an_axis, "b had 2 axes and has 1"),
    (resize, "axis 1 of b was 4 and became 5"),
    (take_over_name, "b was FLOAT and became INT64"),
    (untyped_output, "a"),
]


def test_a_sound_graph_passes() -> None:
    model = sound()
    check_graph(model, types_of(model))


@pytest.mark.parametrize(("fault", "message"), FAULTS, ids=[fault.__name__ for fault, _ in FAULTS])
def test_a_fault_is_found(fault: Callable[[ir.Model], None], message: str) -> None:
    model = sound()
    before = types_of(model)
    fault(model)
    with pytest.raises(UnsoundGraphError, match=message):
        check_graph(model, before)


def test_renaming_all_values_is_no_fault() -> None:
    """Values swap names and have other types: identity decides, not the name."""
    model = graph("(float[T,4] x) => (float[T,4] y) { a = Relu(x)  c = Cast<to = 7>(a)  y = Cast<to = 1>(c) }")
    before = types_of(model)
    a, c = value(model, "a"), value(model, "c")
    a.name, c.name = "c", "a"
    check_graph(model, before)


def test_the_check_reads_no_tensor() -> None:
    def explode() -> ir.TensorProtocol:
        raise AssertionError("the check read a weight")

    model = sound()
    lazy = ir.LazyTensor(explode, dtype=ir.DataType.FLOAT, shape=ir.Shape([4]), name="w")
    model.graph.initializers["w"].const_value = lazy
    check_graph(model, types_of(model))
