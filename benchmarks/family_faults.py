"""Faults of families in tile programs: of their accesses, their tiles, their layouts, and their fields and operands."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from xdsl.dialects.builtin import DenseArrayBase, DictionaryAttr, FloatAttr, IntegerAttr, StringAttr, i1, i64
from xdsl.ir import Attribute, Operation, SSAValue

from populus.dialects.base.tensor_op import ints
from populus.dialects.poplar.compute import CopyOp, FamilyOp
from populus.dialects.poplar.memory import ParamOp, StorageOp, ViewOp, storage_of
from populus.dialects.poplar.partition import Access, Domain, Grid, Split
from populus.dialects.poplar.program import CallOp, GraphOp, IfOp, StreamInOp, StreamOutOp, WhileOp
from populus.dialects.poplar.types import DomainAttr, Field, FieldsAttr, GridAttr, TensorType

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


def family_of(graph: GraphOp, rng: random.Random) -> FamilyOp:
    """Draws a family."""
    return drawn(rng, ops(graph, FamilyOp))


def label_of(op: Operation) -> str:
    """Names an op by its step and codelet."""
    step = op.parent_op() if isinstance(op, FamilyOp) else op
    label = None if step is None else step.properties.get("label") or step.properties.get("stream")
    name = label.data if isinstance(label, StringAttr) else op.name
    return f"'{name}' @{op.codelet.data}" if isinstance(op, FamilyOp) else f"'{name}'"


def _with_field(family: FamilyOp, number: int, field: Field) -> str:
    fields = list(family.fields.data)
    old, fields[number] = fields[number], field
    family.fields = FieldsAttr(tuple(fields))
    before, after = (f"{f.kind} {f.name}[{', '.join(map(str, f.access))}]" for f in (old, field))
    return f"{label_of(family)}: {before} is {after}"


def _with_access(family: FamilyOp, number: int, dim: int, access: Access) -> str:
    field = family.fields.data[number]
    if access == field.access[dim]:
        raise NothingToChange
    accesses = [access if d == dim else a for d, a in enumerate(field.access)]
    return _with_field(family, number, replace(field, access=tuple(accesses)))


def _access(graph: GraphOp, rng: random.Random) -> tuple[FamilyOp, int, int, Access]:
    """Draws an access to one dimension: (family, number of the field, dimension, access)."""
    family = family_of(graph, rng)
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
    family = family_of(graph, rng)
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
    family = family_of(graph, rng)
    axis, split = drawn(rng, family.space.axes)
    return _with_axis(family, axis, replace(split, n=max(split.n + rng.choice([-1, 1, -(split.n // 2), split.n]), 0)))


# -- mapping


def _with_domain(family: FamilyOp, domain: Domain) -> str:
    before = family.space
    if domain == before:
        raise NothingToChange
    family.domain = DomainAttr(domain)
    return f"{label_of(family)}: {before} is {domain}"


def _with_axis(family: FamilyOp, axis: str, split: Split) -> str:
    return _with_domain(family, replace(family.space, axes=tuple((a, split if a == axis else s) for a, s in family.space.axes)))


def parts(graph: GraphOp, rng: random.Random) -> str:
    """Cuts an axis into another number of parts."""
    family = family_of(graph, rng)
    axis, split = drawn(rng, family.space.axes)
    domain = family.space
    number = rng.choice([split.parts + 1, max(split.parts - 1, 1), 2 * split.parts, 1])
    order = domain.order if axis in domain.order else (*domain.order, axis)
    axes = tuple((a, replace(s, parts=number) if a == axis else s) for a, s in domain.axes)
    return _with_domain(family, Domain(axes, order, domain.start))


def tiles(graph: GraphOp, rng: random.Random) -> str:
    """Moves the vertices to other tiles: from another first one on, or in another order."""
    family, domain = family_of(graph, rng), None
    domain = family.space
    if rng.random() < 0.5 or len(domain.order) < 2:
        return _with_domain(family, replace(domain, start=domain.start + rng.randint(1, graph.machine.tiles)))
    return _with_domain(family, replace(domain, order=tuple(rng.sample(domain.order, len(domain.order)))))


def uncut(graph: GraphOp, rng: random.Random) -> str:
    """Leaves an axis out of the order of a family's tiles."""
    family = family_of(graph, rng)
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
    family = family_of(graph, rng)
    pairs = [(i, j) for i in range(len(family.views)) for j in range(i) if family.views[i] is not family.views[j]]
    i, j = drawn(rng, [(i, j) for i, j in pairs if family.views[i].type == family.views[j].type])
    first, second = family.views[i], family.views[j]
    family.operands[i], family.operands[j] = second, first
    return f"{label_of(family)}: {family.fields.data[i].name} and {family.fields.data[j].name} are swapped"


def other_operand(graph: GraphOp, rng: random.Random) -> str:
    """Replaces an operand of a step by another view of its type."""
    op = drawn(rng, ops(graph, (FamilyOp, CopyOp, CallOp, StreamInOp, StreamOutOp, IfOp, WhileOp)))  # type: ignore[arg-type]
    number, value = drawn(rng, [(i, v) for i, v in enumerate(op.operands) if isinstance(v.type, TensorType)])
    values = [r for o in ops(graph, (StorageOp, ViewOp)) for r in o.results if r.type == value.type and r is not value]  # type: ignore[arg-type]
    other = drawn(rng, [v for v in values if comes_before(v, op)])
    op.operands[number] = other
    return f"{label_of(op)}: operand {number} is '{storage_of(other).label.data}'"


def comes_before(value: SSAValue, op: Operation) -> bool:
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
    family = family_of(graph, rng)
    number, field = drawn(rng, list(enumerate(family.fields.data)))
    return _with_field(family, number, replace(field, kind=rng.choice([k for k in ("in", "out", "inout") if k != field.kind])))


def parameter(graph: GraphOp, rng: random.Random) -> str:
    """Changes a parameter of a codelet."""
    family = family_of(graph, rng)
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
    return f"{label_of(family)}: {name} = {value} is {new}"


def argument_kind(graph: GraphOp, rng: random.Random) -> str:
    """Changes whether a function reads a parameter, writes it, or both."""
    op = drawn(rng, ops(graph, ParamOp))
    before, op.kind = op.kind, StringAttr(rng.choice([k for k in ("in", "out", "inout") if k != op.kind.data]))
    return f"'{op.label.data}': {before.data} is {op.kind.data}"
