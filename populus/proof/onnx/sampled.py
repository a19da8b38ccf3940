"""ONNX's Resize and Upsample: for each dimension the sum of the elements around a coordinate, by weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from xdsl.dialects.builtin import f32, f64

from populus.dialects import expr
from populus.dialects.expr import Arg
from populus.dialects.poplar.affine import box, names, read_map, within
from populus.dialects.support.element_types import is_float
from populus.proof.onnx.node import Node, Results
from populus.proof.pieces import over
from populus.proof.report import Undecided
from populus.proof.trees import Piece, Pieces

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]


def _places(mode: str, n: int, out: int, scale: float, length: float, region: tuple[float, float]) -> Array:
    """Computes where in a dimension of n elements each of `out` lies. `length`: of the result, which need not be whole."""
    i = np.arange(out, dtype=np.float64)
    match mode:
        case "half_pixel":
            return (i + 0.5) / scale - 0.5
        case "half_pixel_symmetric":
            return n / 2 * (1 - out / length) + (i + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (i + 0.5) / scale - 0.5 if out > 1 else np.zeros(out)
        case "align_corners":
            return i * (n - 1) / (length - 1) if length != 1 else np.zeros(out)
        case "asymmetric":
            return i / scale
        case "tf_half_pixel_for_nn":
            return (i + 0.5) / scale
        case "tf_crop_and_resize":
            start, end = region
            if length == 1:
                return np.full(out, 0.5 * (start + end) * (n - 1))
            return start * (n - 1) + i * (end - start) * (n - 1) / (length - 1)
        case _:
            raise Undecided(mode)


def _nearest(mode: str, at: Array, exact: bool) -> Array:
    """Rounds coordinates; those that are a half or whole to rounding are that.

    `exact`: floats of 32 bits hold the scale. Raises Undecided where their rounding decides between two elements.
    """
    edges = np.round(2 * at) / 2
    near = np.abs(at - edges) < 1e-5
    decides = (edges % 1 != 0) if mode.startswith("round") else (edges % 1 == 0)
    if not exact and (near & decides).any():
        raise Undecided("a coordinate on the edge of two elements, which rounding decides")
    at = np.where(near, edges, at)
    match mode:
        case "round_prefer_floor":
            return np.ceil(at - 0.5)
        case "round_prefer_ceil":
            return np.floor(at + 0.5)
        case "floor":
            return np.floor(at)
        case "ceil":
            return np.ceil(at)
        case _:
            raise Undecided(mode)


def _kernel(mode: str, t: Array, a: float) -> Array:
    """Weighs elements by their distance: a triangle, or Keys' cubic."""
    t = np.abs(t)
    if mode == "linear":
        return np.maximum(1 - t, 0)
    near, far = (a + 2) * t**3 - (a + 3) * t**2 + 1, a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0))


def _weights(n: Node, mode: str, size: int, at: Array, scale: float) -> Array:
    """Computes the weight of each element of a dimension for each of the result: [out, size]."""
    squeeze = min(scale, 1.0) if n.get("antialias") else 1.0
    reach = math.ceil((1 if mode == "linear" else 2) / squeeze)
    taps = np.floor(at)[:, None] + np.arange(1 - reach, reach + 1)
    weights = _kernel(mode, (taps - at[:, None]) * squeeze, float(n.get("cubic_coeff_a") if n.get("cubic_coeff_a") is not None else -0.75))
    if n.get("exclude_outside"):
        weights = np.where((taps >= 0) & (taps < size), weights, 0)
    if n.get("exclude_outside") or squeeze < 1:
        weights = weights / weights.sum(1, keepdims=True)
    found = np.zeros((len(at), size))
    for k in range(taps.shape[1]):
        np.add.at(found, (np.arange(len(at)), np.clip(taps[:, k], 0, size - 1).astype(int)), weights[:, k])
    return found


