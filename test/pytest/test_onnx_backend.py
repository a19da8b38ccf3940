"""The standard backend interface, beside the suite that goes through it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

from populus import onnx_backend
from populus.dialects.support.diagnostics import PopulusError
from populus.onnx_backend import Backend, UnsupportedError


def model(nodes, inputs, outputs):
    return make_model(make_graph(nodes, "g", inputs, outputs), opset_imports=[make_opsetid("", 21)])


F = TensorProto.FLOAT
ADD = model(
    [make_node("Add", ["x", "y"], ["z"])],
    [make_tensor_value_info("x", F, ["n", 2]), make_tensor_value_info("y", F, None)],
    [make_tensor_value_info("z", F, None)],
)


def test_a_prepared_model_takes_the_shapes_that_arrive_and_keeps_its_programs():
    prepared = onnx_backend.prepare(ADD)
    for n in (3, 5, 3):
        x, y = np.full((n, 2), 2, np.float32), np.arange(2, dtype=np.float32)
        (z,) = prepared.run([x, y])
        np.testing.assert_array_equal(z, x + y)
    assert len(prepared._programs) == 2


def test_a_value_that_decides_a_shape_gets_a_program_of_its_own():
    expand = model(
        [make_node("Expand", ["x", "shape"], ["y"])],
        [make_tensor_value_info("x", F, [3, 1]), make_tensor_value_info("shape", TensorProto.INT64, [2])],
        [make_tensor_value_info("y", F, ["a", "b"])],
    )
    prepared = onnx_backend.prepare(expand)
    x = np.arange(3, dtype=np.float32).reshape(3, 1)
    for n in (4, 2):
        (y,) = prepared.run([x, np.array([3, n])])
        np.testing.assert_array_equal(y, np.broadcast_to(x, (3, n)))


def test_inputs_are_not_modified_and_outputs_are_no_views_of_them():
    relu = model([make_node("Identity", ["x"], ["y"])], [make_tensor_value_info("x", F, [4])], [make_tensor_value_info("y", F, [4])])
    x = np.arange(4, dtype=np.float32) - 2
    (y,) = onnx_backend.run_model(relu, [x])
    y += 1
    np.testing.assert_array_equal(x, [-2, -1, 0, 1])


def test_outputs_come_by_position_and_by_name():
    outputs = onnx_backend.run_model(ADD, {"x": np.zeros((1, 2), np.float32), "y": np.ones(2, np.float32)})
    assert outputs.z is outputs[0]


def test_run_node_runs_one_node():
    x = np.array([[1, -2], [3, -4]], np.float32)
    (y,) = onnx_backend.run_node(make_node("ReduceSum", ["x"], ["y"], keepdims=0), [x])
    assert y == -2
    (y,) = onnx_backend.run_node(make_node("Softmax", ["x"], ["y"]), [x], opset_version=11)
    assert y.sum() == pytest.approx(2)


def test_what_cannot_be_compiled_is_unsupported_and_the_model_stays_usable():
    loop = model(
        [make_node("NonZero", ["x"], ["y"]), make_node("Reshape", ["x", "y"], ["z"])],
        [make_tensor_value_info("x", F, [3])],
        [make_tensor_value_info("z", F, None)],
    )
    with pytest.raises(UnsupportedError) as error:
        onnx_backend.run_model(loop, [np.ones(3, np.float32)])
    assert "\n" not in str(error.value)
    prepared = onnx_backend.prepare(ADD)
    with pytest.raises(PopulusError, match="Incompatible dimensions"):
        prepared.run([np.zeros((1, 2), np.float32), np.zeros(3, np.float32)])
    with pytest.raises(PopulusError, match="takes 2: x, y"):
        prepared.run([np.zeros((1, 2), np.float32)])
    with pytest.raises(PopulusError, match="is float64, expected float32"):
        prepared.run([np.zeros((1, 2)), np.zeros(2, np.float32)])
    assert len(prepared.run([np.zeros((1, 2), np.float32), np.zeros(2, np.float32)])) == 1


def test_there_is_a_cpu_and_no_other_device():
    assert onnx_backend.supports_device("CPU")
    assert not onnx_backend.supports_device("CUDA:1")
    with pytest.raises(UnsupportedError, match="no device 'CUDA'"):
        onnx_backend.prepare(ADD, "CUDA")
    assert onnx_backend.is_compatible(ADD)


def test_a_model_is_compatible_if_each_of_its_nodes_has_a_rule_whatever_its_inputs_decide():
    x, shape = make_tensor_value_info("x", F, [3, 1]), make_tensor_value_info("shape", TensorProto.INT64, [2])
    open_rank, y = make_tensor_value_info("x", F, None), [make_tensor_value_info("y", F, None)]
    expand, relu, unknown = make_node("Expand", ["x", "shape"], ["y"]), make_node("Relu", ["x"], ["y"]), make_node("Negate", ["x"], ["y"])
    assert onnx_backend.is_compatible(model([expand], [x, shape], y))
    assert onnx_backend.is_compatible(model([relu], [open_rank], y))
    assert not onnx_backend.is_compatible(model([unknown], [open_rank], y))
    assert not onnx_backend.is_compatible(model([make_node("MatMul", ["x", "x"], ["y"])], [x], y))


def test_without_the_host_a_model_that_needs_it_is_not_compatible():
    class Tiles(Backend):
        host = False

    strings = [make_tensor_value_info(n, TensorProto.STRING, [2]) for n in ("x", "y")]
    joined = model([make_node("StringConcat", ["x", "x"], ["y"])], strings[:1], strings[1:])
    assert onnx_backend.is_compatible(joined)
    assert not Tiles.is_compatible(joined)


def test_the_engine_is_an_attribute_of_the_class():
    class Strict(Backend):
        engine = "strict"

    (z,) = Strict.run_model(ADD, [np.zeros((1, 2), np.float32), np.ones(2, np.float32)])
    np.testing.assert_array_equal(z, [[1, 1]])
