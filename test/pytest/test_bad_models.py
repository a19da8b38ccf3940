"""Models and inputs that are wrong: one line that names node and reason, and what was there before stays usable."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper

import populus
from populus import onnx_backend
from populus.dialects.support.diagnostics import PopulusError, PopulusWarning

V = helper.make_tensor_value_info


def model(nodes, inputs, outputs):
    constants = [helper.make_tensor("none", T.INT64, [0], [])]
    return helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, constants), opset_imports=[helper.make_opsetid("", 21)])


def floats(name, *shape):
    return V(name, T.FLOAT, list(shape))


GOOD = model([helper.make_node("Neg", ["x"], ["y"], "good")], [floats("x", 2)], [floats("y", 2)])
SEQUENCE = helper.make_tensor_sequence_value_info("s", T.FLOAT, None)
NODES = {
    "an attribute that the op has not": (
        helper.make_node("Neg", ["x"], ["y"], "bad", alpha=1.0),
        [floats("x", 2)],
        "'bad': Neg: Neg-13 has no attribute 'alpha'",
    ),
    "an attribute of another kind": (
        helper.make_node("Concat", ["x"], ["y"], "bad", axis=1.5),
        [floats("x", 2)],
        "'bad': Concat: .*'axis' is of type FLOAT; INT is expected",
    ),
    "a flag that is neither 0 nor 1": (
        helper.make_node("ReduceMin", ["x"], ["y"], "bad", keepdims=-1),
        [floats("x", 2)],
        "'bad': ReduceMin: ReduceMin-20's attribute 'keepdims' is -1; 0 or 1 is expected",
    ),
    "an index of more numbers than dimensions": (
        helper.make_node("ScatterND", ["x", "i", "u"], ["y"], "bad"),
        [floats("x", 2, 4), V("i", T.INT64, [1, 3]), floats("u", 1)],
        "'bad': ScatterND-18: an index has 3 numbers for the 2 dimensions",
    ),
    "groups of channels without channels": (
        helper.make_node("GroupNormalization", ["x", "s", "s"], ["y"], "bad", num_groups=1),
        [floats("x", 4), floats("s", 4)],
        "'bad': GroupNormalization-21: x is of shape .4.; a batch and channels are expected first",
    ),
    "no number where one is expected": (
        helper.make_node("CumSum", ["x", "none"], ["y"], "bad"),
        [floats("x", 2)],
        "'bad': CumSum-14: its input 'axis' has 0 elements; one number is expected",
    ),
    "an attribute that is missing": (
        helper.make_node("Concat", ["x"], ["y"], "bad"),
        [floats("x", 2)],
        "'bad': Concat: Concat-13 needs the attribute 'axis'",
    ),
    "an op that there is not": (helper.make_node("Negate", ["x"], ["y"], "bad"), [floats("x", 2)], "'bad': Negate: .*Negate"),
    "a value that nothing gives": (
        helper.make_node("Neg", ["z"], ["y"], "bad"),
        [floats("x", 2)],
        "'bad': Neg: it reads 'z', which no input, initializer or earlier node defines",
    ),
    "an input that is missing": (helper.make_node("Add", ["x"], ["y"], "bad"), [floats("x", 2)], "'bad': Add: .*input"),
    "a type that the op does not take": (
        helper.make_node("Add", ["x", "x"], ["y"], "bad"),
        [V("x", T.BOOL, [2])],
        "'bad': Add-14: .*bool",
    ),
    "two types where one is expected": (
        helper.make_node("Add", ["x", "i"], ["y"], "bad"),
        [floats("x", 2), V("i", T.INT64, [2])],
        "'bad': Add-14: ",
    ),
    "shapes that do not fit": (
        helper.make_node("MatMul", ["x", "w"], ["y"], "bad"),
        [floats("x", 2, 3), floats("w", 4, 5)],
        "'bad': MatMul-13: .*its inputs are tensor<2x3xf32>, tensor<4x5xf32>",
    ),
    "a sequence where a tensor is expected": (helper.make_node("Neg", ["s"], ["y"], "bad"), [SEQUENCE], "'bad': Neg-13: "),
    "a tensor where a sequence is expected": (
        helper.make_node("SequenceLength", ["x"], ["y"], "bad"),
        [floats("x", 2)],
        "'bad': SequenceLength-11: ",
    ),
}


@pytest.mark.parametrize("what", NODES)
def test_a_wrong_node_is_refused_in_one_line_that_names_it(what):
    node, inputs, said = NODES[what]
    good = populus.compile(GOOD)
    wrong = model([node], inputs, [V("y", T.FLOAT, None)])
    given = {i.name: [np.zeros(2, np.float32)] if i.type.HasField("sequence_type") else _zeros(i) for i in inputs}
    with pytest.raises(PopulusError, match=said) as error:
        onnx_backend.run_model(wrong, given)
    assert "\n" not in str(error.value)
    assert good.run({"x": np.ones(2, np.float32)})["y"].tolist() == [-1, -1]


def _zeros(info):
    type = info.type.tensor_type
    return np.zeros([d.dim_value for d in type.shape.dim], helper.tensor_dtype_to_np_dtype(type.elem_type))


def test_shapes_found_inconsistent_when_run_are_refused_and_the_program_stays_usable():
    add = model([helper.make_node("Add", ["x", "y"], ["z"], "sum")], [floats("x", "n"), floats("y", "m")], [floats("z", None)])
    prepared = onnx_backend.prepare(add)
    program = populus.compile(add)
    three, four = np.ones(3, np.float32), np.ones(4, np.float32)
    for _ in range(2):
        with pytest.raises(PopulusError, match="'sum': Add-14: Incompatible dimensions; its inputs are tensor<3xf32>, tensor<4xf32>"):
            prepared.run([three, four])
        with pytest.raises(PopulusError, match="'sum': Add-14: Incompatible dimensions; its inputs are tensor<3xf32>, tensor<4xf32>"):
            program.run({"x": three, "y": four})
        assert prepared.run([four, four])[0].tolist() == [2] * 4
        assert program.run({"x": four, "y": four})["z"].tolist() == [2] * 4


def test_an_index_outside_is_refused_when_it_arrives_and_the_program_stays_usable():
    gather = model([helper.make_node("Gather", ["x", "i"], ["y"], "pick")], [floats("x", 3), V("i", T.INT64, [1])], [floats("y", 1)])
    for engine in ("numpy", "strict", "native"):
        program = populus.compile(gather, tiles=4, engine=engine)
        x = np.arange(3, dtype=np.float32)
        with pytest.raises(PopulusError, match="'pick': .*3"):
            program.run({"x": x, "i": np.array([3])})
        assert program.run({"x": x, "i": np.array([-1])})["y"] == 2


def test_a_sequence_of_the_wrong_type_is_refused_and_the_model_stays_usable():
    at = model(
        [helper.make_node("SequenceAt", ["s", "i"], ["y"], "at")], [SEQUENCE, V("i", T.INT64, [])], [floats("y", None)]
    )  # fmt: skip
    prepared = onnx_backend.prepare(at)
    good = [np.ones(2, np.float32), np.zeros(3, np.float32)]
    for wrong, said in [
        ([[np.ones(2, np.int64)], np.array(0)], "int64"),
        ([[None], np.array(0)], "input 's' has an element that is not an array"),
        ([None, np.array(0)], "input 's' is missing; it is a sequence"),
    ]:
        with pytest.raises(PopulusError, match=said):
            prepared.run(wrong)
        assert prepared.run([good, np.array(1)])[0].tolist() == [0, 0, 0]


def _edited(op, length):
    """A sequence of x0, x1, .. and one op on it whose position is computed when the model runs; what it holds then, joined."""
    nodes = [helper.make_node("ReduceMax", ["p"], ["i"], keepdims=0)]
    elements = [f"x{k}" for k in range(length)]
    nodes.append(helper.make_node("SequenceConstruct", elements, ["s"]) if length else helper.make_node("SequenceEmpty", [], ["s"]))
    if op == "SequenceAt":
        nodes.append(helper.make_node(op, ["s", "i"], ["y"], "edit"))
    else:
        nodes.append(helper.make_node(op, ["s", *(["new"] if op == "SequenceInsert" else []), "i"], ["e"], "edit"))
        nodes.append(helper.make_node("ConcatFromSequence", ["e"], ["y"], axis=0))
    inputs = [*(floats(name, 1) for name in elements), V("p", T.INT64, [2])]
    return model(nodes, [*inputs, *([floats("new", 1)] if op == "SequenceInsert" else [])], [floats("y", None)])


EDITS = {
    ("SequenceAt", 3): lambda s, i: [s[i]],
    ("SequenceAt", 1): lambda s, i: [s[i]],
    ("SequenceErase", 3): lambda s, i: [v for k, v in enumerate(s) if k != i % 3],
    ("SequenceInsert", 2): lambda s, i: [*s[:i], 9, *s[i:]],
    ("SequenceInsert", 0): lambda s, i: [9],
}


@pytest.mark.parametrize("engine", ["numpy", "strict", "native"])
@pytest.mark.parametrize(("op", "length"), EDITS)
def test_a_position_outside_of_a_sequence_is_refused_when_it_is_known(op, length, engine):
    program = populus.compile(_edited(op, length), tiles=2, engine=engine)
    listed = [float(k) for k in range(length)]
    feed = {f"x{k}": np.array([v], np.float32) for k, v in enumerate(listed)}
    if op == "SequenceInsert":
        feed["new"] = np.array([9], np.float32)
    end = length + (op == "SequenceInsert")
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    for i in [least, *range(-length - 2, end + 3), most]:
        given = {**feed, "p": np.array([i, least])}
        if -length <= i < end:
            assert program.run(given)["y"].tolist() == EDITS[op, length](listed, i), i
        else:
            with pytest.raises(PopulusError, match=f"'edit'.*index -?\\d+ is outside 0\\.\\.{end}") as error:
                program.run(given)
            assert "\n" not in str(error.value)


@pytest.mark.parametrize("engine", ["numpy", "strict", "native"])
@pytest.mark.parametrize("length", [5, -1])
def test_a_sequence_is_no_longer_than_its_dimension(engine: str, length: int):
    node = helper.make_node("ReverseSequence", ["x", "n"], ["y"], name="back", batch_axis=1, time_axis=0)
    info = helper.make_tensor_value_info
    inputs = [info("x", T.FLOAT, [4, 2]), info("n", T.INT64, [2])]
    graph = helper.make_graph([node], "g", inputs, [info("y", T.FLOAT, [4, 2])])
    program = populus.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), engine=engine)
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    with pytest.raises(PopulusError, match=r"'back': (execute 'back', .*: )?index 8 is outside"):
        program.run({"x": x, "n": np.array([2, length])})
    y = program.run({"x": x, "n": np.array([4, 1])})["y"]
    np.testing.assert_array_equal(y, np.stack([x[::-1, 0], x[:, 1]], axis=1))


# -- what a file says of values and is not so


def test_what_is_stated_of_a_value_between_inputs_and_outputs_binds_nobody():
    nodes = [helper.make_node("Relu", ["x"], ["r"], "first"), helper.make_node("Neg", ["r"], ["y"], "second")]
    for element, shape in ((T.FLOAT, [2, 4]), (T.FLOAT, [6]), (T.DOUBLE, [2, 3])):
        wrong = model(nodes, [floats("x", 2, 3)], [floats("y", 2, 3)])
        wrong.graph.value_info.append(V("r", element, shape))
        with pytest.warns(PopulusWarning, match="'first': Relu-14: its result '%r' is stated to be .*, and is tensor<2x3xf32>") as told:
            program = populus.compile(wrong)
        assert len(told) == 1
        assert program.run({"x": np.ones((2, 3), np.float32)})["y"].tolist() == [[-1] * 3] * 2


def test_several_statements_that_are_not_so_are_one_warning():
    nodes = [helper.make_node("Relu", ["x"], ["r"], "a"), helper.make_node("Abs", ["r"], ["s"], "b"), helper.make_node("Neg", ["s"], ["y"])]
    wrong = model(nodes, [floats("x", 2)], [floats("y", 2)])
    wrong.graph.value_info.extend([floats("r", 3), floats("s", 3)])
    with pytest.warns(PopulusWarning, match="'a': Relu-14: .* and 1 like it") as told:
        populus.compile(wrong)
    assert len(told) == 1


def test_the_element_type_of_an_output_binds():
    nodes = [helper.make_node("Relu", ["x"], ["y"], "bad")]
    with pytest.raises(PopulusError, match="'bad': Relu-14: its result '%y' is stated to be tensor<2xf64>, and is tensor<2xf32>"):
        populus.compile(model(nodes, [floats("x", 2)], [V("y", T.DOUBLE, [2])]))


def test_a_question_mark_names_no_dimension_and_minus_one_is_no_size():
    joined = model([helper.make_node("Concat", ["x", "z"], ["y"], axis=0)], [floats("x", "?"), floats("z", "?")], [floats("y", "?")])
    given = [np.ones(2, np.float32), np.zeros(3, np.float32)]
    assert populus.compile(joined).run(dict(zip("xz", given)))["y"].tolist() == [1, 1, 0, 0, 0]
    assert onnx_backend.run_model(joined, given)[0].tolist() == [1, 1, 0, 0, 0]
    open_ = model([helper.make_node("Neg", ["x"], ["y"])], [floats("x", -1, 2)], [floats("y", -1, 2)])
    for n in (1, 3):
        x = np.ones((n, 2), np.float32)
        assert populus.compile(open_).run({"x": x})["y"].shape == (n, 2)
        assert onnx_backend.run_model(open_, [x])[0].shape == (n, 2)
