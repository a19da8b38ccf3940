"""Results as large as the data say: buffers with a count, of which a user sees the valid part."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

import populus
from populus.dialects.diagnostics import PopulusError

F = np.float32


def model(nodes, x, outputs, types=(TensorProto.FLOAT,)):
    inputs = [make_tensor_value_info(name, type, shape) for (name, shape), type in zip(x.items(), types, strict=True)]
    graph = make_graph(nodes, "g", inputs, [make_tensor_value_info(name, type, None) for name, type in outputs.items()])
    return make_model(graph, opset_imports=[make_opsetid("", 21)])


NONZERO = model([make_node("NonZero", ["x"], ["y"])], {"x": [2, 3]}, {"y": TensorProto.INT64})


@pytest.mark.parametrize("engine", ["numpy", "strict"])
def test_nonzero_gives_as_many_columns_as_there_are(engine):
    program = populus.compile(NONZERO, tiles=4, engine=engine)
    for x in ([[0, 1, 0], [2, 0, np.nan]], [[0, 0, 0], [0, -0.0, 0]], [[1, 1, 1], [1, 1, 1]]):
        array = np.array(x, F)
        outputs = program.run({"x": array})
        assert list(outputs) == ["y"]
        np.testing.assert_array_equal(outputs["y"], np.nonzero(array))


def test_the_largest_size_and_the_count_are_in_the_text():
    text = str(populus.compile(NONZERO, tiles=4).module("popart"))
    assert 'bounded = [{output = "y", count = "y.count", axis = 1 : i64}]' in text
    assert "tensor<2x6xi64>, tensor<i64>" in text


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("x", [[3, 1, 2, 1, 3, 0], [np.nan, 1, np.nan, -np.inf, 1], [5]])
def test_unique_is_numpys(x, order):
    node = make_node("Unique", ["x"], ["y", "first", "inverse", "counts"], sorted=order)
    kinds = {"y": TensorProto.FLOAT, "first": TensorProto.INT64, "inverse": TensorProto.INT64, "counts": TensorProto.INT64}
    array = np.array(x, F)
    found = populus.compile(model([node], {"x": [len(x)]}, kinds), tiles=4).run({"x": array})
    y, first, inverse, counts = np.unique(array, return_index=True, return_inverse=True, return_counts=True)
    if not order:
        by_first = np.argsort(first)
        y, first, counts = y[by_first], first[by_first], counts[by_first]
        inverse = np.argsort(by_first)[inverse]
    for name, expected in zip(kinds, (y, first, inverse, counts)):
        np.testing.assert_array_equal(found[name], expected)


def test_a_condition_that_is_computed_compresses_when_it_runs():
    nodes = [make_node("Greater", ["x", "x2"], ["c"]), make_node("Compress", ["x", "c"], ["y"])]
    program = populus.compile(model(nodes, {"x": [5], "x2": [5]}, {"y": TensorProto.FLOAT}, (1, 1)), tiles=4)
    x, other = np.array([1, 5, 2, 7, 3], F), np.array([3, 3, 3, 3, 3], F)
    np.testing.assert_array_equal(program.run({"x": x, "x2": other})["y"], [5, 7])


@pytest.mark.parametrize("reader", ["Shape", "Neg"])
def test_what_reads_such_a_result_is_refused(reader):
    nodes = [make_node("NonZero", ["x"], ["y"]), make_node(reader, ["y"], ["z"])]
    with pytest.raises(PopulusError, match=f"{reader}-.*depends on the data; tiles can give such a result back, and not compute with it"):
        populus.compile(model(nodes, {"x": [3]}, {"z": TensorProto.INT64}), tiles=4)
