"""Attention whose scores and probabilities pass through graphs of the model."""

from __future__ import annotations

import math

from xdsl.dialects.builtin import f32, f64
from xdsl.ir import SSAValue

from populus.dialects.onnx.types import number_of
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of
from populus.lowering.onnx.structure.resolution import Resolution, Rules


def _flex_attention(p: Resolution) -> bool:
    """Expands a FlexAttention with its graphs; False without any. Source: ai.onnx.preview FlexAttention-1."""
    if not any(region.blocks for region in p.op.regions):
        return False
    import numpy as np

    q, k, v = (p.input(i) for i in range(3))
    element = element_type_of(q.type)
    heads, own, size = shape_of(q.type)[1], shape_of(k.type)[1], shape_of(q.type)[3]
    if not own or heads % own:
        raise PopulusError(f"it has {heads} heads of queries for {own} of keys, no multiple of them")
    if heads != own:
        shared = p.constant(np.arange(heads, dtype=np.int64) // (heads // own))
        k, v = (p.make("Gather", x, shared, axis=1) for x in (k, v))
    scale = p.op.property("scale")
    factor = p.constant(np.array(1 / math.sqrt(size) if scale is None else scale, dtype_of(element)))
    precision = p.op.property("softmax_precision") or number_of(f64 if element == f64 else f32)
    scores = p.make("Mul", p.make("MatMul", q, p.make("Transpose", k, perm=[0, 1, 3, 2])), factor)
    scores = _through(p, "score_mod", p.make("Cast", scores, to=precision))
    probabilities = _through(p, "prob_mod", p.make("Softmax", scores, axis=-1))
    return p.gives(p.make("MatMul", p.make("Cast", probabilities, to=number_of(element)), v))


def _through(p: Resolution, name: str, x: SSAValue) -> SSAValue:
    """Applies a graph of the op to `x`, if it has it. Raises PopulusError if the graph changes the type."""
    region = p.op.region(name)
    if not region.blocks:
        return x
    (y,) = p.inline(region, [x])
    if y.type != x.type:
        raise PopulusError(f"its graph {name} makes {y.type} of {x.type}; the same type is expected")
    return y


RULES: Rules = {"ai.onnx.preview.FlexAttention": _flex_attention}
