"""Written by `python -m populus.tools.onnx_stubs` from onnx 1.23.2: the newest version of each op. Do not edit."""

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, FloatAttr, IntegerAttr, StringAttr
from xdsl.ir import Attribute, OpResult, Region, SSAValue
from xdsl.irdl import VarOperand, VarOpResult

from populus.dialects.onnx.schema import OnnxOp

def __getattr__(name: str) -> type[OnnxOp]: ...  # pyright: ignore[reportIncompleteStub]

class Abs_13(OnnxOp):
    X: SSAValue
    Y: OpResult

class Acos_22(OnnxOp):
    input_: SSAValue
    output_: OpResult

class Acosh_22(OnnxOp):
    input_: SSAValue
    output_: OpResult

class Add_14(OnnxOp):
    A: SSAValue
    B: SSAValue
    C: OpResult

class AffineGrid_20(OnnxOp):
    theta: SSAValue
    size: SSAValue
    grid: OpResult
    align_corners: IntegerAttr

class And_7(OnnxOp):
    A: SSAValue
    B: SSAValue
    C: OpResult

class ArgMax_13(OnnxOp):
    data: SSAValue
    reduced: OpResult
    axis: IntegerAttr
    keepdims: IntegerAttr
    select_last_index: IntegerAttr

class ArgMin_13(OnnxOp):
    data: SSAValue
    reduced: OpResult
    axis: IntegerAttr
    keepdims: IntegerAttr
    select_last_index: IntegerAttr

class Asin_22(OnnxOp):
    input_: SSAValue
    output_: OpResult

class Asinh_22(OnnxOp):
    input_: SSAValue
    output_: OpResult

class Atan_22(OnnxOp):
    input_: SSAValue
    output_: OpResult

class Atanh_22(OnnxOp):
    input_: SSAValue
    output_: OpResult

class Attention_25(OnnxOp):
    Q: SSAValue
    K: SSAValue
    V: SSAValue
    attn_mask: SSAValue | None
    past_key: SSAValue | None
    past_value: SSAValue | None
    nonpad_kv_seqlen: SSAValue | None
    Y: OpResult
    present_key: OpResult | None
    present_value: OpResult | None
    qk_matmul_output: OpResult | None
    is_causal: IntegerAttr
    kv_num_heads: IntegerAttr | None
    left_window_size: IntegerAttr
    q_num_heads: IntegerAttr | None
    qk_matmul_output_mode: IntegerAttr
    right_window_size: IntegerAttr
    scale: FloatAttr | None
    softcap: FloatAttr
    softmax_precision: IntegerAttr | None

class AveragePool_22(OnnxOp):
    X: SSAValue
    Y: OpResult
    auto_pad: StringAttr
    ceil_mode: IntegerAttr
    count_include_pad: IntegerAttr
    dilations: DenseArrayBase | None
    kernel_shape: DenseArrayBase
    pads: DenseArrayBase | None
    strides: DenseArrayBase | None

class BatchNormalization_15(OnnxOp):
    X: SSAValue
    scale: SSAValue
    B: SSAValue
    input_mean: SSAValue
    input_var: SSAValue
    Y: OpResult
    running_mean: OpResult | None
    running_var: OpResult | None
    epsilon: FloatAttr
    momentum: FloatAttr
    training_mode: IntegerAttr

class Bernoulli_22(OnnxOp):
    input_: SSAValue
    output_: OpResult
    dtype: IntegerAttr | None
    seed: FloatAttr | None

class BitCast_26(OnnxOp):
    input_: SSAValue
    output_: OpResult
    to: IntegerAttr

class BitShift_28(OnnxOp):
    X: SSAValue
    Y: SSAValue
    Z: OpResult
    direction: StringAttr

class BitwiseAnd_18(OnnxOp):
    A: SSAValue
    B: SSAValue
    C: OpResult

class BitwiseNot_18(OnnxOp):
    X: SSAValue
    Y: OpResult

class BitwiseOr_18(OnnxOp):
    A: SSAValue
    B: SSAValue
    C: OpResult

class BitwiseXor_18(OnnxOp):
    A: SSAValue
    B: SSAValue
    C: OpResult

class BlackmanWindow_17(OnnxOp):
    size: SSAValue
    output_: OpResult
    output_datatype: IntegerAttr
    periodic: IntegerAttr

class Cast_28(OnnxOp):
    input_: SSAValue
    output_: OpResult
    round_mode: StringAttr
    saturate: IntegerAttr
    to: IntegerAttr

class CastLike_25(OnnxOp):
    input_: SSAValue
    target_type: SSAValue
    output_: OpResult
    round_mode: StringAttr
    saturate: IntegerAttr

class CausalConvWithState_27(OnnxOp):
    input_: SSAValue
    weight: SSAValue
    bias: SSAValue | None
    past_state: SSAValue | None
    output_: OpResult
    present_state: OpResult
    activation: StringAttr

class Ceil_13(OnnxOp):
    X: SSAValue
    Y: OpResult

class Celu_28(OnnxOp):
    X: SSAValue
    Y: OpResult
    alpha: FloatAttr

class CenterCropPad_18(OnnxOp):
    input_data: SSAValue
    shape: SSAValue
    output_data: OpResult
    axes: DenseArrayBase | None

class Clip_13(OnnxOp):
    input_: SSAValue
    min: SSAValue | None
    max: SSAValue | None
    output_: OpResult

class Col2Im_18(OnnxOp):
    input_: SSAValue
    image_shape: SSAValue
    block_shape: SSAValue
    output_: OpResult
    dilations: DenseArrayBase | None
    pads: DenseArrayBase | None
    strides: DenseArrayBase | None

