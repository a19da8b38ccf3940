"""Conversions of factorisations and triangular systems: the ops, and the calls of LAPACK and of XLA's own that JAX writes for them.

Small matrices are written out by columns or rows, and of larger ones a loop of the tile program has an iteration for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from xdsl.builder import Builder
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, i32
from xdsl.ir import Block, Region, SSAValue
from xdsl.rewriter import InsertPoint

from populus.dialects import popart
from populus.dialects.base.control_flow import INDEX
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of
from populus.lowering.stablehlo.to_popart.complex_math import divide, subtract
from populus.lowering.stablehlo.to_popart.contraction import bilinear
from populus.lowering.stablehlo.to_popart.conversion import Conversion, Pair, Rules, Value, element, real, shape

WRITTEN_OUT = 32  # rows or columns of a matrix up to which there is no loop


def _entry(c: Conversion, x: Value, row: slice, column: slice) -> Value:
    """Gives a block of the matrices in the last two dimensions."""

    def one(v: SSAValue) -> SSAValue:
        rank = len(shape(v))
        return c.slice(v, {rank - 2: (row.start, row.stop, 1), rank - 1: (column.start, column.stop, 1)})

    return Pair(one(x.real), one(x.imag)) if isinstance(x, Pair) else one(real(x))


def _both(c: Conversion, kind: Any, on_pairs: Callable[..., Value], a: Value, b: Value) -> Value:
    return on_pairs(c, a, b) if isinstance(a, Pair) and isinstance(b, Pair) else c(kind, real(a), real(b))


def _mapped(x: Value, f: Callable[[SSAValue], SSAValue]) -> Value:
    return Pair(f(x.real), f(x.imag)) if isinstance(x, Pair) else f(real(x))


def _stacked(c: Conversion, rows: Sequence[Value], axis_from_end: int) -> Value:
    def one(parts: Sequence[SSAValue]) -> SSAValue:
        return parts[0] if len(parts) == 1 else c(popart.ConcatOp, *parts, axis=len(shape(parts[0])) - axis_from_end)

    if any(isinstance(r, Pair) for r in rows):
        pairs = cast("Sequence[Pair]", rows)
        return Pair(one([p.real for p in pairs]), one([p.imag for p in pairs]))
    return one([real(r) for r in rows])


def looped(
    c: Conversion, trips: int, states: Sequence[SSAValue], step: Callable[[Conversion, SSAValue, Sequence[SSAValue]], Sequence[SSAValue]]
) -> list[SSAValue]:
    """Builds a loop: `step` gives the next states, and after them what has a row for each iteration, from its number and the states."""
    block = Block(arg_types=[INDEX, *(v.type for v in states)])
    inner = c.at(Builder(InsertPoint.at_end(block)))
    block.add_op(popart.YieldOp(*step(inner, block.args[0], block.args[1:])))
    loop = popart.LoopOp(list(states), Region(block), trips=trips)
    c.insert(loop)
    return list(loop.results)


def places(c: Conversion, rank: int, dim: int, size: int) -> SSAValue:
    """Gives the positions along a dimension, in a shape that broadcasts."""
    import numpy as np

    return c.constant(np.arange(size, dtype=np.int32).reshape([size if d == dim else 1 for d in range(rank)]))


def turned(c: Conversion, x: Value) -> Value:
    """Transposes matrices."""

    def one(v: SSAValue) -> SSAValue:
        rank = len(shape(v))
        return c.transpose(v, (*range(rank - 2), rank - 1, rank - 2))

    return _mapped(x, one)


def adjoint(c: Conversion, x: Value) -> Value:
    """Transposes matrices; complex ones are conjugated too."""
    x = turned(c, x)
    return Pair(x.real, c(popart.NegOp, x.imag)) if isinstance(x, Pair) else x


def sizes(x: Value) -> tuple[int, ...]:
    """Gives the shape of a tensor, complex or not."""
    return shape(x.real if isinstance(x, Pair) else real(x))


def solved(c: Conversion, a: Value, b: Value, *, left: bool, lower: bool, mode: str, unit: bool) -> Value:
    """Solves `op(a) x = b`, or `x op(a) = b`, of a triangular matrix: row by row of the unknown, each from those that are known."""
    if 0 in sizes(b):
        return b
    own = element(b.real if isinstance(b, Pair) else real(b))
    a, b = _mapped(a, c.wide), _mapped(b, c.wide)
    if mode != "NO_TRANSPOSE":
        a, lower = adjoint(c, a) if mode == "ADJOINT" else turned(c, a), not lower
    if not left:  # x a = b is a' x' = b'
        a, b, lower = turned(c, a), turned(c, b), not lower
    n = sizes(a)[-1]
    if n > WRITTEN_OUT and isinstance(a, SSAValue) and isinstance(b, SSAValue):
        x: Value = substituted(c, a, b, lower=lower, unit=unit)
    else:
        x = substituted_rows(c, a, b, lower=lower, unit=unit)
    x = x if left else turned(c, x)
    return _mapped(x, lambda v: c.cast(v, own))


def substituted_rows(c: Conversion, a: Value, b: Value, *, lower: bool, unit: bool) -> Value:
    """Solves `a x = b`, with ops for each row."""
    n, columns = sizes(a)[-1], sizes(b)[-1]
    found: list[Value] = []
    for step in range(n):
        i = step if lower else n - 1 - step
        rest = _entry(c, b, slice(i, i + 1), slice(0, columns))
        if found:
            known = _stacked(c, found if lower else found[::-1], 2)
            row = _entry(c, a, slice(i, i + 1), slice(0, i) if lower else slice(i + 1, n))
            product = bilinear(c, row, known, lambda p, q: c(popart.MatMulOp, p, q))
            rest = _both(c, popart.SubOp, subtract, rest, product)
        if not unit:
            rest = _both(c, popart.DivOp, divide, rest, _entry(c, a, slice(i, i + 1), slice(i, i + 1)))
        found.append(rest)
    return _stacked(c, found if lower else found[::-1], 2)


def substituted(c: Conversion, a: SSAValue, b: SSAValue, *, lower: bool, unit: bool) -> SSAValue:
    """Solves `a x = b` by a loop over the rows; those that are not known yet are zeros, and so are the entries that are not read."""
    rank, n = len(shape(a)), shape(a)[-1]
    rows, columns = places(c, rank, rank - 2, n), places(c, rank, rank - 1, n)
    zero = c.scalar(0, a)
    kept = c(popart.GreaterOp if lower else popart.LessOp, rows, columns)
    others = c(popart.WhereOp, kept, a, zero)
    diagonal = c(popart.ReduceSumOp, c(popart.WhereOp, c(popart.EqualOp, rows, columns), a, zero), axes=(rank - 1,), keep=True)

    def step(inner: Conversion, number: SSAValue, states: Sequence[SSAValue]) -> Sequence[SSAValue]:
        (x,) = states
        at = inner.reshape(number if lower else inner(popart.SubOp, inner.scalar(n - 1, number), number), (1,))
        row, rest = (inner(popart.GatherOp, v, at, axis=rank - 2) for v in (others, b))
        rest = inner(popart.SubOp, rest, inner(popart.MatMulOp, row, x))
        if not unit:
            rest = inner(popart.DivOp, rest, inner(popart.GatherOp, diagonal, at, axis=rank - 2))
        return [inner(popart.WhereOp, inner(popart.EqualOp, rows, at), rest, x)]

    return looped(c, n, [c.filled(0, b)], step)[0]


def triangular_solve(c: Conversion) -> Value:
    """Converts triangular_solve."""
    a, b = c.inputs
    flags = {"left": bool(c.get("left_side")), "lower": bool(c.get("lower")), "unit": bool(c.get("unit_diagonal"))}
    return solved(c, a, b, mode=c.get("transpose_a"), **flags)


def cholesky(c: Conversion) -> Value:
    """Converts cholesky."""
    return factored(c, c.inputs[0], lower=bool(c.get("lower")))


def factored(c: Conversion, a: Value, *, lower: bool) -> Value:
    """Gives `l` of `a = l l'`, column by column, each from those before; of a complex matrix, `l` times its adjoint."""
    if 0 in sizes(a):
        return a
    own = element(a.real if isinstance(a, Pair) else real(a))
    a = _mapped(a, c.wide)
    if not lower:
        a = adjoint(c, a)
    large = sizes(a)[-1] > WRITTEN_OUT and isinstance(a, SSAValue)
    found = factored_by_loop(c, real(a)) if large else factored_columns(c, a)
    found = found if lower else adjoint(c, found)
    return _mapped(found, lambda v: c.cast(v, own))


def factored_columns(c: Conversion, a: Value) -> Value:
    """Gives the factor, with ops for each column."""
    import numpy as np

    *batch, n, _ = sizes(a)
    done: list[Value] = []
    for i in range(n):
        column = _entry(c, a, slice(i, n), slice(i, i + 1))
        if done:
            below = _stacked(c, [_entry(c, d, slice(i, n), slice(0, 1)) for d in done], 1)
            row = adjoint(c, _entry(c, below, slice(0, 1), slice(0, len(done))))
            column = _both(c, popart.SubOp, subtract, column, bilinear(c, below, row, lambda p, q: c(popart.MatMulOp, p, q)))
        head = _entry(c, column, slice(0, 1), slice(0, 1))
        root = c(popart.SqrtOp, head.real if isinstance(head, Pair) else real(head))
        column = _mapped(column, lambda v, root=root: c(popart.DivOp, v, root))
        zeros = np.zeros((*batch, i, 1), dtype_of(element(root)))
        done.append(_mapped(column, lambda v, zeros=zeros, i=i: c(popart.ConcatOp, c.constant(zeros), v, axis=len(batch)) if i else v))
    return _stacked(c, done, 1)


def factored_by_loop(c: Conversion, a: SSAValue) -> SSAValue:
    """Gives the factor of a real matrix by a loop over its columns; those that are not known yet are zeros."""
    rank, n = len(shape(a)), shape(a)[-1]
    rows, columns = places(c, rank, rank - 2, n), places(c, rank, rank - 1, n)
    zero = c.scalar(0, a)

    def step(inner: Conversion, number: SSAValue, states: Sequence[SSAValue]) -> Sequence[SSAValue]:
        (l,) = states
        at = inner.reshape(number, (1,))
        row = real(turned(inner, inner(popart.GatherOp, l, at, axis=rank - 2)))
        column = inner(popart.SubOp, inner(popart.GatherOp, a, at, axis=rank - 1), inner(popart.MatMulOp, l, row))
        root = inner(popart.SqrtOp, inner(popart.GatherOp, column, at, axis=rank - 2))
        column = inner(popart.WhereOp, inner(popart.LessOp, rows, at), zero, inner(popart.DivOp, column, root))
        return [inner(popart.WhereOp, inner(popart.EqualOp, columns, at), column, l)]

    return looped(c, n, [c.filled(0, a)], step)[0]


def eliminated(c: Conversion, a: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue]:
    """Gives `l` below and `u` above the diagonal of `p a = l u`, the row that each step exchanges, from 0, and the order of rows.

    The pivot of a column is the first of its largest elements. Of a column of zeros nothing is divided, as by LAPACK.
    """
    import numpy as np

    *batch, m, n = shape(a)
    count, steps = int(np.prod(batch)), min(m, n)
    a, own = c.wide(c.reshape(a, (count, m, n))), element(a)
    rows, columns = places(c, 3, 1, m), places(c, 3, 2, n)
    flat = c.constant(np.arange(count, dtype=np.int32).reshape(count, 1, 1) * m)
    order = c.constant(np.tile(np.arange(m, dtype=np.int32).reshape(1, m, 1), (count, 1, 1)))

    def step(inner: Conversion, k: SSAValue, states: Sequence[SSAValue]) -> Sequence[SSAValue]:
        at, below = inner.reshape(k, (1,)), inner(popart.GreaterOp, rows, k)
        column = inner(popart.GatherOp, states[0], at, axis=2)
        size = inner(popart.WhereOp, inner(popart.LessOp, rows, k), inner.scalar(-1, column), inner(popart.AbsOp, column))
        largest = inner(popart.EqualOp, size, inner(popart.ReduceMaxOp, size, axes=(1,), keep=True))
        pivot = inner(popart.ReduceMinOp, inner(popart.WhereOp, largest, rows, inner.scalar(m, rows)), axes=(1,), keep=True)
        pivot = inner(popart.WhereOp, inner(popart.EqualOp, pivot, inner.scalar(m, pivot)), k, pivot)  # the column has NaN
        moved = inner(popart.WhereOp, inner(popart.EqualOp, rows, pivot), k, rows)
        moved = inner(popart.AddOp, inner(popart.WhereOp, inner(popart.EqualOp, rows, k), pivot, moved), flat)
        picked = inner.reshape(moved, (count * m,))
        x, new = (
            inner.reshape(inner(popart.GatherOp, inner.reshape(v, (count * m, shape(v)[2])), picked, axis=0), shape(v)) for v in states
        )
        column, row = inner(popart.GatherOp, x, at, axis=2), inner(popart.GatherOp, x, at, axis=1)
        head = inner(popart.GatherOp, column, at, axis=1)
        head = inner(popart.WhereOp, inner(popart.EqualOp, head, inner.scalar(0, head)), inner.scalar(1, head), head)
        factor = inner(popart.DivOp, column, head)
        left = inner(popart.SubOp, x, inner(popart.MulOp, factor, row))
        left = inner(popart.WhereOp, inner(popart.GreaterOp, columns, k), left, x)
        left = inner(popart.WhereOp, inner(popart.EqualOp, columns, k), factor, left)
        return [inner(popart.WhereOp, below, left, x), new, inner.reshape(pivot, (count,))]

    if 0 in (count, steps):
        return c.cast(c.reshape(a, (*batch, m, n)), own), c.constant(np.zeros((*batch, steps), np.int32)), c.reshape(order, (*batch, m))
    found, order, pivots = looped(c, steps, [a, order], step)
    pivots = c.reshape(c.transpose(pivots, (1, 0)), (*batch, steps))
    return c.cast(c.reshape(found, (*batch, m, n)), own), pivots, c.reshape(order, (*batch, m))


def lu(c: Conversion) -> list[Value]:
    """Converts XLA's call of LU: the factors, the exchanged rows, and the order of rows."""
    return list(eliminated(c, c.input(0)))


