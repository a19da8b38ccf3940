"""The points of a space: every combination of the axes' values, each a machine and options of compiling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from populus.dialects.poplar.target import Spec
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.exploration.axes import SPREAD, Axis, Settings
from populus.exploration.technology import Technology
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.popart.stage import PopartStagePass
from populus.lowering.popart.tensor_parallel import PopartTensorParallelPass
from populus.program.options import CompileOptions

if TYPE_CHECKING:
    from populus.dialects.poplar.machine import Target

EQUAL = ("sram", "area")
GRAIN = 8  # bytes: the memory of a tile that follows from `equal` is a multiple of it


@dataclass(frozen=True)
class Space:
    """A machine and options to begin with, and the axes along which points differ.

    `equal`: `sram` or `area`, if the memory of a tile follows from the other fields. All tiles together then have as many bytes, or square
    millimetres, as those of the machine to begin with.
    """

    spec: Spec
    options: CompileOptions
    axes: tuple[Axis, ...]
    technology: Technology
    equal: str | None = None

    def check(self) -> None:
        """Raises PopulusError for an unknown `equal`, and for one beside axes that it decides."""
        if self.equal is None:
            return
        if self.equal not in EQUAL:
            raise PopulusError(f"no equal '{self.equal}'{did_you_mean(self.equal, EQUAL)}; there are {' and '.join(EQUAL)}")
        if any(axis.name == "tile_bytes" for axis in self.axes):
            raise PopulusError(f"vary tile_bytes beside equal {self.equal}, from which it follows; leave one of them out")

    @property
    def size(self) -> int:
        """The number of points."""
        return math.prod(len(axis.values) for axis in self.axes)

    def indices(self, number: int) -> tuple[int, ...]:
        """Gives the place of a point along each axis; the last axis runs fastest."""
        found: list[int] = []
        for axis in reversed(self.axes):
            number, i = divmod(number, len(axis.values))
            found.append(i)
        return tuple(reversed(found))

    def number(self, indices: Sequence[int]) -> int:
        """Gives the number of the point at these places along the axes."""
        found = 0
        for axis, i in zip(self.axes, indices, strict=True):
            found = found * len(axis.values) + i
        return found

    def settings(self, number: int) -> Settings:
        """Gives what a point sets."""
        return {axis.name: axis.values[i] for axis, i in zip(self.axes, self.indices(number))}

    def machine(self, settings: Settings) -> Spec:
        """Gives the machine of a point. Raises PopulusError for numbers that no machine has."""
        own = {axis.name for axis in self.axes if axis.kind == "machine"}
        fields = {name: int(value) for name, value in settings.items() if name in own}
        stated = {**dict(self.spec.overrides), **fields}
        if (together := math.prod(self.spread(settings))) > 1:
            chips = stated.setdefault("chips", together)
            if chips % together:
                raise PopulusError(f"chips = {chips}; a multiple of tensor x stages = {together} is expected")
        spec = Spec(self.spec.name, tuple(stated.items()))
        if self.equal is None:
            spec.target()
            return spec
        made = _with(spec, "tile_bytes", self.spec.target().tile_bytes)
        found = self._memory(made.target()) // GRAIN * GRAIN
        if found <= (reserved := made.target().reserved_bytes):
            raise PopulusError(f"equal {self.equal} leaves {found} bytes of a tile, of which the machine reserves {reserved}")
        return _with(spec, "tile_bytes", found)

    @staticmethod
    def spread(settings: Settings) -> tuple[int, int]:
        """Gives how the model lies on the chips of one copy: the parts of each product, and the stages."""
        tensor, stages = (int(settings.get(name, 1)) for name in SPREAD)
        if tensor < 1 or stages < 1:
            raise PopulusError(f"tensor = {tensor}, stages = {stages}; expected at least 1 of each")
        return tensor, stages

    def _memory(self, made: Target) -> int:
        """Computes the bytes of a tile with which a machine has as many bytes or square millimetres as the first."""
        base = self.spec.target()
        if self.equal == "sram":
            return base.tiles * base.tile_bytes // made.tiles
        rest = self.technology.area(base) - self.technology.area(replace(made, tile_bytes=0))
        return int(rest / (made.tiles * self.technology.value("area", "sram_byte"))) if rest > 0 else 0

    def compiling(self, settings: Settings, chip: int = 0) -> CompileOptions:
        """Gives the options with which `compile` makes the program of one chip of a point. Raises PopulusError.

        Chips are numbered stage by stage: stage s has those from `s tensor` on.
        """
        by_kind = {axis.name: axis.kind for axis in self.axes}
        pipeline = self.options.pipeline
        changed = pipeline if isinstance(pipeline, Pipeline) else self.options_pipeline()
        dims = dict(self.options.dims or {})
        choices: dict[str, str] = {}
        for name, value in settings.items():
            match by_kind[name]:
                case "size":
                    dims[name.removeprefix("dim.")] = int(value)
                case "choice":
                    choices[name] = str(value)
                case "pass":
                    changed = changed if value == "on" else changed.remove(name)
                case "option":
                    of, _, option = name.rpartition(".")
                    if any(p.name == of for p in changed.passes):  # another axis may have left it out
                        changed = changed.with_options(of, **{option: value})
                case _:
                    pass
        changed = spread_over(changed, *self.spread(settings), chip)
        return replace(self.options, target=text_of(self.machine(settings)), tiles=None, dims=dims, pipeline=changed, **choices)

    def options_pipeline(self) -> Pipeline:
        """Reads the pipeline to begin with. Raises PopulusError."""
        given = self.options.pipeline
        return given if isinstance(given, Pipeline) else Pipeline.read(given)


def spread_over(pipeline: Pipeline, tensor: int, stages: int, chip: int) -> Pipeline:
    """Gives the pipeline of one chip of several: the passes that cut a model come before those that join its ops."""
    passes = [PopartTensorParallelPass(tensor, chip % tensor)] if tensor > 1 else []
    passes += [PopartStagePass(stages, chip // tensor, tensor)] if stages > 1 else []
    if not passes:
        return pipeline
    return pipeline.insert_before("popart-fuse" if any(p.name == "popart-fuse" for p in pipeline.passes) else "popart-to-popops", *passes)


def _with(spec: Spec, field: str, value: int) -> Spec:
    return Spec(spec.name, tuple({**dict(spec.overrides), field: value}.items()))


def text_of(spec: Spec) -> str:
    """Formats a machine as `--target` takes it."""
    return ", ".join([spec.name, *(f"{name}={value}" for name, value in spec.overrides)])
