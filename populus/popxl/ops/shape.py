"""Ops that move elements, and their views."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
from xdsl.ir import SSAValue

from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of
from populus.popxl import dtypes
from populus.popxl.context import get_current_graph
from populus.popxl.errors import UndefinedValue, WrongType, WrongValue
from populus.popxl.internals.recording import recorded
from populus.popxl.ops.common import alias, axis_of, element, emit
from populus.popxl.tensor import Tensor, View, constant

Index = int | list[int | None] | tuple[int | None, ...] | None


def _whole(t: Tensor, shape: Iterable[int]) -> tuple[int, ...]:
    """Gives a shape in which -1 is what is left. Raises ValueError for another number of elements."""
    wanted = tuple(int(n) for n in shape)
    if any(n < 1 and n != -1 for n in wanted) and t.nelms:
        raise WrongValue(f"Invalid shape value in reshape of {t.id}: sizes are above 0, or -1, not {wanted}")
    if wanted.count(-1) > 1:
        raise WrongValue(f"Reshape shape can contain at most one '-1' value, not {wanted}")
    rest = math.prod(n for n in wanted if n != -1)
    if wanted.count(-1) == 1 and rest and t.nelms % rest == 0:
        wanted = tuple(t.nelms // rest if n == -1 else n for n in wanted)
    if math.prod(wanted) != t.nelms or any(n < 0 for n in wanted):
        raise WrongValue(f"{t.id} has {t.nelms} elements, so it cannot become {list(wanted)}")
    return wanted


@recorded("Reshape")
def reshape(t: Tensor, shape: Iterable[int]) -> Tensor:
    """Gives the same elements in row-major order another shape; one -1 stands for what is left."""
    return emit("reshape", t, shape=_whole(t, shape))


@recorded("ReshapeInplace")
def reshape_(t: Tensor, shape: Iterable[int]) -> Tensor:
    """Makes a view of t with another shape."""
    wanted, before, graph = _whole(t, shape), t.shape, t.graph

    def read(of: Sequence[SSAValue]) -> SSAValue:
        return graph.op("reshape", of[0], shape=wanted)[0]

    return graph.view(View((t,), read, lambda of, new: graph.op("reshape", new, shape=before)), "reshape_out")


def flatten(t: Tensor) -> Tensor:
    """Gives the elements one dimension."""
    return reshape(t, (t.nelms,))


def flatten_(t: Tensor) -> Tensor:
    """Makes a view of t of one dimension."""
    return reshape_(t, (t.nelms,))


def squeeze(t: Tensor, axes: Iterable[int] | None = None) -> Tensor:
    """Takes dimensions of size 1 away, all or those of `axes`. Raises ValueError for one of another size."""
    chosen = {d for d, n in enumerate(t.shape) if n == 1} if axes is None else {axis_of(t, a) for a in axes}
    if wrong := [d for d in sorted(chosen) if t.shape[d] != 1]:
        raise WrongValue(f"dimension {wrong[0]} of {t.id} is of size {t.shape[wrong[0]]}, not 1")
    return reshape(t, [n for d, n in enumerate(t.shape) if d not in chosen])


def _order(t: Tensor, permutation: Iterable[int] | None) -> tuple[int, ...]:
    given = tuple(reversed(range(t.rank))) if permutation is None else tuple(permutation)
    if wrong := tuple(a for a in given if a >= t.rank):
        raise WrongValue(f"Values in permutation must be less than the tensor's rank {t.rank}; {wrong} are not")
    order = tuple(axis_of(t, a) for a in given)
    if sorted(order) != list(range(t.rank)):
        raise WrongValue(f"{order} is no order of the {t.rank} dimensions of {t.id}")
    return order


@recorded("Transpose")
def transpose(t: Tensor, permutation: Iterable[int] | None = None) -> Tensor:
    """Makes dimension d of the result dimension `permutation[d]` of t; by default in reverse order."""
    return emit("transpose", t, permutation=_order(t, permutation))


@recorded("TransposeInplace")
def transpose_(t: Tensor, permutation: Iterable[int] | None = None) -> Tensor:
    """Makes a view of t with its dimensions in another order."""
    order, graph = _order(t, permutation), t.graph
    back = tuple(int(d) for d in np.argsort(order))

    def read(of: Sequence[SSAValue]) -> SSAValue:
        return graph.op("transpose", of[0], permutation=order)[0]

    return graph.view(View((t,), read, lambda of, new: graph.op("transpose", new, permutation=back)), "transpose_out")


def _parts(ts: Iterable[Tensor]) -> list[Tensor]:
    parts = list(ts)
    if not parts:
        raise WrongValue("concat takes at least one tensor")
    if len(types := dict.fromkeys(t.dtype for t in parts)) > 1:
        raise WrongType(f"All inputs to a concat operation must have the same type: these are {', '.join(map(str, types))}")
    return parts


@recorded("Concat")
def concat(ts: Iterable[Tensor], axis: int = 0) -> Tensor:
    """Puts tensors one after the other along an axis. Raises ValueError for none, and TypeError for those of several types."""
    parts = _parts(ts)
    return emit("concat", *parts, axis=axis_of(parts[0], axis))


@recorded("ConcatInplace")
def concat_(ts: Iterable[Tensor], axis: int = 0) -> Tensor:
    """Makes a view of tensors one after the other along an axis. Raises as `concat`."""
    parts = _parts(ts)
    along, graph, sizes = axis_of(parts[0], axis), parts[0].graph, [t.shape for t in parts]

    def write(of: Sequence[SSAValue], new: SSAValue) -> list[SSAValue]:
        found, at = list[SSAValue](), 0
        for shape in sizes:
            begins = [at if d == along else 0 for d in range(len(shape))]
            ends = [b + n for b, n in zip(begins, shape)]
            found.append(graph.op("slice", new, begins=tuple(begins), ends=tuple(ends), steps=(1,) * len(shape))[0])
            at += shape[along]
        return found

    return graph.view(View(tuple(parts), lambda of: graph.op("concat", *of, axis=along)[0], write), "concat_out")


def _ranges(t: Tensor, start: Index, stop: Index, step: Index, axis: Any) -> list[range]:
    """Gives the indices of each dimension, from Python's rules of ranges. Raises ValueError for lists of other lengths."""
    given = [[v] if isinstance(v, int) else None if v is None else list(v) for v in (start, stop, step, axis)]
    sizes = {len(v) for v in given if v is not None}
    if len(sizes) > 1:
        raise WrongValue(f"slices of {t.id}: start, stop, step and axis are of lengths {', '.join(map(str, sorted(sizes)))}")
    count = sizes.pop() if sizes else 0
    starts, stops, steps, axes = ([None] * count if v is None else v for v in given)
    ranges = [range(n) for n in t.shape]
    for k in range(count):
        d = axis_of(t, k if (named := axes[k]) is None else named)
        if steps[k] == 0:
            raise WrongValue(f"slices of {t.id}: a step is 0")
        ranges[d] = range(t.shape[d])[_range(starts[k], stops[k], steps[k])]
    return ranges


