"""Gradients where a formula's factors are 0 and infinite, at kinks and at the ends of domains: finite wherever PyTorch's are.

The numbers are what PyTorch's rules (its `derivatives.yaml`) give in f32, but at kinks, where any slope between those of both sides is
right: at a tie of Max and Min ours goes to the first operand, and the leaky ReLUs have slope 1 at 0.
"""

from __future__ import annotations

from math import inf, nan, sqrt

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import populus

POW_A = [0, 0, 0, 0, 0, -2, -2, -2, 2, inf, 0, 0, -1, -0.0, -0.0]
POW_B = [0, -1, 1, 2, 0.5, 2, 3, 0.5, -1, 0, 1.5, -0.5, 0, -1, 0]
POW_DA = [0, -inf, 1, 0, inf, -4, 12, nan, -0.25, 0, 0, -inf, 0, -inf, 0]
POW_DB = [0, -inf, 0, 0, 0, nan, nan, nan, np.log(2) / 2, inf, 0, -inf, nan, inf, 0]
SELU = 1.0507009873554805
CASES = [  # op, attributes, opset, inputs, gradients of the sum of the outputs
    ("Pow", {}, 17, [POW_A, POW_B], [POW_DA, POW_DB]),
    ("Sqrt", {}, 17, [[0, -0.0, 4, inf, -1]], [[inf, -inf, 0.25, 0, nan]]),
    ("Log", {}, 17, [[0, 2, inf]], [[inf, 0.5, 0]]),
    ("Reciprocal", {}, 17, [[0, 2, inf]], [[-inf, -0.25, 0]]),
    ("Div", {}, 17, [[1, 0, 1, 0], [0, 0, inf, 2]], [[inf, inf, 0, 0.5], [-inf, nan, 0, 0]]),
    ("Abs", {}, 17, [[0, -0.0, -3, inf, -inf]], [[0, 0, -1, 1, -1]]),
    ("Sign", {}, 17, [[0, -3, inf]], [[0, 0, 0]]),
    ("Round", {}, 17, [[0.5, -3]], [[0, 0]]),
    ("Max", {}, 17, [[1, 3, 2], [2, 3, 1]], [[0, 1, 1], [1, 0, 0]]),
    ("Min", {}, 17, [[1, 3, 2], [2, 3, 1]], [[1, 1, 0], [0, 0, 1]]),
    ("Acos", {}, 17, [[1, -1, 0, 2]], [[-inf, -inf, -1, nan]]),
    ("Asin", {}, 17, [[1, -1, 0, 2]], [[inf, inf, 1, nan]]),
    ("Acosh", {}, 17, [[1, sqrt(2), inf, 0.5]], [[inf, 1, 0, nan]]),
    ("Atanh", {}, 17, [[1, -1, 0]], [[inf, inf, 1]]),
    ("Atan", {}, 17, [[0, 1e30, -inf]], [[1, 0, 0]]),
    ("Tanh", {}, 17, [[0, 1e30, -inf]], [[1, 0, 0]]),
    ("Sigmoid", {}, 17, [[0, 1e30, -1e30, -inf]], [[0.25, 0, 0, 0]]),
    ("Softplus", {}, 17, [[0, 1e30, -1e30, inf, -inf]], [[0.5, 1, 0, 1, 0]]),
    ("Softsign", {}, 17, [[0, -1, 1e30]], [[1, 0.25, 0]]),
    ("Mish", {}, 18, [[0, 1e4, -1e4]], [[0.6, 1, 0]]),
    ("Erf", {}, 17, [[0, 1e30, -inf]], [[2 / sqrt(np.pi), 0, 0]]),
    ("Gelu", {}, 20, [[0, 1e30, -1e30]], [[0.5, 1, 0]]),
    ("Gelu", {"approximate": "tanh"}, 20, [[0, 300, -300, 1e30, -1e30, inf, -inf]], [[0.5, 1, 0, 1, 0, 1, 0]]),
    ("Relu", {}, 17, [[0, -0.0, inf, -inf]], [[0, 0, 1, 0]]),
    ("LeakyRelu", {"alpha": 0.5}, 17, [[0, -0.0, inf, -inf]], [[1, 1, 1, 0.5]]),
    ("PRelu", {}, 17, [[0, 1, -1, 2], [0.5, inf, 0.5, nan]], [[1, 1, 0.5, 1], [0, 0, -1, 0]]),
    ("Elu", {}, 17, [[0, 1e30, -1e30, inf, -inf]], [[1, 1, 0, 1, 0]]),
    ("Celu", {}, 17, [[0, 1e30, -1e30, inf, -inf]], [[1, 1, 0, 1, 0]]),
    ("Selu", {}, 17, [[1e30, -1e30, inf, -inf]], [[SELU, 0, SELU, 0]]),
    ("ReduceL1", {"axes": [1]}, 13, [[[0, 0], [3, -4]]], [[[0, 0], [1, -1]]]),
    ("ReduceL2", {"axes": [1]}, 13, [[[0, 0], [3, -4]]], [[[0, 0], [0.6, -0.8]]]),
    ("ReduceProd", {"axes": [1]}, 13, [[[0, 2, 3], [0, 0, 3], [1, 2, 3]]], [[[6, 0, 0], [0, 0, 0], [6, 3, 2]]]),
    ("ReduceMax", {"axes": [1]}, 13, [[[1, 1, 0], [-inf, -inf, -inf]]], [[[0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]]]),
    ("ReduceLogSum", {"axes": [1]}, 13, [[[0, 0], [1, 3]]], [[[inf, inf], [0.25, 0.25]]]),
    ("ReduceLogSumExp", {"axes": [1]}, 13, [[[-inf, 0], [1e4, -1e4]]], [[[0, 1], [1, 0]]]),
    ("LpNormalization", {"axis": 1, "p": 2}, 17, [[[3, 4]]], [[[4 / 125, -3 / 125]]]),
    ("GlobalLpPool", {"p": 2}, 17, [[[[0, 0]], [[3, -4]]]], [[[[0, 0]], [[0.6, -0.8]]]]),
    ("LpPool", {"kernel_shape": [2], "strides": [2], "p": 3}, 18, [[[[0, 0, 0, -4]]]], [[[[0, 0, 0, -1]]]]),
    ("Det", {}, 17, [[[1, 2, 3], [2, 4, 6], [1, 0, 1]]], [[[4, 4, -4], [-2, -2, 2], [0, 0, 0]]]),
]


