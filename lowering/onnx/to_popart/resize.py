"""Resize and Upsample: dimension by dimension, elements picked (nearest) or a product with a matrix of weights (linear, cubic)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.support import shapes
from populus.dialects.support.budget import check_constant
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, is_float
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rules, element, shape
from populus.lowering.onnx.to_popart.tensor import gathered

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def upsample(c: Conversion) -> Output:
    """Source: ONNX Upsample-9, -7 with scales as an attribute."""
    x = c.input(0)
    factors = c.get("scales") or [float(v) for v in c.known(1)]
    for d, factor in enumerate(factors):
        n = shape(x)[d]
        out = _scaled(n, factor)
        check_constant(out, "a dimension of its result")
        at = _coordinates("asymmetric", n, out, factor, None)
        x = _along(c, x, d, at, c.get("mode"), "floor", factor)
    return x


def resize(c: Conversion) -> Output:
    """Source: ONNX Resize-19; -10 counts coordinates from the corner and, where it shrinks, takes the element behind them."""
    x = c.input(0)
    rank = len(shape(x))
    output = c.op.output(0)
    assert output is not None
    axes = [shapes.axis(a, rank) for a in c.get("axes") or range(rank)]
    given = _scales(c, len(axes))
    sizes = [shape(output)[a] for a in axes] if given is None else [_scaled(shape(x)[a], s) for a, s in zip(axes, given)]
    for out in sizes:
        check_constant(out, "a dimension of its result")
    how = c.get("coordinate_transformation_mode") or "asymmetric"
    region = [float(v) for v in c.known(1)] if how == "tf_crop_and_resize" and c.has(1) else [0.0] * len(axes) + [1.0] * len(axes)
    outside: list[tuple[int, NDArray[Any]]] = []
    factors = given or _policy(c, [out / shape(x)[a] if shape(x)[a] else 1.0 for a, out in zip(axes, sizes)], axes, shape(x))
    exact = given is None and (c.get("keep_aspect_ratio_policy") or "stretch") == "stretch"
    for k, (d, out) in enumerate(zip(axes, sizes)):
        n = shape(x)[d]
        rounding = c.get("nearest_mode") or ("ceil" if factors[k] < 1 else "floor")
        at = _coordinates(how, n, out, factors[k], out if exact else None, (region[k], region[k + len(axes)]))
        if how == "tf_crop_and_resize":
            outside.append((d, (at < 0) | (at > n - 1)))
        if how == "tf_crop_and_resize" or n != out or factors[k] != 1:
            x = _along(c, x, d, at, c.get("mode"), rounding, factors[k])
    return _filled(c, x, outside)


def _scaled(n: int, scale: float) -> int:
    """`floor(n scale)`, rounded to f32 before: 6 times the f32 nearest to 5/6 is 5. Source: onnxruntime; ONNX rounds in f64, to 4."""
    import numpy as np

    return math.floor(np.float32(n) * np.float32(scale))


def _scales(c: Conversion, count: int) -> list[float] | None:
    """The scales that the node gives, None if it gives sizes."""
    position = 1 if c.version == 10 else 2
    found = [float(v) for v in c.known(position)] if c.has(position) else []
    if found and len(found) != count:
        raise PopulusError(f"there are {len(found)} scales for {count} dimensions")
    if strange := [s for s in found if not 0 < s < math.inf]:
        raise PopulusError(f"a scale is {strange[0]}; numbers above 0 are expected")
    return found or None


def _policy(c: Conversion, factors: list[float], axes: list[int], size: tuple[int, ...]) -> list[float]:
    """One scale for all dimensions where the node keeps the aspect ratio."""
    policy = c.get("keep_aspect_ratio_policy") or "stretch"
    if policy == "stretch":
        return factors
    stated = [float(v) for v in c.known(3)]
    found = [s / size[a] for s, a in zip(stated, axes)]
    return [min(found) if policy == "not_larger" else max(found)] * len(axes)


def _coordinates(
    how: str, n: int, out: int, factor: float, exact: int | None, region: tuple[float, float] = (0.0, 1.0)
) -> NDArray[np.float32]:
    """Where each of `out` elements of the result lies among the n of the input; in f32, so that halves fall as onnxruntime's do.

    `exact`: the size of the result, where that was given and not the factor. Source: ONNX Resize-19, coordinate_transformation_mode.
    """
    import numpy as np

    scale, (start, end) = np.float32(factor), np.array(region, np.float32)
    length = scale * np.float32(n) if exact is None else np.float32(exact)  # a factor need not make a whole number
    i = np.arange(out, dtype=np.float32)
    half = (i + np.float32(0.5)) / scale
    match how:
        case "half_pixel":
            return half - np.float32(0.5)
        case "half_pixel_symmetric":
            offset = np.float32(n / 2) * (1 - np.float32(out) / length)
            return (offset + (i.astype(np.float64) + 0.5) / float(scale) - 0.5).astype(np.float32)
        case "pytorch_half_pixel":
            return half - np.float32(0.5) if out > 1 else np.zeros_like(i)
        case "align_corners":
            return i * np.float32(n - 1) / (length - 1) if length != 1 else np.zeros_like(i)
        case "asymmetric":
            return i / scale
        case "tf_half_pixel_for_nn":
            return half
        case "tf_crop_and_resize":
            if length == 1:
                return np.full_like(i, np.float32(0.5) * (start + end) * np.float32(n - 1))
            return start * np.float32(n - 1) + i * (end - start) * np.float32(n - 1) / (length - 1)
        case _:
            raise PopulusError(f"coordinate_transformation_mode is '{how}', which Resize does not have")


def _along(c: Conversion, x: SSAValue, d: int, at: NDArray[np.float32], mode: str, rounding: str, scale: float) -> SSAValue:
    """x with those elements of dimension d that lie at the coordinates `at`."""
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
    """weights[i, j]: how much of input j is in output i. `narrow`: the scale below 1 by which antialiasing widens the filter."""
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
    """Keys' kernel. Source: ONNX Resize-19, cubic_coeff_a."""
    import numpy as np

    t = np.abs(t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0))


def _filled(c: Conversion, x: SSAValue, outside: list[tuple[int, NDArray[Any]]]) -> SSAValue:
    """x with the node's extrapolation value where a coordinate lies outside the input."""
    import numpy as np

    mask = np.zeros((1,) * len(shape(x)), np.bool_)
    for d, flags in outside:
        mask = mask | flags.reshape([len(flags) if e == d else 1 for e in range(len(shape(x)))])
    if not mask.any():
        return x
    return c.insert(popart.WhereOp(c.constant(mask), c.scalar(c.get("extrapolation_value"), x), x))


RULES: Rules = {"Resize": resize, "Upsample": upsample}
