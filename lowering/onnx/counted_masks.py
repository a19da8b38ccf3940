"""Masks whose true elements are counted more than once: each count has one name, so that sizes are known to be equal.

    at = NonZero(m)                     # [1, #0]
    all = NonZero(Expand(Unsqueeze(m), [n, 8]))         # [2, 8 #0]
    n = ReduceSum(Cast(m))              # #0

torch exports an assignment `y[m] = v` as these three.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from xdsl.dialects.builtin import StringAttr, i1, i32, i64
from xdsl.ir import Block, SSAValue

from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.onnx.sizes import Size, size
from populus.dialects.onnx.types import as_tensor, is_static
from populus.dialects.support.element_types import element_type_of, shape_of
from populus.lowering.onnx.valid_sizes import ValidSizes

KEY = "counts"  # on a sum: the name of the count that it is
KEEPING = ("Cast", "Expand", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


@dataclass
class CountedMasks:
    """The names of counts, by the block of the op that counts and the mask."""

    valid: ValidSizes
    names: dict[tuple[Block | None, SSAValue], str] = field(default_factory=dict[tuple[Block | None, SSAValue], str])

    def size(self, op: OnnxOp, most: int) -> Size:
        """Gives the number of results of an op that counts, at most `most`: a new name, or that of the count of the same mask."""
        x = op.operands[0]
        if op.OP_TYPE != "NonZero":
            return size(self.valid.counted(most))
        mask, times = self.origin(x)
        if (known := self.names.get((op.parent, mask))) is not None:
            return size(known) * times
        name = self.valid.counted(most)
        if times == 1:
            self.names[op.parent, mask] = name
        return size(name)

    def summed(self, op: OnnxOp) -> str | None:
        """Gives the name of the count that a sum is: that of all true elements of a counted mask; None for any other op."""
        if op.OP_TYPE != "ReduceSum" or op.DOMAIN or len(op.operands) != 1 or op.property("noop_with_empty_axes"):
            return None
        x = op.operands[0]
        if element_type_of(x.type) not in (i32, i64) or ("axes" in op.KINDS and op.property("axes")):
            return None
        mask, times = self.origin(x)
        return self.names.get((op.parent, mask)) if times == 1 and element_type_of(mask.type) == i1 else None

    def origin(self, value: SSAValue) -> tuple[SSAValue, int]:
        """Follows a mask to where it comes from; each of its elements is there as often as the number says."""
        times = 1
        while isinstance(op := value.owner, OnnxOp) and op.OP_TYPE in KEEPING and not op.DOMAIN and value not in self.valid.axes:
            x = op.operands[0]
            type = as_tensor(x.type)
            if type is None or not is_static(type) or x in self.valid.axes:
                break
            if op.OP_TYPE == "Cast" and type.element_type != i1:
                break
            before, after = math.prod(shape_of(x.type)), math.prod(shape_of(value.type))
            if not before or after % before:
                break
            value, times = x, times * (after // before)
        return value, times


def mark_sum(op: OnnxOp, name: str) -> None:
    """Records on a sum the count that it is."""
    op.attributes[KEY] = StringAttr(name)


def marked_sum(op: OnnxOp) -> str | None:
    """Gives what `mark_sum` recorded; None if there is nothing."""
    found = op.attributes.get(KEY)
    return found.data if isinstance(found, StringAttr) else None
