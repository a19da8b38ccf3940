"""The `popops` dialect: element-wise maps, reductions, rearrangements and slices as library calls."""

from xdsl.ir import Dialect

from populus.dialects.popops.ops import (
    REDUCTIONS,
    BroadcastOp,
    ConcatOp,
    DimShuffleOp,
    IotaOp,
    MapOp,
    MultiSliceOp,
    PadOp,
    ReduceOp,
    ReshapeOp,
    SliceOp,
)

POPOPS = Dialect(
    "popops",
    [BroadcastOp, ConcatOp, DimShuffleOp, IotaOp, MapOp, MultiSliceOp, PadOp, ReduceOp, ReshapeOp, SliceOp],
    [],
)

__all__ = [
    "POPOPS",
    "REDUCTIONS",
    "BroadcastOp",
    "ConcatOp",
    "DimShuffleOp",
    "IotaOp",
    "MapOp",
    "MultiSliceOp",
    "PadOp",
    "ReduceOp",
    "ReshapeOp",
    "SliceOp",
]
