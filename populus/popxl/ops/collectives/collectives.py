"""Ops in which the replicas of a group meet, and the chips of a replica."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Literal

from populus.popart.enums import ENUMS
from populus.popxl.context import get_current_graph
from populus.popxl.dealing import shard_size
from populus.popxl.errors import UndefinedValue, WrongValue
from populus.popxl.internals.recording import recorded
from populus.popxl.ops.common import axis_of, emit, in_place
from populus.popxl.ops.elementwise import add, sub
from populus.popxl.ops.shape import detach, flatten, identity, reshape, transpose
from populus.popxl.replica_grouping import ReplicaGrouping
from populus.popxl.tensor import Tensor

CollectiveOps = Literal["add", "mean", "mul", "min", "max", "and", "or", "square_add"]
CommGroupType = ENUMS["CommGroupType"]
_REDUCTIONS = ("add", "mean", "mul", "min", "max", "and", "or", "square_add")


def _group(group: ReplicaGrouping | None) -> dict[str, int]:
    """Gives the properties of an op over a group, by default all replicas. Raises NotImplementedError for groups of several strides."""
    found = get_current_graph().ir.replica_grouping() if group is None else group
    return {"stride": found.stride, "size": found.group_size}


def to_collective_op(op: str) -> str:
    """Gives the reduction of a name. Raises ValueError for another one."""
    if op not in _REDUCTIONS:
        raise WrongValue(f"a collective reduces by {', '.join(_REDUCTIONS)}, not '{op}'")
    return op


@recorded("ReplicatedAllReduce")
def replicated_all_reduce(t: Tensor, op: CollectiveOps = "add", group: ReplicaGrouping | None = None) -> Tensor:
    """Computes the reduction of t over a group of replicas, in the order of their numbers. Raises ValueError for another `op`."""
    found = emit("all_reduce", t, reduction=to_collective_op(op), **_group(group))
    return get_current_graph().tensor(found.ssa, f"{t.name}_all_reduce")


replicated_all_reduce_ = in_place("ReplicatedAllReduceInplace", replicated_all_reduce)


def _front(t: Tensor, axis: int) -> Tensor:
    """Gives t with an axis in front."""
    return transpose(t, [axis, *(d for d in range(t.rank) if d != axis)]) if axis else t


def _back(t: Tensor, axis: int) -> Tensor:
    """Gives t with its first axis where it belongs."""
    return transpose(t, [*range(1, axis + 1), 0, *range(axis + 1, t.rank)]) if axis else t


def replicated_all_gather(
    t: Tensor,
    axis: int = 0,
    group: ReplicaGrouping | None = None,
    output_shape: Literal["new_axis", "concat", "meta_shape", "auto"] = "auto",
) -> Tensor:
    """Gives the tensors of all replicas of a group: side by side along an axis (`concat`), or along a new first one (`new_axis`).

    `meta_shape`: the whole of which t is a shard. `auto`: that, for a shard, else `concat`. The gradient is each replica's own part.
    Raises ValueError for another `output_shape`, for `meta_shape` of no shard, and for an axis that is no int, such as a group.
    """
    if not isinstance(axis, int):  # pyright: ignore[reportUnnecessaryIsInstance], of users: a shard has no use for it, so a group would be lost
        raise WrongValue(f"the axis of replicated_all_gather is an int, not {axis!r}; a group of replicas is given by `group=`")
    how = ("meta_shape" if t.meta_shape else "concat") if output_shape == "auto" else output_shape
    size = _group(group)["size"]
    if how == "meta_shape":
        if not t.meta_shape:
            raise WrongValue(f"{t.id} is no shard, so it has no meta_shape")
        return _gathered(t, group, t.meta_shape)
    if how == "new_axis":
        shape = (size, *t.shape)
        return reshape(_gathered(flatten(t), group, shape), shape)
    if how != "concat":
        raise WrongValue(f"output_shape is 'new_axis', 'concat', 'meta_shape' or 'auto', not '{output_shape}'")
    front = _front(t, d := axis_of(t, axis))
    shape = (size * front.shape[0], *front.shape[1:])
    return _back(reshape(_gathered(flatten(front), group, shape), shape), d)


@recorded("ReplicatedAllGather")
def _gathered(t: Tensor, group: ReplicaGrouping | None, shape: Sequence[int]) -> Tensor:
    all = flatten(emit("all_gather", t, shared=True, **_group(group)))
    return reshape(all if all.nelms == math.prod(shape) else all[: math.prod(shape)], shape)


@recorded("ReplicatedReduceScatter")
def replicated_reduce_scatter(
    t: Tensor,
    op: CollectiveOps = "add",
    group: ReplicaGrouping | None = None,
    configure_output_for_replicated_tensor_sharding: bool = False,
) -> Tensor:
    """Gives a replica its part of the reduction of t over a group: a flat tensor, of t and zeros after it.

    With the last argument, it is a shard of t's shape. Raises ValueError for another `op`.
    """
    return _scattered(t, to_collective_op(op), group, configure_output_for_replicated_tensor_sharding)


def _scattered(t: Tensor, reduction: str, group: ReplicaGrouping | None, shard: bool) -> Tensor:
    return scattered(t, reduction, **_group(group), shard=shard)


def scattered(t: Tensor, reduction: str, stride: int, size: int, shard: bool) -> Tensor:
    """Gives a replica its part of a reduction, flat and filled up with zeros; with `shard`, a shard of t's shape."""
    flat, whole = flatten(t), size * shard_size(t.shape, size)
    if whole != t.nelms:
        flat = emit("pad", flat, lower=(0,), upper=(whole - t.nelms,))
    part = emit("reduce_scatter", flat, reduction=reduction, stride=stride, size=size)
    # Named after t, as in PopXL: programs put tensors in the order of their names.
    made = get_current_graph().tensor(part.ssa, f"{t.name}_{'sharded_slice' if reduction == 'local' else 'reduce_scattered'}")
    made.meta_shape = t.shape if shard else ()
    return made