class Compress_28(OnnxOp):
    input_: SSAValue
    condition: SSAValue
    output_: OpResult
    axis: IntegerAttr | None

class Concat_13(OnnxOp):
    inputs_: VarOperand
    concat_result: OpResult
    axis: IntegerAttr

class ConcatFromSequence_11(OnnxOp):
    input_sequence: SSAValue
    concat_result: OpResult
    axis: IntegerAttr
    new_axis: IntegerAttr

class Constant_25(OnnxOp):
    output_: OpResult
    sparse_value: Attribute | None
    value: Attribute | None
    value_float: FloatAttr | None
    value_floats: DenseArrayBase | None
    value_int: IntegerAttr | None
    value_ints: DenseArrayBase | None
    value_string: StringAttr | None
    value_strings: ArrayAttr | None

class ConstantOfShape_25(OnnxOp):
    input_: SSAValue
    output_: OpResult
    value: Attribute | None

class Conv_22(OnnxOp):
    X: SSAValue
    W: SSAValue
    B: SSAValue | None
    Y: OpResult
    auto_pad: StringAttr
    dilations: DenseArrayBase | None
    group: IntegerAttr
    kernel_shape: DenseArrayBase | None
    pads: DenseArrayBase | None
    strides: DenseArrayBase | None

class ConvInteger_10(OnnxOp):
    x: SSAValue
    w: SSAValue
    x_zero_point: SSAValue | None
    w_zero_point: SSAValue | None
    y: OpResult
    auto_pad: StringAttr
    dilations: DenseArrayBase | None
    group: IntegerAttr
    kernel_shape: DenseArrayBase | None
    pads: DenseArrayBase | None
    strides: DenseArrayBase | None

class ConvTranspose_22(OnnxOp):
    X: SSAValue
    W: SSAValue
    B: SSAValue | None
    Y: OpResult
    auto_pad: StringAttr
    dilations: DenseArrayBase | None
    group: IntegerAttr
    kernel_shape: DenseArrayBase | None
    output_padding: DenseArrayBase | None
    output_shape: DenseArrayBase | None
    pads: DenseArrayBase | None
    strides: DenseArrayBase | None

class Cos_22(OnnxOp):
    input_: SSAValue
    output_: OpResult

class Cosh_22(OnnxOp):
    input_: SSAValue
    output_: OpResult

class CumProd_26(OnnxOp):
    x: SSAValue
    axis: SSAValue
    y: OpResult
    exclusive: IntegerAttr
    reverse: IntegerAttr

class CumSum_14(OnnxOp):
    x: SSAValue
    axis: SSAValue
    y: OpResult
    exclusive: IntegerAttr
    reverse: IntegerAttr

class DFT_20(OnnxOp):
    input_: SSAValue
    dft_length: SSAValue | None
    axis: SSAValue | None
    output_: OpResult
    inverse: IntegerAttr
    onesided: IntegerAttr

class DeformConv_22(OnnxOp):
    X: SSAValue
    W: SSAValue
    offset: SSAValue
    B: SSAValue | None
    mask: SSAValue | None
    Y: OpResult
    dilations: DenseArrayBase | None
    group: IntegerAttr
    kernel_shape: DenseArrayBase | None
    offset_group: IntegerAttr
    pads: DenseArrayBase | None
    strides: DenseArrayBase | None

class DepthToSpace_28(OnnxOp):
    input_: SSAValue
    output_: OpResult
    blocksize: IntegerAttr
    mode: StringAttr

class DequantizeLinear_28(OnnxOp):
    x: SSAValue
    x_scale: SSAValue
    x_zero_point: SSAValue | None
    y: OpResult
    axis: IntegerAttr
    block_size: IntegerAttr
    output_dtype: IntegerAttr

class Det_22(OnnxOp):
    X: SSAValue
    Y: OpResult

class Div_14(OnnxOp):
    A: SSAValue
    B: SSAValue
    C: OpResult

class Dropout_22(OnnxOp):
    data: SSAValue
    ratio: SSAValue | None
    training_mode: SSAValue | None
    output_: OpResult
    mask: OpResult | None
    seed: IntegerAttr | None

class DynamicQuantizeLinear_11(OnnxOp):
    x: SSAValue
    y: OpResult
    y_scale: OpResult
    y_zero_point: OpResult

class Einsum_28(OnnxOp):
    Inputs: VarOperand
    Output: OpResult
    equation: StringAttr

class Elu_22(OnnxOp):
    X: SSAValue
    Y: OpResult
    alpha: FloatAttr

class Equal_19(OnnxOp):
    A: SSAValue
    B: SSAValue
    C: OpResult

class Erf_13(OnnxOp):
    input_: SSAValue
    output_: OpResult

class Exp_13(OnnxOp):
    input_: SSAValue
    output_: OpResult

class Expand_13(OnnxOp):
    input_: SSAValue
    shape: SSAValue
    output_: OpResult

class EyeLike_22(OnnxOp):
    input_: SSAValue
    output_: OpResult
    dtype: IntegerAttr | None
    k: IntegerAttr

class Flatten_25(OnnxOp):
    input_: SSAValue
    output_: OpResult
    axis: IntegerAttr

class Floor_13(OnnxOp):
    X: SSAValue
    Y: OpResult

class GRU_22(OnnxOp):
    X: SSAValue
    W: SSAValue
    R: SSAValue
    B: SSAValue | None
    sequence_lens: SSAValue | None
    initial_h: SSAValue | None
    Y: OpResult | None
    Y_h: OpResult | None
    activation_alpha: DenseArrayBase | None
    activation_beta: DenseArrayBase | None
    activations: ArrayAttr | None
    clip: FloatAttr | None
    direction: StringAttr
    hidden_size: IntegerAttr | None
    layout: IntegerAttr
    linear_before_reset: IntegerAttr