_range = slice  # of Python, whose name an op below has


def _slice(graph: Any, x: SSAValue, ranges: Sequence[range]) -> SSAValue:
    ends = tuple(r.start + len(r) * r.step if r.step > 0 else r.start + (len(r) - 1) * r.step - 1 for r in ranges)
    ends = tuple(min(e, r.stop) if r.step > 0 else e for e, r in zip(ends, ranges))
    return graph.op("slice", x, begins=tuple(r.start for r in ranges), ends=ends, steps=tuple(r.step for r in ranges))[0]


def slice(t: Tensor, start: Index = None, stop: Index = None, step: Index = None, axis: Any = None) -> Tensor:
    """Gives the elements of ranges, as Python's `start:stop:step`, of the dimensions of `axis`, or of the first ones; t itself without."""
    if _is_whole(t, start, stop, step, axis):
        return t
    return _sliced(t, start, stop, step, axis)


def _is_whole(t: Tensor, start: Index, stop: Index, step: Index, axis: Any) -> bool:
    """Tells whether ranges are all of a tensor, as no start, stop or step names any."""
    return not any(v for v in (start, stop, step)) and _ranges(t, start, stop, step, axis) == [range(n) for n in t.shape]


@recorded("Slice")
def _sliced(t: Tensor, start: Index, stop: Index, step: Index, axis: Any) -> Tensor:
    graph = get_current_graph()
    return graph.tensor(_slice(graph, t.ssa, _ranges(t, start, stop, step, axis)), "slice_out")


def slice_(t: Tensor, start: Index = None, stop: Index = None, step: Index = None, axis: Any = None) -> Tensor:
    """Makes a view of the elements of ranges."""
    return t if _is_whole(t, start, stop, step, axis) else _sliced_view(t, start, stop, step, axis)


@recorded("SliceInplace")
def _sliced_view(t: Tensor, start: Index, stop: Index, step: Index, axis: Any) -> Tensor:
    ranges, graph, shape = _ranges(t, start, stop, step, axis), t.graph, t.shape
    cut = [d for d, r in enumerate(ranges) if r != range(shape[d])]
    if not cut:
        return alias(t, "slice_out")

    def write(of: Sequence[SSAValue], new: SSAValue) -> tuple[SSAValue]:
        return (_replaced(graph, of[0], new, shape, ranges, cut),)

    return graph.view(View((t,), lambda of: _slice(graph, of[0], ranges), write), "slice_out")


