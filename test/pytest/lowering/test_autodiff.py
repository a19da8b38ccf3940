"""Gradients that `popart-autodiff` makes, where a whole program does not show them: sums, zeros, half floats, refusals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from xdsl.builder import Builder
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def

from populus.dialects.popart import NoGradient, PopartOp
from populus.dialects.support.diagnostics import PopulusError, verify
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text
from populus.lowering.popart.autodiff import PopartAutodiffPass
from populus.lowering.popart.to_popops import PopartToPopopsPass
from populus.runtime.interpreter import run_function


class _SameOp(PopartOp):
    x = operand_def(TensorType)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        assert isinstance(self.x.type, TensorType)
        return [self.x.type]


@irdl_op_definition
class SilentOp(_SameOp):
    """Has no gradient."""

    name = "custom.silent"


@irdl_op_definition
class PairOp(PopartOp):
    """`y = 2 x, z = 3 x`."""

    name = "custom.pair"
    x = operand_def(TensorType)
    y = result_def(TensorType)
    z = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        assert isinstance(self.x.type, TensorType)
        return [self.x.type, self.x.type]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        from populus.dialects.expr import Arg
        from populus.dialects.popart import calls

        return [calls.map(b, Arg(1) * 2, self.x), calls.map(b, Arg(1) * 3, self.x)]

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        from populus.dialects.expr import Arg
        from populus.dialects.popart import calls

        return [calls.map(b, Arg(1) * 2 + Arg(2) * 3, *grads)]


@irdl_op_definition
class WrongOp(_SameOp):
    """Its gradient is not of x's type."""

    name = "custom.wrong"

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        from populus.dialects.popart import calls

        return [calls.reduce(b, "add", grads[0], [0])]


def parsed(body: str, arguments: str, results: str) -> ModuleOp:
    ctx = context()
    for op in (SilentOp, PairOp, WrongOp):
        ctx.load_op(op)
    return parse_text(ctx, f"func.func @main({arguments}) -> {results} {{\n{body}\n}}", "net.mlir")


def differentiated(module: ModuleOp, *wrt: str, loss: str | None = None) -> ModuleOp:
    PopartAutodiffPass(wrt, loss).apply(context(), module)
    verify(module)
    return module


V = "tensor<3xf32>"
X = np.array([0.5, -1.0, 2.0], np.float32)
G = np.array([1.0, 10.0, 100.0], np.float32)


def test_contributions_are_summed_at_both_levels():
    body = f"""
      %a = popart.sin %x : {V}
      %b = popart.mul %a, %x : ({V}, {V}) -> {V}
      %c = popart.add %b, %x : ({V}, {V}) -> {V}
      func.return %c : {V}"""
    module = differentiated(parsed(body, f"%x: {V}", V), "x")
    expected = G * (np.sin(X) + X * np.cos(X) + 1)
    for lowered in (False, True):
        if lowered:
            PopartToPopopsPass().apply(context(), module)
        found = run_function(module, {"x": X, "Gradient___output_0": G})["Gradient___x"]
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_an_output_that_is_returned_twice_has_both_cotangents():
    body = f"%y = popart.neg %x : {V}\nfunc.return %y, %y, %x : {V}, {V}, {V}"
    module = differentiated(parsed(body, f"%x: {V}", f"({V}, {V}, {V})"), "x")
    gradients = {f"Gradient___output_{i}": G * 2**i for i in range(3)}
    assert run_function(module, {"x": X, **gradients})["Gradient___x"].tolist() == (-G - 2 * G + 4 * G).tolist()


def test_a_result_that_nothing_reads_has_the_gradient_zero():
    module = differentiated(parsed(f"%y, %z = custom.pair %x : ({V}) -> ({V}, {V})\nfunc.return %z : {V}", f"%x: {V}", V), "x")
    assert run_function(module, {"x": X, "Gradient___output_0": G})["Gradient___x"].tolist() == (3 * G).tolist()


