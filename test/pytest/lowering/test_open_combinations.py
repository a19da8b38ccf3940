"""Ops over one, two and three bounded dimensions, at their ends and between, compared with onnxruntime; garbage stands beyond the sizes."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

from helpers.bounded_runs import BoundedRun, drawn

DIMS = {"b": (1, 3), "h": (4, 8), "s": (1, 6), "t": (1, 4), "u": (5, 9)}
OPS = {
    "sum over three sizes": ("float[b, s, t] x", "y = ReduceSum<keepdims=0>(x)"),
    "logarithm of a sum": ("float[b, s, t] x", "a = Constant<value=int64[2] {0, 2}>()\n y = ReduceLogSumExp<keepdims=0>(x, a)"),
    "product": ("float[b, s, t] x", "a = Constant<value=int64[1] {1}>()\n y = ReduceProd(x, a)"),
    "last of the largest": ("float[b, s, t] x", "p = ArgMax<axis=1, select_last_index=1>(x)\n y = Cast<to=1>(p)"),
    "running sum": ("float[b, s, t] x", "a = Constant<value=int64 {1}>()\n y = CumSum<reverse=1, exclusive=1>(x, a)"),
    "vector times matrices": ("float[t] x, float[b, t, s] w", "y = MatMul(x, w)"),
    "products that broadcast": ("float[b, 1, s, t] x, float[1, s, t, b] w", "y = MatMul(x, w)"),
    "turned product": ("float[s, t] x, float[s, b] w, float[t, 1] c", "y = Gemm<transA=1>(x, w, c)"),
    "contraction of three sizes": ("float[b, s, t] x, float[b, s, t] w", 'y = Einsum<equation="bst,bst->s">(x, w)'),
    "norm of two sizes": ("float[b, s, t] x, float[s, t] w", "y = LayerNormalization<axis=1>(x, w)"),
    "softmax of merged sizes": ("float[b, s, 4] x", "q = Flatten<axis=2>(x)\n r = Flatten<axis=0>(q)\n y = Softmax<axis=1>(r)"),
    "convolution": ("float[b, 2, h, u] x, float[2, 2, 3, 3] w", "y = Conv<pads=[0, 0, 2, 1], strides=[2, 2]>(x, w)"),
    "convolution of as many windows": ("float[b, 2, h, u] x, float[2, 2, 3, 3] w", 'y = Conv<auto_pad="SAME_LOWER", strides=[2, 2]>(x, w)'),
    "transposed convolution": ("float[b, 2, h, u] x, float[2, 2, 3, 3] w", "y = ConvTranspose<pads=[1, 1, 1, 1], strides=[2, 2]>(x, w)"),
    "largest of windows": ("float[b, 2, h, u] x", "y = MaxPool<kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2], ceil_mode=1>(x)"),
    "mean of windows": ("float[b, 2, h, u] x", "y = AveragePool<kernel_shape=[3, 3], pads=[0, 0, 2, 1]>(x)"),
}


@pytest.mark.parametrize("name", OPS)
def test_all_sizes_give_what_onnxruntime_gives(name):
    signature, body = OPS[name]
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["":18]>\ng ({signature}) => (float[] y) {{\n {body}\n}}')
    model.graph.output[0].type.tensor_type.ClearField("shape")
    names = sorted({d.dim_param for i in model.graph.input for d in i.type.tensor_type.shape.dim if d.dim_param})
    session = onnxruntime.InferenceSession(model.SerializeToString())
    run = BoundedRun(model, {n: DIMS[n] for n in names}, level="popart")
    ends = [{n: DIMS[n][0] for n in names}, {n: DIMS[n][1] for n in names}]
    between = [{n: DIMS[n][(i + k) % 2] for i, n in enumerate(names)} for k in (0, 1)]
    for seed, at in enumerate([*ends, *between, {n: sum(DIMS[n]) // 2 for n in names}]):
        inputs = drawn(model, at, seed)
        (expected,) = session.run(["y"], inputs)
        found = run.run(inputs, at, seed)["y"]
        assert found.shape == expected.shape, at
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5, err_msg=str(at))