class Gather_13(OnnxOp):
    data: SSAValue
    indices: SSAValue
    output_: OpResult
    axis: IntegerAttr

class GatherElements_13(OnnxOp):
    data: SSAValue
    indices: SSAValue
    output_: OpResult
    axis: IntegerAttr

class GatherND_13(OnnxOp):
    data: SSAValue
    indices: SSAValue
    output_: OpResult
    batch_dims: IntegerAttr

class Gelu_20(OnnxOp):
    X: SSAValue
    Y: OpResult
    approximate: StringAttr

class Gemm_13(OnnxOp):
    A: SSAValue
    B: SSAValue
    C: SSAValue | None
    Y: OpResult
    alpha: FloatAttr
    beta: FloatAttr
    transA: IntegerAttr
    transB: IntegerAttr

class GlobalAveragePool_22(OnnxOp):
    X: SSAValue
    Y: OpResult

class GlobalLpPool_22(OnnxOp):
    X: SSAValue
    Y: OpResult
    p: IntegerAttr

class GlobalMaxPool_22(OnnxOp):
    X: SSAValue
    Y: OpResult

class Greater_13(OnnxOp):
    A: SSAValue
    B: SSAValue
    C: OpResult

class GreaterOrEqual_16(OnnxOp):
    A: SSAValue
    B: SSAValue
    C: OpResult

class GridSample_22(OnnxOp):
    X: SSAValue
    grid: SSAValue
    Y: OpResult
    align_corners: IntegerAttr
    mode: StringAttr
    padding_mode: StringAttr

class GroupNormalization_21(OnnxOp):
    X: SSAValue
    scale: SSAValue
    bias: SSAValue
    Y: OpResult
    epsilon: FloatAttr
    num_groups: IntegerAttr
    stash_type: IntegerAttr

class HammingWindow_17(OnnxOp):
    size: SSAValue
    output_: OpResult
    output_datatype: IntegerAttr
    periodic: IntegerAttr

class HannWindow_17(OnnxOp):
    size: SSAValue
    output_: OpResult
    output_datatype: IntegerAttr
    periodic: IntegerAttr

class HardSigmoid_22(OnnxOp):
    X: SSAValue
    Y: OpResult
    alpha: FloatAttr
    beta: FloatAttr

class HardSwish_22(OnnxOp):
    X: SSAValue
    Y: OpResult

class Hardmax_13(OnnxOp):
    input_: SSAValue
    output_: OpResult
    axis: IntegerAttr

class Identity_25(OnnxOp):
    input_: SSAValue
    output_: OpResult

class If_25(OnnxOp):
    cond: SSAValue
    outputs_: VarOpResult
    else_branch: Region
    then_branch: Region

class ImageDecoder_20(OnnxOp):
    encoded_stream: SSAValue
    image: OpResult
    pixel_format: StringAttr

class InstanceNormalization_22(OnnxOp):
    input_: SSAValue
    scale: SSAValue
    B: SSAValue
    output_: OpResult
    epsilon: FloatAttr

class IsInf_20(OnnxOp):
    X: SSAValue
    Y: OpResult
    detect_negative: IntegerAttr
    detect_positive: IntegerAttr

class IsNaN_20(OnnxOp):
    X: SSAValue
    Y: OpResult

class LRN_13(OnnxOp):
    X: SSAValue
    Y: OpResult
    alpha: FloatAttr
    beta: FloatAttr
    bias: FloatAttr
    size: IntegerAttr

class LSTM_22(OnnxOp):
    X: SSAValue
    W: SSAValue
    R: SSAValue
    B: SSAValue | None
    sequence_lens: SSAValue | None
    initial_h: SSAValue | None
    initial_c: SSAValue | None
    P: SSAValue | None
    Y: OpResult | None
    Y_h: OpResult | None
    Y_c: OpResult | None
    activation_alpha: DenseArrayBase | None
    activation_beta: DenseArrayBase | None
    activations: ArrayAttr | None
    clip: FloatAttr | None
    direction: StringAttr
    hidden_size: IntegerAttr | None
    input_forget: IntegerAttr
    layout: IntegerAttr

class LayerNormalization_17(OnnxOp):
    X: SSAValue
    Scale: SSAValue
    B: SSAValue | None
    Y: OpResult
    Mean: OpResult | None
    InvStdDev: OpResult | None
    axis: IntegerAttr
    epsilon: FloatAttr
    stash_type: IntegerAttr

class LeakyRelu_16(OnnxOp):
    X: SSAValue
    Y: OpResult
    alpha: FloatAttr

class Less_13(OnnxOp):
    A: SSAValue
    B: SSAValue
    C: OpResult

class LessOrEqual_16(OnnxOp):
    A: SSAValue
    B: SSAValue
    C: OpResult

class LinearAttention_27(OnnxOp):
    query: SSAValue
    key: SSAValue
    value: SSAValue
    past_state: SSAValue | None
    decay: SSAValue | None
    beta: SSAValue | None
    output_: OpResult
    present_state: OpResult
    chunk_size: IntegerAttr
    kv_num_heads: IntegerAttr
    q_num_heads: IntegerAttr
    scale: FloatAttr
    update_rule: StringAttr

class Log_13(OnnxOp):
    input_: SSAValue
    output_: OpResult

class LogSoftmax_13(OnnxOp):
    input_: SSAValue
    output_: OpResult
    axis: IntegerAttr

class Loop_25(OnnxOp):
    M: SSAValue | None
    cond: SSAValue | None
    v_initial: VarOperand
    v_final_and_scan_outputs: VarOpResult
    body: Region

