"""Programs of models with open dimensions: one for each size that arrives."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper

import populus
from populus.dialects.support.diagnostics import PopulusError
from populus.open_program import KEPT, OpenProgram

INFOS = [helper.make_tensor_value_info(n, T.FLOAT, d) for n, d in (("x", ["n", "k"]), ("y", ["k", None]), ("z", ["n", "m"]))]
GRAPH = helper.make_graph([helper.make_node("MatMul", ["x", "y"], ["z"], "product")], "g", INFOS[:2], INFOS[2:])
MODEL = helper.make_model(GRAPH, opset_imports=[helper.make_opsetid("", 20)])


def ones(*shape):
    return np.ones(shape, np.float32)


def test_a_program_is_compiled_for_each_size_and_kept():
    program = populus.compile(MODEL, tiles=4)
    assert isinstance(program, OpenProgram)
    for n, k, m in [(2, 3, 4), (1, 5, 2), (2, 3, 4)]:
        z = program.run({"x": ones(n, k), "y": ones(k, m)})["z"]
        np.testing.assert_array_equal(z, np.full((n, m), k))
    first = program.sized(n=2, k=3, **{"y.1": 4})
    assert program.sized(n=2, k=3, **{"y.1": 4}) is first
    assert first.signature.outputs["z"].get_shape() == (2, 4)
    for n in range(2, KEPT + 3):
        program.sized(n=n, k=1, **{"y.1": 1})
    assert program.sized(n=2, k=3, **{"y.1": 4}) is not first


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"x": ones(2, 3)}, "input 'y' is missing"),
        ({"x": ones(2, 3), "y": ones(4, 4)}, "dimension 'k' is 3 in input 'x' and 4 in 'y'"),
        ({"x": ones(2), "y": ones(4, 4)}, r"input 'x' has shape \[2\]; the model states a dimension 'k' at 1"),
        ({"x": ones(2, 3).astype(np.float64), "y": ones(3, 4)}, "input 'x' is float64, expected float32"),
        ({"x": ones(2, 3), "y": ones(3, 4), "w": ones(1)}, "the model has no input 'w'"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_and_the_program_stays_usable(inputs, said):
    program = populus.compile(MODEL, tiles=4)
    with pytest.raises(PopulusError, match=said):
        program.run(inputs)
    assert program.run({"x": ones(1, 1), "y": ones(1, 1)})["z"] == 1


def test_what_is_of_one_program_says_which_dimension_to_bind():
    program = populus.compile(MODEL)
    for ask in (lambda: program.signature, lambda: program.module("popart"), program.profile):
        with pytest.raises(PopulusError, match="input 'x' .* its dimension 'n' is open; bind it with --dim n=N"):
            ask()
    bound = populus.compile(MODEL, dims={"n": 1, "k": 2, "y.1": 3})
    assert not isinstance(bound, OpenProgram)
    assert bound.profile().summary["fits"]
