"""What each codelet asks of a family: its fields, which axes it sums over, which may not be cut.

The kernels are in `runtime/codelets`, their cycles in `runtime/cycles.py`; this table is what the verifier knows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Codelet:
    """A codelet's declaration.

    `inputs`: names of `in` fields, a trailing `*` standing for any number (`x*`: x1, x2, ...). `contracted`: axes that it
    sums over, as a pattern; where such an axis is cut, the output has one partial result per part. `whole`: axes that a
    vertex needs entire. `padded`: input windows may overhang, and the kernel is told by how much. `inout`: an input may be
    the output too.
    """

    name: str
    inputs: tuple[str, ...]
    output: str
    contracted: str = ""
    whole: str = ""
    padded: bool = False
    inout: bool = False

    def is_contracted(self, axis: str) -> bool:
        return re.fullmatch(self.contracted, axis) is not None

    def needs_whole(self, axis: str) -> bool:
        return re.fullmatch(self.whole, axis) is not None


CODELETS: dict[str, Codelet] = {
    codelet.name: codelet
    for codelet in (
        Codelet("conv", ("x", "w"), "y", contracted=r"ic|k\d", padded=True),
        Codelet("fill", (), "y"),
        Codelet("iota", (), "y"),
        Codelet("map", ("x*",), "y", inout=True),
        Codelet("matmul", ("a", "b"), "c", contracted="k"),
        Codelet("multi_slice", ("table", "indices"), "y"),
        Codelet("pool", ("x",), "y", contracted=r"k\d", whole=r"k\d", padded=True),
        Codelet("random", ("seed",), "y"),
        Codelet("reduce", ("x",), "y", contracted=r"r\d*"),
        Codelet("softmax", ("x",), "y", contracted="r", whole="r"),
        Codelet("whiten", ("x",), "y", contracted="r", whole="r"),
    )
}
