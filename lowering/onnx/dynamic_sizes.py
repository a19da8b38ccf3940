"""Results whose size the data decide: the outputs of an op that are partly valid, along which axis, and how many of them count.

    NonZero -> Transpose -> GatherND -> ReduceSum      # [2, n of 12], [n of 12, 2], [n of 12], one number

Such a size is a name of `ValidSizes`, as a dimension of an input is, but defined where the op stands.
"""

from __future__ import annotations

from dataclasses import dataclass

from populus.dialects.onnx.schema import OnnxOp
from populus.lowering.onnx.valid_sizes import ValidSizes

COUNTING = ("Compress", "NonMaxSuppression", "NonZero", "Unique")
CONTROL = ("If", "Loop", "Scan")


@dataclass(frozen=True)
class Bound:
    """A valid length `count` along `axis`; bounds of one `count` have equal lengths."""

    axis: int
    count: object


def reads_sizes(op: OnnxOp, valid: ValidSizes) -> bool:
    """Tells whether an op is to be typed and converted by the sizes of its operands.

    Ops that count by themselves are not, nor is control flow.
    """
    return valid.concerns(op.operands) and (bool(op.DOMAIN) or op.OP_TYPE not in (*COUNTING, *CONTROL))
