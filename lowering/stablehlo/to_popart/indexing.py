"""Conversions of ops that read or write at computed indices: gather, scatter, dynamic slices.

Dimensions that are indexed, or of which a window takes a part, are merged in front of the others: a window's elements are then
rows of a table, whose numbers are computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.dialects.builtin import i1, i32, i64
from xdsl.ir import Block, Region, SSAValue
from xdsl.rewriter import InsertPoint

from populus.dialects import popart
from populus.dialects.base.control_flow import INDEX
from populus.dialects.data import constant_value
from populus.dialects.stablehlo.attributes import Named
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import tensor, ui64
from populus.lowering.stablehlo.to_popart.conversion import Conversion, Pair, Rules, Value, element, leaves, real, rebuilt, shape
from populus.lowering.stablehlo.to_popart.monoids import monoid, neutral

INDEX_MAPS = (
    ("start_index_map", "operand_batching_dims", "start_indices_batching_dims"),
    ("scatter_dims_to_operand_dims", "input_batching_dims", "scatter_indices_batching_dims"),
)
"""Of a gather and of a scatter: the indexed dimensions, and the batching dimensions of either operand."""


@dataclass(frozen=True)
class Table:
    """A tensor as a table: the dimensions in front, which are merged to rows, and the others, which a row has whole."""

    sizes: tuple[int, ...]
    front: tuple[int, ...]

    @property
    def order(self) -> list[int]:
        """The dimensions in front, then the others."""
        return [*self.front, *(d for d in range(len(self.sizes)) if d not in self.front)]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return math.prod(self.sizes[d] for d in self.front)

    def of(self, c: Conversion, x: SSAValue) -> SSAValue:
        """Makes the table: [rows, ..]."""
        x = c.transpose(x, self.order)
        return c.reshape(x, (self.rows, *shape(x)[len(self.front) :]))

    def back(self, c: Conversion, table: SSAValue) -> SSAValue:
        """Makes a tensor of the table."""
        x = c.reshape(table, [self.sizes[d] for d in self.order])
        return c.transpose(x, [self.order.index(d) for d in range(len(self.sizes))])

    def numbers(self, c: Conversion, starts: dict[int, SSAValue], windows: Sequence[int], batch: Sequence[int]) -> SSAValue:
        """Computes the rows of windows: [batch.., window in each front dimension..], i32, or i64 for large tables.

        `starts`: the index of each window in a front dimension, [batch..]; 0 where there is none.
        """
        own = i32 if self.rows < 1 << 31 else i64
        total: SSAValue = c.expand(c.scalar(0, own), (*batch, *(windows[d] for d in self.front)))
        step = self.rows
        for d, at in self.spread(c, starts, windows, batch).items():
            step //= max(self.sizes[d], 1)
            total = c(popart.AddOp, total, c(popart.MulOp, c.cast(at, own), c.scalar(step, own)))
        return total

    def spread(self, c: Conversion, starts: dict[int, SSAValue], windows: Sequence[int], batch: Sequence[int]) -> dict[int, SSAValue]:
        """Gives the index in each front dimension of each element of a window, which broadcast against each other."""
        import numpy as np

        found: dict[int, SSAValue] = {}
        for place, d in enumerate(self.front):
            line = np.arange(windows[d], dtype=np.int64).reshape([windows[d] if e == place else 1 for e in range(len(self.front))])
            at = c.constant(line)
            found[d] = c(popart.AddOp, c.reshape(starts[d], (*batch, *(1,) * len(self.front))), at) if d in starts else at
        return found

    def inside(self, c: Conversion, starts: dict[int, SSAValue], windows: Sequence[int], batch: Sequence[int]) -> SSAValue | None:
        """Tells which windows are inside, [batch.., window..]; None if constants say that all are.

        A window of which a part is outside is so as a whole: XLA has it so and JAX states it (`GatherScatterMode.FILL_OR_DROP`),
        while StableHLO's specification drops the elements that are outside.
        """
        found: SSAValue | None = None
        for d in self.front:
            if d not in starts:
                continue
            at, last = starts[d], self.sizes[d] - windows[d]
            known = constant_value(at)
            if known is not None and (known >= 0).all() and (known <= last).all():
                continue
            ok = c(popart.AndOp, c(popart.GreaterOrEqualOp, at, c.scalar(0, at)), c(popart.LessOrEqualOp, at, c.scalar(last, at)))
            found = ok if found is None else c(popart.AndOp, found, ok)
        if found is None:
            return None
        return c.expand(c.reshape(found, (*batch, *(1,) * len(self.front))), (*batch, *(windows[d] for d in self.front)))


def wide_index(c: Conversion, x: SSAValue) -> SSAValue:
    """Casts indices to i64; unsigned ones beyond it stay large."""
    if element(x) == ui64:
        x = c(popart.MinOp, x, c.scalar((1 << 62), x))
    return c.cast(x, i64)


def clamped(c: Conversion, at: SSAValue, high: int) -> SSAValue:
    """Limits indices to 0 .. high."""
    return c(popart.MinOp, c(popart.MaxOp, at, c.scalar(0, at)), c.scalar(high, at))


def coordinates(c: Conversion, indices: SSAValue, vector: int) -> tuple[list[SSAValue], list[int]]:
    """Splits an index tensor into one tensor [batch..] for each coordinate; and gives the batch dimensions."""
    s = shape(indices)
    if vector == len(s):
        indices, s = c.reshape(indices, (*s, 1)), (*s, 1)
    batch = [n for d, n in enumerate(s) if d != vector]
    parts = [c.reshape(c.slice(indices, {vector: (k, k + 1, 1)}), batch) for k in range(s[vector])]
    return [wide_index(c, p) for p in parts], batch


def counted(c: Conversion, batch: Sequence[int], d: int) -> SSAValue:
    """Makes the index along a dimension of the batch: [batch..]."""
    import numpy as np

    line = np.arange(batch[d], dtype=np.int64).reshape([batch[d] if e == d else 1 for e in range(len(batch))])
    return c.expand(c.constant(line), batch)


def indexed(c: Conversion, n: Named, indices: SSAValue, scattering: bool) -> tuple[dict[int, SSAValue], list[int]]:
    """Gives the index of windows in each dimension of the operand that has one; and the batch dimensions."""
    dims, own, theirs = (n.ints(name) for name in INDEX_MAPS[scattering])
    vector: int = n.entry("index_vector_dim", 0)
    parts, batch = coordinates(c, indices, vector)
    starts = dict(zip(dims, parts))
    for d, e in zip(own, theirs):
        starts[d] = counted(c, batch, e - (e > vector))
    return starts, batch


def gathered(c: Conversion, x: SSAValue, starts: dict[int, SSAValue], sizes: Sequence[int], batch: Sequence[int]) -> SSAValue:
    """Reads windows of `x`, whose indices are limited so that they are inside: [batch.., sizes..]."""
    starts = {d: clamped(c, at, shape(x)[d] - sizes[d]) for d, at in starts.items() if sizes[d] < shape(x)[d]}
    first = {d: (0, sizes[d], 1) for d in range(len(sizes)) if d not in starts and sizes[d] < shape(x)[d]}
    x = c.slice(x, first)
    table = Table(shape(x), tuple(sorted(starts)))
    to = (*batch, *sizes)
    if 0 in to:
        return c.expand(c.scalar(0, x), to)
    if not table.front:
        return c.expand(x, to)
    found = c(popart.GatherOp, table.of(c, x), table.numbers(c, starts, sizes, batch), axis=0)
    return c.transpose(found, [*range(len(batch)), *(len(batch) + table.order.index(d) for d in range(len(sizes)))])


def gather(c: Conversion) -> Value:
    """Converts gather."""
    n, sizes = c.op.stated("dimension_numbers"), c.ints("slice_sizes")
    if c.op.kind == "dynamic_gather":
        sizes = tuple(int(v) for v in c.known(2))
    assert isinstance(n, Named)
    starts, batch = indexed(c, n, c.input(1), scattering=False)
    hidden = (*n.ints("collapsed_slice_dims"), *n.ints("operand_batching_dims"))
    offset = n.ints("offset_dims")

    def one(x: SSAValue) -> SSAValue:
        found = gathered(c, x, starts, sizes, batch)
        found = c.reshape(found, (*batch, *(s for d, s in enumerate(sizes) if d not in hidden)))
        rank = len(shape(found))
        outer, inner = iter(range(len(batch))), iter(range(len(batch), rank))
        return c.transpose(found, [next(inner) if d in offset else next(outer) for d in range(rank)])

    return each(c.inputs[0], one)


def each(value: Value, f: Callable[[SSAValue], SSAValue]) -> Value:
    """Applies a function to the parts of a value."""
    return Pair(f(value.real), f(value.imag)) if isinstance(value, Pair) else f(real(value))


def dynamic_slice(c: Conversion) -> Value:
    """Converts dynamic_slice: a gather of one window."""
    starts = {d: wide_index(c, c.input(d + 1)) for d in range(len(c.inputs) - 1)}
    return each(c.inputs[0], lambda x: gathered(c, x, starts, c.ints("slice_sizes"), ()))


def dynamic_update_slice(c: Conversion) -> Value:
    """Converts dynamic_update_slice: a window is written, whose index is limited so that it is inside."""
    (size,) = {shape(v) for v in leaves(c.inputs[1:2])}
    (full,) = {shape(v) for v in leaves(c.inputs[:1])}
    given = {d: wide_index(c, c.input(d + 2)) for d in range(len(full)) if size[d] < full[d]}
    starts = {d: clamped(c, at, full[d] - size[d]) for d, at in given.items()}
    table = Table(full, tuple(sorted(starts)))
    if not table.front or 0 in size:
        return c.inputs[0] if 0 in size else c.inputs[1]
    rows = table.numbers(c, starts, size, ())

    def one(x: SSAValue, update: SSAValue) -> SSAValue:
        update = c.transpose(update, table.order)
        count = math.prod(shape(rows))
        update = c.reshape(update, (count, *shape(update)[len(table.front) :]))
        return table.back(c, c(popart.ScatterOp, table.of(c, x), c.reshape(rows, (count,)), update, reduction="set"))

    x, update = c.inputs[0], c.inputs[1]
    if isinstance(x, Pair) and isinstance(update, Pair):
        return Pair(one(x.real, update.real), one(x.imag, update.imag))
    return one(c.input(0), c.input(1))


def scatter(c: Conversion) -> list[Value]:
    """Converts scatter: one library call for sums, products, extremes and assignments; otherwise a loop over the windows."""
    count = (len(c.inputs) - 1) // 2
    inputs, updates = c.inputs[:count], c.inputs[count + 1 :]
    n = c.op.stated("scatter_dimension_numbers")
    assert isinstance(n, Named)
    starts, batch = indexed(c, n, c.input(count), scattering=True)
    (full,) = {shape(v) for v in leaves(inputs)}
    (given,) = {shape(v) for v in leaves(updates)}
    windows = n.ints("update_window_dims")
    hidden = (*n.ints("inserted_window_dims"), *n.ints("input_batching_dims"))
    kept = iter([given[d] for d in windows])
    sizes = [1 if d in hidden else next(kept) for d in range(len(full))]
    table = Table(full, tuple(d for d in range(len(full)) if d in starts or sizes[d] < full[d]) or (() if not full else (0,)))
    if 0 in given or 0 in full:
        return list(inputs)
    places, inside = table.numbers(c, starts, sizes, batch), table.inside(c, starts, sizes, batch)
    outer = [d for d in range(len(given)) if d not in windows]

    def lined(update: SSAValue) -> SSAValue:
        """Orders updates as [batch.., window in front dimensions.., rows..]."""
        update = c.reshape(c.transpose(update, [*outer, *windows]), (*batch, *sizes))
        return c.transpose(update, [*range(len(batch)), *(len(batch) + d for d in table.order)])

    ready = rebuilt(updates, iter([lined(v) for v in leaves(updates)]))
    tables = rebuilt(inputs, iter([table.of(c, v) for v in leaves(inputs)]))
    found = scattered(c, tables, places, inside, ready, len(batch))
    return rebuilt(found, iter([table.back(c, v) for v in leaves(found)]))


def scattered(
    c: Conversion, tables: list[Value], places: SSAValue, inside: SSAValue | None, updates: list[Value], rank: int
) -> list[Value]:
    """Combines rows of tables with updates. `rank`: the number of batch dimensions of `places`; `inside`: which of these are rows."""
    kind = monoid(c.body, element(next(leaves(tables))))
    if kind is None or len(tables) > 1 or (kind not in ("set", "add") and isinstance(tables[0], Pair)):
        return window_by_window(c, tables, places, inside, updates, rank)
    count = math.prod(shape(places))
    if kind != "set" and inside is not None:  # what is outside changes nothing in the first row
        places = c(popart.WhereOp, inside, places, c.scalar(0, places))

    def one(table: SSAValue, update: SSAValue) -> SSAValue:
        own, rows = element(table), shape(table)[0]
        if own == i1 and kind != "set":  # or and and, as the larger and the smaller number
            table, update = c.cast(table, i32), c.cast(update, i32)
        if kind != "set" and inside is not None:
            nothing = neutral(kind, own)
            assert nothing is not None
            mask = c.reshape(inside, (*shape(inside), *(1,) * (len(shape(update)) - len(shape(inside)))))
            update = c(popart.WhereOp, mask, update, c.scalar(nothing, update))
        update = c.reshape(update, (count, *shape(table)[1:]))
        if kind == "set":
            return written(c, table, places, inside, update)
        y = c(popart.ScatterOp, table, c.reshape(places, (count,)), update, reduction=kind)
        assert shape(y)[0] == rows
        return c(popart.NotOp, c(popart.EqualOp, y, c.scalar(0, y))) if element(y) != own else y

    return rebuilt(tables, iter([one(t, u) for t, u in zip(leaves(tables), leaves(updates))]))


def written(c: Conversion, table: SSAValue, places: SSAValue, inside: SSAValue | None, rows: SSAValue) -> SSAValue:
    """Writes rows; those that are outside go to a spare row, which is cut off."""
    count, n, none = math.prod(shape(places)), shape(table)[0], (0,) * (len(shape(table)) - 1)
    if inside is None:
        return c(popart.ScatterOp, table, c.reshape(places, (count,)), rows, reduction="set")
    places = c(popart.WhereOp, inside, places, c.scalar(n, places))
    wide = c(popart.PadOp, table, c.scalar(0, table), lower=(0, *none), upper=(1, *none), mode="constant")
    return c.slice(c(popart.ScatterOp, wide, c.reshape(places, (count,)), rows, reduction="set"), {0: (0, n, 1)})


def window_by_window(
    c: Conversion, tables: list[Value], places: SSAValue, inside: SSAValue | None, updates: list[Value], rank: int
) -> list[Value]:
    """Combines the windows one after the other by the op's region, in a loop. The places of one window differ."""
    batch, spread = math.prod(shape(places)[:rank]), math.prod(shape(places)[rank:])
    carried = list(leaves(tables))
    scanned = [c.reshape(places, (batch, spread)), *(() if inside is None else (c.reshape(inside, (batch, spread)),))]
    scanned += [c.reshape(u, (batch, spread, *shape(t)[1:])) for t, u in zip(carried, leaves(updates))]
    block = Block(arg_types=[INDEX, *(v.type for v in carried), *(tensor(shape(v)[1:], element(v)) for v in scanned)])
    inner = c.at(Builder(InsertPoint.at_end(block)))
    now, at, rows = block.args[1 : 1 + len(carried)], block.args[1 + len(carried)], block.args[len(block.args) - len(carried) :]
    ok = None if inside is None else block.args[2 + len(carried)]
    safe = at if ok is None else inner(popart.WhereOp, ok, at, inner.scalar(0, at))
    seen = [inner(popart.GatherOp, t, safe, axis=0) for t in now]
    found = list(leaves(inner.combine([*rebuilt(tables, iter(seen)), *rebuilt(tables, iter(rows))])))
    new = [written(inner, table, at, ok, inner.expand(v, shape(old))) for table, old, v in zip(now, seen, found)]
    block.add_op(popart.YieldOp(*new))
    loop = popart.LoopOp(carried, Region(block), trips=batch, scanned=scanned)
    c.insert(loop)
    return rebuilt(tables, iter(loop.results))


def torch_index_select(c: Conversion) -> Value:
    """Converts torch_index_select without batch dimensions."""
    if c.get("batch_dims"):
        raise PopulusError("torch_index_select with batch dimensions is not converted; use gather")
    axis: int = c.get("dim")
    at = wide_index(c, c.input(1))
    return each(c.inputs[0], lambda x: c(popart.GatherOp, x, clamped(c, at, shape(x)[axis] - 1), axis=axis))


RULES: Rules = {
    "dynamic_gather": gather,
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "gather": gather,
    "scatter": scatter,
    "torch_index_select": torch_index_select,
}
