"""Models of one quantized op with random integers, and their results on every engine beside onnxruntime's."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import populus
from populus.runtime.session import Session

Array = NDArray[Any]
TYPES = {"u": np.uint8, "s": np.int8}


def integers(kind: str, *shape: int, largest: bool = False, seed: int = 0) -> Array:
    """Draws integers of all values; `largest`: the largest alone, whose sums are the extremes."""
    limits = np.iinfo(TYPES[kind])
    rng = np.random.default_rng([seed, *shape])
    return np.full(shape, limits.max, TYPES[kind]) if largest else rng.integers(limits.min, limits.max + 1, shape, TYPES[kind])


def one_node(kind: str, inputs: dict[str, Array], constants: dict[str, Array], y: type, **attributes: Any) -> onnx.ModelProto:
    """Builds a node that reads the inputs and constants in the order of their names."""
    names = sorted([*inputs, *constants])
    info = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()]
    out = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(y)), None)
    node = helper.make_node(kind, names, ["y"], name="node", **attributes)
    graph = helper.make_graph([node], kind, info, [out], [numpy_helper.from_array(a, n) for n, a in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def product(
    kinds: str,
    zeros: tuple[int, int],
    shape: tuple[int, int, int],
    constant: bool = True,
    batch: tuple[int, ...] = (),
    largest: bool = False,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Builds MatMulInteger of `kinds` (signs of a and b) with zero points; b may be an input."""
    (m, k, n), (a, b) = shape, kinds
    of = {"1": integers(a, *batch, m, k, largest=largest), "2": integers(b, *batch, k, n, largest=largest, seed=1)}
    points = {"3": np.array(zeros[0], TYPES[a]), "4": np.array(zeros[1], TYPES[b])}
    inputs = {name: v for name, v in of.items() if name == "1" or not constant}
    return one_node("MatMulInteger", inputs, {**{n: v for n, v in of.items() if n not in inputs}, **points}, np.int32), inputs


def convolution(
    kinds: str,
    zeros: tuple[int, int],
    size: tuple[int, int, int, int],
    kernel: int = 3,
    stride: int = 1,
    group: int = 1,
    channels: bool = False,
    largest: bool = False,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Builds QLinearConv from and to `kinds[0]` with weights of `kinds[1]`. `size`: batch, channels in and out, side.

    `channels`: a scale for each output channel.
    """
    (batch, ic, oc, side), (x, w), rng = size, kinds, np.random.default_rng(5)
    count = oc if channels else 1
    scale = rng.uniform(0.001, 0.011, count).astype(np.float32)
    point = np.full(count, zeros[1], TYPES[w])
    constants = {
        "2": np.array(0.02, np.float32),
        "3": np.array(zeros[0], TYPES[x]),
        "4": integers(w, oc, ic // group, kernel, kernel, largest=largest),
        "5": scale if channels else scale[0],
        "6": point if channels else point[0],
        "7": np.array(0.3, np.float32),
        "8": np.array(7 if x == "s" else 120, TYPES[x]),
        "9": rng.integers(-9999, 9999, oc).astype(np.int32),
    }
    inputs = {"1": integers(x, batch, ic, side, side, largest=largest)}
    constants |= {"5": np.asarray(constants["5"]), "6": np.asarray(constants["6"])}
    pads = [kernel // 2] * 4
    return one_node("QLinearConv", inputs, constants, TYPES[x], pads=pads, strides=[stride] * 2, group=group), inputs


WEIGHTS = {"MatMulInteger": (1, 3), "QLinearConv": (3, 5)}  # places of the weights and of their zero points


def _unsigned(model: onnx.ModelProto, inputs: dict[str, Array]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Adds 128 to i8 weights and to their zero points, so that they are ui8, in models of one node whose activations are ui8."""
    made, inputs = onnx.ModelProto(), dict(inputs)
    made.CopyFrom(model)
    node, constants = made.graph.node[0], {t.name: t for t in made.graph.initializer}
    types = {i.name: i.type.tensor_type for i in made.graph.input}
    if len(made.graph.node) != 1 or node.op_type not in WEIGHTS or types[node.input[0]].elem_type != onnx.TensorProto.UINT8:
        return model, inputs
    for place in WEIGHTS[node.op_type]:
        name = node.input[place]
        array = inputs[name] if name in inputs else numpy_helper.to_array(constants[name])
        if array.dtype != np.int8:
            continue
        moved = (array.astype(np.int16) + 128).astype(np.uint8)
        if name in inputs:
            inputs[name], types[name].elem_type = moved, onnx.TensorProto.UINT8
        else:
            constants[name].CopyFrom(numpy_helper.from_array(moved, name))
    return made, inputs


def unoptimised(model: onnx.ModelProto, inputs: dict[str, Array]) -> Array:
    """Runs onnxruntime without graph optimisation, by its products of ui8 by ui8: those by i8 saturate on some CPUs."""
    import onnxruntime

    model, inputs = _unsigned(model, inputs)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


def on_engines(model: onnx.ModelProto, inputs: dict[str, Array], target: str = "host", tiles: int = 4) -> dict[str, Array]:
    """Runs the model on each engine. Asserts that the native one has machine code for all of it."""
    module = populus.compile(model, target=target, tiles=tiles).module("poplar")
    found: dict[str, Array] = {}
    for engine in ("numpy", "strict", "native"):
        session = Session(module, engine)
        found[engine] = session.run(inputs)["y"]
        assert engine != "native" or not session.fallbacks, session.fallbacks
    return found
