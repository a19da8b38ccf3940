"""Inputs that are arrays as a program has them pass one check, and streams that stand in a row are walked to once."""

from __future__ import annotations

import numpy as np
import pytest

import populus
from populus.dialects.support.diagnostics import PopulusError

TEXT = """func.func @main(%a: tensor<2x3xf32>, %b: tensor<3xf32>, %c: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
  %0 = "popart.add"(%a, %b) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %1 = "popart.mul"(%0, %c) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %0, %1 : tensor<2x3xf32>, tensor<2x3xf32> }"""
A, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(3, np.float32)
INPUTS = {"c": A, "a": A, "b": B}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    file = tmp_path_factory.mktemp("ready") / "m.mlir"
    file.write_text(TEXT)
    return populus.compile(file, engine="native", tiles=2, cache=False)


def test_arrays_are_taken_as_they_are_in_the_order_of_the_signature(program):
    taken = program.signature.checked(INPUTS)
    assert list(taken) == ["a", "b", "c"] and taken["a"] is A and taken["b"] is B


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"b": np.ones(2, np.float32)}, r"input 'b' has shape \[2\], expected \[3\]"),
        ({"b": np.ones(3)}, "input 'b' is float64, expected float32"),
        ({"d": B}, "the model has no input 'd'"),
    ],
)
def test_other_inputs_are_refused_as_before(program, changed, said):
    with pytest.raises(PopulusError, match=said):
        program.run({**INPUTS, **changed})


def test_lists_and_lone_rows_are_still_arrays(program):
    found = program.run({**INPUTS, "c": memoryview(A)})
    np.testing.assert_array_equal(found["output_1"], (A + 1) * A)


def test_streams_in_a_row_are_walked_to_once(program, monkeypatch):
    session = program.session
    team, walks = session.loaded.team, []
    walk = team.walk
    monkeypatch.setattr(team, "walk", lambda *given: walks.append(given[1]) or walk(*given))
    found = program.run(INPUTS)
    np.testing.assert_array_equal(found["output_1"], (A + 1) * A)
    assert len(session.loaded.table.stopping) == 5
    assert len(walks) <= 3, "the begin, after the inputs, after the outputs"
