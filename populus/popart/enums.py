"""PopART's enumerations, by name and members. Numbers of `DataType` are ONNX's."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import cast

_MEMBERS = {
    "AccumulateOuterFragmentSchedule": "Scheduler Serial OverlapCycleOptimized OverlapMemoryOptimized",
    "AdamMode": "Adam AdamNoBias Lamb LambNoBias AdaMax",
    "AdaptiveMode": "AdaGrad RMSProp CenteredRMSProp AdaDelta",
    "AnchorReturnTypeId": "Final EveryN All Sum",
    "AutodiffStitchStrategy": "RecomputeMinimal RecomputeAllNonInputs AddFwdOutputs SafeAddFwdOutputs",
    "BatchSerializationBatchSchedule": "Scheduler Isomorphic OverlapOnIo OverlapOnCompute",
    "BatchSerializationMethod": "UnrollDynamic UnrollStatic Loop",
    "BatchSerializationTransformContext": "Forward Backward Fwd Bwd",
    "CommGroupType": "All Consecutive Orthogonal None_ Ungrouped",
    "DeviceConnectionType": "Always OnDemand Never",
    "DeviceSelectionCriterion": "First Random",
    "DeviceType": "IpuModel Cpu Ipu OfflineIpu Sim",
    "ExchangeStrategy": "JustInTime OverlapInnerLoop OverlapLoops OverlapStep",
    "ExecutionPhaseIOSchedule": "Preload OnDemand",
    "ExecutionPhaseSchedule": "Interleaving Batch BatchClusteredIO",
    "GradientTensorTrackingMethod": "ConvAndMatmulGradients AllNonViewChangingGradientTensors GradientsOfUserSpecifiedTensors",
    "InitType": "NoInit Zero",
    "Instrumentation": "Outer Inner",
    "IrSerializationFormat": "JSON",
    "MeanReductionStrategy": "Running Post",
    "MergeVarUpdateType": "Off All AutoTight AutoLoose",
    "PatternsLevel": "All Default Minimal NoPatterns",
    "RecomputationType": "NoRecompute Standard NormOnly RecomputeAll Pipeline",
    "RecomputeType": "Undefined Checkpoint Recompute Recomputed",
    "ReductionType": "Sum Mean NoReduction",
    "ReplicatedStreamMode": "Replicate Broadcast",
    "ReplicatedTensorSharding": "Off On",
    "SGDAccumulatorAndMomentum": "Combined Separate",
    "ScatterReduction": "Sum Max Min Mul NoReduction",
    "SubgraphCopyingStrategy": "OnEnterAndExit JustInTime",
    "SyncPattern": "Full SinglePipeline ReplicaAndLadder",
    "SyntheticDataMode": "Off Zeros RandomNormal RandomUniform",
    "TensorRemapType": "FwdBwdReverse FwdBwd Fwd",
    "TensorStorage": "OnChip OffChip",
    "TileSet": "Compute IO",
    "VariableRetrievalMode": "OnePerGroup AllReduceReplicas AllReplicas",
    "VirtualGraphMode": "Off Manual Auto ExecutionPhases",
    "RecoveryAction": "IPU_RESET LINK_RESET PARTITION_RESET FULL_RESET",
    "WeightDecayMode": "Decay L2Regularization",
}


def _made(name: str, members: str) -> type[Enum]:
    return cast("type[Enum]", cast("object", Enum(name, members.split(), module=__name__)))


ENUMS: dict[str, type[Enum]] = {name: _made(name, members) for name, members in _MEMBERS.items()}


class DataType(IntEnum):
    """Element types, by ONNX's numbers."""

    UNDEFINED = 0
    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16
    FLOAT8_143 = 18
    FLOAT8_152 = 20