class LpNormalization_22(OnnxOp):
    input_: SSAValue
    output_: OpResult
    axis: IntegerAttr
    p: IntegerAttr

class LpPool_22(OnnxOp):
    X: SSAValue
    Y: OpResult
    auto_pad: StringAttr
    ceil_mode: IntegerAttr
    dilations: DenseArrayBase | None
    kernel_shape: DenseArrayBase
    p: IntegerAttr
    pads: DenseArrayBase | None
    strides: DenseArrayBase | None

class MatMul_13(OnnxOp):
    A: SSAValue
    B: SSAValue
    Y: OpResult

class MatMulInteger_10(OnnxOp):
    A: SSAValue
    B: SSAValue
    a_zero_point: SSAValue | None
    b_zero_point: SSAValue | None
    Y: OpResult

class Max_13(OnnxOp):
    data_0: VarOperand
    max: OpResult

class MaxPool_22(OnnxOp):
    X: SSAValue
    Y: OpResult
    Indices: OpResult | None
    auto_pad: StringAttr
    ceil_mode: IntegerAttr
    dilations: DenseArrayBase | None
    kernel_shape: DenseArrayBase
    pads: DenseArrayBase | None
    storage_order: IntegerAttr
    strides: DenseArrayBase | None

class MaxRoiPool_22(OnnxOp):
    X: SSAValue
    rois: SSAValue
    Y: OpResult
    pooled_shape: DenseArrayBase
    spatial_scale: FloatAttr

class MaxUnpool_22(OnnxOp):
    X: SSAValue
    I: SSAValue
    output_shape: SSAValue | None
    output_: OpResult
    kernel_shape: DenseArrayBase
    pads: DenseArrayBase | None
    strides: DenseArrayBase | None

class Mean_13(OnnxOp):
    data_0: VarOperand
    mean: OpResult

class MeanVarianceNormalization_13(OnnxOp):
    X: SSAValue
    Y: OpResult
    axes: DenseArrayBase

class MelWeightMatrix_17(OnnxOp):
    num_mel_bins: SSAValue
    dft_length: SSAValue
    sample_rate: SSAValue
    lower_edge_hertz: SSAValue
    upper_edge_hertz: SSAValue
    output_: OpResult
    output_datatype: IntegerAttr

class Min_13(OnnxOp):
    data_0: VarOperand
    min: OpResult

class Mish_22(OnnxOp):
    X: SSAValue
    Y: OpResult

class Mod_28(OnnxOp):
    A: SSAValue
    B: SSAValue
    C: OpResult
    fmod: IntegerAttr

class Mul_14(OnnxOp):
    A: SSAValue
    B: SSAValue
    C: OpResult

class Multinomial_22(OnnxOp):
    input_: SSAValue
    output_: OpResult
    dtype: IntegerAttr
    sample_size: IntegerAttr
    seed: FloatAttr | None

class Neg_13(OnnxOp):
    X: SSAValue
    Y: OpResult

class NegativeLogLikelihoodLoss_22(OnnxOp):
    input_: SSAValue
    target: SSAValue
    weight: SSAValue | None
    loss: OpResult
    ignore_index: IntegerAttr | None
    reduction: StringAttr

class NonMaxSuppression_11(OnnxOp):
    boxes: SSAValue
    scores: SSAValue
    max_output_boxes_per_class: SSAValue | None
    iou_threshold: SSAValue | None
    score_threshold: SSAValue | None
    selected_indices: OpResult
    center_point_box: IntegerAttr

class NonZero_13(OnnxOp):
    X: SSAValue
    Y: OpResult

class Not_1(OnnxOp):
    X: SSAValue
    Y: OpResult

class OneHot_28(OnnxOp):
    indices: SSAValue
    depth: SSAValue
    values: SSAValue
    output_: OpResult
    axis: IntegerAttr

class Optional_28(OnnxOp):
    input_: SSAValue | None
    output_: OpResult
    type: Attribute | None

class OptionalGetElement_28(OnnxOp):
    input_: SSAValue
    output_: OpResult

class OptionalHasElement_28(OnnxOp):
    input_: SSAValue | None
    output_: OpResult

class Or_7(OnnxOp):
    A: SSAValue
    B: SSAValue
    C: OpResult

class PRelu_16(OnnxOp):
    X: SSAValue
    slope: SSAValue
    Y: OpResult

class Pad_25(OnnxOp):
    data: SSAValue
    pads: SSAValue
    constant_value: SSAValue | None
    axes: SSAValue | None
    output_: OpResult
    mode: StringAttr

class Pow_15(OnnxOp):
    X: SSAValue
    Y: SSAValue
    Z: OpResult

class QLinearConv_10(OnnxOp):
    x: SSAValue
    x_scale: SSAValue
    x_zero_point: SSAValue
    w: SSAValue
    w_scale: SSAValue
    w_zero_point: SSAValue
    y_scale: SSAValue
    y_zero_point: SSAValue
    B: SSAValue | None
    y: OpResult
    auto_pad: StringAttr
    dilations: DenseArrayBase | None
    group: IntegerAttr
    kernel_shape: DenseArrayBase | None
    pads: DenseArrayBase | None
    strides: DenseArrayBase | None

class QLinearMatMul_21(OnnxOp):
    a: SSAValue
    a_scale: SSAValue
    a_zero_point: SSAValue
    b: SSAValue
    b_scale: SSAValue
    b_zero_point: SSAValue
    y_scale: SSAValue
    y_zero_point: SSAValue
    y: OpResult

class QuantizeLinear_28(OnnxOp):
    x: SSAValue
    y_scale: SSAValue
    y_zero_point: SSAValue | None
    y: OpResult
    axis: IntegerAttr
    block_size: IntegerAttr
    output_dtype: IntegerAttr
    precision: IntegerAttr
    saturate: IntegerAttr

