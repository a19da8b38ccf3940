"""`Options`: the settings of a model. Those that change results are honoured or refused; the others warn once, by their name."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import torch

from populus.dialects.support.diagnostics import PopulusError, nearest
from populus.poptorch.enums import ConnectionType, MeanReductionStrategy, OutputMode, ReductionType
from populus.poptorch.execution import Strategy
from populus.poptorch.notes import ignored


class Group:
    """Options with names and first values. Raises AttributeError for a change after a model has taken them."""

    FIRST: ClassVar[Mapping[str, Any]] = {}

    def __init__(self) -> None:
        self._frozen = False
        self._values = copy.deepcopy(dict(self.FIRST))

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values", {})
        if name in values:
            return values[name]
        known = [n for n in {*dir(type(self)), *values} if not n.startswith("_")]
        raise AttributeError(f"{type(self).__name__} has no option '{name}'{nearest(name, known)}")

    def _set(self, **values: Any) -> Self:
        if self._frozen:
            raise AttributeError("Can't modify frozen Options")
        self._values.update(values)
        return self

    def _freeze(self, frozen: bool = True) -> None:
        self._frozen = frozen
        for group in vars(self).values():
            if isinstance(group, Group):
                group._freeze(frozen)

    def toDict(self) -> dict[str, Any]:
        """Gives the options by name, with those of the groups inside."""
        found = dict(self._values)
        for group in vars(self).values():
            if isinstance(group, Group):
                found.update(group.toDict())
        return found


def takes(name: str, *parameters: str, why: str | None = None, usual: Sequence[Any] = (), **defaults: Any) -> Callable[..., Any]:
    """Makes a method that keeps its arguments and has no effect; it warns once, by its name.

    `why`: what happens instead, where that is more than that results stay. `usual`: values that say what happens anyway.
    """

    def method(self: Group, *args: Any, **named: Any) -> Group:
        given = signature.bind(self, *args, **named)
        given.apply_defaults()
        if not usual or given.arguments[parameters[0]] not in usual:
            ignored(name, *([why] if why else []))
        values = {p: given.arguments[p] for p in parameters}
        kept = self._values  # pyright: ignore[reportPrivateUsage], a method of the class
        return self._set(**{n: v for n, v in values.items() if n not in kept})  # pyright: ignore[reportPrivateUsage]

    first = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    rest = [Parameter(p, Parameter.POSITIONAL_OR_KEYWORD, default=defaults.get(p, Parameter.empty)) for p in parameters]
    signature = Signature([first, *rest])
    method.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess], which help() reads
    method.__name__, method.__doc__ = name, f"Accepts {name}: {why or 'it changes no result here'}."
    return method


def refuses(name: str, why: str, *parameters: str) -> Callable[..., Any]:
    """Makes a method that raises PopulusError for anything but None, 0 and False: results would differ."""

    def method(self: Group, *args: Any, **named: Any) -> Group:
        given = signature.bind(self, *args, **named).arguments
        if given[parameters[0]] not in (None, 0, False):
            raise PopulusError(f"Options.{name} is not there: {why}")
        return self

    every = ("self", *parameters)
    signature = Signature([Parameter(p, Parameter.POSITIONAL_OR_KEYWORD) for p in every])
    method.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess], which help() reads
    method.__name__, method.__doc__ = name, f"Raises PopulusError if it is switched on: {why}."
    return method


class JitOptions(Group):
    """The trace of a model."""

    traceModel = takes("Jit.traceModel", "trace_model")


class PrecisionOptions(Group):
    """Types of numbers: each op computes in the type of its tensors, with sums of f32."""

    FIRST: ClassVar[Mapping[str, Any]] = {"floating_point_exceptions": False}

    halfFloatCasting = takes("Precision.halfFloatCasting", "half_float_casting", why="f16 beside f32 becomes f32, as in PyTorch")
    runningStatisticsAlwaysFloat = takes(
        "Precision.runningStatisticsAlwaysFloat", "value", why="running statistics have the type of the module's buffers"
    )
    enableStochasticRounding = takes("Precision.enableStochasticRounding", "enabled", why="f16 is rounded to the nearest", usual=(False,))
    setPartialsType = takes("Precision.setPartialsType", "dtype", why="partial sums are of f32", usual=(torch.float32,))

    def enableFloatingPointExceptions(self, enabled: bool) -> Self:
        """Sets whether a run stops at an op that makes an infinity of finite numbers, or NaN of numbers.

        Each tensor of the module becomes a result that the host looks at, so this is for finding mistakes.
        """
        return self._set(floating_point_exceptions=bool(enabled))


class TrainingOptions(Group):
    """Gradients of several micro batches."""

    FIRST: ClassVar[Mapping[str, Any]] = {
        "gradient_accumulation": 1,
        "accumulation_and_replication_reduction_type": ReductionType.Mean,
        "meanAccumulationAndReplicationReductionStrategy": MeanReductionStrategy.Post,
    }

    def gradientAccumulation(self, gradient_accumulation: int) -> Self:
        """Sets how many micro batches an update of the weights takes. Raises PopulusError for less than 1."""
        return self._set(gradient_accumulation=_positive("gradientAccumulation", gradient_accumulation))

    def accumulationAndReplicationReductionType(self, reduction_type: ReductionType) -> Self:
        """Sets whether gradients of micro batches are averaged (as by default) or summed. Raises ValueError for another type."""
        if not isinstance(cast("object", reduction_type), ReductionType) or reduction_type == ReductionType.NoReduction:
            raise ValueError("accumulationAndReplicationReductionType takes poptorch.ReductionType.Mean or poptorch.ReductionType.Sum")
        return self._set(accumulation_and_replication_reduction_type=reduction_type)

    def setMeanAccumulationAndReplicationReductionStrategy(self, mean_reduction_strategy: MeanReductionStrategy) -> Self:
        """Sets when a mean is divided. Gradients are divided after their sum; in exact numbers all strategies agree."""
        return self._set(meanAccumulationAndReplicationReductionStrategy=mean_reduction_strategy)

    setAutomaticLossScaling = refuses("Training.setAutomaticLossScaling", "set loss_scaling of the optimizer", "enabled")
    setConvolutionDithering = takes("Training.setConvolutionDithering", "enabled")


class PopartOptions(Group):
    """Options of PopART by name. `set` warns once for each, as none of them changes results."""

    FIRST: ClassVar[Mapping[str, Any]] = {"options": {}}

    def set(self, key: str, value: Any) -> Self:
        """Accepts an option of PopART's sessions."""
        ignored(f"_Popart.set({key})")
        self.options[key] = value
        return self._set()

    setEngineOptions = takes("_Popart.setEngineOptions", "engine_options")
    setPatterns = takes("_Popart.setPatterns", "patterns", "level", level=2)


