"""Ops of com.microsoft that onnxruntime's optimizer fuses, and weights in blocks, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import populus
from helpers.contrib_models import agree, node_model
from populus.dialects.support.diagnostics import PopulusError


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


PRODUCTS = [
    ((2, 3, 4), (2, 4, 5), {}),
    ((2, 4, 3), (2, 4, 5), {"transA": 1, "alpha": 0.5}),
    ((3, 2, 4), (2, 4, 5), {"transBatchA": 1}),
    ((4, 2, 3), (2, 4, 5), {"transBatchA": 1, "transA": 1}),
    ((2, 3, 4), (5, 2, 4), {"transBatchB": 1, "transB": 1, "alpha": 2.0}),
    ((3, 2, 2, 4), (4, 2, 2, 5), {"transBatchA": 1, "transBatchB": 1}),
]


@pytest.mark.parametrize(("a", "b", "attributes"), PRODUCTS)
def test_a_fused_product_transposes_matrices_and_stacks(a, b, attributes):
    agree("FusedMatMul", [normal(*a), normal(*b, seed=1)], **attributes)


GEMM = [
    ("Relu", {}),
    ("LeakyRelu", {"activation_alpha": 0.3}),
    ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
    ("Tanh", {}),
    ("Elu", {"activation_alpha": 0.7}),
    ("Selu", {"activation_alpha": 1.5, "activation_gamma": 1.1}),
    ("Softplus", {}),
    ("Softsign", {}),
    ("ThresholdedRelu", {"activation_alpha": 0.4}),
]


@pytest.mark.parametrize(("kind", "parameters"), GEMM)
def test_a_fused_gemm_takes_its_activation(kind, parameters):
    agree("FusedGemm", [normal(3, 4), normal(5, 4, seed=1), normal(5)], transB=1, alpha=0.5, beta=2.0, activation=kind, **parameters)


CONV = [("Relu", None), ("Clip", [-0.5, 1.5]), ("HardSigmoid", [0.3, 0.4]), ("LeakyRelu", [0.2]), ("Sigmoid", None), (None, None)]


@pytest.mark.parametrize(("kind", "parameters", "residual"), [*((*row, i % 2 == 0) for i, row in enumerate(CONV)), (None, None, True)])
def test_a_fused_convolution_takes_its_activation_and_a_residual(kind, parameters, residual):
    inputs = [normal(1, 2, 5, 5), normal(3, 2, 3, 3, seed=1), normal(3), normal(1, 3, 5, 5, seed=2)][: 4 if residual else 3]
    attributes = {"pads": [1, 1, 1, 1]} | ({"activation": kind} if kind else {}) | ({"activation_params": parameters} if parameters else {})
    agree("FusedConv", inputs, fed=(0, 3), **attributes)


def test_a_fused_convolution_without_its_parameters_is_refused():
    model, _ = node_model("FusedConv", [normal(1, 2, 5, 5), normal(3, 2, 3, 3)], activation="Clip")
    with pytest.raises(PopulusError, match="FusedConv has 0 parameters for Clip; 2 are expected"):
        populus.compile(model, tiles=4)


def gelu(x):
    from math import erf

    return x * (1 + np.vectorize(erf)(x / np.sqrt(2))) / 2


def test_the_halves_of_a_split_gelu_are_multiplied():
    x, bias = normal(2, 3, 8), normal(8, seed=1)
    left, right = np.split((x + bias).astype(np.float64), 2, -1)  # onnxruntime has the op on GPUs only
    agree("BiasSplitGelu", [x, bias], wanted=[(left * gelu(right)).astype(np.float32)])


def test_a_biased_softmax_is_over_all_dimensions_from_its_axis_on():
    x, bias = normal(2, 3, 4), normal(2, 1, 4, seed=1)
    e = np.exp((x + bias).astype(np.float64))  # onnxruntime has the op on GPUs only
    agree("BiasSoftmax", [x, bias], wanted=[(e / e.sum((1, 2), keepdims=True)).astype(np.float32)], axis=1, is_inner_broadcast=1)


def blocks(bits, inner, block, columns, zeros, seed=0):
    rng = np.random.default_rng(seed)
    count = -(-inner // block)
    q = rng.integers(0, 256, (columns, count, block * bits // 8), np.uint8)
    scales = rng.uniform(0.01, 0.1, (columns, count)).astype(np.float32)
    packed = rng.integers(0, 256, (columns, -(-count * bits // 8)), np.uint8)
    zero: Any = {"none": None, "packed": packed, "floats": rng.uniform(0, 2**bits - 1, (columns, count)).astype(np.float32)}[zeros]
    return rng.standard_normal((2, 3, inner)).astype(np.float32), q, scales, zero


@pytest.mark.parametrize(
    ("bits", "inner", "block", "zeros", "bias"),
    [
        (4, 64, 32, "none", False),
        (4, 80, 16, "packed", True),  # five blocks: half a byte is padding
        (4, 40, 32, "packed", False),  # the last block is cut
        (4, 32, 32, "floats", True),
        (4, 32, 32, "packed", False),
        (8, 64, 16, "none", True),
        (8, 48, 32, "packed", False),
        (2, 64, 32, "packed", False),
    ],
)
def test_weights_in_blocks_are_those_of_onnxruntime(bits, inner, block, zeros, bias):
    x, q, scales, zero = blocks(bits, inner, block, 6, zeros)
    inputs = [x, q, scales, zero] + ([None, normal(6)] if bias else [])
    agree("MatMulNBits", inputs, K=inner, N=6, bits=bits, block_size=block)


@pytest.mark.parametrize("zeros", ["none", "packed", "floats"])
def test_rows_of_weights_may_name_their_blocks(zeros):
    x, q, scales, zero = blocks(4, 40, 16, 6, zeros)
    order = np.random.default_rng(1).integers(0, 3, 48).astype(np.int32)
    values = np.stack([q & 15, q >> 4], -1).reshape(6, 48)[:, :40].astype(np.float64)
    of = order[:40]
    each = 8 if zero is None else (np.stack([zero & 15, zero >> 4], -1).reshape(6, -1) if zeros == "packed" else zero)[:, of]
    wanted = x.astype(np.float64) @ ((values - each) * scales[:, of]).T
    known = [wanted.astype(np.float32)] if zeros == "packed" else None  # onnxruntime ignores packed zero points on CPUs then
    agree("MatMulNBits", [x, q, scales, zero, order], wanted=known, K=40, N=6, bits=4, block_size=16)


@pytest.mark.parametrize(("bits", "zeros"), [(4, True), (4, False), (8, True), (8, False), (2, True)])
def test_rows_are_gathered_from_blocks_in_bytes(bits, zeros):
    rng = np.random.default_rng(0)
    each = 8 // bits
    data, scales = rng.integers(0, 256, (7, 48 // each), np.uint8), rng.uniform(0.1, 1, (7, 3)).astype(np.float32)
    zero = rng.integers(0, 256, (7, -(-3 // each)), np.uint8) if zeros else None
    indices = np.array([[0, 6, 3], [-1, 3, 5]], np.int64)
    agree("GatherBlockQuantized", [data, indices, scales, zero], fed=(1,), bits=bits, block_size=16)


@pytest.mark.parametrize(("kind", "gather", "axis"), [("uint4", 0, 2), ("int4", 1, 0), ("int4", 2, 1)])
def test_rows_are_gathered_from_blocks_of_small_integers(kind, gather, axis):
    import ml_dtypes

    rng = np.random.default_rng(0)
    shape, low = [18, 20, 17], -8 if kind == "int4" else 0
    blocks_of = [-(-n // 16) if d == axis else n for d, n in enumerate(shape)]
    data = rng.integers(low, low + 16, shape).astype(getattr(ml_dtypes, kind))
    zero = rng.integers(low, low + 16, blocks_of).astype(getattr(ml_dtypes, kind))
    scales = rng.uniform(0.1, 1, blocks_of).astype(np.float32)
    inputs = [data, np.array([1, 16, 4], np.int32), scales, zero]
    agree("GatherBlockQuantized", inputs, fed=(1,), gather_axis=gather, quantize_axis=axis, block_size=16)


@pytest.mark.parametrize("outputs", [("y0",), ("y0", "", "", "y3")])
@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 3, 4), (3, 4)])
def test_a_skip_may_be_shared_and_the_sum_returned(outputs, shape):
    agree("SkipLayerNormalization", [normal(2, 3, 4), normal(*shape, seed=1), normal(4), normal(4), normal(4, seed=2)], outputs, (0, 1))
    inputs = [normal(2, 3, 4), normal(*shape, seed=1), normal(4), normal(4, seed=2)]
    agree("SkipSimplifiedLayerNormalization", inputs, outputs, (0, 1), epsilon=1e-3)


def test_a_skip_norm_returns_its_mean_and_the_reciprocal_of_its_deviation():
    x, skip = normal(2, 3, 4), normal(2, 3, 4, seed=1)
    total = (x + skip).astype(np.float64)
    mean = total.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt(total.var(-1, keepdims=True) + 1e-3)
    outputs = ("y0", "y1", "y2", "y3")  # onnxruntime leaves y1 and y2 unwritten on CPUs
    wanted = [np.float32(v) for v in ((total - mean) * inverse, mean, inverse, total)]
    agree("SkipLayerNormalization", [x, skip, np.ones(4, np.float32)], outputs, (0, 1), wanted=wanted, epsilon=1e-3)


@pytest.mark.parametrize(("segments", "rows", "masked"), [(False, 0, True), (True, 1, False), (True, 2, True)])
def test_an_embedding_is_the_norm_of_the_sum_of_its_rows(segments, rows, masked):
    rng = np.random.default_rng(0)
    ids, kinds, mask = (rng.integers(0, n, (2, 3), np.int32) for n in (9, 2, 2))
    tables = [normal(9, 4), normal(5, 4, seed=1), normal(2, 4, seed=2) if segments else None, normal(4), normal(4, seed=3)]
    places = rng.integers(0, 5, (rows, 3), np.int32) if rows else None
    inputs = [ids, kinds if segments else None, *tables, mask if masked else None, places]
    agree("EmbedLayerNormalization", inputs, ("y0", "y1", "y2"), (0, 1, 7, 8), epsilon=1e-5)


def test_the_blocked_layout_is_refused_with_advice():
    model, _ = node_model("Conv", [normal(1, 8, 5, 5), normal(8, 8, 3, 3)])
    model.graph.node[0].domain = "com.microsoft.nchwc"
    model.opset_import.append(helper.make_opsetid("com.microsoft.nchwc", 1))
    with pytest.raises(PopulusError, match="save the optimized model at the level `extended`"):
        populus.compile(model, tiles=4)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances_are_those_of_rows(metric):
    agree("CDist", [normal(3, 4), normal(5, 4, seed=1)], fed=(0, 1), metric=metric)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_dimension_is_inserted(axis):
    agree("ExpandDims", [normal(2, 3), np.array(axis, np.int32)])


@pytest.mark.parametrize(("upper", "k"), [(0, None), (1, 1), (0, -1), (1, None)])
def test_a_triangle_is_kept(upper, k):
    agree("Trilu", [normal(2, 3, 4)] + ([np.array(k, np.int64)] if k is not None else []), upper=upper)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_token_that_repeats_an_ngram_is_blocked(size):
    ids = np.array([[1, 2, 3, 1, 2], [4, 4, 4, 4, 4], [0, 1, 2, 3, 4]], np.int64)
    agree("NGramRepeatBlock", [ids, normal(3, 6)], fed=(0, 1), ngram_size=size)


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (1, 1)], ids=str)
def test_matrices_are_inverted(shape):
    x = normal(*shape)
    x[..., 0, 0] = 0 if shape[-1] > 1 else 0.5  # the first pivot is another row's
    agree("Inverse", [x], tolerance=1e-4)
