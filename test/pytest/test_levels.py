"""Levels are compared op by op, and the first that differs is named."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from xdsl.dialects.builtin import DictionaryAttr, FloatAttr, f32

import populus
from populus.compare.levels import Comparison, Nodes, _compared, _difference, compare_levels, trace
from populus.dialects import expr
from populus.dialects.popart import LeakyReluOp
from populus.dialects.poplar.compute import FamilyOp


@pytest.fixture
def model() -> ModelProto:
    """y = sigmoid(leaky(x w)), each a node with a name."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"], name="product"),
        helper.make_node("LeakyRelu", ["xw"], ["leaky"], name="middle", alpha=0.25),
        helper.make_node("Softmax", ["leaky"], ["y"], name="last"),
    ]
    info = helper.make_tensor_value_info
    w = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4) - 6, "w")
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, [2, 3])], [info("y", TensorProto.FLOAT, [2, 4])], [w])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(proto)
    return proto


def test_all_levels_of_a_right_program_agree(model: ModelProto):
    program = populus.compile(model, tiles=4)
    found = list(compare_levels(program, program.signature.random(0)))
    assert [(c.level, c.above, c.first) for c in found] == [
        ("popart", "onnx", None),
        ("popops", "popart", None),
        ("poplar", "popops", None),
    ]
    assert all(c.places > 1 for c in found)


def test_a_wrong_op_of_popart_is_named(model: ModelProto):
    program = populus.compile(model, tiles=4)
    (leaky,) = (op for op in program.module("popart").walk() if isinstance(op, LeakyReluOp))
    leaky.alpha = FloatAttr(0.5, f32)
    first = next(compare_levels(program, program.signature.random(0)))
    assert (first.level, first.above, first.first) == ("popart", "onnx", "middle")


def test_a_wrong_family_is_named(model: ModelProto):
    program = populus.compile(model, tiles=4)
    (leaky,) = (op for op in program.module("poplar").walk() if isinstance(op, FamilyOp) and op.codelet.data == "map")
    leaky.params = DictionaryAttr({"expr": expr.ExprAttr(-expr.Arg(1))})
    *right, wrong = compare_levels(program, program.signature.random(0))
    assert [c.first for c in right] == [None, None]
    assert (wrong.level, wrong.above, wrong.first) == ("poplar", "popops", "middle")
    assert "poplar differs from popops first at 'middle'" in str(wrong)


def test_an_output_of_another_shape_or_kind_is_a_difference(model: ModelProto):
    program = populus.compile(model, tiles=4)
    expected = trace(program, "onnx", program.signature.random(0))
    [y] = expected["output y", 0]
    for other, said in ((y.T, "float32[4, 2]"), (y[None], "float32[1, 2, 4]"), (y > 0, "bool[2, 4]"), (y[:0], "float32[0, 4]")):
        found = _compared("popart", {("output y", 0): [other]}, "onnx", expected, 1e-3)
        assert str(found) == f"popart differs from onnx first at 'output y' of {said} instead of float32[2, 4]"


def softmax(a):
    e = np.exp(a.astype(np.float64) - a.max(1, keepdims=True))
    return (e / e.sum(1, keepdims=True)).astype(np.float32)


def test_rounding_that_a_node_magnifies_is_no_difference(model: ModelProto):
    program, inputs = populus.compile(model, tiles=4), {"x": np.ones((2, 3), np.float32)}
    tie = np.full((2, 4), 3e9, np.float32)

    def values(middle, last):
        return {**trace(program, "onnx", inputs), ("middle", 0): [middle], ("last", 0): [last], ("output y", 0): [last]}

    expected = values(tie, softmax(tie))
    nodes = Nodes(program, inputs, expected)

    def compared(middle, last):
        return _compared("popart", values(middle, last), "onnx", expected, 1e-3, nodes)

    near, far = tie.copy(), tie.copy()
    near[:, 1] = np.nextafter(np.float32(3e9), np.float32(4e9))  # the last bit decides
    far[:, 1] *= 1.5
    alike = compared(near, softmax(near))
    assert (alike.first, alike.magnified) == (None, ("last", "output y"))
    assert "but for rounding that 'last' and 'output y' magnify" in str(alike)
    assert compared(tie, softmax(tie)).magnified == ()
    assert compared(near, softmax(near)[:, ::-1]).first == "last"  # not its own inputs' softmax
    assert compared(tie, softmax(near)).first == "last"
    assert compared(far, softmax(far)).first == "middle"


