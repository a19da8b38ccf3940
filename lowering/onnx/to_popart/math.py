"""Conversions of ONNX's `math` and `logical` categories: element-wise ops and products."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import f32, i32, i64
from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.base.tensor_op import TensorOp
from populus.dialects.support import shapes
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import is_float
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rule, Rules, element, regular, shape


def aligned(c: Conversion, a: SSAValue, b: SSAValue) -> SSAValue:
    """Reshapes `b` for the broadcasting of opset 6 and older.

    There the dimensions of `b` align with those of `a` from `axis` on.
    """
    if c.version >= 7 or not c.get("broadcast"):
        return b
    axis = c.get("axis")
    rank = len(shape(a))
    first = rank - len(shape(b)) if axis is None else shapes.axis(axis, rank)
    return c.reshape(b, (*shape(b), *(1,) * (rank - first - len(shape(b)))))


def binary(kind: type[TensorOp]) -> Rule:
    """Makes the rule of an element-wise op with two operands."""

    def rule(c: Conversion) -> Output:
        a, b = c.input(0), c.input(1)
        return c.insert(kind(a, aligned(c, a, b)))

    return rule


def variadic(kind: type[TensorOp]) -> Rule:
    """Makes the rule of an op that combines any number of operands in order."""

    def rule(c: Conversion) -> Output:
        return folded(c, kind, summands(c))

    return rule


def summands(c: Conversion) -> list[SSAValue]:
    """Lists the inputs of Sum, Mean, Max or Min.

    Raises PopulusError if their shapes differ before opset 8, which introduced broadcasting.
    """
    values = [v for v in c.inputs if v is not None]
    if c.version < 8 and len({shape(v) for v in values}) > 1:
        texts = ", ".join(shapes.text(shape(v)) for v in values)
        raise PopulusError(f"its inputs are {texts}; equal shapes are expected before opset 8")
    return values


def folded(c: Conversion, kind: type[TensorOp], values: Sequence[SSAValue]) -> SSAValue:
    """Combines values from left to right with a binary op."""
    result = values[0]
    for value in values[1:]:
        result = c.insert(kind(result, value))
    return result


def mean(c: Conversion) -> Output:
    """Converts Mean: the sum of the inputs over their number."""
    values = summands(c)
    total = folded(c, popart.AddOp, [c.wide(v) for v in values])
    return c.cast(c.insert(popart.DivOp(total, c.scalar(len(values), total))), element(values[0]))


def bitshift(c: Conversion) -> Output:
    """Converts BitShift."""
    return c.insert(popart.BitShiftOp(c.input(0), c.input(1), left=c.get("direction") == "LEFT"))


def mod(c: Conversion) -> Output:
    """Converts Mod."""
    return c.insert(popart.ModOp(c.input(0), c.input(1), fmod=bool(c.get("fmod"))))


def isinf(c: Conversion) -> Output:
    """Converts IsInf."""
    negative, positive = bool(c.get("detect_negative")), bool(c.get("detect_positive"))
    return c.insert(popart.IsInfOp(c.input(0), detect_negative=negative, detect_positive=positive))


def gelu(c: Conversion) -> Output:
    """Converts Gelu."""
    return c.insert(popart.GeluOp(c.input(0), tanh=c.get("approximate") == "tanh"))


def clip(c: Conversion) -> Output:
    """Converts Clip: `min(max(x, low), high)`. The bounds are attributes before opset 11."""
    x = c.input(0)
    bounds: list[SSAValue | None] = [c.optional(1), c.optional(2)]
    if c.version < 11:
        limits = (-3.4028234663852886e38, 3.4028234663852886e38)  # Clip-6's defaults: no bound
        stated = [c.get("min"), c.get("max")]
        bounds = [None if v is None or v == limit else c.scalar(v, x) for v, limit in zip(stated, limits)]
    for bound, kind in zip(bounds, (popart.MaxOp, popart.MinOp)):
        if bound is not None:
            x = c.insert(kind(x, c.reshape(bound, ())))
    return x


def prelu(c: Conversion) -> Output:
    """Converts PRelu. Before opset 7 the slope has one element, or one for each channel."""
    x, slope = c.input(0), c.input(1)
    if c.version < 7:
        slope = c.reshape(slope, (shape(slope)[0], *(1,) * (len(shape(x)) - 2)) if shape(slope) != (1,) else ())
    return c.insert(popart.PReluOp(x, slope))


def gemm(c: Conversion) -> Output:
    """Converts Gemm."""
    a, b, bias = c.input(0), c.input(1), c.optional(2)
    settings = {"alpha": c.get("alpha"), "beta": c.get("beta"), "trans_a": bool(c.get("transA")), "trans_b": bool(c.get("transB"))}
    return c.insert(popart.GemmOp(a, b, bias, **settings))


def arg(last_is_best: bool) -> Rule:
    """Makes the rule of ArgMax or ArgMin: the first, or last, index of the extreme element. `last_is_best`: ArgMax."""

    def rule(c: Conversion) -> Output:
        x = c.input(0)
        axis = c.axis(len(shape(x)))
        index = arg_index(c, x, axis, largest=last_is_best, last=bool(c.get("select_last_index")))
        return index if c.get("keepdims") != 0 else c.reshape(index, (*shape(x)[:axis], *shape(x)[axis + 1 :]))

    return rule


def arg_index(c: Conversion, x: SSAValue, axis: int, largest: bool, last: bool) -> SSAValue:
    """Finds the index (i64) of the extreme element along `axis`, which has size 1 in the result.

    NaN counts as the extreme element, as in NumPy. `last`: the last of equal elements, else the first.
    """
    import numpy as np

    n = shape(x)[axis]
    best = c.insert((popart.ReduceMaxOp if largest else popart.ReduceMinOp)(x, axes=(axis,), keep=True))
    indices = np.arange(n, dtype=np.int32).reshape([n if d == axis else 1 for d in range(len(shape(x)))])
    chosen = c.insert(popart.EqualOp(x, best))
    if is_float(element(x)):
        chosen = c.insert(popart.OrOp(chosen, c.insert(popart.IsNanOp(x))))
    candidates = c.insert(popart.WhereOp(chosen, c.constant(indices), c.constant(np.array(-1 if last else n, np.int32))))
    return c.cast(c.insert((popart.ReduceMaxOp if last else popart.ReduceMinOp)(candidates, axes=(axis,), keep=True)), i64)


def hardmax(c: Conversion) -> Output:
    """Converts Hardmax: 1 at the first of the largest elements, 0 elsewhere.

    Before opset 13 the dimensions from `axis` on count as one.
    """
    import numpy as np

    x = c.input(0)
    flat, axis = flattened(c, x)
    n = shape(flat)[axis]
    index = c.cast(arg_index(c, flat, axis, largest=True, last=False), i32)
    positions = c.constant(np.arange(n, dtype=np.int32).reshape([n if d == axis else 1 for d in range(len(shape(flat)))]))
    return c.reshape(c.cast(c.insert(popart.EqualOp(positions, index)), element(x)), shape(x))


def flattened(c: Conversion, x: SSAValue) -> tuple[SSAValue, int]:
    """Gives `x` and the axis of a Softmax. Before opset 13 the dimensions from `axis` on are merged."""
    rank = len(shape(x))
    if c.version >= 13:
        return x, c.axis(rank, -1)
    axis = c.axis(rank, 1) if rank else 0
    if axis == rank - 1:
        return x, axis
    before = shape(x)[:axis]
    rest = 1
    for n in shape(x)[axis:]:
        rest *= n
    return c.reshape(x, (*before, rest)), axis


def softmax(kind: type[TensorOp]) -> Rule:
    """Makes the rule of Softmax or LogSoftmax."""

    def rule(c: Conversion) -> Output:
        x = c.input(0)
        flat, axis = flattened(c, x)
        return c.reshape(c.insert(kind(flat, axis=axis)), shape(x))

    return rule


def cumulative(kind: type[TensorOp], neutral: int) -> Rule:
    """Makes the rule of CumSum or CumProd, which combines neighbours at distances 1, 2, 4, ...

    `neutral`: the element that is shifted in. Halves are combined as floats. Source: ONNX CumSum-14, CumProd-26.
    """

    def rule(c: Conversion) -> Output:
        own = element(c.input(0))
        x = c.wide(c.input(0))
        rank = len(shape(x))
        axis = shapes.axis(int(c.number(1)), rank)
        n, reverse = shape(x)[axis], bool(c.get("reverse"))
        outside = c.scalar(neutral, x)

        def moved(value: SSAValue, by: int) -> SSAValue:
            low, high = ([by if d == axis else 0 for d in range(rank)], [-by if d == axis else 0 for d in range(rank)])
            return c.insert(popart.PadOp(value, outside, lower=tuple(high if reverse else low), upper=tuple(low if reverse else high)))

        by = 1
        if c.get("exclusive") and n:
            x = moved(x, 1)
        while by < n:
            x = c.insert(kind(x, moved(x, by)))
            by *= 2
        return c.cast(x, own)

    return rule


def erf(c: Conversion) -> Output:
    """Converts Erf; integers are computed in f32."""
    x = c.input(0)
    if is_float(element(x)):
        return c.insert(popart.ErfOp(x))
    return c.cast(c.insert(popart.ErfOp(c.cast(x, f32))), element(x))


UNARY = {
    "Abs": popart.AbsOp,
    "Acos": popart.AcosOp,
    "Acosh": popart.AcoshOp,
    "Asin": popart.AsinOp,
    "Asinh": popart.AsinhOp,
    "Atan": popart.AtanOp,
    "Atanh": popart.AtanhOp,
    "BitwiseNot": popart.BitwiseNotOp,
    "Ceil": popart.CeilOp,
    "Celu": popart.CeluOp,
    "Cos": popart.CosOp,
    "Cosh": popart.CoshOp,
    "Elu": popart.EluOp,
    "Exp": popart.ExpOp,
    "Floor": popart.FloorOp,
    "HardSigmoid": popart.HardSigmoidOp,
    "HardSwish": popart.HardSwishOp,
    "IsNaN": popart.IsNanOp,
    "LeakyRelu": popart.LeakyReluOp,
    "Log": popart.LogOp,
    "Mish": popart.MishOp,
    "Neg": popart.NegOp,
    "Not": popart.NotOp,
    "Reciprocal": popart.ReciprocalOp,
    "Relu": popart.ReluOp,
    "Round": popart.RoundOp,
    "Selu": popart.SeluOp,
    "Shrink": popart.ShrinkOp,
    "Sigmoid": popart.SigmoidOp,
    "Sign": popart.SignOp,
    "Sin": popart.SinOp,
    "Sinh": popart.SinhOp,
    "Softplus": popart.SoftplusOp,
    "Softsign": popart.SoftsignOp,
    "Sqrt": popart.SqrtOp,
    "Swish": popart.SwishOp,
    "Tan": popart.TanOp,
    "Tanh": popart.TanhOp,
    "ThresholdedRelu": popart.ThresholdedReluOp,
}

BINARY = {
    "Add": popart.AddOp,
    "And": popart.AndOp,
    "BitwiseAnd": popart.BitwiseAndOp,
    "BitwiseOr": popart.BitwiseOrOp,
    "BitwiseXor": popart.BitwiseXorOp,
    "Div": popart.DivOp,
    "Equal": popart.EqualOp,
    "Greater": popart.GreaterOp,
    "GreaterOrEqual": popart.GreaterOrEqualOp,
    "Less": popart.LessOp,
    "LessOrEqual": popart.LessOrEqualOp,
    "Mul": popart.MulOp,
    "Or": popart.OrOp,
    "Pow": popart.PowOp,
    "Sub": popart.SubOp,
    "Xor": popart.XorOp,
}

RULES: Rules = {
    **{name: regular(kind) for name, kind in UNARY.items()},
    **{name: binary(kind) for name, kind in BINARY.items()},
    "ArgMax": arg(True),
    "ArgMin": arg(False),
    "BitShift": bitshift,
    "Clip": clip,
    "CumProd": cumulative(popart.MulOp, 1),
    "CumSum": cumulative(popart.AddOp, 0),
    "Erf": erf,
    "Gelu": gelu,
    "Gemm": gemm,
    "Hardmax": hardmax,
    "IsInf": isinf,
    "LogSoftmax": softmax(popart.LogSoftmaxOp),
    "MatMul": regular(popart.MatMulOp),
    "Max": variadic(popart.MaxOp),
    "Mean": mean,
    "Min": variadic(popart.MinOp),
    "Mod": mod,
    "PRelu": prelu,
    "Softmax": softmax(popart.SoftmaxOp),
    "Sum": variadic(popart.AddOp),
    "Where": regular(popart.WhereOp),
}
