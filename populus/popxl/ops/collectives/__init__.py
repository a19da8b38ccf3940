"""Ops in which the replicas of a group meet, and the chips of a replica."""

from populus.popxl.ops.collectives.collectives import (
    CollectiveOps,
    CommGroupType,
    all_reduce,
    all_reduce_identical_grad_inputs,
    all_reduce_identical_inputs,
    replica_sharded_slice,
    replicated_all_gather,
    replicated_all_reduce,
    replicated_all_reduce_,
    replicated_reduce_scatter,
    replicated_slice,
    to_collective_op,
)

__all__ = [
    "CollectiveOps",
    "CommGroupType",
    "all_reduce",
    "all_reduce_identical_grad_inputs",
    "all_reduce_identical_inputs",
    "replica_sharded_slice",
    "replicated_all_gather",
    "replicated_all_reduce",
    "replicated_all_reduce_",
    "replicated_reduce_scatter",
    "replicated_slice",
    "to_collective_op",
]
