"""Collectives of replicas: who is in a group, and what each member gets.

Whoever runs replicas gives each a `Communicator`, whose one duty is to pass arrays between members. Everything else is arithmetic on
these in the order of the members' numbers, so that replicas in one process and replicas in several get the same bits.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import DenseArrayBase, i64
from xdsl.utils.exceptions import VerifyException

from populus.dialects import gcl
from populus.dialects.poplar.memory import type_of
from populus.dialects.poplar.outside import CollectiveOp
from populus.dialects.poplar.program import element_of
from populus.dialects.support.diagnostics import PopulusError, did_you_mean, where
from populus.dialects.support.element_types import dtype_of, tensor
from populus.runtime.views import params_of

Array: TypeAlias = NDArray[Any]
MESSAGES = ("send", "receive")  # between two replicas; the others are over groups
CUT_FROM = 4096  # elements from which a reduction is cut into parts, one for each member


@dataclass(frozen=True)
class Group:
    """Replicas that meet: `size` of them, `stride` apart."""

    stride: int
    size: int

    def members(self, replica: int) -> range:
        """Gives the numbers of the replicas of a replica's group."""
        block = self.stride * self.size
        first = replica // block * block + replica % self.stride
        return range(first, first + block, self.stride)

    def position(self, replica: int) -> int:
        """Gives a replica's place in its group."""
        return self.members(replica).index(replica)

    def check(self, count: int) -> None:
        """Raises PopulusError unless the groups are all of `count` replicas."""
        if count % (self.stride * self.size):
            said = f"groups of {self.size} replicas with stride {self.stride} take a multiple of {self.stride * self.size} replicas"
            raise PopulusError(f"{said}; there {'is one' if count == 1 else f'are {count}'}")


class Communicator(ABC):
    """A replica's way to the others. `rank`: its number. `count`: how many there are."""

    rank: int
    count: int

    @abstractmethod
    def exchange(self, group: Group, arrays: Sequence[Array], label: str) -> Sequence[Array]:
        """Gives array k of each member's, for this replica's position k, once all members have called this.

        `arrays`: one for each member, all of one shape. `label`: the step, the same for all. The arrays that it gives may be another
        replica's own, so nobody writes to them.
        """

    @abstractmethod
    def send(self, target: int, array: Array, label: str, tag: int) -> None:
        """Sends an array to a replica, and goes on. `tag`: a number that tells messages of the two apart, above 0."""

    @abstractmethod
    def receive(self, source: int, like: Array, label: str, tag: int) -> Array:
        """Gives the array that a replica sends by this tag, of the shape and type of `like`."""

    def gather(self, group: Group, array: Array, label: str) -> Sequence[Array]:
        """Gives the arrays of the group's members in order."""
        return self.exchange(group, [array] * group.size, label)

    def reduced(self, group: Group, reduction: str, array: Array, label: str) -> Array:
        """Gives the reduction of all members' arrays. A large one is cut: each member reduces a part, and gets the others' parts."""
        if array.size < CUT_FROM or group.size == 1:
            return reduced(reduction, self.gather(group, array, label))
        share = -(-array.size // group.size)
        flat = array.reshape(-1)
        cut = [flat[k * share : (k + 1) * share] for k in range(group.size)]
        cut = [np.concatenate([part, np.zeros(share - part.size, part.dtype)]) if part.size < share else part for part in cut]
        mine = reduced(reduction, self.exchange(group, cut, label))
        whole = np.concatenate(self.gather(group, mine, f"parts of {label}"))
        return whole[: array.size].reshape(array.shape)


class Alone(Communicator):
    """A program without other replicas."""

    rank, count = 0, 1

    def exchange(self, group: Group, arrays: Sequence[Array], label: str) -> Sequence[Array]:
        return [arrays[0]]

    def send(self, target: int, array: Array, label: str, tag: int) -> None:
        raise PopulusError(f"there is no replica {target}: {label}")

    def receive(self, source: int, like: Array, label: str, tag: int) -> Array:
        raise PopulusError(f"there is no replica {source}: {label}")


_ALONE = Alone()
_CURRENT: ContextVar[Communicator] = ContextVar("the replica that runs", default=_ALONE)


def communicator() -> Communicator:
    """Gives the way to the others of the replica that runs."""
    return _CURRENT.get()


@contextmanager
def speaking(way: Communicator) -> Generator[None, None, None]:
    """Runs as the replica of this way to the others."""
    token = _CURRENT.set(way)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float32) if dtype.kind not in "biu" and dtype.itemsize < 4 else dtype


def _add(a: Array, b: Array) -> Array:
    return a + b


_PAIRS: dict[str, Callable[[Array, Array], Array]] = {
    "add": _add,
    "mean": _add,
    "square_add": _add,
    "mul": lambda a, b: a * b,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.logical_and,
    "or": np.logical_or,
}


def reduced(reduction: str, arrays: Sequence[Array]) -> Array:
    """Reduces arrays of one shape from the first to the last, numbers of 16 bits and fewer in float32."""
    dtype = arrays[0].dtype
    with np.errstate(all="ignore"):
        values = [a.astype(_wide(dtype)) for a in arrays]
        if reduction == "square_add":
            values = [v * v for v in values]
        found = reduce(_PAIRS[reduction], values)
        if reduction == "mean":
            found = found // len(arrays) if dtype.kind in "iu" else found / np.asarray(len(arrays), found.dtype)
        return np.asarray(found).astype(dtype)


