"""Ops in which the replicas of a model meet: those of `gcl`, with gradients.

The gradient of a model of N replicas is that of the sum of their losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects import expr, gcl
from populus.dialects.expr import Arg
from populus.dialects.popart import calls
from populus.dialects.popart.base import NoGradient, PopartOp
from populus.dialects.support.constraints import choice, flag, whole
from populus.dialects.support.diagnostics import where
from populus.dialects.support.element_types import is_float


class CollectiveOp(PopartOp):
    """An op over groups of `size` replicas that are `stride` apart; its types and lowering are those of the op of `gcl`."""

    CALL: ClassVar[type[gcl.Collective]]
    stride = whole(1, low=1)
    size = whole(low=1)

    def call(self) -> gcl.Collective:
        """Gives the op of `gcl` on the same operands."""
        known = self.CALL.get_irdl_definition().properties
        return self.CALL(*self.operands, **{name: value for name, value in self.properties.items() if name in known})

    def group(self) -> dict[str, int]:
        """Gives the properties that name the group."""
        return {"stride": self.stride, "size": self.size}

    def infer(self) -> Sequence[TensorType[Attribute]]:
        call = self.call()
        types = call.infer()
        call.erase()
        return types

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return [calls.insert(b, self.call())]

    def summed(self, b: Builder, g: SSAValue) -> SSAValue:
        """Builds the sum of a gradient over the group."""
        return calls.insert(b, AllReduceOp(g, reduction="add", **self.group()))


class OfTensor(CollectiveOp):
    """A collective that each member gives a tensor."""

    x = operand_def(TensorType)
    y = result_def(TensorType)

    def no_gradient(self, reduction: str) -> NoGradient:
        return NoGradient(f"{where(self)}: {self.name} by '{reduction}' has no gradient; reduce by 'add' or 'mean'")


@irdl_op_definition
class AllReduceOp(OfTensor):
    """`y = x_0 op x_1 op ..`, of the members of the group in order.

    Of the largest and the smallest, the gradient is shared by the members that have it. `same` is for sums of layers that members
    share: with `inputs`, x is the same on all, so y = x and the gradient is the sum of theirs. With `gradients`, what follows is the
    same on all, so the gradient of x is a member's own. Source: PopART ReplicatedAllReduce-1; popxl_addons, replicated_all_reduce_TP.
    """

    name = "popart.all_reduce"
    CALL: ClassVar = gcl.AllReduceOp
    EXAMPLES: ClassVar = [([(2, 3)], {"size": 1, "reduction": "add"}), ([(4,)], {"size": 1, "reduction": "max"})]
    reduction = choice(gcl.REDUCTIONS, "add")
    same = choice(("none", "inputs", "gradients"), "none")

    def verify_(self) -> None:
        super().verify_()
        if self.same != "none" and self.reduction != "add":
            raise VerifyException(f"same {self.same} is of sums, not of '{self.reduction}'")

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return [self.x] if self.same == "inputs" else super().lower(b)

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        if not is_float(calls.element(self.x)):
            return [None]
        if self.same != "none":
            other = "gradients" if self.same == "inputs" else "inputs"
            return [calls.insert(b, AllReduceOp(grads[0], reduction="add", same=other, **self.group()))]
        g = self.summed(b, grads[0])
        match self.reduction:
            case "add":
                return [g]
            case "mean":
                return [calls.map(b, Arg(1) / self.size, g)]
            case "square_add":
                return [calls.map(b, Arg(1) * Arg(2) * 2, g, self.x)]
            case "max" | "min":
                chosen = calls.map(b, expr.cast(expr.equal(Arg(1), Arg(2)), calls.element(self.x)), self.x, self.y)
                return [calls.map(b, Arg(1) * Arg(2) / Arg(3), g, chosen, self.summed(b, chosen))]
            case other:
                raise self.no_gradient(other)


@irdl_op_definition
class AllGatherOp(OfTensor):
    """`y[k] = x_k`, of each member k of the group.

    `shared`: what follows is the same on all members, so the gradient of x is a member's own part of y's, instead of the sum of theirs.
    Source: PopART ReplicatedAllGather-1.
    """

    name = "popart.all_gather"
    CALL: ClassVar = gcl.AllGatherOp
    EXAMPLES: ClassVar = [([(2, 3)], {"size": 1})]
    shared = flag()

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        reduction = gcl.LOCAL if self.shared else "add"
        part = calls.insert(b, ReduceScatterOp(grads[0], reduction=reduction, **self.group()))
        return [calls.reshape(b, part, calls.shape(self.x))]


@irdl_op_definition
class ReduceScatterOp(OfTensor):
    """`y = all_reduce(x)[k n : (k + 1) n]` on member k, of n = `shape[0] / size` rows.

    `local` reduces nothing: each member takes its part of an x that is the same on all, and the gradient is the parts of all.
    Source: PopART ReplicatedReduceScatter-1.
    """

    name = "popart.reduce_scatter"
    CALL: ClassVar = gcl.ReduceScatterOp
    EXAMPLES: ClassVar = [([(4, 3)], {"size": 1, "reduction": "add"}), ([(4,)], {"size": 1, "reduction": "local"})]
    reduction = choice((*gcl.REDUCTIONS, gcl.LOCAL), "add")

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        if not is_float(calls.element(self.x)):
            return [None]
        if self.reduction not in ("add", "mean", gcl.LOCAL):
            raise self.no_gradient(self.reduction)
        whole = calls.reshape(b, calls.insert(b, AllGatherOp(grads[0], **self.group())), calls.shape(self.x))
        return [calls.map(b, Arg(1) / self.size, whole) if self.reduction == "mean" else whole]


@irdl_op_definition
class BroadcastOp(OfTensor):
    """`y = x_root`, that of the member at position `root` of the group; the others' gradient is 0.

    Source: PopART's groups, GCL's broadcastCrossReplica.
    """

    name = "popart.broadcast"
    CALL: ClassVar = gcl.BroadcastOp
    EXAMPLES: ClassVar = [([(2, 3)], {"size": 1})]
    root = whole(0, low=0)

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        if not is_float(calls.element(self.x)):
            return [None]
        index = calls.insert(b, ReplicaIndexOp(**self.group()))
        mine = calls.map(b, expr.cast(expr.equal(Arg(1), int(self.root)), calls.element(self.x)), index)
        return [calls.map(b, Arg(1) * Arg(2), self.summed(b, grads[0]), mine)]


@irdl_op_definition
class AllToAllOp(OfTensor):
    """`y[j] = x_j[k]` on member k: dimension 0 is cut into `size` parts, and part j goes to member j.

    Source: PopART's groups, GCL's allToAllCrossReplica.
    """

    name = "popart.all_to_all"
    CALL: ClassVar = gcl.AllToAllOp
    EXAMPLES: ClassVar = [([(4, 3)], {"size": 1})]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [calls.insert(b, AllToAllOp(grads[0], **self.group()))] if is_float(calls.element(self.x)) else [None]


@irdl_op_definition
class BarrierOp(OfTensor):
    """`y = x`, once all members of the group are here. Source: PopART's groups."""

    name = "popart.barrier"
    CALL: ClassVar = gcl.BarrierOp
    EXAMPLES: ClassVar = [([(2, 3)], {"size": 1})]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [grads[0]]


@irdl_op_definition
class ReplicaIndexOp(CollectiveOp):
    """`y = position of the replica in its group`, an int32 from 0. Source: PopART's groups."""

    name = "popart.replica_index"
    assembly_format = "attr-dict `:` type($y)"
    CALL: ClassVar = gcl.ReplicaIndexOp
    EXAMPLES: ClassVar = [([], {"size": 1})]
    y = result_def(TensorType)

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return []
