"""PopXL's graphs that change after a call of them, and ops that move to another graph, as transforms of popxl_addons do."""

# Ops and graphs of the original's inside are used here.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import numpy as np
import pytest

from populus import popxl
from populus.dialects.support.diagnostics import PopulusError
from populus.popart._internal.ir import op as kinds
from populus.popxl import ops
from populus.popxl.transforms import autodiff

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def stored(t: popxl.Tensor) -> popxl.DeviceToHostStream:
    stream = popxl.d2h_stream(t.shape, t.dtype, "out")
    ops.host_store(stream, t)
    return stream


def session(ir: popxl.Ir) -> popxl.Session:
    return popxl.Session(ir, "cpu", tiles=2, engine="numpy")


def two_inputs(ir: popxl.Ir, x: popxl.Tensor) -> popxl.Graph:
    """Gives a graph of a, by reference, and b that computes 2 a + b."""
    graph = ir.create_empty_graph("late")
    with graph:
        a, b = (popxl.graph_input(x.shape, x.dtype, name, by_ref=name == "a") for name in ("a", "b"))
        popxl.graph_output(a * 2 + b)
    return graph


def test_a_call_changes_what_its_graph_changes_later():
    ir = popxl.Ir()
    with ir.main_graph:
        x, y = popxl.variable(X, name="x"), popxl.variable(2 * X, name="y")
        graph = two_inputs(ir, x)
        (z,) = ops.call(graph, x, y)
        after = x + z
        with graph:
            ops.var_updates.accumulate_(*graph.inputs)
        sums, changed = stored(after), stored(x)
    with session(ir) as running:
        found = running.run()
        np.testing.assert_array_equal(found[changed], 3 * X)
        np.testing.assert_array_equal(found[sums], 3 * X + 4 * X)
        np.testing.assert_array_equal(running.get_tensor_data(x), 3 * X)


def test_a_change_passes_through_the_graphs_around():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(X, name="x")
        outer, inner = ir.create_empty_graph("outer"), ir.create_empty_graph("inner")
        for graph in (outer, inner):
            with graph:
                popxl.graph_input(x.shape, x.dtype, "a", by_ref=True)
        ops.call(outer, x)
        with outer:
            ops.repeat(inner, 3, *outer.inputs)
        out = stored(x)
    with inner:
        ops.var_updates.accumulate_(inner.inputs[0], popxl.constant(np.ones_like(X)))
    with session(ir) as running:
        np.testing.assert_array_equal(running.run()[out], X + 3)


def test_a_stream_is_stored_by_a_graph_that_is_called_already():
    ir = popxl.Ir()
    with ir.main_graph:
        x, out = popxl.variable(X), popxl.d2h_stream(X.shape, popxl.float32)
        graph = ir.create_graph(lambda a: a * 2, x)
        ops.repeat(graph, 3, x)
    with graph:
        ops.host_store(out, graph.inputs[0])
    ir.num_host_transfers = 3
    with session(ir) as running:
        np.testing.assert_array_equal(running.run()[out], np.stack([X, 2 * X, 4 * X]))


def test_a_graph_that_a_gradient_calls_is_finished():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(X)
        inner = ir.create_graph(ops.tanh, x)
        outer = ir.create_graph(lambda a: ops.call(inner, a)[0] * ops.call(inner, a * 2)[0], x)
        autodiff(outer)
    assert inner.held
    with inner, pytest.raises(PopulusError, match="is called already by the gradient of its caller; finish it before that is made"):
        popxl.graph_output(inner.inputs[0])


def test_exchanges_that_became_one_op_are_not_made_anew():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(X)
        graph = two_inputs(ir, x)
        ops.call(graph, x, x)
        streams = [popxl.h2d_stream(X.shape, popxl.float32, name) for name in "pq"]
        with popxl.transforms.merge_exchange():
            loads = [ops.host_load(stream) for stream in streams]
        with graph:
            ops.var_updates.accumulate_(*graph.inputs)
        with pytest.raises(PopulusError, match="is called already, and MultiExchange of graph .* comes after the call; finish it before"):
            loads[0] + loads[1]  # pyright: ignore[reportUnusedExpression]


