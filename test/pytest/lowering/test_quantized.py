"""Models of QuantizeLinear and DequantizeLinear: what computes on integers, and its bits beside onnxruntime's."""

from __future__ import annotations

import numpy as np
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper

import populus
from helpers.quantized_models import on_engines, unoptimised
from populus.dialects import popart
from populus.dialects.data import constant_value
from populus.dialects.poplar.compute import FamilyOp
from populus.dialects.poplar.memory import view_of
from populus.dialects.poplar.program import GraphOp
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.run.program import NativeProgram


class Net:
    """A graph of one chain of nodes, whose values are quantized by `scale`."""

    def __init__(self, scale, shape):
        self.scale, self.shape, self.nodes, self.constants = scale, shape, [], []
        self.rng = np.random.default_rng(3)

    def constant(self, value, dtype):
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), f"k{len(self.constants)}"))
        return self.constants[-1].name

    def op(self, kind, *inputs, **attributes):
        self.nodes.append(helper.make_node(kind, list(inputs), [f"t{len(self.nodes)}"], name=f"n{len(self.nodes)}", **attributes))
        return self.nodes[-1].output[0]

    def quantized(self, x, zero=3, scale=None):
        """Quantizes and dequantizes, as quantisers write it."""
        points = self.constant(scale or self.scale, np.float32), self.constant(zero, np.uint8)
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, *points), *points)

    def weights(self, *shape, axis=0):
        """Gives dequantized weights with a scale for each index of an axis, and these scales."""
        scales = self.scale * 2.0 ** -self.rng.integers(1, 4, shape[axis])
        points = self.constant(scales, np.float32), self.constant(np.zeros(shape[axis]), np.int8)
        integers = self.constant(self.rng.integers(-128, 128, shape), np.int8)
        return self.op("DequantizeLinear", integers, *points, axis=axis), scales

    def bias(self, scales, by):
        integers = self.constant(self.rng.integers(-999, 999, len(scales)), np.int32)
        return self.op("DequantizeLinear", integers, self.constant(scales * by, np.float32), axis=0)

    def model(self, y):
        self.nodes.append(helper.make_node("Identity", [y], ["y"], name="y"))
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes, "net", [info("x", TensorProto.FLOAT, self.shape)], [info("y", TensorProto.FLOAT, None)], self.constants
        )
        return onnx.helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def net(scale):
    """Two convolutions, one of them with a window's maximum and one in groups, joined, then a product."""
    g = Net(scale, [1, 8, 6, 6])
    x = g.quantized("x", 128)
    w, scales = g.weights(12, 8, 3, 3)
    left = g.quantized(g.op("Relu", g.op("Conv", x, w, g.bias(scales, g.scale), pads=[1] * 4)), scale=16 * scale)
    left = g.quantized(g.op("MaxPool", left, kernel_shape=[2, 2], strides=[2, 2]), scale=16 * scale)
    w, scales = g.weights(4, 4, 1, 1)
    right = g.quantized(g.op("Conv", x, w, strides=[2, 2], group=2), 100, scale=16 * scale)
    both = g.quantized(g.op("Concat", left, right, axis=1), 90, scale=32 * scale)
    w, scales = g.weights(5, 16 * 9)
    y = g.op("Gemm", g.op("Flatten", both), w, g.bias(scales, 32 * g.scale), transB=1)
    return g.model(g.quantized(y, 7, scale=256 * scale))


def inputs(model):
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    return {"x": np.random.default_rng(1).uniform(-8, 8, shape).astype(np.float32)}


def ops(model, kind, **options):
    module = populus.compile(model, **options).module("popart")
    return [op for op in module.walk() if isinstance(op, kind)]


def test_all_products_and_windows_compute_on_integers():
    model = net(0.07)
    assert len(ops(model, popart.IntegerConvOp)) == 2
    assert len(ops(model, popart.IntegerMatMulOp)) == 1
    assert not ops(model, popart.ConvOp | popart.GemmOp | popart.MatMulOp)
    # Before the product and after it alone are there floats; the pool and the concatenation have none.
    assert all(str(op.operands[0].type).endswith("ui8>") for op in ops(model, popart.MaxPoolOp | popart.ConcatOp))


def test_scales_that_are_powers_of_two_give_onnxruntimes_bits():
    pytest.importorskip("onnxruntime")
    model = net(2.0**-4)
    expected = unoptimised(model, inputs(model))
    assert len(np.unique(expected)) > 2
    for engine, y in on_engines(model, inputs(model)).items():
        np.testing.assert_array_equal(y, expected, err_msg=engine)


