"""Tasks (`poplar-fuse`): families that one launch computes, on machines whose launches compute several."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from populus.dialects.poplar import GraphOp
from populus.runtime.tasks import make_tasks


@dataclass(frozen=True)
class PoplarFusePass(ModulePass):
    """Puts a product, the sum of its slices and the map that reads the sums first into a `poplar.task`, as `make_tasks` says.

    It leaves programs of machines alone that run families one by one (`joins` of the machine), unless `always`. The pass runs
    before `poplar-allocate`, which needs the live ranges of tasks. Bit for bit.
    """

    name = "poplar-fuse"
    AFTER = ("poplar-map", "poplar-merge", "poplar-offload")
    always: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for graph in op.body.block.ops:
            if isinstance(graph, GraphOp) and (self.always or graph.machine.joins):
                make_tasks(graph)
