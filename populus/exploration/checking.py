"""Points of a front, run: on all tiles by machine code, on few with every vertex checked; both are compared with the model's values."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

import numpy as np

from populus.dialects.poplar.target import Spec
from populus.exploration.chips import Chips
from populus.exploration.explore import Exploration
from populus.exploration.measure import Model
from populus.exploration.space import text_of
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.poplar.plan.stated import as_option, parse
from populus.program.compile import compiled
from populus.program.options import CompileOptions, stated_in
from populus.runtime.differences import RTOL, largest_difference

FEW = 8  # tiles of the strict engine's run
GRAIN = 8  # bytes of a tile's memory


@dataclass(frozen=True)
class Check:
    """A run of a point's model. `difference`: the largest, relative to the largest element. `fault`: what is wrong, if something is."""

    point: int
    model: str
    engine: str
    tiles: int
    difference: float
    fault: str | None


def checked(found: Exploration, most: int) -> list[Check]:
    """Runs the programs of drawn points of the front, twice each, on random inputs.

    `native` runs the point's own program, whose fullest tile is held to the measured memory. `strict` runs it on few tiles, with as many
    bytes in all, and checks each vertex. Both are compared with the values of the level `popart` of the whole model. Of several chips all
    programs of one copy run, and meet. Raises PopulusError for a model that does not run.
    """
    drawn = sorted(random.Random(found.request.seed).sample(found.front, min(most, len(found.front))))
    return [check for number in drawn for model in found.bench.models for check in _of_point(found, number, model)]


def _of_point(found: Exploration, number: int, model: Model) -> list[Check]:
    space, settings = found.bench.space, found.settings(number)
    tensor, stages = space.spread(settings)
    dims = space.compiling(settings).dims
    whole = compiled(model.model, replace(space.options, target=space.spec.name, tiles=None, dims=dims, level="popart"))
    inputs = whole.signature.random(found.request.seed)
    expected, types = whole.run_at("popart", inputs), whole.signature.outputs

    point = next(p for p in found.points if p["point"] == number)
    plans = {int(entry["stage"]): entry["plans"] for entry in point.get("plans", ()) if entry["model"] == model.name}

    def chips(engine: str, spec: Spec) -> Chips:
        """Compiles a point's programs for an engine and a machine; with the point's plans if it is the point's machine."""
        options = (
            with_plans(space.compiling(settings, chip), plans.get(chip // tensor, "") if spec is own else "")
            for chip in range(tensor * stages)
        )
        return Chips([compiled(model.model, replace(o, level="poplar", engine=engine, target=text_of(spec))) for o in options], tensor)

    own = space.machine(settings)
    few = _few(own)
    native = chips("native", own)
    runs = [("native", own, native.run(inputs, types)), ("strict", few, chips("strict", few).run(inputs, types))]
    memory = point["measures"]["memory"]
    needed = max(int(program.profile().summary["peak_tile_bytes"]) for program in native.programs)
    checks: list[Check] = []
    for engine, spec, outputs in runs:
        far = max((largest_difference(np.asarray(outputs[n]), np.asarray(expected[n])).relative for n in expected), default=0.0)
        fault = None if far <= RTOL else f"differs by {far:.3g} of the largest element"
        if engine == "native" and needed > memory:
            fault = f"needs {needed:,} bytes of a tile, and {memory:,} were measured"
        checks.append(Check(number, model.name, engine, spec.target().tiles, far, fault))
    return checks


def with_plans(options: CompileOptions, plans: str) -> CompileOptions:
    """Adds plans, as text, to those that options state."""
    if not plans:
        return options
    stated = (*(() if options.plan is None else stated_in(options.plan)), *parse(plans))
    assert isinstance(options.pipeline, Pipeline), options.pipeline
    return replace(options, plan=None, pipeline=options.pipeline.with_options("poplin-to-poplar", plans=as_option(stated)))


def _few(spec: Spec) -> Spec:
    """Gives a machine of few tiles with at least as many bytes in all, and twice as many for each: parts of few tiles are less even."""
    target = spec.target()
    if target.mesh is None:
        numbers = {"tiles": min(FEW, target.tiles)}
    else:
        columns, rows = target.mesh.grid
        numbers = {"columns": min(FEW // 2, columns), "rows": min(2, rows)}
    tiles = math.prod(numbers.values())
    bytes = -(-2 * target.tile_bytes * target.tiles // tiles // GRAIN) * GRAIN
    overrides = {n: v for n, v in spec.overrides if n != "tiles" or target.mesh is None}
    return Spec(spec.name, tuple({**overrides, **numbers, "tile_bytes": bytes}.items()))
