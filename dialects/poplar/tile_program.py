"""Codelets that were written in Python, once they are read: statements and values, and how to walk over them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

STEPS = 10_000_000  # turns of one loop, after which it counts as endless
MOST = 9.223372036854775807e18  # 2^63: from there on, a float is no integer of 64 bits


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
    line: int = field(default=0, repr=False)


@dataclass(frozen=True)
class Apply:
    """A function of values: arithmetic, bits, `lt` .. `ne`, `not`, conversions, and the rows of `tile_functions.py`.

    `and`, `or` and `select(a, b, condition)` compute only the operands that decide their value.
    """

    function: str
    args: tuple[Value, ...]
    kind: str
    line: int = field(default=0, repr=False)


@dataclass(frozen=True)
class Call:
    """A call of a helper function: its statements, whose local names are its own, then the variable with its value."""

    function: str
    body: tuple[Statement, ...]
    result: Name
    kind: str


Value: TypeAlias = "Number | Name | Size | Load | Apply | Call"


@dataclass(frozen=True)
class Assign:
    """A local variable gets a value."""

    name: str
    value: Value


@dataclass(frozen=True)
class Store:
    """An element of an output or of a scratch vector gets a value."""

    vector: str
    index: tuple[Value, ...]
    value: Value
    line: int = field(default=0, repr=False)


@dataclass(frozen=True)
class Scratch:
    """A scratch vector of zeros begins to exist."""

    vector: str
    kind: str
    shape: tuple[Value, ...]
    line: int = field(default=0, repr=False)


@dataclass(frozen=True)
class For:
    """The body for var = start, start + step, ... below stop, or above it if the step is negative."""

    var: str
    start: Value
    stop: Value
    step: int
    body: tuple[Statement, ...]
    line: int = field(default=0, repr=False)


@dataclass(frozen=True)
class While:
    """The body as long as the condition holds."""

    condition: Value
    body: tuple[Statement, ...]
    line: int = field(default=0, repr=False)


@dataclass(frozen=True)
class If:
    """One body or the other."""

    condition: Value
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]


@dataclass(frozen=True)
class Exit:
    """`break`, `continue` or `return`: out of a loop, to its next turn, or out of the function."""

    kind: str


@dataclass(frozen=True)
class Site:
    """A place that may fail: why (`index`, `zero`, `shift`, `int`, `turns`, `unwritten`, `left`), its line, a vector and a dimension."""

    why: str
    line: int
    vector: str = ""
    dim: int = 0


Statement: TypeAlias = "Assign | Store | Scratch | For | While | If | Exit"


@dataclass(frozen=True)
class TileCode:
    """A codelet that was written in Python.

    `axes`: those of each vector's dimensions; `kinds`: of each vector's elements; `scalars`: the parameters' kinds; `outputs`: the
    vectors that are written; `lanes`: the axes whose elements are computed apart from each other, so that vertices may share them;
    `cycles`: what the author states them to be, from the sizes of the axes that it names; `steps`: the most turns of one loop.
    `place`: file and line. `text`: a file that defines it, which `read_codelet` reads. `function`: the Python function, unless it was read
    from such a text.
    """

    name: str
    doc: str
    axes: Mapping[str, tuple[str, ...]]
    kinds: Mapping[str, str]
    scalars: Mapping[str, str]
    outputs: tuple[str, ...]
    body: tuple[Statement, ...]
    lanes: tuple[str, ...]
    loops: Mapping[str, str]  # the variables of loops over all of a lane's elements -> the lane
    tracked: Mapping[str, Any]  # outputs that are not seen to be written whole, and before they are read: see `tracked_at`
    cycles: Callable[..., Any] | None
    steps: int
    place: str
    text: str
    function: Callable[..., None] | None = field(compare=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The vectors that are read only."""
        return tuple(v for v in self.axes if v not in self.outputs)

    @property
    def all_axes(self) -> tuple[str, ...]:
        """The axes of all vectors, each once."""
        return tuple(dict.fromkeys(a for axes in self.axes.values() for a in axes))

    @property
    def whole(self) -> tuple[str, ...]:
        """The axes that a vertex needs entire."""
        return tuple(a for a in self.all_axes if a not in self.lanes)

    @property
    def file(self) -> str:
        """The file that defines it."""
        return self.place.rpartition(":")[0]

    @cached_property
    def digest(self) -> str:
        """A hash of what it computes."""
        made_of = (self.axes, self.kinds, self.scalars, self.outputs, self.body, self.lanes, self.steps)
        return hashlib.sha256(repr(made_of).encode()).hexdigest()

    @property
    def symbol(self) -> str:
        """The name in IR: that of the function, and of the digest. Equal names of two files do not meet."""
        return f"{self.name}.{self.digest[:8]}"

    def scratch(self) -> list[Scratch]:
        """Lists the scratch vectors, each once."""
        return [s for s in statements(self.body) if isinstance(s, Scratch)]


def statements(body: Sequence[Statement]) -> Iterator[Statement]:
    """Yields all statements, those of helpers too; inner ones after the one that contains them."""
    for s in body:
        yield s
        for value in own_values(s):
            if isinstance(value, Call):
                yield from statements(value.body)
        for block in blocks(s):
            yield from statements(block)


def blocks(s: Statement) -> tuple[tuple[Statement, ...], ...]:
    """Lists the bodies of a statement."""
    match s:
        case For() | While():
            return (s.body,)
        case If():
            return (s.then, s.otherwise)
        case _:
            return ()


def own_values(s: Statement) -> Iterator[Value]:
    """Yields the values that a statement itself reads, and their parts, without those of inner statements."""
    for value in roots(s):
        yield from parts(value)


def roots(s: Statement) -> tuple[Value, ...]:
    """Lists the values that a statement itself reads."""
    match s:
        case Assign():
            return (s.value,)
        case Store():
            return (*s.index, s.value)
        case Scratch():
            return s.shape
        case For():
            return (s.start, s.stop)
        case While() | If():
            return (s.condition,)
        case Exit():
            return ()


def parts(value: Value) -> Iterator[Value]:
    """Yields a value and the values that it consists of; not those in a helper's statements."""
    yield value
    for inner in value.args if isinstance(value, Apply) else value.index if isinstance(value, Load) else ():
        yield from parts(inner)


def assigned(body: Sequence[Statement]) -> set[str]:
    """Collects the local variables and scratch vectors that statements make."""
    return {s.name if isinstance(s, Assign) else s.vector for s in statements(body) if isinstance(s, Assign | Scratch)}


def leaves(body: Sequence[Statement], kinds: Sequence[str] = ("break",)) -> bool:
    """Tells whether a loop's body may `break` out of that loop, or `return`, as far as `kinds` names them."""
    for s in body:
        if isinstance(s, Exit) and s.kind in kinds:
            return True
        inner = [k for k in kinds if k == "return"] if isinstance(s, For | While) else kinds
        if inner and any(leaves(block, inner) for block in blocks(s)):
            return True
    return False


def from_data(s: For, variables: Container[str]) -> bool:
    """Tells whether data decide the turns of a loop: elements, or the `variables` that statements assign."""
    return any(isinstance(p, Load | Call) or (isinstance(p, Name) and p.name in variables) for p in own_values(s))
