"""Slices of concatenations, and concatenations of slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from populus.dialects import popart
from populus.dialects.popart import calls
from populus.lowering.popart.rewriting import Pattern, Rewriting, made_by, read_once

Bounds = list[tuple[int, int, int]]


class SliceOfSlice(Pattern[popart.SliceOp]):
    """A slice of a slice is one. Legal: the result has elements."""

    ROOTS = (popart.SliceOp,)

    def rewrite(self, op: popart.SliceOp, r: Rewriting) -> Sequence[SSAValue] | None:
        inner = made_by(op.x, popart.SliceOp, op)
        if inner is None or 0 in calls.shape(op.y):
            return None
        bounds: Bounds = []
        for size, (begin, _, step), (begin_in, _, step_in) in zip(calls.shape(op.y), op.bounds(), inner.bounds()):
            first, by = begin_in + begin * step_in, step * step_in
            bounds.append((first, first + (size - 1) * by + (1 if by > 0 else -1), by))
        return [_sliced(r, inner.x, bounds)]


class SliceOfConcat(Pattern[popart.SliceOp]):
    """A slice within one part of a concatenation is a slice of that part. Legal: forwards along the axis, with
    elements.
    """

    ROOTS = (popart.SliceOp,)

    def rewrite(self, op: popart.SliceOp, r: Rewriting) -> Sequence[SSAValue] | None:
        whole = made_by(op.x, popart.ConcatOp, op)
        if whole is None:
            return None
        axis, bounds, at = whole.axis, op.bounds(), 0
        begin, end, step = bounds[axis]
        if step < 1 or calls.shape(op.y)[axis] == 0:
            return None
        for part in whole.operands:
            size = calls.shape(part)[axis]
            if at <= begin and end <= at + size:
                bounds[axis] = (begin - at, end - at, step)
                return [_sliced(r, part, bounds)]
            at += size
        return None


class ConcatOfSlices(Pattern[popart.ConcatOp]):
    """Neighbouring slices of one tensor, concatenated again, are one slice.

    Legal: they differ along the axis only, by step 1, in order. An empty slice whose end is before its begin is no neighbour.
    """

    ROOTS = (popart.ConcatOp,)

    def rewrite(self, op: popart.ConcatOp, r: Rewriting) -> Sequence[SSAValue] | None:
        axis = op.axis
        parts: list[_Part] = []
        for operand in op.operands:
            part = _part(operand, axis, op)
            last = parts[-1] if parts else None
            if last is not None and last.bounds and part.bounds and last.x is part.x and _follows(last.bounds, part.bounds, axis):
                merged = [*last.bounds[:axis], (last.bounds[axis][0], part.bounds[axis][1], 1), *last.bounds[axis + 1 :]]
                parts[-1] = _Part(None, part.x, merged)
            else:
                parts.append(part)
        if len(parts) == len(op.operands):
            return None
        values = [p.value or _sliced(r, p.x, p.bounds or []) for p in parts]
        return [values[0] if len(values) == 1 else r.insert(popart.ConcatOp(*values, axis=axis))]


class ConcatOfConcat(Pattern[popart.ConcatOp]):
    """A concatenation whose only user concatenates along the same axis is part of that one. Always legal."""

    ROOTS = (popart.ConcatOp,)

    def rewrite(self, op: popart.ConcatOp, r: Rewriting) -> Sequence[SSAValue] | None:
        values: list[SSAValue] = []
        for operand in op.operands:
            inner = made_by(operand, popart.ConcatOp, op)
            merges = inner is not None and inner.axis == op.axis and read_once(operand)
            values.extend(inner.operands if inner is not None and merges else [operand])
        return [r.insert(popart.ConcatOp(*values, axis=op.axis))] if len(values) > len(op.operands) else None


def _sliced(r: Rewriting, x: SSAValue, bounds: Bounds) -> SSAValue:
    """Inserts a slice, or returns x if the slice is all of x."""
    if all(bound == (0, n, 1) for n, bound in zip(calls.shape(x), bounds)):
        return x
    begins, ends, steps = zip(*bounds)
    return r.insert(popart.SliceOp(x, begins=begins, ends=ends, steps=steps))


@dataclass(frozen=True)
class _Part:
    """An operand of a concatenation (None: several, merged), and its slice of x; no bounds if it is no slice."""

    value: SSAValue | None
    x: SSAValue
    bounds: Bounds | None


def _part(value: SSAValue, axis: int, beside: Operation) -> _Part:
    op = made_by(value, popart.SliceOp, beside)
    return _Part(value, value, None) if op is None or op.bounds()[axis][2] != 1 else _Part(value, op.x, op.bounds())


def _follows(first: Bounds, second: Bounds, axis: int) -> bool:
    forwards = all(begin <= end for begin, end, _ in (first[axis], second[axis]))
    return forwards and first[axis][1] == second[axis][0] and all(a == b for d, (a, b) in enumerate(zip(first, second)) if d != axis)
