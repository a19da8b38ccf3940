"""A point of a space, compiled and weighed. The levels above the tiles are made once, and plans are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from xdsl.dialects.builtin import ModuleOp

from populus.dialects.poplar import GraphOp
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.garbage import no_garbage_collection
from populus.exploration.axes import Settings
from populus.exploration.energy import counts_of, joules
from populus.exploration.plans import searched
from populus.exploration.space import Space
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.popart.stage import PopartStagePass
from populus.lowering.popart.to_popops import PopartToPopopsPass
from populus.lowering.poplar.plan.contraction import PLANS
from populus.lowering.poplar.plan.stated import Stated, as_option
from populus.program.compile import compiled
from populus.program.open_program import OpenProgram
from populus.program.options import CompileOptions, stated_in
from populus.program.program import Program
from populus.runtime.profile import Profile, profile

Measures: TypeAlias = dict[str, float]
LESS: tuple[str, ...] = (
    "cycles", "seconds", "memory", "sram", "energy", "power", "area", "exchange", "outside",
    "compute_cycles", "exchange_cycles", "sync_cycles", "collective_cycles", "interval",
)  # fmt: skip
"""The measures of a point of which less is better."""
PARTS = ("compute_cycles", "exchange_cycles", "sync_cycles", "collective_cycles")
"""Parts of the cycles. Those of collectives, in which chips meet, are exchange and barriers too."""
BOUNDED = ("energy", "power", "area")
"""The measures that rest on estimates of the technology: of each, `_least` and `_greatest` have the estimates at their bounds."""
MEASURES: tuple[str, ...] = (*LESS, "throughput", "utilisation", *(f"{name}_{end}" for name in BOUNDED for end in ("least", "greatest")))


@dataclass(frozen=True)
class Model:
    """A model of the mix: what `compile` takes, its name on the page, and how often it runs beside the others."""

    model: object
    name: str
    weight: float = 1.0


@dataclass
class Reuse:
    """Counts what was made and what was kept: levels above the tiles, by model and passes; plans, by shape and machine.

    `trials`: programs with other plans than the planner's.
    """

    levels_made: int = 0
    levels_kept: int = 0
    plans_made: int = 0
    plans_kept: int = 0
    trials: int = 0

    def since(self, before: Reuse) -> dict[str, int]:
        """Gives the counts since an earlier state."""
        return {name: value - getattr(before, name) for name, value in vars(self).items()}


@dataclass
class Bench:
    """The models of an exploration on its space, with what their points share.

    `upper`: programs and modules at the level above the tiles, by model, sizes and passes. `plans`: of each contraction, those that are
    searched together; 1 is the planner's. `spared`: the part of a program's summary for which plans are chosen.
    """

    models: Sequence[Model]
    space: Space
    reuse: Reuse = field(default_factory=Reuse)
    plans: int = 1
    spared: str = "cycles"
    upper: dict[tuple[object, ...], tuple[Program, ModuleOp]] = field(default_factory=dict[tuple[object, ...], "tuple[Program, ModuleOp]"])

    def profiles(self, model: Model, settings: Settings) -> list[Profile]:
        """Compiles a model for a point, and profiles it: a program for each stage.

        The chips of a stage differ in their weights alone, so that the first stands for all. Raises PopulusError for a machine or a
        program that cannot be.
        """
        tensor, stages = self.space.spread(settings)
        return [self.profile(model, settings, stage * tensor) for stage in range(stages)]

    def profile(self, model: Model, settings: Settings, chip: int = 0) -> Profile:
        """Compiles the program of one chip, and profiles it. Raises PopulusError as `profiles`."""
        return self.planned(model, settings, chip)[0]

    def planned(self, model: Model, settings: Settings, chip: int = 0) -> tuple[Profile, tuple[Stated, ...]]:
        """Gives the profile of `profile`, and the plans that are others than the planner's."""
        options = self.space.compiling(settings, chip)
        options.check()
        pipeline = options.passes(options.extensions())
        program, module = self.above(model, options, pipeline)
        lower = Pipeline(pipeline.passes[len(pipeline.down_to("popops")) :])
        given = () if options.plan is None else tuple(stated_in(options.plan))

        def compile(stated: Sequence[Stated]) -> Profile:
            """Makes the tile program with these plans, after those that the user states."""
            own = lower if not stated else lower.with_options("poplin-to-poplar", plans=as_option((*given, *stated)))
            copy = module.clone()
            with no_garbage_collection():
                own.run(program.source.context(), copy)
                (graph,) = (op for op in copy.body.block.ops if isinstance(op, GraphOp))
                return profile(graph)

        before = PLANS.made, PLANS.kept
        try:
            if self.plans == 1:
                return compile(()), ()
            found, searched_plans = searched(compile, lambda made: (made.summary[self.spared], made.summary["cycles"]), self.plans)
            self.reuse.trials += searched_plans.trials
            return found, searched_plans.plans
        finally:
            self.reuse.plans_made += PLANS.made - before[0]
            self.reuse.plans_kept += PLANS.kept - before[1]

    def above(self, model: Model, options: CompileOptions, pipeline: Pipeline) -> tuple[Program, ModuleOp]:
        """Gives the model at the level above the tiles, made at most once for its sizes and its passes down to there."""
        upper = _without_fields(pipeline.down_to("popops"))
        key = (self.models.index(model), tuple(sorted((options.dims or {}).items())), str(upper))
        if key in self.upper:
            self.reuse.levels_kept += 1
            return self.upper[key]
        program = compiled(model.model, replace(options, level="popops", pipeline=upper, plan=None))
        if isinstance(program, OpenProgram):
            names = sorted({name for own in program.names.values() for name in own.values()})
            first = names[0]
            raise PopulusError(
                f"{model.name} has the open dimensions {', '.join(names)}; fix each, as dims={{'{first}': 1}}, or vary dim.{first}"
            )
        self.reuse.levels_made += 1
        self.upper[key] = program, program.module("popops")
        return self.upper[key]

    def measure(self, number: int) -> Measures:
        """Weighs a point. Raises PopulusError for one that cannot be."""
        return self.measured(number)[0]

    def measured(self, number: int) -> tuple[Measures, list[dict[str, str]]]:
        """Weighs a point; also gives the plans that were found, as text, of each model and stage. Raises PopulusError as `measure`."""
        settings = self.space.settings(number)
        tensor, stages = self.space.spread(settings)
        made = [[self.planned(model, settings, stage * tensor) for stage in range(stages)] for model in self.models]
        plans = [
            {"model": model.name, "stage": str(stage), "plans": "\n".join(map(str, stated))}
            for model, own in zip(self.models, made)
            for stage, (_, stated) in enumerate(own)
            if stated
        ]
        return self.weigh(settings, [[found for found, _ in own] for own in made]), plans

    def weigh(self, settings: Settings, profiles: Sequence[Sequence[Profile]]) -> Measures:
        """Computes the measures of the mix: sums by weight, of memory the most.

        A run goes through the stages one after the other, and each stage begins the next run when it has ended one. Bytes and joules are
        those of all chips that take part in a run. Chips beyond them are copies, which run by themselves.
        """
        target = self.space.machine(settings).target()
        tensor, stages = self.space.spread(settings)
        interval = 0.0  # cycles from one run of the mix to the next
        found: dict[str, float] = dict.fromkeys(MEASURES, 0.0)
        technology = self.space.technology
        tables = {"": technology, "_least": technology.bounded(False), "_greatest": technology.bounded(True)}
        for model, own in zip(self.models, profiles, strict=True):
            interval += model.weight * max(stage.summary["cycles"] for stage in own)
            for stage in own:
                counts, summary = counts_of(stage), stage.summary
                sums = {"cycles": summary["cycles"], "exchange": tensor * counts.exchanged, "outside": tensor * counts.outside}
                sums |= {f"energy{bound}": tensor * sum(joules(counts, target, table).values()) for bound, table in tables.items()}
                sums |= {name: summary.get(name, 0) for name in PARTS}
                sums["utilisation"] = summary["utilisation"] * summary["cycles"]
                for name, value in sums.items():
                    found[name] += model.weight * value
                found["memory"] = max(found["memory"], summary["peak_tile_bytes"])
        found["seconds"] = found["cycles"] / target.clock_hz
        found["utilisation"] /= max(found["cycles"], 1)
        found["sram"] = target.chips * target.tiles * target.tile_bytes
        copies = target.chips // (tensor * stages)
        found["interval"] = interval / (copies * target.clock_hz)
        found["throughput"] = 1 / found["interval"] if interval else 0.0
        for bound, table in tables.items():
            found[f"area{bound}"] = target.chips * table.area(target)
            found[f"power{bound}"] = found[f"energy{bound}"] * found["throughput"]
        return {name: int(v) if float(v).is_integer() else float(v) for name, v in found.items()}


def _without_fields(upper: Pipeline) -> Pipeline:
    """Leaves out the machine's fields where a pass reads its name alone. Other passes that state a machine are made anew for each."""
    named = (
        replace(p, target=p.target.partition(",")[0]) if isinstance(p, PopartToPopopsPass | PopartStagePass) and p.target else p
        for p in upper.passes
    )
    return Pipeline(tuple(named))