@dataclass(frozen=True)
class Collective:
    """A collective of a program: its kind, the properties of its op, its place for messages, and an array like its result."""

    kind: str
    params: Mapping[str, Any]
    place: str
    like: Array

    @staticmethod
    def of(op: CollectiveOp) -> Collective:
        """Gives the collective of a step of a tile program. Raises PopulusError if the op of `gcl` would not verify."""
        _verify(op)
        like = np.empty(type_of(op.views[-1]).shape, dtype_of(element_of(op.views[-1])))
        return Collective(op.function.data, {} if op.params is None else params_of(op.params), where(op), like)

    @property
    def group(self) -> Group:
        """The replicas that meet: of a message, the two."""
        if self.kind in MESSAGES:
            return Group(1, 2)
        return Group(int(self.params["stride"]), int(self.params["size"]))

    def result(self, arrays: Sequence[Array]) -> Array:
        """Gives this replica's result from its own operand, if any. Raises PopulusError for groups that replicas do not fill."""
        way, group = communicator(), self.group
        if self.kind in MESSAGES:
            return self._message(way, arrays)
        group.check(way.count)
        position = group.position(way.rank)
        if self.kind == "replica_index":
            return np.asarray(position, np.int32)
        (x,) = arrays
        if self.params.get("reduction") == "local":
            return self._part(x, position).copy()
        label = f"{self.place}: {self.kind} {dict(self.params)} of {x.dtype} {list(x.shape)}"
        match self.kind:
            case "all_reduce":
                return way.reduced(group, self.params["reduction"], x, label)
            case "all_gather":
                return np.stack(way.gather(group, x, label))
            case "reduce_scatter":
                return reduced(self.params["reduction"], way.exchange(group, self._parts(x), label))
            case "broadcast":
                return way.gather(group, x, label)[int(self.params["root"])].copy()
            case "all_to_all":
                return np.concatenate(way.exchange(group, self._parts(x), label))
            case "barrier":
                way.gather(group, np.zeros(0, np.uint8), label)
                return x
            case _:
                raise AssertionError(self.kind)

    def _message(self, way: Communicator, arrays: Sequence[Array]) -> Array:
        other, tag = way.rank + int(self.params["offset"]), int(self.params["tag"])
        if not 0 <= other < way.count:
            there = "is one" if way.count == 1 else f"are {way.count}"
            raise PopulusError(f"replica {way.rank} has no replica {other} to {self.kind}; there {there}")
        if self.kind == "send":
            way.send(other, arrays[0], f"message {tag}", tag)
            return arrays[1]
        return way.receive(other, self.like, f"message {tag}", tag)

    def _parts(self, x: Array) -> list[Array]:
        return [self._part(x, position) for position in range(self.group.size)]

    def _part(self, x: Array, position: int) -> Array:
        rows = x.shape[0] // self.group.size
        return x[position * rows : (position + 1) * rows]


def _verify(step: CollectiveOp) -> None:
    """Requires of a step what its op of `gcl` requires: the number and types of its views, and its properties."""
    from xdsl.utils.test_value import create_ssa_value  # this import loads register allocation

    name = f"gcl.{step.function.data}"
    kind = next((op for op in gcl.OPS if op.name == name), None)
    if kind is None:
        raise PopulusError(f"{where(step)}: there is no collective '{step.function.data}'{did_you_mean(name, [o.name for o in gcl.OPS])}")
    types = [tensor(type_of(view).shape, element_of(view)) for view in step.views]
    if step.inputs.value.data != len(types) - 1:
        raise PopulusError(f"{where(step)}: {name} has one output, of {len(step.views)} views")
    *operands, result = types
    own = {"shape": DenseArrayBase.from_list(i64, result.get_shape()), "element": result.element_type}
    stated = {} if step.params is None else dict(step.params.data)
    properties = {**{key: own[key] for key in kind.get_irdl_definition().properties if key in own}, **stated}
    op = kind.create(operands=[create_ssa_value(type) for type in operands], result_types=[result], properties=properties)
    try:
        op.verify(verify_nested_ops=False)
    except VerifyException as error:
        raise PopulusError(f"{where(step)}: {name}: {' '.join(str(error).split())}") from error


def cost(kind: str, bytes: int, size: int, link_bytes: int, link_cycles: int) -> int:
    """Predicts the cycles of a collective of `size` chips in a ring: `bytes` of a member's operand, over links of `link_bytes` a cycle.

    The lesser of two ways. A ring takes `size - 1` steps, each of a part of the whole. A tree takes `log2(size)` steps between chips that
    are 1, 2, 4, .. apart, whose parts share the links between: each step moves half of the whole through every link. An all-reduce
    is a reduce-scatter and an all-gather. Source: the usual model of collectives on a ring.
    """
    if kind in ("replica_index", "receive") or size == 1:
        return 0
    if kind == "send":
        return link_cycles + math.ceil(bytes / link_bytes)
    steps = math.ceil(math.log2(size))
    if kind == "barrier":
        return steps * link_cycles
    whole = bytes * size if kind == "all_gather" else bytes
    ring = (size - 1) * (link_cycles + math.ceil(math.ceil(whole / size) / link_bytes))
    tree = steps * (link_cycles + math.ceil(math.ceil(whole / 2) / link_bytes))
    return min(ring, tree) * (2 if kind == "all_reduce" else 1)
