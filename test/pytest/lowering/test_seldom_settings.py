"""Nodes with settings that exporters seldom write. Random graphs found each of these wrong or refused (`test/fuzz`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import populus

Array = np.ndarray
F = np.float32


def run(nodes: list[Any], inputs: dict[str, Array], constants: dict[str, Array], opset: int, oracle: bool = True) -> Array:
    """The value `y` of these nodes, which is also what onnxruntime computes."""
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()]
    fixed = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_empty_tensor_value_info("y")], fixed)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    found = populus.compile(model, tiles=4, engine="numpy").run(inputs)["y"]
    if oracle:
        (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    return found


def test_a_known_condition_compresses_what_is_computed_to_a_known_size():
    nodes = [helper.make_node("Compress", ["x", "c"], ["kept"], axis=1), helper.make_node("Neg", ["kept"], ["y"])]
    y = run(nodes, {"x": np.arange(5, dtype=F).reshape(1, 5, 1)}, {"c": np.array([True, False, True])}, 17)
    assert y.tolist() == [[[0], [-2]]]


def test_an_old_slice_has_its_axes_in_any_order():
    nodes = [
        helper.make_node("Slice", ["x"], ["part"], axes=[1, 0], starts=[1, 0], ends=[2**31 - 1, 1]),
        helper.make_node("Neg", ["part"], ["y"]),
    ]
    assert run(nodes, {"x": np.arange(6, dtype=F).reshape(2, 3)}, {}, 8).tolist() == [[-1, -2]]


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(("start", "end", "kept"), [(-9, -9, [1]), (-9, -3, []), (-9, -4, [1]), (9, -9, [3, 2, 1]), (-1, -2, [3])])
def test_a_slice_backwards_begins_with_the_first_element_if_it_starts_before_it(start, end, kept, constant):
    x = {"x": np.array([1, 2, 3], F)}
    bounds = {"s": np.array([start]), "e": np.array([end]), "a": np.array([0]), "t": np.array([-1])}
    node = helper.make_node("Slice", ["x", "s", "e", "a", "t"], ["y"])
    assert run([node], {} if constant else x, bounds | (x if constant else {}), 17).tolist() == kept


@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pool_with_ceil_mode_has_a_last_window_that_reaches_over_the_end(p):
    x = np.arange(1, 6, dtype=F).reshape(1, 1, 5)
    node = helper.make_node("LpPool", ["x"], ["y"], kernel_shape=[2], strides=[2], ceil_mode=1, p=p)
    expected = [(a**p + b**p) ** (1 / p) for a, b in ((1, 2), (3, 4), (5, 0))]
    np.testing.assert_allclose(run([node], {"x": x}, {}, 18, oracle=False).reshape(-1), expected, rtol=1e-6)


def test_a_transposed_convolution_takes_the_size_that_is_stated_for_its_spatial_dimensions():
    x, w = np.arange(4, dtype=F).reshape(1, 1, 2, 2), np.ones((1, 2, 2, 2), F)
    nodes = [
        helper.make_node("ConvTranspose", ["x", "w"], ["z"], strides=[2, 2], output_shape=[3, 4]),
        helper.make_node("Neg", ["z"], ["y"]),
    ]
    assert run(nodes, {"x": x}, {"w": w}, 11).shape == (1, 2, 3, 4)


TRANSPOSED: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "as many taps as the stride": ((2, 3, 4, 5), (3, 2, 2, 2), {"strides": [2, 2]}),
    "more taps, and pads": ((1, 3, 4, 5), (3, 2, 4, 5), {"strides": [2, 3], "pads": [1, 2, 3, 0]}),
    "one side": ((1, 3, 4, 5), (3, 2, 3, 3), {"strides": [2, 1], "pads": [1, 1, 1, 1]}),
    "room at the end": ((1, 2, 3, 4), (2, 3, 2, 3), {"strides": [2, 3], "output_padding": [1, 2]}),
    "room and pads": ((1, 2, 3, 4), (2, 3, 3, 3), {"strides": [2, 2], "pads": [1, 0, 1, 2], "output_padding": [1, 1]}),
    "fewer taps than the stride": ((1, 2, 3, 4), (2, 3, 1, 3), {"strides": [2, 2]}),
    "a line": ((2, 2, 5), (2, 3, 5), {"strides": [3], "pads": [4, 2]}),
    "a volume": ((1, 2, 2, 3, 2), (2, 2, 3, 2, 2), {"strides": [2, 2, 1], "pads": [1, 0, 0, 0, 1, 1]}),
}


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("name", TRANSPOSED)
def test_a_transposed_convolution_with_strides_puts_its_places_side_by_side(name: str, constant: bool):
    (x, w, attributes), draw = TRANSPOSED[name], np.random.default_rng(0)
    given, weights = ({n: draw.integers(-4, 5, shape).astype(F)} for n, shape in (("x", x), ("w", w)))
    bias = {"b": np.arange(w[1], dtype=F)}
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], **attributes)
    run([node], given if constant else given | weights, weights | bias if constant else bias, 11)


@pytest.mark.parametrize("taps", [2, 3, 4, 5])
def test_an_infinity_reaches_those_elements_of_a_transposed_convolution_that_have_it_as_a_term(taps: int):
    x, w = np.array([[[1, np.inf, 2, 3]]], F), np.ones((1, 1, taps), F)
    y = run([helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2])], {"x": x}, {"w": w}, 11)
    assert not np.isnan(y).any()
    assert np.isinf(y).sum() == taps


def test_a_scalar_is_transposed_to_itself():
    nodes = [helper.make_node("Transpose", ["x"], ["z"]), helper.make_node("Neg", ["z"], ["y"])]
    assert run(nodes, {"x": np.array(2, F)}, {}, 8).tolist() == -2


def test_gather_nd_by_one_index_for_each_dimension_gives_a_scalar():
    nodes = [helper.make_node("GatherND", ["x", "i"], ["z"]), helper.make_node("Neg", ["z"], ["y"])]
    assert run(nodes, {"x": np.arange(6, dtype=F).reshape(2, 3)}, {"i": np.array([1, -1])}, 16).tolist() == -5


@pytest.mark.parametrize("op_type", ["AveragePool", "LpPool", "MaxPool"])
def test_a_pool_without_a_window_has_an_empty_result(op_type):
    node = helper.make_node(op_type, ["x"], ["y"], kernel_shape=[3])
    assert run([node], {"x": np.ones((1, 2, 2), F)}, {}, 14).shape == (1, 2, 0)
