"""Collectives and sharded layers of popxl_addons: what replicas that each hold a part of a layer do together."""

from __future__ import annotations

import math

from populus.popxl import dtypes
from populus.popxl.errors import WrongValue
from populus.popxl.internals.recording import recorded
from populus.popxl.ops.collectives.collectives import scattered
from populus.popxl.ops.common import cast_to, emit, fixed
from populus.popxl.ops.elementwise import add, div, exp, log, mul, sqrt, sub
from populus.popxl.ops.reduce import max as largest
from populus.popxl.ops.reduce import sum as total
from populus.popxl.ops.shape import concat, detach, flatten, identity, reshape
from populus.popxl.ops.shape import slice as part
from populus.popxl.replica_grouping import ReplicaGrouping
from populus.popxl.tensor import Tensor


def _check(op: str, *known: str) -> None:
    if op not in known:
        raise WrongValue(f"a reduction by {' or '.join(known)} is there, not by '{op}'")


def _summed(t: Tensor, stride: int, size: int, same: str = "none") -> Tensor:
    return emit("all_reduce", t, reduction="add", same=same, stride=stride, size=size)


def _all_reduced(t: Tensor, op: str, stride: int, size: int, identical_inputs: bool, identical_gradients: bool) -> Tensor:
    if not (identical_inputs or identical_gradients):
        _check(op, "add", "mean")
        return emit("all_reduce", t, reduction=op, stride=stride, size=size)
    _check(op, "add")
    return _summed(t, stride, size, "inputs" if identical_inputs else "gradients")


@recorded("ReplicatedAllReduceStrided")
def all_reduce_strided(t: Tensor, op: str, stride: int, size: int, identical_inputs: bool, identical_grad_inputs: bool) -> Tensor:
    """Computes the sum or mean of t over a group; of identical inputs, t with a sum as its gradient. Raises ValueError for another `op`."""
    return _all_reduced(t, op, stride, size, identical_inputs, identical_grad_inputs)


@recorded("ReplicatedAllReduceTP")
def all_reduce_of_group(t: Tensor, op: str, group: ReplicaGrouping, identical_inputs: bool, identical_grad_inputs: bool) -> Tensor:
    """Computes `all_reduce_strided` of a group."""
    return _all_reduced(t, op, group.stride, group.group_size, identical_inputs, identical_grad_inputs)


@recorded("ReplicatedAllGatherStrided")
def all_gather_strided(t: Tensor, stride: int, size: int) -> Tensor:
    """Gives the tensors of a group one after the other, flat; of a shard, the whole without what it was filled up with."""
    every = flatten(emit("all_gather", flatten(t), shared=True, stride=stride, size=size))
    whole = math.prod(t.meta_shape) if t.meta_shape else every.nelms
    return every if whole == every.nelms else part(every, 0, whole)


@recorded("ReplicatedReduceScatterStrided")
def reduce_scatter_strided(t: Tensor, op: str, stride: int, size: int, shard: bool) -> Tensor:
    """Gives a replica its part of a group's sum or mean, flat; a shard of t's shape if so asked. Raises ValueError for another `op`."""
    _check(op, "add", "mean")
    return scattered(t, op, stride, size, shard)


@recorded("CrossEntropySharded")
def cross_entropy_sharded(logits: Tensor, indices: Tensor, group: ReplicaGrouping, availableMemoryProportion: float = 0.0) -> Tensor:
    """Computes `-log softmax(logits)[label]` of logits [samples, classes] whose classes lie on the replicas of a group.

    A label counts from a replica's first class; one that it has not is another's. All replicas have the result, and the gradient of each
    is that of its own logits. Source: popxl_addons, cross_entropy_sharded_loss.
    """
    stride, size = group.stride, group.group_size
    highest = detach(largest(logits, -1, keepdims=True))
    shifted = sub(logits, emit("all_reduce", highest, reduction="max", stride=stride, size=size))
    whole = _summed(total(exp(shifted), -1), stride, size, "gradients")
    each = emit("nll", shifted, cast_to(indices, dtypes.int32), logarithms=True)
    return add(log(whole), _summed(each, stride, size, "gradients"))


def cross_entropy_of_chips(*tensors: Tensor, ipus: object = None) -> Tensor:
    """Computes the cross entropy of logits [samples, classes] whose classes lie on the chips of one replica, then the labels of each.

    Labels count from the first class of all. Source: popxl_addons, cross_entropy_sharded_wr_loss.
    """
    return _of_chips(list(tensors[: len(tensors) // 2]), tensors[len(tensors) // 2])


@recorded("AllReduce")
def _of_chips(logits: list[Tensor], labels: Tensor) -> Tensor:
    whole = concat(logits, 1)
    each = emit("nll", emit("log_softmax", whole, axis=1), cast_to(labels, dtypes.int32), logarithms=True)
    return identity(each, "cross_entropy_sharded_out")


@recorded("LayerNormDistributed")
def layer_norm_distributed(t: Tensor, w: Tensor, b: Tensor, epsilon: float, group: ReplicaGrouping) -> Tensor:
    """Computes the layer norm of t [samples, features] whose features lie on the replicas of a group; statistics are of f32.

    Source: popxl_addons, layer_norm_distributed.
    """
    stride, size = group.stride, group.group_size
    wide = cast_to(t, dtypes.float32)
    count = fixed(t.shape[-1] * size, wide)
    centred = sub(wide, div(_summed(total(wide, -1, keepdims=True), stride, size), count))
    variance = div(_summed(total(mul(centred, centred), -1, keepdims=True), stride, size), count)
    normal = cast_to(div(centred, sqrt(add(variance, fixed(epsilon, wide)))), t.dtype)
    return add(mul(normal, reshape(w, (1, -1))), reshape(b, (1, -1)))