def test_other_scales_differ_by_one_step_at_most():
    pytest.importorskip("onnxruntime")
    model = net(0.07)
    expected, found = unoptimised(model, inputs(model)), on_engines(model, inputs(model))
    for engine, y in found.items():
        np.testing.assert_array_equal(y, found["numpy"], err_msg=engine)
        assert np.abs(y - expected).max() <= 256 * 0.07 * 1.001


def test_a_product_of_activations_has_both_zero_points():
    pytest.importorskip("onnxruntime")
    g = Net(2.0**-4, [2, 5, 5])
    y = g.op("MatMul", g.quantized("x", 120), g.op("Transpose", g.quantized("x", 77), perm=[0, 2, 1]))
    model = g.model(g.quantized(y, 10, scale=8.0))
    assert len(ops(model, popart.MatMulOp)) == 0
    for engine, found in on_engines(model, inputs(model)).items():
        np.testing.assert_array_equal(found, unoptimised(model, inputs(model)), err_msg=engine)


def test_sums_that_could_wrap_around_stay_floats():
    g = Net(0.5, [1, 40_000])
    w, _ = g.weights(40_000, 1, axis=1)
    assert ops(g.model(g.op("MatMul", g.quantized("x"), w)), popart.MatMulOp)


def test_weights_that_no_product_takes_are_constants():
    g = Net(0.5, [4, 8])
    w, _ = g.weights(8, 3, axis=1)
    model = g.model(g.op("MatMul", "x", w))
    assert not ops(model, popart.DequantizeOp)
    assert len(ops(model, popart.MatMulOp)) == 1


def dynamic(g, x, n):
    """A product of integers that are quantized when the model runs, as quantisers write it; its scale is computed after it."""
    name = f"q{len(g.nodes)}"
    g.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], [name, f"{name}_scale", f"{name}_zero"], name=name))
    w = g.constant(g.rng.integers(-64, 65, (g.shape[-1], n)), np.int8)  # onnxruntime's sums saturate from 65 on, on some CPUs
    y = g.op("Cast", g.op("MatMulInteger", name, w, f"{name}_zero", g.constant(0, np.int8)), to=TensorProto.FLOAT)
    return g.op("Mul", y, g.op("Mul", f"{name}_scale", g.constant(0.01, np.float32)))


def test_a_formula_of_two_dynamic_products_reads_both():
    pytest.importorskip("onnxruntime")
    g = Net(1.0, [5, 12])
    left, right = dynamic(g, "x", 20), dynamic(g, g.op("Neg", "x"), 20)
    model = g.model(g.op("Relu", g.op("Add", left, right)))
    expected = unoptimised(model, inputs(model))
    for engine, y in on_engines(model, inputs(model)).items():
        np.testing.assert_array_equal(y, expected, err_msg=engine)