class RMSNormalization_23(OnnxOp):
    X: SSAValue
    scale: SSAValue
    Y: OpResult
    axis: IntegerAttr
    epsilon: FloatAttr
    stash_type: IntegerAttr

class RNN_22(OnnxOp):
    X: SSAValue
    W: SSAValue
    R: SSAValue
    B: SSAValue | None
    sequence_lens: SSAValue | None
    initial_h: SSAValue | None
    Y: OpResult | None
    Y_h: OpResult | None
    activation_alpha: DenseArrayBase | None
    activation_beta: DenseArrayBase | None
    activations: ArrayAttr
    clip: FloatAttr | None
    direction: StringAttr
    hidden_size: IntegerAttr | None
    layout: IntegerAttr

class RandomNormal_22(OnnxOp):
    output_: OpResult
    dtype: IntegerAttr
    mean: FloatAttr
    scale: FloatAttr
    seed: FloatAttr | None
    shape: DenseArrayBase

class RandomNormalLike_22(OnnxOp):
    input_: SSAValue
    output_: OpResult
    dtype: IntegerAttr | None
    mean: FloatAttr
    scale: FloatAttr
    seed: FloatAttr | None

class RandomUniform_22(OnnxOp):
    output_: OpResult
    dtype: IntegerAttr
    high: FloatAttr
    low: FloatAttr
    seed: FloatAttr | None
    shape: DenseArrayBase

class RandomUniformLike_22(OnnxOp):
    input_: SSAValue
    output_: OpResult
    dtype: IntegerAttr | None
    high: FloatAttr
    low: FloatAttr
    seed: FloatAttr | None

class Range_27(OnnxOp):
    start: SSAValue
    limit: SSAValue
    delta: SSAValue
    output_: OpResult
    stash_type: IntegerAttr

class Reciprocal_13(OnnxOp):
    X: SSAValue
    Y: OpResult

class ReduceL1_18(OnnxOp):
    data: SSAValue
    axes: SSAValue | None
    reduced: OpResult
    keepdims: IntegerAttr
    noop_with_empty_axes: IntegerAttr

class ReduceL2_18(OnnxOp):
    data: SSAValue
    axes: SSAValue | None
    reduced: OpResult
    keepdims: IntegerAttr
    noop_with_empty_axes: IntegerAttr

class ReduceLogSum_28(OnnxOp):
    data: SSAValue
    axes: SSAValue | None
    reduced: OpResult
    keepdims: IntegerAttr
    noop_with_empty_axes: IntegerAttr

class ReduceLogSumExp_28(OnnxOp):
    data: SSAValue
    axes: SSAValue | None
    reduced: OpResult
    keepdims: IntegerAttr
    noop_with_empty_axes: IntegerAttr

class ReduceMax_20(OnnxOp):
    data: SSAValue
    axes: SSAValue | None
    reduced: OpResult
    keepdims: IntegerAttr
    noop_with_empty_axes: IntegerAttr

class ReduceMean_18(OnnxOp):
    data: SSAValue
    axes: SSAValue | None
    reduced: OpResult
    keepdims: IntegerAttr
    noop_with_empty_axes: IntegerAttr

class ReduceMin_20(OnnxOp):
    data: SSAValue
    axes: SSAValue | None
    reduced: OpResult
    keepdims: IntegerAttr
    noop_with_empty_axes: IntegerAttr

class ReduceProd_18(OnnxOp):
    data: SSAValue
    axes: SSAValue | None
    reduced: OpResult
    keepdims: IntegerAttr
    noop_with_empty_axes: IntegerAttr

class ReduceSum_13(OnnxOp):
    data: SSAValue
    axes: SSAValue | None
    reduced: OpResult
    keepdims: IntegerAttr
    noop_with_empty_axes: IntegerAttr

class ReduceSumSquare_18(OnnxOp):
    data: SSAValue
    axes: SSAValue | None
    reduced: OpResult
    keepdims: IntegerAttr
    noop_with_empty_axes: IntegerAttr

class RegexFullMatch_20(OnnxOp):
    X: SSAValue
    Y: OpResult
    pattern: StringAttr | None

class Relu_14(OnnxOp):
    X: SSAValue
    Y: OpResult

class Reshape_25(OnnxOp):
    data: SSAValue
    shape: SSAValue
    reshaped: OpResult
    allowzero: IntegerAttr

class Resize_19(OnnxOp):
    X: SSAValue
    roi: SSAValue | None
    scales: SSAValue | None
    sizes: SSAValue | None
    Y: OpResult
    antialias: IntegerAttr
    axes: DenseArrayBase | None
    coordinate_transformation_mode: StringAttr
    cubic_coeff_a: FloatAttr
    exclude_outside: IntegerAttr
    extrapolation_value: FloatAttr
    keep_aspect_ratio_policy: StringAttr
    mode: StringAttr
    nearest_mode: StringAttr

class ReverseSequence_28(OnnxOp):
    input_: SSAValue
    sequence_lens: SSAValue
    Y: OpResult
    batch_axis: IntegerAttr
    time_axis: IntegerAttr

class RoiAlign_22(OnnxOp):
    X: SSAValue
    rois: SSAValue
    batch_indices: SSAValue
    Y: OpResult
    coordinate_transformation_mode: StringAttr
    mode: StringAttr
    output_height: IntegerAttr
    output_width: IntegerAttr
    sampling_ratio: IntegerAttr
    spatial_scale: FloatAttr

