"""PopXL's variables, views, references, streams of several arrays, branches and gradients, on NumPy's values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import populus
from populus import popxl
from populus.dialects.popart import train
from populus.dialects.support.diagnostics import PopulusError
from populus.popxl import ops
from populus.popxl.internals.regions import Region
from populus.popxl.transforms import autodiff

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def stored(t: popxl.Tensor) -> popxl.DeviceToHostStream:
    stream = popxl.d2h_stream(t.shape, t.dtype, "out")
    ops.host_store(stream, t)
    return stream


def session(ir: popxl.Ir) -> popxl.Session:
    return popxl.Session(ir, "cpu", tiles=2, engine="numpy")


def value(build: Callable[[popxl.Tensor], popxl.Tensor], data: np.ndarray = X) -> np.ndarray:
    """Gives what a program makes of a variable."""
    ir = popxl.Ir()
    with ir.main_graph:
        out = stored(build(popxl.variable(data, name="x")))
    with session(ir) as running:
        return running.run()[out]


VIEWS = {
    "slice": (lambda x: ops.slice_(x, [1, 1], [3, 3]), lambda a: a[1:3, 1:3]),
    "steps": (lambda x: ops.slice_(x, -1, None, -2, 1), lambda a: a[:, ::-2]),
    "rows of columns": (lambda x: ops.slice_(ops.slice_(x, 0, 2), 1, 4, 2, 1), lambda a: a[0:2, 1:4:2]),
    "transpose": (lambda x: x.T_, lambda a: a.T),
    "reshape": (lambda x: ops.slice_(x.reshape_((2, -1)), 1, 2), lambda a: a.reshape(2, -1)[1:2]),
    "flatten": (lambda x: ops.slice_(x.flatten_(), 3, 7), lambda a: a.reshape(-1)[3:7]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_change_of_a_view_changes_what_it_is_of(name: str):
    ours, numpys = VIEWS[name]
    expected = X.copy()
    view = numpys(expected)
    view += 10

    def build(x: popxl.Tensor) -> popxl.Tensor:
        ops.add_(ours(x), popxl.constant(10.0))
        return x

    np.testing.assert_array_equal(value(build), expected)


def test_a_view_reads_what_its_tensor_became():
    def build(x: popxl.Tensor) -> popxl.Tensor:
        row = ops.slice_(x, 1, 2)
        x += 1
        return row

    np.testing.assert_array_equal(value(build), X[1:2] + 1)


def test_a_change_of_a_view_of_two_tensors_changes_both():
    def build(x: popxl.Tensor) -> popxl.Tensor:
        y = popxl.variable(X)
        ops.add_(ops.concat_([x, y], 1), popxl.constant(np.arange(8, dtype=np.float32)))
        return x - y

    np.testing.assert_array_equal(value(build), np.broadcast_to(np.float32(-4), X.shape))


def test_a_variable_keeps_its_value_from_run_to_run():
    ir = popxl.Ir()
    with ir.main_graph:
        x, fixed = popxl.variable(1.0, name="x"), popxl.constant(2.0)
        ops.var_updates.accumulate_(x, fixed)
        out = stored(x)
    running = session(ir)
    running.write_variable_data(x, np.float32(10))
    with running:
        assert [float(running.run()[out]) for _ in range(2)] == [12, 14]
        assert running.get_tensors_data([x, fixed]) == {x: 14, fixed: 2}
        running.write_variable_data(x, np.float32(0))
        running.run()
    assert running.get_tensor_data(x) == 2
    with pytest.raises(TypeError, match="x is float32; the data is int32"):
        running.write_variable_data(x, np.int32(1))
    with pytest.raises(ValueError, match=r"x is \[\]; the data is \[2\]"):
        running.write_variable_data(x, np.zeros(2, np.float32))


def test_a_session_runs_attached_alone():
    ir = popxl.Ir()
    with ir.main_graph:
        popxl.variable(X)
    with pytest.raises(RuntimeError, match="the session is not attached to its device"):
        session(ir).run()


def test_a_program_of_variables_alone_runs():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(X)
        ops.relu(x)
    with session(ir) as running:
        assert running.run() == {}
        running.write_variable_data(x, X + 1)
        np.testing.assert_array_equal(running.get_tensor_data(x), X + 1)


def test_a_session_that_keeps_weights_leaves_the_host_s_copy():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(1.0)
        ops.var_updates.accumulate_(x, popxl.constant(2.0))
        stored(x)
    running = popxl.Session(ir, "cpu", False, tiles=2, engine="numpy")
    with running:
        running.run()
    assert running.get_tensor_data(x) == 1


def add_one(x: popxl.Tensor) -> None:
    x += 1


def add_one_by_ref(x: popxl.TensorByRef) -> None:
    ops.add_(x, 1)


def test_a_call_changes_its_input_only_where_that_is_said():
    seen = []
    for graph_of, said in ((add_one, False), (add_one, True), (add_one_by_ref, False)):

        def build(x: popxl.Tensor, graph_of: Callable[..., None] = graph_of, said: bool = said) -> popxl.Tensor:
            info = ops.call_with_info(x.ir.create_graph(graph_of, x), x)
            if said:
                info.set_parent_input_modified(x)
            return x

        seen.append(float(value(build, np.float32(1))))
    assert seen == [1, 2, 2]


def test_a_repeat_goes_on_with_what_is_passed_by_reference():
    def step(x: popxl.Tensor, total: popxl.TensorByRef) -> popxl.Tensor:
        ops.add_(total, x)
        return x * 2

    def build(x: popxl.Tensor) -> popxl.Tensor:
        total = popxl.variable(0.0)
        (last,) = ops.repeat(x.ir.create_graph(step, x, total), 4, x, total)
        return ops.concat([t.reshape((1,)) for t in (last, total)])

    assert value(build, np.float32(1)).tolist() == [16, 15]


@pytest.mark.parametrize("holds", [True, False])
def test_one_branch_alone_is_computed(holds: bool):
    def build(x: popxl.Tensor) -> popxl.Tensor:
        doubled = x.ir.create_graph(lambda v: v * 2, x)

        def other(v: popxl.TensorByRef) -> popxl.Tensor:
            ops.add_(v, 1)
            return v * 3

        condition = popxl.constant([holds])
        (y,) = ops.conditional(condition, doubled, x.ir.create_graph(other, x), [x], [x])
        return y + x

    np.testing.assert_array_equal(value(build), X * 3 if holds else (X + 1) * 4)


def test_a_number_is_taken_for_a_stream_of_one_element():
    ir = popxl.Ir()
    with ir.main_graph:
        stream = popxl.h2d_stream((1, 1), popxl.float32)
        out = stored(ops.host_load(stream))
    with session(ir) as running:
        assert running.run({stream: 3.0})[out].tolist() == [[3.0]]


def test_graphs_load_and_store_an_array_at_each_turn():
    ir = popxl.Ir()
    ir.num_host_transfers = 5
    with ir.main_graph:
        stream, out = popxl.h2d_stream((2,), popxl.float32, "in"), popxl.d2h_stream((2,), popxl.float32, "out")
        ops.host_store(out, ops.host_load(stream))

        def turn(total: popxl.Tensor) -> popxl.Tensor:
            x = ops.host_load(stream)
            ops.host_store(out, x + total)
            return total + x

        graph = ir.create_graph(turn, popxl.TensorSpec((2,), popxl.float32))
        ops.repeat(graph, 4, popxl.constant(np.zeros(2, np.float32)))
    data = np.arange(10, dtype=np.float32).reshape(5, 2)
    with session(ir) as running:
        found = running.run({stream: data})[out]
        given = running.create_host_outputs()
        running.run_with_outputs({stream: data}, given)
    expected = np.concatenate([data[:1], np.cumsum(data[1:], 0)])
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(given[out], expected)


def test_rows_of_a_remote_buffer_are_loaded_and_stored():
    ir = popxl.Ir()
    with ir.main_graph:
        buffer = popxl.remote_buffer((2,), popxl.float32, 3)
        row = popxl.remote_variable(np.array([1, 2], np.float32), buffer, 1, name="row")
        loaded = ops.remote_load(buffer, popxl.constant(1))
        ops.remote_store(buffer, 2, loaded + 1)
        out = stored(ops.remote_load(buffer, 2))
        ops.remote_store(buffer, 1, loaded * 5)
    with session(ir) as running:
        assert running.run()[out].tolist() == [2, 3]
    assert running.get_tensor_data(row).tolist() == [5, 10]


def test_gradients_of_a_graph_that_calls_another():
    ir = popxl.Ir()
    w = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    with ir.main_graph:
        x, weight = popxl.variable(X), popxl.variable(w)
        inner = ir.create_graph(lambda a, b: ops.sin(a @ b), x, weight)
        outer = ir.create_graph(lambda a, b: ops.call(inner, a, b)[0] * a, x, weight)
        site = ops.call_with_info(outer, x, weight)
        found = autodiff(outer, grads_required=[outer.inputs[1]])
        assert isinstance(found, popxl.transforms.GradGraphInfo)
        back = ops.call_with_info(found.graph, popxl.constant(np.ones_like(X)), inputs_dict=found.inputs_dict(site))
        gradient = found.fwd_parent_ins_to_grad_parent_outs(site, back)[weight]
        out = stored(gradient)
    with session(ir) as running:
        np.testing.assert_allclose(running.run()[out], X.T @ (X * np.cos(X @ w)), rtol=1e-4, atol=1e-4)


def nested(times: int | None = None) -> tuple[popxl.Ir, popxl.Graph, popxl.Graph, popxl.transforms.GradGraphInfo]:
    """Gives graphs of `x^2` and of `3 y` after it, or of it so often in a row, and as the gradient of the square `10 dy + x - x`."""
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(X[0], name="x")
        inner = ir.create_graph(lambda a: a * a, x)
        again = {} if times is None else {"again": times}
        outer = ir.create_graph(lambda a: (ops.repeat(inner, again["again"], a) if again else ops.call(inner, a))[0] * 3, x)
        info = autodiff(inner)
        assert isinstance(info, popxl.transforms.GradGraphInfo)
        back = ir.create_empty_graph("back")
        with back:
            dy, a = (popxl.graph_input(t.shape, t.dtype, t.name) for t in info.graph.inputs)
            popxl.graph_output(dy * 10 + a - a)
    stated = popxl.transforms.GradGraphInfo(back, inner, info.expected_inputs, info.expected_outputs)
    return ir, inner, outer, stated


@pytest.mark.parametrize(("times", "expected"), [(None, 30), (2, 300)])
def test_autodiff_calls_the_gradient_graph_that_is_given_for_a_called_graph(times, expected):
    ir, inner, outer, stated = nested(times)
    inner._pb_graph.setCanBeRecursivelyAutodiffed(False)
    with ir.main_graph:
        x = ir.main_graph.get_tensor("x")
        info = autodiff(outer, called_graphs_grad_info={inner: stated})
        site = ops.call_with_info(outer, x)
        (dx,) = ops.call(info.graph, popxl.constant(np.ones(4, np.float32)), inputs_dict=info.inputs_dict(site))
        out = stored(dx)
    with session(ir) as running:
        assert running.run()[out].tolist() == [expected] * 4


def test_inputs_that_are_added_to_a_gradient_graph_are_given_by_the_program():
    ir, inner, _, _ = nested()
    info = autodiff(inner)
    with info.graph:
        scale = popxl.graph_input((), popxl.float32, "scale")
        popxl.graph_output(info.graph.outputs[0] * scale)
    with ir.main_graph:
        x = ir.main_graph.get_tensor("x")
        known = info.inputs_dict(ops.call_with_info(inner, x))
        *_, scaled = ops.call(info.graph, popxl.constant(np.ones(4, np.float32)), inputs_dict={**known, scale: popxl.constant(3.0)})
        out = stored(scaled)
    with session(ir) as running:
        assert running.run()[out].tolist() == (6 * X[0]).tolist()


class Named(type):
    """A metaclass of a program."""


def test_a_module_may_have_a_metaclass_and_needs_build():
    class Square(popxl.Module, metaclass=Named):
        def build(self, x: popxl.Tensor) -> popxl.Tensor:
            return x * x

    with popxl.Ir().main_graph:
        x = popxl.variable(X)
        assert x.ir.create_graph(Square(), x).outputs[0].shape == X.shape
        with pytest.raises(NotImplementedError, match="Module has no `build`"):
            x.ir.create_graph(popxl.Module(), x)


def test_autodiff_goes_into_called_graphs_only_where_they_allow_it():
    ir, inner, outer, stated = nested()
    inner._pb_graph.setCanBeRecursivelyAutodiffed(False)
    with ir.main_graph, pytest.raises(PopulusError, match="marked as unsafe to autodiff; provide its gradient graph"):
        autodiff(outer)
    inner._pb_graph.setCanBeRecursivelyAutodiffed(True)
    with ir.main_graph:
        autodiff(outer)
    with stated.graph:
        popxl.graph_input((2,), popxl.float32, "more")
    with ir.main_graph, pytest.raises(PopulusError, match=r"gradient graph 'back\S*' has 3 inputs; its information names 2"):
        autodiff(outer, called_graphs_grad_info={inner: stated})


def test_accumulators_of_16_bits_are_changed_in_f32():
    ir = popxl.Ir()
    with ir.main_graph:
        m, x = popxl.variable(np.zeros(1, np.float16)), popxl.variable(np.float16([300]))
        ops.var_updates.accumulate_moving_average_(m, x, 0.9)
        v = popxl.variable(np.float16([1]))
        ops.var_updates.accumulate_moving_average_square_(v, x, 0.999)  # 300^2 does not fit f16
        out = stored(m)
    with session(ir) as running:
        assert running.run()[out] == 30
        assert running.get_tensor_data(v) == np.float16(0.999 + 90)


def test_adam_s_updater_counts_its_steps():
    ir = popxl.Ir()
    with ir.main_graph:
        m, v, step = popxl.variable(0.2), popxl.variable(0.09), popxl.variable(1.0)
        out = stored(ops.var_updates.adam_updater(m, v, None, step, None, 0.9, 0.99, 1e-3))
    with session(ir) as running:
        found = running.run()[out]
        assert running.get_tensor_data(step) == 2
    assert found == pytest.approx((0.2 / (1 - 0.9**2)) / (np.sqrt(0.09 / (1 - 0.99**2)) + 1e-3), rel=1e-5)


def test_adam_in_popxl_is_the_optimizer_s_op_bit_for_bit():
    """Both take their formulas from one place; beta is no f32 number, so `1 - beta` of f32 would differ."""
    rng, beta = np.random.default_rng(4), (0.9, 0.999)
    w, g, m = (rng.standard_normal((3, 4)).astype(np.float32) for _ in range(3))
    v, ir = m * m, popxl.Ir()
    with ir.main_graph:
        weight, gradient, mean, square, step = (popxl.variable(a) for a in (w, g, m, v, np.float32(4)))
        ops.var_updates.accumulate_moving_average_(mean, gradient, beta[0])
        ops.var_updates.accumulate_moving_average_square_(square, gradient, beta[1])
        x = ops.var_updates.adam_updater(mean, square, None, step, None, *beta, 1e-6)
        outs = stored(weight - x * 0.01), stored(mean), stored(square)
    with session(ir) as running:
        found = running.run()
    with populus.Builder() as b:
        state = {"w": w, "g": g, "mean": m, "square": v, "step": np.float32(4)}
        scalars = {"rate": 0.01, "decay": 0, "rest1": 1 - beta[0], "rest2": 1 - beta[1], "epsilon": 1e-6}
        for name, value in zip(
            ("w", "m", "v"), b.op(train.AdamOp, *map(b.constant, [*state.values(), *map(np.float32, scalars.values())]))
        ):
            b.output(name, value)
    expected = populus.compile(b.module(), tiles=2, target="gc200", engine="numpy").run({})
    for out, array in zip(outs, expected.values()):
        np.testing.assert_array_equal(found[out], array)


@pytest.mark.parametrize("shape", [(3,), (3, 1)], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_loss_of_labels_and_its_gradient(reduction: str, shape: tuple[int, ...]):
    x, labels = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32), np.array([2, 0, 3], np.int32)
    ir = popxl.Ir()
    with ir.main_graph:
        probs = ops.softmax(popxl.variable(x), -1)
        given = popxl.variable(labels.reshape(shape))
        loss, gradient = ops.nll_loss_with_softmax_grad(probs, given, 2.0, ignore_index=0, reduction=reduction)
        outs = stored(loss), stored(gradient)
    with session(ir) as running:
        results = running.run()
    p = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    each = -np.log(p[np.arange(3), labels]) * (labels != 0)
    kept = (p - np.eye(4)[labels]) * (labels != 0)[:, None] * 2
    expected = {"mean": (each.sum() / 2, kept / 2), "sum": (each.sum(), kept), "none": (each.reshape(shape), kept)}[reduction]
    for out, array in zip(outs, expected):
        np.testing.assert_allclose(results[out], array, rtol=1e-5, atol=1e-6)


def test_the_same_seed_drops_the_same_elements_and_split_seeds_others():
    ir = popxl.Ir()
    with ir.main_graph:
        seed = popxl.variable(popxl.create_seeds(3))
        one, other = ops.split_random_seed(seed)
        ones = popxl.constant(np.ones(64, np.float32))
        outs = [stored(ops.dropout(ones, s, 0.5)) for s in (one, one, other)]
    with session(ir) as running:
        results = running.run()
    a, b, c = (results[out] for out in outs)
    assert set(a.tolist()) == {0.0, 2.0}
    assert a.tolist() == b.tolist()
    assert a.tolist() != c.tolist()


PICKED = {
    "max over an axis": (lambda x: ops.max(x, 1), lambda a: a.max(1)),
    "median": (lambda x: ops.median(x, 1, keepdims=True), lambda a: np.sort(a, 1)[:, 1:2]),
    "argmax": (lambda x: ops.argmax(x, 1), lambda a: a.argmax(1).astype(np.int32)),
    "topk": (lambda x: ops.topk(x, 2, 0, False, True)[0], lambda a: np.sort(a, 0)[:2]),
    "cumsum": (lambda x: ops.cumsum(x, 1), lambda a: np.cumsum(a, 1)),
    "index": (lambda x: x[-1, ::2], lambda a: a[-1, ::2]),
    "diagonal": (lambda x: x.diag(), np.diag),
    "mask": (lambda x: x[ops.greater(x, 3)], lambda a: np.where(a > 3, a, 0)),
    "gather of none": (lambda x: ops.gather(x, popxl.constant([2, 9]), zero_OOR=True), lambda a: np.stack([a[2], a[2] * 0])),
    "groups": (
        lambda x: ops.groupedgather(x, popxl.constant([[3], [0], [1]]), 0, 3),
        lambda a: a[np.arange(3)[:, None], [[3], [0], [1]]],
    ),
    "scatter": (
        lambda x: ops.scatter(x, popxl.constant([[1, 0, 2, 1]]), popxl.constant([[7.0, 8, 9, 10]])),
        lambda a: np.array([[0, 8, 2, 3], [7, 5, 6, 10], [8, 9, 9, 11]], np.float32),
    ),
    "scatter_reduce": (
        lambda x: ops.scatter_reduce(x, popxl.constant([1, 0, 1]), "sum", axis_size=3),
        lambda a: np.stack([a[1], a[0] + a[2], a[0] * 0]),
    ),
    "dynamic_update": (
        lambda x: ops.dynamic_update(x, popxl.constant([1, 2]), popxl.constant([[5.0, 6.0]]), [0, 1], [1, 2], True),
        lambda a: np.array([[0, 1, 2, 3], [4, 5, 5, 6], [8, 9, 10, 11]], np.float32),
    ),
    "onehot": (
        lambda x: ops.onehot(ops.cast(x[0], popxl.int32), 4, popxl.constant([0.0, 2.0]), 0),
        lambda a: 2 * np.eye(4, dtype=np.float32),
    ),
    "histogram": (lambda x: ops.histogram(x, [1.0, 4.0], False), lambda a: np.array([1, 3, 8], np.uint32)),
    "layer_norm": (
        lambda x: ops.layer_norm(x, popxl.constant(np.ones(4)), popxl.constant(np.zeros(4)), 0.0),
        lambda a: (a - a.mean(1, keepdims=True)) / a.std(1, keepdims=True),
    ),
}


@pytest.mark.parametrize("name", PICKED)
def test_an_op_gives_numpy_s_values(name: str):
    ours, numpys = PICKED[name]
    found, expected = value(ours), numpys(X)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_numbers_are_promoted_on_either_side():
    found = value(lambda x: 1 - x / 2 + 3 * x**2 % 5 - (-x), X[0])
    np.testing.assert_allclose(found, 1 - X[0] / 2 + np.fmod(3 * X[0] ** 2, 5) + X[0], rtol=1e-6)


def test_detached_tensors_have_no_gradient():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(X)
        graph = ir.create_graph(lambda a: ops.detach(a) * a, x)
        found = autodiff(graph)
        assert isinstance(found, popxl.transforms.GradGraphInfo)
        out = stored(ops.call(found.graph, popxl.constant(np.ones_like(X)), x)[0])
    with session(ir) as running:
        np.testing.assert_array_equal(running.run()[out], X)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x, g: ops.call(g), r"Not enough inputs .* has x too"),
        (lambda x, g: ops.call(g, x, x), r"Too many inputs .* 'add_one_subgraph\(0\)' has 1; 2 are given"),
        (lambda x, g: ops.call(g, x, inputs_dict={g.inputs[0]: x}), r"specified twice: 'x' of graph"),
        (lambda x, g: x.reshape((5,)), r"x has 12 elements, so it cannot become \[5\]"),
        (lambda x, g: popxl.graph_input((1,), popxl.float32), "the main graph takes its inputs from streams and variables"),
        (lambda x, g: ops.split(x, 5), r"dimension 0 of x is of size 3; it cannot be split into 5"),
        (lambda x, g: popxl.Ir(0), "a program has at least 1 replica, not 0"),
        (lambda x, g: x.ir.replica_grouping(group_size=2), "1 replicas cannot be dealt to groups of 2 with stride 1"),
        (lambda x, g: ops.dropout(x, x, 0.5), "a seed is uint32"),
    ],
)
def test_misuse_is_a_value_error_of_one_line(wrong: Callable[..., object], message: str):
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(X, name="x")
        graph = ir.create_graph(add_one, x)
        with pytest.raises(ValueError, match=message):
            wrong(x, graph)


def called(times=None):
    """Gives an Ir whose main graph calls or repeats a graph, and then a variable and that graph."""
    ir = popxl.Ir()
    with ir.main_graph:
        x, out = popxl.variable(X), popxl.d2h_stream(X.shape, popxl.float32)
        graph = ir.create_graph(lambda a: a * 2, x)
        (y,) = ops.call(graph, x) if times is None else ops.repeat(graph, times, x)
        ops.host_store(out, y)
    return ir, x, graph, out


@pytest.mark.parametrize("times", [None, 3])
def test_a_graph_that_is_called_may_get_a_further_input(times: int | None):
    ir, x, graph, out = called(times)
    with graph:
        further = popxl.graph_input(x.shape, x.dtype, "further")
        further + 1  # pyright: ignore[reportUnusedExpression]
    with pytest.raises(PopulusError, match=r"test_popxl_state.py:\d+:1: graph .* has .*further since this call; connect it here too"):
        ir.module()
    (site,) = (op for op in ir.main_graph._pb_graph.getOps() if op.opType() in ("Call", "Loop"))
    index = site.subgraphInToOpInIndex(1)
    assert [g.id for g in site.getCalledGraphs()] == [graph.name] and not site.hasInput(index)
    site.connectInTensor(index, x.id)
    assert site.hasInput(index) and site.hasInputTensor(x._pb_tensor) and site.opInToSubgraphInIndex(index) == 1
    site.addModified(index, [])
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run()[out], X * 2 ** (times or 1))
    site.addModified(index, [Region.getFull(x.shape)])
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run()[out], X * 2 ** (times or 1))


def test_a_further_input_is_a_tensor_from_before_the_call_and_the_next():
    ir, x, graph, _ = called()
    (site,) = (op for op in ir.main_graph._pb_graph.getOps() if op.opType() == "Call")
    with graph:
        popxl.graph_input(x.shape, x.dtype, "one")
        popxl.graph_input(x.shape, x.dtype, "two")
    with ir.main_graph:
        later = x + 1
    with pytest.raises(PopulusError, match="has 1 inputs; input 2 is not the next"):
        site.connectInTensor(2, x.id)
    with pytest.raises(PopulusError, match="is made after the call of graph .*; pass it in where the graph is called"):
        site.connectInTensor(1, later.id)
