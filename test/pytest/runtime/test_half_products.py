"""Products of f16 by constants on the native engine: exact products, sums in f32, one rounding; and their layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from xdsl.dialects.builtin import ModuleOp

import populus
from populus.dialects.poplar import FamilyOp
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.poplar.plan.channels import has_channels_last
from populus.runtime.engine.native.codegen.cpu import machine
from populus.runtime.engine.native.kernels import half_tiles
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.run.program import NativeProgram
from populus.runtime.session import Session

H = np.float16
TILES = machine().half_tiles


def draw(*shape: int) -> NDArray[Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(H)


def program(kind: str, x: NDArray[Any], w: NDArray[Any], then: str = "", **attributes: Any) -> ModuleOp:
    """The tile program of `kind` of x and the constant w, and perhaps a Relu."""
    nodes = [helper.make_node(kind, ["x", "w"], ["s" if then else "y"], **attributes)]
    nodes += [helper.make_node(then, ["s"], ["y"])] if then else []
    inputs = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info("y")], [numpy_helper.from_array(w, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    pipeline = Pipeline.named("inference").remove("popops-widen")  # on every CPU as on one with tile registers
    return populus.compile(model, target="host", tiles=4, pipeline=pipeline).module("poplar")


def near(module: ModuleOp, x: NDArray[Any], sums: NDArray[Any]) -> None:
    """Requires the native result within half a unit of f16, and f32's error, of exact sums; NumPy's too."""
    for engine in ("native", "numpy"):
        y = Session(module, engine, threads=1).run({"x": x})["y"].astype(np.float64)
        bound = np.abs(sums) * 2.0**-11 * 1.01 + np.abs(sums).max() * 1e-6
        assert np.all(np.abs(y - sums) <= bound), (engine, np.abs(y - sums).max())


@pytest.mark.parametrize(("m", "k", "n"), [(40, 64, 50), (33, 96, 32), (12, 14, 3), (70, 1000, 65), (5, 64, 8), (20, 33, 9)])
def test_a_product_is_rounded_once(m, k, n):
    x, w = draw(m, k), draw(k, n)
    near(program("MatMul", x, w), x, x.astype(np.float64) @ w.astype(np.float64))


@pytest.mark.parametrize(
    ("channels", "side", "kernel", "stride", "batch"), [(32, 9, 3, 1, 1), (3, 17, 7, 2, 2), (20, 8, 1, 1, 2), (32, 9, 1, 2, 1)]
)
def test_a_convolution_is_rounded_once(channels, side, kernel, stride, batch):
    x, w = draw(batch, channels, side, side), draw(34, channels, kernel, kernel)
    pad = kernel // 2
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (kernel, kernel), axis=(2, 3))[:, :, ::stride, ::stride]
    sums = np.einsum("bcijuv,ocuv->boij", windows, w.astype(np.float64))
    near(program("Conv", x, w, pads=[pad] * 4, strides=[stride] * 2), x, sums)


def test_infinities_stay_infinities():
    x, w = draw(40, 64), np.abs(draw(64, 50))
    x[3, 5], x[7, 1], x[9, :2] = np.inf, np.nan, 65504
    module = program("MatMul", x, w)
    y = Session(module, "native", threads=1).run({"x": x})["y"]
    assert np.isposinf(y[3]).all()
    assert np.isnan(y[7]).all()
    others = np.delete(np.arange(40), (3, 7))
    with np.errstate(over="ignore"):
        expected = (x[others].astype(np.float64) @ w.astype(np.float64)).astype(H)
    np.testing.assert_allclose(y[others].astype(np.float32), expected.astype(np.float32), rtol=2e-3, atol=1e-3)


def test_the_result_does_not_depend_on_threads():
    x, w = draw(100, 256), draw(256, 200)
    module = program("MatMul", x, w)
    one, two = (Session(module, "native", threads=n).run({"x": x})["y"] for n in (1, 2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.skipif(not TILES, reason="the CPU has no tile registers for bf16")
def test_a_product_and_its_formula_are_one_kernel():
    module = program("Conv", draw(1, 32, 8, 8), draw(64, 32, 3, 3), "Relu", pads=[1] * 4)
    loaded = NativeProgram(Session(module, "numpy").graph, threads=1)
    kernels = [run.kernel.key for run, _ in loaded.body.calls() if isinstance(run, Launch)]
    assert sum(key.startswith("half tiles True") for key in kernels) == 1, kernels
    x = draw(1, 32, 8, 8)
    native, numpy = (Session(module, engine, threads=1).run({"x": x})["y"].astype(np.float32) for engine in ("native", "numpy"))
    np.testing.assert_allclose(native, numpy, rtol=1e-3, atol=1e-2)
    assert native.min() == 0


@pytest.mark.parametrize(("dtype", "last"), [(H, True), (np.float32, False)])
def test_convolutions_of_f16_have_their_channels_last_on_host(dtype, last):
    x, w = draw(1, 8, 6, 6).astype(dtype), draw(16, 8, 3, 3).astype(dtype)
    module = program("Conv", x, w)
    (family,) = (op for op in module.walk() if isinstance(op, FamilyOp) and op.codelet.data in ("conv", "winograd"))
    ((_, y),) = family.written()
    assert has_channels_last(y) == last


def test_panels_have_pairs_of_k_and_zeros_beyond_the_columns():
    b = np.arange(4 * 33, dtype=H).reshape(4, 33)
    panels = half_tiles.packed(b)
    assert panels.shape == (2, 2, half_tiles.COLUMNS, 2)
    assert panels[0, 1, 5].tolist() == [b[2, 5], b[3, 5]]
    assert panels[1, 0, 0].tolist() == [b[0, 32], b[1, 32]]
    assert not panels[1, :, 1:].any()
