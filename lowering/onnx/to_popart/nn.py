"""Conversions of ONNX's `nn` category: convolutions, pools and normalisations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from zlib import crc32

from xdsl.dialects.builtin import f32, i1
from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.onnx.types import as_tensor
from populus.dialects.poplar.target import sum_type
from populus.dialects.support import shapes
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import dtype_of
from populus.lowering.onnx.misjudged import trains
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rule, Rules, element, shape
from populus.lowering.onnx.to_popart.scatter import PoolWindows, pool_indices

LONGEST = (1 << 31) - 1


def spatial(c: Conversion, name: str, count: int) -> list[int]:
    """Gives a list attribute with one entry for each of `count` spatial dimensions; ones by default.

    Raises PopulusError for a list of another length, and for entries above 2^31 - 1, which no tensor is as long as.
    """
    stated = c.get(name)
    values = [1] * count if not stated else [int(v) for v in stated]
    if len(values) != count:
        raise PopulusError(f"{name} has {len(values)} entries; one for each of {count} spatial dimensions is expected")
    if max(values, default=0) > LONGEST:
        raise PopulusError(f"{name} is {values}; at most {LONGEST}, 2^31 - 1, is expected")
    return values


def padding(c: Conversion, size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """Computes the pads from `pads` or `auto_pad`: those before each spatial dimension, then those after.

    Arguments in elements, one entry for each spatial dimension. Raises PopulusError for invalid attributes.
    """
    mode = c.get("auto_pad") or "NOTSET"
    if mode == "VALID":
        return [0] * 2 * len(size)
    if mode == "NOTSET":
        pads = [int(v) for v in c.get("pads") or [0] * 2 * len(size)]
        if len(pads) != 2 * len(size):
            raise PopulusError(f"pads has {len(pads)} entries; two for each of {len(size)} spatial dimensions are expected")
        return pads
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise PopulusError(f"auto_pad is '{mode}'; NOTSET, VALID, SAME_UPPER or SAME_LOWER is expected")
    pairs = [shapes.same_padding(n, k, s, d, mode == "SAME_UPPER") for n, k, s, d in zip(size, kernel, strides, dilations)]
    return [before for before, _ in pairs] + [after for _, after in pairs]


def conv(c: Conversion) -> Output:
    """Converts Conv. Raises PopulusError if `kernel_shape` is not that of W. Source: ONNX Conv-22."""
    x, w = c.input(0), c.input(1)
    kernel = shape(w)[2:]
    if (stated := c.get("kernel_shape")) and tuple(stated) != kernel:
        raise PopulusError(f"kernel_shape is {shapes.text(stated)}, W is {shapes.text(shape(w))}")
    strides, dilations = spatial(c, "strides", len(kernel)), spatial(c, "dilations", len(kernel))
    pads = padding(c, shape(x)[2:], kernel, strides, dilations)
    return c.insert(popart.ConvOp(x, w, c.optional(2), strides=strides, pads=pads, dilations=dilations, group=c.get("group")))


def conv_transpose(c: Conversion) -> Output:
    """Converts ConvTranspose; `output_shape` and `auto_pad` choose the pads that give this output size.

    Elements beyond the reach of the windows are added at the end, less than a stride of them. A kernel smaller than a
    stride is not padded. Source: ONNX ConvTranspose-22.
    """
    x, w = c.input(0), c.input(1)
    size, kernel = shape(x)[2:], shape(w)[2:]
    n = len(kernel)
    strides, dilations = spatial(c, "strides", n), spatial(c, "dilations", n)
    extra = [int(v) for v in c.get("output_padding") or [0] * n]
    mode, wanted = c.get("auto_pad") or "NOTSET", c.get("output_shape")
    full = [shapes.transposed_window(i, k, s, d, 0, 0, e) for i, k, s, d, e in zip(size, kernel, strides, dilations, extra)]
    total = None
    if wanted:
        target = [int(v) for v in wanted][-n:]
        most = [f - e + s - 1 for f, e, s in zip(full, extra, strides)]
        if any(t > m for t, m in zip(target, most)):
            raise PopulusError(f"output_shape is {shapes.text(target)}; the windows of x reach {shapes.text(most)} at most")
        extra = [max(e, t - f + e) for f, t, e in zip(full, target, extra)]
        total = [max(f - t, 0) for f, t in zip(full, target)]
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        total = [max(f - i * s, 0) for f, i, s in zip(full, size, strides)]
    if total is None:
        pads = [0] * 2 * n if mode == "VALID" else [int(v) for v in c.get("pads") or [0] * 2 * n]
    else:
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        # The odd element goes to the end for SAME_UPPER, to the front otherwise. Source: ONNX ConvTranspose-22.
        pads = small + large if mode == "SAME_UPPER" else large + small
    return c.insert(
        popart.ConvTransposeOp(
            x, w, c.optional(2), strides=strides, pads=pads, dilations=dilations, group=c.get("group"), output_padding=extra
        )
    )


def empty_pool(c: Conversion) -> list[Output] | None:
    """Gives empty outputs for a pool without a window, as onnxruntime does; None if there are windows."""
    import numpy as np

    y = c.op.output(0)
    ranked = None if y is None else as_tensor(y.type)
    if ranked is None or 0 not in ranked.get_shape()[2:]:
        return None
    outputs = [None if v is None else as_tensor(v.type) for v in c.op.outputs]
    return [None if t is None else c.constant(np.zeros(t.get_shape(), dtype_of(t.element_type))) for t in outputs]


def max_pool(c: Conversion) -> Output | list[Output]:
    """Converts MaxPool, with its indices if they have a use. Source: ONNX MaxPool-22."""
    if (empty := empty_pool(c)) is not None:
        return empty
    x, kernel = c.input(0), [int(v) for v in c.get("kernel_shape")]
    strides, dilations = spatial(c, "strides", len(kernel)), spatial(c, "dilations", len(kernel))
    pads = padding(c, shape(x)[2:], kernel, strides, dilations)
    y = c.insert(popart.MaxPoolOp(x, kernel=kernel, strides=strides, pads=pads, dilations=dilations, ceil=bool(c.get("ceil_mode"))))
    if not c.used(1):
        return [y, None]
    return [y, pool_indices(c, x, PoolWindows(shape(y)[2:], kernel, strides, pads[: len(kernel)], dilations))]


def average_pool(c: Conversion) -> Output | list[Output]:
    """Converts AveragePool. Source: ONNX AveragePool-22."""
    if (empty := empty_pool(c)) is not None:
        return empty
    x, kernel = c.input(0), [int(v) for v in c.get("kernel_shape")]
    strides, dilations = spatial(c, "strides", len(kernel)), spatial(c, "dilations", len(kernel))
    pads = padding(c, shape(x)[2:], kernel, strides, dilations)
    lists = {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations}
    return c.insert(popart.AveragePoolOp(x, **lists, ceil=bool(c.get("ceil_mode")), count_padding=bool(c.get("count_include_pad"))))


def lp_pool(c: Conversion) -> Output | list[Output]:
    """Converts LpPool: `(sum over the window of |x|^p)^(1/p)`.

    The sum is an average that counts padding, times the size of the window; of halves in f32. Source: ONNX LpPool-22.
    """
    if (empty := empty_pool(c)) is not None:
        return empty
    own = element(c.input(0))
    x, p = c.insert(popart.AbsOp(c.wide(c.input(0)))), float(c.get("p") or 2)  # LpPool-1: p = 2.0 by default
    powers = c.insert(popart.PowOp(x, c.scalar(p, x)))
    kernel = [int(v) for v in c.get("kernel_shape")]
    strides, dilations = spatial(c, "strides", len(kernel)), spatial(c, "dilations", len(kernel))
    pads = padding(c, shape(x)[2:], kernel, strides, dilations)
    if c.get("ceil_mode"):
        # A window that reaches beyond the padding counts only padded elements, so the padding is extended to hold it.
        windows = shapes.windows(shape(x), kernel, strides, pads, dilations, ceil=True)
        reach = [shapes.reach(w, s, k, d) for w, s, k, d in zip(windows, strides, kernel, dilations)]
        before, after = pads[: len(kernel)], pads[len(kernel) :]
        pads = before + [max(q, r - n - p) for n, r, p, q in zip(shape(x)[2:], reach, before, after)]
    means = c.insert(
        popart.AveragePoolOp(powers, kernel=kernel, strides=strides, pads=pads, dilations=dilations, ceil=False, count_padding=True)
    )
    return c.cast(_root(c, c.insert(popart.MulOp(means, c.scalar(math.prod(kernel), x))), p), own)


def _root(c: Conversion, total: SSAValue, p: float) -> SSAValue:
    """Computes `total^(1/p)`, with gradient 0 at 0.

    There the infinite slope of the root times the slope 0 of the power would be NaN. Source: PyTorch LPPool2d.
    """
    none = c.insert(popart.EqualOp(total, c.scalar(0, total)))
    root = c.insert(popart.PowOp(c.insert(popart.WhereOp(none, c.scalar(1, total), total)), c.scalar(1 / p, total)))
    return c.insert(popart.WhereOp(none, total, root))


def global_pool(kind: type[popart.ReduceMeanOp | popart.ReduceMaxOp]) -> Rule:
    """Makes the rule of GlobalAveragePool or GlobalMaxPool: a reduction over the spatial dimensions."""

    def rule(c: Conversion) -> Output:
        x = c.input(0)
        return c.insert(kind(x, axes=tuple(range(2, len(shape(x)))), keep=True))

    return rule


def global_lp_pool(c: Conversion) -> Output:
    """Converts GlobalLpPool: `(sum of |x|^p)^(1/p)` over the spatial dimensions; of halves in f32. Source: ONNX GlobalLpPool-22."""
    own = element(c.input(0))
    x, p = c.insert(popart.AbsOp(c.wide(c.input(0)))), float(c.get("p") or 2)
    powers = c.insert(popart.PowOp(x, c.scalar(p, x)))
    return c.cast(_root(c, c.insert(popart.ReduceSumOp(powers, axes=tuple(range(2, len(shape(x)))), keep=True)), p), own)


def batch_norm(c: Conversion) -> Output | list[Output]:
    """Converts BatchNormalization; without training, the statistics are inputs.

    Before opset 14, a node with more outputs than y trains, whatever `is_test` is. Source: ONNX BatchNormalization-15.
    """
    if trains(c.op):
        return batch_norm_training(c)
    x, *rest = (c.input(i) for i in range(5))
    outputs: list[Output] = [None] * (len(c.op.outputs) - 1)
    if c.get("spatial") == 0:
        # There is one statistic for each element of an instance. Source: ONNX BatchNormalization-7.
        scale, bias, mean, variance = (c.reshape(v, (1, *shape(x)[1:])) for v in rest)
        deviation = c.insert(popart.SqrtOp(c.insert(popart.AddOp(variance, c.scalar(c.get("epsilon"), variance)))))
        centred = c.insert(popart.SubOp(x, mean))
        factor = c.insert(popart.DivOp(scale, deviation))
        return [c.insert(popart.AddOp(c.insert(popart.MulOp(centred, factor)), bias)), *outputs]
    scale, bias, mean, variance = rest
    if element(scale) != element(mean):
        scale, bias = c.cast(scale, element(mean)), c.cast(bias, element(mean))
    return [c.insert(popart.BatchNormOp(x, scale, bias, mean, variance, epsilon=c.get("epsilon"))), *outputs]


def batch_norm_training(c: Conversion) -> list[Output]:
    """Converts a BatchNormalization that trains: it normalises by the batch's statistics.

    The running statistics become `old momentum + new (1 - momentum)`. Before opset 14 there are two more outputs, as
    onnxruntime defines them: the batch's mean, and `1 / sqrt(variance + epsilon)`. ONNX does not define them.
    Statistics of halves are f32 inside. Raises PopulusError for `spatial = 0`. Source: ONNX BatchNormalization-15, -9.
    """
    if c.get("spatial") == 0:
        raise PopulusError("spatial = 0 normalises each element by itself; that cannot be trained")
    x, scale, bias, mean, variance = (c.input(i) for i in range(5))
    axes = tuple(d for d in range(len(shape(x))) if d != 1)
    own, wide = element(mean), sum_type(element(mean))
    mean, variance = c.wide(mean), c.wide(variance)
    # Its mean alone reads x as floats: what gradients keep of x stays halves.
    center = c.insert(popart.ReduceMeanOp(c.cast(x, wide), axes=axes, keep=False))
    x = x if sum_type(element(x)) == wide else c.cast(x, wide)
    spread = c.insert(popart.BatchVarianceOp(x, center))
    scale, bias = c.cast(scale, wide), c.cast(bias, wide)
    y = c.cast(c.insert(popart.BatchNormOp(x, scale, bias, center, spread, epsilon=c.get("epsilon"))), element(c.input(0)))
    momentum = c.get("momentum")

    def moved(old: SSAValue, new: SSAValue) -> SSAValue:
        weighted = c.insert(popart.MulOp(old, c.scalar(momentum, old)))
        return c.cast(c.insert(popart.AddOp(weighted, c.insert(popart.MulOp(new, c.scalar(1 - momentum, new))))), own)

    outputs: list[Output] = [y, moved(mean, center), moved(variance, spread)]
    if len(c.op.outputs) > len(outputs):
        deviation = c.insert(popart.SqrtOp(c.insert(popart.AddOp(spread, c.scalar(c.get("epsilon"), spread)))))
        outputs += [c.cast(center, own), c.cast(c.insert(popart.ReciprocalOp(deviation)), own)]
    return outputs[: len(c.op.outputs)]


def instance_norm(c: Conversion) -> Output:
    """Converts InstanceNormalization. Source: ONNX InstanceNormalization-22."""
    return c.insert(popart.InstanceNormOp(c.input(0), c.input(1), c.input(2), epsilon=c.get("epsilon")))


def group_norm(c: Conversion) -> Output:
    """Converts GroupNormalization. Before opset 21, scale and bias have one element for each group."""
    x, scale, bias = c.input(0), c.input(1), c.input(2)
    if len(shape(x)) < 2:
        raise PopulusError(f"x is of shape {list(shape(x))}; a batch and channels are expected first")
    groups, channels = int(c.get("num_groups")), shape(x)[1]
    if shape(scale) == (groups,) and groups != channels:
        each = channels // groups
        scale, bias = (c.reshape(c.expand(c.reshape(v, (groups, 1)), (groups, each)), (channels,)) for v in (scale, bias))
    return c.insert(popart.GroupNormOp(x, scale, bias, groups=groups, epsilon=c.get("epsilon")))


def layer_norm(c: Conversion) -> Output | list[Output]:
    """Converts LayerNormalization, with its mean and inverse deviation if they have a use."""
    x = c.input(0)
    axis = c.axis(len(shape(x)), -1)
    y = c.insert(popart.LayerNormOp(x, c.input(1), c.optional(2), axis=axis, epsilon=c.get("epsilon")))
    outputs: list[Output] = [y, None, None]
    if c.used(1) or c.used(2):
        _, mean, variance = _moments(c, x, tuple(range(axis, len(shape(x)))))
        deviation = c.insert(popart.SqrtOp(c.insert(popart.AddOp(variance, c.scalar(c.get("epsilon"), variance)))))
        # By ONNX they are of the type that `stash_type` states, f32 by default, whatever x is.
        for i, value in ((1, mean), (2, c.insert(popart.ReciprocalOp(deviation)))):
            stated = c.op.output(i)
            outputs[i] = None if stated is None else c.cast(value, element(stated))
    return outputs[: len(c.op.outputs)]


def _moments(c: Conversion, x: SSAValue, axes: tuple[int, ...]) -> tuple[SSAValue, SSAValue, SSAValue]:
    """Computes x less its mean, the mean, and the variance; of halves in f32. The axes stay as 1."""
    x = c.wide(x)
    mean = c.insert(popart.ReduceMeanOp(x, axes=axes, keep=True))
    centred = c.insert(popart.SubOp(x, mean))
    return centred, mean, c.insert(popart.ReduceMeanOp(c.insert(popart.MulOp(centred, centred)), axes=axes, keep=True))


def mean_variance_norm(c: Conversion) -> Output:
    """Converts MeanVarianceNormalization: `(x - mean) / (sqrt(variance) + 1e-9)`.

    The variance is that of `x - mean`: ONNX's function has the mean of squares less the square of the mean, which loses all digits
    for a large mean. Source: ONNX MeanVarianceNormalization-13.
    """
    x = c.input(0)
    axes = shapes.axes([int(d) for d in c.get("axes") or (0, 2, 3)], len(shape(x)))
    centred, _, variance = _moments(c, x, axes)
    deviation = c.insert(popart.SqrtOp(variance))
    return c.cast(c.insert(popart.DivOp(centred, c.insert(popart.AddOp(deviation, c.scalar(1e-9, deviation))))), element(x))


def lp_norm(c: Conversion) -> Output:
    """Converts LpNormalization: `x / (sum |x|^p)^(1/p)` along an axis; 0 where the norm is 0. The norm of halves is f32.

    Raises PopulusError unless p is 1 or 2. Source: ONNX LpNormalization-22.
    """
    x = c.wide(c.input(0))
    p = c.get("p") or 2
    if p not in (1, 2):
        raise PopulusError(f"p is {p}; 1 or 2 is expected")
    kind = popart.ReduceL1Op if p == 1 else popart.ReduceL2Op
    norm = c.insert(kind(x, axes=(c.axis(len(shape(x)), -1),), keep=True))
    zero = c.scalar(0, x)
    divisor = c.insert(popart.WhereOp(c.insert(popart.EqualOp(norm, zero)), c.scalar(1, x), norm))
    return c.cast(c.insert(popart.DivOp(x, divisor)), element(c.input(0)))


def lrn(c: Conversion) -> Output:
    """Converts LRN. Source: ONNX LRN-13."""
    settings = {name: float(c.get(name)) for name in ("alpha", "beta", "bias")}
    return c.insert(popart.LrnOp(c.input(0), size=int(c.get("size")), **settings))


def dropout(c: Conversion) -> Output | list[Output]:
    """Converts Dropout. Inference gives the input and a mask of true; training keeps with probability 1 - ratio.

    Before opset 12, ONNX does not define the mask of inference: it is false, as in onnxruntime, and before
    opset 10 zeros of the type of x. With a `seed`, the mask is that of NumPy's RandomState, as in ONNX's
    definition, and a constant. Without one, tiles draw it from the node's name and the element's number.
    Source: ONNX Dropout-22.
    """
    import numpy as np

    x, mask = c.input(0), c.op.output(1)
    ratio = float(c.number(1)) if c.has(1) else 0.5
    if not (c.has(2) and bool(c.number(2))) or ratio == 0:
        if mask is None or not mask.uses:
            return [x, None]
        dtype = dtype_of(element(x) if c.version < 10 else i1)
        return [x, c.constant(np.broadcast_to(np.array(c.version >= 12, dtype), shape(x)))]
    if not 0 <= ratio < 1:
        raise PopulusError(f"its ratio is {ratio:g}; at least 0 and less than 1 is expected")
    stated = c.get("seed")
    if stated is not None:
        selected = c.constant(np.random.RandomState(int(stated) & 0xFFFFFFFF).uniform(0, 1, shape(x)) >= ratio)
    else:
        seed, stream = c.constant(np.zeros(2, np.uint32)), crc32(where(c.op).encode())
        selected = c.cast(
            c.insert(popart.RandomOp(seed, distribution="bernoulli", a=1 - ratio, stream=stream, shape=shape(x), element=f32)), i1
        )
    y = c.insert(popart.WhereOp(selected, c.insert(popart.DivOp(x, c.scalar(1 - ratio, x))), c.scalar(0, x)))
    return [y, selected]


def flatten(c: Conversion) -> Output:
    """Converts Flatten. Raises PopulusError if the axis is out of range. Source: ONNX Flatten-25."""
    x = c.input(0)
    rank = len(shape(x))
    axis = c.get("axis")
    axis = axis + rank if axis < 0 else axis
    if not 0 <= axis <= rank:
        raise PopulusError(f"axis is {c.get('axis')}; x has {rank} dimensions")
    return c.reshape(x, (math.prod(shape(x)[:axis]), math.prod(shape(x)[axis:])))


RULES: Rules = {
    "AveragePool": average_pool,
    "BatchNormalization": batch_norm,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "Dropout": dropout,
    "Flatten": flatten,
    "GlobalAveragePool": global_pool(popart.ReduceMeanOp),
    "GlobalLpPool": global_lp_pool,
    "GlobalMaxPool": global_pool(popart.ReduceMaxOp),
    "GroupNormalization": group_norm,
    "InstanceNormalization": instance_norm,
    "LRN": lrn,
    "LayerNormalization": layer_norm,
    "LpNormalization": lp_norm,
    "LpPool": lp_pool,
    "MaxPool": max_pool,
    "MeanVarianceNormalization": mean_variance_norm,
}
