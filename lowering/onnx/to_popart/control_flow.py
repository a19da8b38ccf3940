"""Conversions of If, Loop and Scan, which `onnx-infer-shapes` has typed, to `popart.if` and `popart.loop`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from xdsl.builder import Builder
from xdsl.dialects.builtin import IntegerAttr, StringAttr, i32, i64
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.rewriter import InsertPoint

from populus.dialects import popart
from populus.dialects.base.control_flow import INDEX
from populus.dialects.data import ConstantOp, constant, constant_value
from populus.dialects.host import REFUSE, CallOp
from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.support import shapes
from populus.dialects.support.diagnostics import where
from populus.dialects.support.element_types import element_type_of, shape_of, tensor
from populus.lowering.onnx.refused_branches import BRANCHES, either, emptied, has_ranges, is_refusal, refusal
from populus.lowering.onnx.structure.growth import Grown
from populus.lowering.onnx.to_popart.bounded import counted
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, shape
from populus.lowering.onnx.to_popart.open_shapes import compacted, masks_of, window
from populus.lowering.onnx.to_popart.tensor import sliced
from populus.lowering.onnx.valid_sizes import is_whole, size_of, state_texts

Convert: TypeAlias = "Callable[[Block], list[SSAValue]]"
"""Converts the ops of a block in place, erases its terminator, and gives the values that it yielded."""


def branch(c: Conversion, convert: Convert) -> list[Output]:
    """Converts If to `popart.if`, or to a selection if neither branch computes anything.

    `convert`: converts the ops of a block and gives the values that it yields. A result whose size differs between the
    branches has the larger size and a valid length. A branch that cannot be converted refuses the run that takes it.
    """
    blocks = [c.op.region(name).block for name in BRANCHES]
    yielded = _yielded(c, convert)
    condition = c.reshape(c.input(0), ())
    m = masks_of(c)
    plain = [v.type for v in yielded[0]] == [v.type for v in yielded[1]] and not any(
        v in m.valid.axes for values in yielded for v in values
    )
    # Ops of ONNX are converted, and go in the end.
    if plain and all(isinstance(op, ConstantOp | OnnxOp) for block in blocks for op in block.ops):
        for block in blocks:
            _emptied(block, c)
        return [c.insert(popart.WhereOp(condition, a, b)) for a, b in zip(*yielded)]
    axes = [_axis(c, i, values) for i, values in enumerate(zip(*yielded))]
    for block, values in zip(blocks, yielded):
        inner = c.at(Builder(InsertPoint.at_end(block)))
        front = [v if a is None else compacted(inner, v) for v, a in zip(values, axes)]
        wide = [v if a is None else _widened(inner, v, shape_of(o.type)) for v, a, o in zip(front, axes, _outputs(c))]
        counts = [m.scalar(inner, size_of(m.valid.of(v)[a]), i64) for v, a in zip(front, axes) if a is not None]
        _end(c, block, [*wide, *counts])
    made = popart.IfOp(condition, *(_moved(c.op.region(name)) for name in BRANCHES))
    results = _results(c, made)
    counts = results[len(axes) :]
    for i, axis in enumerate(axes):
        if axis is not None:
            count = counts.pop(0)
            assert count is not None
            counted(c, i, axis, count)
    return results[: len(axes)]


def _yielded(c: Conversion, convert: Convert) -> list[list[SSAValue]]:
    """Converts the branches of an If, and gives the values that each yields. Raises PopulusError if neither can be converted."""
    done, failed = either(lambda name: convert(c.op.region(name).block), has_ranges(c.op))
    if failed:
        (other,) = done.values()
        (name,) = failed
        if any(is_refusal(v.owner) for v in other):
            raise failed[name]
        call = refusal(c.op, failed, [v.type for v in other])
        block = c.op.region(name).block
        emptied(block)
        block.add_op(call)
        done[name] = list(call.results)
    return [done[name] for name in BRANCHES]


def _outputs(c: Conversion) -> list[SSAValue]:
    """Lists the outputs that the node has."""
    return [o for o in c.op.outputs if o is not None]


def _axis(c: Conversion, i: int, values: Sequence[SSAValue]) -> int | None:
    """Finds the axis along which the sizes of the branches' values differ; None if they are equal."""
    valid = masks_of(c).valid
    if len({valid.of(v) for v in values}) == 1:
        return None
    for value in values:
        if found := valid.sized(value):
            return found[0]
    sizes = [shape(v) for v in values]
    return next((d for d, (m, n) in enumerate(zip(*sizes)) if m != n), None)