def test_nothing_flows_through_integers_and_step_functions():
    body = f"""
      %i = popart.cast %x {{to = i32}} : ({V}) -> tensor<3xi32>
      %f = popart.cast %i {{to = f32}} : (tensor<3xi32>) -> {V}
      %r = popart.round %x : {V}
      %s = popart.add %f, %r : ({V}, {V}) -> {V}
      %y = popart.add %s, %x : ({V}, {V}) -> {V}
      func.return %y : {V}"""
    module = differentiated(parsed(body, f"%x: {V}", V), "x")
    assert run_function(module, {"x": X, "Gradient___output_0": G})["Gradient___x"].tolist() == G.tolist()


def test_gradients_of_half_floats_are_half_floats():
    h = "tensor<3xf16>"
    body = f"""
      %k = data.constant dense<[1.0, 2.0, 3.0]> : {h} loc("k")
      %a = popart.mul %x, %k : ({h}, {h}) -> {h}
      %y = popart.cast %a {{to = f32}} : ({h}) -> {V}
      func.return %y : {V}"""
    module = differentiated(parsed(body, f"%x: {h}", V), "x", "k")
    found = run_function(module, {"x": X.astype(np.float16), "k": np.full(3, 2, np.float16), "Gradient___output_0": G})
    assert found["Gradient___x"].dtype == found["Gradient___k"].dtype == np.float16
    assert found["Gradient___x"].tolist() == [2, 20, 200]
    assert found["Gradient___k"].tolist() == [0.5, -10, 200]


def test_the_gradient_of_a_mean_of_more_than_a_half_float_counts_is_not_zero():
    body = """
      %y = popart.reduce_mean %x {axes = array<i64: 0>} : (tensor<131072xf16>) -> tensor<f16>
      func.return %y : tensor<f16>"""
    module = differentiated(parsed(body, "%x: tensor<131072xf16>", "tensor<f16>"), "x")
    found = run_function(module, {"x": np.zeros(131072, np.float16), "Gradient___output_0": np.ones((), np.float16)})
    assert (found["Gradient___x"] == np.float16(2**-17)).all()


def test_an_op_without_a_gradient_is_named_with_the_path_to_it():
    body = f"""
      %a = custom.silent %x : ({V}) -> {V} loc("odd")
      %b = popart.exp %a : {V} loc("up")
      %c = popart.neg %b : {V} loc("down")
      func.return %c : {V}"""
    module = parsed(body, f"%x: {V}", V)
    with pytest.raises(NoGradient, match=r"'odd': custom.silent has no gradient.*the path to it is 'output_0' <- 'down' <- 'up' <- 'odd'"):
        differentiated(module, "x")


def test_an_op_without_a_gradient_beside_the_path_is_no_matter():
    body = f"""
      %a = custom.silent %x : ({V}) -> {V}
      %b = popart.mul %a, %w : ({V}, {V}) -> {V}
      func.return %b : {V}"""
    module = differentiated(parsed(body, f"%x: {V}, %w: {V}", V), "w")
    assert len(module.body.block.ops) == 1


def test_the_middle_of_a_long_path_is_left_out():
    steps = "\n".join(f'%a{i + 1} = popart.neg %a{i} : {V} loc("n{i + 1}")' for i in range(20))
    module = parsed(f"%a0 = custom.silent %x : ({V}) -> {V}\n{steps}\nfunc.return %a20 : {V}", f"%x: {V}", V)
    with pytest.raises(NoGradient, match=r"'output_0' <- 'n20' <- 'n19' <- 'n18' <- \.\.\. <- 'n3' <- 'n2' <- 'n1' <- net"):
        differentiated(module, "x")


def test_a_gradient_of_the_wrong_type_is_refused():
    with pytest.raises(PopulusError, match=r"custom.wrong: its gradient gives tensor<f32> for an operand that is tensor<3xf32>"):
        differentiated(parsed(f"%y = custom.wrong %x : ({V}) -> {V}\nfunc.return %y : {V}", f"%x: {V}", V), "x")


