"""Products by weights of 2, 4 and 8 bits: onnxruntime's, the engines' against each other, their memory, and bad input."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import populus
from helpers.contrib_models import agree, node_model
from populus.dialects.poplar import ConstOp
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import bytes_of


def weights(bits, inner, block, columns, zeros="none", seed=0):
    g = np.random.default_rng(seed)
    count = -(-inner // block)
    q = g.integers(0, 256, (columns, count, block * bits // 8), np.uint8)
    scales = g.uniform(0.01, 0.1, (columns, count)).astype(np.float32)
    packed = g.integers(0, 256, (columns, -(-count * bits // 8)), np.uint8)
    zero = {"none": None, "packed": packed, "floats": g.uniform(0, 2**bits - 1, (columns, count)).astype(np.float32)}[zeros]
    return q, scales, zero


def rows(m, inner):
    return np.random.default_rng(1).standard_normal((m, inner)).astype(np.float32)


SIZES = [  # rows, bits, elements of k, elements of a block, zero points
    (1, 4, 200, 16, "packed"),  # rows of weights end within 16 words, and the last block within its elements
    (5, 4, 200, 32, "none"),
    (6, 4, 512, 256, "packed"),
    (3, 8, 300, 128, "packed"),
    (2, 8, 70, 16, "none"),
    (7, 2, 600, 64, "packed"),
    (4, 2, 100, 16, "none"),
    (1, 4, 300, 128, "floats"),
    (33, 4, 200, 32, "packed"),  # columns become floats first
    (40, 8, 130, 32, "none"),
    (36, 2, 100, 16, "floats"),
]


@pytest.mark.parametrize(("m", "bits", "inner", "block", "zeros"), SIZES)
def test_packed_weights_give_the_product_of_their_values(m, bits, inner, block, zeros):
    x, (q, scales, zero) = rows(m, inner), weights(bits, inner, block, 21, zeros)
    apart = ((q[..., None] >> np.arange(0, 8, bits, dtype=np.uint8)) & (2**bits - 1)).reshape(21, -1, block).astype(np.float64)
    less = np.full(scales.shape, 2.0 ** (bits - 1)) if zero is None else zero
    if zeros == "packed":
        assert zero is not None
        each = (zero.astype(np.uint8)[..., None] >> np.arange(0, 8, bits, dtype=np.uint8)) & (2**bits - 1)
        less = each.reshape(21, -1)[:, : scales.shape[1]]
    w = ((apart - less[..., None]) * scales[..., None]).reshape(21, -1)[:, :inner]
    wanted = (x.astype(np.float64) @ w.T).astype(np.float32)
    agree("MatMulNBits", [x, q, scales, zero], tolerance=3e-6, wanted=[wanted], K=inner, N=21, bits=bits, block_size=block)


@pytest.mark.parametrize("m", [1, 3, 33])
def test_packed_weights_agree_with_onnxruntime_with_a_bias(m):
    q, scales, zero = weights(4, 160, 32, 12, "packed")
    bias = rows(1, 12)[0]
    agree("MatMulNBits", [rows(m, 160), q, scales, zero, None, bias], K=160, N=12, bits=4, block_size=32)


@pytest.mark.parametrize("m", [1, 40])
def test_activations_and_scales_may_be_halves(m):
    q, scales, _ = weights(4, 128, 32, 12)
    x, half = rows(m, 128).astype(np.float16), scales.astype(np.float16)
    model, given = node_model("MatMulNBits", [x, q, half], K=128, N=12, bits=4, block_size=32)
    apart = np.stack([q & 15, q >> 4], -1).reshape(12, 4, 32).astype(np.float64)
    wanted = x.astype(np.float64) @ ((apart - 8) * half.astype(np.float64)[..., None]).reshape(12, 128).T
    for engine in ("numpy", "native"):
        (found,) = populus.compile(model, tiles=4, engine=engine).run(given).values()
        assert found.dtype == np.float16
        assert np.abs(found - wanted).max() <= 1e-3 * np.abs(wanted).max(), engine


@pytest.mark.parametrize("m", [2, 34])
def test_engines_agree_on_tiles(m):
    q, scales, zero = weights(4, 96, 32, 10, "packed")
    model, given = node_model("MatMulNBits", [rows(m, 96), q, scales, zero], K=96, N=10, bits=4, block_size=32)
    found = {e: populus.compile(model, target="gc200", tiles=7, engine=e).run(given)["y0"] for e in ("numpy", "strict", "native")}
    for name, y in found.items():
        assert np.abs(y - found["numpy"]).max() <= 1e-6 * np.abs(y).max(), name


@pytest.mark.parametrize("m", [1, 8, 128])
def test_nothing_falls_back_and_weights_stay_packed(m):
    q, scales, zero = weights(4, 256, 32, 96, "packed")
    model, given = node_model("MatMulNBits", [rows(m, 256), q, scales, zero], K=256, N=96, bits=4, block_size=32)
    program = populus.compile(model, target="host", engine="native")
    program.run(given)
    assert not program.session.fallbacks
    constants = [op for op in program.module("poplar").walk() if isinstance(op, ConstOp)]
    held = sum(bytes_of(op.type.shape, op.type.element) for op in constants)
    assert q.nbytes + scales.nbytes <= held <= q.nbytes + scales.nbytes + 96 * 8  # a byte for each zero point; 8 times as much in f32


def test_rows_of_a_small_language_model_agree_with_onnxruntime():
    size, hidden, block = 64, 160, 32
    nodes, constants = [], []

    def product(source, target, inner, columns, seed):
        q, scales, _ = weights(4, inner, block, columns, seed=seed)
        constants.extend([numpy_helper.from_array(q, f"q{seed}"), numpy_helper.from_array(scales / 4, f"s{seed}")])
        given = {"K": inner, "N": columns, "bits": 4, "block_size": block, "accuracy_level": 0}
        nodes.append(helper.make_node("MatMulNBits", [source, f"q{seed}", f"s{seed}"], [target], domain="com.microsoft", **given))

    constants.append(numpy_helper.from_array(np.ones(size, np.float32), "g"))
    nodes.append(helper.make_node("SimplifiedLayerNormalization", ["x", "g"], ["n"], axis=-1, epsilon=1e-5))
    product("n", "gate", size, hidden, 0)
    product("n", "up", size, hidden, 1)
    nodes.append(helper.make_node("Sigmoid", ["gate"], ["sigmoid"]))
    nodes.append(helper.make_node("Mul", ["gate", "sigmoid"], ["swish"]))
    nodes.append(helper.make_node("Mul", ["swish", "up"], ["product"]))
    product("product", "down", hidden, size, 2)
    nodes.append(helper.make_node("Add", ["x", "down"], ["y"]))
    ends = [[helper.make_tensor_value_info(name, 1, ["batch", 3, size])] for name in "xy"]
    graph = helper.make_graph(nodes, "g", *ends, constants)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    x = rows(6, size).reshape(2, 3, size)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    for engine in ("numpy", "native"):
        found = populus.compile(model, tiles=4, engine=engine).run({"x": x})["y"]
        assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max(), engine


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_the_gradient_is_the_product_with_the_weights(bits):
    q, scales, zero = weights(bits, 40, 16, 6, "floats")
    assert zero is not None
    model, given = node_model("MatMulNBits", [rows(3, 40), q, scales, zero], K=40, N=6, bits=bits, block_size=16)
    apart = ((q[..., None] >> np.arange(0, 8, bits, dtype=np.uint8)) & (2**bits - 1)).reshape(6, -1, 16).astype(np.float64)
    w = ((apart - zero[..., None]) * scales[..., None]).reshape(6, -1)[:, :40]
    dy = rows(3, 6)
    _, gradients = populus.vjp(model, ["x0"], target="host", engine="numpy").run(given, {"y0": dy})
    wanted = dy.astype(np.float64) @ w
    assert np.abs(gradients["x0"] - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bits": 3}, "MatMulNBits of 3 bits in blocks of 32 is not supported"),
        ({"block_size": 128}, "scales has 48 elements; expected 12, one for each"),
        ({"block_size": 48}, "B has 768 elements; expected 864, N = 12 by 3 blocks of 48 at 4 bits"),
        ({"N": 11}, "MatMulNBits: B has 768 elements; expected 704"),
        ({"K": 64}, "MatMulNBits: B has 768 elements; expected 384"),
    ],
)
def test_weights_of_other_sizes_are_refused_in_one_line(change, message):
    q, scales, _ = weights(4, 128, 32, 12)
    model, _ = node_model("MatMulNBits", [rows(1, 128), q, scales], **{"K": 128, "N": 12, "bits": 4, "block_size": 32, **change})
    with pytest.raises(PopulusError, match=message) as error:
        populus.compile(model, tiles=4).run({"x0": rows(1, 128)})
    assert "\n" not in str(error.value)
