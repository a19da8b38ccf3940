"""Kinds of nodes that sample between elements: Resize, Upsample, GridSample."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.drawing import F32, Draw, Kind, Span, Unfit
from fuzz.shaping import space


def resize_modes(g: Draw) -> dict[str, Any]:
    """What Resize says of opset 11 on."""
    mode = g.rng.choice(["nearest", "linear", "cubic"])
    where = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
    if g.opset >= 19:
        where.append("half_pixel_symmetric")
    said: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": g.rng.choice(where)}
    if mode == "nearest":
        said["nearest_mode"] = g.rng.choice(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
    if mode == "cubic":
        said |= {"cubic_coeff_a": g.rng.choice([-0.5, -0.75]), "exclude_outside": g.rng.randint(0, 1)}
    if g.opset >= 18 and mode != "nearest" and g.chance(0.2):
        said["antialias"] = 1
    return said


def resize(g: Draw) -> None:
    x = g.value((F32,), shape=(1, g.rng.randint(1, 2), g.rng.randint(1, 5), g.rng.randint(1, 5)))
    scales = [1.0, 1.0, g.rng.choice([0.5, 1, 1.5, 2, 3]), g.rng.choice([0.5, 1, 2, 2.5])]
    if any(int(d * s) < 1 for d, s in zip(x.shape, scales)):
        raise Unfit
    span = Span(-2 * x.span.size, 2 * x.span.size)
    factors = np.array(scales, np.float32)
    if g.opset < 11:
        mode = g.rng.choice(["nearest", "linear"])
        g.node("Resize", [x, g.constant(factors)], [x.span if mode == "nearest" else span], mode=mode)
        return
    said = resize_modes(g)
    kept = x.span if said["mode"] == "nearest" else span
    none = None if g.opset >= 13 else g.constant(np.zeros(0, np.float32))
    if g.chance(0.5):
        g.node("Resize", [x, none, g.constant(factors)], [kept], **said)
        return
    sizes = [*x.shape[:2], g.rng.randint(1, 7), g.rng.randint(1, 7)]
    g.node("Resize", [x, none, None if g.opset >= 13 else none, g.ints(sizes)], [kept], [sizes], **said)


def upsample(g: Draw) -> None:
    x = g.value((F32,), shape=(1, g.rng.randint(1, 2), g.rng.randint(1, 5), g.rng.randint(1, 5)))
    scales = [1.0, 1.0, g.rng.choice([1.0, 1.5, 2, 3]), g.rng.choice([1.0, 2, 2.5])]
    dims = [int(d * s) for d, s in zip(x.shape, scales)]
    mode = g.rng.choice(["nearest", "linear"])
    span = x.span if mode == "nearest" else Span(x.span.low, x.span.high)
    if g.opset < 9:
        g.node("Upsample", [x], [span], [dims], mode=mode, scales=scales)
    else:
        g.node("Upsample", [x, g.constant(np.array(scales, np.float32))], [span], [dims], mode=mode)


def grid_sample(g: Draw) -> None:
    n, c = g.rng.randint(1, 2), g.rng.randint(1, 2)
    x = g.value((F32,), shape=(n, c, *space(g, 2, 4)))
    grid = g.new(F32, (n, *space(g, 2, 3), 2), -1.5, 1.5)
    old = g.opset < 20
    mode = g.rng.choice(["bilinear", "bicubic"] if old else ["linear", "cubic"])
    said = {"mode": mode, "padding_mode": g.rng.choice(["zeros", "border", "reflection"]), "align_corners": g.rng.randint(0, 1)}
    g.node("GridSample", [x, grid], [Span(-4 * x.span.size, 4 * x.span.size)], **said)


KINDS = [
    Kind("Resize", resize, 10, weight=5),
    Kind("Upsample", upsample, 7, 9, weight=4),
    Kind("GridSample", grid_sample, 16),
]
