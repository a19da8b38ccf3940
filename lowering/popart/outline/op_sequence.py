"""Sequence of a module's ops as letters, equal for equal ops, and the values and costs of its stretches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.func import CallOp
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue
from xdsl.traits import Pure

from populus.dialects.base.tensor_op import LOW_VALUE, TensorOp
from populus.dialects.data import ConstantOp, same_value
from populus.dialects.popart.base import ElementwiseOp, PopartOp
from populus.dialects.popops import MapOp
from populus.dialects.support.element_types import shape_of, value_bytes

Values: TypeAlias = "tuple[SSAValue, ...]"  # a value for each of several stretches: the same operand of the same op
Slot: TypeAlias = tuple[int, int]  # (number of an op in a stretch, number of its operand or result)


@dataclass(frozen=True)
class Stretch:
    """Consecutive ops."""

    begin: int
    length: int


class Listing:
    """Ops of some blocks in order, without constants.

    `letters`: equal for ops that compute the same from equal operands. An op that no function can contain has a
    letter of its own, and so has each end of a block.
    """

    def __init__(self, blocks: Sequence[Block]):
        self.ops: list[Operation] = []
        self.letters: list[int] = []
        known: dict[object, int] = {}
        for block in blocks:
            for op in block.ops:
                if not isinstance(op, ConstantOp):
                    self.ops.append(op)
                    key = _key(op)
                    self.letters.append(known.setdefault(len(known) if key is None else key, len(known)))
        values = [op.OUTLINE_VALUE if isinstance(op, TensorOp) else LOW_VALUE for op in self.ops]
        self._values = [0.0, *itertools.accumulate(values)]
        self._made, self._first = self._distances()

    def __len__(self) -> int:
        return len(self.ops)

    def of(self, stretch: Stretch) -> list[Operation]:
        """Returns the ops of a stretch."""
        return self.ops[stretch.begin : stretch.begin + stretch.length]

    def value(self, stretch: Stretch) -> float:
        """Sums the outline values of a stretch's ops."""
        return self._values[stretch.begin + stretch.length] - self._values[stretch.begin]

    # -- wiring

    def _distances(self) -> tuple[NDArray[np.int64], list[int]]:
        """Computes, for each operand of each op in turn, [operands, 2]: the distance to its producer and the result's
        number; and where each op's operands begin.

        The distance is a large number if the producer is not in the sequence.
        """
        place = {result: i for i, op in enumerate(self.ops) for result in op.results}
        first = [0, *itertools.accumulate(len(op.operands) for op in self.ops)]
        made = np.full((first[-1], 2), len(self.ops) + 1, np.int64)
        for i, op in enumerate(self.ops):
            for j, operand in enumerate(op.operands, first[i]):
                if isinstance(operand, OpResult) and operand in place:
                    made[j] = i - place[operand], operand.index
        return made, first

    def _inside(self, stretch: Stretch) -> NDArray[np.int64]:
        """Returns the distances of a stretch's operands, with zeros for operands from outside."""
        first = self._first[stretch.begin : stretch.begin + stretch.length + 1]
        made = self._made[first[0] : first[-1]]
        ops = np.repeat(np.arange(stretch.length), np.diff(first))
        return np.where(made[:, :1] <= ops[:, None], made, 0)

    def alike(self, stretches: Sequence[Stretch]) -> list[list[Stretch]]:
        """Groups stretches of equal letters by how their ops read each other's results."""
        groups: dict[bytes, list[Stretch]] = {}
        for stretch in stretches:
            groups.setdefault(self._inside(stretch).tobytes(), []).append(stretch)
        return list(groups.values())

    def interface(self, stretches: Sequence[Stretch]) -> tuple[dict[Values, list[Slot]], dict[Values, list[Slot]], list[Slot]]:
        """Collects the operands from outside and the used results of stretches that are alike.

        Returns values that differ, with their slots; constants that do not, with theirs; and the slots of results
        that are read outside of some stretch.
        """
        arguments: dict[Values, list[Slot]] = {}
        constants: dict[Values, list[Slot]] = {}
        occurrences = [self.of(stretch) for stretch in stretches]
        inside = iter((self._inside(stretches[0])[:, 0] > 0).tolist())
        results: list[Slot] = []
        within = [set(ops) for ops in occurrences]
        for t, ops in enumerate(zip(*occurrences)):
            for j in range(len(ops[0].operands)):
                if not next(inside):
                    values = tuple(op.operands[j] for op in ops)
                    (constants if _equal_constants(values) else arguments).setdefault(values, []).append((t, j))
            for j in range(len(ops[0].results)):
                if any(use.operation not in own for op, own in zip(ops, within) for use in op.results[j].uses):
                    results.append((t, j))
        return arguments, constants, results

    # -- costs

    def copy_cost(self, stretches: Sequence[Stretch]) -> float:
        """Computes a call's copy cost: the sum of the square roots of the bytes of arguments and results.

        The cost is infinite if no result is read.
        """
        arguments, _, results = self.interface(stretches)
        if not results:
            return math.inf
        ops = self.of(stretches[0])
        return sum(math.sqrt(value_bytes(v)) for v in (*(values[0] for values in arguments), *(ops[t].results[j] for t, j in results)))

    def op_cost(self, stretch: Stretch) -> float:
        """Computes the cost of the ops: each op's value times the square root of the bytes that it reads."""
        return sum(
            self.value(Stretch(stretch.begin + t, 1)) * math.sqrt(sum(map(value_bytes, op.operands)))
            for t, op in enumerate(self.of(stretch))
        )

    def breaks(self, stretch: Stretch) -> int:
        """Counts the chains of element-wise ops that the ends of a stretch cut."""
        ops = self.of(stretch)
        own = set(ops)
        entering = sum(o.owner not in own and _chained(o) for op in ops for o in dict.fromkeys(op.operands))
        return entering + sum(use.operation not in own and _chained(r) for op in ops for r in op.results for use in r.uses)


def _chained(value: SSAValue) -> bool:
    """Tells whether a value's producer and its only reader both work element by element on the same shape."""
    maker, reader = value.owner, value.get_user_of_unique_use()
    if not isinstance(maker, ElementwiseOp | MapOp) or not isinstance(reader, ElementwiseOp | MapOp):
        return False
    return shape_of(reader.results[0].type) == shape_of(value.type)


def _key(op: Operation) -> object | None:
    """Returns a key that is equal for ops that compute the same; None for an op that a function cannot contain."""
    if isinstance(op, CallOp):
        ignored: frozenset[str] = frozenset()
    elif isinstance(op, TensorOp) and op.has_trait(Pure) and not op.regions:
        ignored = op.OUTLINE_IGNORES
    else:
        return None
    stated = frozenset((k, v) for k, v in (*op.properties.items(), *op.attributes.items()) if k not in ignored)
    return op.name, stated, tuple((o.type, _number(o, op)) for o in op.operands), tuple(r.type for r in op.results)


def _number(value: SSAValue, op: Operation) -> Attribute | None:
    """Returns the value of a constant of one element, which may be part of a formula, or that an op reads as a value.

    Other constants are data.
    """
    owner = value.owner
    read = isinstance(op, PopartOp) and any(getattr(op, name) is value for name in op.CONSTANTS)
    return owner.value if isinstance(owner, ConstantOp) and (read or math.prod(shape_of(value.type)) == 1) else None


def _equal_constants(values: Values) -> bool:
    owners = [value.owner for value in values]
    first = owners[0]
    return isinstance(first, ConstantOp) and all(isinstance(o, ConstantOp) and same_value(o.value, first.value) for o in owners)