def moved(ops_of: list, to: popxl.Graph, known: dict[popxl.Tensor, popxl.Tensor]) -> None:
    """Moves ops to another graph, with an input by reference for each tensor from outside. `known`: the tensors there."""
    for op in ops_of:
        clone = op.cloneIntoGraph(to._pb_graph)
        for index, view in op.getInputIndexMap().items():
            if view.tensor not in known:
                with to:
                    known[view.tensor] = popxl.graph_input(view.tensor.shape, view.tensor.dtype, view.tensor.name, by_ref=True)
            clone.connectInTensor(index, known[view.tensor].id)
        for index, view in op.getOutputIndexMap().items():
            clone.createAndConnectOutTensor(index, to._create_tensor_id(view.tensor.name))
            known[view.tensor] = clone.outTensor(index).tensor
            assert known[view.tensor].shape == view.tensor.shape
        clone.setup()


def training(ir: popxl.Ir) -> tuple[popxl.Variable, popxl.HostToDeviceStream, popxl.DeviceToHostStream]:
    """Inserts one step: a load, a view, a call that changes a variable, and a store."""
    with ir.main_graph:
        x = popxl.variable(X, name="x")
        stream = popxl.h2d_stream((3, 2), popxl.float32, "in")
        graph = two_inputs(ir, x)
        info = ops.call_with_info(graph, x, ops.host_load(stream).T_)
        ops.var_updates.accumulate_(x, info.outputs[0] + 1.0)
        return x, stream, stored(ops.slice_(x, 1, 2) * 2)


def test_ops_that_move_to_a_repeated_graph_compute_the_same():
    data = np.arange(18, dtype=np.float32).reshape(3, 3, 2)
    want, rows = X.copy(), []
    for row in data:
        want += 2 * want + row.T + 1
        rows.append(2 * want[1:2])
    ir = popxl.Ir()
    x, given, out = training(ir)
    every = ir.main_graph._pb_graph.getOpSchedule()
    step = ir.create_empty_graph("step")
    known: dict[popxl.Tensor, popxl.Tensor] = {}
    moved(every, step, known)
    with ir.main_graph:
        ops.repeat(step, 3, inputs_dict={inner: outer for outer, inner in known.items() if inner in step.inputs})
    for op in every:
        op.disconnectAllInputs()
        op.disconnectAllOutputs()
        ir.main_graph._pb_graph.eraseOp(op.id)
    assert [type(op) for op in ir.main_graph._pb_graph.getOps()] == [kinds.LoopOp]
    ir.num_host_transfers = 3
    with session(ir) as running:
        np.testing.assert_allclose(running.run({given: data})[out], np.stack(rows), rtol=1e-6)
        np.testing.assert_allclose(running.get_tensor_data(x), want, rtol=1e-6)
    assert not [op for op in ir.main_graph.block.ops if op.name == "popart.slice"]


def test_an_op_that_needs_one_that_was_taken_out_is_refused():
    ir = popxl.Ir()
    with ir.main_graph:
        y = popxl.variable(X) + 1
        y * 2  # pyright: ignore[reportUnusedExpression]
    add, product = ir.main_graph._pb_graph.getOps()
    ir.main_graph._pb_graph.eraseOp(add.id)
    assert ir.main_graph._pb_graph.getOps() == [product]
    with ir.main_graph, pytest.raises(PopulusError, match="has no value: the op that makes it was taken out, or comes later"):
        popxl.variable(X) + 2  # pyright: ignore[reportUnusedExpression]


def test_what_a_loop_carries_is_another_tensor_of_its_graph():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(X)
        graph = ir.create_graph(lambda a: a, x + 0)
        info = ops.repeat_with_info(graph, 3, x)
        with graph:
            doubled = graph.inputs[0] * 2
        loop = info._op
        assert isinstance(loop, kinds.LoopOp)
        (body,) = loop.getCalledGraphs()
        (call,) = popxl.Graph._from_pb(body)._pb_graph.getOps()
        assert isinstance(call, kinds.CallOp) and call.getCalledGraphs()[0].id == graph.name
        graph._pb_graph.markAsOutput(doubled.id)
        call.createAndConnectOutTensor(graph._pb_graph.getOutputIndex(doubled.id), "inner")
        call.setup()
        with pytest.raises(PopulusError, match="the loop of graph .* has 1 outputs; only these are given others"):
            loop.addLoopOutput(1, "further", "inner", True)
        loop.addLoopOutput(0, loop.outId(0), "inner", True)
        out = stored(info.outputs[0])
    with session(ir) as running:
        np.testing.assert_array_equal(running.run()[out], 8 * X)