def _widened(c: Conversion, x: SSAValue, to: Sequence[int]) -> SSAValue:
    """Pads `x` at the end of each dimension to the shape `to`."""
    upper = tuple(n - m for n, m in zip(to, shape(x)))
    return masks_of(c).plain(c, popart.PadOp(x, None, lower=(0,) * len(upper), upper=upper, mode="constant")) if any(upper) else x


def _fitted(c: Conversion, x: SSAValue, to: Sequence[int]) -> SSAValue:
    """Gives the front of `x` the shape `to`, which holds its valid part."""
    ends = tuple(min(n, m) for n, m in zip(shape(x), to))
    if ends != shape(x):
        zeros, ones = (0,) * len(ends), (1,) * len(ends)
        x = masks_of(c).plain(c, popart.SliceOp(x, begins=zeros, ends=ends, steps=ones))
    return _widened(c, x, to)


def _emptied(block: Block, c: Conversion) -> None:
    """Moves the ops of a branch in front of the node."""
    for op in list(block.ops):
        op.detach()
        assert c.op.parent is not None
        c.op.parent.insert_op_before(op, c.op)


def _end(c: Conversion, block: Block, values: Sequence[SSAValue]) -> None:
    """Appends the terminator that yields `values`."""
    end = popart.YieldOp(*values)
    end.location = c.op.location
    block.add_op(end)


def _moved(region: Region) -> Region:
    """Moves the blocks of a region into a new one."""
    new = Region()
    region.move_blocks(new)
    return new


def _results(c: Conversion, op: popart.IfOp | popart.LoopOp) -> list[Output]:
    """Inserts a branch or loop with the node's location, and gives its results."""
    op.location = c.op.location
    return list(c.builder.insert(op).results)


class _LoopBody:
    """The region of a `popart.loop`, made from the body of an ONNX op: its arguments, then its converted ops."""

    def __init__(self, c: Conversion, states: Sequence[SSAValue], rows: Sequence[Attribute] = (), sizes: Sequence[Sequence[str]] = ()):
        self.old = c.op.region("body").block
        self.block = Block(arg_types=[INDEX, *(v.type for v in states), *rows])
        self.region = Region(self.block)
        self.c = c.at(Builder(InsertPoint.at_end(self.block)))
        self.index, *self.values = self.block.args
        if c.masks is not None:
            for inside, state in zip(self.values, states):
                c.masks.valid.state(inside, c.masks.valid.of(state))
            for inside, texts in zip(self.values, sizes):
                state_texts(inside, texts, c.masks.valid)

    @property
    def number(self) -> SSAValue:
        """The number of the iteration as ONNX has it: i64."""
        return self.c.cast(self.index, i64)

    def fill(self, arguments: Sequence[Callable[[], SSAValue]], convert: Convert) -> list[SSAValue]:
        """Replaces the old arguments, converts the ops, and gives the values that the body yields.

        `arguments`: makes the value of each old argument; not called for an argument without a use.
        """
        for old, make in zip(self.old.args, arguments, strict=True):
            if old.uses:
                old.replace_all_uses_with(make())
        for op in list(self.old.ops):
            op.detach()
            self.block.add_op(op)
        return convert(self.block)


