"""Sums of halves that are rounded as a matrix unit rounds them: `partials = "f16"`."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import populus
from populus.lowering.driver.pipeline import Pipeline

ENGINES = ("numpy", "strict", "native")


def model_of(node, w, x_shape):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT16, list(x_shape))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT16, None)
    return helper.make_model(
        helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(w, "w")]), opset_imports=[helper.make_opsetid("", 17)]
    )


def run(model, x, engine, partials, tiles=1):
    pipeline = Pipeline.named("inference").with_options("poplin-to-poplar", partials=partials)
    return populus.compile(model, target="gc200", tiles=tiles, engine=engine, pipeline=pipeline).run({"x": x})["y"]


@pytest.mark.parametrize("engine", ENGINES)
def test_each_sixteen_channels_are_rounded(engine):
    # 2,048 and three times 0.5, each the sum of 16 products: halves near 2,048 are 2 apart.
    w = np.repeat(np.array([128, 1 / 32, 1 / 32, 1 / 32], np.float16), 16)[:, None]
    x = np.ones((1, 64), np.float16)
    product = model_of(helper.make_node("MatMul", ["x", "w"], ["y"]), w, x.shape)
    assert run(product, x, engine, "f16").tolist() == [[2048]]
    assert run(product, x, engine, "f32").tolist() == [[2050]]  # 2,049.5
    image = x.reshape(1, 64, 1, 1)
    convolution = model_of(helper.make_node("Conv", ["x", "w"], ["y"]), w.reshape(1, 64, 1, 1), image.shape)
    assert run(convolution, image, engine, "f16").ravel().tolist() == [2048]
    assert run(convolution, image, engine, "f32").ravel().tolist() == [2050]


@pytest.mark.parametrize(("groups", "channels"), [(1, 40), (2, 36)])
def test_engines_agree_on_rounded_sums(groups, channels):
    rng = np.random.default_rng(0)
    w = (rng.standard_normal((8, channels // groups, 3, 3)) / 8).astype(np.float16)
    x = rng.standard_normal((2, channels, 7, 6)).astype(np.float16)
    model = model_of(helper.make_node("Conv", ["x", "w"], ["y"], group=groups, pads=[1, 0, 1, 1], strides=[2, 1]), w, x.shape)
    wide = run(model, x, "numpy", "f32").astype(np.float64)
    for tiles in (1, 24):
        first, *others = (run(model, x, engine, "f16", tiles).astype(np.float64) for engine in ENGINES)
        assert all(np.abs(o - first).max() <= 2e-3 * np.abs(wide).max() for o in others)
        assert 0 < np.abs(first - wide).max() < 1e-2 * np.abs(wide).max()


def test_partials_is_an_option_of_compile():
    w, x = np.repeat(np.array([128, 1 / 32, 1 / 32], np.float16), 16)[:, None], np.ones((1, 48), np.float16)
    model = model_of(helper.make_node("MatMul", ["x", "w"], ["y"]), w, x.shape)
    assert populus.compile(model, target="bow", tiles=1, partials="f16").run({"x": x})["y"].tolist() == [[2048]]
    with pytest.raises(populus.PopulusError, match="partials = f61; halves are summed in f32 or f16; did you mean 'f16'"):
        populus.compile(model, target="bow", partials="f61")
