"""Training curves as an SVG file: losses by step on a logarithmic axis, with validation losses and accuracies.

The SVG is written directly: it needs two axes and a few lines, and any browser shows it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 56, 24, 40
POINTS = 1000  # of a line; a longer one shows means of neighbours
STEP, MEAN, HELD, RIGHT_SHARE = "#c6d4e1", "#1f5582", "#c4572e", "#4b8b3b"


def svg(losses: Sequence[float], validations: Sequence[Mapping[str, Any]], title: str = "") -> str:
    """Draws the curves and gives the text of the SVG file. Values that are not finite are left out."""
    steps = list(range(1, len(losses) + 1))
    width = max(1, -(-len(losses) // POINTS))
    each = [(steps[min(i + width, len(steps)) - 1], _mean(losses[i : i + width])) for i in range(0, len(losses), width)]
    window = max(1, len(losses) // 50)
    smooth = [(s, _mean(losses[max(0, s - window) : s])) for s, _ in each]
    held = [(int(v["step"]), float(v["loss"])) for v in validations]
    share = [(int(v["step"]), float(v["accuracy"])) for v in validations if "accuracy" in v]
    known = [y for line in (each, held) for _, y in line if math.isfinite(y) and y > 0] or [1.0]
    low, high = math.log10(min(known)), math.log10(max(known))
    low, high = (low - 0.5, high + 0.5) if high - low < 1e-9 else (low - 0.04 * (high - low), high + 0.04 * (high - low))
    last = max([*steps, 1])

    def x(step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / last

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (math.log10(value) - low) / (high - low))

    def z(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value)

    parts = [_axis(x(last), [(y(t), f"{t:g}") for t in _ticks(low, high)], title)]
    parts += [_text(x(s), HEIGHT - BOTTOM + 16, f"{s}", "middle") for s in dict.fromkeys(round(last * i / 4) for i in range(5))]
    lines = [("loss of a step", STEP, 1, each, y), ("mean", MEAN, 2, smooth, y), ("validation", HELD, 2, held, y)]
    lines.append(("accuracy", RIGHT_SHARE, 2, share, z))
    at = LEFT + 8
    for name, colour, thick, line, place in lines:
        points = [(x(s), place(v)) for s, v in line if math.isfinite(v) and (v > 0 or place is z)]
        if not points:
            continue
        parts.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="{thick}" points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}"/>'
        )
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.5" fill="{colour}"/>' for a, b in points if len(points) <= 100 and thick == 2]
        parts.append(_text(at, HEIGHT - 6, name, "start", colour))
        at += 7 * len(name) + 24
    if share:
        parts += [_text(WIDTH - RIGHT + 6, z(t) + 4, f"{t:.0%}", "start", RIGHT_SHARE) for t in (0, 0.25, 0.5, 0.75, 1)]
    frame = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">'
    return "\n".join([frame, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', *parts, "</svg>"]) + "\n"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _ticks(low: float, high: float) -> list[float]:
    """Lists 1, 2 and 5 times powers of ten between the bounds."""
    found = [m * 10.0**e for e in range(math.floor(low), math.ceil(high) + 1) for m in (1, 2, 5)]
    return [t for t in found if low <= math.log10(t) <= high]


def _axis(right: float, ticks: Sequence[tuple[float, str]], title: str) -> str:
    lines = [f'<path d="M{LEFT},{TOP} V{HEIGHT - BOTTOM} H{right:.1f}" fill="none" stroke="#444"/>']
    lines += [f'<path d="M{LEFT},{y:.1f} H{right:.1f}" stroke="#eee"/>' for y, _ in ticks]
    lines += [_text(LEFT - 6, y + 4, label, "end") for y, label in ticks]
    return "\n".join([*lines, _text(LEFT, 16, title, "start")])


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#444") -> str:
    shown = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{shown}</text>'