def geqrf(c: Conversion) -> list[Value]:
    """Converts QR: `r` on and above the diagonal, the reflectors `1 - tau v v'` below it by their `v`, and `tau` of each.

    Elements are divided by the largest one before they are squared. Source: LAPACK's xGEQRF and xLARFG.
    """
    import numpy as np

    a = c.input(0)
    *batch, m, n = shape(a)
    count, steps = int(np.prod(batch)), min(m, n)
    if 0 in (count, steps):
        return [a, c.expand(c.scalar(0, a), (*batch, steps))]
    rows, columns = places(c, 3, 1, m), places(c, 3, 2, n)

    def step(inner: Conversion, k: SSAValue, states: Sequence[SSAValue]) -> Sequence[SSAValue]:
        (x,), at = states, inner.reshape(k, (1,))
        below, own = inner(popart.GreaterOp, rows, k), inner(popart.EqualOp, rows, k)
        zero, one = inner.scalar(0, x), inner.scalar(1, x)
        column = inner(popart.GatherOp, x, at, axis=2)
        head, rest = inner(popart.GatherOp, column, at, axis=1), inner(popart.WhereOp, below, column, zero)
        largest = inner(popart.ReduceMaxOp, inner(popart.AbsOp, inner(popart.WhereOp, own, head, rest)), axes=(1,), keep=True)
        unit = inner(popart.WhereOp, inner(popart.EqualOp, largest, zero), one, largest)
        small, first = inner(popart.DivOp, rest, unit), inner(popart.DivOp, head, unit)
        square = inner(popart.ReduceSumOp, inner(popart.MulOp, small, small), axes=(1,), keep=True)
        done = inner(popart.EqualOp, square, zero)
        length = inner(popart.SqrtOp, inner(popart.AddOp, square, inner(popart.MulOp, first, first)))
        length = inner(popart.MulOp, unit, length)
        length = inner(popart.WhereOp, inner(popart.LessOp, head, zero), length, inner(popart.NegOp, length))
        length = inner(popart.WhereOp, done, head, length)
        tau = inner(popart.WhereOp, done, zero, inner(popart.DivOp, inner(popart.SubOp, length, head), length))
        by = inner(popart.WhereOp, done, one, inner(popart.SubOp, head, length))
        v = inner(popart.WhereOp, own, one, inner(popart.DivOp, rest, by))
        kept = inner(popart.WhereOp, below, v, inner(popart.WhereOp, own, length, column))
        right = inner(popart.WhereOp, inner(popart.GreaterOp, columns, k), reflected(inner, x, v, tau), x)
        return [inner(popart.WhereOp, inner(popart.EqualOp, columns, k), kept, right), inner.reshape(tau, (count,))]

    found, taus = looped(c, steps, [c.reshape(a, (count, m, n))], step)
    return [c.reshape(found, shape(a)), c.reshape(c.transpose(taus, (1, 0)), (*batch, steps))]


