"""Mistakes of codelets written in Python while they run, in the words of all engines."""

from __future__ import annotations

from collections.abc import Mapping

from populus.dialects.poplar.tile_program import Site, TileCode
from populus.dialects.support.diagnostics import PopulusError

MESSAGES = {
    "index": "index {value} of {vector} is outside of the {size} elements of dimension {dim}",
    "int": "a float that is NaN, infinite or beyond 64 bits has no integer",
    "left": "it leaves {value} elements of {vector} unwritten",
    "shift": "a shift by {value}, which is negative",
    "turns": "a loop has more than {steps} turns, which counts as endless; `@codelet(steps=..)` allows more",
    "unwritten": "an element of {vector} is read before it is written",
    "zero": "an integer is divided by 0",
}


class CodeletError(PopulusError):
    """A mistake of a codelet while it runs. `at`: the index along each lane, as far as it is known."""

    def __init__(self, code: TileCode, site: Site, value: int, size: int, at: Mapping[str, int]):
        text = MESSAGES[site.why].format(value=value, vector=site.vector, size=size, dim=site.dim, steps=code.steps)
        if site.why == "left" and value == 1:
            text = text.replace("elements", "element")
        super().__init__(f"{code.file}:{site.line}: codelet {code.name}: {text}")
        self.at = dict(at)
