"""Programs of PopART in a line: a builder's function, run or trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from populus import popart
from populus.popart.settings import SessionOptions

Array = NDArray[Any]
CPU = popart.DeviceManager().createCpuDevice()


def inferred(make: Callable[..., Any], *arrays: Array, opset: int = 11) -> list[Array]:
    """Runs a program that a function builds of the builder and its inputs' names."""
    builder = popart.Builder(opsets={"ai.onnx": opset, "ai.graphcore": 1})
    names = [builder.addInputTensor(popart.TensorInfo(a)) for a in arrays]
    found = make(builder, *names)
    outputs: list[str] = [found] if isinstance(found, str) else list(found)
    for name in outputs:
        builder.addOutputTensor(name)
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, outputs), CPU)
    anchors = session.initAnchorArrays()
    session.prepareDevice()
    session.run(popart.PyStepIO(dict(zip(names, arrays)), anchors))
    return [anchors[name] for name in outputs]


def trained(
    make: Callable[..., tuple[str, Sequence[str]]],
    inputs: Mapping[str, Array],
    weights: Mapping[str, Array],
    optimizer: popart.Optimizer,
    options: SessionOptions | None = None,
    batches: int = 1,
    steps: int = 1,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Trains; gives the anchors of the last step, and the weights after it."""
    builder = popart.Builder()
    parts = batches * (1 if options is None else options.accumulation)
    for name, array in inputs.items():
        builder.addInputTensor(popart.TensorInfo(array[0] if parts > 1 else array), name)
    for name, array in weights.items():
        builder.addInitializedInputTensor(array, name)
    loss, anchored = make(builder)
    flow = popart.DataFlow(batches, list(anchored))
    session = popart.TrainingSession(builder.getModelProto(), flow, loss, optimizer, CPU, userOptions=options)
    anchors = session.initAnchorArrays()
    session.prepareDevice()
    session.weightsFromHost()
    for _ in range(steps):
        session.run(popart.PyStepIO(inputs, anchors))
    session.weightsToHost()
    read = {name: np.zeros_like(a) for name, a in weights.items()}
    session.readWeights(popart.PyWeightsIO(read))
    return anchors, read
