"""Conversions of Resize and Upsample, one dimension at a time.

`nearest` gathers elements; `linear` and `cubic` add elements that are multiplied by weights.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import f32, f64
from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.poplar.target import sum_type
from populus.dialects.support import shapes
from populus.dialects.support.budget import check_constant
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, is_float
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rules, element, shape
from populus.lowering.onnx.to_popart.tensor import gathered, sliced

if TYPE_CHECKING:
    from numpy.typing import NDArray

PRODUCTS = 16
"""At most so many products of slices; beyond, the taps are gathered."""


def upsample(c: Conversion) -> Output:
    """Converts Upsample. Source: ONNX Upsample-9; in -7 the scales are an attribute."""
    x = c.input(0)
    factors = c.get("scales") or _row(c, 1)
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


def _row(c: Conversion, position: int) -> list[float]:
    """Gives the numbers of a constant input. Raises PopulusError for one that is no row."""
    array = c.known(position)
    if array.ndim != 1:
        raise PopulusError(f"its scales are of shape {list(array.shape)}; one number for each dimension is expected")
    return [float(v) for v in array]


def _scales(c: Conversion, count: int) -> list[float] | None:
    """Gives the scales of the node; None if it has sizes. Raises PopulusError for a wrong number or value."""
    position = 1 if c.version == 10 else 2
    scales = _row(c, position) if c.has(position) else []
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
    places, weights = _taps(c, n, at, mode, min(scale, 1.0) if c.get("antialias") else 1.0)
    own, kind = element(x), sum_type(element(x)) if is_float(element(x)) else f32
    order = [d, *(e for e in range(len(shape(x))) if e != d)]
    y = _weighted(c, c.cast(c.transpose(x, order), kind), places, weights)
    y = c.transpose(y if is_float(own) else c.insert(popart.RoundOp(y)), [order.index(e) for e in range(len(order))])
    return c.cast(y, own)


def _weighted(c: Conversion, x: SSAValue, places: NDArray[Any], weights: NDArray[Any]) -> SSAValue:
    """Computes `y[i] = sum over k of weights[i, k] x[places[i, k]]` along the first dimension; the edges go on beyond x.

    Only these elements are read: a NaN that no output has as a tap stays out of all.
    """
    import numpy as np

    (n, *rest), (out, taps) = shape(x), weights.shape
    weights = weights.astype(dtype_of(element(x))).reshape(out, taps, *[1] * len(rest))
    found = _period(places)
    if found is None:
        x = c.insert(popart.GatherOp(x, c.constant(np.clip(places, 0, n - 1).astype(np.int32)), axis=0))
        return c.insert(popart.ReduceSumOp(c.insert(popart.MulOp(x, c.constant(weights))), axes=[1], keep=False))
    # Every `period` outputs the taps are `step` elements further, so those of a phase are slices of x and its edges.
    period, step = found
    turns = -(-out // period)
    more = turns * period - out
    firsts = places[:period]
    weights = np.concatenate([weights, weights[out - period :][:more]])
    begin, end = int(firsts.min()), int(firsts.max()) + (turns - 1) * step + 1
    x = gathered(c, x, [min(max(i, 0), n - 1) for i in range(begin, end)], 0)
    phases: list[SSAValue] = []
    for phase in range(period):
        terms = [
            c.insert(popart.MulOp(sliced(c, x, {0: (at, at + (turns - 1) * step + 1, step)}), c.constant(weights[phase::period, k])))
            for k, at in enumerate((firsts[phase] - begin).tolist())
        ]
        y = reduce(lambda a, b: c.insert(popart.AddOp(a, b)), terms)
        phases.append(c.reshape(y, (turns, 1, *rest)))
    y = c.reshape(c.insert(popart.ConcatOp(*phases, axis=1)), (turns * period, *rest))
    return sliced(c, y, {0: (0, out, 1)}) if more else y


def _period(places: NDArray[Any]) -> tuple[int, int] | None:
    """Finds after how many outputs the taps repeat, and how many elements further on.

    None if there are more than PRODUCTS until then, or if x and its edges would have more elements than all taps together.
    """
    import numpy as np

    if not places.size or places.size <= np.ptp(places):
        return None
    for period in range(1, min(PRODUCTS // places.shape[1], len(places) - 1) + 1):
        steps = places[period:] - places[:-period]
        if steps[0, 0] > 0 and np.all(steps == steps[0, 0]):
            return period, int(steps[0, 0])
    return None


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


def _taps(c: Conversion, n: int, at: NDArray[Any], mode: str, narrow: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Computes the elements that each output reads, which may lie outside the n of the input, and their weights: [out, taps].

    `narrow`: the scale below 1 by which antialiasing widens the filter. Raises PopulusError for an unknown mode.
    """
    import numpy as np

    cubic = mode == "cubic"
    if mode not in ("linear", "bilinear", "trilinear", "cubic"):
        raise PopulusError(f"mode is '{mode}'; nearest, linear or cubic is expected")
    reach = math.ceil((2 if cubic else 1) / narrow)
    a = c.get("cubic_coeff_a") if c.get("cubic_coeff_a") is not None else -0.75
    places = np.floor(at).astype(np.int64)[:, None] + np.arange(1 - reach, reach + 1)
    distances = (places - at.astype(np.float64)[:, None]) * narrow
    weights = _cubic(distances, a) if cubic else np.clip(1 - np.abs(distances), 0, 1)
    if c.get("exclude_outside"):
        weights = np.where((places >= 0) & (places < n), weights, 0)
    if narrow < 1 or c.get("exclude_outside"):
        weights = weights / weights.sum(1, keepdims=True)
    # An element of weight 0 is no tap: the strongest one stands there too, and they share its weight.
    strongest, none = np.abs(weights).argmax(1)[:, None], weights == 0
    equal = none | (np.arange(2 * reach) == strongest)
    share = np.take_along_axis(weights, strongest, 1) / equal.sum(1, keepdims=True)
    return np.where(none, np.take_along_axis(places, strongest, 1), places), np.where(equal, share, weights)


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
