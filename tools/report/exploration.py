"""An exploration as one self-contained HTML page: style, script and data are inside, and it makes no network requests."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from populus.exploration.axes import Settings
from populus.exploration.explore import Exploration
from populus.exploration.measure import LESS, MEASURES
from populus.tools.report.page import POLICY, embedded

if TYPE_CHECKING:
    from populus.runtime.profile import Profile, ProfiledStep

FOLDER = Path(__file__).parent
DETAILED = 40  # points of the front with their ops on the page
OPS = 300  # of a point: the dearest


def html(found: Exploration) -> str:
    """Renders the page of an exploration. Texts of models are escaped, never markup."""
    data: dict[str, Any] = {**found.record(), "measured": list(MEASURES), "less": list(LESS), "details": details(found)}
    style = "".join((FOLDER / name).read_text(encoding="utf-8") for name in ("page.css", "exploration.css"))
    script = (FOLDER / "exploration.js").read_text(encoding="utf-8")
    title = escape(", ".join(model["name"] for model in data["models"]))
    totals = f"{len(found.points):,} points, {len(found.front):,} of them on the front."
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            f"<title>{title} - populus explore</title><style>\n{style}</style></head><body>",
            f"<noscript><h1>{title}</h1><p>{totals} The page is drawn by its script.</p></noscript>",
            f'<script type="application/json" id="data">{embedded(data)}</script>',
            f"<script>\n{script}</script></body></html>\n",
        ]
    )


def details(found: Exploration) -> dict[str, Any]:
    """Gives, for points of the front, the costs of each op of the models and the rates that bound them: a roofline."""
    made: dict[str, Any] = {}
    for number in found.front[:DETAILED]:
        settings = found.settings(number)
        ops: list[dict[str, Any]] = []
        for model in found.bench.models:
            prefix = "" if len(found.bench.models) == 1 else f"{model.name}: "
            for stage, profile in enumerate(profiles := found.bench.profiles(model, settings)):
                at = prefix if len(profiles) == 1 else f"{prefix}stage {stage}: "
                ops += [{**op, "name": at + op["name"]} for op in ops_of(profile)]
        made[str(number)] = {"ops": sorted(ops, key=lambda op: (-op["cycles"], op["name"]))[:OPS], **roofs(found, settings)}
    return made


def ops_of(profile: Profile) -> list[dict[str, Any]]:
    """Sums the steps of each op of the model, with what bounds it: the largest of its parts."""
    ops: dict[str, dict[str, Any]] = {}
    for step in profile.steps:
        op = ops.setdefault(step.place, {"name": step.place, "cycles": 0, **dict.fromkeys(PARTS, 0), "flops": 0, "bytes": 0})
        op["cycles"] += step.cycles * step.count
        for part, value in parts_of(step).items():
            op[part] += value * step.count
        op["flops"] += step.flops * step.count
        op["bytes"] += step.bytes * step.count
    return list(ops.values())


PARTS = ("compute", "exchange", "sync", "outside")


def parts_of(step: ProfiledStep) -> dict[str, int]:
    """Splits the cycles of a step: computing, exchange between tiles, barriers, and memory outside of the tiles."""
    moved = step.exchange - step.hidden
    outside = step.kind in ("copy", "call") and step.host_bytes > 0
    return {"compute": step.compute, "exchange": 0 if outside else moved, "sync": step.sync, "outside": moved if outside else 0}


def roofs(found: Exploration, settings: Settings) -> dict[str, float]:
    """Gives the roofs of a machine: operations a second of the matrix units, bytes a second that all tiles receive; and its clock."""
    target = found.bench.space.machine(settings).target()
    received = float(target.tiles * target.exchange_bytes * target.clock_hz)
    assert math.isfinite(received), target
    return {"peak": target.matrix_peak, "received": received, "clock_hz": float(target.clock_hz)}
