"""Gradients of functions: whatever is saved or computed again, they are those of the program without calls, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.func import CallOp, FuncOp

import populus
from helpers.random_programs import inlined
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text
from populus.lowering.popart.autodiff import PopartAutodiffPass
from populus.lowering.popart.autodiff.call_gradients import STITCHES
from populus.runtime.interpreter import run_function

T = "tensor<4x4xf32>"
TWO = f"({T}, {T}) -> {T}"
LAYER = f"""
func.func private @layer(%x: {T}, %w: {T}) -> ({T}, {T}) {{
  %k = data.constant dense<0.5> : tensor<f32>
  %m = popart.matmul %x, %w : {TWO}
  %t = popart.tanh %m : {T}
  %c = popart.leaky_relu %t {{alpha = 0.1 : f32}} : {T}
  %s = popart.softmax %c {{axis = 1 : i64}} : ({T}) -> {T}
  %y = popart.mul %s, %t : {TWO}
  %h = popart.mul %y, %k : ({T}, tensor<f32>) -> {T}
  func.return %h, %s : {T}, {T}
}}
"""
HEAD = f'func.func @main(%x: {T}, %w: {T}, %v: {T}) -> {T} attributes {{input_names = ["x", "w", "v"], output_names = ["y"]}}'
CALL = f"({T}, {T}) -> ({T}, {T})"
PROGRAMS = {
    "one after the other": f"""{HEAD} {{
        %a, %s = func.call @layer(%x, %w) : {CALL}
        %b, %u = func.call @layer(%a, %v) : {CALL}
        %y = popart.mul %b, %s : {TWO}
        func.return %y : {T}
    }}""",
    "only one result, the same value twice": f"""{HEAD} {{
        %a, %s = func.call @layer(%x, %x) : {CALL}
        %b, %u = func.call @layer(%s, %w) : {CALL}
        %c = popart.add %u, %v : {TWO}
        func.return %c : {T}
    }}""",
    "a function that calls": f"""{HEAD} {{
        %a = func.call @two(%x, %w) : {TWO}
        %b = func.call @two(%a, %v) : {TWO}
        func.return %b : {T}
    }}
    func.func private @two(%x: {T}, %w: {T}) -> {T} {{
        %a, %s = func.call @layer(%x, %w) : {CALL}
        %e = popart.exp %s : {T}
        %b, %u = func.call @layer(%a, %e) : {CALL}
        %y = popart.mul %b, %e : {TWO}
        func.return %y : {T}
    }}""",
}


def gradients(text: str, stitch: str, flat: bool = False) -> tuple[dict[str, np.ndarray], list[str]]:
    module = parse_text(context(), text + LAYER, "calls.mlir")
    if flat:
        inlined(module)
    PopartAutodiffPass(wrt=("x", "w", "v"), stitch=stitch).apply(context(), module)
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal((4, 4)).astype(np.float32) for name in ("x", "w", "v", "Gradient___y")}
    found = run_function(module, inputs)
    for engine in ("numpy", "strict", "native"):
        tiles = populus.compile(module, target="gc200", tiles=4, engine=engine).run(inputs)
        for name, expected in found.items():
            np.testing.assert_allclose(tiles[name], expected, rtol=0, atol=2e-6)
    return found, [op.sym_name.data for op in module.body.block.ops if isinstance(op, FuncOp)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_without_functions(name: str):
    expected, _ = gradients(PROGRAMS[name], STITCHES[0], flat=True)
    for stitch in STITCHES:
        found, functions = gradients(PROGRAMS[name], stitch)
        assert {k: v.tobytes() for k, v in found.items()} == {k: v.tobytes() for k, v in expected.items()}, stitch
        assert any(f.startswith("layer_grad") for f in functions)
        assert any(f.startswith("layer_fwd") for f in functions) == (stitch == "add_fwd_outputs")


def test_a_function_in_a_loop_has_a_gradient():
    text = f"""{HEAD} {{
        %y = popart.loop(%x) {{trips = 3 : i64}} : ({T}) -> {T} do {{
        ^bb0(%i: tensor<i32>, %h: {T}):
          %a, %s = func.call @layer(%h, %w) : {CALL}
          %b = popart.add %a, %v : {TWO}
          popart.yield %b : {T}
        }}
        func.return %y : {T}
    }}"""
    unrolled = f"""{HEAD} {{
        %a0, %s0 = func.call @layer(%x, %w) : {CALL}
        %b0 = popart.add %a0, %v : {TWO}
        %a1, %s1 = func.call @layer(%b0, %w) : {CALL}
        %b1 = popart.add %a1, %v : {TWO}
        %a2, %s2 = func.call @layer(%b1, %w) : {CALL}
        %b2 = popart.add %a2, %v : {TWO}
        func.return %b2 : {T}
    }}"""
    expected, _ = gradients(unrolled, STITCHES[0], flat=True)
    for stitch in STITCHES:
        found, _ = gradients(text, stitch)
        for name, e in expected.items():
            np.testing.assert_allclose(found[name], e, rtol=0, atol=1e-6)


def test_an_unknown_way_to_stitch_is_named():
    with pytest.raises(PopulusError, match=r"no way 'recompute' to stitch; did you mean|there are"):
        gradients(PROGRAMS["one after the other"], "recompute")


def test_functions_that_nothing_calls_any_more_are_gone():
    module = parse_text(context(), PROGRAMS["one after the other"] + LAYER, "calls.mlir")
    PopartAutodiffPass(wrt=("w",)).apply(context(), module)
    called = {op.callee.root_reference.data for op in module.walk() if isinstance(op, CallOp)}
    assert called == {op.sym_name.data for op in module.body.block.ops if isinstance(op, FuncOp)} - {"main"}
