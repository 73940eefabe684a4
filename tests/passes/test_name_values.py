"""name_values: names in which a reader finds the module or the layer."""

import numpy as np
import onnx_ir as ir
from graph_text import graph, listing, weights

from paceline.passes.base import run_passes
from paceline.passes.name_values import name_values
from paceline.passes.target import Target

STEP = "int32[B1] query_start, int32[B] context_len, int32[B,M] page_table, int64[R] logit_rows"
ATTENTION = (
    "paceline.PagedAttention<heads = 1, kv_heads = 1, head_dim = 4, scale = 0.5, window = 0, softcap = 0.0, "
    "rotary_dim = 0, interleaved = 0, page_size = 2, layer = 0>"
)
TEXT = f"""(float[2,N,1,8] "kv_pages.0", {STEP}, int64[T] positions, int64[T] input_ids)
    => (float[2,N,1,8] "kv_pages_out.0", float[R,5] logits) {{
    val_9 = Gather("embed.weight", input_ids)
    a = MatMul(val_9, "layers.0.attn.q.weight+layers.0.attn.k.weight+layers.0.attn.v.weight")
    q, k, v = Split<axis = -1>(a, "int64[4, 4, 4]")
    b, "kv_pages_out.0" = {ATTENTION}(q, k, v, "kv_pages.0", page_table, query_start, context_len)
    c = Mul(b, val_3)
    d = Relu(c)
    e = Relu(d)
    f = Transpose<perm = [1, 0]>("head.weight")
    g = Gather(e, logit_rows)
    logits = MatMul(g, f)
}}"""
INITIALIZERS = {
    "embed.weight": [5, 4],
    "layers.0.attn.q.weight+layers.0.attn.k.weight+layers.0.attn.v.weight": [4, 12],
    "head.weight": [5, 4],
    "val_3": [4],
}


def named(text: str = TEXT) -> ir.Model:
    """`text` with its quoted names, which ONNX's text format does not have, put in place."""
    quoted = sorted(set(text.split('"')[1::2]))
    plain = {name: f"quoted{number}" for number, name in enumerate(quoted)}
    initializers: dict[str, object] = {**weights(**INITIALIZERS), "int64[4, 4, 4]": [4, 4, 4]}
    for name in quoted:
        text = text.replace(f'"{name}"', plain[name])
    model = graph(text, **{plain.get(name, name): array for name, array in initializers.items()})
    for value in (
        *model.graph.inputs,
        *model.graph.initializers.values(),
        *(o for n in model.graph for o in n.outputs),
    ):
        value.name = next((name for name, short in plain.items() if short == value.name), value.name)
    return model


THREE, TWO = np.float32(3), np.float32(2)


def test_names_tell_the_module_or_the_layer_and_operator() -> None:
    model = named()
    (report,) = run_passes(model, Target(), (name_values,))
    assert listing(model).splitlines() == [
        "embed = Gather(embed.weight, input_ids)",
        "layers.0.attn.q+k+v = MatMul(embed, layers.0.attn.q.weight+layers.0.attn.k.weight+layers.0.attn.v.weight)",
        "layers.0.Split, layers.0.Split/1, layers.0.Split/2 = Split(layers.0.attn.q+k+v, [4, 4, 4], axis=-1)",
        "layers.0.PagedAttention, kv_pages_out.0 = PagedAttention(layers.0.Split, layers.0.Split/1, layers.0.Split/2, "
        "kv_pages.0, page_table, query_start, context_len, head_dim=4, heads=1, interleaved=0, kv_heads=1, layer=0, "
        "page_size=2, rotary_dim=0, scale=0.5, softcap=0, window=0)",
        "layers.0.Mul = Mul(layers.0.PagedAttention, constant.0)",
        "layers.0.Relu = Relu(layers.0.Mul)",
        "layers.0.Relu#2 = Relu(layers.0.Relu)",
        "head/transposed = Transpose(head.weight, perm=[1, 0])",
        "layers.0.Gather = Gather(layers.0.Relu#2, logit_rows)",
        "logits = MatMul(layers.0.Gather, head/transposed)",
    ]
    assert report.count == 12
    assert run_passes(model, Target(), (name_values,))[0].count == 0


def test_names_that_were_somebody_elses_are_no_trouble() -> None:
    """c is called as d should be, and the other way round."""
    model = named()
    c, d = (next(o for n in model.graph for o in n.outputs if o.name == name) for name in "cd")
    c.name, d.name = "layers.0.Relu", "layers.0.Mul"
    run_passes(model, Target(), (name_values,))
    assert (c.name, d.name) == ("layers.0.Mul", "layers.0.Relu")


def test_a_new_constant_does_not_take_the_place_of_one_that_was_named_before() -> None:
    """The old bug: a pass behind the first naming brought a constant, which became constant.0 and took its place."""
    model = graph("(float[T,4] x) => (float[T,4] y) { a = Mul(x, three)  y = Add(a, two) }", three=THREE, two=TWO)
    model.graph.initializers["three"].name = "constant.0"
    run_passes(model, Target(), (name_values,))
    assert listing(model) == "model.Mul = Mul(x, constant.0)\ny = Add(model.Mul, constant.1)"
    constants = model.graph.initializers
    assert [constants[f"constant.{number}"].const_value.numpy().item() for number in (0, 1)] == [3, 2]
