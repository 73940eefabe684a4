"""The meaning of every op of ours, behind one question: what does this node mean in standard ops?

A node's type, attributes and present inputs flow in; an `onnx.FunctionProto` flows out. Its `overload` name is made of
exactly what its text was made of, so equal nodes share a function and a graph's bytes do not depend on their order.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence

import onnx
import onnx.parser

from .linear.meaning import gated_linear_text, linear_text
from .paged_attention.meaning import attention_text, paged_attention_text
from .paged_attention.schema import PAGED_ATTENTION_INPUTS
from .residual_norm.meaning import residual_norm_text
from .swiglu.meaning import swiglu_text

__all__ = ["OP_TYPES", "meaning_of"]

Text = Callable[[Mapping[str, float], Sequence[str]], str]


def _linear(op_type: str) -> Text:
    return lambda attributes, inputs: linear_text(op_type, attributes, inputs)


def _gated(op_type: str) -> Text:
    return lambda attributes, inputs: gated_linear_text(op_type, attributes, inputs)


# op type -> (all inputs in order, the text of its function)
MEANINGS: dict[str, tuple[tuple[str, ...], Text]] = {
    "Attention": (("q", "k", "v", "cos_sin", "sinks"), attention_text),
    "GatedLinearBf16": (("x", "weight"), _gated("LinearBf16")),
    "GatedLinearF32": (("x", "weight"), _gated("LinearF32")),
    "GatedLinearInt8": (("x", "weight", "scale"), _gated("LinearInt8")),
    "GatedLinearInt8Rows16": (("x", "weight", "scale"), _gated("LinearInt8Rows16")),
    "LinearBf16": (("x", "weight", "bias"), _linear("LinearBf16")),
    "LinearF32": (("x", "weight", "bias"), _linear("LinearF32")),
    "LinearInt8": (("x", "weight", "scale", "bias"), _linear("LinearInt8")),
    "LinearInt8Rows16": (("x", "weight", "scale", "bias"), _linear("LinearInt8Rows16")),
    "PagedAttention": (
        PAGED_ATTENTION_INPUTS,
        paged_attention_text,
    ),
    "ResidualNorm": (("x", "residual", "weight"), residual_norm_text),
    "SwiGLU": (("gate_up",), swiglu_text),
}

OP_TYPES = tuple(MEANINGS)


def meaning_of(op_type: str, attributes: Mapping[str, float], present: Sequence[bool]) -> onnx.FunctionProto:
    """The function for a node of our domain; `present[i]` says whether its input i is there.

    An input in the middle that is left out stays a parameter of the function, one that nothing in the body reads.
    Raises: KeyError for an op that is not ours.
    """
    names, text = MEANINGS[op_type]
    inputs = [name if there else f"no_{name}" for name, there in zip(names, present, strict=False)]
    source = text(attributes, inputs)
    function = onnx.parser.parse_function(source)
    function.overload = hashlib.sha256(source.encode()).hexdigest()[:12]
    return function