def gradients(op, attributes, opset, inputs, element=TensorProto.FLOAT, parts=(), weigh=None, **options):
    """Of a node's inputs, for the sum of its output's elements, weighed with `weigh`; `parts` are constant inputs behind them."""
    given = {f"x{i}": np.array(x, helper.tensor_dtype_to_np_dtype(element)) for i, x in enumerate(inputs)}
    known = {f"k{i}": part for i, part in enumerate(parts)}
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(op, [*given, *known], ["y"], **attributes)],
        "g",
        [info(n, element, a.shape) for n, a in given.items()],
        [info("y", element, None)],
        [numpy_helper.from_array(a, n) for n, a in known.items()],
    )
    program = populus.vjp(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), list(given), **options)
    y = program.run(given, {})[0]["y"]
    return list(program.run(given, {"y": np.ones_like(y) if weigh is None else np.array(weigh, y.dtype)})[1].values())


@pytest.mark.parametrize(("op", "attributes", "opset", "inputs", "expected"), CASES, ids=[c[0] for c in CASES])
def test_the_gradient_at_special_points_is_that_of_torch(op, attributes, opset, inputs, expected):
    for level in ("popart", "popops"):
        for found, right in zip(gradients(op, attributes, opset, inputs, level=level), expected, strict=True):
            np.testing.assert_allclose(found, np.array(right, np.float32), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("engine", ["numpy", "strict", "native"])
def test_the_gradient_of_a_power_is_the_same_on_every_engine(engine):
    found = gradients("Pow", {}, 17, [POW_A, POW_B], engine=engine, tiles=2)
    np.testing.assert_allclose(found, np.array([POW_DA, POW_DB], np.float32), rtol=1e-6)


@pytest.mark.parametrize(("exponent", "expected"), [(0, [0, 0, 0]), (1, [1, 1, 1]), (2, [0, -4, 6]), (-1, [-inf, -0.25, -1 / 9])])
def test_the_gradient_of_a_power_that_is_constant(exponent, expected):
    (found,) = gradients("Pow", {}, 17, [[0, -2, 3]], parts=[np.array(exponent, np.float32)], engine="native")
    np.testing.assert_allclose(found, np.array(expected, np.float32), rtol=1e-6)


@pytest.mark.parametrize("base", [1e-100, 1e-300])
def test_the_gradient_by_an_exponent_knows_small_bases(base):
    _, found = gradients("Pow", {}, 17, [[base], [0.5]], element=TensorProto.DOUBLE)
    np.testing.assert_allclose(found, base**0.5 * np.log(base), rtol=1e-12)


def test_the_gradient_of_gelu_in_half_precision_is_finite_wherever_it_is():
    for attributes in ({}, {"approximate": "tanh"}):
        (found,) = gradients("Gelu", attributes, 20, [[300, -300, 6e4, -6e4, 0]], element=TensorProto.FLOAT16)
        np.testing.assert_array_equal(found, np.array([1, 0, 1, 0, 0.5], np.float16))


@pytest.mark.parametrize(("x", "expected"), [([1, 0, 3, 4], [1, 59, 0, 0]), ([0, 0, 3], [1, 0, 0]), ([-1, 2, 0], [5, -2, -6])])
def test_the_gradient_of_a_cumulative_product_knows_zeros(x, expected):
    weigh = np.arange(1, len(x) + 1)
    (found,) = gradients("CumProd", {}, 26, [x], parts=[np.array(0, np.int64)], weigh=weigh)
    assert found.tolist() == expected