class RotaryEmbedding_23(OnnxOp):
    X: SSAValue
    cos_cache: SSAValue
    sin_cache: SSAValue
    position_ids: SSAValue | None
    Y: OpResult
    interleaved: IntegerAttr
    num_heads: IntegerAttr | None
    rotary_embedding_dim: IntegerAttr

class Round_22(OnnxOp):
    X: SSAValue
    Y: OpResult

class STFT_17(OnnxOp):
    signal: SSAValue
    frame_step: SSAValue
    window: SSAValue | None
    frame_length: SSAValue | None
    output_: OpResult
    onesided: IntegerAttr

class Scan_25(OnnxOp):
    initial_state_and_scan_inputs: VarOperand
    final_state_and_scan_outputs: VarOpResult
    body: Region
    num_scan_inputs: IntegerAttr
    scan_input_axes: DenseArrayBase | None
    scan_input_directions: DenseArrayBase | None
    scan_output_axes: DenseArrayBase | None
    scan_output_directions: DenseArrayBase | None

class Scatter_9(OnnxOp):
    data: SSAValue
    indices: SSAValue
    updates: SSAValue
    output_: OpResult
    axis: IntegerAttr

class ScatterElements_18(OnnxOp):
    data: SSAValue
    indices: SSAValue
    updates: SSAValue
    output_: OpResult
    axis: IntegerAttr
    reduction: StringAttr

class ScatterND_18(OnnxOp):
    data: SSAValue
    indices: SSAValue
    updates: SSAValue
    output_: OpResult
    reduction: StringAttr

class Selu_22(OnnxOp):
    X: SSAValue
    Y: OpResult
    alpha: FloatAttr
    gamma: FloatAttr

class SequenceAt_11(OnnxOp):
    input_sequence: SSAValue
    position: SSAValue
    tensor: OpResult

class SequenceConstruct_11(OnnxOp):
    inputs_: VarOperand
    output_sequence: OpResult

class SequenceEmpty_11(OnnxOp):
    output_: OpResult
    dtype: IntegerAttr | None

class SequenceErase_11(OnnxOp):
    input_sequence: SSAValue
    position: SSAValue | None
    output_sequence: OpResult

class SequenceInsert_11(OnnxOp):
    input_sequence: SSAValue
    tensor: SSAValue
    position: SSAValue | None
    output_sequence: OpResult

class SequenceLength_11(OnnxOp):
    input_sequence: SSAValue
    length: OpResult

class SequenceMap_17(OnnxOp):
    input_sequence: SSAValue
    additional_inputs: VarOperand
    out_sequence: VarOpResult
    body: Region

class Shape_25(OnnxOp):
    data: SSAValue
    shape: OpResult
    end: IntegerAttr | None
    start: IntegerAttr

class Shrink_9(OnnxOp):
    input_: SSAValue
    output_: OpResult
    bias: FloatAttr
    lambd: FloatAttr

class Sigmoid_13(OnnxOp):
    X: SSAValue
    Y: OpResult

class Sign_13(OnnxOp):
    input_: SSAValue
    output_: OpResult

class Sin_22(OnnxOp):
    input_: SSAValue
    output_: OpResult

class Sinh_22(OnnxOp):
    input_: SSAValue
    output_: OpResult

class Size_25(OnnxOp):
    data: SSAValue
    size: OpResult

class Slice_13(OnnxOp):
    data: SSAValue
    starts: SSAValue
    ends: SSAValue
    axes: SSAValue | None
    steps: SSAValue | None
    output_: OpResult

class Softmax_13(OnnxOp):
    input_: SSAValue
    output_: OpResult
    axis: IntegerAttr

class SoftmaxCrossEntropyLoss_13(OnnxOp):
    scores: SSAValue
    labels: SSAValue
    weights: SSAValue | None
    output_: OpResult
    log_prob: OpResult | None
    ignore_index: IntegerAttr | None
    reduction: StringAttr

class Softplus_22(OnnxOp):
    X: SSAValue
    Y: OpResult

class Softsign_22(OnnxOp):
    input_: SSAValue
    output_: OpResult

class SpaceToDepth_28(OnnxOp):
    input_: SSAValue
    output_: OpResult
    blocksize: IntegerAttr
    mode: StringAttr

class Split_18(OnnxOp):
    input_: SSAValue
    split: SSAValue | None
    outputs_: VarOpResult
    axis: IntegerAttr
    num_outputs: IntegerAttr | None

class SplitToSequence_24(OnnxOp):
    input_: SSAValue
    split: SSAValue | None
    output_sequence: OpResult
    axis: IntegerAttr
    keepdims: IntegerAttr

class Sqrt_13(OnnxOp):
    X: SSAValue
    Y: OpResult

class Squeeze_25(OnnxOp):
    data: SSAValue
    axes: SSAValue | None
    squeezed: OpResult

class StringConcat_20(OnnxOp):
    X: SSAValue
    Y: SSAValue
    Z: OpResult

class StringNormalizer_10(OnnxOp):
    X: SSAValue
    Y: OpResult
    case_change_action: StringAttr
    is_case_sensitive: IntegerAttr
    locale: StringAttr | None
    stopwords: ArrayAttr | None

class StringSplit_20(OnnxOp):
    X: SSAValue
    Y: OpResult
    Z: OpResult
    delimiter: StringAttr | None
    maxsplit: IntegerAttr | None

class Sub_14(OnnxOp):
    A: SSAValue
    B: SSAValue
    C: OpResult

class Sum_13(OnnxOp):
    data_0: VarOperand
    sum: OpResult

class SwiGLU_28(OnnxOp):
    A: SSAValue
    B: SSAValue
    Y: OpResult
    alpha: FloatAttr

class Swish_24(OnnxOp):
    X: SSAValue
    Y: OpResult
    alpha: FloatAttr

