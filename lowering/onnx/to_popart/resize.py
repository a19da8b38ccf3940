"""Conversions of Resize and Upsample, one dimension at a time.

`nearest` gathers elements; `linear` and `cubic` multiply by a matrix of weights.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import f32, f64
from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.support import shapes
from populus.dialects.support.budget import check_constant
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, is_float
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rules, element, shape
from populus.lowering.onnx.to_popart.tensor import gathered

if TYPE_CHECKING:
    from numpy.typing import NDArray


def upsample(c: Conversion) -> Output:
    """Converts Upsample. Source: ONNX Upsample-9; in -7 the scales are an attribute."""
    x = c.input(0)
    factors = c.get("scales") or [float(v) for v in c.known(1)]
    if len(factors) != len(shape(x)):
        raise PopulusError(f"it has {len(factors)} scales for {len(shape(x))} dimensions")
    for d, factor in enumerate(factors):
        n = shape(x)[d]
        out = _scaled(n, factor)
        check_constant(out, "a dimension of its result")
        at = coordinates("asymmetric", n, out, factor, None, wide=interpolates_doubles(c, x))
        x = sampled(c, x, d, at, c.get("mode"), "floor", factor)
    return x


def resize(c: Conversion) -> Output:
    """Converts Resize. Raises PopulusError for invalid scales, modes or a result that is too large.

    Resize-10 measures coordinates from the corner, and rounds them up where it shrinks. Source: ONNX Resize-19.
    """
    x = c.input(0)
    rank = len(shape(x))
    output = c.op.output(0)
    assert output is not None
    axes = [shapes.axis(a, rank) for a in c.get("axes") or range(rank)]
    stated = _scales(c, len(axes))
    sizes = [shape(output)[a] for a in axes] if stated is None else [_scaled(shape(x)[a], s) for a, s in zip(axes, stated)]
    for out in sizes:
        check_constant(out, "a dimension of its result")
    transformation = c.get("coordinate_transformation_mode") or "asymmetric"
    region = [0.0] * len(axes) + [1.0] * len(axes)
    if transformation == "tf_crop_and_resize" and c.has(1):
        region = [float(v) for v in c.known(1)]
    outside: list[tuple[int, NDArray[Any]]] = []
    factors = stated or _policy(c, [out / shape(x)[a] if shape(x)[a] else 1.0 for a, out in zip(axes, sizes)], axes, shape(x))
    exact = stated is None and (c.get("keep_aspect_ratio_policy") or "stretch") == "stretch"
    for k, (d, out) in enumerate(zip(axes, sizes)):
        n = shape(x)[d]
        rounding = c.get("nearest_mode") or ("ceil" if factors[k] < 1 else "floor")
        ends = region[k], region[k + len(axes)]
        at = coordinates(transformation, n, out, factors[k], out if exact else None, ends, interpolates_doubles(c, x))
        if transformation == "tf_crop_and_resize":
            outside.append((d, (at < 0) | (at > n - 1)))
        if transformation == "tf_crop_and_resize" or n != out or factors[k] != 1:
            x = sampled(c, x, d, at, c.get("mode"), rounding, factors[k])
    return _filled(c, x, outside)


def _scaled(n: int, scale: float) -> int:
    """Computes `floor(n scale)`, with the product rounded to f32: 6 times the f32 nearest to 5/6 gives 5.

    Source: onnxruntime; ONNX rounds in f64, which gives 4.
    """
    import numpy as np

    return math.floor(np.float32(n) * np.float32(scale))


def _scales(c: Conversion, count: int) -> list[float] | None:
    """Gives the scales of the node; None if it has sizes. Raises PopulusError for a wrong number or value."""
    position = 1 if c.version == 10 else 2
    scales = [float(v) for v in c.known(position)] if c.has(position) else []
    if scales and len(scales) != count:
        raise PopulusError(f"there are {len(scales)} scales for {count} dimensions")
    if strange := [s for s in scales if not 0 < s < math.inf]:
        raise PopulusError(f"a scale is {strange[0]}; numbers above 0 are expected")
    return scales or None


def _policy(c: Conversion, factors: list[float], axes: list[int], size: tuple[int, ...]) -> list[float]:
    """Replaces the scales by one for all dimensions if the node keeps the aspect ratio."""
    policy = c.get("keep_aspect_ratio_policy") or "stretch"
    if policy == "stretch":
        return factors
    stated = [float(v) for v in c.known(3)]
    scales = [s / size[a] for s, a in zip(stated, axes)]
    return [min(scales) if policy == "not_larger" else max(scales)] * len(axes)


def interpolates_doubles(c: Conversion, x: SSAValue) -> bool:
    """Tells whether the node's coordinates are f64. They choose elements in f32 whatever x is, as they do in onnxruntime."""
    return element(x) == f64 and (c.get("mode") or "nearest") != "nearest"


