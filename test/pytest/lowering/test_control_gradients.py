"""Gradients through branches and loops, against central differences in double precision; tiles compute what whole arrays do."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.func import FuncOp

from populus.dialects.popart import NoGradient
from populus.dialects.support.diagnostics import verify
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.popart.autodiff import PopartAutodiffPass
from populus.runtime.interpreter import run_function
from populus.runtime.session import Session

V, M, T = "tensor<3xf64>", "tensor<3x3xf64>", "tensor<5x3xf64>"
BINARY = f"({V}, {V}) -> {V}"
PRODUCT = f"({V}, {M}) -> {V}"

# Programs of %x: [3], %w: [3, 3], %xs: [5, 3], %c: i1 that give %y and %z, each [3] or [5, 3].
BRANCH = f"""
  %y = popart.if %c then {{
    %a = popart.matmul %x, %w : {PRODUCT}
    %b = popart.sin %a : {V}
    popart.yield %b : {V}
  }} else {{
    %a2 = popart.mul %x, %x : {BINARY}
    popart.yield %a2 : {V}
  }} : tensor<i1> -> {V}
  %z = popart.mul %y, %x : {BINARY}
"""
RECURRENT = f"""
  %y, %z = popart.loop(%x, %xs) {{trips = 5 : i64, scanned = 1 : i64}} : ({V}, {T}) -> ({V}, {T}) do {{
  ^bb0(%i: tensor<i32>, %h: {V}, %row: {V}):
    %p = popart.matmul %h, %w : {PRODUCT}
    %q = popart.add %p, %row : {BINARY}
    %n = popart.tanh %q : {V}
    %o = popart.mul %n, %x : {BINARY}
    popart.yield %n, %o : {V}, {V}
  }}
"""
# Carries an integer, a value that nothing reads, and two that change places; multiplies by the number of the iteration.
COUNTING = f"""
  %zero = data.constant dense<1> : tensor<i32>
  %y, %z, %k, %u = popart.loop(%x, %x, %zero, %x) {{trips = 4 : i64}}
      : ({V}, {V}, tensor<i32>, {V}) -> ({V}, {V}, tensor<i32>, {V}) do {{
  ^bb0(%i: tensor<i32>, %a: {V}, %b: {V}, %n: tensor<i32>, %unread: {V}):
    %m = popart.add %n, %i : (tensor<i32>, tensor<i32>) -> tensor<i32>
    %f = popart.cast %m {{to = f64}} : (tensor<i32>) -> tensor<f64>
    %s = popart.sin %a : {V}
    %t = popart.mul %s, %f : ({V}, tensor<f64>) -> {V}
    popart.yield %b, %t, %m, %s : {V}, {V}, tensor<i32>, {V}
  }}
"""
# Ends when the sum is large: after some iterations, in which case the rows behind are zeros.
ENDING = f"""
  %limit = data.constant dense<4.0> : tensor<f64>
  %y, %z = popart.loop(%c, %x, %xs) {{trips = 5 : i64, scanned = 1 : i64, conditional = true}}
      : (tensor<i1>, {V}, {T}) -> ({V}, {T}) do {{
  ^bb0(%i: tensor<i32>, %h: {V}, %row: {V}):
    %p = popart.mul %row, %x : {BINARY}
    %e = popart.exp %p : {V}
    %n = popart.add %h, %e : {BINARY}
    %l = popart.log %h : {V}
    %total = popart.reduce_sum %e {{axes = array<i64: 0>}} : ({V}) -> tensor<f64>
    %go = popart.less %total, %limit : (tensor<f64>, tensor<f64>) -> tensor<i1>
    popart.yield %go, %n, %l : tensor<i1>, {V}, {V}
  }}
"""
NESTED = f"""
  %half = data.constant dense<0.5> : tensor<f64>
  %y, %z = popart.loop(%x, %xs) {{trips = 5 : i64, scanned = 1 : i64}} : ({V}, {T}) -> ({V}, {T}) do {{
  ^bb0(%i: tensor<i32>, %h: {V}, %row: {V}):
    %total = popart.reduce_sum %row {{axes = array<i64: 0>}} : ({V}) -> tensor<f64>
    %zero = data.constant dense<0.0> : tensor<f64>
    %up = popart.greater %total, %zero : (tensor<f64>, tensor<f64>) -> tensor<i1>
    %n = popart.if %up then {{
      %deep = popart.loop(%h) {{trips = 2 : i64}} : ({V}) -> {V} do {{
      ^bb1(%j: tensor<i32>, %g: {V}):
        %p = popart.matmul %g, %w : {PRODUCT}
        %q = popart.mul %p, %row : {BINARY}
        %r = popart.add %q, %h : {BINARY}
        %s = popart.tanh %r : {V}
        popart.yield %s : {V}
      }}
      popart.yield %deep : {V}
    }} else {{
      %t = popart.mul %h, %half : ({V}, tensor<f64>) -> {V}
      popart.yield %t : {V}
    }} : tensor<i1> -> {V}
    popart.yield %n, %n : {V}, {V}
  }}