class Tan_22(OnnxOp):
    input_: SSAValue
    output_: OpResult

class Tanh_13(OnnxOp):
    input_: SSAValue
    output_: OpResult

class TensorScatter_24(OnnxOp):
    past_cache: SSAValue
    update: SSAValue
    write_indices: SSAValue | None
    present_cache: OpResult
    axis: IntegerAttr
    mode: StringAttr

class TfIdfVectorizer_9(OnnxOp):
    X: SSAValue
    Y: OpResult
    max_gram_length: IntegerAttr
    max_skip_count: IntegerAttr
    min_gram_length: IntegerAttr
    mode: StringAttr
    ngram_counts: DenseArrayBase
    ngram_indexes: DenseArrayBase
    pool_int64s: DenseArrayBase | None
    pool_strings: ArrayAttr | None
    weights: DenseArrayBase | None

class ThresholdedRelu_22(OnnxOp):
    X: SSAValue
    Y: OpResult
    alpha: FloatAttr

class Tile_13(OnnxOp):
    input_: SSAValue
    repeats: SSAValue
    output_: OpResult

class TopK_24(OnnxOp):
    X: SSAValue
    K: SSAValue
    Values: OpResult
    Indices: OpResult
    axis: IntegerAttr
    largest: IntegerAttr
    sorted: IntegerAttr

class Transpose_25(OnnxOp):
    data: SSAValue
    transposed: OpResult
    perm: DenseArrayBase | None

class Trilu_14(OnnxOp):
    input_: SSAValue
    k: SSAValue | None
    output_: OpResult
    upper: IntegerAttr

class Unique_28(OnnxOp):
    X: SSAValue
    Y: OpResult
    indices: OpResult | None
    inverse_indices: OpResult | None
    counts: OpResult | None
    axis: IntegerAttr | None
    sorted: IntegerAttr

class Unsqueeze_25(OnnxOp):
    data: SSAValue
    axes: SSAValue
    expanded: OpResult

class Upsample_9(OnnxOp):
    X: SSAValue
    scales: SSAValue
    Y: OpResult
    mode: StringAttr

class Where_16(OnnxOp):
    condition: SSAValue
    X: SSAValue
    Y: SSAValue
    output_: OpResult

class Xor_7(OnnxOp):
    A: SSAValue
    B: SSAValue
    C: OpResult

class ai_onnx_ml_ArrayFeatureExtractor_1(OnnxOp):
    X: SSAValue
    Y: SSAValue
    Z: OpResult

class ai_onnx_ml_Binarizer_1(OnnxOp):
    X: SSAValue
    Y: OpResult
    threshold: FloatAttr

class ai_onnx_ml_CastMap_1(OnnxOp):
    X: SSAValue
    Y: OpResult
    cast_to: StringAttr
    map_form: StringAttr
    max_map: IntegerAttr

class ai_onnx_ml_CategoryMapper_1(OnnxOp):
    X: SSAValue
    Y: OpResult
    cats_int64s: DenseArrayBase | None
    cats_strings: ArrayAttr | None
    default_int64: IntegerAttr
    default_string: StringAttr

class ai_onnx_ml_DictVectorizer_1(OnnxOp):
    X: SSAValue
    Y: OpResult
    int64_vocabulary: DenseArrayBase | None
    string_vocabulary: ArrayAttr | None

class ai_onnx_ml_FeatureVectorizer_1(OnnxOp):
    X: VarOperand
    Y: OpResult
    inputdimensions: DenseArrayBase | None

class ai_onnx_ml_Imputer_1(OnnxOp):
    X: SSAValue
    Y: OpResult
    imputed_value_floats: DenseArrayBase | None
    imputed_value_int64s: DenseArrayBase | None
    replaced_value_float: FloatAttr
    replaced_value_int64: IntegerAttr

class ai_onnx_ml_LabelEncoder_4(OnnxOp):
    X: SSAValue
    Y: OpResult
    default_float: FloatAttr
    default_int64: IntegerAttr
    default_string: StringAttr
    default_tensor: Attribute | None
    keys_floats: DenseArrayBase | None
    keys_int64s: DenseArrayBase | None
    keys_strings: ArrayAttr | None
    keys_tensor: Attribute | None
    values_floats: DenseArrayBase | None
    values_int64s: DenseArrayBase | None
    values_strings: ArrayAttr | None
    values_tensor: Attribute | None

class ai_onnx_ml_LinearClassifier_1(OnnxOp):
    X: SSAValue
    Y: OpResult
    Z: OpResult
    classlabels_ints: DenseArrayBase | None
    classlabels_strings: ArrayAttr | None
    coefficients: DenseArrayBase
    intercepts: DenseArrayBase | None
    multi_class: IntegerAttr
    post_transform: StringAttr

class ai_onnx_ml_LinearRegressor_1(OnnxOp):
    X: SSAValue
    Y: OpResult
    coefficients: DenseArrayBase | None
    intercepts: DenseArrayBase | None
    post_transform: StringAttr
    targets: IntegerAttr

class ai_onnx_ml_Normalizer_1(OnnxOp):
    X: SSAValue
    Y: OpResult
    norm: StringAttr

class ai_onnx_ml_OneHotEncoder_1(OnnxOp):
    X: SSAValue
    Y: OpResult
    cats_int64s: DenseArrayBase | None
    cats_strings: ArrayAttr | None
    zeros: IntegerAttr

