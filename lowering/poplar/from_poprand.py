"""Lowering of `poprand`: random numbers become one family; each element is a function of the seed and its own index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Attribute, SSAValue

from populus.dialects.base.tensor_op import ints
from populus.dialects.poplar.partition import ALL, Domain, along
from populus.dialects.poprand import RandomOp
from populus.lowering.poplar.graph import ToPoplarPass
from populus.lowering.poplar.tile_builder import TileBuilder


def random(op: RandomOp, t: TileBuilder) -> Sequence[SSAValue]:
    """Lowers to one family, of which each vertex reads the whole seed."""
    shape = ints(op.shape)
    grid = t.linear(shape, op.element)
    names = [f"d{i}" for i in range(len(shape))]
    y = t.var(shape, op.element, grid)
    params: dict[str, Attribute] = {
        "distribution": op.distribution,
        "a": op.properties["a"],
        "b": op.properties["b"],
        "stream": op.properties["stream"],
    }
    domain = Domain(tuple(zip(names, grid.splits)), tuple(names[d] for d in grid.order))
    t.execute("random", domain, [("in", "seed", t.view(op.seed), [ALL]), ("out", "y", y, list(map(along, names)))], params)
    return [y]


@dataclass(frozen=True)
class PoprandToPoplarPass(ToPoplarPass):
    """Lowers random numbers to families. To rounding."""

    name = "poprand-to-poplar"
    RULES = {RandomOp: random}
