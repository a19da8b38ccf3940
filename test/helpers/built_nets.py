"""Small nets that are built, as libraries and for the web."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import populus


def normal(*shape):
    """Equal numbers in every call."""
    return np.random.default_rng(list(shape)).standard_normal(shape).astype(np.float32)


def model(nodes, inputs, outputs, constants=()):
    """A model of f32 inputs and outputs, unless an entry has a type."""

    def infos(entries):
        return [helper.make_tensor_value_info(e[0], e[2] if len(e) > 2 else TensorProto.FLOAT, e[1]) for e in entries]

    graph = helper.make_graph(
        nodes, "g", infos(inputs), infos(outputs), [numpy_helper.from_array(array, name) for name, array in dict(constants).items()]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def net():
    """Convolution, pooling, a product, softmax: streams, packed weights, tables of offsets, scratch memory."""
    weights = {
        "w": normal(8, 3, 3, 3),
        "b": normal(8),
        "m": normal(128, 10),
        "shape": np.array([2, -1]),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("MaxPool", ["r"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["p", "shape"], ["f"], name="reshape"),
        helper.make_node("MatMul", ["f", "m"], ["l"], name="product"),
        helper.make_node("Softmax", ["l"], ["y"], name="softmax"),
    ]
    return model(nodes, [("x", [2, 3, 8, 8])], [("y", [2, 10]), ("l", [2, 10])], weights)


def recurrent():
    """A state that the inputs move, and an output."""
    nodes = [
        helper.make_node("MatMul", ["h", "w"], ["hw"], name="product"),
        helper.make_node("Add", ["hw", "x"], ["s"], name="sum"),
        helper.make_node("Tanh", ["s"], ["h_next"], name="tanh"),
        helper.make_node("Neg", ["h_next"], ["y"], name="neg"),
    ]
    tensors = [("x", [1, 16]), ("h", [1, 16])], [("y", [1, 16]), ("h_next", [1, 16])]
    return model(nodes, *tensors, {"w": normal(16, 16)})


def cache():
    """A cache that grows by the rows of a run, and open sizes: `past + cur` is its axis, and the output's one is `cur`."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["key"], name="key"),
        helper.make_node("Concat", ["past", "key"], ["present"], name="cache", axis=1),
        helper.make_node("Transpose", ["present"], ["turned"], name="turned", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "turned"], ["scores"], name="scores"),
        helper.make_node("Softmax", ["scores"], ["shares"], name="shares"),
        helper.make_node("MatMul", ["shares", "present"], ["y"], name="mean"),
    ]
    tensors = (
        [("x", ["batch", "cur", 16]), ("past", ["batch", "past", 16])],
        [("y", ["batch", "cur", 16]), ("present", ["batch", "past + cur", 16])],
    )
    return model(nodes, *tensors, {"w": normal(16, 16)})


def gather():
    nodes = [helper.make_node("Gather", ["table", "i"], ["y"], name="rows")]
    return model(nodes, [("i", [3], TensorProto.INT64)], [("y", [3, 4])], {"table": normal(5, 4)})


def compiled(proto, **options):
    return populus.compile(proto, target="host", engine="native", **options)
