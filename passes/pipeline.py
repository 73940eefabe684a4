"""THE order of the passes, as data: read down to see what happens to a graph, and why there.

Nothing flows through here: `toolchain/export.py` runs TIDY, `toolchain/optimize.py` the others. Letting passes register
themselves was the alternative and lost: the order would be nowhere to be read.
"""

from .align_angles import align_angles
from .base import Pass
from .cast_linears import cast_linears
from .drop_batch_axis import drop_batch_axis
from .eliminate_duplicates import eliminate_duplicates
from .fuse_gated_linear import fuse_gated_linear
from .fuse_residual_norm import fuse_residual_norm
from .fuse_rope import fuse_rope
from .fuse_swiglu import fuse_swiglu
from .insert_paged_attention import insert_paged_attention
from .lower_to_cpu import lower_to_cpu
from .merge_gate_up import merge_gate_up
from .merge_qkv import merge_qkv
from .merge_slices import merge_slices
from .name_bindings import name_bindings
from .name_values import name_values
from .pack_attention_inputs import pack_attention_inputs
from .quantize_fp8 import quantize_fp8
from .quantize_int8 import quantize_int8
from .quantize_kv_cache import quantize_kv_cache
from .quantize_weight_only import quantize_weight_only
from .recognize_norms import recognize_norms
from .recognize_ops import recognize_ops
from .recognize_rotations import recognize_rotations
from .select_logit_rows import select_logit_rows
from .simplify_layout import simplify_layout
from .smooth_inputs import smooth_inputs
from .sort_nodes import sort_nodes
from .split_gemm import split_gemm
from .store_embedding import store_embedding
from .tidy import clear_notes, fold_constants, lift_constants, remove_dead_code, remove_no_ops
from .transpose_weights import transpose_weights

__all__ = ["CPU", "PORTABLE", "PRECISION", "TIDY"]

TIDY: tuple[Pass, ...] = (  # what every exporter leaves behind; part of export
    fold_constants,  # shapes, axes and "1 + weight" become constants that later patterns can read
    remove_no_ops,  # after folding: only then is a factor known to be 1, a shape known to be constant
    lift_constants,  # one place to look for a constant: the initializers
    remove_dead_code,
    clear_notes,  # the library passes above leave notes too
    sort_nodes,  # a set in a model's code must not decide what comes first
    name_values,  # in order, so that equal graphs are named equally; reasons of later passes say these names
)

PORTABLE: tuple[
    Pass, ...
] = (  # any target, in float32: what calibration runs and every other graph is measured against
    eliminate_duplicates,  # before the fusions: they ask whether two layers read the very same table
    split_gemm,  # one form of a linear layer for all that comes
    recognize_ops,  # RMSNormalization and RotaryEmbedding out of small operators: the fusions know these only
    recognize_norms,  # in spellings that the library behind recognize_ops has no pattern for
    recognize_rotations,  # those that recognize_ops has no pattern for, by what they do to numbers
    eliminate_duplicates,  # again: recognition makes a table for each layer
    merge_slices,  # projections that are stored as one matrix: the Split that the fusions know
    simplify_layout,  # of rotations that had rows first: fuse_rope looks through one Transpose
    fuse_rope,  # takes away what stands between the layouts of q, k and the attention
    drop_batch_axis,  # rotations in small operators are the only thing that it cannot see through
    simplify_layout,  # again: now the others cancel too
    merge_qkv,  # only now do q, k, v come from three MatMuls of one input
    merge_gate_up,
    fuse_swiglu,  # needs the one Split that merge_gate_up leaves
    fuse_residual_norm,
    transpose_weights,  # of what was not merged: merged weights are laid out for MatMul already
    select_logit_rows,  # after the fusions: they would not see through its Gathers
    insert_paged_attention,  # last of the rewrites: up to here the graph can be compared with the model row by row
    remove_dead_code,
    clear_notes,
    sort_nodes,
    name_values,  # again: names say what the graph has become
    name_bindings,  # last of all: is the border the contract's?
)

PRECISION: tuple[Pass, ...] = (  # any target; the result is the bundle's graph/<role>.onnx
    smooth_inputs,  # while all weights are float32
    quantize_fp8,
    quantize_int8,
    quantize_weight_only,
    cast_linears,
    quantize_kv_cache,
    store_embedding,  # after the head, which may be tied to the table and stored otherwise
    remove_dead_code,
    sort_nodes,
    name_values,
)

CPU: tuple[Pass, ...] = (  # from the portable graph to the CPU engine's
    lower_to_cpu,
    pack_attention_inputs,  # the kernel takes strides; other targets' attention does not
    fuse_gated_linear,  # on packed weights: only this target's kernels end in a gate
    align_angles,  # onnxruntime's Cos and Sin; other targets have their own
    sort_nodes,
    name_values,
)