def reflected(c: Conversion, x: SSAValue, v: SSAValue, tau: SSAValue) -> SSAValue:
    """Gives `(1 - tau v v') x`."""
    along = c(popart.MatMulOp, real(turned(c, v)), x)
    return c(popart.SubOp, x, c(popart.MulOp, v, c(popart.MulOp, tau, along)))


def orgqr(c: Conversion) -> Value:
    """Converts the product of reflectors: the first columns of `q`, from the last reflector to the first one."""
    import numpy as np

    a, taus = c.input(0), c.input(1)
    *batch, m, n = shape(a)
    count, steps = int(np.prod(batch)), shape(taus)[-1]
    begin = c.expand(c.constant(np.eye(m, n, dtype=dtype_of(element(a)))), (count, m, n))
    if 0 in (count, m, n, steps):
        return c.reshape(begin, c.shape())
    a, taus, rows = c.reshape(a, (count, m, n)), c.reshape(taus, (count, 1, steps)), places(c, 3, 1, m)

    def step(inner: Conversion, number: SSAValue, states: Sequence[SSAValue]) -> Sequence[SSAValue]:
        k = inner(popart.SubOp, inner.scalar(steps - 1, number), number)
        at = inner.reshape(k, (1,))
        column = inner(popart.GatherOp, a, at, axis=2)
        v = inner(popart.WhereOp, inner(popart.GreaterOp, rows, k), column, inner.scalar(0, a))
        v = inner(popart.WhereOp, inner(popart.EqualOp, rows, k), inner.scalar(1, a), v)
        return [reflected(inner, states[0], v, inner(popart.GatherOp, taus, at, axis=2))]

    return c.reshape(looped(c, steps, [begin], step)[0], c.shape())


