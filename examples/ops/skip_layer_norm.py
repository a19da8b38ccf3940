"""onnxruntime's SkipLayerNormalization with all its ends: beta and bias may be left out, and mean, deviation and sum are results."""

from populus.custom import (
    Arg,
    ClassVar,
    PopartOp,
    calls,
    element_type_of,
    elements,
    f16,
    f32,
    f64,
    function_of,
    irdl_op_definition,
    number,
    operand_def,
    opt_operand_def,
    result_def,
    rsqrt,
    shape_of,
    tensor,
    tensors,
)


@irdl_op_definition
class SkipLayerNormOp(PopartOp):
    """`y = (s - mean) deviation gamma + beta, s = x + skip + bias`; deviation = (var + epsilon)^(-1/2).

    Source: com.microsoft SkipLayerNormalization-1.
    """

    name = "ort.skip_layer_norm"
    ONNX: ClassVar = ("org.ort", "SkipLayerNormalization", 1)
    EXAMPLES: ClassVar = [
        ([(2, 3, 4), (2, 3, 4), (4,), (4,), (4,)], {}),
        ([(2, 3, 4), (2, 3, 4), (4,), None, (4,)], {}),
        ([(5, 4), (5, 4), (4,)], {}),
    ]
    T: ClassVar = tensors("T", f16, f32, f64)
    V: ClassVar = tensors("V", f16, f32, f64)
    E: ClassVar = elements("E", f16, f32, f64)
    x = operand_def(T)
    skip = operand_def(T)
    gamma = operand_def(V)
    beta = opt_operand_def(V)
    bias = opt_operand_def(V)
    y = result_def(T)
    mean = result_def(E)
    deviation = result_def(E)
    total = result_def(T)
    epsilon: float = number(1e-5, low=0)

    def infer(self):
        column = tensor((*shape_of(self.x.type)[:-1], 1), element_type_of(self.x.type))
        return [self.x.type, column, column, self.x.type]

    def row(self, b, v):
        """Reduces v over its last dimension to its mean."""
        s = shape_of(v.type)
        return calls.map(b, Arg(1) * (1.0 / s[-1]), calls.reshape(b, calls.reduce(b, "add", v, (len(s) - 1,)), (*s[:-1], 1)))

    def lower(self, b):
        s = calls.map(b, Arg(1) + Arg(2), self.x, self.skip)
        s = s if self.bias is None else calls.map(b, Arg(1) + Arg(2), s, self.bias)
        mean = self.row(b, s)
        deviation = calls.map(b, rsqrt(Arg(1) + self.epsilon), self.row(b, calls.map(b, (Arg(1) - Arg(2)) * (Arg(1) - Arg(2)), s, mean)))
        y = calls.map(b, (Arg(1) - Arg(2)) * Arg(3) * Arg(4), s, mean, deviation, self.gamma)
        return [y if self.beta is None else calls.map(b, Arg(1) + Arg(2), y, self.beta), mean, deviation, s]

    def gradient(self, b, grads):
        g, g_mean, g_deviation, g_total = grads
        z = calls.map(b, (Arg(1) - Arg(2)) * Arg(3), self.total, self.mean, self.deviation)
        h = calls.map(b, Arg(1) * Arg(2), g, self.gamma)
        inner, along = self.row(b, h), self.row(b, calls.map(b, Arg(1) * Arg(2), h, z))
        d = calls.map(b, (Arg(1) - Arg(2) - Arg(3) * Arg(4)) * Arg(5) + Arg(6), h, inner, z, along, self.deviation, g_total)
        n = 1.0 / shape_of(self.x.type)[-1]
        d = calls.map(b, Arg(1) + (Arg(2) - Arg(3) * Arg(4) * Arg(4) * Arg(5)) * n, d, g_mean, g_deviation, self.deviation, z)
        rows = tuple(range(len(shape_of(self.x.type)) - 1))
        found = [d, d, calls.reduce(b, "add", calls.map(b, Arg(1) * Arg(2), g, z), rows)]
        found += [] if self.beta is None else [calls.reduce(b, "add", g, rows)]
        return found + ([] if self.bias is None else [calls.reduce(b, "add", d, rows)])


skip_layer_norm = function_of(SkipLayerNormOp)
