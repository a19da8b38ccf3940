"""RMSNorm that keeps the inverse root for its gradient, as NVIDIA's Apex does."""

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
    result_def,
    rsqrt,
    shape_of,
    tensor,
    tensors,
)


@irdl_op_definition
class SavedRmsNormOp(PopartOp):
    """`y = x r gamma, r = (mean of x^2 + epsilon)^(-1/2)`; r is a result that the gradient reads.

    Source: NVIDIA Apex layer_norm_cuda.cpp.
    """

    name = "apex.rms_norm"
    ONNX: ClassVar = ("org.apex", "RmsNorm", 1)
    EXAMPLES: ClassVar = [([(3, 5), (5,)], {})]
    T: ClassVar = tensors("T", f16, f32, f64)
    E: ClassVar = elements("E", f16, f32, f64)
    x = operand_def(T)
    gamma = operand_def(E)
    y = result_def(T)
    r = result_def(E)
    epsilon: float = number(1e-5, low=0)

    def infer(self):
        return [self.x.type, tensor((*shape_of(self.x.type)[:-1], 1), element_type_of(self.x.type))]

    def row(self, b, v):
        s = shape_of(v.type)
        return calls.map(b, Arg(1) * (1.0 / s[-1]), calls.reshape(b, calls.reduce(b, "add", v, (len(s) - 1,)), (*s[:-1], 1)))

    def lower(self, b):
        r = calls.map(b, rsqrt(Arg(1) + self.epsilon), self.row(b, calls.map(b, Arg(1) * Arg(1), self.x)))
        return [calls.map(b, Arg(1) * Arg(2) * Arg(3), self.x, r, self.gamma), r]

    def gradient(self, b, grads):
        g, g_r = grads
        z = calls.map(b, Arg(1) * Arg(2), self.x, self.r)
        h = calls.map(b, Arg(1) * Arg(2), g, self.gamma)
        along = self.row(b, calls.map(b, Arg(1) * Arg(2), h, z))
        n = 1.0 / shape_of(self.x.type)[-1]
        d = calls.map(b, (Arg(1) - Arg(2) * Arg(3)) * Arg(4) - Arg(5) * Arg(2) * Arg(4) * Arg(4) * n, h, z, along, self.r, g_r)
        rows = tuple(range(len(shape_of(self.x.type)) - 1))
        return [d, calls.reduce(b, "add", calls.map(b, Arg(1) * Arg(2), g, z), rows)]


rms_norm = function_of(SavedRmsNormOp)
