"""`SessionOptions`, `Patterns` and the groups of settings, with PopART's members and defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from enum import Enum
from typing import Any, ClassVar, cast

import numpy as np

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.popart.enums import ENUMS
from populus.popart.overloads import bound
from populus.popart.quiet import ignored


def _fresh(default: Any) -> Any:
    """Gives a member's first value: a copy of a collection, a new group of settings, or the value."""
    return default() if isinstance(default, type) else copy(default)


_EXPECTED: Mapping[type[object], str] = {bool: "True or False", int: "a whole number"}


class Settings:
    """Members with defaults. Raises PopulusError where a member is assigned that there is not."""

    DEFAULTS: ClassVar[Mapping[str, Any]] = {}
    HONOURED: ClassVar[frozenset[str]] = frozenset()
    REFUSED: ClassVar[frozenset[str]] = frozenset()
    INSTEAD: ClassVar[Mapping[str, str]] = {}

    LISTS: ClassVar[Sequence[Sequence[str]]] = ()

    def __init__(self, *values: Any, **named: Any):
        for name, value in self.DEFAULTS.items():
            fresh: Any = _fresh(value)
            object.__setattr__(self, name, fresh)
        given = bound(type(self).__name__, self.LISTS or (tuple(self.DEFAULTS),), values, named)
        for name, value in given.items():
            setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__} has no member '{name}'{did_you_mean(name, self.DEFAULTS)}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.DEFAULTS:
            raise AttributeError(f"{type(self).__name__} has no member '{name}'{did_you_mean(name, self.DEFAULTS)}")
        if name not in self.HONOURED and name not in self.REFUSED and value != self.DEFAULTS[name]:
            ignored(f"{type(self).__name__}.{name}", *([self.INSTEAD[name]] if name in self.INSTEAD else []))
        expected = _EXPECTED.get(cast("type[object]", type(self.DEFAULTS[name])))
        if name in self.HONOURED and expected and not isinstance(value, int | np.integer | np.bool_):
            raise PopulusError(f"{type(self).__name__}.{name} = {value!r}; expected {expected}")
        object.__setattr__(self, name, value)


def _group(name: str, lists: Sequence[str] = (), **defaults: Any) -> type[Settings]:
    text = f"The settings {name} of PopART; on one machine they change no result."
    return type(name, (Settings,), {"DEFAULTS": defaults, "LISTS": [t.split() for t in lists], "__doc__": text})


TensorLocation = _group(
    "TensorLocation",
    # Lists are told apart by their lengths and names, as in PopART.
    [
        "storage replicatedTensorSharding",
        "storage replicatedTensorSharding shardingDomain",
        "storage loadTileSet storageTileSet replicatedTensorSharding",
        "storage loadTileSet storageTileSet replicatedTensorSharding shardingDomain",
    ],
    storage=ENUMS["TensorStorage"].__members__["OnChip"],
    loadTileSet=ENUMS["TileSet"].__members__["Compute"],
    storageTileSet=ENUMS["TileSet"].__members__["Compute"],
    replicatedTensorSharding=ENUMS["ReplicatedTensorSharding"].__members__["Off"],
    shardingDomain=None,
)
TensorLocationSettings = _group(
    "TensorLocationSettings", location=TensorLocation, minElementsForOffChip=2, minElementsForReplicatedTensorSharding=8192
)
AutomaticLossScalingSettings = _group(
    "AutomaticLossScalingSettings",
    enabled=False,
    toTrackTensors=None,
    binEdgeLocation=0.125,
    thresholdUpperCountProportion=1e-7,
    updatePeriod=1,
    gradientTensorTrackingMethod=None,
)
ReplicatedCollectivesSettings = _group(
    "ReplicatedCollectivesSettings",
    prepareScheduleForMergingCollectives=False,
    mergeAllReduceCollectives=False,
    mergeReduceScatterCollectives=False,
    mergeAllGatherCollectives=False,
)
BatchSerializationSettings = _group(
    "BatchSerializationSettings",
    factor=0,
    concatOnVirtualGraphChange=True,
    concatOnExecutionPhaseChange=True,
    concatOnPipelineStageChange=True,
    transformContext=None,
    method=None,
    batchSchedule=None,
)
AutodiffSettings = _group("AutodiffSettings", stitchStrategy=ENUMS["AutodiffStitchStrategy"].__members__["RecomputeAllNonInputs"])
ExecutionPhaseSettings = _group(
    "ExecutionPhaseSettings",
    ["phases stages weightIOSchedule activationIOSchedule optimizerStateIOSchedule accumulatorIOSchedule optimizerSchedule"],
    phases=0,
    stages=2,
    weightIOSchedule=None,
    activationIOSchedule=None,
    optimizerStateIOSchedule=None,
    accumulatorIOSchedule=None,
    optimizerSchedule=None,
    schedule=None,
)
AccumulateOuterFragmentSettings = _group("AccumulateOuterFragmentSettings", schedule=None, excludedVirtualGraphs=[])
NumIOTiles = _group("NumIOTiles", value=0)
ExperimentalSettings = _group("ExperimentalSettings", customTransformApplierSettings={}, createHostTransferableTensorWithOffset=False)

