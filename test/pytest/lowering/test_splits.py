"""Models cut over chips: each way to split an op, the programs of chips, and what is sent between them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from xdsl.dialects.builtin import f32, i1
from xdsl.utils.test_value import create_ssa_value

from benchmarks.models import transformer
from populus.dialects import gcl, popart
from populus.dialects.popart import calls
from populus.dialects.signature import main_of
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import tensor
from populus.exploration.chips import Chips
from populus.exploration.space import spread_over
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.popart.splits import part_of, splits_of
from populus.program.compile import compiled
from populus.program.options import CompileOptions
from populus.runtime.interpreter import evaluate_op

WINDOW = {"strides": [1, 1], "pads": [1, 1, 1, 1], "dilations": [1, 1]}
OPS = [
    (popart.AddOp, [(4, 6, 8), (6, 1)], {}),
    (popart.WhereOp, [(4, 6), (6,), (1, 1)], {}),
    (popart.MatMulOp, [(2, 4, 6, 8), (4, 8, 10)], {}),
    (popart.MatMulOp, [(2, 6, 8), (8, 4)], {}),
    (popart.GemmOp, [(4, 6), (6, 8), (8,)], {"alpha": 0.5}),
    (popart.GemmOp, [(6, 4), (8, 6)], {"trans_a": True, "trans_b": True}),
    (popart.GemmOp, [(4, 6), (6, 8), (4, 1)], {"beta": 2.0}),
    (popart.ConvOp, [(2, 4, 6, 6), (6, 4, 3, 3), (6,)], WINDOW),
    (popart.ConvOp, [(2, 4, 6, 6), (8, 2, 3, 3), (8,)], {**WINDOW, "group": 2}),
    (popart.ConvOp, [(2, 4, 6, 6), (4, 1, 3, 3)], {**WINDOW, "group": 4}),
    (popart.ReduceMeanOp, [(2, 4, 6)], {"axes": [1], "keep": False}),
    (popart.ReduceMaxOp, [(2, 4, 6)], {"axes": [1], "keep": True}),
    (popart.TransposeOp, [(2, 4, 6)], {"permutation": [2, 0, 1]}),
    (popart.ReshapeOp, [(2, 12, 4)], {"shape": [2, 6, 2, 4]}),
    (popart.ReshapeOp, [(2, 6, 2, 4)], {"shape": [2, 48]}),
    (popart.ExpandOp, [(2, 1, 4)], {"shape": [2, 6, 4]}),
    (popart.ConcatOp, [(2, 4), (2, 6)], {"axis": 1}),
    (popart.SliceOp, [(4, 6)], {"begins": [0, 1], "ends": [4, 5], "steps": [1, 2]}),
    (popart.PadOp, [(4, 6)], {"lower": [0, 1], "upper": [0, 2]}),
    (popart.BatchNormOp, [(2, 4, 6, 6), (4,), (4,), (4,), (4,)], {}),
    (popart.MaxPoolOp, [(2, 4, 6, 6)], {**WINDOW, "kernel": [3, 3]}),
    (popart.AveragePoolOp, [(2, 4, 6, 6)], {**WINDOW, "kernel": [3, 3]}),
    (popart.SoftmaxOp, [(2, 4, 6)], {"axis": 1}),
    (popart.LayerNormOp, [(2, 4, 6), (6,), (6,)], {"axis": 2}),
    (popart.RmsNormOp, [(2, 4, 6), (6,)], {"axis": 2}),
]


@pytest.mark.parametrize(("kind", "shapes", "properties"), OPS, ids=[f"{o[0].name}-{i}" for i, o in enumerate(OPS)])
def test_parts_of_an_op_make_the_whole_in_each_way_that_it_is_split(kind, shapes, properties):
    rng = np.random.default_rng(0)
    arrays = [np.abs(rng.standard_normal(s)).astype(np.float32) for s in shapes]
    if kind is popart.WhereOp:
        arrays[0] = arrays[0] > 0.5
    op = kind(*(create_ssa_value(_type(a)) for a in arrays), **properties)
    (whole,) = evaluate_op(op, arrays)
    ways = splits_of(op, 2)
    assert ways
    for way in ways:
        made: list[np.ndarray] = []
        for part in range(2):
            given = [a if d is None else np.split(a, 2, d)[part] for a, d in zip(arrays, way.operands)]
            one = part_of(op, way, [create_ssa_value(_type(a)) for a in given], 2)
            kept = given if way.after is None else [a for i, a in enumerate(given) if i != way.after[0]]
            made += evaluate_op(one, kept)
        if way.result is not None:
            found = np.concatenate(made, way.result)
        else:
            found = made[0] + made[1]
            if way.after is not None:
                index, d = way.after
                found = found + arrays[index].reshape([-1 if i == d else 1 for i in range(found.ndim)])
        assert np.allclose(found, whole, rtol=1e-5, atol=1e-5), way


def _type(array):
    return tensor(array.shape, f32 if array.dtype == np.float32 else i1)


def conv_net():
    """Builds a bottleneck with a skip, a depthwise convolution, a pool and a dense layer."""
    rng = np.random.default_rng(1)
    shapes = {"w1": (8, 4, 1, 1), "b1": (8,), "w2": (8, 1, 3, 3), "w3": (4, 8, 1, 1), "b3": (4,), "w4": (10, 64), "b4": (10,)}
    weights = {n: rng.standard_normal(s).astype(np.float32) / 4 for n, s in shapes.items()}
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["a"]), node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "w2"], ["c"], group=8, pads=[1, 1, 1, 1]), node("Relu", ["c"], ["d"]),
        node("Conv", ["d", "w3", "b3"], ["e"]), node("Add", ["e", "x"], ["f"]),
        node("MaxPool", ["f"], ["g"], kernel_shape=[2, 2], strides=[2, 2]), node("Flatten", ["g"], ["h"]),
        node("Gemm", ["h", "w4", "b4"], ["y"], transB=1),
    ]  # fmt: skip
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "net", [info("x", TensorProto.FLOAT, [1, 4, 8, 8])], [info("y", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def layer():
    return transformer(layers=2, sequence=8, hidden=32, heads=4, feed_forward=64)


def programs(model, tensor, stages, **options):
    """Compiles the programs of all chips."""
    given = CompileOptions(target="gc200, tiles=16", **options)
    made = (spread_over(Pipeline.named("inference"), tensor, stages, chip) for chip in range(tensor * stages))
    return [compiled(model, replace(given, pipeline=pipeline)) for pipeline in made]


@pytest.mark.parametrize(
    ("model", "tensor", "stages"), [(conv_net, 2, 1), (conv_net, 4, 2), (conv_net, 1, 3), (layer, 4, 1), (layer, 2, 3)]
)
def test_chips_together_compute_what_one_does(model, tensor, stages):
    whole = compiled(model(), CompileOptions(level="popart"))
    inputs = whole.signature.random(3)
    expected = whole.run(inputs)
    for level in ("popart", "poplar"):
        found = Chips(programs(model(), tensor, stages, level=level, engine="numpy"), tensor).run(inputs, whole.signature.outputs)
        for name, array in expected.items():
            assert np.allclose(found[name], array, rtol=1e-4, atol=1e-5), (level, name)


def meetings(program, kind):
    return [op for op in main_of(program.module("popart")).walk() if isinstance(op, kind)]


def test_two_products_that_follow_each_other_meet_once():
    """As in Megatron-LM: attention and the two dense layers of a block take one all-reduce each, and nothing is gathered."""
    first, other = programs(layer(), 2, 1, level="popart")
    for program in (first, other):
        assert len(meetings(program, popart.AllReduceOp)) == 4 and not meetings(program, popart.AllGatherOp)
    products = [[calls.shape(o) for o in op.operands] for op in meetings(first, popart.MatMulOp)]
    assert [(8, 32), (32, 16)] not in products and any(shape[1] == (32, 32) for shape in products), products
    assert {calls.shape(op.operands[0])[1] for op in meetings(first, popart.AttentionOp)} == {2}, "each chip has half of the heads"


def test_a_stage_has_its_own_constants_inputs_and_results():
    both = programs(layer(), 1, 2, level="popart")
    sent = [meetings(program, gcl.SendOp) for program in both]
    got = [meetings(program, gcl.ReceiveOp) for program in both]
    assert (len(sent[0]), len(got[0]), len(sent[1])) == (len(got[1]), 0, 0) and len(got[1]) >= 1
    assert list(both[0].signature.inputs) == ["x"] and not both[1].signature.inputs
    assert list(both[0].signature.outputs) == ["Sent"] and list(both[1].signature.outputs) == ["y"]
    assert {(op.offset, op.tag) for op in sent[0]} == {(-op.offset, op.tag) for op in got[1]}


def test_an_input_that_each_chip_reads_a_part_of_is_that_part():
    """A cache of keys: each chip has its heads."""
    info, f = helper.make_tensor_value_info, TensorProto.FLOAT
    w = numpy_helper.from_array(np.eye(32, dtype=np.float32), "w")
    shape = numpy_helper.from_array(np.array([1, 4, 1, 8]), "shape")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Reshape", ["a", "shape"], ["b"]),
        helper.make_node("Concat", ["cache", "b"], ["y"], axis=2),
    ]  # fmt: skip
    given = [info("x", f, [1, 32]), info("cache", f, [1, 4, 3, 8])]
    graph = helper.make_graph(nodes, "net", given, [info("y", f, [1, 4, 4, 8])], [w, shape])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    made = programs(model, 2, 1, level="popart")
    assert made[0].signature.inputs["cache"].get_shape() == (1, 2, 3, 8) and made[0].signature.inputs["x"].get_shape() == (1, 32)
    assert made[0].signature.outputs["y"].get_shape() == (1, 2, 4, 8) and not meetings(made[0], popart.AllGatherOp)
    inputs = {"x": np.arange(32, dtype=np.float32)[None], "cache": np.zeros((1, 4, 3, 8), np.float32)}
    whole = compiled(model, CompileOptions(level="popart"))
    found = Chips(made, 2).run(inputs, whole.signature.outputs)
    assert np.array_equal(found["y"], whole.run(inputs)["y"])


@pytest.mark.parametrize(
    ("tensor", "stages", "said"),
    [(7, 1, "no product can be cut into 7 equal parts"), (1, 60, "60 stages are more than the model's")],
)
def test_a_model_that_cannot_be_cut_is_one_line(tensor, stages, said):
    with pytest.raises(PopulusError, match=said):
        programs(layer(), tensor, stages, level="popart")
