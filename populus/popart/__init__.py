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
from populus.popart.builder import Builder
from populus.popart.dataflow import AnchorReturnType, DataFlow, PyStepIO, PyStepIOCallback, PyWeightsIO
from populus.popart.devices import DeviceInfo, DeviceManager
from populus.popart.enums import ENUMS, DataType
from populus.popart.errors import poplar_application_runtime_error, poplar_runtime_error
from populus.popart.logger import Logger, getLogger
from populus.popart.optimizers import SGD, Adam, Adaptive, ClipNormSettings, ConstSGD, Optimizer, OptimizerValue
from populus.popart.reserved import PREFIXES
from populus.popart.session import InferenceSession
from populus.popart.settings import GROUPS, Patterns, SessionOptions
from populus.popart.tensor_info import TensorInfo, getTensorInfo
from populus.popart.training import TrainingSession

defaultAiOnnxOpset, defaultAiOnnxMlOpset, defaultAiGraphcoreOpset = 10, 1, 1
globals().update({**ENUMS, **PREFIXES, **GROUPS})

__all__ = [
    "SGD", "Adam", "Adaptive", "AnchorReturnType", "Builder", "ClipNormSettings", "ConstSGD", "DataFlow", "DataType", "DeviceInfo",
    "DeviceManager", "InferenceSession", "Logger", "Optimizer", "OptimizerValue", "Patterns", "PyStepIO", "PyStepIOCallback",
    "PyWeightsIO", "SessionOptions", "TensorInfo", "TrainingSession", "getLogger", "getTensorInfo", "popart_exception",
    "poplar_application_runtime_error", "poplar_runtime_error",
]  # fmt: skip