def coordinates(
    transformation: str,
    n: int,
    out: int,
    factor: float,
    exact: int | None,
    region: tuple[float, float] = (0.0, 1.0),
    wide: bool = False,
) -> NDArray[Any]:
    """Computes the coordinate in the input (n elements) of each of `out` elements of the result.

    In f32, so that halves round as in onnxruntime, or `wide`: in f64. `exact`: the size of the result if the node states
    it, and not the scale. `region`: start and end of tf_crop_and_resize. Raises PopulusError for an unknown mode.
    Source: ONNX Resize-19, coordinate_transformation_mode.
    """
    import numpy as np

    real = np.float64 if wide else np.float32
    scale, (start, end) = real(factor), np.array(region, real)
    length = scale * real(n) if exact is None else real(exact)  # a factor need not make a whole number
    i = np.arange(out, dtype=real)
    half = (i + real(0.5)) / scale
    match transformation:
        case "half_pixel":
            return half - real(0.5)
        case "half_pixel_symmetric":
            offset = real(n / 2) * (1 - real(out) / length)
            return (offset + (i.astype(np.float64) + 0.5) / float(scale) - 0.5).astype(real)
        case "pytorch_half_pixel":
            return half - real(0.5) if out > 1 else np.zeros_like(i)
        case "align_corners":
            return i * real(n - 1) / (length - 1) if length != 1 else np.zeros_like(i)
        case "asymmetric":
            return i / scale
        case "tf_half_pixel_for_nn":
            return half
        case "tf_crop_and_resize":
            if length == 1:
                return np.full_like(i, real(0.5) * (start + end) * real(n - 1))
            return start * real(n - 1) + i * (end - start) * real(n - 1) / (length - 1)
        case _:
            raise PopulusError(f"coordinate_transformation_mode is '{transformation}', which Resize does not have")


def sampled(c: Conversion, x: SSAValue, d: int, at: NDArray[Any], mode: str, rounding: str, scale: float) -> SSAValue:
    """Samples dimension `d` of `x` at the coordinates `at`."""
    n = shape(x)[d]
    if mode == "nearest":
        return gathered(c, x, [min(max(_nearest(float(v), rounding), 0), n - 1) for v in at], d)
    weights = _weights(c, n, at.tolist(), mode, min(scale, 1.0) if c.get("antialias") else 1.0)
    kind = element(x) if is_float(element(x)) else f32
    last = len(shape(x)) - 1
    order = [e for e in range(last + 1) if e != d] + [d]
    moved = c.cast(c.transpose(x, order), kind)
    product = c.insert(popart.MatMulOp(moved, c.constant(weights.T.astype(dtype_of(kind)))))
    back = [order.index(e) for e in range(last + 1)]
    y = c.transpose(product, back)
    return y if kind == element(x) else c.cast(c.insert(popart.RoundOp(y)), element(x))


def _nearest(at: float, rounding: str) -> int:
    """Rounds a coordinate to an index. Raises PopulusError for an unknown `nearest_mode`."""
    match rounding:
        case "round_prefer_floor":
            return math.ceil(at - 0.5)
        case "round_prefer_ceil":
            return math.floor(at + 0.5)
        case "floor":
            return math.floor(at)
        case "ceil":
            return math.ceil(at)
        case _:
            raise PopulusError(f"nearest_mode is '{rounding}', which Resize does not have")


def _weights(c: Conversion, n: int, at: list[float], mode: str, narrow: float) -> NDArray[Any]:
    """Computes weights[i, j], the share of input j in output i.

    `narrow`: the scale below 1 by which antialiasing widens the filter. Raises PopulusError for an unknown mode.
    """
    import numpy as np

    cubic = mode == "cubic"
    if mode not in ("linear", "bilinear", "trilinear", "cubic"):
        raise PopulusError(f"mode is '{mode}'; nearest, linear or cubic is expected")
    reach = (2 if cubic else 1) / narrow
    a = c.get("cubic_coeff_a") if c.get("cubic_coeff_a") is not None else -0.75
    weights = np.zeros((len(at), n))
    for i, v in enumerate(at):
        taps = np.arange(math.floor(v - reach), math.ceil(v + reach) + 1)
        w = _cubic((taps - v) * narrow, a) if cubic else np.clip(1 - np.abs((taps - v) * narrow), 0, 1)
        if c.get("exclude_outside"):
            w = np.where((taps >= 0) & (taps < n), w, 0)
        if narrow < 1 or c.get("exclude_outside"):
            w = w / w.sum()
        np.add.at(weights[i], np.clip(taps, 0, n - 1), w)
    return weights


def _cubic(t: NDArray[Any], a: float) -> NDArray[Any]:
    """Evaluates Keys' kernel. Source: ONNX Resize-19, cubic_coeff_a."""
    import numpy as np

    t = np.abs(t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0))


def _filled(c: Conversion, x: SSAValue, outside: list[tuple[int, NDArray[Any]]]) -> SSAValue:
    """Replaces elements whose coordinate lies outside the input by the node's extrapolation value."""
    import numpy as np

    mask = np.zeros((1,) * len(shape(x)), np.bool_)
    for d, flags in outside:
        mask = mask | flags.reshape([len(flags) if e == d else 1 for e in range(len(shape(x)))])
    if not mask.any():
        return x
    return c.insert(popart.WhereOp(c.constant(mask), c.scalar(c.get("extrapolation_value"), x), x))


RULES: Rules = {"Resize": resize, "Upsample": upsample}
