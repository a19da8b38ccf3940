"""A graph of PopXL as a list of PopART's ops: kinds, tensors and changes are those of the program that was built."""

import numpy as np
import pytest

from populus import popxl
from populus.dialects.support.diagnostics import PopulusError
from populus.popart._internal import ir as view
from populus.popxl import ops
from populus.popxl.internals.kinds import CLASSES, FOLDERS

SQUARE = np.arange(1.0, 10.0, dtype=np.float32).reshape(3, 3)

# A call on two tensors of one shape; the kind that it is; an op of the popart level that it inserts; how many tensors it shows besides.
CALLS = [
    (lambda a, b: a + b, "Add", "popart.add", 1),
    (lambda a, b: a * 2, "Mul", "popart.mul", 2),
    (lambda a, b: 2 - a, "Sub", "popart.sub", 2),
    (lambda a, b: a @ b, "MatMul", "popart.matmul", 1),
    (lambda a, b: -a, "Neg", "popart.neg", 1),
    (lambda a, b: ops.gelu(a), "Gelu", "popart.gelu", 1),
    (lambda a, b: ops.geluerf(a), "GeluErf", "popart.gelu", 1),
    (lambda a, b: ops.mean(a, 0), "ReduceMean", "popart.reduce_mean", 1),
    (lambda a, b: ops.clip(a, 0.0, 1.0), "Clip", "popart.max", 1),
    (lambda a, b: ops.softmax(a, 1), "Softmax", "popart.softmax", 1),
    (lambda a, b: ops.cumsum(a, 0), "CumSum", "popart.matmul", 1),
    (lambda a, b: ops.scaled_add(a, b, 2.0, 3.0), "ScaledAdd", "popart.add", 1),
    (lambda a, b: ops.flatten(a), "Reshape", "popart.reshape", 1),
    (lambda a, b: ops.squeeze(ops.sum(a, 0, True)), "Reshape", "popart.reshape", 2),
    (lambda a, b: a.T, "Transpose", "popart.transpose", 1),
    (lambda a, b: ops.concat([a, b], 1), "Concat", "popart.concat", 1),
    (lambda a, b: ops.where(ops.greater(a, b), a, b), "Where", "popart.where", 2),
    (lambda a, b: ops.topk(a, 2, 1, True, True), "TopK", "popart.top_k", 2),
    (lambda a, b: ops.increment_mod(a, 1, 3), "IncrementMod", "popart.mod", 1),
    (lambda a, b: ops.l2(a), "ReduceL2", "popart.reduce_l2", 1),
]


def built():
    ir = popxl.Ir()
    with ir.main_graph:
        a, b = popxl.variable(SQUARE, name="a"), popxl.variable(SQUARE + 1, name="b")
    return ir, a, b


@pytest.mark.parametrize(("call", "kind", "inner", "more"), CALLS, ids=[f"{k}{n}" for n, (_, k, _, _) in enumerate(CALLS)])
def test_a_call_is_one_op_of_its_kind_with_its_body(call, kind, inner, more):
    ir, a, b = built()
    with ir.main_graph:
        found = call(a, b)
    op = ir.main_graph._pb_graph.getOps()[-1]
    assert (op.opType(), type(op)) == (kind, CLASSES[kind])
    assert inner in [made.name for made in op.body]
    assert len(ir.main_graph.tensors) == 2 + more
    assert op.outputs == [*found] if isinstance(found, tuple) else [found]
    assert not op.modifies()


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_increment_mod_has_the_sign_of_the_sum_as_the_remainder_of_c(dtype):
    ir = popxl.Ir()
    with ir.main_graph:
        found = ops.increment_mod(popxl.variable(np.array([5, -5, 10, -7], dtype)), 3, 4)
        out = popxl.d2h_stream(found.shape, found.dtype)
        ops.host_store(out, found)
    with popxl.Session(ir, "cpu", engine="numpy") as session:
        np.testing.assert_array_equal(session.run()[out], np.array([0, -2, 1, 0], dtype))


def test_ops_in_place_say_what_they_changed():
    ir, a, b = built()
    with ir.main_graph:
        ops.add_(a, b)
        ops.var_updates.accumulate_(b, a, 0.5)
        a.reshape_((9,))
    add, accumulate, shape = ir.main_graph._pb_graph.getOps()
    assert [op.opType() for op in (add, accumulate, shape)] == ["AddLhsInplace", "Accumulate", "ReshapeInplace"]
    assert (add.modifiesIndex(0), add.modifiesIndex(1)) == (True, False)
    assert (accumulate.modifiesIndex(0), accumulate.modifiesIndex(1)) == (True, False)
    assert accumulate.getFactor().val() == 0.5 and accumulate.isOptimizerOp() and not add.isOptimizerOp()
    assert not shape.modifies()
    assert a._pb_tensor.isAliased()


def test_composed_ops_are_several():
    ir, a, _ = built()
    with ir.main_graph:
        ops.isfinite(a)
        ops.log2(a)
        ops.logical_not(a)
    kinds = [op.opType() for op in ir.main_graph._pb_graph.getOps()]
    assert kinds == ["IsInf", "Not", "IsNaN", "Not", "And", "Log", "Log", "Div", "Cast", "Not"]