@recorded("ReplicatedReduceScatter")
def replica_sharded_slice(t: Tensor, group: ReplicaGrouping | None = None) -> Tensor:
    """Gives a replica its shard of a tensor that all of the group have: a flat part of t and zeros after it."""
    return _scattered(t, "local", group, True)


@recorded("ReplicatedReduceScatter")
def _part(t: Tensor, group: ReplicaGrouping | None) -> Tensor:
    return _scattered(t, "local", group, False)


def replicated_slice(t: Tensor, axis: int = 0, group: ReplicaGrouping | None = None) -> Tensor:
    """Gives a replica its part of a tensor that all of the group have, along an axis; a part of size 1 loses the axis.

    The gradient is the parts of all. Raises ValueError where the axis cannot be cut into equal parts.
    """
    d, size = axis_of(t, axis), _group(group)["size"]
    if t.shape[d] % size:
        raise WrongValue(f"axis {axis} of {t.id} is of size {t.shape[d]}; it cannot be cut into {size} equal parts")
    front = _front(t, d)
    part = _part(flatten(front), group)
    rows = t.shape[d] // size
    return reshape(part, front.shape[1:]) if rows == 1 else _back(reshape(part, (rows, *front.shape[1:])), d)


def _checked(ts: Sequence[Tensor], ipus: Sequence[int] | None) -> None:
    if ipus is None:
        try:
            ipus = [t.ipu for t in ts]
        except UndefinedValue:
            raise WrongValue("the chip of a tensor is not known; state them by `ipus`") from None
    if len(ipus) != len(ts):
        raise WrongValue(f"{len(ts)} tensors are given, and {len(ipus)} chips")


def _joined(op: str, ts: Sequence[Tensor]) -> Tensor:
    """Reduces tensors of a replica's chips."""
    if op in ("add", "mean", "square_add"):
        values = [emit("mul", t, t) for t in ts] if op == "square_add" else ts
        found = reduce(add, values)
        return emit("div", found, found.operand(len(ts))) if op == "mean" else found
    return reduce(lambda a, b: emit(op, a, b), ts)


@recorded("AllReduce")
def all_reduce(ts: Sequence[Tensor], ipus: Sequence[int] | None = None, op: CollectiveOps = "add") -> list[Tensor]:
    """Gives each chip of a replica the reduction of all chips' tensors. Raises ValueError for other chips than tensors."""
    _checked(ts, ipus)
    found = _joined(to_collective_op(op), ts)
    return [identity(found, "all_reduce_out") for _ in ts]


def _nothing(t: Tensor) -> Tensor:
    """Gives zeros whose gradient is that of t."""
    return sub(t, detach(t))


def _others(ts: Sequence[Tensor], k: int, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Gives a tensor and what the others become, added to it."""
    return reduce(add, [change(t) for i, t in enumerate(ts) if i != k], ts[k])


@recorded("AllReduce")
def all_reduce_identical_inputs(ts: Sequence[Tensor], ipus: Sequence[int] | None = None, op: CollectiveOps = "add") -> list[Tensor]:
    """Gives tensors, which are the same on each chip, as they are; the gradient of each is the sum of all gradients."""
    _checked(ts, ipus)
    to_collective_op(op)
    return [identity(_others(ts, k, _nothing), "all_reduce_out") for k in range(len(ts))]


@recorded("AllReduce")
def all_reduce_identical_grad_inputs(ts: Sequence[Tensor], ipus: Sequence[int] | None = None, op: CollectiveOps = "add") -> list[Tensor]:
    """Gives each chip the reduction of all tensors; the gradient of each, which is the same on all chips, is its own."""
    _checked(ts, ipus)
    if to_collective_op(op) != "add":
        raise WrongValue(f"identical gradients are of sums, not of '{op}'")
    return [identity(_others(ts, k, detach), "all_reduce_out") for k in range(len(ts))]