def getrf(c: Conversion) -> list[Value]:
    """Converts LAPACK's LU: the factors, the exchanged rows from 1, and the number of the first pivot that is 0, or 0."""
    found, pivots, _ = eliminated(c, c.input(0))
    n = min(shape(found)[-2:])
    none = c(popart.EqualOp, diagonal_of(c, found), c.scalar(0, found))
    return [found, c(popart.AddOp, pivots, c.scalar(1, pivots)), first(c, none, n)]


def potrf(c: Conversion) -> list[Value]:
    """Converts LAPACK's Cholesky: the factor beside the other triangle as it is, and the number of the first bad pivot, or 0."""
    a, lower = c.input(0), option(c, "uplo", "LU") == "L"
    found = real(factored(c, a, lower=lower))
    rank, n = len(shape(a)), shape(a)[-1]
    rows, columns = places(c, rank, rank - 2, n), places(c, rank, rank - 1, n)
    kept = c(popart.GreaterOrEqualOp if lower else popart.LessOrEqualOp, rows, columns)
    good = c(popart.GreaterOp, diagonal_of(c, found), c.scalar(0, found))  # NaN is not
    return [c(popart.WhereOp, kept, found, a), first(c, c(popart.NotOp, good), n)]


def trsm(c: Conversion) -> Value:
    """Converts LAPACK's solver of triangular systems."""
    mode = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}[option(c, "trans_x", "NTC")]
    lower, unit = option(c, "uplo", "LU") == "L", option(c, "diag", "NU") == "U"
    return solved(c, c.inputs[0], c.inputs[1], left=option(c, "side", "LR") == "L", lower=lower, mode=mode, unit=unit)