class DistributedOptions(Group):
    """Several processes: there is one."""

    FIRST: ClassVar[Mapping[str, Any]] = {"processId": 0, "numProcesses": 1}

    def disable(self) -> Self:
        """Does nothing: there is one process."""
        return self

    setEnvVarNames = takes("Distributed.setEnvVarNames", "var_num_processes", "var_process_id")

    def configureProcessId(self, process_id: int, num_processes: int) -> Self:
        """Accepts process 0 of 1. Raises PopulusError for several processes."""
        if num_processes != 1:
            raise PopulusError(f"Distributed.configureProcessId: {num_processes} processes; a model runs in one")
        return self


class TensorLocationSettings(Group):
    """Where tensors are kept; all are on the tiles."""

    minElementsForOffChip = takes("TensorLocationSettings.minElementsForOffChip", "min_elements")
    minElementsForReplicatedTensorSharding = takes("TensorLocationSettings.minElementsForReplicatedTensorSharding", "min_elements")
    useOnChipStorage = takes("TensorLocationSettings.useOnChipStorage", "use", use=True)
    useReplicatedTensorSharding = takes("TensorLocationSettings.useReplicatedTensorSharding", "use", use=True)
    useIOTilesToLoad = takes("TensorLocationSettings.useIOTilesToLoad", "use", use=True)
    useIOTilesToStore = takes("TensorLocationSettings.useIOTilesToStore", "use", use=True)


