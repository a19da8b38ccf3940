"""Variables with channels last: those of convolutions of 8-bit integers, on some machines of f16, and of what is computed from them.

A tensor [n, c, sides..] is in a variable [n, sides.., c], of which its readers see a permuted view.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import UnrealizedConversionCastOp
from xdsl.ir import Attribute, SSAValue

from populus.dialects.poplar.memory import view_of
from populus.dialects.poplar.partition import Grid
from populus.dialects.poplar.types import TensorType
from populus.dialects.poplar.view import row_major
from populus.dialects.popops import ConcatOp, MapOp
from populus.dialects.support.element_types import shape_of
from populus.lowering.poplar.tile_builder import TileBuilder


def channels_last(rank: int) -> list[int]:
    """Lists the dimensions of a tensor in the order of such a variable."""
    return [0, *range(2, rank), 1]


def has_channels_last(x: SSAValue) -> bool:
    """Tells whether a view is all of a variable, with channels last and not also in its own order."""
    view = view_of(x)
    rank = len(view.shape)
    if rank < 3 or view.is_contiguous or view.offset or view.repeats:
        return False
    turned = view.dim_shuffle(channels_last(rank))
    return all(n == 1 or s == t for n, s, t in zip(turned.shape, turned.strides, row_major(turned.shape)))


def will_have_channels_last(tensor: SSAValue) -> bool:
    """Tells whether a tensor has channels last, or is the result of an unlowered map or concatenation of such operands."""
    owner = tensor.owner
    if isinstance(owner, UnrealizedConversionCastOp):
        return has_channels_last(owner.inputs[0])
    if isinstance(owner, ConcatOp):
        return all(map(will_have_channels_last, owner.operands))
    if not isinstance(owner, MapOp):
        return False
    whole = [o for o in owner.operands if shape_of(o.type) == shape_of(tensor.type)]
    return bool(whole) and all(map(will_have_channels_last, whole))


def follow(operands: Sequence[SSAValue], shape: Sequence[int]) -> bool:
    """Tells whether all operands of a shape have channels last, and there is one."""
    whole = [x for x in operands if isinstance(x.type, TensorType) and x.type.shape == tuple(shape)]
    return bool(whole) and all(map(has_channels_last, whole))


def variable(t: TileBuilder, shape: Sequence[int], element: Attribute, grid: Grid, last: bool) -> SSAValue:
    """Makes a variable, with channels last if `last`, and returns its view in the dimensions of `shape` and `grid`."""
    if not last:
        return t.var(shape, element, grid)
    order = channels_last(len(shape))
    turned = Grid(tuple(grid.splits[d] for d in order), tuple(order.index(d) for d in grid.order), grid.start)
    return t.dim_shuffle(t.var([shape[d] for d in order], element, turned), [order.index(d) for d in range(len(order))])
