"""SwiGLU(gate_up) -> silu(gate) * up in standard ops; gate is the first half of the last axis (Shazeer 2020, eq. 6)."""

from collections.abc import Mapping, Sequence

__all__ = ["swiglu_text"]


def swiglu_text(attributes: Mapping[str, float], inputs: Sequence[str]) -> str:
    """The function, as ONNX text."""
    return f"""<domain: "paceline", opset_import: ["" : 23]>
SwiGLU ({", ".join(inputs)}) => (y) {{
    gate, up = Split <axis = -1, num_outputs = 2> (gate_up)
    share = Sigmoid (gate)
    open = Mul (gate, share)
    y = Mul (open, up)
}}
"""
