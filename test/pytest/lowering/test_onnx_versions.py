"""Operators of old opsets and with unusual attributes give what onnxruntime gives; where ONNX is clear and it differs, what ONNX says."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import populus
from populus.dialects.support.diagnostics import PopulusError

R = np.random.default_rng(0)


def floats(*shape, low=-3.0, high=3.0, dtype=np.float32):
    return R.uniform(low, high, shape).astype(dtype)


def model(op_type, opset, inputs, known=(), outputs=1, **attributes):
    """A model of one node, and what its inputs are given; those of `known` are initializers, None is left out."""
    names = ["" if a is None else f"x{i}" for i, a in enumerate(inputs)]
    arrays = {n: a for n, a in zip(names, inputs) if n}
    fixed = [numpy_helper.from_array(arrays.pop(f"x{i}"), f"x{i}") for i in known]
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in arrays.items()]
    node = helper.make_node(op_type, names, [f"y{i}" for i in range(outputs)], name="n", **attributes)
    results = [helper.make_empty_tensor_value_info(o) for o in node.output]
    graph = helper.make_graph([node], "g", infos, results, fixed)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), arrays


def ours(op_type, opset, *inputs, engine="numpy", **settings):
    made, arrays = model(op_type, opset, inputs, **settings)
    return list(populus.compile(made, engine=engine, tiles=4).run(arrays).values())


def agrees(op_type, opset, *inputs, tolerance=2e-5, engine="numpy", **settings):
    """Holds the node's results against onnxruntime's, and gives them."""
    made, arrays = model(op_type, opset, inputs, **settings)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    expected = onnxruntime.InferenceSession(made.SerializeToString(), options).run(None, arrays)
    found = ours(op_type, opset, *inputs, engine=engine, **settings)
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if b.dtype.kind == "f":
            a, b = a.astype(np.float64), b.astype(np.float64)
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, np.abs(b).max(initial=0)))
        else:
            np.testing.assert_array_equal(a, b)
    return found


# -- normalisation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [7, 9])
def test_an_old_batch_normalisation_with_more_outputs_normalises_by_its_batch(opset):
    channels = floats(3), floats(3), floats(3), floats(3, low=0.5)
    y, mean, *_ = agrees("BatchNormalization", opset, floats(2, 3, 4), *channels, outputs=5, momentum=0.7)
    np.testing.assert_allclose(y.mean((0, 2)), channels[1], atol=1e-5)
    assert mean.shape == (3,)


def test_an_old_batch_normalisation_with_one_output_infers():
    agrees("BatchNormalization", 7, floats(2, 3, 4), floats(3), floats(3), floats(3), floats(3, low=0.5))


# -- views -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [1, 8, 11])
def test_squeeze_with_unsorted_axes_drops_those_axes(opset):
    (y,) = agrees("Squeeze", opset, floats(1, 2, 3, 1, 4), axes=[3, 0])
    assert y.shape == (2, 3, 4)


def test_squeeze_of_a_dimension_that_is_not_1_is_refused():
    with pytest.raises(PopulusError, match=r"'n': Squeeze-1: x is 1x2, of which dimensions \[1\] are not all 1"):
        ours("Squeeze", 8, floats(1, 2), axes=[1])


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "shape"), [([-2], [-1], [-1], (4, 1)), ([1, -3], [3, 100], [0, 1], (2, 3)), ([3], [1], [0], (0, 5))]
)
def test_an_old_slice_takes_axes_from_the_end_and_may_be_empty(starts, ends, axes, shape):
    (y,) = agrees("Slice", 1, floats(4, 5), starts=starts, ends=ends, axes=axes)
    assert y.shape == shape


def test_a_wrapping_pad_cuts_before_it_repeats():
    agrees("Pad", 19, floats(3, 4), np.array([-1, 2, 5, -2]), known=[1], mode="wrap")
    agrees("Pad", 19, floats(3, 4), np.array([1, 2, 5, 6]), known=[1], mode="wrap")


def test_ops_of_opset_1_have_types_without_onnx_inference():
    x = floats(2, 3, 4)
    np.testing.assert_array_equal(ours("Reshape", 1, x, shape=[0, -1])[0], x.reshape(2, 12))
    np.testing.assert_array_equal(ours("Concat", 1, x, x)[0], np.concatenate([x, x], 1))
    np.testing.assert_array_equal(ours("Split", 1, x, outputs=2, axis=2)[1], x[:, :, 2:])
    np.testing.assert_array_equal(
        ours("Pad", 1, x[0], paddings=[1, 0, 0, 2], value=1.5)[0], np.pad(x[0], [(1, 0), (0, 2)], constant_values=1.5)
    )
    (pooled,) = ours("LpPool", 1, np.ones((1, 1, 4), np.float32), kernel_shape=[4])
    np.testing.assert_allclose(pooled, [[[2]]], rtol=1e-6)
    agrees("Transpose", 1, np.array(2, np.float32))


@pytest.mark.parametrize("opset", [7, 10, 13])
def test_the_mask_of_a_dropout_that_infers_is_onnxruntimes(opset):
    agrees("Dropout", opset, floats(3, 4), outputs=2)


@pytest.mark.parametrize("axis", [1, -2, None])
def test_a_compress_by_a_known_condition_has_the_size_that_it_keeps(axis):
    settings = {} if axis is None else {"axis": axis}
    agrees("Compress", 11, floats(2, 3, 4), np.array([True, False, True]), known=[1], **settings)


def test_an_unpool_counts_its_indices_in_the_natural_size_as_onnx_does():
    x, indices = np.array([[[[1, 2], [3, 4]]]], np.float32), np.array([[[[5, 7], [13, 15]]]])
    (y,) = ours("MaxUnpool", 11, x, indices, np.array([1, 1, 5, 5]), known=[2], kernel_shape=[2, 2], strides=[2, 2])
    expected = np.zeros((1, 1, 5, 5))
    expected[0, 0, [1, 1, 3, 3], [1, 3, 1, 3]] = [1, 2, 3, 4]
    np.testing.assert_array_equal(y, expected)


# -- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("opset", [10, 11, 19])
@pytest.mark.parametrize(("n", "scale", "size"), [(6, 5 / 6, 5), (10, 0.7, 7)])
def test_the_size_of_a_resize_is_rounded_to_f32_before_down(n, scale, size, opset, mode):
    scales = np.array([1, 1, scale], np.float32)
    inputs = (floats(1, 2, n), scales) if opset == 10 else (floats(1, 2, n), np.zeros(0, np.float32), scales)
    (y,) = agrees("Resize", opset, *inputs, known=range(1, len(inputs)), mode=mode)
    assert y.shape == (1, 2, size)


def test_upsample_computes_its_size_as_resize_does():
    (y,) = agrees("Upsample", 9, floats(1, 1, 5), np.array([1, 1, 1.4], np.float32), known=[1], mode="nearest")
    assert y.shape == (1, 1, 7)
    agrees("Upsample", 7, floats(1, 1, 5, 5), scales=[1.0, 1.0, 1.4, 2.4], mode="nearest")


def test_resize_10_takes_the_element_behind_where_it_shrinks():
    (y,) = agrees(
        "Resize", 10, np.arange(7, dtype=np.float32).reshape(1, 1, 7), np.array([1, 1, 0.6], np.float32), known=[1], mode="nearest"
    )
    assert y.ravel().tolist() == [0, 2, 4, 5]


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize(
    ("how", "n", "scale"),
    [("asymmetric", 5, 2.4), ("half_pixel", 7, 0.6), ("half_pixel_symmetric", 5, 0.6), ("half_pixel_symmetric", 8, 1.7)],
)
def test_coordinates_of_a_resize_are_computed_in_f32(how, n, scale, rounding):
    inputs = floats(1, 1, n), None, np.array([1, 1, scale], np.float32)
    agrees("Resize", 19, *inputs, known=[2], mode="nearest", coordinate_transformation_mode=how, nearest_mode=rounding)


def test_align_corners_counts_the_fraction_of_a_size_as_onnx_does():
    x = np.arange(7, dtype=np.float32).reshape(1, 1, 7)
    (y,) = ours(
        "Resize", 19, x, None, np.array([1, 1, 0.6], np.float32), known=[2], coordinate_transformation_mode="align_corners", mode="linear"
    )
    np.testing.assert_allclose(y.ravel(), np.arange(4) * 6 / (4.2 - 1), rtol=1e-5)


def test_a_resize_to_the_same_size_picks_elements_as_onnx_says():
    x, scales = np.arange(3, dtype=np.float32), np.array([1.3], np.float32)
    settings = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "mode": "nearest"}
    (y,) = ours("Resize", 19, x, None, scales, known=[2], **settings)
    assert y.tolist() == [0, 0, 1]


def test_a_cropping_resize_counts_the_fraction_of_a_size_as_onnx_does():
    x, region, scales = np.arange(7, dtype=np.float32), np.array([0.1, 0.9], np.float32), np.array([0.6], np.float32)
    settings = {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": "linear"}
    (y,) = ours("Resize", 19, x, region, scales, known=[1, 2], **settings)
    np.testing.assert_allclose(y, 0.6 + np.arange(4) * 0.8 * 6 / (4.2 - 1), rtol=1e-5)


# -- windows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("size", [[8, 7], [10, 9]])
def test_what_output_shape_wants_beyond_the_windows_is_at_the_end(size, mode):
    agrees("ConvTranspose", 11, floats(1, 2, 4, 4), floats(2, 3, 3, 3), output_shape=size, strides=[2, 2], auto_pad=mode)


def test_an_output_shape_that_no_window_reaches_is_refused():
    with pytest.raises(PopulusError, match="output_shape is 11; the windows of x reach 10 at most"):
        ours("ConvTranspose", 11, floats(1, 2, 4), floats(2, 3, 3), output_shape=[11], strides=[2])


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("kernel", "stride", "extra", "size"), [(1, 2, 0, 7), (2, 3, 0, 11), (1, 3, 1, 11), (3, 2, 1, 8)])
def test_a_transposed_kernel_smaller_than_its_stride_is_not_padded(kernel, stride, extra, size, mode):
    settings = {"strides": [stride], "output_padding": [extra], "auto_pad": mode}
    (y,) = agrees("ConvTranspose", 11, floats(1, 2, 4), floats(2, 3, kernel), **settings)
    assert y.shape == (1, 3, size)


WINDOWS = [(4, 2, 3, [1, 1]), (2, 1, 2, [0, 0]), (7, 3, 2, [0, 1]), (2, 4, 4, [0, 0]), (2, 3, 2, [0, 0])]


@pytest.mark.parametrize(("n", "kernel", "stride", "pads"), WINDOWS)
@pytest.mark.parametrize(("op_type", "opset"), [("MaxPool", 10), ("MaxPool", 22), ("AveragePool", 10), ("AveragePool", 19), ("LpPool", 18)])
def test_a_pool_rounding_up_has_no_window_that_starts_in_the_padding(op_type, opset, n, kernel, stride, pads):
    agrees(op_type, opset, floats(1, 2, n), kernel_shape=[kernel], strides=[stride], pads=pads, ceil_mode=1)


@pytest.mark.parametrize("engine", ["strict", "native"])
@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
def test_a_kernel_larger_than_its_input_is_one_window_where_sizes_round_up(op_type, engine):
    (y,) = agrees(op_type, 10, floats(1, 2, 2, 2), kernel_shape=[256, 256], strides=[256, 256], ceil_mode=1, engine=engine)
    assert y.shape == (1, 2, 1, 1)


# -- reductions and sums ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [11, 13])
def test_a_log_sum_exp_of_halves_is_of_halves(opset):
    agrees("ReduceLogSumExp", opset, floats(2, 3, dtype=np.float16), axes=[1], tolerance=2e-3)


@pytest.mark.parametrize("engine", ["numpy", "strict", "native"])
@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
def test_the_extreme_index_of_nan_is_an_index(op_type, engine):
    for x in ([1, np.nan, 5], [5, 1, np.nan], [np.nan, np.nan, 0]):
        agrees(op_type, 13, np.array(x, np.float32), axis=0, engine=engine)
    (y,) = ours(op_type, 13, np.array([1, np.nan, np.nan, 3], np.float32), axis=0, select_last_index=1, engine=engine)
    assert y.tolist() == [2]


@pytest.mark.parametrize("op_type", ["Sum", "Mean", "Max", "Min"])
def test_sums_before_opset_8_are_of_equal_shapes(op_type):
    agrees(op_type, 6, floats(2, 3), floats(2, 3))
    agrees(op_type, 8, floats(3), floats(2, 3))
    with pytest.raises(PopulusError, match=f"'n': {op_type}-6: its inputs are 3, 2x3; equal shapes are expected before opset 8"):
        ours(op_type, 6, floats(3), floats(2, 3))


def test_a_sum_of_opset_1_has_the_shape_of_its_inputs():
    a, b = floats(2, 3), floats(2, 3)
    np.testing.assert_allclose(ours("Sum", 1, a, b)[0], a + b, rtol=1e-6)


# -- recurrent layers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("op_type", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_weights_of_another_hidden_size_are_refused(op_type, gates):
    x, w, r = floats(3, 1, 2), floats(1, 4 * gates, 2), floats(1, 4 * gates, 4)
    with pytest.raises(PopulusError, match=f"'n': {op_type}-7: hidden_size is 5, and R is 1x{4 * gates}x4: 4 for each gate"):
        ours(op_type, 7, x, w, r, hidden_size=5)
    with pytest.raises(PopulusError, match=f"'n': {op_type}-7: W is 1x{4 * gates + 1}x2; 1x{4 * gates}x2 is expected"):
        ours(op_type, 7, x, floats(1, 4 * gates + 1, 2), r, hidden_size=4)


@pytest.mark.parametrize(("op_type", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_a_recurrent_layer_of_opset_1_is_that_of_opset_7(op_type, gates):
    operands = floats(3, 2, 2), floats(1, 3 * gates, 2), floats(1, 3 * gates, 3)
    found, expected = (run(op_type, o, *operands, outputs=2, hidden_size=3) for run, o in ((ours, 1), (agrees, 7)))
    np.testing.assert_array_equal(found[0], expected[0])


def test_a_direction_that_there_is_not_is_refused():
    with pytest.raises(PopulusError, match="'n': RNN-1: direction is 'sideways'; forward, reverse or bidirectional is expected"):
        ours("RNN", 1, floats(3, 2, 2), floats(1, 3, 2), floats(1, 3, 3), hidden_size=3, direction="sideways")


def test_clip_bounds_the_cell_before_its_activation_as_onnx_says():
    """onnxruntime clips the gates' inputs only."""
    x, w, r, cell = floats(4, 1, 2), floats(1, 16, 2), floats(1, 16, 4), floats(1, 1, 4)
    (y,) = ours("LSTM", 7, x, w, r, None, None, None, cell, hidden_size=4, clip=0.2)

    def sigmoid(v):
        return 1 / (1 + np.exp(-np.clip(v, -0.2, 0.2)))

    h, c = np.zeros((1, 4)), cell[0].astype(np.float64)
    for t in range(4):
        i, o, f, g = np.split(x[t] @ w[0].T.astype(np.float64) + h @ r[0].T, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(np.clip(g, -0.2, 0.2))
        h = sigmoid(o) * np.tanh(np.clip(c, -0.2, 0.2))
        np.testing.assert_allclose(y[t, 0], h, atol=1e-6)
