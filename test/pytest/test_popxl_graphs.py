"""PopXL's graphs: called, repeated, differentiated and computed again, with an op of one's own inside."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.irdl import irdl_op_definition

import populus
from populus import popxl
from populus.dialects.expr import Expr
from populus.dialects.popart.base import UnaryOp
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.popart.autodiff import PopartAutodiffPass
from populus.popxl import ops
from populus.runtime.interpreter import run_function

X, W = np.random.default_rng(0).standard_normal((2, 4, 4)).astype(np.float32)


@irdl_op_definition
class CubeOp(UnaryOp):
    """`y = x^3`."""

    name = "custom.cube"

    def forward(self, x: Expr) -> Expr:
        return x * x * x


cube = populus.function_of(CubeOp)


def layer(x: popxl.Tensor, w: popxl.Tensor, scale: float) -> popxl.Tensor:
    return cube(ops.tanh(x @ w)) * scale


def expected(x: np.ndarray, times: int) -> np.ndarray:
    for _ in range(times):
        x = np.tanh(x @ W) ** 3 * np.float32(0.5)
    return x


def built(how: str) -> popxl.Ir:
    ir = popxl.Ir()
    with ir.main_graph:
        x, w = (ops.host_load(popxl.h2d_stream((4, 4), popxl.float32, name=name), name) for name in "xw")
        graph = ir.create_graph(layer, x, popxl.TensorSpec((4, 4), popxl.float32), scale=0.5)
        if how == "repeat":
            (y,) = ops.repeat(graph, 3, x, w)
        elif how == "call":
            y = x
            for _ in range(3):
                (y,) = ops.call(graph, y, w)
        else:
            y = layer(layer(layer(x, w, 0.5), w, 0.5), w, 0.5)
        out = popxl.d2h_stream(y.shape, y.dtype, name="y")
        ops.host_store(out, y)
    return ir


@pytest.mark.parametrize("how", ["call", "repeat"])
@pytest.mark.parametrize("engine", ["numpy", "strict", "native"])
def test_a_graph_is_called_and_repeated(how: str, engine: str):
    ir = built(how)
    with popxl.Session(ir, "ipu_model", tiles=4, engine=engine) as session:
        x, w = session.expected_inputs()
        (y,) = session.run({x: X, w: W}).values()
    np.testing.assert_allclose(y, expected(X, 3), rtol=0, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"stitch": "recompute_minimal"}, {"stitch": "recompute_all_non_inputs"}, {"recompute": 3}])
@pytest.mark.parametrize("how", ["call", "repeat"])
def test_gradients_go_through_graphs_with_an_op_of_ones_own(how: str, options: dict):
    inputs = {"x": X, "w": W, "Gradient___y": np.ones((4, 4), np.float32)}
    found = []
    for module, chosen in ((built(how).module(), options), (built("flat").module(), {})):
        PopartAutodiffPass(wrt=("x", "w"), **chosen).apply(populus.dialects.table.context(), module)
        found.append(run_function(module, inputs))
    for name, value in found[1].items():
        np.testing.assert_allclose(found[0][name], value, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (ops.call, r"Not enough inputs .* has w too"),
        (
            lambda graph, x: ops.call(graph, x, x[:2]),
            r"graph 'layer_subgraph\(0\)' takes tensor<4x4xf32>, tensor<4x4xf32>; it got .*<2x4xf32>",
        ),
        (lambda graph, x: ops.repeat(graph, -1, x, x), r"Repeat count must be >= 0; .* -1 times"),
    ],
)
def test_calls_that_do_not_fit(build, message: str):
    ir = popxl.Ir()
    with ir.main_graph:
        x = ops.host_load(popxl.h2d_stream((4, 4), popxl.float32, name="x"), "x")
        graph = ir.create_graph(layer, x, x, 0.5)
        with pytest.raises(PopulusError, match=message):
            build(graph, x)


def test_a_graph_whose_outputs_are_no_inputs_is_not_repeated():
    ir = popxl.Ir()
    with ir.main_graph:
        x = ops.host_load(popxl.h2d_stream((4, 2), popxl.float32, name="x"), "x")
        graph = ir.create_graph(lambda x: ops.transpose(x, permutation=(1, 0)), x)
        with pytest.raises(PopulusError, match="its outputs do not have the types of its first inputs"):
            ops.repeat(graph, 2, x)
