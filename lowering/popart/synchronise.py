"""Synchronised batch normalisation (`popart-synchronise`): statistics of the batches of all replicas."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from populus.dialects import popart
from populus.dialects.popart import calls
from populus.lowering.popart.replicate import check_group


@dataclass(frozen=True)
class PopartSynchronisePass(ModulePass):
    """Makes the statistics of each `popart.batch_norm` that are means of its batch those of a group of replicas.

    The mean is reduced first, so that each replica's variance is about the mean of all. The gradients follow from
    those of `popart.all_reduce`, so the pass comes before `popart-autodiff`. `replicas` and `stride` name the group.
    A single replica computes as before. Bit for bit.
    """

    name = "popart-synchronise"

    replicas: int = 1
    stride: int = 1

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        check_group(self.replicas, self.stride)
        norms = [inner for inner in op.walk() if isinstance(inner, popart.BatchNormOp)]
        done: set[SSAValue] = set()
        for norm in norms if self.replicas > 1 else ():
            for statistic in (norm.mean, norm.variance):
                if isinstance(mean := statistic.owner, popart.ReduceMeanOp | popart.BatchVarianceOp) and statistic not in done:
                    made = popart.AllReduceOp(statistic, reduction="mean", size=self.replicas, stride=self.stride)
                    made.location = mean.location
                    together = calls.insert(Builder(InsertPoint.after(mean)), made)
                    statistic.replace_uses_with_if(together, lambda use, made=made: use.operation is not made)
                    done |= {statistic, together}
