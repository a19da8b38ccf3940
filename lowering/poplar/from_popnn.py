"""Lowering of `popnn`: pooling, softmax and whitening become families over whole windows and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import DenseArrayBase, i64
from xdsl.ir import Attribute, SSAValue

from populus.dialects.base.tensor_op import ints
from populus.dialects.poplar.partition import Domain, Grid, Split, along, linear
from populus.dialects.poplar.target import sum_type
from populus.dialects.poplar.types import TensorType
from populus.dialects.popnn import PoolOp, SoftmaxOp, WhitenOp
from populus.dialects.popops import MapOp, ReduceOp, ReshapeOp
from populus.dialects.support.element_types import element_type_of, shape_of
from populus.lowering.poplar.graph import ToPoplarPass
from populus.lowering.poplar.plan.channels import variable, will_have_channels_last
from populus.lowering.poplar.plan.rows import Map, softmax_maps, stay_whole, whiten_maps
from populus.lowering.poplar.plan.window import Windows, thinned
from populus.lowering.poplar.tile_builder import TileBuilder


def pool(op: PoolOp, t: TileBuilder) -> Sequence[SSAValue]:
    """Lowers to one family over (n, c, o.., k..); channels are cut first, then windows."""
    x = t.view(op.x)
    assert isinstance(x.type, TensorType)
    shape, kernel = op.y.type.get_shape(), ints(op.kernel)
    spatial, pads = range(len(kernel)), ints(op.pads)
    w = Windows(x.type.shape[2:], ints(op.strides), ints(op.dilations), pads[: len(kernel)], pads[len(kernel) :])
    last = op.kind.data == "max" and will_have_channels_last(op.x)
    x, w = thinned(t, x, w, shape[2:], kernel)
    assert isinstance(x.type, TensorType)
    grid = t.linear(shape, x.type.element)
    names = ["n", "c", *(f"o{d}" for d in spatial)]
    axes = {**dict(zip(names, grid.splits)), **{f"k{d}": Split(kernel[d]) for d in spatial}}
    window = [along((f"o{d}", w.strides[d]), (f"k{d}", w.dilations[d]), offset=-w.before[d]) for d in spatial]
    y = variable(t, shape, x.type.element, grid, last)
    params: dict[str, Attribute] = {
        "kind": op.kind,
        "after": DenseArrayBase.from_list(i64, list(w.after)),
        "count_padding": op.properties["count_padding"],
    }
    t.execute(
        "pool",
        Domain(tuple(axes.items()), tuple(names[d] for d in grid.order)),
        [("in", "x", x, [along("n"), along("c"), *window]), ("out", "y", y, list(map(along, names)))],
        params,
    )
    return [y]


def softmax(op: SoftmaxOp, t: TileBuilder) -> Sequence[SSAValue]:
    """Lowers to a family over whole rows. A row that is cut takes maximum, exponentials, sum and quotient, halves as floats."""
    if _stay_whole(t, "softmax", op.x):
        return [_rows(t, "softmax", op.x, {"log": op.properties["log"]})]
    x, own = op.x, element_type_of(op.x.type)
    highest = _over_rows(t, x, "max")
    exponentials, y = softmax_maps(own, op.log)
    sums = _over_rows(t, _map(t, exponentials, x, highest), "add")
    # Recomputes the exponentials instead of storing them: exp(x - max) / sum reads x where it is.
    return [_map(t, y, x, highest, sums)]


def whiten(op: WhitenOp, t: TileBuilder) -> Sequence[SSAValue]:
    """Lowers to a family over whole rows. A row that is cut takes mean, squared distances and quotient, halves as floats."""
    if _stay_whole(t, "whiten", op.x):
        return [_rows(t, "whiten", op.x, {"epsilon": op.properties["epsilon"]})]
    elements, own = float(shape_of(op.x.type)[-1]), element_type_of(op.x.type)
    mean, distance, y = whiten_maps(own, elements, op.epsilon)
    apart = _map(t, distance, op.x, _map(t, mean, _over_rows(t, op.x, "add", sum_type(own))))
    return [_map(t, y, apart, _over_rows(t, apart, "square_add"))]


def _stay_whole(t: TileBuilder, codelet: str, x: SSAValue) -> bool:
    """Tells whether each row stays on one tile."""
    return stay_whole(codelet, shape_of(x.type), element_type_of(x.type), t.layout_of(t.view(x)), t.target)


def _rows(t: TileBuilder, codelet: str, tensor: SSAValue, params: dict[str, Attribute]) -> SSAValue:
    x = t.view(tensor)
    assert isinstance(x.type, TensorType)
    *outer, row = x.type.shape
    names = [f"d{i}" for i in range(len(outer))]
    followed = t.layout_of(x)
    grid = linear(tuple(outer), t.target.tiles)
    if followed is not None and followed.splits[-1].parts == 1 and followed.cells >= grid.cells // 2:
        grid = Grid(followed.splits[:-1], followed.order, followed.start)  # each row is whole on a tile already
    layout = Grid((*grid.splits, Split(row)), grid.order, grid.start)
    y = t.var(x.type.shape, x.type.element, layout)
    domain = Domain((*zip(names, grid.splits), ("r", Split(row))), tuple(names[d] for d in grid.order), grid.start)
    access = [*map(along, names), along("r")]
    t.execute(codelet, domain, [("in", "x", x, access), ("out", "y", y, access)], params)
    return y


def _map(t: TileBuilder, made: Map, *operands: SSAValue) -> SSAValue:
    op = MapOp(*operands, expr=made.formula)
    t.insert(op)
    return op.y


def _over_rows(t: TileBuilder, x: SSAValue, op: str, to: Attribute | None = None) -> SSAValue:
    """Reduces the last dimension, which stays as 1, to the element type `to` if that is not x's."""
    shape = shape_of(x.type)
    wider = {} if to in (None, element_type_of(x.type)) else {"to": to}
    reduced = ReduceOp(x, op=op, dims=[len(shape) - 1], **wider)
    t.insert(reduced)
    reshaped = ReshapeOp(reduced.y, shape=(*shape[:-1], 1))
    t.insert(reshaped)
    return reshaped.y


@dataclass(frozen=True)
class PopnnToPoplarPass(ToPoplarPass):
    """Lowers pooling, softmax and whitening to families.

    Rows that are very long, or few and cheaper to cut over tiles, become maps and reductions of `popops`. To rounding.
    """

    name = "popnn-to-poplar"
    RULES = {PoolOp: pool, SoftmaxOp: softmax, WhitenOp: whiten}