def test_a_dynamic_convolution_its_window_and_the_next_have_their_channels_last():
    pytest.importorskip("onnxruntime")
    g = Net(1.0, [1, 3, 9, 9])
    name, x = "q", "x"
    for outputs in (8, 20):
        g.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], [name, f"{name}_scale", f"{name}_zero"], name=name))
        w = g.constant(g.rng.integers(-128, 128, (outputs, 3 if x == "x" else 8, 3, 3)), np.int8)
        y = g.op("ConvInteger", name, w, f"{name}_zero", pads=[1] * 4)
        y = g.op("Mul", g.op("Cast", y, to=TensorProto.FLOAT), g.op("Mul", f"{name}_scale", g.constant(0.01, np.float32)))
        x, name = g.op("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), "r"
    model = g.model(x)
    expected = unoptimised(model, inputs(model))
    for engine, found in on_engines(model, inputs(model)).items():
        np.testing.assert_array_equal(found, expected, err_msg=engine)


def test_a_concatenation_of_equal_parts_has_their_channels_last():
    g = Net(0.5, [1, 8, 6, 6])
    x = g.quantized("x")
    parts = []
    for side in (1, 3):
        w, scales = g.weights(16, 8, side, side)
        parts.append(g.quantized(g.op("Conv", x, w, g.bias(scales, g.scale), pads=[side // 2] * 4), scale=16 * g.scale))
    w, scales = g.weights(8, 32, 1, 1)
    both = g.quantized(g.op("Concat", *parts, axis=1), scale=16 * g.scale)
    model = g.model(g.quantized(g.op("Conv", both, w, g.bias(scales, 16 * g.scale)), scale=256 * g.scale))
    module = populus.compile(model, target="host", tiles=4).module("poplar")
    x = [op.views[0] for op in module.walk() if isinstance(op, FamilyOp) and op.codelet.data == "conv"][-1]
    assert view_of(x).strides[1] == 1, view_of(x)
    pytest.importorskip("onnxruntime")
    expected = unoptimised(model, inputs(model))
    for engine, found in on_engines(model, inputs(model)).items():
        np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=engine)


def test_scales_are_operands_of_one_kernel():
    g = Net(0.1, [1, 8, 6, 6])
    x = "x"
    for scale in (0.1, 0.2, 0.3, 0.4):
        w, _ = g.weights(8, 8, 1, 1)
        x = g.op("Conv", g.quantized(x, int(100 * scale), scale), w)
    module = populus.compile(g.model(g.quantized(x, 1, 0.5)), tiles=4).module("poplar")
    program = NativeProgram(next(op for op in module.walk() if isinstance(op, GraphOp)))
    launches = [run for run, _ in program.body.calls() if isinstance(run, Launch)]
    blocks = [launch for launch in launches if launch.kernel.key == "byte blocks formula"]
    assert len(blocks) == 4
    formulas = {kernel.key for launch in blocks for kernel in launch.kernels if kernel.key.startswith("map")}
    assert len(formulas) == 2  # between products; after the last one, where floats leave


def test_a_value_may_be_joined_with_itself():
    g = Net(1.0, [2, 3])
    y = g.op("Neg", "x")
    model = g.model(g.op("Concat", y, y, axis=1))
    for found in on_engines(model, inputs(model)).values():
        np.testing.assert_array_equal(found, np.tile(-inputs(model)["x"], 2))


def test_products_and_windows_of_open_sizes_are_of_bytes():
    """Rows and positions beyond the valid part have no part in the sums of the others, so these need no wide integers."""
    g = Net(1.0, [None, 3, None, 8])
    g.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="q"))
    w, v = g.rng.integers(0, 256, (4, 3, 3, 3)), g.rng.integers(-128, 128, (8, 5))
    windows = g.op("ConvInteger", "q", g.constant(w, np.uint8), "z", g.constant(120, np.uint8), pads=[1] * 4)
    rows = g.op("MatMulInteger", "q", g.constant(v, np.int8), "z", g.constant(np.arange(5), np.int8))
    sums = [g.op("ReduceSum", g.op("Cast", y, to=TensorProto.FLOAT), g.constant([1], np.int64)) for y in (windows, rows)]
    model = g.model(g.op("Concat", *sums, axis=-1))
    for d, name in ((0, "batch"), (2, "rows")):
        model.graph.input[0].type.tensor_type.shape.dim[d].dim_param = name
    program = populus.compile(model, target="host", tiles=4, engine="numpy", dims={"batch": (1, 3), "rows": (1, 9)})
    module = program.module("popart")
    found = [op for op in module.walk() if isinstance(op, popart.MatMulOp | popart.ConvOp | popart.IntegerMatMulOp | popart.IntegerConvOp)]
    assert {type(op) for op in found} == {popart.IntegerMatMulOp, popart.IntegerConvOp}
    session = onnx.reference.ReferenceEvaluator(model)
    for batch, rows in ((1, 1), (2, 5), (3, 9)):
        x = {"x": g.rng.standard_normal((batch, 3, rows, 8)).astype(np.float32)}
        np.testing.assert_array_equal(program.run(x)["y"], session.run(None, x)[0])


def test_unsigned_weights_are_moved_when_compiling_whatever_their_size():
    """Moved when the program runs, half a megabyte was packed in each run."""
    g = Net(1.0, [2, 1024])
    g.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="q"))
    w = g.rng.integers(0, 256, (1024, 512))
    model = g.model(g.op("MatMulInteger", "q", g.constant(w, np.uint8), "z", g.constant(128, np.uint8)))
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    (product,) = (op for op in ops(model, popart.IntegerMatMulOp) if op.a.type.get_shape() == (2, 1024))
    np.testing.assert_array_equal(constant_value(product.b), w - 128)


def test_windows_of_unsigned_weights_are_summed_once_for_all_channels():
    g = Net(1.0, [1, 3, 6, 6])
    g.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="q"))
    w = g.rng.integers(0, 256, (16, 3, 3, 3))
    model = g.model(g.op("ConvInteger", "q", g.constant(w, np.uint8), "z", g.constant(120, np.uint8)))
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    assert sorted(op.w.type.get_shape()[0] for op in ops(model, popart.IntegerConvOp)) == [1, 16]
    expected = onnx.reference.ReferenceEvaluator(model).run(None, inputs(model))[0]
    for engine, found in on_engines(model, inputs(model)).items():
        np.testing.assert_array_equal(found, expected, err_msg=engine)