class TensorLocationOptions(Group):
    """Where kinds of tensors are kept."""

    numIOTiles = takes("TensorLocations.numIOTiles", "num_tiles")
    setActivationLocation = takes("TensorLocations.setActivationLocation", "location")
    setWeightLocation = takes("TensorLocations.setWeightLocation", "location")
    setOptimizerLocation = takes("TensorLocations.setOptimizerLocation", "location")
    setAccumulatorLocation = takes("TensorLocations.setAccumulatorLocation", "location")


def _positive(name: str, value: int) -> int:
    if not isinstance(cast("object", value), int) or value < 1:
        raise PopulusError(f"{name}({value}); a whole number from 1 on is expected")
    return value


class Options(Group):
    """The options of an `inferenceModel` or a `trainingModel`, each set by a method that gives the options again.

    Honoured: `deviceIterations`, `replicationFactor`, `Training.gradientAccumulation` with its reduction, `outputMode`, `randomSeed`,
    `useIpuModel`, `connectionType`. Refused, as results would differ: synthetic data, automatic loss scaling.
    """

    FIRST: ClassVar[Mapping[str, Any]] = {
        "device_iterations": 1,
        "replication_factor": 1,
        "output_mode": OutputMode.Default,
        "output_return_period": 1,
        "random_seed": None,
        "use_model": False,
        "connection_type": ConnectionType.Always,
        "log_dir": ".",
        "auto_round_num_ipus": False,
        "anchored_tensors": {},
    }

    def __init__(self) -> None:
        super().__init__()
        self._TensorLocations, self._Distributed = TensorLocationOptions(), DistributedOptions()
        self._Jit, self._Precision, self._Training = JitOptions(), PrecisionOptions(), TrainingOptions()
        self._Popart = PopartOptions()
        self._execution_strategy: Strategy | None = None

    @property
    def TensorLocations(self) -> TensorLocationOptions:
        """Where tensors are kept."""
        return self._TensorLocations

    @property
    def Distributed(self) -> DistributedOptions:
        """Several processes."""
        return self._Distributed

    @property
    def Jit(self) -> JitOptions:
        """The trace of a model."""
        return self._Jit

    @property
    def Precision(self) -> PrecisionOptions:
        """Types of numbers."""
        return self._Precision

    @property
    def Training(self) -> TrainingOptions:
        """Gradients of several micro batches."""
        return self._Training

    def deviceIterations(self, device_iterations: int) -> Self:
        """Sets how many batches a call takes, one after the other. Raises PopulusError for less than 1."""
        return self._set(device_iterations=_positive("deviceIterations", device_iterations))

    def replicationFactor(self, replication_factor: int) -> Self:
        """Sets how many replicas run the model, each on micro batches of its own. Raises PopulusError for less than 1."""
        return self._set(replication_factor=_positive("replicationFactor", replication_factor))

    def outputMode(self, output_mode: OutputMode, output_return_period: int | None = None) -> Self:
        """Sets the micro batches whose results a call gives; `output_return_period` is the n of `EveryN`."""
        if output_mode == OutputMode.EveryN and output_return_period is None:
            raise PopulusError("outputMode(EveryN) needs output_return_period, a number of device iterations")
        return self._set(output_mode=OutputMode(output_mode), output_return_period=output_return_period or 1)

    def defaultOutputMode(self) -> bool:
        """Tells whether the model chooses: the last batch in training, and all when inferring."""
        return self.output_mode == OutputMode.Default

    def randomSeed(self, random_seed: int) -> Self:
        """Sets the number from which random numbers follow; they are not PyTorch's."""
        return self._set(random_seed=int(random_seed))

    def useIpuModel(self, use_model: bool) -> Self:
        """Accepts the model of a machine, which is all there is."""
        return self._set(use_model=bool(use_model))

    def connectionType(self, connection_type: ConnectionType) -> Self:
        """Sets when the device is attached; with `Never`, a model compiles and does not run."""
        return self._set(connection_type=ConnectionType(connection_type))

    def setExecutionStrategy(self, strategy: Any) -> Self:
        """Takes a pipeline, shards or phases: one machine runs all blocks, with the same results."""
        ignored("setExecutionStrategy")
        self._execution_strategy = strategy if isinstance(strategy, Strategy) else Strategy(strategy)
        return self._set()

    def updatableNamedBuffers(self, buffers: Sequence[str]) -> Self:
        """Names the buffers that `copyNamedBuffersToDevice` writes."""
        return self._set(updatable_buffers=list(buffers))

    def loadFromFile(self, filepath: str) -> Self:
        """Calls the methods that a file lists, one on each line: `deviceIterations(4)`, `Training.gradientAccumulation(2)`.

        An argument is a number, a string, True, False, None, or a name of poptorch's; nothing else is evaluated.
        Raises PopulusError, a ConfigFileError, with the file's line.
        """
        from populus.poptorch.options_file import apply_line

        for number, line in enumerate(Path(filepath).read_text().splitlines(), 1):
            if text := line.strip().partition("#")[0]:
                apply_line(self, text, f"{filepath}:{number}")
        return self

    def from_json(self, string: str) -> Self:
        """Calls methods by a JSON object: `{"deviceIterations": 4, "Training": {"gradientAccumulation": 2}}`."""

        def apply(group: Any, values: Mapping[str, Any]) -> None:
            for name, value in values.items():
                member = getattr(group, name)
                apply(member, value) if isinstance(member, Group) else member(value)

        apply(self, json.loads(string))
        return self

    def clone(self) -> Options:
        """Gives a copy that may be changed."""
        found = copy.deepcopy(self)
        found._freeze(False)
        return found

    inputReplicaGrouping = takes("inputReplicaGrouping", "input_group_size", "input_group_type")
    enableSyntheticData = refuses("enableSyntheticData", "results would be of other data; leave it out", "enabled")
    autoRoundNumIPUs = takes("autoRoundNumIPUs", "auto_round_num_ipus", auto_round_num_ipus=True)
    setAvailableMemoryProportion = takes("setAvailableMemoryProportion", "available_memory_proportion")
    broadcastBuffers = takes("broadcastBuffers", "broadcast_buffers", broadcast_buffers=True)
    logDir = takes("logDir", "log_dir")
    maxRepeatLogs = takes("maxRepeatLogs", "max_lines")
    modelName = takes("modelName", "name")
    enableExecutableCaching = takes("enableExecutableCaching", "path")
    syncPattern = takes("syncPattern", "sync_pattern")
    useIpuId = takes("useIpuId", "ipu_id")
    useOfflineIpuTarget = takes("useOfflineIpuTarget", "ipu_version", ipu_version=2)
    enableStableNorm = takes("enableStableNorm", "enabled")
    logCycleCount = takes("logCycleCount", "log_cycle_count")
    enableProfiling = takes("enableProfiling", "profile_dir", profile_dir=None)
    disableModuleNamescope = takes("disableModuleNamescope")
    sourceLocationExcludes = takes("sourceLocationExcludes", "excludes")
    showCompilationProgressBar = takes("showCompilationProgressBar", "show", show=True)
    relaxOptimizerAttributesChecks = takes("relaxOptimizerAttributesChecks", "relax", relax=True)

    def appendToLocationExcludes(self, *excludes: str) -> Self:
        """Accepts files that places of ops leave out."""
        ignored("appendToLocationExcludes")
        return self

    def anchorTensor(
        self, short_name: str, long_name: str, output_mode: OutputMode | None = None, output_return_period: int | None = 1
    ) -> Self:
        """Lets `getAnchoredTensor(short_name)` give the tensor that `getTensorNames` lists as `long_name`."""
        mode = None if output_mode is None else OutputMode(output_mode)
        return self._set(anchored_tensors={**self.anchored_tensors, short_name: (long_name, mode, output_return_period or 1)})
