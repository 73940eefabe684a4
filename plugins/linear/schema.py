"""Names and layouts of the linear ops; what passes write, kernels read and meanings spell out.

    LinearF32 (x, weight,        bias?) -> y     weight float32  [panels, padded_k,     16]
    LinearBf16(x, weight,        bias?) -> y     weight bfloat16 [panels, padded_k / 2, 16, 2]
    LinearInt8(x, weight, scale, bias?) -> y     weight int8     [panels, padded_k / 4, 16, 4], scale float32 [N]
    LinearInt8Rows16, the same with rows in 16-bit steps instead of 8-bit ones

    GatedLinearF32 and so on, without a bias: y = silu(first half of x W) * (second half)

x float32 [..., K], bias float32 [N], y float32 [..., N]; attributes in_features = K and out_features = N. A panel is 16
columns; N is padded to whole panels and K to 64, with zeros. The innermost axis holds neighbours along K, as the dot
instructions of AVX-512 and the tiles of AMX want them.
"""

from dataclasses import dataclass

__all__ = ["FORMATS", "IN_FEATURES", "OUT_FEATURES", "PADDED_K", "PANEL_COLUMNS", "LinearFormat", "padded_size"]

IN_FEATURES = "in_features"
OUT_FEATURES = "out_features"
PANEL_COLUMNS = 16
PADDED_K = 64


@dataclass(frozen=True)
class LinearFormat:
    """One weight format: the ops that take it and how many elements along K lie side by side in 32 bits."""

    op_type: str
    group: int

    @property
    def gated_op_type(self) -> str:
        """The op that ends in SwiGLU."""
        return f"Gated{self.op_type}"


FORMATS = {
    "fp32": LinearFormat("LinearF32", 1),
    "bf16": LinearFormat("LinearBf16", 2),
    "int8": LinearFormat("LinearInt8", 4),
    "int8_rows16": LinearFormat("LinearInt8Rows16", 4),
}


def padded_size(size: int, multiple: int) -> int:
    """`size` rounded up to a whole `multiple`."""
    return -(-size // multiple) * multiple
