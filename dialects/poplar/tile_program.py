"""Codelets that were written in Python, once they are read: statements and values, and how to walk over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Number:
    """A literal of kind `float`, `int` or `bool`."""

    value: float | int | bool
    kind: str


@dataclass(frozen=True)
class Name:
    """A local variable, a loop's variable, or a parameter."""

    name: str
    kind: str


@dataclass(frozen=True)
class Size:
    """The number of elements in a dimension of a vector."""

    vector: str
    dim: int
    kind: str = "int"


@dataclass(frozen=True)
class Load:
    """An element of a vector."""

    vector: str
    index: tuple[Value, ...]
    kind: str
    line: int


@dataclass(frozen=True)
class Apply:
    """A function of values: arithmetic, `lt` .. `ne`, `and or not`, `select(a, b, condition)`, `int`, `float`, one of FUNCTIONS."""

    function: str
    args: tuple[Value, ...]
    kind: str


Value: TypeAlias = "Number | Name | Size | Load | Apply"


@dataclass(frozen=True)
class Assign:
    """A local variable gets a value."""

    name: str
    value: Value


@dataclass(frozen=True)
class Store:
    """An element of the output gets a value."""

    vector: str
    index: tuple[Value, ...]
    value: Value
    line: int


@dataclass(frozen=True)
class For:
    """The body for var = start, start + step, ... below stop."""

    var: str
    start: Value
    stop: Value
    step: int
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class If:
    """One body or the other."""

    condition: Value
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]


Statement: TypeAlias = "Assign | Store | For | If"


@dataclass(frozen=True)
class TileCode:
    """A codelet that was written in Python.

    `axes`: those of each vector's dimensions; `kinds`: of each vector's elements; `scalars`: the parameters' kinds; `lanes`: the axes whose
    elements are computed apart from each other, so that vertices may share them; `cycles`: what the author states them to be, from the
    sizes of the axes that it names. `place`: file and line. `text`: the source.
    """

    name: str
    doc: str
    axes: Mapping[str, tuple[str, ...]]
    kinds: Mapping[str, str]
    scalars: Mapping[str, str]
    output: str
    body: tuple[Statement, ...]
    lanes: tuple[str, ...]
    loops: Mapping[str, str]  # the variables of loops over all of a lane's elements -> the lane
    covered: bool  # whether every element of the output is seen to be written without running it
    cycles: Callable[..., Any] | None
    place: str
    text: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """The vectors that are read only."""
        return tuple(v for v in self.axes if v != self.output)

    @property
    def all_axes(self) -> tuple[str, ...]:
        """The axes of all vectors, each once."""
        return tuple(dict.fromkeys(a for axes in self.axes.values() for a in axes))

    @property
    def whole(self) -> tuple[str, ...]:
        """The axes that a vertex needs entire."""
        return tuple(a for a in self.all_axes if a not in self.lanes)


def statements(body: Sequence[Statement]) -> Iterator[Statement]:
    """Yields all statements, inner ones after the one that contains them."""
    for s in body:
        yield s
        if isinstance(s, For):
            yield from statements(s.body)
        elif isinstance(s, If):
            yield from statements(s.then)
            yield from statements(s.otherwise)


def own_values(s: Statement) -> Iterator[Value]:
    """Yields the values that a statement itself reads, and their parts, without those of inner statements."""
    match s:
        case Assign(_, value):
            yield from parts(value)
        case Store(_, index, value):
            for v in (*index, value):
                yield from parts(v)
        case For():
            yield from parts(s.start)
            yield from parts(s.stop)
        case If():
            yield from parts(s.condition)


def parts(value: Value) -> Iterator[Value]:
    """Yields a value and the values that it consists of."""
    yield value
    for inner in value.args if isinstance(value, Apply) else value.index if isinstance(value, Load) else ():
        yield from parts(inner)


def assigned(body: Sequence[Statement]) -> set[str]:
    """Collects the local variables that statements assign."""
    return {s.name for s in statements(body) if isinstance(s, Assign)}
