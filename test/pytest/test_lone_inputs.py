"""What `run` takes: arrays by name, one array alone where there is one input, tensors; all else is refused in one line."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import populus
from populus import PopulusError

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


def model(*inputs, size="n"):
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [size, 4]) for n in (*inputs, "y")]
    node = helper.make_node("Exp" if len(inputs) == 1 else "Add", inputs, ["y"])
    return helper.make_model(
        helper.make_graph([node], "g", infos[:-1], infos[-1:]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )


class Lone:
    """What NumPy makes an array of, as it does of a tensor."""

    def __array__(self, dtype=None, copy=None):
        return X


@pytest.fixture(scope="module", params=["sized", "open", "kept", "built"])
def program(request, tmp_path_factory):
    """A program of one input, in each of the forms that it may have."""
    if request.param == "open":
        return populus.compile(model("x"), tiles=2)
    found = populus.compile(model("x"), dims={"n": 2}, tiles=2)
    if request.param == "sized":
        return found
    folder = tmp_path_factory.mktemp("built")
    populus.build(found, folder)
    if request.param == "built":
        return populus.load_program(folder)
    from populus.program.ready import ReadyProgram

    return ReadyProgram(populus.load_program(folder), lambda: found)


@pytest.mark.parametrize("given", [{"x": X}, X, Lone(), {"x": Lone()}], ids=["named", "alone", "tensor", "named tensor"])
def test_one_input_is_given_by_name_or_alone(program, given):
    np.testing.assert_allclose(program.run(given)["y"], np.exp(X), rtol=1e-6)
    np.testing.assert_array_equal(program(given)["y"], program.run(given)["y"])


@pytest.mark.parametrize("bad", [[X], [1.0, 2.0], None, 3, "x"], ids=["list", "numbers", "None", "int", "str"])
def test_what_is_no_array_and_no_dict_is_refused_in_one_line(program, bad):
    with pytest.raises(populus.ProgramError) as refused:
        program.run(bad)
    expected = f"`inputs` is a {type(bad).__name__}; expected a dict by the names of the inputs (x), or its array alone"
    assert str(refused.value) == expected


def test_a_ragged_list_is_refused_in_one_line(program):
    with pytest.raises(populus.ProgramError, match=r"input 'x' is a list, which is no array: ") as refused:
        program.run({"x": [[1.0], [1.0, 2.0]]})
    assert "\n" not in str(refused.value)


def test_one_array_for_two_inputs_is_refused():
    program = populus.compile(model("a", "b"), dims={"n": 2}, tiles=2)
    with pytest.raises(PopulusError) as refused:
        program.run(X)
    assert str(refused.value) == "`inputs` is one array, and the program has 2 inputs; expected a dict by their names (a, b)"


def test_a_value_that_is_a_constant_leaves_one_input():
    program = populus.compile(model("a", "b"), dims={"n": 2}, tiles=2, values={"b": X})
    np.testing.assert_array_equal(program(X)["y"], X + X)


def test_a_program_that_keeps_a_state_takes_the_other_input_alone():
    summing = populus.compile(model("x", "past"), dims={"n": 2}, tiles=2).stateful({"past": "y"})
    summing(X)
    summing(X)
    np.testing.assert_array_equal(summing.get("past"), X + X)


def test_tensors_of_torch_are_arrays():
    torch = pytest.importorskip("torch")
    program = populus.compile(model("x"), dims={"n": 2}, tiles=2)
    for tensor in (torch.from_numpy(X), torch.from_numpy(X).requires_grad_()):
        np.testing.assert_allclose(program(tensor)["y"], np.exp(X), rtol=1e-6)
    with pytest.raises(PopulusError, match="input 'x' is bfloat16, expected float32"):
        program(torch.from_numpy(X).bfloat16())