def _replaced(graph: Any, x: SSAValue, new: SSAValue, shape: Sequence[int], ranges: Sequence[range], cut: Sequence[int]) -> SSAValue:
    """Gives x with other elements in ranges of the dimensions `cut`: rows of the first one, in which the others are replaced."""
    d, rest = cut[0], cut[1:]
    whole = [range(n) for n in shape]
    rows = [ranges[d] if k == d else whole[k] for k in range(len(shape))]
    if rest:
        inner = [len(r) for r in rows]
        new = _replaced(graph, _slice(graph, x, rows), new, inner, [range(len(r)) if k == d else r for k, r in enumerate(ranges)], rest)
    if ranges[d].step == 1:
        before, behind = range(ranges[d].start), range(ranges[d].stop, shape[d])
        around = [[_slice(graph, x, [r if k == d else whole[k] for k in range(len(shape))])] if r else [] for r in (before, behind)]
        return graph.op("concat", *around[0], new, *around[1], axis=d)[0]
    order = (d, *(k for k in range(len(shape)) if k != d))
    back = tuple(int(k) for k in np.argsort(order))
    first, given = (graph.op("transpose", v, permutation=order)[0] for v in (x, new))
    indices = graph.constant(np.array(list(ranges[d]), np.int32))
    return graph.op("transpose", graph.op("scatter", first, indices, given, reduction="set")[0], permutation=back)[0]


@recorded("Subsample")
def subsample(t: Tensor, strides: int | Iterable[int]) -> Tensor:
    """Gives every `strides[d]`-th element of dimension d, of those that are not named every one. Raises ValueError for too many."""
    steps = [strides] if isinstance(strides, int) else list(strides)
    if len(steps) > t.rank:
        raise WrongValue(f"{t.id} has {t.rank} dimensions, not {len(steps)}")
    return slice(t, None, None, [*steps])


@recorded("Split")
def split(t: Tensor, splits: int | list[int], axis: int = 0) -> list[Tensor]:
    """Cuts t along an axis into so many equal parts, or into parts of these sizes. Raises ValueError where they do not add up."""
    d = axis_of(t, axis)
    n = t.shape[d]
    sizes = [n // splits] * splits if isinstance(splits, int) else list(splits)
    if sum(sizes) != n:
        raise WrongValue(f"dimension {d} of {t.id} is of size {n}; it cannot be split into {splits}")
    ends = np.cumsum(sizes)
    return [slice(t, int(e - size), int(e), None, d) for e, size in zip(ends, sizes)]


@recorded("Identity")
def identity(t: Tensor, output_name: str | None = None) -> Tensor:
    """Gives a copy of t, with a name."""
    return t.graph.tensor(emit("reshape", t, shape=t.shape).ssa, output_name or "identity_out")


rename = identity


def _detached(graph: Any, x: SSAValue) -> SSAValue:
    """Gives the value by way of integers of the same bits, through which no gradient flows."""
    bits = {"float16": dtypes.int16, "float32": dtypes.int32, "float64": dtypes.int64}
    type = dtypes.dtype.as_dtype(dtype_of(element_type_of(x.type)))
    if type.name not in bits:
        return graph.op("reshape", x, shape=shape_of(x.type))[0]
    return graph.op("bit_cast", graph.op("bit_cast", x, to=element(bits[type.name]))[0], to=element(type))[0]


@recorded("Detach")
def detach(t: Tensor) -> Tensor:
    """Gives a copy of t through which no gradient flows."""
    graph = get_current_graph()
    return graph.tensor(_detached(graph, t.ssa), "detach_out")


@recorded("DetachInplace")
def detach_(t: Tensor) -> Tensor:
    """Gives a view of t through which no gradient flows."""
    graph = t.graph
    return graph.view(View((t,), lambda of: _detached(graph, of[0]), lambda of, new: (new,)), "detach_out")


@recorded("IpuCopy")
def ipu_copy(t: Tensor, destination: int, source: int | None = None) -> Tensor:
    """Gives a copy of t, said to be on another chip. There is one. Raises ValueError where the chip of t is not known, nor `source`."""
    if source is None:
        try:
            t.ipu  # noqa: B018
        except UndefinedValue:
            raise WrongValue(f"Could not infer the ipu of {t.id}. Please specify `source`") from None
    made = identity(t)
    made._ipu = destination  # pyright: ignore[reportPrivateUsage]
    return made


@recorded("IoTileCopy")
def io_tile_copy(t: Tensor) -> Tensor:
    """Gives a copy of t, said to be on the other kind of tiles; of an input, on those of input and output. All tiles do both."""
    made = identity(t)
    try:
        made._tile_set = "compute" if t.tile_set == "io" else "io"  # pyright: ignore[reportPrivateUsage]
    except UndefinedValue:
        made._tile_set = "io"  # pyright: ignore[reportPrivateUsage]
    return made


@recorded("Init")
def init(
    shape: Iterable[int],
    dtype: dtypes.dtype,
    name: str | None = None,
    init_type: Literal["zero", "undef"] = "zero",
    meta_shape: Iterable[int] | None = None,
) -> Tensor:
    """Makes a tensor of zeros; `undef` leaves its elements open, and they are zeros too. Raises ValueError for another `init_type`."""
    if init_type not in ("zero", "undef"):
        raise WrongValue(f"init_type is 'zero' or 'undef', not '{init_type}'")
    graph = get_current_graph()
    zero = constant(np.zeros((), dtype.as_numpy()), dtype)
    return graph.tensor(emit("expand", zero, shape=tuple(shape)).ssa, name or "init_out")
