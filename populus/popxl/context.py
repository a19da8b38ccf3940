"""The current graph, and the contexts that PopXL's programs are written in.

Ops happen in the order in which they are called, whether inside `in_sequence` or not. There is one chip with one set of tiles, and a
name of a scope becomes part of the names of tensors made inside.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, cast

from populus.popxl.errors import WrongState, WrongType, WrongValue
from populus.write.builder import Builder, innermost

if TYPE_CHECKING:
    from populus.popxl.graph import Graph
    from populus.popxl.ir import Ir

_SCOPES: ContextVar[tuple[str, ...]] = ContextVar("names of scopes", default=())
_IPU: ContextVar[int | None] = ContextVar("number of the chip", default=0)
_SEQUENCE: ContextVar[object | None] = ContextVar("ops in sequence", default=None)
_IO_TILES: ContextVar[bool] = ContextVar("inside io_tiles", default=False)


class PopxlBuilder(Builder):
    """A builder that is a `Graph`."""


def get_current_graph() -> Graph:
    """Gives the graph of the innermost `with`. Raises PopulusError outside of any, and in that of another front end."""
    found = innermost()
    if not isinstance(found, PopxlBuilder):
        raise WrongState("no graph is being built, or one of another front end; call this inside `with ir.main_graph:`")
    return cast("Graph", found)


def get_main_graph() -> Graph:
    """Gives the main graph of the current Ir. Raises PopulusError outside of any."""
    return get_ir().main_graph


def get_ir() -> Ir:
    """Gives the Ir of the current graph. Raises PopulusError outside of any."""
    return get_current_graph().ir


gcg, gmg, gir = get_current_graph, get_main_graph, get_ir


@contextmanager
def in_sequence(mode: bool | Literal["pass"] = True) -> Generator[None]:
    """States an order, in which ops happen anyhow: that of their calls. Raises TypeError for None."""
    if mode not in (True, False, "pass"):
        raise WrongType(f"`{mode}` cannot be passed to in_sequence; it takes True, False or 'pass'")
    outer = _SEQUENCE.get()
    token = _SEQUENCE.set((outer or object()) if mode is True else None)
    try:
        yield
    finally:
        _SEQUENCE.reset(token)


@contextmanager
def name_scope(name: str) -> Generator[None]:
    """Names of tensors that are made inside begin with `name/`."""
    token = _SCOPES.set((*_SCOPES.get(), name))
    try:
        yield
    finally:
        _SCOPES.reset(token)


def scoped(name: str) -> str:
    """Gives a name with those of the scopes around it."""
    return "/".join((*_SCOPES.get(), name))


@contextmanager
def ipu(ipu: int | None) -> Generator[None]:
    """Names the chip of the tensors that are made inside, None for no chip. All are computed on one. Raises ValueError below 0."""
    if ipu is not None and ipu < 0:
        raise WrongValue(f"a chip's number is at least 0, not {ipu}")
    token = _IPU.set(ipu)
    try:
        yield
    finally:
        _IPU.reset(token)


@contextmanager
def io_tiles() -> Generator[None]:
    """Marks tensors that are made inside as of tiles for input and output. All tiles do both."""
    token = _IO_TILES.set(True)
    try:
        yield
    finally:
        _IO_TILES.reset(token)


def sequence() -> object | None:
    """Gives the `in_sequence` around, None outside of any."""
    return _SEQUENCE.get()


def placement() -> tuple[int | None, Literal["compute", "io"]]:
    """Gives the chip's number and the kind of tiles that the contexts around name."""
    return _IPU.get(), "io" if _IO_TILES.get() else "compute"


@contextmanager
def _execution_context(execution_context: Any) -> Generator[Any]:
    """Accepts a part of the program for what is made inside; all of it happens in the order of calls."""
    yield execution_context


class Context:
    """The surroundings of a line of a program: the graph that is being built, the chip, the tiles, and the names of scopes."""

    @property
    def graph(self) -> Graph:
        """The graph of the innermost `with`. Raises PopulusError outside of any."""
        return get_current_graph()

    @property
    def main_graph(self) -> Graph:
        """The main graph of its Ir."""
        return get_main_graph()

    @property
    def ipu_id(self) -> int | None:
        """The number of the chip."""
        return _IPU.get()

    @property
    def io_tile_set(self) -> bool:
        """Tells whether tensors are made on tiles for input and output."""
        return _IO_TILES.get()

    @property
    def name_scopes(self) -> tuple[str, ...]:
        """The names of the scopes around, the outermost first."""
        return _SCOPES.get()

    def _get_op_settings(self, name: str) -> str:
        """Gives the settings of an op that is about to be made: its name."""
        return scoped(name)

    def _op_created(self, op: Any) -> None:
        """Accepts an op that a program made; graphs list and order ops as they are called."""

    def _add_in_sequence_topocons(self, op: Any) -> None:
        """Accepts an op whose order is to be kept, as it is."""


_CONTEXT = Context()


def get_current_context() -> Context:
    """Gives the surroundings of a line of a program."""
    return _CONTEXT


def op_debug_context(name: Any) -> Any:
    """Gives a function as it is: ops have the program's lines by themselves. Used as `@op_debug_context`, or with a name."""
    return name if callable(name) else _itself


def _itself(function: Any) -> Any:
    return function


@contextmanager
def debug_context_frame_offset(i: int) -> Generator[int]:
    """Accepts how many calls lie between an op and the line that stands for it; lines are found by themselves."""
    yield i
