"""Conversions of while: loops that count become loops of a known length, whose rows are read and written as tables.

JAX writes scan and fori_loop as a while whose condition compares a counter with a limit. Of such a loop no condition is computed,
values that stay the same are read from around it, a slice at the counter is a row, and so is an update at the counter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint

from populus.dialects import popart
from populus.dialects.base.control_flow import INDEX
from populus.dialects.data import constant_value
from populus.dialects.stablehlo.ops import HloOp
from populus.dialects.support.element_types import element_type_of, is_integer, shape_of, tensor
from populus.lowering.stablehlo.to_popart.conversion import Conversion, Rules, Value, element, leaves, real, rebuilt, shape
from populus.lowering.stablehlo.to_popart.tensors import array_of


@dataclass(frozen=True)
class Count:
    """A counter: which value of the loop it is, its first value, and the number of iterations."""

    place: int
    start: int
    trips: int


def known(value: SSAValue, block: Block, outside: Sequence[Value]) -> int | None:
    """Gives the integer that a value in a region is: a constant, or an argument that is one before the loop; else None."""
    owner = value.owner
    if isinstance(owner, HloOp) and owner.kind == "constant" and shape_of(value.type) == () and is_integer(element_type_of(value.type)):
        return int(array_of(owner.stated("value"), value.type))
    if owner is block:
        given = outside[block.args.index(value)]  # pyright: ignore[reportArgumentType], an argument
        array = constant_value(given) if isinstance(given, SSAValue) else None
        return int(array) if array is not None and array.ndim == 0 and array.dtype.kind in "iu" else None
    return None


def stays(body: Block, i: int) -> bool:
    """Tells whether a value of a loop is the same in all iterations."""
    return _end(body).operands[i] is body.args[i]


def _end(block: Block) -> Operation:
    assert block.last_op is not None
    return block.last_op


def _made_by(value: SSAValue, kind: str, block: Block) -> HloOp | None:
    """Gives the op of a kind that makes a value in a block; None for another."""
    owner = value.owner
    return owner if isinstance(owner, HloOp) and owner.kind == kind and owner.parent is block else None


def count(c: Conversion, body: Block) -> Count | None:
    """Finds the counter of a loop: less than a known limit, from a known start, by ones; None for any other loop."""
    condition = c.op.body(0)
    compared = _made_by(_end(condition).operands[0], "compare", condition)
    if compared is None or compared.get("comparison_direction") != "LT" or compared.operands[0].owner is not condition:
        return None
    place = condition.args.index(compared.operands[0])  # pyright: ignore[reportArgumentType], an argument
    limit_value = compared.operands[1]
    if limit_value.owner is condition and not stays(body, condition.args.index(limit_value)):  # pyright: ignore[reportArgumentType]
        return None
    added = _made_by(_end(body).operands[place], "add", body)
    if added is None or added.operands[0] is not body.args[place] or known(added.operands[1], body, ()) != 1:
        return None
    start, limit = known(condition.args[place], condition, c.inputs), known(limit_value, condition, c.inputs)
    return None if start is None or limit is None else Count(place, start, max(limit - start, 0))


def at_counter(op: HloOp, starts: Sequence[SSAValue], body: Block, n: Count) -> bool:
    """Tells whether indices are the counter, from 0, and zeros beside."""
    zeros = all(v.owner is not body and known(v, body, ()) == 0 for v in starts[1:])
    return op.parent is body and n.start == 0 and bool(starts) and starts[0] is body.args[n.place] and zeros


def is_scanned(body: Block, i: int, n: Count) -> bool:
    """Tells whether of a value that stays the loop reads row after row, and nothing else."""
    type = body.args[i].type
    if not stays(body, i) or not shape_of(type) or shape_of(type)[0] != n.trips:
        return False
    uses = [use.operation for use in body.args[i].uses if use.operation is not _end(body)]
    return bool(uses) and all(
        isinstance(op, HloOp)
        and op.kind == "dynamic_slice"
        and at_counter(op, op.operands[1:], body, n)
        and tuple(op.get("slice_sizes")) == (1, *shape_of(type)[1:])
        for op in uses
    )


def written_rows(body: Block, i: int, n: Count) -> HloOp | None:
    """Gives the op that writes a value row after row, if nothing else reads it; else None."""
    op = _made_by(_end(body).operands[i], "dynamic_update_slice", body)
    arg = body.args[i]
    if op is None or op.operands[0] is not arg or not arg.has_one_use() or not op.results[0].has_one_use():
        return None
    type = shape_of(arg.type)
    whole = bool(type) and type[0] == n.trips and shape_of(op.operands[1].type) == (1, *type[1:])
    return op if whole and at_counter(op, op.operands[2:], body, n) else None


def while_(c: Conversion) -> list[Value]:
    """Converts while: to a loop of a known length if it counts, and otherwise to one that its condition ends."""
    n = count(c, c.op.body(1))
    return open_loop(c) if n is None else counted_loop(c, n)


def open_loop(c: Conversion) -> list[Value]:
    """Converts a loop that its condition ends: computed before the first iteration, and at the end of each."""
    (go,) = c.region(0, c.inputs)
    carried = list(leaves(c.inputs))
    block = Block(arg_types=[INDEX, *(v.type for v in carried)])
    inner = c.at(Builder(InsertPoint.at_end(block)))
    states = rebuilt(c.inputs, iter(block.args[1:]))
    new = inner.region(1, states)
    (again,) = inner.region(0, new)
    block.add_op(popart.YieldOp(real(again), *leaves(new)))
    loop = popart.LoopOp(carried, Region(block), trips=None, go=real(go))
    c.insert(loop)
    return rebuilt(c.inputs, iter(loop.results))


def counted_loop(c: Conversion, n: Count) -> list[Value]:
    """Converts a loop that counts. Its region is changed for it, so it is a copy."""
    if n.trips == 0:
        return list(c.inputs)
    copy = c.op.clone()
    for old, new in zip(c.op.walk(), copy.walk(), strict=True):
        new.location = old.location
    body = copy.body(1)
    places = [i for i in range(len(body.args)) if i != n.place]
    rows = {i: op for i in places if (op := written_rows(body, i, n)) is not None}
    scanned = [i for i in places if is_scanned(body, i, n)]
    carried = [i for i in places if i not in rows and not stays(body, i)]
    given = [c.inputs[i] for i in carried]
    tables = [v for i in scanned for v in leaves([c.inputs[i]])]
    block = Block(arg_types=[INDEX, *(v.type for v in leaves(given)), *(tensor(shape(v)[1:], element(v)) for v in tables)])
    inner = c.at(Builder(InsertPoint.at_end(block)))
    arguments = list(c.inputs)
    own = real(c.inputs[n.place])
    counter = inner.cast(block.args[0], element(own))
    arguments[n.place] = inner(popart.AddOp, counter, inner.scalar(n.start, counter)) if n.start else counter
    states = len(list(leaves(given)))
    for i, value in zip(carried, rebuilt(given, iter(block.args[1 : 1 + states]))):
        arguments[i] = value
    read = iter([inner.reshape(v, (1, *shape(v))) for v in block.args[1 + states :]])
    for i in scanned:
        arguments += rebuilt([c.inputs[i]], read)
        row = body.insert_arg(tensor((1, *shape_of(body.args[i].type)[1:]), element_type_of(body.args[i].type)), len(body.args))
        for op in [use.operation for use in body.args[i].uses if use.operation is not _end(body)]:
            op.results[0].replace_all_uses_with(row)
            op.detach()
            op.erase()
    for op in rows.values():
        op.results[0].replace_all_uses_with(op.operands[1])
        op.detach()
        op.erase()
    new = c.regions.inline(body, arguments, inner.builder, c.lifted)
    made = [inner.reshape(v, shape(v)[1:]) for i in rows for v in leaves([new[i]])]
    block.add_op(popart.YieldOp(*leaves([new[i] for i in carried]), *made))
    loop = popart.LoopOp(list(leaves(given)), Region(block), trips=n.trips, scanned=tables)
    c.insert(loop)
    copy.drop_all_references()
    results = list(c.inputs)
    results[n.place] = c.scalar(n.start + n.trips, own)
    found = iter(loop.results)
    for i in (*carried, *rows):
        (results[i],) = rebuilt([c.inputs[i]], found)
    return results


RULES: Rules = {"while": while_}
