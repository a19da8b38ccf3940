"""Intervals of a codelet's integers, for given sizes: what they prove needs no check in machine code.

ranges = Ranges(code, {"x": (4, 5)}, {"x": WHOLE})
ranges.of(index)                     # (lowest, highest): every value that it has lies between
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from populus.dialects.poplar.tile_program import (
    Apply,
    Assign,
    Call,
    Exit,
    For,
    If,
    Load,
    Name,
    Number,
    Size,
    Statement,
    TileCode,
    Value,
    While,
    assigned,
    leaves,
    roots,
    statements,
)
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.shapes import text

Range: TypeAlias = "tuple[int, int]"
WHOLE: Range = (-(1 << 63), (1 << 63) - 1)
_OPPOSITE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
_TURNED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}

State: TypeAlias = "dict[str, Range]"


class Ranges:
    """Finds an interval for each integer value, by a walk over the statements.

    A variable that a loop assigns is unknown in it, but for the bound from which it only moves away. `shapes`: the vectors', scratch
    ones too; `elements`: the range of each vector's element type.
    """

    def __init__(self, code: TileCode, shapes: Mapping[str, Sequence[int]], elements: Mapping[str, Range]):
        self.shapes, self.elements = shapes, elements
        self.code = code  # keeps alive what the keys of `found` stand for
        self.found: dict[int, Range] = {}
        self.block(code.body, {})

    def of(self, value: Value) -> Range:
        """Gives an interval that has every value of an expression of the codelet."""
        return self.found.get(id(value), WHOLE)

    # -- statements

    def block(self, body: Sequence[Statement], state: State) -> bool:
        """Walks over statements and changes `state`. Returns False if their end is not reached."""
        return all(self.statement(s, state) for s in body)

    def statement(self, s: Statement, state: State) -> bool:
        """Walks over one statement."""
        match s:
            case Assign(name, value):
                state[name] = self.value(value, state)
            case If():
                return self.branch(s, state)
            case For():
                self.loop(s, state)
            case While():
                self.forget(s.body, state)
                self.value(s.condition, state)
                inner = dict(state)
                self.narrow(s.condition, True, inner)
                self.block(s.body, inner)
                if not leaves(s.body):
                    self.narrow(s.condition, False, state)
            case Exit():
                return False
            case _:
                for v in roots(s):
                    self.value(v, state)
        return True

    def branch(self, s: If, state: State) -> bool:
        """Walks over both sides of a branch."""
        self.value(s.condition, state)
        ends: list[State] = []
        for side, body in ((True, s.then), (False, s.otherwise)):
            inner = dict(state)
            self.narrow(s.condition, side, inner)
            if not _empty(inner) and self.block(body, inner):
                ends.append(inner)
        if not ends:
            return False
        state.clear()
        state.update({n: _hull(*(e[n] for e in ends)) for n in ends[0] if all(n in e for e in ends)})
        return True

    def loop(self, s: For, state: State) -> None:
        """Walks over a loop."""
        (low, _), (_, high) = self.value(s.start, state), self.value(s.stop, state)
        if s.step < 0:
            (low, _), (_, high) = self.value(s.stop, state), self.value(s.start, state)
        self.forget(s.body, state)
        inner = dict(state)
        inner[s.var] = (low, high - 1) if s.step > 0 else (low + 1, high)
        self.block(s.body, inner)

    def forget(self, body: Sequence[Statement], state: State) -> None:
        """Forgets what a loop assigns, but for the bound from which a variable only moves away."""
        moves: dict[str, set[int]] = {}
        for a in statements(body):
            if isinstance(a, Assign):
                moves.setdefault(a.name, set()).add(_direction(a))
        for name in assigned(body):
            low, high = state.get(name, WHOLE)
            found = moves.get(name, {0})
            state[name] = (low if found == {1} else WHOLE[0], high if found == {-1} else WHOLE[1])

    # -- values

    def value(self, value: Value, state: State) -> Range:
        """Computes the interval of a value, and those of its parts."""
        found = self.interval(value, state)
        if found[0] < WHOLE[0] or found[1] > WHOLE[1] or found[0] > found[1]:
            found = WHOLE  # it may wrap; or nothing reaches it
        if value.kind == "int":
            old = self.found.get(id(value))
            self.found[id(value)] = found if old is None else _hull(old, found)
        return found

    def interval(self, value: Value, state: State) -> Range:
        """Computes an interval without regard to wrapping."""
        match value:
            case Number(number, "int"):
                return int(number), int(number)
            case Name(name):
                return state.get(name, WHOLE)
            case Size(vector, dim):
                n = self.shapes[vector][dim]
                return n, n
            case Load(vector, index):
                for i in index:
                    self.value(i, state)
                return self.elements.get(vector, WHOLE)
            case Call():
                inner = dict(state)
                self.block(value.body, inner)
                self.forget(value.body, state)
                ends = [a.value for a in statements(value.body) if isinstance(a, Assign) and a.name == value.result.name]
                return _hull(*(self.of(v) for v in ends)) if ends else WHOLE
            case Apply("select", (a, b, condition)):
                self.value(condition, state)
                found: list[Range] = []
                for side, v in ((True, a), (False, b)):
                    inner = dict(state)
                    self.narrow(condition, side, inner)
                    if not _empty(inner):
                        found.append(self.value(v, inner))
                return _hull(*found) if found else WHOLE
            case Apply("and" | "or" as name, (a, b)):
                self.value(a, state)
                inner = dict(state)
                self.narrow(a, name == "and", inner)
                self.value(b, inner)
                return WHOLE
            case Apply(name, args):
                return _applied(name, [self.value(a, state) for a in args]) if value.kind == "int" else self.walk(args, state)
            case _:
                return WHOLE

    def walk(self, args: Sequence[Value], state: State) -> Range:
        """Walks over the parts of a value that is no integer."""
        for a in args:
            self.value(a, state)
        return WHOLE

    def narrow(self, condition: Value, side: bool, state: State) -> None:
        """Narrows the intervals of variables by a condition that is true, or false."""
        match condition:
            case Apply("not", (a,)):
                self.narrow(a, not side, state)
            case Apply("and" | "or" as name, (a, b)) if side == (name == "and"):
                self.narrow(a, side, state)
                self.narrow(b, side, state)
            case Apply(name, (a, b)) if name in _TURNED and a.kind == "int":
                name = name if side else _OPPOSITE[name]
                low, high = self.of(a), self.of(b)
                self.limit(a, name, high, state)
                self.limit(b, _TURNED[name], low, state)
            case _:
                pass

    def limit(self, value: Value, name: str, other: Range, state: State) -> None:
        """Narrows a variable that compares so with a value of the interval `other`."""
        if not isinstance(value, Name):
            return
        low, high = state.get(value.name, WHOLE)
        match name:
            case "lt":
                high = min(high, other[1] - 1)
            case "le":
                high = min(high, other[1])
            case "gt":
                low = max(low, other[0] + 1)
            case "ge":
                low = max(low, other[0])
            case "eq":
                low, high = max(low, other[0]), min(high, other[1])
            case _:
                pass
        state[value.name] = (low, high)


def _empty(state: State) -> bool:
    """Tells whether a state has no values, so that nothing reaches it. Values that are not walked over are not proved either."""
    return any(low > high for low, high in state.values())


def _hull(*ranges: Range) -> Range:
    return min(r[0] for r in ranges), max(r[1] for r in ranges)


def _direction(a: Assign) -> int:
    """Tells whether an assignment only increases (1) or decreases (-1) its variable; 0 for neither."""
    match a.value:
        case Apply("add", (Name(name), Number(by, "int"))) | Apply("add", (Number(by, "int"), Name(name))) if name == a.name:
            sign = 1
        case Apply("sub", (Name(name), Number(by, "int"))) if name == a.name:
            sign = -1
        case _:
            return 0
    return 0 if abs(by) >= 1 << 30 else sign if by >= 0 else -sign  # larger steps might wrap


def _applied(name: str, args: Sequence[Range]) -> Range:
    """Computes the interval of a function of integers."""
    (a, b), (c, d) = args[0], args[-1]
    match name:
        case "add":
            return a + c, b + d
        case "sub":
            return a - d, b - c
        case "mul":
            return _hull(*((p, p) for p in (a * c, a * d, b * c, b * d)))
        case "neg":
            return -b, -a
        case "abs":
            return (0 if a <= 0 <= b else min(abs(a), abs(b))), max(abs(a), abs(b))
        case "min":
            return min(a, c), min(b, d)
        case "max":
            return max(a, c), max(b, d)
        case "mod" if c > 0:
            return (a, b) if 0 <= a and b < c else (0, d - 1)
        case "floordiv" if c > 0:
            return _hull(*((p // q, p // q) for p in (a, b) for q in (c, d)))
        case "bitand" if a >= 0 or c >= 0:
            return 0, min(b if a >= 0 else WHOLE[1], d if c >= 0 else WHOLE[1])
        case "bitor" | "bitxor" if a >= 0 and c >= 0:
            return 0, (1 << max(b.bit_length(), d.bit_length())) - 1
        case "shr" if c >= 0:
            return _hull(*((p >> q, p >> q) for p in (a, b) for q in (min(c, 64), min(d, 64))))
        case "shl" if a >= 0 and 0 <= c and d < 63:
            return a << c, b << d
        case _:
            return WHOLE


def scratch_shapes(code: TileCode, sizes: Mapping[str, Sequence[int]], scalars: Mapping[str, float]) -> dict[str, tuple[int, ...]]:
    """Computes the shapes of a codelet's scratch vectors from the shapes of the others and the parameters.

    Raises PopulusError for a negative size, or a division by 0 in one.
    """
    shapes: dict[str, Sequence[int]] = dict(sizes)
    found: dict[str, tuple[int, ...]] = {}
    for s in code.scratch():
        try:
            made = tuple(_size(n, shapes, scalars) for n in s.shape)
        except ZeroDivisionError:
            made = (-1,)
        if min(made) < 0:
            raise PopulusError(f"{code.file}:{s.line}: codelet {code.name}: scratch vector {s.vector} cannot have shape {text(made)}")
        shapes[s.vector] = found[s.vector] = made
    return found


def _size(value: Value, shapes: Mapping[str, Sequence[int]], scalars: Mapping[str, float]) -> int:
    match value:
        case Number():
            return int(value.value)
        case Name():
            return int(scalars[value.name])
        case Size(vector, dim):
            return shapes[vector][dim]
        case Apply(name, args):
            a, *rest = (_size(v, shapes, scalars) for v in args)
            return int(SIZES[name](a, *rest))
        case _:
            raise AssertionError(value)


SIZES: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "add": lambda a, b: a + b,
    "floordiv": lambda a, b: a // b,
    "max": max,
    "min": min,
    "mod": lambda a, b: a % b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "sub": lambda a, b: a - b,
}  # of the operators, those that sizes of scratch vectors may have
