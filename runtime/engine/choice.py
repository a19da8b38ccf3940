"""The table of engines, and the default one: native code, except for small programs, for which compiling takes too long."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from xdsl.ir import Block, Operation

from populus.dialects.poplar.compute import ExecuteOp, FamilyOp
from populus.dialects.poplar.program import CallOp, FuncOp, GraphOp, RepeatOp, WhileOp
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.registries import registry
from populus.runtime.cycles.tile_code import instructions
from populus.runtime.engine.native import NoMachineCodeError
from populus.runtime.tasks import with_tasks
from populus.runtime.views import params_of

if TYPE_CHECKING:
    from populus.runtime.engine.program import LoadedProgram


SMALL = 1_000_000  # iteration points: about 1 ms on the numpy engine, while one kernel takes about 20 ms to compile
INTERPRETED = 200  # points for each interpreted instruction: it takes as long as some hundred points, and code takes longer to compile
CALL = 5_000  # ns of a call of NumPy, and a point takes about one
COMPILING = 1_000_000_000  # ns in which a small program is compiled, most of them imports
LEAST = 100  # runs, for results of a few runs to stay what they are


def points(graph: GraphOp) -> int:
    """Counts the iteration points of all families in one run of the program; loops count each iteration."""
    return _block(graph.body.block, _points_of)


def is_small(graph: GraphOp) -> bool:
    """Tells if one run has fewer than SMALL iteration points, so that compiling would take longer than many runs."""
    return points(graph) < SMALL


def runs_on_numpy(graph: GraphOp) -> int:
    """Returns the number of runs that take the numpy engine about as long as the compiler takes: an estimate from the program alone."""
    return max(LEAST, COMPILING // max(_block(graph.body.block, lambda family: CALL + _points_of(family)), 1))


def _block(block: Block, of: Callable[[FamilyOp], int]) -> int:
    return sum(_sum(op, of) for op in block.ops if not isinstance(op, FuncOp))


def _sum(op: Operation, of: Callable[[FamilyOp], int]) -> int:
    """Adds a number for each family that one run of an op executes."""
    match op:
        case ExecuteOp():
            return sum(of(family) for family in op.families())
        case CallOp():
            return _block(op.target().body.block, of)
        case _:
            turns = op.count.value.data if isinstance(op, RepeatOp) else op.counted if isinstance(op, WhileOp) else 1
            return turns * sum(_block(block, of) for region in op.regions for block in region.blocks)


def _points_of(family: FamilyOp) -> int:
    """Counts the points of one family. A codelet in Python is interpreted by the numpy engine, but for its lanes."""
    found = math.prod(split.n for split in family.space.splits.values())
    code = family.declaration.code
    if code is None:
        return found
    sizes = {axis: 1 if axis in code.lanes else split.n for axis, split in family.space.axes}
    scalars = {n: v for n, v in params_of(family.params).items() if isinstance(v, int)}
    return found + INTERPRETED * instructions(code, sizes, scalars)


# -- the table


@dataclass(frozen=True)
class Options:
    """Settings of an engine; `Session` describes each."""

    sample: int | None = None
    seed: int = 0
    threads: int | None = None
    views: bool = False
    states: Mapping[str, str] = field(default_factory=dict[str, str])


def _numpy(graph: GraphOp, options: Options) -> LoadedProgram:
    if options.sample:
        from populus.runtime.engine.sampled import SampledProgram

        return SampledProgram(graph, options.sample, options.seed)
    from populus.runtime.engine.numpy import NumpyProgram

    return NumpyProgram(graph, options.views, options.states)


def _strict(graph: GraphOp, options: Options) -> LoadedProgram:
    if options.sample:
        return _numpy(graph, options)
    from populus.runtime.engine.strict import StrictProgram

    return StrictProgram(graph, options.seed)


def _native(graph: GraphOp, options: Options) -> LoadedProgram:
    if options.sample:
        raise PopulusError("the native engine checks no sample of vertices; engine strict or numpy with a sample does")
    from populus.runtime.engine.native.run.program import NativeProgram

    return NativeProgram(with_tasks(graph), threads=options.threads, views=options.views, states=options.states)


def _auto(graph: GraphOp, options: Options) -> LoadedProgram:
    if options.sample or is_small(graph):
        return _numpy(graph, options)
    try:
        return _native(graph, options)
    except NoMachineCodeError:
        return _numpy(graph, options)


# One row for each engine, in the order in which the command line names them; `auto` chooses among the others.
ENGINES: dict[str, Callable[[GraphOp, Options], LoadedProgram]] = {"auto": _auto, "numpy": _numpy, "strict": _strict, "native": _native}
OWN = frozenset(ENGINES)
registry(ENGINES)


def register(engine: type[LoadedProgram], name: str, place: str) -> None:
    """Makes an engine of a loaded file known by its name. Its program takes the graph alone; sessions hold the states.

    Raises PopulusError for the name of an engine of ours.
    """
    if name in OWN:
        raise PopulusError(f"{place}: class {engine.__name__}: engine '{name}' is one of ours; give yours another name")

    def load(graph: GraphOp, options: Options) -> LoadedProgram:
        if options.sample:
            raise PopulusError(f"the {name} engine checks no sample of vertices; engine strict or numpy with a sample does")
        return engine(graph)

    ENGINES[name] = load