"""
NEVER = f"""
  %y, %z = popart.loop(%x) {{trips = 0 : i64}} : ({V}) -> ({V}, tensor<0x3xf64>) do {{
  ^bb0(%i: tensor<i32>, %h: {V}):
    %p = popart.matmul %h, %w : {PRODUCT}
    popart.yield %p, %p : {V}, {V}
  }}
"""
PROGRAMS = {"branch": BRANCH, "recurrent": RECURRENT, "counting": COUNTING, "ending": ENDING, "nested": NESTED, "never": NEVER}
WRT = ("x", "w", "xs")


def program(body: str, element: str = "f64"):
    z = V if body in (BRANCH, COUNTING) else "tensor<0x3xf64>" if body == NEVER else T
    text = f"""func.func @main(%x: {V}, %w: {M}, %xs: {T}, %c: tensor<i1>) -> ({V}, {z})
      attributes {{input_names = ["x", "w", "xs", "c"], output_names = ["y", "z"]}} {{ {body} func.return %y, %z : {V}, {z} }}"""
    module = parse_text(context(), text.replace("f64", element), "program.mlir")
    verify(module)
    return module


def values(condition: bool, dtype="f8"):
    rng = np.random.default_rng(1)
    return {
        "x": np.abs(rng.standard_normal(3)).astype(dtype) + 0.5,
        "w": rng.standard_normal((3, 3)).astype(dtype),
        "xs": (rng.standard_normal((5, 3)) * 0.7).astype(dtype),
        "c": np.array(condition),
    }


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_differences(name, condition):
    inputs = values(condition)
    plain = program(PROGRAMS[name])
    found = run_function(plain, inputs)
    cotangents = {f"Gradient___{k}": np.random.default_rng(2).standard_normal(v.shape) for k, v in found.items()}
    module = program(PROGRAMS[name])
    PopartAutodiffPass(wrt=WRT).apply(context(), module)
    verify(module)
    results = run_function(module, {**inputs, **cotangents})
    for key, value in found.items():
        np.testing.assert_array_equal(results[key], value)

    def weighted(given) -> float:
        return sum(float((v * cotangents[f"Gradient___{k}"]).sum()) for k, v in run_function(plain, given).items())

    for key in WRT:
        expected = np.zeros_like(inputs[key])
        for at in np.ndindex(expected.shape):
            step = np.zeros_like(inputs[key])
            step[at] = 1e-6
            expected[at] = (weighted({**inputs, key: inputs[key] + step}) - weighted({**inputs, key: inputs[key] - step})) / 2e-6
        np.testing.assert_allclose(results[f"Gradient___{key}"], expected, rtol=1e-6, atol=1e-7, err_msg=key)


@pytest.mark.parametrize("name", PROGRAMS)
def test_tiles_compute_the_gradients_of_whole_arrays(name):
    module = program(PROGRAMS[name], "f32")
    PopartAutodiffPass(wrt=WRT).apply(context(), module)
    (function,) = (op for op in module.body.block.ops if isinstance(op, FuncOp))
    inputs = values(True, "f4")
    for argument, key in zip(function.body.block.args, ("x", "w", "xs", "c", "Gradient___y", "Gradient___z")):
        if key not in inputs:
            inputs[key] = np.random.default_rng(2).standard_normal(argument.type.get_shape()).astype("f4")
    expected = run_function(module, inputs)
    Pipeline.named("inference").from_level("popart").with_defaults(tiles=16).run(context(), module, verify_each=True)
    for engine in ("numpy", "strict", "native"):
        found = Session(module, engine).run(inputs)
        for key, e in expected.items():
            np.testing.assert_allclose(found[key], e, rtol=2e-4, atol=1e-5, err_msg=f"{key} {engine}")


def test_second_derivatives_go_through_a_loop():
    inputs = values(True)
    module = program(RECURRENT)
    PopartAutodiffPass(wrt=("x",), outputs=("y",)).apply(context(), module)
    PopartAutodiffPass(wrt=("x",), outputs=("Gradient___x",)).apply(context(), module)
    verify(module)
    given = {**inputs, "Gradient___y": np.array([1.0, -0.5, 2.0]), "Gradient___Gradient___x": np.array([0.3, 1.0, -1.0])}
    found = run_function(module, given)["Gradient___Gradient___x"]

    def slope(x) -> float:
        return float((run_function(module, {**given, "x": x})["Gradient___x"] * given["Gradient___Gradient___x"]).sum())

    expected = [(slope(inputs["x"] + step) - slope(inputs["x"] - step)) / 2e-6 for step in 1e-6 * np.eye(3)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_a_loop_without_a_bound_has_no_gradient():
    module = program(f"""
      %y = popart.loop(%c, %x) {{conditional = true}} : (tensor<i1>, {V}) -> {V} do {{
      ^bb0(%i: tensor<i32>, %h: {V}):
        %n = popart.sin %h : {V}
        popart.yield %c, %n : tensor<i1>, {V}
      }}
      %z = popart.mul %xs, %xs : ({T}, {T}) -> {T}
    """)
    with pytest.raises(NoGradient, match="popart.loop has no gradient, as it may run without end; give it a number of iterations; the"):
        PopartAutodiffPass(wrt=("x",)).apply(context(), module)
