"""Modules run at the value levels: names, checks, calls, and what is said when something is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.parser import LocatingParser
from populus.dialects.table import context
from populus.runtime.interpreter import run_function

F = np.float32


def module(text: str) -> ModuleOp:
    return LocatingParser(context(), text, "t.mlir").parse_module()


NAMED = """
func.func @main(%x: tensor<2xf32>, %k: tensor<f32>) -> tensor<2xf32> attributes {input_names = ["a/b", "k"], output_names = ["out 1"]} {
  %y = popart.mul %x, %k : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  %z = popops.map <exp(_1)>(%y) : (tensor<2xf32>) -> tensor<2xf32>
  func.return %z : tensor<2xf32>
}"""


def test_inputs_and_outputs_go_by_the_models_names_and_levels_mix():
    seen: list[str] = []
    found = run_function(module(NAMED), {"a/b": np.array([0, 1], F), "k": np.array(2, F)}, lambda op, _: seen.append(op.name))
    np.testing.assert_allclose(found["out 1"], np.exp([0.0, 2.0]), rtol=1e-6)
    assert seen == ["popart.mul", "popops.map"]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"a/b": np.zeros(2, F)}, "@main: the input 'k' is missing; tensor<f32> is expected"),
        ({"a/b": np.zeros(3, F), "k": np.zeros((), F)}, "@main: the input 'a/b' is [3] of float32; tensor<2xf32> is expected"),
        ({"a/b": np.zeros(2), "k": np.zeros((), F)}, "@main: the input 'a/b' is [2] of float64; tensor<2xf32> is expected"),
        ({"q": np.zeros(2, F)}, "@main has no input 'q'; its inputs are a/b, k"),
    ],
)
def test_inputs_that_are_not_the_functions_are_refused(inputs, message):
    with pytest.raises(PopulusError) as error:
        run_function(module(NAMED), inputs)
    assert str(error.value) == message


def test_functions_are_called_with_their_own_values():
    text = """
func.func @twice(%v: tensor<1xf32>) -> tensor<1xf32> {
  %d = popart.add %v, %v : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xf32>
  func.return %d : tensor<1xf32>
}
func.func @main(%x: tensor<1xf32>) -> (tensor<1xf32>, tensor<1xf32>) {
  %a = func.call @twice(%x) : (tensor<1xf32>) -> tensor<1xf32>
  %b = func.call @twice(%a) : (tensor<1xf32>) -> tensor<1xf32>
  func.return %a, %b : tensor<1xf32>, tensor<1xf32>
}"""
    found = run_function(module(text), {"x": np.array([3], F)})
    assert {k: v.tolist() for k, v in found.items()} == {"output_0": [6], "output_1": [12]}


CHECKED = """
func.func @main(%x: tensor<3xf32>) {
  check.close %x, dense<"0x0000803F000000400000C07F"> : tensor<3xf32>
  func.return
}"""


def test_a_check_passes_what_is_close_and_names_what_is_not():
    run_function(module(CHECKED), {"x": np.array([1, 2 + 1e-6, np.nan], F)})
    with pytest.raises(PopulusError, match=r"t.mlir:3:3: check.close: 2.5 was found at \[1\], 2.0 is expected .*; 1 of 3 elements differ"):
        run_function(module(CHECKED), {"x": np.array([1, 2.5, np.nan], F)})
    with pytest.raises(PopulusError, match=r"0.0 was found at \[2\], nan is expected"):
        run_function(module(CHECKED), {"x": np.array([1, 2, 0], F)})


PICKS = "%%i = data.constant dense<%s> : tensor<2xi64>\n%%y = %s : (tensor<2xf32>, tensor<2xi64>) -> tensor<2xf32>"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("%y = arith.addf %x, %x : tensor<2xf32>", "t.mlir:3:3: arith.addf has no value at this level"),
        (
            PICKS % ("[0, 2]", "popops.multi_slice %x, %i {dim = 0 : i64}"),
            "t.mlir:4:1: popops.multi_slice: index 2 is outside the 2 elements of dimension 0",
        ),
        (PICKS % ("[0, -3]", "popart.gather %x, %i {axis = 0 : i64}"), "t.mlir:4:1: popart.gather: index -3 is out of bounds"),
    ],
)
def test_what_cannot_be_computed_is_named_at_its_place(body, message):
    text = f"\nfunc.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{\n  {body}\n  func.return %y : tensor<2xf32>\n}}"
    with pytest.raises(PopulusError) as error:
        run_function(module(text), {"x": np.ones(2, F)})
    assert str(error.value).startswith(message)


def test_a_module_without_the_function_is_refused():
    with pytest.raises(PopulusError, match="the module has no function @main"):
        run_function(ModuleOp([]), {})
