"""The `popops` dialect: element-wise maps, reductions, rearrangements and slices as library calls."""

from xdsl.ir import Dialect

from populus.dialects.popops.control_flow import IfOp, LoopOp, YieldOp
from populus.dialects.popops.indexed import MultiUpdateOp, TopKOp
from populus.dialects.popops.ops import (
    REDUCTIONS,
    BroadcastOp,
    CodeletOp,
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
    [
        BroadcastOp,
        CodeletOp,
        ConcatOp,
        DimShuffleOp,
        IfOp,
        IotaOp,
        LoopOp,
        MapOp,
        MultiSliceOp,
        MultiUpdateOp,
        PadOp,
        ReduceOp,
        ReshapeOp,
        SliceOp,
        TopKOp,
        YieldOp,
    ],
    [],
)

__all__ = [
    "POPOPS",
    "REDUCTIONS",
    "BroadcastOp",
    "CodeletOp",
    "ConcatOp",
    "DimShuffleOp",
    "IfOp",
    "IotaOp",
    "LoopOp",
    "MapOp",
    "MultiSliceOp",
    "MultiUpdateOp",
    "PadOp",
    "ReduceOp",
    "ReshapeOp",
    "SliceOp",
    "TopKOp",
    "YieldOp",
]