def loop(c: Conversion, convert: Convert) -> list[Output]:
    """Converts Loop to `popart.loop`.

    The trip count is the attribute `trips`, exactly or at most; without it, the loop runs while its conditions hold and
    fewer than input M iterations have run. Carried values that grow are in buffers of their largest size. A run that would
    exceed a bound that the user states (`checked`) is refused. `convert`: as for `branch`. Source: ONNX Loop-25.
    """
    import numpy as np

    trips = c.op.attributes.get("trips")
    most = trips.value.data if isinstance(trips, IntegerAttr) else None
    always, checked, grown = "counted" in c.op.attributes, "checked" in c.op.attributes, Grown.of(c.op)
    sized = c.masks is not None and c.has(0) and c.input(0) in c.masks.valid.symbols
    limit, go = _begin(c, always, most is None or sized or checked)
    states = [v for v in c.inputs[2:] if v is not None]
    if grown is not None:
        buffers = c.op.region("body").block.args[2:]
        states = [_widened(c, compacted(c, v), shape_of(b.type)) for v, b in zip(states, buffers, strict=True)]
    collects = [i for i in range(len(states), len(c.op.outputs)) if c.used(i)]
    counts = go is not None and (bool(collects) if grown is None else grown.count is not None) and not (always and sized)
    added = [c.constant(np.array(0, np.int64))] if counts else []
    if counts and checked and go is not None:
        added.append(go)
    body = _LoopBody(c, [*states, *added], sizes=() if grown is None else grown.carried)
    if grown is not None:
        _define(body.c, grown.number, body.number)
    number, flag = body.old.args[:2]

    def value(v: SSAValue) -> Callable[[], SSAValue]:
        return lambda: v

    yielded = body.fill(
        [
            lambda: body.c.reshape(body.number, shape(number)),
            lambda: body.c.reshape(body.c.constant(np.array(True)), shape(flag)),
            *map(value, body.values[: len(states)]),
        ],
        convert,
    )
    following, inner = yielded[1 : 1 + len(states)], body.c
    if grown is not None:
        following = [_fitted(inner, v, shape(state)) for v, state in zip(following, states)]
    rows = [yielded[1 + i] for i in collects]
    first: list[SSAValue] = []
    if go is not None:
        goes_on = None if always else inner.reshape(yielded[0], ())
        if limit is not None:
            more = inner.insert(popart.LessOp(inner.insert(popart.AddOp(body.number, inner.scalar(1, limit))), limit))
            goes_on = more if goes_on is None else inner.insert(popart.AndOp(goes_on, more))
        assert goes_on is not None
        first = [goes_on]
    if counts:
        following = [*following, inner.insert(popart.AddOp(body.number, inner.constant(np.array(1, np.int64)))), *first[: len(added) - 1]]
    _end(c, body.block, [*first, *following, *rows])
    results = _results(c, popart.LoopOp([*states, *added], body.region, trips=most, go=go))
    if counts:
        count, *going = (results.pop(len(states)) for _ in added)
        assert count is not None
        if going and going[0] is not None:
            count = _refused_beyond(c, going[0], count, most)
        if grown is not None and grown.count is not None and c.masks is not None:
            c.masks.define(grown.count, count, c.op)
        else:
            for i in collects:
                counted(c, i, 0, count)
    outputs: dict[int, Output] = dict(zip([*range(len(states)), *collects], results))
    return [outputs.get(i) for i in range(len(c.op.outputs))]


def _begin(c: Conversion, always: bool, asks: bool) -> tuple[SSAValue | None, SSAValue | None]:
    """Gives the trip count of a Loop at run time, and whether it begins; None for what no iteration depends on.

    `always`: no condition ends the loop. `asks`: the trip count may be less than `trips`.
    """
    import numpy as np

    runtime = asks and c.has(0) and constant_value(c.input(0)) is None  # a known number without `trips` is no bound
    limit = c.reshape(c.input(0), ()) if runtime else None
    go = None
    if not always:
        go = c.reshape(c.input(1), ()) if c.has(1) else c.constant(np.array(True))
    if limit is not None:
        some = c.insert(popart.LessOp(c.scalar(0, limit), limit))
        go = some if go is None else c.insert(popart.AndOp(go, some))
    return limit, go


def _define(c: Conversion, name: str, number: SSAValue) -> None:
    """Defines a size at the start of a loop's body, by its number."""
    import numpy as np

    marker = c.builder.insert(constant(np.array(0, np.int32)))  # has no use, and goes with the others of that kind
    masks_of(c).define(name, number, marker)


