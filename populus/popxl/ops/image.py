"""Ops that read between the elements of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from populus.popxl import dtypes
from populus.popxl.errors import WrongValue
from populus.popxl.internals.recording import recorded
from populus.popxl.ops.common import cast_to
from populus.popxl.ops.onnx_node import onnx_node
from populus.popxl.tensor import Tensor

InterpolateType = Literal["nearest", "linear", "cubic"]
InterpolateNearestType = Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
InterpolateCoordinateTransformationType = Literal["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"]

_MODES = ("nearest", "linear", "cubic")
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize")


@recorded("Resize")
def interpolate(
    t: Tensor,
    scale_factor: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
    mode: InterpolateType = "nearest",
    nearest_mode: InterpolateNearestType = "round_prefer_floor",
    coordinate_transformation_mode: InterpolateCoordinateTransformationType = "half_pixel",
) -> Tensor:
    """Samples t at more or fewer places: `floor(size factor)` of each dimension, as ONNX's Resize.

    Raises ValueError for another number of factors than dimensions, and for modes that there are not. Source: ONNX Resize-13.
    """
    named = (("mode", mode, _MODES), ("nearest_mode", nearest_mode, _NEAREST))
    for option, value, known in (*named, ("coordinate_transformation_mode", coordinate_transformation_mode, _COORDINATES)):
        if value not in known:
            raise WrongValue(f"{option} is one of {', '.join(known)}, not '{value}'")
    if len(scale_factor) != t.rank:
        raise WrongValue(f"{t.id} has {t.rank} dimensions, and {len(scale_factor)} factors are given")
    factors = np.array(scale_factor, np.float32)
    how = {"mode": mode, "nearest_mode": nearest_mode, "coordinate_transformation_mode": coordinate_transformation_mode}
    return onnx_node("Resize", [t, None, factors], 13, **how)


@recorded("RoiAlign")
def roi_align(
    t: Tensor, rois: Tensor, batch_index: Tensor, output_size: Sequence[int], spatial_scale: float, sampling_ratio: int
) -> Tensor:
    """Gives the means in the bins of regions of images: [regions, C, *output_size] of t [N, C, H, W] and regions `[x1, y1, x2, y2]`.

    `batch_index` is the image of each region. Coordinates are times `spatial_scale`. A bin's mean is over a grid of
    `sampling_ratio` points in each direction, each linear between elements.
    Raises PopulusError for no points. Source: ONNX RoiAlign-10.
    """
    height, width = output_size
    sizes = {"output_height": height, "output_width": width, "sampling_ratio": sampling_ratio, "spatial_scale": float(spatial_scale)}
    return onnx_node("RoiAlign", [t, rois, cast_to(batch_index, dtypes.int64)], 10, **sizes)
