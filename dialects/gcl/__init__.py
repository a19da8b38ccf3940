"""The `gcl` dialect: what replicas of a program do together. Each op is over groups of replicas.

A group has `size` members, `stride` apart: of 8 replicas, stride 2 and size 2 make the groups {0, 2}, {1, 3}, {4, 6}, {5, 7}.
Source: Graphcore Communication Library, as PopART's `ReplicaGrouping` states it.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import TensorType, i1, i32
from xdsl.ir import Attribute, Dialect
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects.base.tensor_op import TensorOp
from populus.dialects.support.constraints import choice, whole, wholes
from populus.dialects.support.element_types import element_type_of, shape_of, tensor

REDUCTIONS = ("add", "mean", "mul", "min", "max", "and", "or", "square_add")
LOCAL = "local"  # of `reduce_scatter`: each member's own part, of which nothing is reduced


class Collective(TensorOp):
    """An op over groups of `size` replicas that are `stride` apart. All members of a group meet in it."""

    stride = whole(1, low=1)
    size = whole(low=1)


class OfTensor(Collective):
    """A collective that each member gives a tensor of one type."""

    x = operand_def(TensorType)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        return [tensor(self.shape(shape_of(self.x.type)), element_type_of(self.x.type))]

    def shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
        """Gives the result's shape from the operand's."""
        return x

    def parts(self, x: tuple[int, ...]) -> int:
        """Gives the leading size of a member's part. Raises VerifyException if there is not an equal one for each member."""
        if not x or x[0] % self.size:
            raise VerifyException(f"dimension 0 of {list(x)} cannot be dealt to {self.size} replicas in equal parts")
        return x[0] // self.size


def _check_reduction(reduction: str, element: Attribute) -> None:
    if (reduction in ("and", "or")) != (element == i1):
        raise VerifyException(f"replicas reduce {element} not by '{reduction}'; booleans are for 'and' and 'or', and these for booleans")


@irdl_op_definition
class AllReduceOp(OfTensor):
    """`y = x_0 op x_1 op ..` of a group's members in the order of their numbers, the same bits on each. Halves are summed in float32."""

    name = "gcl.all_reduce"
    reduction = choice(REDUCTIONS)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        _check_reduction(self.reduction, element_type_of(self.x.type))
        return super().infer()


@irdl_op_definition
class AllGatherOp(OfTensor):
    """`y[k] = x_k`, of each member k of the group."""

    name = "gcl.all_gather"

    def shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
        return (self.size, *x)


@irdl_op_definition
class ReduceScatterOp(OfTensor):
    """`y = all_reduce(x)[k n : (k + 1) n]` on member k, of n = `shape[0] / size` rows; `local` reduces nothing."""

    name = "gcl.reduce_scatter"
    reduction = choice((*REDUCTIONS, LOCAL))

    def infer(self) -> Sequence[TensorType[Attribute]]:
        if self.reduction != LOCAL:
            _check_reduction(self.reduction, element_type_of(self.x.type))
        return super().infer()

    def shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
        return (self.parts(x), *x[1:])


@irdl_op_definition
class BroadcastOp(OfTensor):
    """`y = x_root`, that of the member at position `root` of the group."""

    name = "gcl.broadcast"
    root = whole(0, low=0)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        if self.root >= self.size:
            raise VerifyException(f"a group of {self.size} replicas has no member {self.root}")
        return super().infer()


@irdl_op_definition
class AllToAllOp(OfTensor):
    """`y[j] = x_j[k]` on member k: part j of x goes to member j. Dimension 0 is cut into `size` equal parts."""

    name = "gcl.all_to_all"

    def shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
        self.parts(x)
        return x


@irdl_op_definition
class BarrierOp(OfTensor):
    """`y = x`, once all members of the group are here."""

    name = "gcl.barrier"


@irdl_op_definition
class ReplicaIndexOp(Collective):
    """The position of the replica in its group, from 0."""

    name = "gcl.replica_index"
    assembly_format = "attr-dict `:` type($y)"
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        return [tensor((), i32)]


@irdl_op_definition
class SendOp(TensorOp):
    """`y = token`, and x goes to the replica `offset` after this one, which receives it by `tag`.

    The token orders what a replica sends: each send takes that of the one before, and each receive that of the last send before it.
    """

    name = "gcl.send"
    x = operand_def(TensorType)
    token = operand_def(TensorType)
    offset = whole()
    tag = whole(0, low=0)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        return [tensor(shape_of(self.token.type), element_type_of(self.token.type))]


@irdl_op_definition
class ReceiveOp(TensorOp):
    """`y = the tensor that the replica `offset` after this one sends by `tag``, of this shape and element type."""

    name = "gcl.receive"
    token = operand_def(TensorType)
    offset = whole()
    tag = whole(0, low=0)
    shape = wholes()
    element = prop_def(Attribute)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        return [tensor(self.shape, self.element)]


OPS = (AllReduceOp, AllGatherOp, ReduceScatterOp, BroadcastOp, AllToAllOp, BarrierOp, ReplicaIndexOp, SendOp, ReceiveOp)
GCL = Dialect("gcl", list(OPS), [])
