"""Axes of a codelet that may be split over vertices: those whose elements are independent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from populus.dialects.poplar.tile_program import (
    Assign,
    For,
    If,
    Load,
    Name,
    Number,
    Size,
    Statement,
    Store,
    Value,
    assigned,
    own_values,
    statements,
)


class Lanes:
    """Finds the axes of the output whose elements are independent.

    An axis is independent if its loops cover all of it and its index is everywhere such a loop's variable. Neither that variable nor
    the axis's size has another use, and no local variable is live from one iteration of such a loop to the next or after it.
    """

    def __init__(self, axes: Mapping[str, tuple[str, ...]], output: str, body: Sequence[Statement]):
        self.axes, self.output, self.body = axes, output, body

    def found(self) -> tuple[tuple[str, ...], dict[str, str]]:
        """Finds the axes, and the variables of their loops."""
        loops = [s for s in statements(self.body) if isinstance(s, For)]
        over = {s: self._over(s) for s in loops}
        lanes = [a for a in self.axes[self.output] if self._apart(a, [s for s in loops if over[s] == a])]
        return tuple(lanes), {s.var: over[s] for s in loops if over[s] in lanes}

    def covered(self) -> bool:
        """Tells whether an unconditional store covers all of the output."""

        def covers(body: Sequence[Statement], loops: Mapping[str, str]) -> bool:
            for s in body:
                if isinstance(s, For) and covers(s.body, {**loops, s.var: self._over(s)}):
                    return True
                if isinstance(s, Store):
                    names = [i.name if isinstance(i, Name) else "" for i in s.index]
                    if len(set(names)) == len(names) and [loops.get(n) for n in names] == list(self.axes[s.vector]):
                        return True
            return False

        return covers(self.body, {})

    def _over(self, s: For) -> str:
        """Returns the axis that a loop covers; empty if there is none."""
        if s.start == Number(0, "int") and s.step == 1 and isinstance(s.stop, Size):
            return self.axes[s.stop.vector][s.stop.dim]
        return ""

    def _apart(self, axis: str, loops: Sequence[For]) -> bool:
        variables = {s.var for s in loops}
        stops = [s.stop for s in loops]
        sizes = variable_uses = indexed = 0
        for s in statements(self.body):
            if isinstance(s, Store):
                if not self._indexed(axis, s.vector, s.index, variables):
                    return False
                indexed += sum(a == axis for a in self.axes[s.vector])
            for value in own_values(s):
                match value:
                    case Size(vector, dim):
                        sizes += self.axes[vector][dim] == axis
                    case Name(name):
                        variable_uses += name in variables
                    case Load(vector, index):
                        if not self._indexed(axis, vector, index, variables):
                            return False
                        indexed += sum(a == axis for a in self.axes[vector])
                    case _:
                        pass
        if not loops or sizes != len(stops) or variable_uses != indexed:
            return False
        every = [s for s in statements(self.body) if isinstance(s, For)]
        if any(s.var in variables and all(s is not t for t in loops) for s in every):
            return False  # one name for two things
        if any(s is not t and any(s is u for u in statements(t.body)) for s in loops for t in loops):
            return False  # a loop over the axis within another
        return all(self._closed(s) for s in loops)

    def _indexed(self, axis: str, vector: str, index: Sequence[Value], variables: set[str]) -> bool:
        return all(isinstance(i, Name) and i.name in variables for a, i in zip(self.axes[vector], index) if a == axis)

    def _closed(self, loop: For) -> bool:
        """Tells whether no local variable is live across iterations of the loop, into it or out of it."""
        # What a turn reads it has assigned, or it comes from around the loop: the reader of the source has seen to that.
        return not assigned(loop.body) & _around(self.body, loop)


def _around(body: Sequence[Statement], loop: For) -> set[str]:
    """Collects the variables assigned in the blocks around a loop."""
    found: set[str] = set()
    for s in body:
        match s:
            case Assign(name):
                found.add(name)
            case If():
                found |= _around((*s.then, *s.otherwise), loop)
            case For() if s is not loop and any(s_ is loop for s_ in statements(s.body)):
                found |= _around(s.body, loop)
            case _:
                pass
    return found
