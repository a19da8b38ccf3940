"""Definitions of ONNX's ops give what ONNX's own node tests expect, and a planted error in one is caught by them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from xdsl.dialects.builtin import TensorType

import populus
from helpers.node_models import node_cases
from helpers.proof_values import unlike
from populus.dialects import expr
from populus.dialects.poplar.affine import shuffle_map
from populus.dialects.poplar.points import TooMany
from populus.lowering.driver.pipeline import WATCHING
from populus.onnx_backend import Prepared
from populus.proof.onnx import DEFINITIONS, formulas, indexed, quantized, recurrent, rows, sampled
from populus.proof.onnx.node import Node
from populus.proof.passes import proving
from populus.proof.programs import execute
from populus.proof.report import PROVED, Undecided
from populus.proof.terms import Terms

_1, _2 = expr.Arg(1), expr.Arg(2)
MOST = 24  # elements of an output that are evaluated

NAMES = [
    "abs", "add", "add_bcast", "and2d", "averagepool_2d_ceil", "averagepool_2d_pads_count_include_pad", "averagepool_2d_same_lower",
    "averagepool_2d_strides", "basic_conv_without_padding", "batchnorm_epsilon", "celu", "clip", "concat_2d_axis_negative_1",
    "constant_pad", "conv_with_autopad_same", "conv_with_strides_and_asymmetric_padding", "convtranspose_dilations",
    "convtranspose_pads", "convtranspose_autopad_same", "convtranspose_output_shape",
    "depthtospace_crd_mode_example", "depthtospace_example", "div", "edge_pad", "elu", "expand_dim_changed",
    "flatten_axis2", "gelu_default_1", "gelu_tanh_1", "gemm_all_attributes", "gemm_default_vector_bias", "globalaveragepool",
    "globalmaxpool", "group_normalization_epsilon", "hardsigmoid", "hardswish", "instancenorm_epsilon", "l1normalization_axis_1",
    "l2normalization_axis_0", "layer_normalization_4d_axis2", "leakyrelu", "less_bcast", "logsoftmax_axis_1", "lrn", "lrn_default",
    "matmul_3d", "matmul_4d",
    "maxpool_2d_dilations", "maxpool_2d_pads", "maxpool_2d_same_upper", "mean_example", "mish", "mul_bcast", "neg", "pow",
    "prelu_broadcast", "reduce_l1_keep_dims_random", "reduce_l2_do_not_keepdims_random", "reduce_log_sum_asc_axes",
    "reduce_log_sum_exp_keepdims_random",
    "reduce_max_keepdims_random", "reduce_mean_negative_axes_keepdims_random", "reduce_prod_keepdims_random", "reflect_pad", "relu",
    "reshape_zero_dim", "rms_normalization_4d_axis2", "round", "selu", "shrink_soft", "sigmoid", "slice", "slice_neg_steps",
    "slice_negative_axes", "softmax_axis_0", "softplus", "softsign", "spacetodepth_crd_mode_example", "spacetodepth_example",
    "split_equal_parts_2d", "split_variable_parts_2d_opset18", "sqrt", "squeeze_negative_axes", "sub", "swish", "thresholdedrelu",
    "tile", "transpose_all_permutations_3", "tril_pos", "triu_neg", "unsqueeze_two_axes", "where_example", "wrap_pad", "xor3d",
    "reduce_sum_square_keepdims_random", "argmax_default_axis_example_select_last_index", "argmax_keepdims_random",
    "argmin_negative_axis_keepdims_random", "bitshift_left_uint8", "bitwise_and_i32_2d", "bitwise_not_2d", "cumprod_1d_exclusive",
    "cumsum_1d_reverse_exclusive", "cumsum_2d_axis_1", "dequantizelinear_axis", "dft", "dft_axis", "dft_inverse",
    "dropout_default_mask", "einsum_batch_matmul", "einsum_inner_prod", "einsum_sum", "einsum_transpose",
    "eyelike_populate_off_main_diagonal",
    "gather_elements_0", "gather_elements_negative_indices", "gathernd_example_float32", "gathernd_example_int32_batch_dim1",
    "hardmax_axis_1", "hardmax_one_hot", "isinf_negative", "isinf_positive", "lppool_2d_dilations", "matmulinteger",
    "mod_int64_fmod", "mod_mixed_sign_float32", "mod_mixed_sign_int64", "nllloss_NC", "nllloss_NCd1_weight_ii",
    "onehot_negative_indices", "onehot_with_negative_axis", "pow_types_float32_int32", "pow_types_int32_float32",
    "qlinearconv", "quantizelinear", "quantizelinear_axis", "reduce_max_bool_inputs", "reduce_min_bool_inputs",
    "resize_downsample_scales_cubic", "resize_downsample_scales_linear_antialias", "resize_downsample_sizes_nearest",
    "resize_tf_crop_and_resize", "resize_upsample_scales_linear_align_corners", "resize_upsample_sizes_nearest_not_larger",
    "resize_downsample_scales_linear_half_pixel_symmetric", "reversesequence_batch", "reversesequence_time",
    "scatter_elements_with_axis", "scatter_elements_with_duplicate_indices", "scatter_elements_with_reduction_max",
    "scatternd", "scatternd_add", "sce_NCd1_mean_weight_negative_ii", "top_k_negative_axis", "top_k_smallest", "upsample_nearest",
    "lstm_with_peepholes", "lstm_bidirectional", "gru_seq_length", "gru_reverse", "rnn_seq_length", "simple_rnn_batchwise",
]  # fmt: skip


class Defined:
    """Keeps the results of the program of ONNX ops, by their definitions."""

    def __init__(self):
        self.terms, self.results = Terms(), None

    def begin(self, module) -> None:
        self.typed(module)

    def after(self, p, ctx, module) -> None:
        self.typed(module)

    def typed(self, module) -> None:
        ops = [op for op in module.walk() if op.name.startswith("onnx.")]
        if self.results is None and ops and all(isinstance(v.type, TensorType) for op in ops for v in op.results):
            self.results = execute(self.terms, module)


def found(name: str) -> tuple[Defined, list, dict[str, np.ndarray]]:
    case = node_cases()[f"test_{name}"]
    prepared = Prepared(case.model or onnx.load(f"{case.model_dir}/model.onnx"), "host", 4, "numpy")
    assert case.data_sets is not None, name
    inputs, outputs = case.data_sets[0]
    named, watcher = prepared.named(list(inputs)), Defined()
    token = WATCHING.set(watcher)
    try:
        prepared.program(named)
    finally:
        WATCHING.reset(token)
    assert watcher.results is not None, name
    return watcher, list(outputs), named


def differences(name: str) -> list[str]:
    """Compares elements of outputs, by definition and as ONNX expects them."""
    watcher, outputs, named = found(name)
    assert watcher.results is not None, name
    return unlike(watcher.terms, watcher.results, dict(zip(watcher.results, outputs)), named, MOST)


@pytest.mark.parametrize("name", NAMES)
def test_a_definition_gives_what_onnx_expects(name):
    assert not differences(name)


def formula(name: str, e):
    return lambda patch: patch.setitem(formulas.FORMULAS, name, lambda get, types: e)


def reduction(name: str, entry):
    return lambda patch: patch.setitem(rows.BEFORE, name, entry)


def shifted(attribute: str, by: int):
    """An attribute that is read as another number."""

    def plant(patch) -> None:
        right = Node.get

        def get(self, name):
            value = right(self, name)
            if name != attribute or value is None:
                return value
            return [value[0] + by, *value[1:]] if isinstance(value, list | tuple) else value + by

        patch.setattr(Node, "get", get)

    return plant


right_gate = recurrent._Layer.gate

PLANTED = {
    "sub": formula("Sub", _2 - _1),
    "pow": formula("Pow", _1 * _2),
    "where_example": formula("Where", expr.select(expr.Arg(3), _2, _1)),
    "leakyrelu": formula("LeakyRelu", expr.select(0.2 * _1, _1, expr.call("lt", _1, 0.0))),
    "hardswish": formula("HardSwish", _1 * expr.clamp(_1 / 6.0 + 0.4, 0.0, 1.0)),
    "softplus": formula("Softplus", expr.log(expr.exp(_1) + 2.0)),
    "less_bcast": formula("Less", expr.call("gt", _1, _2)),
    "round": formula("Round", expr.floor(_1)),
    "softsign": formula("Softsign", _1 / (2.0 + expr.absolute(_1))),
    "reduce_l1_keep_dims_random": reduction("ReduceL1", ("add", None, None)),
    "reduce_mean_negative_axes_keepdims_random": reduction("ReduceMean", ("add", None, None)),
    "reduce_prod_keepdims_random": reduction("ReduceProd", ("add", None, None)),
    "reduce_max_keepdims_random": reduction("ReduceMax", ("min", None, None)),
    "lstm_with_peepholes": lambda patch: patch.setitem(recurrent.FUNCTIONS, "LSTM", ("Sigmoid", "Tanh", "Sigmoid")),
    "gru_defaults": lambda patch: patch.setattr(recurrent._Layer, "gate", lambda layer, x, number: right_gate(layer, x, 2 - number)),
    "simple_rnn_with_initial_bias": lambda patch: patch.setattr(
        recurrent._Layer, "biases", lambda layer, begin, count: (layer.row(3, begin, count),) * 2
    ),
    "lstm_reverse": lambda patch: patch.setitem(recurrent.WAYS, "reverse", (False,)),
    "logsoftmax_axis_1": lambda patch: patch.setattr("populus.proof.onnx.rows.softmax", lambda t, x, full, to_row, log: x),
    "averagepool_2d_strides": shifted("strides", 1),
    "conv_with_strides_and_asymmetric_padding": shifted("pads", 1),
    "maxpool_2d_dilations": shifted("dilations", -1),
    "gemm_all_attributes": shifted("alpha", 1),
    "layer_normalization_4d_axis2": shifted("axis", 1),
    "group_normalization_epsilon": shifted("num_groups", 2),
    "argmax_no_keepdims_example_select_last_index": shifted("select_last_index", -1),
    "cumsum_1d_reverse_exclusive": shifted("exclusive", -1),
    "cumsum_2d_axis_1": lambda patch: patch.setitem(DEFINITIONS, "CumSum", lambda n: [n.x(0)]),
    "dequantizelinear_axis": lambda patch: patch.setattr(quantized, "_axis", lambda n: 0),
    "gather_elements_negative_indices": lambda patch: patch.setattr(indexed, "from_front", lambda n, x, full, size: x),
    "gathernd_example_int32_batch_dim1": shifted("batch_dims", -1),
    "mod_mixed_sign_int64": formula("Mod", expr.call("rem", _1, _2)),
    "quantizelinear": lambda patch: patch.setattr(expr, "nearbyint", expr.floor),
    "resize_downsample_scales_cubic": lambda patch: patch.setattr(sampled, "_kernel", lambda mode, t, a: np.maximum(1 - np.abs(t), 0)),
    "resize_downsample_sizes_nearest": lambda patch: patch.setattr(sampled, "_nearest", lambda mode, at, exact: np.ceil(at)),
    "scatternd_add": lambda patch: patch.setitem(indexed.COMBINED, "add", "set"),
    "top_k_smallest": shifted("largest", 1),
    "transpose_all_permutations_3": lambda patch: patch.setattr(
        "populus.proof.onnx.elements.shuffle_map",
        lambda shape, order: shuffle_map(shape, list(np.argsort(order))),
    ),
}
"""Errors in definitions, and the node test that catches each."""


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_error_in_a_definition_is_caught(name, monkeypatch):
    PLANTED[name](monkeypatch)
    try:
        wrong = differences(name)
    except (AssertionError, ValueError, IndexError, ArithmeticError, Undecided, TooMany) as error:
        wrong = [repr(error)]
    assert wrong


@pytest.mark.parametrize("coordinates", ["half_pixel", "half_pixel_symmetric"])
def test_an_element_on_an_edge_that_rounding_decides_is_not_decided(coordinates):
    """A third of three elements begins at 1, or in floats just before it."""
    how = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": coordinates}
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **how)
    ends = [helper.make_tensor_value_info(name, 1, [n]) for name, n in (("x", 3), ("y", 1))]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [numpy_helper.from_array(np.array([1]), "sizes")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    with proving(run=False) as prover:
        populus.compile(model, engine="numpy")
    assert [row.why for row in prover.rows if row.verdict != PROVED] == [
        "onnx.Resize_19 ('y'): a coordinate on the edge of two elements, which rounding decides"
    ]
