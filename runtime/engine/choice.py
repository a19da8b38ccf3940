"""The table of engines, and the default one: native code, from the first run on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from populus.dialects.poplar.program import GraphOp
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.registries import registry
from populus.runtime.engine.native import NoMachineCodeError
from populus.runtime.tasks import with_tasks

if TYPE_CHECKING:
    from populus.runtime.engine.program import LoadedProgram


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
    if options.sample:
        return _numpy(graph, options)
    try:
        return _native(graph, options)
    except NoMachineCodeError:
        return _numpy(graph, options)


# One row for each engine, in the order in which the command line names them; `auto` chooses among the others.
ENGINES: dict[str, Callable[[GraphOp, Options], LoadedProgram]] = {"auto": _auto, "numpy": _numpy, "strict": _strict, "native": _native}
OWN = frozenset(ENGINES)
registry(ENGINES)


def widens_halves() -> bool:
    """Tells whether this CPU's code multiplies halves as f32, having no tile registers for them."""
    try:
        return not import_module("populus.runtime.engine.native.codegen.cpu").machine().half_tiles
    except (ImportError, PopulusError):
        return False


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
