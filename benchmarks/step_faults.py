"""Faults of variables, views and steps in tile programs: what is shrunk, left out, moved, or swapped."""

from __future__ import annotations

import random
from dataclasses import replace

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, i64
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from benchmarks.family_faults import NothingToChange, comes_before, drawn, label_of, ops
from populus.dialects.base.tensor_op import ints
from populus.dialects.poplar.compute import CopyOp, ExecuteOp, FamilyOp
from populus.dialects.poplar.memory import ConstOp, SliceOp, StorageOp, VarOp, ViewOp, storage_of
from populus.dialects.poplar.program import CallOp, GraphOp, IfOp, RepeatOp, StreamInOp, StreamOutOp, WhileOp
from populus.dialects.poplar.types import GridAttr, TensorType

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
    said = f"{label_of(op)} is left out"
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
    said = f"{label_of(op)} runs in {label_of(earlier)}"
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
    return f"{label_of(op)}: families {first} and {second} change places"


def reordered(graph: GraphOp, rng: random.Random) -> str:
    """Swaps two steps that follow each other."""
    kinds = (ExecuteOp, CopyOp, CallOp, RepeatOp, IfOp, WhileOp, StreamInOp, StreamOutOp)
    op = drawn(rng, ops(graph, kinds))  # type: ignore[arg-type]
    before = op.prev_op
    while isinstance(before, StorageOp | ViewOp):
        before = before.prev_op
    if not isinstance(before, kinds):
        raise NothingToChange
    said = f"{label_of(op)} runs before {label_of(before)}"
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
    other = drawn(rng, [c for c in ops(graph, ConstOp) if c.result.type == type and comes_before(c.result, op)])
    op.operands[number] = other.result
    return f"{label_of(op)} writes '{other.label.data}'"