_REDUCTION = ENUMS["ReductionType"].__members__
_MAPS = "engineOptions convolutionOptions lstmOptions matmulOptions reportOptions gclOptions"


class SessionOptions(Settings):
    """The options of compiling and running a session; a member that is neither in `HONOURED` nor in `REFUSED` changes no result."""

    HONOURED: ClassVar[frozenset[str]] = frozenset(
        ("accumulationAndReplicationReductionType", "accumulationFactor", "cachePath", "compileEngine", "constantWeights",
         "enableEngineCaching", "enableGradientAccumulation", "enableInplaceAmbiguityChecking", "enableOutlining", "enableReplicatedGraphs",
         "globalReplicaOffset", "groupNormStridedChannelGrouping",
         "instrumentWithHardwareCycleCounter", "opxAliasChecking", "opxModifyChecking", "replicatedGraphCount", "syntheticDataMode",
         "throwIfLog2ScaleTensorNotInRange")
    )  # fmt: skip
    # With another value than the default's, results would differ.
    REFUSED: ClassVar[frozenset[str]] = frozenset(
        ("automaticLossScalingSettings", "createImplicitPipeliningFwdOnlyProgram", "enableDistributedReplicatedGraphs",
         "globalReplicationFactor")
    )  # fmt: skip
    # The behaviour here, for members whose warning must say more than that results are the same.
    INSTEAD: ClassVar[Mapping[str, str]] = {
        "customCodeletCompileFlags": "codelets of yours come from `populus.load`",
        "customCodelets": "codelets of yours come from `populus.load`",
        "enableFloatingPointChecks": "infinities and NaN raise no error",
        "enableNonStableSoftmax": "softmax is always the stable form",
        "enableStochasticRounding": "f16 is rounded to the nearest",
        "engineOptions": "they are options of another compiler's engine",
        "logDir": "no file is written there",
        "partialsTypeMatMuls": "partial sums are of f32",
    }
    DEFAULTS: ClassVar[Mapping[str, Any]] = {
        "logDir": "",
        "dotChecks": set(),
        "firstDotOp": 0,
        "finalDotOp": 10000,
        "dotOpNames": False,
        "exportPoplarComputationGraph": False,
        "exportPoplarVertexGraph": False,
        "separateCallOpPdfs": True,
        "enableOutlining": True,
        "enableOutliningCopyCostPruning": True,
        "outlineThreshold": 1.0,
        "outlineSequenceBreakCost": 10000.0,
        "subgraphCopyingStrategy": ENUMS["SubgraphCopyingStrategy"].__members__["OnEnterAndExit"],
        "autoRecomputation": ENUMS["RecomputationType"].__members__["NoRecompute"],
        "mergeVarUpdate": ENUMS["MergeVarUpdateType"].__members__["Off"],
        "mergeVarUpdateMemThreshold": 1000000,
        "looseThresholdAtPeak": 8000,
        "rearrangeAnchorsOnHost": True,
        "rearrangeStreamsOnHost": False,
        "enablePrefetchDatastreams": True,
        "defaultBufferingDepth": 1,
        "defaultPrefetchBufferingDepth": 1,
        "bufferingDepthMap": {},
        "prefetchBufferingDepthMap": {},
        "enableNonStableSoftmax": False,
        "enableReplicatedGraphs": False,
        "enableGradientAccumulation": False,
        "accumulationAndReplicationReductionType": _REDUCTION["Sum"],
        "meanAccumulationAndReplicationReductionStrategy": ENUMS["MeanReductionStrategy"].__members__["Post"],
        "replicatedGraphCount": 1,
        "accumulationFactor": 1,
        "virtualGraphMode": ENUMS["VirtualGraphMode"].__members__["Off"],
        "virtualGraphSplitRatios": [],
        "enablePipelining": False,
        "syntheticDataMode": ENUMS["SyntheticDataMode"].__members__["Off"],
        "instrumentWithHardwareCycleCounter": False,
        "hardwareInstrumentations": {ENUMS["Instrumentation"].__members__["Outer"]},
        "disableGradAccumulationTensorStreams": False,
        "disableOptimizerStateTensorStreams": False,
        "compileEngine": True,
        "constantWeights": True,
        "enableEngineCaching": False,
        "enableVariablesCaching": True,
        "cachePath": "session_cache",
        "enableFloatingPointChecks": False,
        "enableStochasticRounding": False,
        "_enableRngStateManagement": False,
        "executionPhaseSettings": ExecutionPhaseSettings,
        "accumulateOuterFragmentSettings": AccumulateOuterFragmentSettings,
        "explicitRecomputation": False,
        "numIOTiles": 0,
        "aliasZeroCopy": False,
        "batchSerializationSettings": BatchSerializationSettings,
        "autodiffSettings": AutodiffSettings,
        "delayVarUpdates": True,
        "scheduleNonWeightUpdateGradientConsumersEarly": False,
        "enableFullyConnectedPass": True,
        "enableSerializedMatmuls": True,
        "partialsTypeMatMuls": "",
        "enableStableNorm": False,
        **{name: {} for name in _MAPS.split()},
        "updatableBuffers": {},
        "experimentalSettings": ExperimentalSettings,
        "customCodelets": [],
        "updatableNamedBuffers": [],
        "customCodeletCompileFlags": "",
        "timeLimitScheduler": 1e9,
        "swapLimitScheduler": 1000000000,
        "serializedPoprithmsShiftGraphsDir": "",
        "serializedPoprithmsAnnealGraphsDir": "",
        "kahnTieBreaker": "greedy",
        "transitiveClosureOptimizationThreshold": 100000,
        "decomposeGradSum": False,
        "replicatedCollectivesSettings": ReplicatedCollectivesSettings,
        "enableDistributedReplicatedGraphs": False,
        "globalReplicationFactor": 1,
        "globalReplicaOffset": 0,
        "groupHostSync": False,
        "strictOpVersions": True,
        "opxAliasChecking": False,
        "opxModifyChecking": False,
        "useHostCopyOps": False,
        "enableEfficientOverlapIOTopoCons": False,
        "enableLoadAndOffloadRNGState": False,
        "activationTensorLocationSettings": TensorLocationSettings,
        "weightTensorLocationSettings": TensorLocationSettings,
        "optimizerStateTensorLocationSettings": TensorLocationSettings,
        "accumulatorTensorLocationSettings": TensorLocationSettings,
        "tensorLocationSettingsOverride": {},
        "automaticLossScalingSettings": AutomaticLossScalingSettings,
        "enableSupportedDataTypeCasting": True,
        "enableExplicitMainLoops": False,
        "groupNormStridedChannelGrouping": False,
        "enableMergeExchange": True,
        "ensureFp32LossScaleTensor": False,
        "enableInplaceAmbiguityChecking": False,
        "createImplicitPipeliningFwdOnlyProgram": False,
        "throwIfLog2ScaleTensorNotInRange": True,
        "enableConstantFoldingOfMultipleConsumers": True,
        "useLoopCandidateCreator": False,
        "stashAllTensorsInferencePipeline": False,
    }

    @property
    def accumulation(self) -> int:
        """Gives the number of micro batches of an update."""
        return int(self.accumulationFactor) if self.enableGradientAccumulation else 1

    def enableExplicitIR(self, on: bool) -> None:
        """Sets the three members that make the IR explicit; results stay as they are."""
        self.useHostCopyOps = self.enableExplicitMainLoops = self.explicitRecomputation = on

    def getGlobalReplicationFactor(self) -> int:
        """Counts the replicas of all processes."""
        if self.enableDistributedReplicatedGraphs:
            return int(self.globalReplicationFactor)
        return int(self.replicatedGraphCount) if self.enableReplicatedGraphs else 1

    def check(self) -> None:
        """Raises PopulusError for less than one replica, and for a setting that would change results and is not there yet."""
        changing = {
            "automaticLossScalingSettings": bool(self.automaticLossScalingSettings.enabled),
            "createImplicitPipeliningFwdOnlyProgram": bool(self.createImplicitPipeliningFwdOnlyProgram),
            "enableDistributedReplicatedGraphs": bool(self.enableDistributedReplicatedGraphs) and self.globalReplicationFactor != 1,
        }
        if refused := [name for name, on in changing.items() if on]:
            raise PopulusError(f"{refused[0]} is not there yet, and results would differ without it; leave it as it is by default")
        if self.getGlobalReplicationFactor() < 1:
            raise PopulusError(f"replicatedGraphCount = {self.replicatedGraphCount}; a program has at least 1 replica")


