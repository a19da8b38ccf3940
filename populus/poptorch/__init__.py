"""Programs of PopTorch run as they are: `import populus.poptorch as poptorch`. PyTorch and onnxscript must be installed.

    model = poptorch.trainingModel(net, options=poptorch.Options().deviceIterations(4), optimizer=poptorch.optim.Adam(net.parameters()))
    for images, labels in poptorch.DataLoader(options, dataset, batch_size=16):
        output, loss = model(images, labels)

docs/poptorch-compatibility.md says what is there.
Source: Graphcore, PopTorch user guide.
"""

from __future__ import annotations

from populus.torch_backend.torch_package import need_torch

need_torch("poptorch")

from populus.poptorch import optim, profiling
from populus.poptorch.absent import Error
from populus.poptorch.dataloader import AsynchronousDataAccessor, DataLoader
from populus.poptorch.enums import (
    AutoStage,
    CommGroupType,
    ConnectionType,
    DataLoaderMode,
    HalfFloatCastingBehavior,
    Liveness,
    MatMulSerializationMode,
    MeanReductionStrategy,
    MultiConvPlanType,
    OutputMode,
    OverlapMode,
    ReductionType,
    SharingStrategy,
    SyncPattern,
    VariableRetrievalMode,
)
from populus.poptorch.execution import (
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
)
from populus.poptorch.executor import PoplarExecutor
from populus.poptorch.models import (
    ICustomArgParser,
    RecoverableError,
    UnrecoverableError,
    inferenceModel,
    ipuHardwareIsAvailable,
    ipuHardwareVersion,
    isRunningOnIpu,
    load,
    logger,
    registerCustomArgParser,
    registerPostCompileHook,
    registerPreCompileHook,
    setLogLevel,
    trainingModel,
)
from populus.poptorch.ops import (
    CPU,
    Attribute,
    BeginBlock,
    Block,
    BlockFunction,
    MultiConv,
    NameScope,
    cond,
    ctc_beam_search_decoder,
    custom_op,
    dynamic_slice,
    dynamic_update,
    for_loop,
    fps,
    identity_loss,
    ipu_print_tensor,
    nearest,
    nop,
    recomputationCheckpoint,
    removeBlocks,
    serializedMatMul,
    set_available_memory,
    set_overlap_for_input,
    set_overlap_for_output,
)
from populus.poptorch.options import Options, TensorLocationSettings
from populus.poptorch.options_file import ConfigFileError

__version__ = "3.4.0+populus"

__all__ = [
    "CPU",
    "AsynchronousDataAccessor",
    "Attribute",
    "AutoStage",
    "BeginBlock",
    "Block",
    "BlockFunction",
    "CommGroupType",
    "ConfigFileError",
    "ConnectionType",
    "DataLoader",
    "DataLoaderMode",
    "Error",
    "HalfFloatCastingBehavior",
    "ICustomArgParser",
    "Liveness",
    "MatMulSerializationMode",
    "MeanReductionStrategy",
    "MultiConv",
    "MultiConvPlanType",
    "NameScope",
    "Options",
    "OutputMode",
    "OverlapMode",
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "PoplarExecutor",
    "RecoverableError",
    "ReductionType",
    "SerialPhasedExecution",
    "ShardedExecution",
    "SharingStrategy",
    "Stage",
    "SyncPattern",
    "TensorLocationSettings",
    "UnrecoverableError",
    "VariableRetrievalMode",
    "cond",
    "ctc_beam_search_decoder",
    "custom_op",
    "dynamic_slice",
    "dynamic_update",
    "for_loop",
    "fps",
    "identity_loss",
    "inferenceModel",
    "ipuHardwareIsAvailable",
    "ipuHardwareVersion",
    "ipu_print_tensor",
    "isRunningOnIpu",
    "load",
    "logger",
    "nearest",
    "nop",
    "optim",
    "profiling",
    "recomputationCheckpoint",
    "registerCustomArgParser",
    "registerPostCompileHook",
    "registerPreCompileHook",
    "removeBlocks",
    "serializedMatMul",
    "setLogLevel",
    "set_available_memory",
    "set_overlap_for_input",
    "set_overlap_for_output",
    "trainingModel",
]
