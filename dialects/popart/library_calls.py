"""Library calls as functions on values, for `lower` and `gradient`: each inserts what is needed and no more.

s = calls.reduce(b, "add", calls.map(b, Arg(1) * Arg(2), x, g), dims=(0,))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FloatAttr, IntegerAttr, TensorType, f64, i1, i64
from xdsl.ir import Attribute, SSAValue

from populus.dialects import expr
from populus.dialects.base.tensor_op import TensorOp
from populus.dialects.data import constant
from populus.dialects.expr import Arg, Expr
from populus.dialects.poplar.codelets import register
from populus.dialects.poplar.sums import narrowed, widened
from populus.dialects.poplar.target import sum_type
from populus.dialects.poplar.tile_program import TileCode
from populus.dialects.popops import (
    BroadcastOp,
    CodeletOp,
    ConcatOp,
    DimShuffleOp,
    MapOp,
    MultiUpdateOp,
    PadOp,
    ReduceOp,
    ReshapeOp,
    SliceOp,
)
from populus.dialects.support.element_types import dtype_of, element_type_of, is_float, shape_of


def element(x: SSAValue) -> Attribute:
    """Returns the element type of a tensor value."""
    return element_type_of(x.type)


def shape(x: SSAValue) -> tuple[int, ...]:
    """Returns the shape of a tensor value."""
    return shape_of(x.type)


def insert(b: Builder, op: TensorOp) -> SSAValue:
    """Inserts `op` and returns its only result."""
    return b.insert(op).results[0]


def fill(b: Builder, value: float | bool, type: Attribute, to: Sequence[int] = ()) -> SSAValue:
    """Creates a constant of shape `to` (a scalar by default) and element type `type`."""
    import numpy as np

    return b.insert(constant(np.broadcast_to(np.array(value, dtype_of(type)), tuple(to)))).result


def map(b: Builder, e: Expr, *values: SSAValue) -> SSAValue:
    """Inserts `popops.map` over the values that `e` reads; no op if `e` is one of them."""
    if isinstance(e, Arg):
        return values[e.index - 1]
    read = sorted(expr.args_of(e))
    if read != list(range(1, len(values) + 1)):
        e = expr.substitute(e, {old: Arg(new) for new, old in enumerate(read, 1)})
        values = tuple(values[i - 1] for i in read)
    return insert(b, MapOp(*values, expr=e))


def reduce(b: Builder, op: str, x: SSAValue, dims: Sequence[int], to: Attribute | None = None) -> SSAValue:
    """Reduces x over `dims`, to the element type `to` if that is not x's. Over no dimension, x stays (squared for `square_add`)."""
    to = None if to == element(x) else to
    if not dims:
        wide = Arg(1) if to is None else expr.cast(Arg(1), to)
        return map(b, expr.square(wide) if op == "square_add" else wide, x)
    return insert(b, ReduceOp(x, op=op, dims=tuple(dims), **({} if to is None else {"to": to})))


def codelet(
    b: Builder,
    code: TileCode,
    *values: SSAValue,
    shape: Sequence[int] | None = None,
    element: Attribute | None = None,
    parts: Mapping[str, int] | None = None,
    **params: float | int | bool,
) -> SSAValue:
    """Calls a codelet written in Python. Shape and element type of the result default to those of the first value.

    `parts`: the number of parts of each axis that is split over tiles. Without it, an operand's layout decides, or all tiles share.
    Raises VerifyException if values or parameters do not fit the codelet.
    """
    to = shape_of(values[0].type) if shape is None else tuple(shape)
    of = element_type_of(values[0].type) if element is None else element
    return codelets(b, code, *values, outputs=[(to, of)], parts=parts, **params)[0]


def codelets(
    b: Builder,
    code: TileCode,
    *values: SSAValue,
    outputs: Sequence[tuple[Sequence[int], Attribute]],
    parts: Mapping[str, int] | None = None,
    **params: float | int | bool,
) -> list[SSAValue]:
    """Calls a codelet with any number of outputs, given by shape and element type, in the order of its parameters; see `codelet`."""
    register(code)
    whole = {"int": i64, "bool": i1}
    given = DictionaryAttr(
        {n: IntegerAttr(int(v), whole[k]) if (k := code.scalars.get(n)) in whole else FloatAttr(float(v), f64) for n, v in params.items()}
    )
    types = ArrayAttr[Attribute]([TensorType(of, tuple(to)) for to, of in outputs])
    cut = {} if parts is None else {"parts": DictionaryAttr({axis: IntegerAttr(n, i64) for axis, n in parts.items()})}
    return list(b.insert(CodeletOp(*values, codelet=code.symbol, params=given, outputs=types, **cut)).results)


def reshape(b: Builder, x: SSAValue, to: Sequence[int]) -> SSAValue:
    """Reshapes x; returns x itself if it has that shape."""
    return x if tuple(to) == shape(x) else insert(b, ReshapeOp(x, shape=tuple(to)))


def transpose(b: Builder, x: SSAValue, permutation: Sequence[int]) -> SSAValue:
    """Permutes the dimensions of x: dimension i of the result is dimension permutation[i]."""
    if tuple(permutation) == tuple(range(len(permutation))):
        return x
    return insert(b, DimShuffleOp(x, permutation=tuple(permutation)))


