"""Shapes and positions where dimensions are bounded: Reshape, Expand, Slice, Split, Tile, Concat, Range and the like."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.data import constant, constant_value
from populus.dialects.onnx.attributes import filling
from populus.dialects.onnx.sizes import Size, as_size
from populus.dialects.support import shapes
from populus.dialects.support.budget import check_shape
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, is_integer
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, element, shape
from populus.lowering.onnx.to_popart.masked_ops import picked
from populus.lowering.onnx.to_popart.masks import Masks, Place
from populus.lowering.onnx.to_popart.tensor import offset
from populus.lowering.onnx.valid_sizes import (
    Axes,
    Axis,
    Factor,
    bound_of,
    bounded_names,
    described,
    is_counted,
    is_prefix,
    is_whole,
    prefix,
    resized,
    size_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

Rule: TypeAlias = "Callable[[Conversion], Output | list[Output]]"

LAST = 1 << 31  # an index from which on exporters mean "to the end"


def refused(c: Conversion, name: str = "") -> PopulusError:
    """Makes the error of an op that is not converted where sizes are bounded. `name`: the op that takes the place of ONNX's."""
    op, names = name or c.op.OP_TYPE, bounded_names(masks_of(c).valid.axes, c.op.operands)
    if stated := [f"'{n}'" for n in names if not is_counted(n)]:
        return PopulusError(f"{op} is not computed where the dimension {' and '.join(stated)} is bounded; bind it to one size")
    return PopulusError(f"the size of what it reads depends on the data; {op} is not among the ops that tiles compute then")


def masks_of(c: Place) -> Masks:
    """Gives the masks of a conversion with bounded dimensions."""
    assert c.masks is not None, c.op
    return c.masks


def numbers(c: Conversion, i: int) -> list[Size] | None:
    """Gives the integers of input `i` as sizes; None if it is absent. Raises PopulusError if they are known only at run time."""
    if not c.has(i):
        return None
    found: NDArray[Any] | None = masks_of(c).valid.symbols.get(c.input(i))
    return [as_size(v) for v in (c.known(i) if found is None else found).reshape(-1).tolist()]


def listed(c: Conversion, i: int, attribute: str) -> list[Size] | None:
    """Gives sizes that are an attribute in some versions of the op and input `i` in others; None if in neither."""
    if attribute in c.op.KINDS and (entries := c.get(attribute)) is not None:
        return [as_size(int(v)) for v in entries]
    return numbers(c, i) if i > 0 else None


def compacted(c: Place, x: SSAValue) -> SSAValue:
    """Moves the valid elements of merged axes to the front, so that each axis is a prefix."""
    m = masks_of(c)
    axes = m.valid.of(x)
    for d, a in enumerate(axes):
        if is_prefix(a):
            continue
        axes = (*axes[:d], prefix(bound_of(a), size_of(a)), *axes[d + 1 :])
        x = m.safe(c, m.state(picked(m, c, x, _places(c, m.iota(c, bound_of(a)), a), d), axes))
    return x


def cropped(c: Place, x: SSAValue, d: int, bound: int) -> SSAValue:
    """Cuts axis `d`, a prefix, to a smaller bound that its size does not exceed."""
    m = masks_of(c)
    axes, n = m.valid.of(x), shape(x)
    if n[d] == bound:
        return x
    ends = [bound if e == d else k for e, k in enumerate(n)]
    cut = m.plain(c, popart.SliceOp(x, begins=[0] * len(n), ends=ends, steps=[1] * len(n)))
    return m.state(cut, (*axes[:d], prefix(bound, size_of(axes[d])), *axes[d + 1 :]))


def require(c: Place, a: Axis, b: Axis) -> None:
    """Requires two axes to have equal sizes at run time. Raises PopulusError if their bounds exclude that."""
    first, second = size_of(a), size_of(b)
    low, high = (first - second).interval(masks_of(c).valid.bounds)
    if low > 0 or high < 0:
        raise PopulusError(f"sizes {first} and {second} meet, which differ for all sizes of the dimensions")
    if any(map(is_counted, first.names() | second.names())):
        raise PopulusError("two sizes meet of which the data decide one; they are not known to be equal")
    masks_of(c).require(str(first), str(second))


