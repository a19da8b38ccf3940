"""Axes of a codelet that may be split over vertices: those whose elements are independent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from populus.dialects.poplar.tile_program import (
    Assign,
    For,
    Load,
    Name,
    Number,
    Scratch,
    Size,
    Statement,
    Store,
    Value,
    assigned,
    blocks,
    leaves,
    own_values,
    statements,
)


class Lanes:
    """Finds the axes of the outputs whose elements are independent.

    All outputs have the axis, its loops cover all of it and are left at their end only, and its index is everywhere such a loop's
    variable. Neither that variable nor the axis's size has another use, and no local variable and no scratch vector is live from one
    iteration of such a loop to the next or after it.
    """

    def __init__(self, axes: Mapping[str, tuple[str, ...]], outputs: Sequence[str], body: Sequence[Statement]):
        self.axes, self.outputs, self.body = axes, outputs, body
        self.all = list(statements(body))
        self.scratch = {s.vector for s in self.all if isinstance(s, Scratch)}

    def found(self) -> tuple[tuple[str, ...], dict[str, str]]:
        """Finds the axes, and the variables of their loops."""
        loops = [s for s in self.all if isinstance(s, For)]
        over = {id(s): self._over(s) for s in loops}
        first, *others = (self.axes[v] for v in self.outputs)
        shared = [a for a in first if all(a in axes for axes in others)]
        lanes = [a for a in shared if self._apart(a, [s for s in loops if over[id(s)] == a])]
        return tuple(lanes), {s.var: over[id(s)] for s in loops if over[id(s)] in lanes}

    def _over(self, s: For) -> str:
        """Returns the axis that a loop covers; empty if there is none."""
        if s.start == Number(0, "int") and s.step == 1 and isinstance(s.stop, Size) and s.stop.vector in self.axes:
            return self.axes[s.stop.vector][s.stop.dim]
        return ""

    def _apart(self, axis: str, loops: Sequence[For]) -> bool:
        variables = {s.var for s in loops}
        stops = [s.stop for s in loops]
        sizes = variable_uses = indexed = 0
        for s in self.all:
            if isinstance(s, Store):
                if not self._indexed(axis, s.vector, s.index, variables):
                    return False
                indexed += sum(a == axis for a in self.axes.get(s.vector, ()))
            for value in own_values(s):
                match value:
                    case Size(vector, dim):
                        sizes += self.axes.get(vector, {dim: ""})[dim] == axis
                    case Name(name):
                        variable_uses += name in variables
                    case Load(vector, index):
                        if not self._indexed(axis, vector, index, variables):
                            return False
                        indexed += sum(a == axis for a in self.axes.get(vector, ()))
                    case _:
                        pass
        if not loops or sizes != len(stops) or variable_uses != indexed:
            return False
        every = [s for s in self.all if isinstance(s, For)]
        if variables & assigned(self.body) or any(s.var in variables and all(s is not t for t in loops) for s in every):
            return False  # one name for two things
        if any(s is not t and any(s is u for u in statements(t.body)) for s in loops for t in loops):
            return False  # a loop over the axis within another
        return all(self._closed(s) and not leaves(s.body, ("break", "return")) for s in loops)

    def _indexed(self, axis: str, vector: str, index: Sequence[Value], variables: set[str]) -> bool:
        return all(isinstance(i, Name) and i.name in variables for a, i in zip(self.axes.get(vector, ()), index) if a == axis)

    def _closed(self, loop: For) -> bool:
        """Tells whether nothing is live across iterations of the loop, into it or out of it, but what the loop only reads."""
        # What a turn reads it has assigned, or it comes from around the loop: the reader of the source has seen to that.
        own = assigned(loop.body)
        if own & _around(self.body, loop):
            return False
        return all(s.vector in own for s in statements(loop.body) if isinstance(s, Store) and s.vector in self.scratch)


def _around(body: Sequence[Statement], loop: For) -> set[str]:
    """Collects the variables assigned in the blocks around a loop."""
    found: set[str] = set()
    for s in body:
        if isinstance(s, Assign | Scratch):
            found.add(s.name if isinstance(s, Assign) else s.vector)
        if s is loop:
            continue
        for block in blocks(s):
            if isinstance(s, For) and not any(s_ is loop for s_ in statements(block)):
                continue
            found |= _around(block, loop)
    return found