class Patterns:
    """The rewrites that run. Populus has its own, so results are the same with and without; what PopART refuses without one is refused.

    It takes a level, or the names of those that are on.
    """

    LISTS: ClassVar[Sequence[Sequence[str]]] = (("level",), ("patterns",))
    PreUniRepl: bool
    PostNRepl: bool
    SoftMaxGradDirect: bool
    NlllWithSoftMaxGradDirect: bool
    OpToIdentity: bool
    SubtractArg1GradOp: bool
    MulArgGradOp: bool
    MatMulOp: bool
    MatMulLhsGradOp: bool
    MatMulRhsGradOp: bool
    InPlace: bool

    def __init__(self, *args: Enum | Iterable[str], **named: Enum | Iterable[str]):
        patterns: Any = next(iter(bound("Patterns", self.LISTS, args, named).values()), None)
        leveled = patterns is None or isinstance(patterns, Enum)
        names: Iterable[str] = [] if leveled else cast("Iterable[str]", patterns)
        self._enabled: dict[str, bool] = {str(name): True for name in names}
        self._others = leveled and getattr(patterns, "name", "Default") != "NoPatterns"

    def enablePattern(self, name: str, on: bool = True) -> Patterns:
        """Switches a rewrite by its name."""
        self._enabled[name] = on
        return self

    def isPatternEnabled(self, name: str) -> bool:
        """Tells whether a rewrite is on: switched so, or by the level."""
        return self._enabled.get(name, self._others)

    def enableRuntimeAsserts(self, on: bool) -> Patterns:
        """Accepts what switches PopART's check for mandatory rewrites; there are none here."""
        return self

    def __getattr__(self, name: str) -> bool:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.isPatternEnabled(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        else:
            self._enabled[name] = bool(value)


GROUPS = {
    kind.__name__: kind
    for kind in (
        TensorLocation, TensorLocationSettings, AutomaticLossScalingSettings, ReplicatedCollectivesSettings, BatchSerializationSettings,
        AutodiffSettings, ExecutionPhaseSettings, AccumulateOuterFragmentSettings, NumIOTiles, ExperimentalSettings,
    )
}  # fmt: skip
