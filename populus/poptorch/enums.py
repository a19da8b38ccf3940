"""PopTorch's enumerations, with its numbers."""

from __future__ import annotations

from enum import Enum, IntEnum


class OutputMode(IntEnum):
    """The micro batches of a call whose results it gives: the last, every n-th, all, or their sum."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3
    Default = 4


class ReductionType(IntEnum):
    """Ways to make one gradient of those of several micro batches."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class DataLoaderMode(IntEnum):
    """Ways to load batches: at once, or in a thread of their own."""

    Sync = 0
    Async = 1
    AsyncRebatched = 2


class SharingStrategy(IntEnum):
    """Ways to hand over batches of a worker; all are handed over in memory here."""

    SharedMemory = 0
    FileSystem = 1
    Fork = 2
    ForkServer = 3


class MatMulSerializationMode(Enum):
    """The dimension along which a matrix product is cut; the planner decides that here."""

    InputChannels = "input_channels"
    ReducingDim = "reducing_dim"
    OutputChannels = "output_channels"
    Disabled = "none"


class OverlapMode(Enum):
    """The loop with which a stream's transfers overlap; there are no transfers here."""

    NoOverlap = "no_overlap"
    OverlapAccumulationLoop = "overlap_accumulation_loop"
    OverlapDeviceIterationLoop = "overlap_device_iteration_loop"


MeanReductionStrategy = IntEnum("MeanReductionStrategy", {"Running": 0, "Post": 1, "PostAndLoss": 2})
ConnectionType = IntEnum("ConnectionType", {"Always": 0, "OnDemand": 1, "Never": 2})
HalfFloatCastingBehavior = IntEnum("HalfFloatCastingBehavior", {"FloatDowncastToHalf": 0, "HalfUpcastToFloat": 1, "Default": 2})
SyncPattern = IntEnum("SyncPattern", {"Full": 0, "SinglePipeline": 1, "ReplicaAndLadder": 2})
Liveness = IntEnum("Liveness", {"AlwaysLive": 0, "OffChipAfterFwd": 1, "OffChipAfterFwdNoOverlap": 2, "OffChipAfterEachPhase": 3})
AutoStage = IntEnum("AutoStage", {"SameAsIpu": 0, "AutoIncrement": 1})
MultiConvPlanType = IntEnum("MultiConvPlanType", {"Parallel": 0, "Serial": 1})
CommGroupType = IntEnum("CommGroupType", {"All": 0, "Consecutive": 1, "Orthogonal": 2, "NoGrouping": 3})
VariableRetrievalMode = IntEnum("VariableRetrievalMode", {"OnePerGroup": 0, "AllReplicas": 2})