def agreed(c: Place, values: Sequence[SSAValue], dims: Sequence[Sequence[int | None]]) -> list[SSAValue]:
    """Makes axes that meet alike: equal sizes in equal positions.

    dims: for each group of axes that meet, the axis of each value; None where it has none. Sizes that may differ have to be equal
    at run time, which the host checks. Raises PopulusError if they cannot.
    """
    m, result = masks_of(c), list(values)
    for group in dims:
        there = [(i, d) for i, d in enumerate(group) if d is not None and bound_of(m.valid.of(result[i])[d]) != 1]
        axes = [m.valid.of(result[i])[d] for i, d in there]
        if all(map(is_whole, axes)) or len(set(axes)) <= 1:
            continue
        for a in axes[1:]:
            if size_of(a) != size_of(axes[0]):
                require(c, axes[0], a)
        if not all(map(is_prefix, axes)):
            for i, _ in there:
                result[i] = compacted(c, result[i])
        bound = min(bound_of(m.valid.of(result[i])[d]) for i, d in there)
        for i, d in there:
            result[i] = cropped(c, result[i], d, bound)
    return result


def aligned(c: Place, values: Sequence[SSAValue]) -> list[SSAValue]:
    """Makes the axes of operands that broadcast against each other alike, as `agreed`."""
    ranks = [len(shape(v)) for v in values]
    rank = max(ranks, default=0)
    return agreed(c, values, [[d - rank + r if d - rank + r >= 0 else None for r in ranks] for d in range(rank)])


def reshape(c: Conversion) -> Output:
    """Converts Reshape by the sizes of its result; where the valid part moves, by a gather."""
    m, x = masks_of(c), c.input(0)
    axes, asked = m.valid.of(x), listed(c, 1, "shape")
    if asked is None:
        raise PopulusError("its shape is absent")
    sizes: list[Size | None] = []
    for d, n in enumerate(asked):
        if n.constant == 0 and not c.get("allowzero"):
            if d >= len(axes):
                raise PopulusError(f"a 0 keeps a dimension of x, which is {described(axes)}")
            sizes.append(size_of(axes[d]))
        else:
            sizes.append(None if n.constant == -1 else n)
    return reshaped(c, x, _inferred(axes, sizes))


def reshaped(c: Conversion, x: SSAValue, sizes: Sequence[Size]) -> SSAValue:
    """Reshapes to valid `sizes`: a view if factors of axes stay whole, else a gather of rows."""
    m = masks_of(c)
    axes = resized(m.valid.of(x), sizes)
    if axes is not None:
        bounds = [bound_of(a) for a in axes]
        check_shape(bounds, "its result")
        return m.state(m.plain(c, popart.ReshapeOp(x, shape=bounds)), axes)
    own, final = m.valid.of(x), tuple(m.axis(n) for n in sizes)
    check_shape([bound_of(a) for a in final], "its result")
    tail = 0
    while tail < min(len(own), len(final)) and own[-1 - tail] == final[-1 - tail] and is_prefix(own[-1 - tail]):
        tail += 1
    lead, outer = own[: len(own) - tail], final[: len(final) - tail]
    rest = shape(x)[len(own) - tail :]
    table = m.plain(c, popart.ReshapeOp(x, shape=(math.prod(map(bound_of, lead)), *rest)))
    place = _places(c, _logical(c, outer), [f for a in lead for f in a])
    last = m.scalar(c, as_size(shape(table)[0] - 1))
    safe = m.plain(c, popart.MaxOp(m.plain(c, popart.MinOp(place, last)), m.scalar(c, as_size(0))))
    return m.state(m.plain(c, popart.GatherOp(table, safe, axis=0)), final)


def _logical(c: Conversion, axes: Axes) -> SSAValue:
    """Numbers valid elements in row-major order: i32, of the bounds of `axes`."""
    m, rank, stride = masks_of(c), len(axes), as_size(1)
    total: SSAValue | None = None
    for d in reversed(range(rank)):
        form = [bound_of(a) if e == d else 1 for e, a in enumerate(axes)]
        numbers_ = m.plain(c, popart.ReshapeOp(m.iota(c, bound_of(axes[d])), shape=form))
        part = m.plain(c, popart.MulOp(numbers_, m.scalar(c, stride)))
        total = part if total is None else m.plain(c, popart.AddOp(total, part))
        stride = stride * size_of(axes[d])
    return m.scalar(c, as_size(0)) if total is None else total


