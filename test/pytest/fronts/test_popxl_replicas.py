"""PopXL programs of several replicas: groups, how variables and streams are dealt, collectives, shards, gradients, training."""

import numpy as np
import pytest

from populus import popxl
from populus.dialects.support.diagnostics import PopulusError
from populus.popxl import ops
from populus.popxl.transforms import autodiff

RNG = np.random.default_rng(11)


def run(ir, build, inputs=None, **options):
    """Runs what `build` gives on the main graph; gives its array for each replica."""
    with ir.main_graph:
        made = build()
        out = popxl.d2h_stream(made.shape, made.dtype, name="out")
        ops.host_store(out, made)
    with popxl.Session(ir, "ipu_model", tiles=4, **options) as session:
        return session.run(inputs or {})[out], session


@pytest.mark.parametrize(
    ("assignment", "stride", "other"),
    [
        ([0, 0, 0, 0, 1, 1, 1, 1], 1, [0, 1, 2, 3, 0, 1, 2, 3]),
        ([0, 1, 2, 3, 0, 1, 2, 3], 4, [0, 0, 0, 0, 1, 1, 1, 1]),
        ([0, 1, 0, 1, 2, 3, 2, 3], 2, [0, 0, 1, 1, 0, 0, 1, 1]),
        ([0, 1, 2, 3, 4, 5, 6, 7], 1, [0] * 8),
        ([0, 0, 1, 1, 0, 0, 1, 1], None, [0, 1, 0, 1, 2, 3, 2, 3]),
    ],
)
def test_groups_by_stride_by_list_and_transposed(assignment, stride, other):
    ir = popxl.Ir(replication=8)
    groups = ir.replica_grouping_from_assignments(assignment)
    assert groups.is_const == (stride is not None)
    assert groups.transpose().assignment == other
    if stride is not None:
        assert ir.replica_grouping(stride, groups.group_size) == groups and groups.const_rg is groups
        return
    assert groups.const_rg.assignment == [0, 0, 1, 1, 2, 2, 3, 3]
    assert (groups.to_device_map, groups.to_host_map) == ([0, 1, 0, 1], [0, 1])
    with pytest.raises(NotImplementedError, match="several strides"):
        groups.stride  # noqa: B018


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda ir: ir.replica_grouping(3), "a stride is a divisor of the 8 replicas, which 3 is not"),
        (lambda ir: ir.replica_grouping(4, 4), "cannot be dealt to groups of 4 with stride 4"),
        (lambda ir: ir.replica_grouping_from_assignments([0, 1]), "2 groups are given for 8 replicas"),
        (lambda ir: ir.replica_grouping_from_assignments([0, 0, 0, 0, 0, 0, 0, 1]), "one size, not of 1, 7"),
        (lambda ir: ir.replica_grouping_from_assignments([1, 1, 1, 1, 0, 0, 0, 0]), "numbered from 0 in the order"),
        (lambda ir: setattr(ir, "replication_factor", 0), "at least 1 replica, not 0"),
    ],
)
def test_groups_that_there_cannot_be_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make(popxl.Ir(replication=8))


@pytest.mark.parametrize("transfers", [1, 3])
def test_streams_have_a_row_for_each_replica(transfers):
    ir = popxl.Ir(replication=2)
    ir.num_host_transfers = transfers
    data = RNG.normal(size=(*((transfers,) if transfers > 1 else ()), 2, 4)).astype(np.float32)
    with ir.main_graph:
        stream = popxl.h2d_stream((4,), popxl.float32, name="x")
        out = popxl.d2h_stream((4,), popxl.float32, name="y")
        for _ in range(transfers):
            ops.host_store(out, ops.host_load(stream) * 2)
    with popxl.Session(ir, "ipu_model", tiles=2) as session:
        np.testing.assert_array_equal(session.run({stream: data})[out], data * 2)
        assert session.create_host_outputs()[out].shape == data.shape
        with pytest.raises(ValueError, match="for 2 replicas"):
            session.run({stream: data[..., :1, :]})


