"""The meanings as ONNX functions: they parse, check, and are named by what they say."""

import onnx
import pytest

from paceline.plugins.meanings import MEANINGS, OP_TYPES, meaning_of

ATTRIBUTES = {
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 16,
    "scale": 0.25,
    "window": 0,
    "softcap": 0.0,
    "layer": 0,
    "rotary_dim": 16,
    "interleaved": 0,
    "page_size": 16,
    "in_features": 32,
    "out_features": 16,
    "epsilon": 1e-5,
}


@pytest.mark.parametrize("op_type", OP_TYPES)
def test_every_meaning_is_a_function_in_standard_ops(op_type: str) -> None:
    function = meaning_of(op_type, ATTRIBUTES, [True] * len(MEANINGS[op_type][0]))
    assert function.name == op_type
    assert function.domain == "paceline"
    assert {node.domain for node in function.node} == {""}
    opset = onnx.defs.onnx_opset_version()
    assert all(onnx.defs.has(node.op_type) and opset >= 23 for node in function.node)


def test_equal_questions_have_one_answer_and_others_another_name() -> None:
    plain = meaning_of("Attention", ATTRIBUTES, [True] * 4)
    assert plain == meaning_of("Attention", dict(reversed(ATTRIBUTES.items())), [True] * 4)
    others = [
        meaning_of("Attention", ATTRIBUTES, [True] * 3),
        meaning_of("Attention", ATTRIBUTES, [True] * 5),
        meaning_of("Attention", {**ATTRIBUTES, "window": 4}, [True] * 4),
        meaning_of("Attention", {**ATTRIBUTES, "softcap": 4.0}, [True] * 4),
        meaning_of("Attention", {**ATTRIBUTES, "interleaved": 1}, [True] * 4),
    ]
    assert len({plain.overload, *(other.overload for other in others)}) == 6


def test_an_op_that_is_not_ours_is_no_meaning() -> None:
    with pytest.raises(KeyError):
        meaning_of("Softmax", {}, [True])