def _places(c: Place, logical: SSAValue, factors: Sequence[Factor]) -> SSAValue:
    """Computes the places, in a buffer of these factors, of elements by their number among the valid ones: i32."""
    m, stride = masks_of(c), 1
    total, left = m.scalar(c, as_size(0)), logical
    for f in reversed(factors):
        safe = m.plain(c, popart.MaxOp(m.scalar(c, f.size), m.scalar(c, as_size(1))))
        outer = m.plain(c, popart.DivOp(left, safe))
        index = m.plain(c, popart.SubOp(left, m.plain(c, popart.MulOp(outer, safe))))
        part = index if stride == 1 else m.plain(c, popart.MulOp(index, m.scalar(c, as_size(stride))))
        total = m.plain(c, popart.AddOp(total, part))
        left, stride = outer, stride * f.bound
    return total


def unsqueeze(c: Conversion) -> Output:
    """Converts Unsqueeze: new axes have one element."""
    m, x = masks_of(c), c.input(0)
    new = [_number(a) for a in listed(c, 1, "axes") or []]
    rank = len(shape(x)) + len(new)
    rest = iter(m.valid.of(x))
    dims = shapes.axes(new, rank)
    axes = tuple(() if d in dims else next(rest) for d in range(rank))
    return m.state(m.plain(c, popart.ReshapeOp(x, shape=[bound_of(a) for a in axes])), axes)


def squeeze(c: Conversion) -> Output:
    """Converts Squeeze: the axes that go have one element. Raises PopulusError for one that may have more."""
    m, x = masks_of(c), c.input(0)
    axes, asked = m.valid.of(x), listed(c, 1, "axes")
    if asked is None and any(not is_whole(a) and size_of(a).interval(m.valid.bounds)[0] <= 1 for a in axes):
        raise PopulusError(f"the axes of {described(axes)} that have one element depend on sizes; state them")
    gone = [d for d, a in enumerate(axes) if a == ()] if asked is None else shapes.axes([_number(a) for a in asked], len(axes))
    if wrong := [d for d in gone if axes[d] != ()]:
        raise PopulusError(f"axis {wrong[0]} of {described(axes)} may have another size than 1")
    kept = tuple(a for d, a in enumerate(axes) if d not in gone)
    return m.state(m.plain(c, popart.ReshapeOp(x, shape=[bound_of(a) for a in kept])), kept)


def _inferred(axes: Axes, sizes: Sequence[Size | None]) -> list[Size]:
    """Computes the size that is not stated. Raises PopulusError if the division leaves a rest."""
    total, known = as_size(1), as_size(1)
    for a in axes:
        total = total * size_of(a)
    for n in sizes:
        known = known if n is None else known * n
    left = total.exactly(known)
    if left is None or (left != as_size(1) and None not in sizes):
        wanted = "x".join("?" if n is None else f"({n})" for n in sizes)
        raise PopulusError(f"x has {total} elements, which do not make {wanted} for all sizes of the dimensions")
    return [left if n is None else n for n in sizes]


def expand(c: Conversion) -> Output:
    """Converts Expand to a broadcast to the bounds of its shape."""
    m, x, asked = masks_of(c), c.input(0), numbers(c, 1) or []
    axes = m.valid.of(x)
    rank = max(len(axes), len(asked))
    result: list[Axis] = []
    for d in range(rank):
        own = axes[d - rank + len(axes)] if d - rank + len(axes) >= 0 else ()
        n = asked[d - rank + len(asked)] if d - rank + len(asked) >= 0 else as_size(1)
        if bound_of(own) == 1:
            result.append(m.axis(n))
            continue
        if n.constant != 1 and n != size_of(own):
            require(c, own, m.axis(n))
        result.append(own)
    bounds = [bound_of(a) for a in result]
    check_shape(bounds, "its result")
    return m.state(x if shape(x) == tuple(bounds) else m.plain(c, popart.ExpandOp(x, shape=bounds)), tuple(result))


def constant_of_shape(c: Conversion) -> Output:
    """Converts ConstantOfShape to a constant of the bounds."""
    import numpy as np

    m, fill = masks_of(c), filling(c.get("value"))
    axes = tuple(m.axis(n) for n in numbers(c, 0) or [])
    bounds = [bound_of(a) for a in axes]
    check_shape(bounds, "its result")
    return m.state(m.plain(c, constant(np.broadcast_to(fill, bounds))), axes)


