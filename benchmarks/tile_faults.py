"""Faults that are planted in tile programs: each kind changes one place of a module, drawn at random.

A kind gets the graph and a generator. It returns what it did in words, and raises NothingToChange if the place that it drew has nothing
of its kind. The changed program may be invalid; types of views are kept up with sizes, so that it is not refused for these alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

from xdsl.dialects.builtin import DenseArrayBase, DictionaryAttr, FloatAttr, IntegerAttr, StringAttr, i1, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects.base.tensor_op import ints
from populus.dialects.poplar.compute import CopyOp, ExecuteOp, FamilyOp
from populus.dialects.poplar.memory import ConstOp, ParamOp, SliceOp, StorageOp, VarOp, ViewOp, storage_of
from populus.dialects.poplar.partition import Access, Domain, Grid, Split
from populus.dialects.poplar.program import CallOp, GraphOp, IfOp, RepeatOp, StreamInOp, StreamOutOp, WhileOp
from populus.dialects.poplar.types import DomainAttr, Field, FieldsAttr, GridAttr, TensorType

Kind: TypeAlias = Callable[[GraphOp, random.Random], str]
T = TypeVar("T")


class NothingToChange(Exception):
    """The drawn place has nothing of a kind."""


def drawn(rng: random.Random, items: Sequence[T] | Iterator[T]) -> T:
    """Draws one of some items. Raises NothingToChange if there are none."""
    found = list(items)
    if not found:
        raise NothingToChange
    return rng.choice(found)


def ops(graph: GraphOp, kind: type[T] | tuple[type[T], ...]) -> list[T]:
    """Lists the ops of a kind."""
    return [op for op in graph.walk() if isinstance(op, kind)]


def _family(graph: GraphOp, rng: random.Random) -> FamilyOp:
    return drawn(rng, ops(graph, FamilyOp))


def _label(op: Operation) -> str:
    step = op.parent_op() if isinstance(op, FamilyOp) else op
    label = None if step is None else step.properties.get("label") or step.properties.get("stream")
    name = label.data if isinstance(label, StringAttr) else op.name
    return f"'{name}' @{op.codelet.data}" if isinstance(op, FamilyOp) else f"'{name}'"


def _with_field(family: FamilyOp, number: int, field: Field) -> str:
    fields = list(family.fields.data)
    old, fields[number] = fields[number], field
    family.fields = FieldsAttr(tuple(fields))
    before, after = (f"{f.kind} {f.name}[{', '.join(map(str, f.access))}]" for f in (old, field))
    return f"{_label(family)}: {before} is {after}"


def _with_access(family: FamilyOp, number: int, dim: int, access: Access) -> str:
    field = family.fields.data[number]
    if access == field.access[dim]:
        raise NothingToChange
    accesses = [access if d == dim else a for d, a in enumerate(field.access)]
    return _with_field(family, number, replace(field, access=tuple(accesses)))


def _access(graph: GraphOp, rng: random.Random) -> tuple[FamilyOp, int, int, Access]:
    """Draws an access to one dimension: (family, number of the field, dimension, access)."""
    family = _family(graph, rng)
    number, field = drawn(rng, list(enumerate(family.fields.data)))
    dim, access = drawn(rng, list(enumerate(field.access)))
    return family, number, dim, access


# -- accesses


def offset(graph: GraphOp, rng: random.Random) -> str:
    """Shifts an access."""
    family, number, dim, access = _access(graph, rng)
    if access.part or access.whole:
        raise NothingToChange
    return _with_access(family, number, dim, replace(access, offset=access.offset + rng.choice([-2, -1, 1, 2, 16])))


def stride(graph: GraphOp, rng: random.Random) -> str:
    """Changes the coefficient of an axis in an access."""
    family, number, dim, access = _access(graph, rng)
    if access.part or not access.terms:
        raise NothingToChange
    i = rng.randrange(len(access.terms))
    terms = tuple((a, rng.choice([c + 1, 2 * c, max(c - 1, 0)]) if i == j else c) for j, (a, c) in enumerate(access.terms))
    return _with_access(family, number, dim, replace(access, terms=terms))


def wrong_axis(graph: GraphOp, rng: random.Random) -> str:
    """Replaces the axis of an access by another."""
    family, number, dim, access = _access(graph, rng)
    if not access.terms:
        raise NothingToChange
    i, (other, _) = rng.randrange(len(access.terms)), drawn(rng, family.space.axes)
    terms = tuple((other if i == j else a, c) for j, (a, c) in enumerate(access.terms))
    return _with_access(family, number, dim, replace(access, terms=terms))


def swapped_axes(graph: GraphOp, rng: random.Random) -> str:
    """Swaps the accesses to two dimensions of a field."""
    family = _family(graph, rng)
    number, field = drawn(rng, [(i, f) for i, f in enumerate(family.fields.data) if len(f.access) > 1])
    a, b = rng.sample(range(len(field.access)), 2)
    accesses = list(field.access)
    accesses[a], accesses[b] = accesses[b], accesses[a]
    if tuple(accesses) == field.access:
        raise NothingToChange
    return _with_field(family, number, replace(field, access=tuple(accesses)))


def part_dropped(graph: GraphOp, rng: random.Random) -> str:
    """Puts the partial results of all parts in the place of the first, or makes an axis a part's number."""
    family, number, dim, access = _access(graph, rng)
    if not access.terms or access.whole:
        raise NothingToChange
    return _with_access(family, number, dim, Access() if access.part else Access(access.terms[:1], part=True))


