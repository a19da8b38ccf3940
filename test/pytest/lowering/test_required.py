"""A shape that a model states and computes from an input: the input is compared with what was stated."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

import populus
from populus.dialects.support.diagnostics import PopulusError

F, I = TensorProto.FLOAT, TensorProto.INT64


def model(op: str, x: list[int], length: int, y: list[int], before: str = "") -> ModelProto:
    """One node whose second input says what shape its result has, and whose result is stated to be y."""
    nodes = [make_node(before, ["shape"], ["computed"])] if before else []
    nodes.append(make_node(op, ["x", "computed" if before else "shape"], ["y"]))
    inputs = [make_tensor_value_info("x", F, x), make_tensor_value_info("shape", I, [length])]
    return make_model(make_graph(nodes, "g", inputs, [make_tensor_value_info("y", F, y)]), opset_imports=[make_opsetid("", 21)])


CASES = [
    ("Expand", [3, 1], [3, 4], [[3, 4], [1, 4]], [3, 5], "3x5"),
    ("Expand", [3, 1], [3, 4], [], [2, 4], "do not broadcast"),
    ("Reshape", [2, 3], [3, 2], [[3, 2], [3, -1], [-1, 2]], [2, 3], "2x3"),
    ("Reshape", [2, 3], [2, 3], [[0, 3], [2, 0], [0, -1]], [6, 1], "6x1"),
    ("Reshape", [2, 3], [6, 1], [[6, 1]], [5, 1], "has 6 elements"),
    ("Squeeze", [3, 1], [3], [[1], [-1]], [0], "1"),
    ("Unsqueeze", [3], [3, 1], [[1], [-1]], [0], "1x3"),
]


@pytest.mark.parametrize(("op", "x", "y", "right", "wrong", "found"), CASES)
def test_an_input_that_decides_a_stated_shape_has_to_decide_it_so(op, x, y, right, wrong, found):
    program = populus.compile(model(op, x, len(wrong), y), tiles=4)
    array = np.arange(np.prod(x), dtype=np.float32).reshape(x)
    for value in right:
        assert program.run({"x": array, "shape": np.array(value)})["y"].shape == tuple(y)
    with pytest.raises(PopulusError) as error:
        program.run({"x": array, "shape": np.array(wrong)})
    assert f"input 'shape' is {wrong}, which gives" in str(error.value)
    assert found in str(error.value)
    assert "\n" not in str(error.value)


def test_the_check_is_part_of_the_text_of_the_levels_with_functions():
    module = populus.compile(model("Expand", [3, 1], 2, [3, 4]), level="popops").module("popops")
    program = populus.compile(module, tiles=4)
    with pytest.raises(PopulusError, match="which gives 3x5"):
        program.run({"x": np.zeros((3, 1), np.float32), "shape": np.array([3, 5])})


def test_a_stated_shape_is_not_trusted_where_it_follows_from_something_computed():
    with pytest.raises(PopulusError, match="its input 'shape' is computed when the model runs"):
        populus.compile(model("Expand", [3, 1], 2, [3, 4], before="Neg"))
