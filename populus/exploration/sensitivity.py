"""The change of a point's time by each field of its machine: each field is made a tenth larger, and the program compiled again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TypedDict

from populus.dialects.poplar.machine import INTEGER_FIELDS
from populus.dialects.poplar.target import Spec, Target, mesh_fields
from populus.dialects.support.diagnostics import PopulusError
from populus.exploration.explore import Exploration
from populus.exploration.measure import Bench

STEP = 0.1
GRAIN = 8  # bytes of a tile's memory
LEFT_OUT = {"chips"}  # copies do not change a run


class Change(TypedDict):
    """A field before and after, the seconds before and after, and the per cent of time for one per cent of the field."""

    field: str
    before: float
    seconds: float
    elasticity: float
    to: int
    was: int


def sensitivity(found: Exploration, number: int) -> list[Change]:
    """Lists the change of a point's time by each field of its machine, the largest first.

    Fields that are 0, and those of which a larger number is no machine or gives no program, are left out. Raises PopulusError for a point
    that cannot be.
    """
    bench, settings = found.bench, found.settings(number)
    spec = bench.space.machine(settings)
    rest = tuple(axis for axis in bench.space.axes if axis.kind != "machine")
    own = {axis.name: settings[axis.name] for axis in rest}

    def seconds(machine: Spec) -> float:
        """Gives the time of the mix on a machine, with the point's other settings."""
        space = replace(bench.space, spec=machine, axes=rest, equal=None)
        moved = Bench(bench.models, space, bench.reuse, bench.plans, bench.spared, bench.upper)
        return moved.weigh(own, [moved.profiles(model, own) for model in bench.models])["seconds"]

    before, changes = seconds(spec), list[Change]()
    for field, was, to in _larger(spec.target()):
        machine = Spec(spec.name, tuple({**dict(spec.overrides), field: to}.items()))
        try:
            after = seconds(machine)
        except PopulusError:
            continue
        elasticity = math.log(after / before) / math.log(to / was) if before and after else 0.0
        changes.append({"field": field, "was": was, "to": to, "before": before, "seconds": after, "elasticity": round(elasticity, 6)})
    return sorted(changes, key=lambda c: (-abs(c["elasticity"]), c["field"]))


def _larger(target: Target) -> Iterator[tuple[str, int, int]]:
    """Yields each field of a machine with its number, and one that is a tenth larger, or larger by one."""
    mesh = target.mesh
    for field in sorted((INTEGER_FIELDS if mesh is None else mesh_fields() - {"tiles"}) - LEFT_OUT):
        if field in ("columns", "rows"):
            assert mesh is not None, field
            was = mesh.grid[field == "rows"]
        else:
            was = getattr(mesh, field) if mesh is not None and hasattr(mesh, field) else getattr(target, field)
        if was == int(was) and was > 0:
            to = max(int(was) + 1, round(was * (1 + STEP)))
            yield field, int(was), -(-to // GRAIN) * GRAIN if field == "tile_bytes" else to