def diagonal_of(c: Conversion, x: SSAValue) -> SSAValue:
    """Gives the diagonals of matrices."""
    *batch, m, n = shape(x)
    k = min(m, n)
    x = c.slice(x, {len(batch): (0, k, 1), len(batch) + 1: (0, k, 1)})
    rank = len(batch) + 2
    same = c(popart.EqualOp, places(c, rank, rank - 2, k), places(c, rank, rank - 1, k))
    return c(popart.ReduceSumOp, c(popart.WhereOp, same, x, c.scalar(0, x)), axes=(rank - 1,), keep=False)


def first(c: Conversion, marked: SSAValue, n: int) -> SSAValue:
    """Gives the number, from 1, of the first marked element of each row; 0 without one."""
    rank = len(shape(marked))
    if n == 0:
        return c.expand(c.scalar(0, i32), shape(marked)[:-1])
    numbers = c(popart.AddOp, places(c, rank, rank - 1, n), c.scalar(1, i32))
    found = c(popart.WhereOp, marked, numbers, c.scalar(n + 1, i32))
    least = c(popart.ReduceMinOp, found, axes=(rank - 1,), keep=False)
    return c(popart.WhereOp, c(popart.EqualOp, least, c.scalar(n + 1, i32)), c.scalar(0, i32), least)


def option(c: Conversion, name: str, letters: str) -> str:
    """Gives an option of LAPACK's, a letter. Raises PopulusError if it is none of these."""
    stated = c.op.stated("backend_config")
    entry = stated.data.get(name) if isinstance(stated, DictionaryAttr) else None
    found = chr(entry.value.data & 127) if isinstance(entry, IntegerAttr) else "missing"
    if found not in letters:
        raise PopulusError(f"custom_call @{c.get('call_target_name')}: {name} is {found}; one of {', '.join(letters)} is expected")
    return found


CALLED: Rules = {
    "LuDecomposition": lu,
    "ProductOfElementaryHouseholderReflectors": orgqr,
    "Qr": geqrf,
    **{f"lapack_{t}geqrf_ffi": geqrf for t in "sd"},
    **{f"lapack_{t}getrf_ffi": getrf for t in "sd"},
    **{f"lapack_{t}orgqr_ffi": orgqr for t in "sd"},
    **{f"lapack_{t}potrf_ffi": potrf for t in "sd"},
    **{f"lapack_{t}trsm_ffi": trsm for t in "sdcz"},
}
"""The calls that have a conversion, by their targets."""
RULES: Rules = {"cholesky": cholesky, "triangular_solve": triangular_solve}
