"""Programs of PopART run as they are: `import populus.popart as popart`.

    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [3]))
    y = builder.aiGraphcore.gelu([x])
    builder.addOutputTensor(y)
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), popart.DeviceManager().createCpuDevice())
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: array}, anchors))

Source: Graphcore, PopART user guide.
"""

from populus.dialects.support.diagnostics import PopulusError as popart_exception
from populus.popart import version
from populus.popart.builder import Builder
from populus.popart.dataflow import (
    AnchorReturnType,
    DataFlow,
    InputSettings,
    InputShapeInfo,
    IStepIO,
    IWeightsIO,
    PyStepIO,
    PyStepIOCallback,
    PyWeightsIO,
)
from populus.popart.devices import DeviceInfo, DeviceManager
from populus.popart.enums import ENUMS, DataType
from populus.popart.errors import EXCEPTIONS, OutOfMemoryError, OutOfMemoryException
from populus.popart.logger import Logger, getLogger
from populus.popart.numerics import NumericsReport
from populus.popart.optimizers import SGD, Adam, Adaptive, ClipNormSettings, ConstSGD, Optimizer, OptimizerValue, OptimizerValueMap
from populus.popart.reserved import PREFIXES
from populus.popart.session import InferenceSession
from populus.popart.settings import GROUPS, Patterns, SessionOptions
from populus.popart.supported import (
    OpDefinition,
    OpDefinitionAttribute,
    OpDefinitionInput,
    OpDefinitionOutput,
    OperatorIdentifier,
    getSupportedOperations,
    getSupportedOperationsDefinition,
    getUnsupportedOperations,
)
from populus.popart.tensor_info import TensorInfo, getTensorInfo
from populus.popart.training import TrainingSession
from populus.popart.variables import CommGroup, VariableSettings
from populus.popart.version import packageHash, syncPatternFromString, syncPatternToString, versionNumber, versionString

__version__ = version.VERSION
defaultAiOnnxOpset, defaultAiOnnxMlOpset, defaultAiGraphcoreOpset = 10, 1, 1
globals().update({**ENUMS, **PREFIXES, **GROUPS, **EXCEPTIONS})

__all__ = [
    "SGD", "Adam", "Adaptive", "AnchorReturnType", "Builder", "ClipNormSettings", "CommGroup", "ConstSGD", "DataFlow", "DataType",
    "DeviceInfo", "DeviceManager", "IStepIO", "IWeightsIO", "InferenceSession", "InputSettings", "InputShapeInfo", "Logger",
    "NumericsReport", "OpDefinition", "OpDefinitionAttribute", "OpDefinitionInput", "OpDefinitionOutput", "OperatorIdentifier",
    "Optimizer", "OptimizerValue", "OptimizerValueMap", "OutOfMemoryError", "OutOfMemoryException", "Patterns", "PyStepIO",
    "PyStepIOCallback", "PyWeightsIO", "SessionOptions", "TensorInfo", "TrainingSession", "VariableSettings", "getLogger",
    "getSupportedOperations", "getSupportedOperationsDefinition", "getTensorInfo", "getUnsupportedOperations", "packageHash",
    "popart_exception", "syncPatternFromString", "syncPatternToString", "versionNumber", "versionString",
]  # fmt: skip