def test_a_level_that_was_not_run_says_why():
    assert str(Comparison("onnx", "", 0, None, 0.0, "it has a custom op")) == "onnx is not compared: it has a custom op"


def test_the_reference_knows_the_lengths_of_sequences_and_small_probabilities():
    """A GRU whose second sequence ends after one step of three, and a LogSoftmax beyond what e^x can be."""
    rng = np.random.default_rng(0)
    tensors = [
        *(numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name) for name, shape in (("w", (1, 6, 4)), ("r", (1, 6, 2)))),
        numpy_helper.from_array(np.array([3, 1], np.int32), "lengths"),
        numpy_helper.from_array(np.float32(100), "large"),
    ]
    nodes = [
        helper.make_node("GRU", ["x", "w", "r", "", "lengths"], ["y", "last"], name="gru", hidden_size=2),
        helper.make_node("Mul", ["last", "large"], ["far"], name="times"),
        helper.make_node("LogSoftmax", ["far"], ["z"], name="logarithm"),
    ]
    info = helper.make_tensor_value_info
    outputs = [info("y", TensorProto.FLOAT, [3, 1, 2, 2]), info("z", TensorProto.FLOAT, [1, 2, 2])]
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, [3, 2, 4])], outputs, tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    program = populus.compile(made, tiles=2)
    inputs = {"x": 10 * rng.normal(size=(3, 2, 4)).astype(np.float32)}
    found = list(compare_levels(program, inputs))
    assert [(c.level, c.first) for c in found] == [("popart", None), ("popops", None), ("poplar", None)], [str(c) for c in found]
    assert not program.run(inputs)["y"][1:, 0, 1].any()


def alone(op_type: str, opset: int, shape: list[int], element: int, outputs: dict[str, tuple[int, list[int]]], **attributes) -> ModelProto:
    """A model of one node on x of this shape and type."""
    info = helper.make_tensor_value_info
    node = helper.make_node(op_type, ["x"], list(outputs), **attributes)
    graph = helper.make_graph([node], "g", [info("x", element, shape)], [info(n, *t) for n, t in outputs.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


F32, F16, I64, BOOL = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.BOOL


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (alone("Dropout", 10, [3], F32, {"y": (F32, [3]), "mask": (BOOL, [3])}), np.ones(3, np.float32)),
        (alone("HardSigmoid", 16, [3], F16, {"y": (F16, [3])}, beta=-0.31), np.array([1.75, -1.8, -3.3], np.float16)),
        (alone("GlobalMaxPool", 10, [2, 3, 5], F32, {"y": (F32, [2, 3, 1])}), np.arange(30, dtype=np.float32).reshape(2, 3, 5)),
        (alone("GlobalMaxPool", 22, [1, 1, 3, 2, 2], F32, {"y": (F32, [1] * 5)}), np.eye(4, 3, dtype=np.float32).reshape(1, 1, 3, 2, 2)),
    ],
    ids=["the mask of an old Dropout", "16-bit floats whose sum cancels", "the largest of a row", "the largest of a volume"],
)
def test_a_right_program_raises_no_alarm(model, x):
    found = list(compare_levels(populus.compile(model, tiles=4), {"x": x}))
    assert [c.level for c in found] == ["popart", "popops", "poplar"]
    assert [(c.first, c.skipped) for c in found] == [(None, None)] * 3


def test_values_and_indices_of_a_node_are_told_apart():
    values, indices = np.array([3.25, 0.25], np.float32), np.array([1, 0])
    assert _difference([indices, indices], [values, indices]) == 0
    assert _difference([values + 1, indices], [values, indices]) == pytest.approx(1 / 3.25)


def test_a_level_may_show_one_iteration_twice_and_may_show_no_value_that_the_other_has_not():
    a, b, c = (np.array([n], np.float32) for n in (1, 2, 3))
    assert _difference([b, b], [a, b]) == 0
    assert _difference([b, c], [a, b]) == 0.5