def range_(c: Conversion) -> Output:
    """Converts a Range of integers: its first number at run time, plus multiples of its step."""
    import numpy as np

    m, kind = masks_of(c), element(c.input(0))
    start, limit, step = ((numbers(c, i) or [])[0] for i in range(3))
    k = step.constant
    if not k or not is_integer(kind):
        raise PopulusError(f"its step is {step}, of {kind}; integers with a step that is one number are supported where a size is bounded")
    count = ((limit - start).ceildiv(k) if k > 0 else (start - limit).ceildiv(-k)).max(0).decided(m.valid.bounds)
    axis = m.axis(count)
    first = start.constant
    row = np.arange(bound_of(axis)) * k + (first or 0)
    result = m.plain(c, constant(row.astype(dtype_of(kind))))
    if first is None:
        result = m.plain(c, popart.AddOp(result, m.scalar(c, start, kind)))
    return m.state(result, (axis,))


def window(c: Place, x: SSAValue, d: int, begin: Size, size: Size, step: int = 1) -> SSAValue:
    """Gives `size` elements of axis `d` from `begin` on, at distance `step`: a view, or a gather at a run-time offset."""
    m = masks_of(c)
    axes, n = m.valid.of(x), shape(x)
    at = begin.constant
    bound = m.valid.upper(size)

    def final(length: int) -> Axes:
        return (*axes[:d], prefix(length, size), *axes[d + 1 :])

    if at is not None and step > 0 and at <= n[d]:
        bound = min(bound, -(-(n[d] - at) // step))
        begins, ends = [0] * len(n), list(n)
        begins[d], ends[d] = at, min(at + (bound - 1) * step + 1, n[d]) if bound else at
        if (begins[d], ends[d], step) == (0, n[d], 1):
            return m.state(m.plain(c, popart.ReshapeOp(x, shape=n)), final(bound))
        steps = [step if e == d else 1 for e in range(len(n))]
        return m.state(m.plain(c, popart.SliceOp(x, begins=begins, ends=ends, steps=steps)), final(bound))
    numbers_ = m.iota(c, bound)
    if step != 1:
        numbers_ = m.plain(c, popart.MulOp(numbers_, m.scalar(c, as_size(step))))
    return m.state(picked(m, c, x, m.plain(c, popart.AddOp(numbers_, m.scalar(c, begin))), d), final(bound))


def slice_(c: Conversion) -> Output:
    """Converts Slice with bounds that are sizes, of axes that have sizes. Source: ONNX Slice-13."""
    m = masks_of(c)
    x = compacted(c, c.input(0))
    begins, ends = listed(c, 1, "starts") or [], listed(c, 2, "ends") or []
    axes, steps = listed(c, 3, "axes"), numbers(c, 4) or [as_size(1)] * len(begins)
    dims = list(range(len(begins))) if axes is None else [shapes.axis(_number(a), len(shape(x))) for a in axes]
    if not len(begins) == len(ends) == len(dims) == len(steps):
        raise PopulusError(f"{len(begins)} starts, {len(ends)} ends, {len(dims)} axes and {len(steps)} steps; as many of each are expected")
    for begin, end, d, s in zip(begins, ends, dims, steps):
        step, n = _number(s), size_of(m.valid.of(x)[d])
        if step == 0:
            raise PopulusError("a step is 0")
        if step > 0:
            first, last = _clamped(m, begin, n, as_size(0), n), _clamped(m, end, n, as_size(0), n)
            count = (last - first).max(0).ceildiv(step).decided(m.valid.bounds)
        else:
            first, last = _clamped(m, begin, n, as_size(0), n - 1), _clamped(m, end, n, as_size(-1), n - 1)
            count = (first - last).max(0).ceildiv(-step).decided(m.valid.bounds)
        x = window(c, x, d, first, count, step)
    return x


def _clamped(m: Masks, index: Size, n: Size, low: Size, high: Size) -> Size:
    """Counts an index from the front, and clamps it. Raises PopulusError if its sign depends on sizes."""
    bounds = m.valid.bounds
    least, most = index.interval(bounds)
    if least >= LAST or most <= -LAST:
        return high if least > 0 else low
    if least < 0 <= most:
        raise PopulusError(f"the index {index} may be negative or not, which depends on sizes")
    return (index + n if most < 0 else index).max(low).min(high).decided(bounds)


def _number(size: Size) -> int:
    """Gives a size as a number. Raises PopulusError if it depends on a dimension."""
    if (n := size.constant) is None:
        raise PopulusError(f"{size} stands where one number is expected")
    return n


def split(c: Conversion) -> list[Output]:
    """Converts Split along an axis of any size."""
    m, x = masks_of(c), compacted(c, c.input(0))
    d = c.axis(len(shape(x)))
    n, parts = size_of(m.valid.of(x)[d]), listed(c, 1, "split")
    if parts is None:
        count = c.get("num_outputs") or len(c.op.outputs)
        each = n.ceildiv(count)
        parts = [each if n.exactly(as_size(count)) else (n - each * i).max(0).min(each).decided(m.valid.bounds) for i in range(count)]
    total = sum(parts, as_size(0))
    if total != n:
        require(c, m.axis(total), m.valid.of(x)[d])
    begin, results = as_size(0), list[Output]()
    for part in parts:
        results.append(window(c, x, d, begin, part))
        begin = begin + part
    return results


def tile(c: Conversion) -> Output:
    """Converts Tile: an axis of one element stretches, others are read at their position modulo their size."""
    m, x = masks_of(c), compacted(c, c.input(0))
    repeats = numbers(c, 1) or []
    if c.version < 6 or len(repeats) != len(shape(x)):
        raise PopulusError(f"{len(repeats)} repeats for {len(shape(x))} dimensions; one for each is expected")
    for d, r in enumerate(repeats):
        axes = m.valid.of(x)
        n, bound = size_of(axes[d]), bound_of(axes[d])
        if r.constant == 1:
            continue
        if bound == 1:
            final = m.axis(r)
            sizes = [bound_of(final) if e == d else k for e, k in enumerate(shape(x))]
            x = m.plain(c, popart.ExpandOp(x, shape=sizes))
        else:
            final = m.axis(n * r)
            count = m.plain(c, popart.MaxOp(m.scalar(c, n), m.scalar(c, as_size(1))))
            x = picked(m, c, x, m.plain(c, popart.ModOp(m.iota(c, bound_of(final)), count)), d)
        x = m.state(x, (*axes[:d], final, *axes[d + 1 :]))
    return x


def eye_like(c: Conversion) -> Output:
    """Converts EyeLike to a constant of the bounds."""
    from populus.lowering.onnx.to_popart.tensor import eye_like as at_bounds

    m, axes = masks_of(c), masks_of(c).valid.of(compacted(c, c.input(0)))
    result = at_bounds(c)
    assert result is not None
    return m.state(result, axes)


def gather(c: Conversion) -> Output:
    """Converts Gather; negative indices count from the end of the valid part, and one beyond it is refused when the program runs."""
    c.op.operands = [compacted(c, v) for v in c.op.operands]
    c.inputs = c.op.inputs
    x, indices = c.input(0), c.input(1)
    axis = c.axis(len(shape(x)))
    along, valid = shape(x)[axis], masks_of(c).valid
    if not is_whole(valid.of(x)[axis]):
        known = constant_value(indices)
        least = size_of(valid.of(x)[axis]).lower(valid.bounds)
        if known is None or not ((known >= -least) & (known < least)).all():
            indices = offset(c, indices, (x, axis), 1, along)
    return c.insert(popart.GatherOp(x, indices, axis=axis))


def concat(c: Conversion) -> Output:
    """Converts Concat; parts of run-time sizes follow each other."""
    parts = [compacted(c, v) for v in c.inputs if v is not None]
    axis = c.axis(len(shape(parts[0])), 1)
    rank = len(shape(parts[0]))
    parts = agreed(c, parts, [[d] * len(parts) for d in range(rank) if d != axis])
    return parts[0] if len(parts) == 1 else c.insert(popart.ConcatOp(*parts, axis=axis))


RULES: Mapping[str, Rule] = {
    "Concat": concat,
    "ConstantOfShape": constant_of_shape,
    "Expand": expand,
    "EyeLike": eye_like,
    "Gather": gather,
    "Range": range_,
    "Reshape": reshape,
    "Slice": slice_,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "Unsqueeze": unsqueeze,
}