COLLECTIVES = {
    "add": (lambda t, g: ops.collectives.replicated_all_reduce(t, group=g), lambda xs, k: xs[k % 2] + xs[k % 2 + 2]),
    "mean": (lambda t, g: ops.collectives.replicated_all_reduce(t, "mean", g), lambda xs, k: (xs[k % 2] + xs[k % 2 + 2]) / 2),
    "in place": (lambda t, g: ops.collectives.replicated_all_reduce_(t, "max", g), lambda xs, k: np.maximum(xs[k % 2], xs[k % 2 + 2])),
    "concat": (lambda t, g: ops.collectives.replicated_all_gather(t, 1, g), lambda xs, k: np.concatenate([xs[k % 2], xs[k % 2 + 2]], 1)),
    "new axis": (
        lambda t, g: ops.collectives.replicated_all_gather(t, group=g, output_shape="new_axis"),
        lambda xs, k: np.stack([xs[k % 2], xs[k % 2 + 2]]),
    ),
    "scatter": (
        lambda t, g: ops.collectives.replicated_reduce_scatter(t, "add", g),
        lambda xs, k: np.split(np.append((xs[k % 2] + xs[k % 2 + 2]).ravel(), 0), 2)[k // 2],
    ),
    "slice": (lambda t, g: ops.collectives.replicated_slice(t, 0, g.transpose()), lambda xs, k: xs[k]),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_of_groups(name):
    build, wanted = COLLECTIVES[name]
    ir = popxl.Ir(replication=4)
    xs = RNG.normal(size=(4, 5, 3)).astype(np.float32)
    if name == "slice":
        build, wanted = (lambda t, g: ops.collectives.replicated_slice(t, 1, ir.replica_grouping(1, 3)), None)
        ir = popxl.Ir(replication=3)
        xs = xs[:3]
    groups = ir.replica_grouping(stride=2) if wanted else None

    def made():
        each = ir.replica_grouping(1, 1)
        return build(popxl.variable(xs, name="x", replica_grouping=each), groups)

    found, _ = run(ir, made)
    for k in range(len(xs)):
        np.testing.assert_allclose(found[k], wanted(xs, k) if wanted else xs[k][:, k], rtol=1e-6)


@pytest.mark.parametrize("assignment", [[0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 0]])
@pytest.mark.parametrize("mode", ["one_per_group", "all_replicas"])
def test_variables_of_groups_keep_their_values(assignment, mode):
    ir = popxl.Ir(replication=4)
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    groups = ir.replica_grouping_from_assignments(assignment)
    with ir.main_graph:
        v = popxl.variable(data, name="v", replica_grouping=groups, retrieval_mode=mode)
        ops.var_updates.accumulate_(v, v)
    assert (v.shape, v.shape_on_host, v.retrieval_mode) == ((3,), (2, 3), mode)
    read = (lambda a: a) if mode == "one_per_group" else (lambda a: a[assignment])
    with popxl.Session(ir, "ipu_model", tiles=2) as session:
        np.testing.assert_array_equal(session.get_tensor_data(v), read(data))
        session.run()
        np.testing.assert_array_equal(session.get_tensor_data(v), read(2 * data))
        if mode == "all_replicas":
            with pytest.raises(NotImplementedError, match="v is read as every replica has it, so it cannot be written"):
                session.write_variable_data(v, data + 1)
        else:
            session.write_variable_data(v, data + 1)
            session.run()
            np.testing.assert_array_equal(session.get_tensor_data(v), 2 * data + 2)
    with ir.main_graph, pytest.raises(ValueError, match="its first dimension is 2, the number of groups"):
        popxl.variable(np.zeros((3, 3)), replica_grouping=groups)


@pytest.mark.parametrize("size", [6, 7])
@pytest.mark.parametrize("remote", [True, False])
def test_sharded_variables_are_read_and_written_whole(size, remote):
    ir = popxl.Ir(replication=4)
    groups = ir.replica_grouping(group_size=2)
    data = RNG.normal(size=(2, size)).astype(np.float32)
    with ir.main_graph:
        buffer = popxl.replica_sharded_buffer(data.shape, popxl.float32, groups)
        if remote:
            whole, shard = popxl.remote_replica_sharded_variable(data, buffer, 0, replica_grouping=groups), ops.remote_load(buffer, 0)
        else:
            whole, shard = popxl.replica_sharded_variable(data, replica_grouping=groups, name="w")
        assert (shard.shape, shard.meta_shape, whole.shape_on_host) == (((size + 1) // 2,), (size,), (2, size))
        full = ops.collectives.replicated_all_gather(shard, group=groups) * 3
        assert full.shape == (size,)
        new = ops.collectives.replica_sharded_slice(full, groups)
        if remote:
            ops.remote_store(buffer, 0, new)
        else:
            ops.var_updates.copy_var_update_(shard, new)
        out = popxl.d2h_stream(full.shape, full.dtype)
        ops.host_store(out, full)
    with popxl.Session(ir, "ipu_model", tiles=2) as session:
        found = session.run()[out]
        np.testing.assert_allclose(found, 3 * data[[0, 0, 1, 1]], rtol=1e-6)
        np.testing.assert_allclose(session.get_tensor_data(whole), 3 * data, rtol=1e-6)
        session.write_variable_data(whole, data)
        np.testing.assert_allclose(session.run()[out], found, rtol=1e-6)


def test_a_group_in_the_place_of_the_axis_is_refused():
    """The whole of a shard has no use for an axis, so a group there was lost, and all replicas met."""
    ir = popxl.Ir(replication=4)
    groups = ir.replica_grouping(stride=2)
    with ir.main_graph:
        _, shard = popxl.replica_sharded_variable(np.ones((2, 4), np.float32), replica_grouping=groups)
        with pytest.raises(ValueError, match=r"the axis of replicated_all_gather is an int, not ReplicaGrouping.*`group=`"):
            ops.collectives.replicated_all_gather(shard, groups)


def test_gradients_of_gathers_and_slices_are_each_other():
    ir = popxl.Ir(replication=2)
    xs = RNG.normal(size=(2, 3)).astype(np.float32)

    def made():
        x = popxl.variable(xs, replica_grouping=ir.replica_grouping(1, 1))
        graph = ir.create_graph(ops.collectives.replicated_all_gather, x.spec)
        call = ops.call_with_info(graph, x)
        info = autodiff(graph)
        return ops.call(info.graph, call.outputs[0] * 2, inputs_dict=info.inputs_dict(call))[0]

    np.testing.assert_array_equal(run(ir, made)[0], 2 * xs)


def test_chips_of_a_replica_reduce_and_differentiate():
    ir = popxl.Ir()
    values = [np.float32(2), np.float32(5)]
    collective = ops.collectives
    for function, wanted, slope in (
        (collective.all_reduce, 7, 30),
        (collective.all_reduce_identical_inputs, 2, 30),
        (collective.all_reduce_identical_grad_inputs, 7, 10),
    ):
        ir = popxl.Ir()

        def made(ir=ir, function=function):
            a, b = (popxl.variable(v) for v in values)

            def layer(a, b):
                first, second = function([a, b], ipus=[0, 1])
                return first * 10 + second * 20

            graph = ir.create_graph(layer, a.spec, b.spec)
            call = ops.call_with_info(graph, a, b)
            info = autodiff(graph, grads_required=graph.inputs[:1])
            (slope,) = ops.call(info.graph, popxl.constant(np.float32(1)), inputs_dict=info.inputs_dict(call))
            with ir.main_graph:
                first = function([a, b], ipus=[0, 1])[0]
            return ops.concat([first.reshape((1,)), slope.reshape((1,))])

        assert run(ir, made)[0].tolist() == [wanted, slope]


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_training_of_replicas_is_that_of_the_whole_batch(replicas):
    """Weights after steps of SGD: gradients of equal parts of the batch are averaged over the replicas."""
    xs, ys = RNG.normal(size=(8, 3)).astype(np.float32), RNG.normal(size=(8, 2)).astype(np.float32)
    start, part = np.ones((3, 2), np.float32), 8 // replicas
    ir = popxl.Ir(replication=replicas)
    with ir.main_graph:
        w = popxl.variable(start, name="w")
        x, y = (popxl.h2d_stream((part, n), popxl.float32) for n in (3, 2))

        def loss(x, y, w):
            return ops.mean((x @ w - y) * (x @ w - y))

        given = ops.host_load(x), ops.host_load(y), w
        graph = ir.create_graph(loss, *(t.spec for t in given))
        info = autodiff(graph, grads_required=[graph.inputs[2]])
        call = ops.call_with_info(graph, *given)
        (slope,) = ops.call(info.graph, popxl.constant(np.float32(1)), inputs_dict=info.inputs_dict(call))
        ops.var_updates.accumulate_(w, ops.collectives.replicated_all_reduce(slope, "mean"), -0.1)
    expected = start.astype(np.float64)
    lead = (replicas,) if replicas > 1 else ()
    with popxl.Session(ir, "ipu_model", tiles=4) as session:
        for _ in range(5):
            session.run({x: xs.reshape(*lead, part, 3), y: ys.reshape(*lead, part, 2)})
            expected -= 0.1 * xs.T.astype(np.float64) @ (xs @ expected - ys) * 2 / 16
        np.testing.assert_allclose(session.get_tensor_data(w), expected, rtol=1e-5)


def test_a_collective_of_groups_of_several_strides_is_refused():
    ir = popxl.Ir(replication=4)
    with ir.main_graph, pytest.raises(NotImplementedError, match="collectives are over groups of one"):
        ops.collectives.replicated_all_reduce(popxl.variable(1.0), group=ir.replica_grouping_from_assignments([0, 1, 1, 0]))


def test_an_option_that_changes_after_its_groups_is_refused_when_it_runs():
    ir = popxl.Ir(replication=4)
    with ir.main_graph:
        y = ops.collectives.replicated_all_reduce(popxl.variable(1.0))
        out = popxl.d2h_stream(y.shape, y.dtype)
        ops.host_store(out, y)
    ir.replication_factor = 2
    with popxl.Session(ir, "ipu_model", tiles=2) as session, pytest.raises(PopulusError, match="multiple of 4 replicas; there are 2"):
        session.run()
