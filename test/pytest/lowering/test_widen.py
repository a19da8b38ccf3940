"""`popops-widen`: halves held as f32, with the roundings that they had."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import populus
from populus.dialects.poplar import FamilyOp
from populus.lowering.driver.pipeline import Pipeline
from populus.runtime.session import Session

TYPES = {"f16": (np.dtype(np.float16), TensorProto.FLOAT16), "bf16": (np.dtype(ml_dtypes.bfloat16), TensorProto.BFLOAT16)}


def model(nodes: list[tuple[Any, ...]], x: NDArray[Any], **constants: NDArray[Any]) -> bytes:
    """Makes a model of nodes (op, inputs, output, attributes), from x to y."""
    made = [helper.make_node(op, inputs.split(), [out], **(dict(*more))) for op, inputs, out, *more in nodes]
    inputs = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)]
    weights = [numpy_helper.from_array(a, name) for name, a in constants.items()]
    graph = helper.make_graph(made, "g", inputs, [helper.make_empty_tensor_value_info("y")], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def widened(given: bytes, halves: str | None = "f32", **options: Any) -> populus.Program:
    """Compiles a model as a CPU without products of halves has it, or as one that has them."""
    pipeline = Pipeline.named("inference").with_options("popart-outline", threshold=1.0)
    pipeline = pipeline.with_options("popops-widen", halves=halves) if halves else pipeline.remove("popops-widen")
    return populus.compile(given, target="host", tiles=4, pipeline=pipeline, cache=False, **options)


def drawn(shape: tuple[int, ...], dtype: np.dtype[Any], low: int = -8, high: int = 9) -> NDArray[Any]:
    """Draws whole numbers, whose sums are exact in any order."""
    return np.random.default_rng(sum(shape)).integers(low, high, shape).astype(dtype)


def bits(x: NDArray[Any]) -> NDArray[Any]:
    """Gives the bits of halves, those of NaN and of zeros alike."""
    wide = x.astype(np.float32)
    return np.where(np.isnan(wide), 0x7FFF, np.where(wide == 0, 0, x.view(np.int16)))


@pytest.mark.parametrize("name", TYPES)
def test_sums_round_as_the_conversion_of_numpy(name):
    dtype, _ = TYPES[name]
    rng = np.random.default_rng(0)
    a, w = (rng.integers(0, 1 << 16, n).astype(np.uint16).view(dtype) for n in (97, 203))
    a[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0]
    x, w = a.reshape(-1, 1), w.reshape(1, -1)
    with np.errstate(all="ignore"):
        expected = (x.astype(np.float32) * w.astype(np.float32) + np.float32(0)).astype(dtype)  # a sum begins with 0
    program = widened(model([("MatMul", "x w", "s"), ("Sub", "s zero", "y")], x, w=w, zero=np.zeros((1, 203), dtype)))
    for engine in ("native", "numpy"):
        found = Session(program.module("poplar"), engine).run({"x": x})["y"]
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(bits(found), bits(expected), engine)


LAYERS = [
    ("Conv", "x w", "c", {"pads": [1, 1, 1, 1]}), ("Add", "c b", "d"), ("Sigmoid", "d", "s"), ("Mul", "d s", "e"),
    ("Transpose", "e", "t", {"perm": [0, 2, 3, 1]}), ("Concat", "t t", "k", {"axis": 3}),
    ("ReduceSum", "k axes", "r"), ("Clip", "r low", "q"), ("Cast", "q", "i", {"to": TensorProto.INT32}),
    ("Cast", "i", "j", {"to": TensorProto.FLOAT16}), ("Add", "k j", "u"), ("MaxPool", "u", "m", {"kernel_shape": [2, 2]}),
    ("AveragePool", "m", "y", {"kernel_shape": [2, 2]}),
]  # fmt: skip


def test_a_net_has_the_bits_that_it_has_in_halves():
    h = np.dtype(np.float16)
    x, w, b = drawn((2, 5, 7, 6), h), drawn((9, 5, 3, 3), h, -2, 3), drawn((9, 1, 1), h)
    given = model(LAYERS, x, w=w, b=b, axes=np.array([3]), low=np.array(-40, h))
    wide, narrow = (widened(given, halves, accuracy="exact").module("poplar") for halves in ("f32", None))
    expected = Session(narrow, "numpy").run({"x": x})["y"]
    np.testing.assert_array_equal(Session(wide, "numpy").run({"x": x})["y"], expected)
    np.testing.assert_array_equal(Session(wide, "strict").run({"x": x})["y"], expected)
    native = [Session(m, "native").run({"x": x})["y"] for m in (wide, narrow)]
    assert not Session(wide, "native").fallbacks
    np.testing.assert_array_equal(*native)
    kinds = [op.codelet.data for op in wide.walk() if isinstance(op, FamilyOp)]
    assert kinds.count("conv") == 1
    halves = [v for op in wide.walk() if isinstance(op, FamilyOp) for v in op.operands if "f16" in str(v.type)]
    assert len(halves) == 2  # the input, as it is widened, and the output, as it is rounded


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_a_softmax_rounds_what_it_rounds_in_halves(op):
    h = np.dtype(np.float16)
    x, w = drawn((5, 33), h, -2, 3), drawn((33, 33), h, -1, 2)
    given = model([("MatMul", "x w", "c"), (op, "c", "y", {"axis": -1})], x, w=w)
    wide, narrow = (widened(given, halves).module("poplar") for halves in ("f32", None))
    np.testing.assert_array_equal(*(Session(m, "native").run({"x": x})["y"] for m in (wide, narrow)))


def test_functions_take_weights_in_f32():
    h = np.dtype(np.float16)
    names = "abcd"
    nodes = [
        node for i, n in enumerate(names) for node in (("MatMul", f"{names[i - 1] if i else 'x'} w{n}", f"p{n}"), ("Relu", f"p{n}", n))
    ]
    nodes[-1] = ("Relu", "pd", "y")
    x = drawn((3, 8), h, -2, 3)
    program = widened(model(nodes, x, **{f"w{n}": drawn((8, 8), h, -1, 2) for n in names}))
    text = str(program.module("popops"))
    assert text.count("call @") == 4
    assert "private" in text
    widening = [line for line in text.splitlines() if "<cast(_1, f32)>" in line]
    assert len(widening) == 1  # of x: constants are f32, and values between calls stay so


def test_branches_and_bits_keep_halves():
    h = np.dtype(np.float16)
    x, w = drawn((3, 8), h, -2, 3), drawn((8, 8), h, -1, 2)
    given = model([("MatMul", "x w", "c"), ("CumSum", "c axis", "d"), ("Neg", "d", "y")], x, w=w, axis=np.array(1))
    wide, narrow = (widened(given, halves).module("poplar") for halves in ("f32", None))
    np.testing.assert_array_equal(*(Session(m, "native").run({"x": x})["y"] for m in (wide, narrow)))


def test_a_conversion_to_f32_is_the_value_that_is_held():
    x, w = drawn((3, 8), np.dtype(np.float16), -2, 3), drawn((8, 8), np.dtype(np.float16), -1, 2)
    program = widened(model([("MatMul", "x w", "c"), ("Cast", "c", "y", {"to": TensorProto.FLOAT})], x, w=w))
    session = Session(program.module("poplar"), "native")
    assert not session.fallbacks
    np.testing.assert_array_equal(session.run({"x": x})["y"], x.astype(np.float32) @ w.astype(np.float32))


def test_a_program_without_products_stays():
    x = drawn((3, 8), np.dtype(np.float16))
    given = model([("Exp", "x", "y")], x)
    assert str(widened(given).module("poplar")) == str(widened(given, None).module("poplar"))
