"""`interpolate` and `roi_align`, against onnxruntime, and the gradient of a region's mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from populus import popxl
from populus.popxl import ops
from populus.popxl.transforms import autodiff

X = np.random.default_rng(0).standard_normal((2, 3, 5, 6)).astype(np.float32)
ROIS = np.random.default_rng(1).uniform(0, 10, (4, 4)).astype(np.float32)
IMAGES = np.array([0, 1, 1, 0], np.int32)


def result(build: Callable[[], popxl.Tensor]) -> np.ndarray:
    ir = popxl.Ir()
    with ir.main_graph:
        y = build()
        out = popxl.d2h_stream(y.shape, y.dtype)
        ops.host_store(out, y)
    with popxl.Session(ir, "ipu_model", tiles=4) as session:
        return session.run()[out]


def expected(type: str, version: int, arrays: list[np.ndarray | None], **attributes: Any) -> np.ndarray:
    names = ["" if a is None else f"x{k}" for k, a in enumerate(arrays)]
    initializers = [numpy_helper.from_array(a, n) for n, a in zip(names, arrays) if a is not None]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(type, names, ["y"], **attributes)], "g", [], [y], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {})[0]


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric"])
def test_interpolated_images_are_onnx_s(mode: str, coordinates: str):
    factors = (1.0, 1.0, 2.0, 0.5)
    y = result(lambda: ops.interpolate(popxl.variable(X), factors, mode, "floor", coordinates))
    how = {"mode": mode, "nearest_mode": "floor", "coordinate_transformation_mode": coordinates}
    np.testing.assert_allclose(y, expected("Resize", 13, [X, None, np.float32(factors)], **how), rtol=0, atol=1e-5)


def test_means_of_regions_are_onnx_s():
    y = result(lambda: ops.roi_align(popxl.variable(X), popxl.variable(ROIS), popxl.variable(IMAGES), (2, 3), 0.5, 2))
    sizes = {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "spatial_scale": 0.5}
    np.testing.assert_allclose(y, expected("RoiAlign", 10, [X, ROIS, IMAGES.astype(np.int64)], **sizes), rtol=0, atol=1e-5)


def test_gradients_flow_through_an_op_of_onnx():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(X)
        graph = ir.create_graph(lambda x: ops.interpolate(x, (1, 1, 2, 2)), x)
        (site,) = ops.call(graph, x)
        (gradient,) = ops.call(autodiff(graph).graph, popxl.constant(np.ones(site.shape, np.float32)))
        out = popxl.d2h_stream(gradient.shape, gradient.dtype)
        ops.host_store(out, gradient)
    with popxl.Session(ir, "cpu", tiles=2) as session:
        np.testing.assert_array_equal(session.run()[out], np.full(X.shape, 4, np.float32))


def test_modes_that_there_are_not_are_refused():
    with popxl.Ir().main_graph:
        x = popxl.variable(X)
        with pytest.raises(ValueError, match="mode is one of nearest, linear, cubic, not 'area'"):
            ops.interpolate(x, (1, 1, 2, 2), "area")
        with pytest.raises(ValueError, match="has 4 dimensions, and 2 factors are given"):
            ops.interpolate(x, (2, 2))