def shorter_access(graph: GraphOp, rng: random.Random) -> str:
    """Leaves out a term of an access."""
    family, number, dim, access = _access(graph, rng)
    if access.part or not access.terms:
        raise NothingToChange
    i = rng.randrange(len(access.terms))
    return _with_access(family, number, dim, replace(access, terms=access.terms[:i] + access.terms[i + 1 :]))


def bounds(graph: GraphOp, rng: random.Random) -> str:
    """Changes the number of elements of an axis."""
    family = _family(graph, rng)
    axis, split = drawn(rng, family.space.axes)
    return _with_axis(family, axis, replace(split, n=max(split.n + rng.choice([-1, 1, -(split.n // 2), split.n]), 0)))


# -- mapping


def _with_domain(family: FamilyOp, domain: Domain) -> str:
    before = family.space
    if domain == before:
        raise NothingToChange
    family.domain = DomainAttr(domain)
    return f"{_label(family)}: {before} is {domain}"


def _with_axis(family: FamilyOp, axis: str, split: Split) -> str:
    return _with_domain(family, replace(family.space, axes=tuple((a, split if a == axis else s) for a, s in family.space.axes)))


def parts(graph: GraphOp, rng: random.Random) -> str:
    """Cuts an axis into another number of parts."""
    family = _family(graph, rng)
    axis, split = drawn(rng, family.space.axes)
    domain = family.space
    number = rng.choice([split.parts + 1, max(split.parts - 1, 1), 2 * split.parts, 1])
    order = domain.order if axis in domain.order else (*domain.order, axis)
    axes = tuple((a, replace(s, parts=number) if a == axis else s) for a, s in domain.axes)
    return _with_domain(family, Domain(axes, order, domain.start))


def tiles(graph: GraphOp, rng: random.Random) -> str:
    """Moves the vertices to other tiles: from another first one on, or in another order."""
    family, domain = _family(graph, rng), None
    domain = family.space
    if rng.random() < 0.5 or len(domain.order) < 2:
        return _with_domain(family, replace(domain, start=domain.start + rng.randint(1, graph.machine.tiles)))
    return _with_domain(family, replace(domain, order=tuple(rng.sample(domain.order, len(domain.order)))))


def uncut(graph: GraphOp, rng: random.Random) -> str:
    """Leaves an axis out of the order of a family's tiles."""
    family = _family(graph, rng)
    axis = drawn(rng, family.space.order)
    return _with_domain(family, replace(family.space, order=tuple(a for a in family.space.order if a != axis)))


def layout(graph: GraphOp, rng: random.Random) -> str:
    """Moves the elements of a variable to other tiles."""
    op = drawn(rng, [op for op in ops(graph, StorageOp) if op.layout is not None])
    grid = op.layout
    assert grid is not None, op
    choices = [replace(grid, start=grid.start + rng.randint(1, graph.machine.tiles))]
    for d, split in enumerate(grid.splits):
        other = replace(split, parts=rng.choice([1, split.parts + 1, 2 * split.parts]))
        order = grid.order if d in grid.order else (*grid.order, d)
        choices.append(Grid(tuple(other if e == d else s for e, s in enumerate(grid.splits)), order, grid.start))
    new = drawn(rng, [c for c in choices if c != grid])
    op.grid = GridAttr(new)
    return f"'{op.label.data}': {grid} is {new}"


def address(graph: GraphOp, rng: random.Random) -> str:
    """Moves a variable to the address of another, or a little beside its own."""
    op, other = drawn(rng, [op for op in ops(graph, StorageOp) if op.address is not None]), drawn(rng, ops(graph, StorageOp))
    own, theirs = op.address, other.address
    if own is None or theirs is None:
        raise NothingToChange
    at = theirs.value.data if rng.random() < 0.5 else max(own.value.data + rng.choice([-64, -8, 8, 64, 4096]), 0)
    if at == own.value.data:
        raise NothingToChange
    op.address = IntegerAttr(at, i64)
    return f"'{op.label.data}': address {own.value.data} is {at}"


# -- fields and operands


def swapped_fields(graph: GraphOp, rng: random.Random) -> str:
    """Swaps the operands of two fields."""
    family = _family(graph, rng)
    pairs = [(i, j) for i in range(len(family.views)) for j in range(i) if family.views[i] is not family.views[j]]
    i, j = drawn(rng, [(i, j) for i, j in pairs if family.views[i].type == family.views[j].type])
    first, second = family.views[i], family.views[j]
    family.operands[i], family.operands[j] = second, first
    return f"{_label(family)}: {family.fields.data[i].name} and {family.fields.data[j].name} are swapped"


def other_operand(graph: GraphOp, rng: random.Random) -> str:
    """Replaces an operand of a step by another view of its type."""
    op = drawn(rng, ops(graph, (FamilyOp, CopyOp, CallOp, StreamInOp, StreamOutOp, IfOp, WhileOp)))  # type: ignore[arg-type]
    number, value = drawn(rng, [(i, v) for i, v in enumerate(op.operands) if isinstance(v.type, TensorType)])
    values = [r for o in ops(graph, (StorageOp, ViewOp)) for r in o.results if r.type == value.type and r is not value]  # type: ignore[arg-type]
    other = drawn(rng, [v for v in values if _before(v, op)])
    op.operands[number] = other
    return f"{_label(op)}: operand {number} is '{storage_of(other).label.data}'"


def _before(value: SSAValue, op: Operation) -> bool:
    """Tells whether a value stands before an op, in a block around it."""
    owner, inner = value.owner, op
    if not isinstance(owner, Operation):
        return False
    while inner.parent is not None:
        if inner.parent is owner.parent:
            return owner.is_before_in_block(inner)
        parent = inner.parent_op()
        if parent is None:
            return False
        inner = parent
    return False


def field_kind(graph: GraphOp, rng: random.Random) -> str:
    """Changes whether a field is read, written, or both."""
    family = _family(graph, rng)
    number, field = drawn(rng, list(enumerate(family.fields.data)))
    return _with_field(family, number, replace(field, kind=rng.choice([k for k in ("in", "out", "inout") if k != field.kind])))


def parameter(graph: GraphOp, rng: random.Random) -> str:
    """Changes a parameter of a codelet."""
    family = _family(graph, rng)
    name, value = drawn(rng, sorted(family.params.data.items()))
    match value:
        case IntegerAttr():
            by = rng.choice([-1, 1])
            new: Attribute = IntegerAttr(int(not value.value.data) if value.type == i1 else value.value.data + by, value.type)
        case FloatAttr():
            new = FloatAttr(value.value.data + rng.choice([-1.0, 0.5]), value.type)
        case StringAttr():
            new = StringAttr(rng.choice([n for n in ("add", "mul", "max", "min", "set", "average", "square_add", "") if n != value.data]))
        case DenseArrayBase():
            numbers = [int(n) for n in ints(value)]
            numbers[rng.randrange(len(numbers))] += rng.choice([-1, 1])
            new = DenseArrayBase.from_list(i64, numbers)
        case _:
            raise NothingToChange
    family.params = DictionaryAttr({**family.params.data, name: new})
    return f"{_label(family)}: {name} = {value} is {new}"


def argument_kind(graph: GraphOp, rng: random.Random) -> str:
    """Changes whether a function reads a parameter, writes it, or both."""
    op = drawn(rng, ops(graph, ParamOp))
    before, op.kind = op.kind, StringAttr(rng.choice([k for k in ("in", "out", "inout") if k != op.kind.data]))
    return f"'{op.label.data}': {before.data} is {op.kind.data}"


# -- variables and views


def shrunk(graph: GraphOp, rng: random.Random) -> str:
    """Shortens a variable by one or by half along a dimension."""
    op = drawn(rng, [op for op in ops(graph, VarOp) if any(n > 1 for n in op.type.shape)])
    dim = drawn(rng, [d for d, n in enumerate(op.type.shape) if n > 1])
    n = op.type.shape[dim]
    fewer = rng.choice([n - 1, n // 2])
    shape = [fewer if d == dim else m for d, m in enumerate(op.type.shape)]
    if op.layout is not None:
        splits = tuple(replace(s, n=m, parts=min(s.parts, max(-(-m // s.grain), 1))) for s, m in zip(op.layout.splits, shape))
        op.grid = GridAttr(replace(op.layout, splits=splits))
    Rewriter.replace_value_with_new_type(op.result, TensorType.of(shape, op.type.element))
    return f"'{op.label.data}': {n} of dimension {dim} are {fewer}"


def slice_bounds(graph: GraphOp, rng: random.Random) -> str:
    """Shifts a slice."""
    op = drawn(rng, ops(graph, SliceOp))
    dim = rng.randrange(len(op.begins))
    begins, ends = list(ints(op.begins)), list(ints(op.ends))
    by = rng.choice([-1, 1, -ends[dim] + begins[dim], ends[dim] - begins[dim]])
    begins[dim], ends[dim] = begins[dim] + by, ends[dim] + by
    op.begins, op.ends = DenseArrayBase.from_list(i64, begins), DenseArrayBase.from_list(i64, ends)
    return f"a slice of '{storage_of(op.x).label.data}' begins {by} later along {dim}"


# -- steps


def _steps(graph: GraphOp) -> list[Operation]:
    return list(ops(graph, (ExecuteOp, CopyOp, CallOp, RepeatOp, IfOp, WhileOp)))  # type: ignore[arg-type]


def dropped_copy(graph: GraphOp, rng: random.Random) -> str:
    """Drops a copy, or the stream of an input."""
    op = drawn(rng, ops(graph, (CopyOp, StreamInOp)))  # type: ignore[arg-type]
    return _dropped(op)


def _dropped(op: Operation) -> str:
    said = f"{_label(op)} is left out"
    Rewriter.erase_op(op)
    return said


def dropped_zeroing(graph: GraphOp, rng: random.Random) -> str:
    """Drops the family that fills a variable."""
    return _dropped_family(drawn(rng, [f for f in ops(graph, FamilyOp) if f.codelet.data in ("fill", "iota")]))


def _dropped_family(family: FamilyOp) -> str:
    step = family.parent_op()
    return _dropped(step if isinstance(step, ExecuteOp) and len(step.families()) == 1 else family)


def dropped_step(graph: GraphOp, rng: random.Random) -> str:
    """Drops a step, or a family of one."""
    op = drawn(rng, _steps(graph))
    if isinstance(op, ExecuteOp) and len(op.families()) > 1:
        return _dropped_family(drawn(rng, op.families()))
    return _dropped(op)


def dropped_exchange(graph: GraphOp, rng: random.Random) -> str:
    """Moves the families of a step to the step before, without the exchange between the two."""
    op = drawn(rng, [op for op in ops(graph, ExecuteOp) if _earlier(op) is not None])
    earlier = _earlier(op)
    assert earlier is not None, op
    for family in op.families():
        for value in family.views:
            _hoist(value, earlier)
        family.detach()
        earlier.body.block.add_op(family)
    said = f"{_label(op)} runs in {_label(earlier)}"
    Rewriter.erase_op(op)
    return said


def _earlier(op: Operation) -> ExecuteOp | None:
    """Finds the execute before a step of its block, if no other step is between them."""
    before = op.prev_op
    while isinstance(before, StorageOp | ViewOp):
        before = before.prev_op
    return before if isinstance(before, ExecuteOp) else None


def _hoist(value: SSAValue, before: Operation) -> None:
    """Moves a view or variable, and what it is of, before a step of its block."""
    owner = value.owner
    if isinstance(owner, StorageOp | ViewOp) and owner.parent is before.parent and not owner.is_before_in_block(before):
        for operand in owner.operands:
            _hoist(operand, before)
        owner.detach()
        Rewriter.insert_op(owner, InsertPoint.before(before))


def split_step(graph: GraphOp, rng: random.Random) -> str:
    """Swaps two families of a step."""
    op = drawn(rng, [op for op in ops(graph, ExecuteOp) if len(op.families()) > 1])
    first, second = sorted(rng.sample(range(len(op.families())), 2))
    families = op.families()
    families[first], families[second] = families[second], families[first]
    for family in families:
        family.detach()
        op.body.block.add_op(family)
    return f"{_label(op)}: families {first} and {second} change places"


def reordered(graph: GraphOp, rng: random.Random) -> str:
    """Swaps two steps that follow each other."""
    kinds = (ExecuteOp, CopyOp, CallOp, RepeatOp, IfOp, WhileOp, StreamInOp, StreamOutOp)
    op = drawn(rng, ops(graph, kinds))  # type: ignore[arg-type]
    before = op.prev_op
    while isinstance(before, StorageOp | ViewOp):
        before = before.prev_op
    if not isinstance(before, kinds):
        raise NothingToChange
    said = f"{_label(op)} runs before {_label(before)}"
    for inner in op.walk():
        for value in inner.operands:
            _hoist(value, before)
    op.detach()
    Rewriter.insert_op(op, InsertPoint.before(before))
    return said


def turns(graph: GraphOp, rng: random.Random) -> str:
    """Changes the number of turns of a loop."""
    op = drawn(rng, ops(graph, RepeatOp))
    n = op.count.value.data
    more = max(n + rng.choice([-n, -1, 1]), 0)
    op.count = IntegerAttr(more, i64)
    return f"{n} turns are {more}"


def swapped_arguments(graph: GraphOp, rng: random.Random) -> str:
    """Swaps two arguments of a call."""
    op = drawn(rng, ops(graph, CallOp))
    pairs = [(i, j) for i in range(len(op.arguments)) for j in range(i) if op.arguments[i].type == op.arguments[j].type]
    i, j = drawn(rng, [(i, j) for i, j in pairs if op.arguments[i] is not op.arguments[j]])
    op.operands[i], op.operands[j] = op.arguments[j], op.arguments[i]
    return f"arguments {j} and {i} of a call of @{op.callee.data} are swapped"


def constant_written(graph: GraphOp, rng: random.Random) -> str:
    """Lets a step write a constant in the place of a variable."""
    op = drawn(rng, ops(graph, (FamilyOp, CopyOp)))  # type: ignore[arg-type]
    number = 1 if isinstance(op, CopyOp) else drawn(rng, [i for i, f in enumerate(op.fields.data) if f.kind != "in"])
    type = op.operands[number].type
    other = drawn(rng, [c for c in ops(graph, ConstOp) if c.result.type == type and _before(c.result, op)])
    op.operands[number] = other.result
    return f"{_label(op)} writes '{other.label.data}'"


KINDS: dict[str, Kind] = {
    "offset of an access": offset,
    "stride of an access": stride,
    "bounds of an axis": bounds,
    "wrong axis": wrong_axis,
    "swapped axes": swapped_axes,
    "part's number": part_dropped,
    "term left out": shorter_access,
    "number of parts": parts,
    "tiles of a family": tiles,
    "order of tiles": uncut,
    "layout": layout,
    "address": address,
    "swapped fields": swapped_fields,
    "other operand": other_operand,
    "kind of a field": field_kind,
    "parameter": parameter,
    "kind of an argument": argument_kind,
    "swapped arguments": swapped_arguments,
    "shrunk variable": shrunk,
    "bounds of a slice": slice_bounds,
    "dropped copy": dropped_copy,
    "dropped zeroing": dropped_zeroing,
    "dropped step": dropped_step,
    "dropped exchange": dropped_exchange,
    "order of families": split_step,
    "order of steps": reordered,
    "turns of a loop": turns,
    "written constant": constant_written,
}
