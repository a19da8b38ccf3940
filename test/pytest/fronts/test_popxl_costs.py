"""A PopXL program becomes the tile program that the same ONNX model becomes, op for op, with its graphs and its gradients."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import populus
from populus import popxl
from populus.popxl import ops

WEIGHTS = {n: np.random.default_rng(0).standard_normal(s).astype(np.float32) for n, s in {"w": (64, 32), "b": (32,), "v": (32, 10)}.items()}
TILES = 16


def net(x: popxl.Tensor, w: popxl.Tensor, b: popxl.Tensor, v: popxl.Tensor) -> popxl.Tensor:
    return ops.softmax(ops.tanh(x @ w + b) @ v, -1)


def model() -> ModelProto:
    nodes = [("MatMul", "x w", "a"), ("Add", "a b", "c"), ("Tanh", "c", "d"), ("MatMul", "d v", "e"), ("Softmax", "e", "y")]
    made = [helper.make_node(op, given.split(), [out], **({"axis": -1} if op == "Softmax" else {})) for op, given, out in nodes]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (16, 64)), ("y", (16, 10))))
    graph = helper.make_graph(made, "net", [x], [y], [numpy_helper.from_array(a, n) for n, a in WEIGHTS.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def counted(program: populus.Program) -> Counter[str]:
    return Counter(op.name for op in program.module("poplar").walk())


def stored(*tensors: popxl.Tensor) -> None:
    for t in tensors:
        ops.host_store(popxl.d2h_stream(t.shape, t.dtype), t)


@pytest.mark.parametrize("called", [False, True])
def test_a_program_costs_what_the_model_costs(called: bool):
    ir = popxl.Ir()
    with ir.main_graph:
        x = ops.host_load(popxl.h2d_stream((16, 64), popxl.float32, "x"))
        weights = [popxl.constant(w) for w in WEIGHTS.values()]
        stored(ops.call(ir.create_graph(net, x, *weights), x, *weights)[0] if called else net(x, *weights))
    ours = popxl.Session(ir, "ipu_model", tiles=TILES).program
    theirs = populus.compile(model(), target="gc200", tiles=TILES)
    assert counted(ours) == counted(theirs)
    assert ours.profile().summary == theirs.profile().summary


def test_a_gradient_graph_does_not_compute_the_forward_graph_again():
    ir = popxl.Ir()
    with ir.main_graph:
        x = ops.host_load(popxl.h2d_stream((16, 64), popxl.float32, "x"))
        cotangent = ops.host_load(popxl.h2d_stream((16, 10), popxl.float32, "cotangent"))
        weights = [popxl.variable(w) for w in WEIGHTS.values()]
        graph = ir.create_graph(net, x, *weights)
        gradient = popxl.transforms.autodiff(graph, grads_required=graph.inputs[1:])
        site = ops.call_with_info(graph, x, *weights)
        stored(*site.outputs, *ops.call(gradient.graph, cotangent, inputs_dict=gradient.inputs_dict(site)))
    ours = popxl.Session(ir, "ipu_model", tiles=TILES).program
    theirs = populus.vjp(model(), wrt=list(WEIGHTS), target="gc200", tiles=TILES)
    assert sum(op.name == "poplin.matmul" for op in ours.module("popops").walk()) == 2 + 3  # forward, and all but that of x
    kinds = ("poplar.execute", "poplar.family", "poplar.var", "poplar.stream_in", "poplar.stream_out")
    assert [counted(ours)[k] for k in kinds] == [counted(theirs)[k] for k in kinds]


def test_a_graph_that_is_called_twice_stays_a_function():
    ir = popxl.Ir()
    with ir.main_graph:
        x = ops.host_load(popxl.h2d_stream((16, 64), popxl.float32, "x"))
        weights = [popxl.constant(w) for w in WEIGHTS.values()]
        graph = ir.create_graph(net, x, *weights)
        stored(*ops.call(graph, x, *weights), *ops.call(graph, x + 1, *weights))
    names = [op.name for op in ir.module().walk()]
    assert names.count("func.func") == names.count("func.call") == 2
    assert names.count("popart.matmul") == 2
