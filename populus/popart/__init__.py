"""Models as in PopART: a `Builder` with `customOp`, a `DataFlow` of what to fetch, and an `InferenceSession`.

    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [3]))
    (y,) = builder.customOp(opName="LeakyRelu", opVersion=1, domain="com.acme", inputs=[x], attributes={"alpha": 0.1})
    builder.addOutputTensor(y)
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), popart.DeviceManager().createIpuModelDevice({}))
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: array}, anchors))

Source: Graphcore, PopART user guide.
"""

from populus.popart.builder import Builder, TensorInfo
from populus.popart.session import AnchorReturnType, DataFlow, DeviceInfo, DeviceManager, InferenceSession, PyStepIO

__all__ = ["AnchorReturnType", "Builder", "DataFlow", "DeviceInfo", "DeviceManager", "InferenceSession", "PyStepIO", "TensorInfo"]