def test_a_call_changes_what_is_given_by_reference():
    ir, a, b = built()

    def step(x: popxl.TensorByRef, y: popxl.Tensor):
        ops.add_(x, y)
        return y * 2

    with ir.main_graph:
        graph = ir.create_graph(step, a, b)
        info = ops.call_with_info(graph, a, b)
        ops.repeat(graph, 2, a, b)
    call, loop = ir.main_graph._pb_graph.getOps()
    assert (call.opType(), loop.opType()) == ("Call", "Loop")
    assert info._op is call and [call.modifiesIndex(k) for k in range(3)] == [True, False, False]
    assert [loop.modifiesIndex(k) for k in range(5)] == [False, False, True, False, False]
    assert [op.opType() for op in graph._pb_graph.getOps()] == ["AddLhsInplace", "Mul"]
    assert [g.id for g in ir._pb_ir.getAllGraphs()] == ["", graph.name]
    assert graph._ir is ir
    assert graph.name.endswith("step_subgraph(0)")


def test_streams_have_handles_and_loads_have_places():
    ir = popxl.Ir()
    with ir.main_graph:
        stream = popxl.h2d_stream((2,), popxl.float32, name="x")
        x = ops.host_load(stream, "x")
        ops.host_store(popxl.d2h_stream((2,), popxl.float32), x)
    main = ir.main_graph._pb_graph
    assert [op.opType() for op in main.getOps()] == ["Init", "HostLoad", "HostStore"]
    assert stream.tensor_id in main
    kinds = [t.tensorType().name for t in main.getTensors()]
    assert sorted(kinds) == ["ActGrad", "ActGrad", "Stream", "Stream"]
    assert isinstance(main.getOps()[1], view.op.exchange.HostLoadOp)


def test_a_failed_call_leaves_no_op_and_no_tensor():
    ir, a, b = built()
    with ir.main_graph:
        with pytest.raises(ValueError, match="reduction"):
            ops.nll_loss(a, b, reduction="half")
        ops.abs(a)
    assert [op.opType() for op in ir.main_graph._pb_graph.getOps()] == ["Abs"]
    assert len(ir.main_graph.tensors) == 3


def test_tensors_of_two_chips_or_two_sets_of_tiles_are_refused_by_name():
    ir, a, b = built()
    with ir.main_graph:
        with pytest.raises(popxl.errors.UndefinedValue):
            a.ipu  # noqa: B018
        first = a + 1
        with popxl.ipu(1):
            second = b + 1
        with popxl.io_tiles():
            third = b + 1
        with pytest.raises(ValueError, match="`lhs` and `rhs` are on different IPUs: 0 and 1"):
            ops.add(first, second)
        with pytest.raises(ValueError, match="different tile sets: compute and io"):
            ops.add(first, third)
        moved = ops.ipu_copy(second, 0) + first
    assert (moved.ipu, second.ipu, third.tile_set) == (0, 1, "io")
    assert ir.main_graph._pb_graph.getOps()[-1].getSettings().tileSet.name == "Compute"


def test_every_class_is_under_its_name():
    for kind, found in CLASSES.items():
        folder = next((f for f, kinds in FOLDERS.items() if kind in kinds), None)
        assert getattr(getattr(view.op, folder) if folder else view.op, found.__name__) is found and found.kind == kind


def test_options_of_an_ir_are_popart_s(monkeypatch):
    monkeypatch.setenv("POPXL_CACHE_DIR", "elsewhere")
    options = popxl.Ir()._pb_ir.getSessionOptions()
    assert isinstance(options, view.SessionOptions)
    assert (options.enableEngineCaching, options.cachePath, options.useHostCopyOps) == (True, "elsewhere", True)
    with pytest.raises(AttributeError, match="enableNothing"):
        options.enableNothing = True


def test_a_tensor_s_view_has_its_type_and_shape():
    with popxl.Ir().main_graph:
        info = popxl.variable(np.zeros((2, 3), np.float16))._pb_tensor.info
    assert (info.shape(), info.data_type(), info.data_type_lcase()) == ([2, 3], "FLOAT16", "float16")


@pytest.mark.parametrize(
    ("build", "open_order"),
    [
        (lambda a, b: (ops.relu_(a), ops.add_(a, b)), True),  # the second takes a, not what the first gives
        (lambda a, b: ops.add_(ops.relu_(a), b), False),
        (lambda a, b: (a + 1, ops.var_updates.copy_var_update_(a, b)), True),
        (lambda a, b: ops.add_(ops.relu(a), ops.relu(a)), False),
        (lambda a, b: (ops.relu_(a.reshape_((9,))), a * 2), True),  # by way of a view
        (lambda a, b: (ops.relu_(a), b * 2), False),
    ],
)
def test_an_open_order_of_ops_in_place_is_found_if_asked(build, open_order):
    for in_order in (False, True):
        ir, a, b = built()
        with ir.main_graph, popxl.in_sequence(in_order):
            build(a, b)
        popxl.Session(ir, "ipu_model", tiles=2)
        ir._pb_ir.getSessionOptions().enableInplaceAmbiguityChecking = True
        if open_order and not in_order:
            with pytest.raises(PopulusError, match=r"^Inplacing ambiguity detected\. .* on a open; put them inside popxl.in_sequence"):
                popxl.Session(ir, "ipu_model", tiles=2)
        else:
            popxl.Session(ir, "ipu_model", tiles=2)
