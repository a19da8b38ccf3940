"""Orders, random numbers, folds, and rows of any strides on the native engine, compared with the numpy engine."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import populus
from helpers.formulas import agrees, one_op, program_of
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import element_of
from populus.runtime.engine.native.codegen.jit import library
from populus.runtime.engine.native.kernels.copies import copy
from populus.runtime.poprand import unit
from populus.runtime.session import Session


def both(body, inputs, outputs):
    """Runs a family on the native engine, which must have a kernel for it, and on numpy. Fields: by name, element type and shape."""
    module = program_of(body, inputs, outputs)
    session = Session(module, "native")
    assert not session.fallbacks
    return session.run(inputs)["y"], Session(module, "numpy").run(inputs)["y"]


def values(dtype, *shape):
    """Draws few different numbers, so that many are equal; floats with infinities, NaN and both zeros."""
    g = np.random.default_rng(len(shape))
    x = g.integers(0, 40, shape)
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        return np.where(x == 3, limits.min, np.where(x == 4, limits.max, x)).astype(dtype)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1.5])
    return np.where(x < 8, special[x % 8], x - 20).astype(dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", ml_dtypes.bfloat16, "i1", "u2", "i4", "u4", "i8", "u8"], ids=str)
def test_positions_of_the_largest_and_smallest_keep_the_order_of_equal_ones(dtype):
    x = values(dtype, 5, 77)
    for largest in ("true", "false"):
        for k in (1, 16, 17, 77):
            body = f"@top_k {{largest = {largest}}} for (d0 = 5, k = {k}) on (d0) in x = %x[d0, *] : X out y = %y[d0, k] : Y"
            found, expected = both(body, {"x": x}, (5, k, "i32"))
            np.testing.assert_array_equal(found, expected)


def test_a_long_row_is_sorted_as_numpy_sorts_it():
    x = np.random.default_rng(0).standard_normal((1, 40_001)).astype("f4")
    body = "@top_k {largest = false} for (d0 = 1, k = 40001) on (d0) in x = %x[d0, *] : X out y = %y[d0, k] : Y"
    found, _ = both(body, {"x": x}, (1, 40_001, "i32"))
    np.testing.assert_array_equal(found[0], np.argsort(x[0], kind="stable"))


@pytest.mark.parametrize("out", ["f32", "f16", "f64"])
@pytest.mark.parametrize(
    ("distribution", "a", "b"), [("uniform", -0.3, 0.9), ("uniform", 2.0, 2.0), ("normal", 0.5, 3.0), ("bernoulli", 0.3, 0.0)]
)
def test_random_numbers_have_the_bits_of_the_numpy_engine(distribution, a, b, out):
    seed = np.array([0xFFFFFFFF, 12345], np.uint32)
    parameters = f'{{distribution = "{distribution}", a = {a} : f32, b = {b} : f32, stream = -3 : i64}}'
    body = f"@random {parameters} for (d0 = 37, d1 = 290) on (d0) in seed = %x[*] : X out y = %y[d0, d1] : Y"
    found, expected = both(body, {"x": seed}, (37, 290, out))
    assert found.tobytes() == expected.tobytes()


def test_no_number_that_is_drawn_is_near_a_tie_of_f32():
    """All 2^24 arguments of log and cos: f64 within 4 units in the last place gives the same f32, on whatever engine."""
    for first in range(0, 1 << 24, 1 << 22):
        u = unit(np.arange(first, first + (1 << 22), dtype=np.uint32) << np.uint32(8))
        for exact in (np.log((np.float32(1) - u).astype("f8")), np.cos((np.float32(2 * np.pi) * u).astype("f8"))):
            apart = 4 * np.spacing(np.abs(exact))
            assert np.array_equal((exact - apart).astype("f4"), (exact + apart).astype("f4"))


REDUCED = [
    *((op, d) for op in ("add", "mul", "max", "min", "square_add") for d in ("i4", "i8", "u1")),
    *((op, "?") for op in ("and", "or", "max", "min")),
]


@pytest.mark.parametrize(("op", "dtype"), REDUCED)
def test_integers_and_booleans_are_folded(op, dtype):
    x = values("i4", 6, 35, 9) > 5 if dtype == "?" else values(dtype, 6, 35, 9)
    element = str(element_of(x.dtype))
    for body, out in (
        ("for (d0 = 6, d1 = 35, r = 9) on (d0) in x = %x[d0, d1, r] : X out y = %y[d0, d1] : Y", (6, 35, element)),
        ("for (d0 = 35, d1 = 9, r = 6) on (d0) in x = %x[r, d0, d1] : X out y = %y[d0, d1] : Y", (35, 9, element)),
        ("for (d0 = 6, r0 = 35, r1 = 9) on (d0) in x = %x[d0, r0, r1] : X out y = %y[d0] : Y", (6, element)),
    ):
        found, expected = both(f'@reduce {{op = "{op}"}} {body}', {"x": x}, out)
        np.testing.assert_array_equal(found, expected)


def ran(model, inputs):
    """Runs a model on both engines; the native one must have kernels for all of it."""
    program = populus.compile(model, target="host", tiles=16)
    session = Session(program.module("poplar"), "native")
    assert not session.fallbacks
    return session.run(program.signature.checked(inputs)), program.run(inputs)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
def test_a_softmax_runs_along_any_dimension(kind, dtype):
    x = np.random.default_rng(0).standard_normal((3, 70, 5)).astype(dtype)
    for axis in (0, 1, 2):
        found, expected = ran(one_op(kind, [x], axis=axis), {"x0": x})
        agrees(found, expected, 1e-5 if dtype == "f4" else 1e-13)


def test_rows_are_selected_from_a_table_of_any_strides():
    x = np.random.default_rng(0).standard_normal((6, 7, 8)).astype("f4")
    index = np.array([[5, 0], [3, 3]])
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[2, 0, 1]), helper.make_node("Gather", ["t", "i"], ["y"], axis=2)]
    info = [helper.make_tensor_value_info("x", 1, x.shape), helper.make_tensor_value_info("i", 7, index.shape)]
    graph = helper.make_graph(nodes, "g", info, [helper.make_empty_tensor_value_info("y")])
    found, expected = ran(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), {"x": x, "i": index})
    agrees(found, expected, 0)
    assert np.array_equal(found["y"], x.transpose(2, 0, 1)[:, :, index])


@pytest.mark.parametrize("dtype", ["i1", "f2", "f4", "i8"])
def test_single_elements_are_selected_along_each_row(dtype):
    x, index = values(dtype, 3, 7, 40), np.array([39, 0, 5, 5, 17])
    found, expected = ran(one_op("Gather", [x, index], axis=2), {"x0": x, "x1": index})
    agrees(found, expected, 0)
    np.testing.assert_array_equal(found["y"], x[:, :, index])
    for outside in (40, -41):
        with pytest.raises(PopulusError, match=r"is outside 0\.\.40"):
            ran(one_op("Gather", [x, index], axis=2), {"x0": x, "x1": np.array([0, outside])[[0, 1, 0, 0, 0]]})


def test_copies_have_any_number_of_dimensions_and_parts_of_one_memory():
    host = library()
    source = np.arange(2 * 3 * 4 * 5 * 6 * 7, dtype="i4").reshape(2, 3, 4, 5, 6, 7).transpose(5, 1, 3, 0, 4, 2)
    target = np.zeros(source.shape, "i4")
    row = np.arange(40, dtype="f4").reshape(4, 10)
    whole, part = copy(host, source, target), copy(host, row[:, 4:7], row[:, 1:4])
    assert whole is not None
    assert part is not None
    for launch in (*whole, *part):
        launch()
    assert np.array_equal(target, source)
    assert row[1].tolist() == [10, 14, 15, 16, 14, 15, 16, 17, 18, 19]
    assert copy(host, row[:, 2:5], row[:, 1:4]) is None  # what is read is written first


def test_a_product_whose_formula_has_another_type_keeps_its_own():
    """The formula's type was taken for the product's: an error in f16, and memory of the wrong size in f64."""
    g = np.random.default_rng(0)
    x, w = g.standard_normal((9, 33)).astype("f4"), g.standard_normal((33, 40)).astype("f4")
    for to in (onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE):
        for constant in (True, False):
            nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Cast", ["p"], ["y"], to=to)]
            info = [helper.make_tensor_value_info("x", 1, x.shape)]
            weights = [onnx.numpy_helper.from_array(w, "w")] if constant else []
            info += [] if constant else [helper.make_tensor_value_info("w", 1, w.shape)]
            graph = helper.make_graph(nodes, "g", info, [helper.make_empty_tensor_value_info("y")], weights)
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
            found, expected = ran(model, {"x": x} if constant else {"x": x, "w": w})
            agrees(found, expected, 1e-2 if to == onnx.TensorProto.FLOAT16 else 1e-5)


@pytest.mark.parametrize("axes", [(0,), (1,), (3,), (0, 2), (0, 2, 3), (1, 2, 3), (0, 1, 2)])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceSumSquare"])
def test_a_sum_has_the_same_bits_in_any_layout(op: str, axes: tuple[int, ...]):
    x = np.random.default_rng(1).standard_normal((3, 5, 33, 4)).astype(np.float32)
    found: set[bytes] = set()
    for order in itertools.permutations(range(4)):
        nodes = [
            helper.make_node("Transpose", ["x"], ["t"], perm=[int(d) for d in np.argsort(order)]),
            helper.make_node(op, ["t", "axes"], ["y"], keepdims=0),
        ]
        given = np.ascontiguousarray(x.transpose(order))
        graph = helper.make_graph(
            nodes,
            "sum",
            [helper.make_tensor_value_info("x", 1, given.shape)],
            [helper.make_empty_tensor_value_info("y")],
            [numpy_helper.from_array(np.array(axes), "axes")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        y = populus.compile(model, engine="native", tiles=4).run({"x": given})["y"]
        np.testing.assert_allclose(y, (x if op == "ReduceSum" else x * x).sum(axes), rtol=2e-5, atol=2e-5)
        found.add(y.tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("engine", ["numpy", "strict", "native"])
@pytest.mark.parametrize(("shape", "axis"), [((5, 1), 0), ((5, 2), 0), ((1, 5), 1), ((3, 40), 1), ((4, 3, 2), 1), ((90, 1), 0)])
def test_a_mean_of_negative_zeros_is_one(engine: str, shape: tuple[int, ...], axis: int):
    graph = helper.make_graph(
        [helper.make_node("ReduceMean", ["x", "axis"], ["y"])],
        "mean",
        [helper.make_tensor_value_info("x", 1, shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.array([axis]), "axis")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    y = populus.compile(model, engine=engine, tiles=4).run({"x": np.full(shape, -0.0, np.float32)})["y"]
    assert (y == 0).all()
    assert np.signbit(y).all()