def _resized(n: Node) -> Results:
    if n.op.OP_TYPE == "Resize" and n.op.VERSION < 11:
        raise Undecided(f"opset {n.op.VERSION}")
    shape, full = n.shape(0), n.full
    axes = [a % len(shape) for a in n.get("axes") or range(len(shape))]
    upsample, policy = n.op.OP_TYPE == "Upsample", n.get("keep_aspect_ratio_policy") or "stretch"
    given = 1 if upsample else 2
    scales = [float(v) for v in n.known(given).reshape(-1)] if n.has(given) and math.prod(n.shape(given)) else None
    if upsample and n.get("scales") is not None:  # opset 7
        scales = [float(v) for v in n.get("scales")]
    if scales is not None:
        lengths = [shape[a] * s for a, s in zip(axes, scales)]
    elif policy == "stretch":
        scales, lengths = [full[a] / shape[a] for a in axes], [float(full[a]) for a in axes]
    else:
        stated = [float(v) / shape[a] for v, a in zip(n.known(3).reshape(-1), axes)]
        scales = [min(stated) if policy == "not_larger" else max(stated)] * len(axes)
        lengths = [shape[a] * s for a, s in zip(axes, scales)]
    coordinates = "asymmetric" if upsample else n.get("coordinate_transformation_mode")
    crop = coordinates == "tf_crop_and_resize"
    region = [float(v) for v in n.known(1).reshape(-1)] if crop and n.has(1) else [0.0] * len(axes) + [1.0] * len(axes)
    mode = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}[n.get("mode")]
    x, now, outside = n.x(0), shape, list[str]()
    own = n.element(0)
    for k, (axis, scale, length) in enumerate(zip(axes, scales, lengths)):
        out = full[axis]
        at = _places(coordinates, shape[axis], out, scale, length, (region[k], region[k + len(axes)]))
        if crop:
            outside += [f"i{axis} = {o}" for o in range(out) if at[o] < 0 or at[o] > shape[axis] - 1]
        if not crop and out == shape[axis] and scale == 1:
            continue
        then = tuple(out if d == axis else m for d, m in enumerate(now))
        if mode == "nearest":
            exact = coordinates == "align_corners" or float(np.float32(scale)) == scale  # quotients are rounded correctly
            rounded = _nearest("floor" if upsample else n.get("nearest_mode"), at, exact).clip(0, shape[axis] - 1).astype(int)
            x = _picked(n, x, now, then, axis, rounded)
        else:
            x = _blended(n, x, then, axis, _weights(n, mode, shape[axis], at, scale), own)
        now = then
    if outside:
        i = names("i", len(full))
        beyond = box(full).intersect(read_map(f"{{ [{', '.join(i)}] -> [0] : {' or '.join(outside)} }}").domain())
        x = over(x, [Piece(beyond, n.t.number(float(n.get("extrapolation_value")), full)[0].tree)])
    return [x]


def _picked(n: Node, x: Pieces, now: tuple[int, ...], then: tuple[int, ...], axis: int, places: Array) -> Pieces:
    i = names("i", len(then))
    to = "; ".join(
        f"[{', '.join(i)}] -> [{', '.join(str(p) if d == axis else v for d, v in enumerate(i))}] : {i[axis]} = {o} and {within(i, then)}"
        for o, p in enumerate(places.tolist())
    )
    return n.t.seen(x, read_map(f"{{ {to} }}"))


def _blended(n: Node, x: Pieces, then: tuple[int, ...], axis: int, weights: Array, own: Any) -> Pieces:
    if not is_float(own):
        raise Undecided("integers between elements")
    i, size = names("i", len(then)), weights.shape[1]
    where = f"{within(i, then)} and 0 <= j < {size}"
    point = f"[{', '.join([*i, 'j'])}]"
    to_points = read_map(f"{{ [{', '.join(i)}] -> {point} : {where} }}")
    to_x = read_map(f"{{ {point} -> [{', '.join('j' if d == axis else v for d, v in enumerate(i))}] : {where} }}")
    to_w = read_map(f"{{ {point} -> [{i[axis]}, j] : {where} }}")
    y = n.t.product(box(then), to_points, x, n.t.array(weights), to_x, to_w)
    return y if own in (f32, f64) else n.t.elementwise(expr.cast(Arg(1), own), box(then), [y], True)


SAMPLED: Mapping[str, Callable[[Node], Results]] = {"Resize": _resized, "Upsample": _resized}
"""The definition of each op."""
