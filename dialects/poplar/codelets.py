"""The codelets' requirements on a family: its fields, the axes that it sums over, the axes that may not be cut.

The kernels are in `runtime/codelets`, their cycles in `runtime/cycles`; this table is what the verifier knows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from populus.dialects.poplar.tile_program import TileCode
from populus.dialects.support.diagnostics import PopulusError


@dataclass(frozen=True)
class Codelet:
    """A codelet's declaration.

    `inputs`: names of `in` fields, a trailing `*` standing for any number (`x*`: x1, x2, ...). `contracted`: axes that it
    sums over, as a pattern; where such an axis is cut, the output has one partial result per part. `whole`: axes that a
    vertex needs entire. `padded`: input windows may overhang, and the kernel is told by how much. `inout`: an input may be
    the output too. `code`: what a vertex does, for codelets that were written in Python; others have a kernel of their own.
    """

    name: str
    inputs: tuple[str, ...]
    output: str
    contracted: str = ""
    whole: str = ""
    padded: bool = False
    inout: bool = False
    code: TileCode | None = None

    def is_contracted(self, axis: str) -> bool:
        """Tells whether the codelet sums over an axis."""
        return re.fullmatch(self.contracted, axis) is not None

    def needs_whole(self, axis: str) -> bool:
        """Tells whether an axis may not be cut."""
        return re.fullmatch(self.whole, axis) is not None


CODELETS: dict[str, Codelet] = {
    codelet.name: codelet
    for codelet in (
        Codelet("conv", ("x", "w"), "y", contracted=r"ic|k\d", padded=True),
        Codelet("dynamic_update", ("table", "index", "row"), "table", inout=True),
        Codelet("fill", (), "y"),
        Codelet("iota", (), "y"),
        Codelet("map", ("x*",), "y", inout=True),
        Codelet("matmul", ("a", "b"), "c", contracted="k"),
        Codelet("multi_slice", ("table", "indices"), "y"),
        Codelet("multi_update", ("table", "indices", "updates"), "y"),
        Codelet("pool", ("x",), "y", contracted=r"k\d", whole=r"k\d", padded=True),
        Codelet("random", ("seed",), "y"),
        Codelet("reduce", ("x",), "y", contracted=r"r\d*"),
        Codelet("softmax", ("x",), "y", contracted="r", whole="r"),
        Codelet("top_k", ("x",), "y", whole="k"),
        Codelet("whiten", ("x",), "y", contracted="r", whole="r"),
    )
}


def register(code: TileCode) -> Codelet:
    """Makes the codelet known; again, after its source has changed, in place of what it was.

    Raises PopulusError for a name that another has: one of the machine's, or of another file.
    """
    known = CODELETS.get(code.name)
    if known is not None and (known.code is None or _file(known.code) != _file(code)):
        other = "is one of the machine's" if known.code is None else f"is defined at {known.code.place} too"
        raise PopulusError(f"{code.place}: codelet {code.name} {other}; give it another name")
    if known is None or known.code is not code:
        CODELETS[code.name] = Codelet(code.name, code.inputs, code.output, whole="|".join(code.whole), code=code)
    return CODELETS[code.name]


def _file(code: TileCode) -> str:
    return code.place.rpartition(":")[0]