def _refused_beyond(c: Conversion, going: SSAValue, count: SSAValue, most: int | None) -> SSAValue:
    """Gives the number of iterations of a loop, and refuses the run if the loop would go on (`going`) beyond its stated bound."""
    why = f"{where(c.op)}: Loop: it goes on after {most} iterations, the bound that is stated for it; state a larger one"
    refused = CallOp(REFUSE, [], [count.type], {"why": StringAttr(why)})
    refused.location = c.op.location
    beyond, within = Block([refused]), Block()
    _end(c, beyond, list(refused.results))
    _end(c, within, [count])
    (checked,) = _results(c, popart.IfOp(going, Region(beyond), Region(within)))
    assert checked is not None
    return checked


def scan(c: Conversion, convert: Convert) -> list[Output]:
    """Converts Scan to `popart.loop`, which scans dimension 0 forwards.

    Inputs are transposed and reversed to that form, results back from it. Source: ONNX Scan-25.
    """
    count = c.get("num_scan_inputs")
    operands = [v for v in c.inputs if v is not None]
    states, inputs = operands[: len(operands) - count], operands[len(operands) - count :]
    axes = [shapes.axis(a, len(shape(v))) for a, v in zip(c.get("scan_input_axes") or [0] * count, inputs)]
    backwards = c.get("scan_input_directions") or [0] * count
    tables = [_along(c, v, a, 0, back) for v, a, back in zip(inputs, axes, backwards)]
    body = _LoopBody(c, states, [tensor(shape(t)[1:], element_type_of(t.type)) for t in tables])
    whole = c.masks is None or is_whole(c.masks.valid.of(tables[0])[0])
    if c.masks is not None:
        for inside, table in zip(body.values[len(states) :], tables):
            c.masks.valid.state(inside, c.masks.valid.of(table)[1:])
    yielded = body.fill([lambda v=v: v for v in body.values], convert)
    go, first = None, list[SSAValue]()
    if not whole:  # the loop ends at the size of the scanned axis
        limit = c.cast(c.length(tables[0], 0), i32)
        go = c.insert(popart.LessOp(c.scalar(0, limit), limit))
        following = body.c.insert(popart.AddOp(body.index, body.c.scalar(1, body.index)))
        first = [body.c.insert(popart.LessOp(following, limit))]
    _end(c, body.block, [*first, *yielded])
    results = _results(c, popart.LoopOp(states, body.region, trips=shape(tables[0])[0], scanned=tables, go=go))
    if c.masks is not None:
        for row, value in zip(results[len(states) :], yielded[len(states) :]):
            assert row is not None
            c.masks.valid.state(row, (c.masks.valid.of(tables[0])[0], *c.masks.valid.of(value)))
    rows = results[len(states) :]
    axes = c.get("scan_output_axes") or [0] * len(rows)
    backwards = c.get("scan_output_directions") or [0] * len(rows)
    for i, (row, axis, back) in enumerate(zip(rows, axes, backwards), len(states)):
        assert row is not None
        results[i] = _along(c, row, 0, shapes.axis(axis, len(shape(row))), back) if i < len(c.op.outputs) and c.used(i) else row
    return results


def _along(c: Conversion, x: SSAValue, axis: int, to: int, backwards: int) -> SSAValue:
    """Moves `axis` of `x` to position `to`, and reverses it if `backwards` is nonzero."""
    rest = [d for d in range(len(shape(x))) if d != axis]
    x = c.transpose(x, [*rest[:to], axis, *rest[to:]])
    if not backwards or shape(x)[to] < 2:
        return x
    if c.masks is not None and to in c.masks.valid.sized(x):
        size = size_of(c.masks.valid.of(x)[to])
        return c.masks.safe(c, window(c, x, to, size - 1, size, -1))
    return sliced(c, x, {to: (shape(x)[to] - 1, -1, -1)})


RULES: Mapping[str, Callable[[Conversion, Convert], list[Output]]] = {"If": branch, "Loop": loop, "Scan": scan}