def stretch(b: Builder, x: SSAValue, to: Sequence[int]) -> SSAValue:
    """Broadcasts x to a shape."""
    return x if tuple(to) == shape(x) else insert(b, BroadcastOp(x, shape=tuple(to)))


def slice(b: Builder, x: SSAValue, begins: Sequence[int], ends: Sequence[int], steps: Sequence[int] | None = None) -> SSAValue:
    """Slices `x[begins : ends : steps]`; returns x itself if that is all of it."""
    steps = (1,) * len(begins) if steps is None else steps
    if tuple(begins) == (0,) * len(begins) and tuple(ends) == shape(x) and all(s == 1 for s in steps):
        return x
    return insert(b, SliceOp(x, begins=tuple(begins), ends=tuple(ends), steps=tuple(steps)))


def slice_dim(b: Builder, x: SSAValue, dim: int, begin: int, end: int, step: int = 1) -> SSAValue:
    """Slices one dimension: `x[.., begin:end:step, ..]`."""
    s = shape(x)
    begins, ends, steps = [0] * len(s), list(s), [1] * len(s)
    begins[dim], ends[dim], steps[dim] = begin, end, step
    return slice(b, x, begins, ends, steps)


def reverse(b: Builder, x: SSAValue, dims: Sequence[int]) -> SSAValue:
    """Reverses x along each of `dims`."""
    s = shape(x)
    back = [d in dims and n > 1 for d, n in enumerate(s)]
    return slice(
        b,
        x,
        [n - 1 if r else 0 for n, r in zip(s, back)],
        [-1 if r else n for n, r in zip(s, back)],
        [-1 if r else 1 for r in back],
    )


def concat(b: Builder, parts: Sequence[SSAValue], dim: int) -> SSAValue:
    """Concatenates values along a dimension."""
    return parts[0] if len(parts) == 1 else insert(b, ConcatOp(*parts, dim=dim))


def pad(
    b: Builder,
    x: SSAValue,
    lower: Sequence[int],
    upper: Sequence[int],
    interior: Sequence[int] | None = None,
    value: SSAValue | None = None,
) -> SSAValue:
    """Pads x with `value` (0 by default) at its ends and between neighbours; negative `lower` and `upper` crop it."""
    interior = (0,) * len(lower) if interior is None else tuple(interior)
    before, behind = tuple(max(p, 0) for p in lower), tuple(max(p, 0) for p in upper)
    if any((*before, *behind, *interior)):
        value = fill(b, 0, element(x)) if value is None else value
        x = insert(b, PadOp(x, value, lower=before, upper=behind, interior=interior))
    return slice(b, x, [max(-p, 0) for p in lower], [n - max(-p, 0) for p, n in zip(upper, shape(x))])


def added_rows(b: Builder, n: int, indices: SSAValue, rows: SSAValue) -> SSAValue:
    """Computes `y[i] = sum of the rows whose index is i`, zeros where there is none. Halves are summed as floats.

    indices: [m], each within 0 .. n; rows: [m, ..]; y: [n, ..].
    """
    kind = element(rows)
    zeros = fill(b, 0, sum_type(kind), (n, *shape(rows)[1:]))
    y = insert(b, MultiUpdateOp(zeros, indices, map(b, widened(Arg(1), kind), rows), op="add"))
    return map(b, narrowed(Arg(1), kind), y)


def sum_to(b: Builder, x: SSAValue, to: Sequence[int]) -> SSAValue:
    """Sums x over the dimensions in which `to` was broadcast to x's shape: the transpose of broadcasting."""
    s, to = shape(x), tuple(to)
    if s == to:
        return x
    lead = len(s) - len(to)
    dims = [d for d, n in enumerate(s) if d < lead or (to[d - lead] == 1 and n != 1)]
    return reshape(b, reduce(b, "add", x, dims), to)


def sum_around(b: Builder, x: SSAValue, part: SSAValue) -> SSAValue:
    """Sums the elements of x that are not in `part` of it, to a scalar. Halves are summed as floats."""
    own = element(x)
    sums = (reduce(b, "add", v, range(len(shape(v))), sum_type(own)) for v in (x, part))
    return map(b, narrowed(Arg(1) - Arg(2), own), *sums)


def slopes(formula: Expr, elements: Sequence[Attribute]) -> list[Expr | None]:
    """Derives the gradients of a formula's n operands: `_n+1` stands for its value, `_n+2` for the gradient of that value."""
    n = len(elements)
    found = [expr.derivative(formula, i, Arg(n + 1)) if is_float(e) else None for i, e in enumerate(elements, 1)]
    return [None if s is None else expr.times(Arg(n + 2), s) for s in found]


def pull(b: Builder, gradients: Sequence[Expr | None], operands: Sequence[SSAValue], y: SSAValue, g: SSAValue) -> list[SSAValue | None]:
    """Computes gradient expressions, each summed to its operand's shape and cast to its element type; None unless that is a float."""
    values = [*operands, y, g]
    elements = [element(v) for v in values]
    results: list[SSAValue | None] = []
    for operand, e in zip(operands, gradients, strict=True):
        if e is None or not is_float(element(operand)):
            results.append(None)
            continue
        if expr.infer(e, elements) != element(operand):
            e = expr.cast(e, element(operand))
        results.append(sum_to(b, map(b, e, *values), shape(operand)))
    return results