class ai_onnx_ml_SVMClassifier_1(OnnxOp):
    X: SSAValue
    Y: OpResult
    Z: OpResult
    classlabels_ints: DenseArrayBase | None
    classlabels_strings: ArrayAttr | None
    coefficients: DenseArrayBase | None
    kernel_params: DenseArrayBase | None
    kernel_type: StringAttr
    post_transform: StringAttr
    prob_a: DenseArrayBase | None
    prob_b: DenseArrayBase | None
    rho: DenseArrayBase | None
    support_vectors: DenseArrayBase | None
    vectors_per_class: DenseArrayBase | None

class ai_onnx_ml_SVMRegressor_1(OnnxOp):
    X: SSAValue
    Y: OpResult
    coefficients: DenseArrayBase | None
    kernel_params: DenseArrayBase | None
    kernel_type: StringAttr
    n_supports: IntegerAttr
    one_class: IntegerAttr
    post_transform: StringAttr
    rho: DenseArrayBase | None
    support_vectors: DenseArrayBase | None

class ai_onnx_ml_Scaler_1(OnnxOp):
    X: SSAValue
    Y: OpResult
    offset: DenseArrayBase | None
    scale: DenseArrayBase | None

class ai_onnx_ml_TreeEnsemble_5(OnnxOp):
    X: SSAValue
    Y: OpResult
    aggregate_function: IntegerAttr
    leaf_targetids: DenseArrayBase
    leaf_weights: Attribute
    membership_values: Attribute | None
    n_targets: IntegerAttr | None
    nodes_falseleafs: DenseArrayBase
    nodes_falsenodeids: DenseArrayBase
    nodes_featureids: DenseArrayBase
    nodes_hitrates: Attribute | None
    nodes_missing_value_tracks_true: DenseArrayBase | None
    nodes_modes: Attribute
    nodes_splits: Attribute
    nodes_trueleafs: DenseArrayBase
    nodes_truenodeids: DenseArrayBase
    post_transform: IntegerAttr
    tree_roots: DenseArrayBase

class ai_onnx_ml_TreeEnsembleClassifier_3(OnnxOp):
    X: SSAValue
    Y: OpResult
    Z: OpResult
    base_values: DenseArrayBase | None
    base_values_as_tensor: Attribute | None
    class_ids: DenseArrayBase | None
    class_nodeids: DenseArrayBase | None
    class_treeids: DenseArrayBase | None
    class_weights: DenseArrayBase | None
    class_weights_as_tensor: Attribute | None
    classlabels_int64s: DenseArrayBase | None
    classlabels_strings: ArrayAttr | None
    nodes_falsenodeids: DenseArrayBase | None
    nodes_featureids: DenseArrayBase | None
    nodes_hitrates: DenseArrayBase | None
    nodes_hitrates_as_tensor: Attribute | None
    nodes_missing_value_tracks_true: DenseArrayBase | None
    nodes_modes: ArrayAttr | None
    nodes_nodeids: DenseArrayBase | None
    nodes_treeids: DenseArrayBase | None
    nodes_truenodeids: DenseArrayBase | None
    nodes_values: DenseArrayBase | None
    nodes_values_as_tensor: Attribute | None
    post_transform: StringAttr

class ai_onnx_ml_TreeEnsembleRegressor_3(OnnxOp):
    X: SSAValue
    Y: OpResult
    aggregate_function: StringAttr
    base_values: DenseArrayBase | None
    base_values_as_tensor: Attribute | None
    n_targets: IntegerAttr | None
    nodes_falsenodeids: DenseArrayBase | None
    nodes_featureids: DenseArrayBase | None
    nodes_hitrates: DenseArrayBase | None
    nodes_hitrates_as_tensor: Attribute | None
    nodes_missing_value_tracks_true: DenseArrayBase | None
    nodes_modes: ArrayAttr | None
    nodes_nodeids: DenseArrayBase | None
    nodes_treeids: DenseArrayBase | None
    nodes_truenodeids: DenseArrayBase | None
    nodes_values: DenseArrayBase | None
    nodes_values_as_tensor: Attribute | None
    post_transform: StringAttr
    target_ids: DenseArrayBase | None
    target_nodeids: DenseArrayBase | None
    target_treeids: DenseArrayBase | None
    target_weights: DenseArrayBase | None
    target_weights_as_tensor: Attribute | None

class ai_onnx_ml_ZipMap_1(OnnxOp):
    X: SSAValue
    Z: OpResult
    classlabels_int64s: DenseArrayBase | None
    classlabels_strings: ArrayAttr | None

class ai_onnx_preview_FlexAttention_1(OnnxOp):
    Q: SSAValue
    K: SSAValue
    V: SSAValue
    Y: OpResult
    prob_mod: Region
    scale: FloatAttr | None
    score_mod: Region
    softmax_precision: IntegerAttr | None

class ai_onnx_preview_training_Adagrad_1(OnnxOp):
    R: SSAValue
    T: SSAValue
    inputs_: VarOperand
    outputs_: VarOpResult
    decay_factor: FloatAttr
    epsilon: FloatAttr
    norm_coefficient: FloatAttr

class ai_onnx_preview_training_Adam_1(OnnxOp):
    R: SSAValue
    T: SSAValue
    inputs_: VarOperand
    outputs_: VarOpResult
    alpha: FloatAttr
    beta: FloatAttr
    epsilon: FloatAttr
    norm_coefficient: FloatAttr
    norm_coefficient_post: FloatAttr

class ai_onnx_preview_training_Gradient_1(OnnxOp):
    Inputs: VarOperand
    Outputs: VarOpResult
    xs: ArrayAttr
    y: StringAttr
    zs: ArrayAttr | None

class ai_onnx_preview_training_Momentum_1(OnnxOp):
    R: SSAValue
    T: SSAValue
    inputs_: VarOperand
    outputs_: VarOpResult
    alpha: FloatAttr
    beta: FloatAttr
    mode: StringAttr
    norm_coefficient: FloatAttr
