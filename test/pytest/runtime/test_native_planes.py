"""Kernels that go over planes on the native engine: small windows, and single elements with their roles swapped."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import populus
from populus.dialects.expr import Arg
from populus.dialects.poplar.memory import ConstOp
from populus.runtime.engine.native.codegen.cpu import machine
from populus.runtime.engine.native.codegen.jit import library
from populus.runtime.engine.native.kernels import planes as planes_down
from populus.runtime.engine.native.kernels import pool_kernels, positions
from populus.runtime.engine.native.kernels.endings import ending_of
from populus.runtime.engine.native.kernels.operands import Formula, OnMatrix, Side, on_matrix, shown
from populus.runtime.engine.native.kernels.panels import offsets
from populus.runtime.engine.native.run.program import NativeProgram

Array = NDArray[Any]
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1e-40, 2.0**40], np.float32)


def run(
    kind: str, x: Array, constants: tuple[Array, ...] = (), target: str = "host", tiles: int = 16, **attributes: Any
) -> tuple[Array, list[str]]:
    """The result of one op on the native engine, and the names of its kernels."""
    inputs = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)]
    node = helper.make_node(kind, ["x"] + [f"c{i}" for i in range(len(constants))], ["y"], **attributes)
    initializers = [numpy_helper.from_array(a, f"c{i}") for i, a in enumerate(constants)]
    graph = helper.make_graph([node], "one", inputs, [helper.make_empty_tensor_value_info("y")], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    program = populus.compile(model, engine="native", target=target, tiles=tiles)
    ran = program.session._program  # pyright: ignore[reportPrivateUsage]
    assert isinstance(ran, NativeProgram), ran
    assert not ran.fallbacks
    return program.run({"x": x})["y"], [launch.kernel.key for launch in ran.table.launches.values()]


def planes(*shape: int, dtype: Any = np.float32) -> Array:
    """Random planes in which some elements are special."""
    rng = np.random.default_rng(sum(shape))
    x = rng.integers(-9, 10, shape).astype(dtype)
    places = rng.integers(0, x.size, max(1, x.size // 40))
    x.reshape(-1)[places] = rng.choice(SPECIAL, len(places)).astype(dtype)
    return x


POOLS = {
    "3 by 3": ((1, 3, 21, 37), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "3 by 3 by two": ((2, 3, 21, 37), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 0, 1, 1]}),
    "2 by 5, strides 1 and 2": ((1, 2, 7, 33), {"kernel_shape": [2, 5], "strides": [1, 2], "pads": [1, 2, 0, 2]}),
    "5 by 1, strides 2 and 1": ((1, 2, 9, 3), {"kernel_shape": [5, 1], "strides": [2, 1], "pads": [2, 0, 2, 0]}),
    "3 by 3 by three": ((2, 3, 20, 100), {"kernel_shape": [3, 3], "strides": [3, 3], "pads": [1, 1, 1, 1]}),
    "1 by 4 by four": ((1, 3, 6, 257), {"kernel_shape": [1, 4], "strides": [1, 4]}),
    "5 by 3, strides 3 and 4": ((1, 2, 17, 150), {"kernel_shape": [5, 3], "strides": [3, 4], "pads": [2, 1, 2, 1]}),
    "4 by 5, strides 4 and 3": ((1, 2, 17, 30), {"kernel_shape": [4, 5], "strides": [4, 3], "pads": [3, 4, 0, 4]}),
    "one row": ((1, 2, 1, 70), {"kernel_shape": [1, 4], "strides": [1, 2]}),
    "more padding than rows": ((1, 1, 2, 2), {"kernel_shape": [5, 5], "pads": [4, 4, 4, 4]}),
    "lines": ((1, 3, 70), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
    "narrower than a vector": ((2, 5, 9, 7), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "f64": ((1, 3, 11, 19), {"kernel_shape": [3, 3], "strides": [2, 1]}),
}


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("name", POOLS)
def test_pools_down_a_plane_have_the_bits_of_the_kernel_for_any_window(kind: str, name: str, monkeypatch: pytest.MonkeyPatch):
    shape, attributes = POOLS[name]
    x = planes(*shape, dtype=np.float64 if name == "f64" else np.float32)
    found, kernels = run(kind, x, **attributes)
    assert any(k.startswith("down") for k in kernels), kernels
    monkeypatch.setattr(pool_kernels, "down", lambda *_: None)
    expected, kernels = run(kind, x, **attributes)
    assert any(k.startswith("windows") for k in kernels), kernels
    assert found.view(np.uint8).tobytes() == expected.view(np.uint8).tobytes()


COLUMNS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "a whole plane": ((2, 7, 7, 7), {"kernel_shape": [7, 7]}),
    "several rows": ((1, 3, 12, 7), {"kernel_shape": [3, 7], "strides": [2, 1]}),
    "more padding than plane": ((1, 2, 2, 3), {"kernel_shape": [8, 6], "pads": [3, 3, 3, 0]}),
    "every other element": ((1, 2, 13, 13), {"kernel_shape": [7, 7], "dilations": [2, 2]}),
    "a volume": ((1, 2, 3, 4, 6), {"kernel_shape": [2, 2, 6]}),
}


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("name", COLUMNS)
def test_one_column_of_windows_has_the_bits_of_the_first_of_many(kind: str, name: str):
    shape, attributes = COLUMNS[name]
    x = planes(*shape)
    x[0, 0] = -0.0
    found, kernels = run(kind, x, **attributes)
    code = f"windows {'max' if kind == 'MaxPool' else 'average'} float"
    assert [k for k in kernels if k.startswith("windows")] == [f"{code} one"]
    expected, kernels = run(kind, np.concatenate([x, x], -1), **attributes)
    assert [k for k in kernels if k.startswith("windows")] == [f"{code} 1"]
    assert found.shape[-1] == 1
    assert found.tobytes() == np.ascontiguousarray(expected[..., :1]).tobytes()


CONVS = {
    "3 by 3": ((2, 6, 21, 37), (3, 3), {"pads": [1, 1, 1, 1]}),
    "3 by 3 by two": ((1, 6, 20, 37), (3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "5 by 5": ((1, 4, 14, 14), (5, 5), {"pads": [2, 2, 2, 2]}),
    "5 by 5 by two": ((1, 4, 14, 15), (5, 5), {"strides": [2, 2], "pads": [1, 2, 2, 1]}),
    "1 by 3, strides 2 and 1": ((1, 4, 9, 17), (1, 3), {"strides": [2, 1]}),
    "3 by 3 by three": ((1, 4, 20, 61), (3, 3), {"strides": [3, 3], "pads": [1, 1, 1, 1]}),
    "5 by 5 by four": ((1, 4, 18, 95), (5, 5), {"strides": [4, 4], "pads": [2, 2, 2, 2]}),
    "lines": ((1, 5, 70), (3,), {"pads": [1, 1]}),
    "narrower than a vector": ((2, 6, 9, 7), (3, 3), {"pads": [1, 1, 1, 1]}),
    "narrower by two": ((2, 6, 9, 13), (3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
}


@pytest.mark.parametrize("name", CONVS)
def test_depthwise_sums_down_a_plane_are_exact_and_meet_the_border_as_zeros(name: str):
    shape, kernel, attributes = CONVS[name]
    x = planes(*shape)
    w = np.random.default_rng(1).integers(-3, 4, (shape[1], 1, *kernel)).astype(np.float32)
    w[0], w.reshape(shape[1], -1)[1, 0] = 0.0, np.inf  # of the border, infinity makes NaN, as of any zero
    found, kernels = run("Conv", x, (w,), group=shape[1], **attributes)
    assert kernels, kernels
    assert all(k.startswith("down") for k in kernels), kernels
    spatial = len(kernel)
    pads, strides = attributes.get("pads", [0] * 2 * spatial), attributes.get("strides", [1] * spatial)
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:spatial], pads[spatial:])])
    expected = np.zeros_like(found)
    with np.errstate(invalid="ignore", over="ignore"):
        for k in np.ndindex(*kernel):
            taken = padded[(..., *(slice(i, i + (n - 1) * s + 1, s) for i, s, n in zip(k, strides, found.shape[2:])))]
            expected += taken * w[(slice(None), 0, *k)].reshape(-1, *(1,) * spatial)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("columns", [3, 7, 8, 13, 28])
@pytest.mark.parametrize("gap", [0, 5])
def test_vectors_beyond_the_end_of_a_row_leave_all_but_their_plane_as_it_was(columns: int, gap: int):
    host, rows = library(), 5
    room = np.full((4, rows, columns + gap), 99.0, np.float32)
    y, x = room[1:3, :, :columns], np.arange(2 * rows * columns, dtype=np.float32).reshape(2, rows, columns)
    tall, wide = Side(rows, 3, 1, 1, 1, rows, x.strides[1], y.strides[1]), Side(columns, 3, 1, 1, 1, columns, 4, 4)
    places = offsets((2,), x.strides[:1]), offsets((2,), y.strides[:1]), offsets((2,), (0,))
    made = planes_down.down(host, "max", x, y, np.zeros(1, np.float32), places, (tall, wide))
    assert made is not None
    for plane in (1, 0):  # the order in which threads may take them
        launch = made[0]
        launch.code = launch.code or launch.library.load(launch.kernels)
        launch.bind()
        entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        assert entry(launch.library.address(launch.kernel))(launch.words.ctypes.data, plane, plane + 1) == 0
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    np.testing.assert_array_equal(y, np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2)).max((3, 4)))
    y[:] = 99.0
    assert (room == 99.0).all()


def ends(x, y, formula, ending) -> tuple[int, int]:
    """How rows of y end, in vectors of 8."""
    sides = Side(y.shape[-2], leap=y.strides[-2]), Side(y.shape[-1], leap=y.strides[-1])
    return planes_down._ends(x, y, sides, 8, formula, ending)  # pyright: ignore[reportPrivateUsage]


def on_planes(other: Array, y: Array) -> OnMatrix:
    """A sum on planes of three dimensions."""
    found = on_matrix(Formula(Arg(0) + Arg(1), [None, other], y), shown, ("d-2",), ("d-1",))
    assert found is not None
    return found


def test_results_are_written_once_where_their_formula_reads_what_they_replace():
    x, y = np.zeros((2, 5, 13), np.float32), np.zeros((2, 5, 13), np.float32)
    for other, begin in ((np.zeros_like(y), 13 - 8), (y, 13), (y[:, ::2, 1:], 13)):
        assert ends(x, y, on_planes(other, y), None) == (begin, 0)
    narrow = y[:, :, :7]
    assert ends(x, narrow, None, None) == (7, 0)
    packed = np.zeros((2, 5, 7), np.float32)
    assert ends(x, packed, None, None) == (7, packed[0].nbytes)
    for varies, spill in ((np.ones_like(packed), 0), (np.broadcast_to(np.float32(1), packed.shape), packed[0].nbytes)):
        formula = on_planes(varies, packed)
        ending = ending_of(formula.at(0), 1)
        assert ending is not None
        assert ends(x, packed, formula, ending) == (7, spill)


def test_small_windows_of_an_image_that_is_not_contiguous_take_the_kernel_for_any_window():
    x = planes(1, 5, 9, 12)
    graph = helper.make_graph(
        [
            helper.make_node("Transpose", ["x"], ["t"], perm=[0, 1, 3, 2]),
            helper.make_node("MaxPool", ["t"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        ],
        "transposed",
        [helper.make_tensor_value_info("x", 1, x.shape)],
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    found = [populus.compile(model, engine=engine).run({"x": x})["y"] for engine in ("native", "numpy")]
    np.testing.assert_array_equal(*found)


PRODUCTS: dict[str, tuple[tuple[int, ...], int, dict[str, Any]]] = {
    "odd sizes": ((2, 19, 13, 13), 34, {}),
    "groups": ((2, 24, 9, 11), 28, {"group": 4}),
    "in slices of many tiles": ((1, 96, 13, 13), 20, {"target": "gc200", "tiles": 256}),
    "many blocks": ((2, 600, 5, 5), 49, {}),
    "many blocks in slices": ((1, 256, 5, 5), 145, {"target": "gc200", "tiles": 256}),
    "a line": ((1, 5, 70), 3, {}),
    "f64": ((1, 5, 4, 7), 9, {}),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_swapped_roles_have_the_bits_of_the_sums_in_order(name: str, monkeypatch: pytest.MonkeyPatch):
    shape, channels, attributes = PRODUCTS[name]
    dtype = {"f64": np.float64}.get(name, np.float32)
    rng = np.random.default_rng(0)
    x = (1000 * rng.standard_normal(shape)).astype(dtype)
    w = (1000 * rng.standard_normal((channels, shape[1] // attributes.get("group", 1), *(1,) * (len(shape) - 2)))).astype(dtype)
    monkeypatch.setattr(positions, "FILL", 2.0)
    found, kernels = run("Conv", x, (w,), **attributes)
    assert kernels.count("positions") == (machine().vector_bytes >= 32), kernels
    monkeypatch.setattr(positions, "suits", lambda *_: False)
    expected, kernels = run("Conv", x, (w,), **attributes)
    assert "blocks" in kernels, kernels
    assert found.tobytes() == expected.tobytes()


def test_every_other_element_is_copied_together_for_many_channels_only():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 20, 12, 13)).astype(np.float32)
    for channels, copies in ((80, 1), (8, 0)):
        w = rng.standard_normal((channels, 20, 1, 1)).astype(np.float32)
        found, kernels = run("Conv", x, (w,), strides=[2, 2])
        assert sum(k.startswith("copy") for k in kernels) == copies, kernels
        expected = np.einsum("oc,bchw->bohw", w[:, :, 0, 0].astype(np.float64), x[:, :, ::2, ::2])
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_weights_packed_by_output_channels_are_read_again_as_they_were():
    rng = np.random.default_rng(0)
    w = rng.standard_normal((512, 40, 1, 1)).astype(np.float32)  # 80 KiB: stored beside the IR
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], group=2)],
        "groups",
        [helper.make_tensor_value_info("x", 1, (1, 80, 8, 8))],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(w, "w")],
    )
    program = populus.compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), engine="native", target="host"
    )
    program.run({"x": rng.standard_normal((1, 80, 8, 8)).astype(np.float32)})
    stored = [op.array() for op in program.module("poplar").walk() if isinstance(op, ConstOp)]
    assert any(np.array_equal(a.reshape(-1), w.reshape(-1)) for a in stored)


def test_depthwise_weights_that_are_all_equal_are_no_exception():
    x = planes(1, 5, 9, 9)
    x[~np.isfinite(x)] = 0
    found, _ = run("Conv", x, (np.full((5, 1, 3, 3), 0.5, np.float32),), group=5)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    np.testing.assert_allclose(found, windows.astype("f8").sum((-1, -2)) / 2, rtol=1e-6)


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_mean_of_negative_zeros_is_one_on_every_engine(name: str, dtype: Any):
    shape, attributes = POOLS[name]
    x = np.full(shape, -0.0, dtype)
    for options in (attributes, {**attributes, "count_include_pad": 1}):
        node = helper.make_node("AveragePool", ["x"], ["y"], **options)
        inputs = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), shape)]
        graph = helper.make_graph([node], "one", inputs, [helper.make_empty_tensor_value_info("y")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        for engine in ("numpy", "strict", "native"):
            y = populus.compile(model, engine=engine, tiles=4).run({"x": x})["y"]
            inside = ~np.isnan(y)  # a window of padding alone has no mean
            assert inside.any() and not y[inside].any() and np.signbit(y[inside]).all(), (engine, options)
