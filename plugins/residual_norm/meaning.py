"""ResidualNorm(x, residual, weight) -> (normalized, total) in standard ops.

total      = x + residual
normalized = total / sqrt(mean(total^2) + epsilon) * weight        RMSNorm, Zhang and Sennrich 2019, eq. 4
"""

from collections.abc import Mapping, Sequence

__all__ = ["residual_norm_text"]


def residual_norm_text(attributes: Mapping[str, float], inputs: Sequence[str]) -> str:
    """The function, as ONNX text."""
    return f"""<domain: "paceline", opset_import: ["" : 23]>
ResidualNorm <epsilon> ({", ".join(inputs)}) => (normalized, total) {{
    total = Add (x, residual)
    normalized = RMSNormalization <axis = -1, epsilon = {float(attributes["epsilon"])!r}> (total, weight)
}}
"""