SECOND = {
    "map": f"%y = popart.sin %x : {V}\n%z = popart.mul %y, %x : ({V}, {V}) -> {V}",
    "divide": f"%y = popart.exp %x : {V}\n%z = popart.div %x, %y : ({V}, {V}) -> {V}",
    "softmax": f"%y = popart.softmax %x {{axis = 0 : i64}} : ({V}) -> {V}\n%z = popart.mul %y, %x : ({V}, {V}) -> {V}",
    "log_softmax": f"%y = popart.log_softmax %x {{axis = 0 : i64}} : ({V}) -> {V}\n%z = popart.mul %y, %x : ({V}, {V}) -> {V}",
    "mean": f"""%y = popart.mul %x, %x : ({V}, {V}) -> {V}
        %m = popart.reduce_mean %y {{axes = array<i64: 0>, keep = true}} : ({V}) -> tensor<1xf64>
        %z = popart.mul %m, %x : (tensor<1xf64>, {V}) -> {V}""",
    "norm": f"%k = data.constant dense<[1.0, 2.0, 0.5]> : {V}\n%z = popart.layer_norm %x, %k {{axis = 0 : i64}} : ({V}, {V}) -> {V}",
    "prod": f"""%p = popart.reduce_prod %x {{axes = array<i64: 0>, keep = true}} : ({V}) -> tensor<1xf64>
        %z = popart.expand %p {{shape = array<i64: 3>}} : (tensor<1xf64>) -> {V}""",
    "product": f"""%r = popart.reshape %x {{shape = array<i64: 1, 3>}} : ({V}) -> tensor<1x3xf64>
        %t = popart.transpose %r {{permutation = array<i64: 1, 0>}} : (tensor<1x3xf64>) -> tensor<3x1xf64>
        %m = popart.matmul %t, %r : (tensor<3x1xf64>, tensor<1x3xf64>) -> tensor<3x3xf64>
        %z = popart.matmul %m, %x : (tensor<3x3xf64>, {V}) -> {V}""",
    "convolution": f"""%r = popart.reshape %x {{shape = array<i64: 1, 1, 3>}} : ({V}) -> tensor<1x1x3xf64>
        %c = popart.conv %r, %r {{strides = array<i64: 1>, pads = array<i64: 1, 1>, dilations = array<i64: 1>}}
             : (tensor<1x1x3xf64>, tensor<1x1x3xf64>) -> tensor<1x1x3xf64>
        %s = popart.reshape %c {{shape = array<i64: 3>}} : (tensor<1x1x3xf64>) -> {V}
        %z = popart.mul %s, %x : ({V}, {V}) -> {V}""",
    "gather": f"""%i = data.constant dense<[2, -1, 0]> : tensor<3xi64>
        %s = popart.gather %x, %i {{axis = 0 : i64}} : ({V}, tensor<3xi64>) -> {V}
        %q = popart.mul %s, %s : ({V}, {V}) -> {V}
        %z = popart.mul %q, %x : ({V}, {V}) -> {V}""",
    "slice": f"""%s = popart.slice %x {{begins = array<i64: 2>, ends = array<i64: -1>, steps = array<i64: -2>}} : ({V}) -> tensor<2xf64>
        %q = popart.mul %s, %s : (tensor<2xf64>, tensor<2xf64>) -> tensor<2xf64>
        %z = popart.concat %q, %q, %x {{axis = 0 : i64}} : (tensor<2xf64>, tensor<2xf64>, {V}) -> tensor<7xf64>""",
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives_agree_with_differences_of_the_first(name):
    body = SECOND[name]
    type = "tensor<7xf64>" if name == "slice" else "tensor<3xf64>"
    text = f"{body}\nfunc.return %z : {type}".replace(V, "tensor<3xf64>")
    module = differentiated(parsed(text, "%x: tensor<3xf64>", type), "x")
    first = module.clone()
    PopartAutodiffPass(("x",), None, ("Gradient___x",)).apply(context(), module)
    verify(module)
    g = np.random.default_rng(2)
    x, dy, v, h = g.uniform(0.5, 2, 3), g.standard_normal(7 if name == "slice" else 3), g.standard_normal(3), 1e-6
    given = {"Gradient___output_0": dy}
    up, down = (run_function(first, {"x": x + s * h * v, **given})["Gradient___x"] for s in (1, -1))
    expected = (up - down) / (2 * h)  # the Hessian is symmetric
    for lowered in (False, True):
        if lowered:
            PopartToPopopsPass().apply(context(), module)
        found = run_function(module, {"x": x, **given, "Gradient___Gradient___x": v})["Gradient___Gradient___x"]
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
