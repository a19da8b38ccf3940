"""A recurrent unit without a forget gate, from PyTorch's tutorial of extensions in C++."""

from populus.custom import (
    Arg,
    ClassVar,
    PopartOp,
    calls,
    elements,
    exp,
    f16,
    f32,
    f64,
    function_of,
    irdl_op_definition,
    operand_def,
    result_def,
    select,
    shape_of,
    sigmoid,
    tanh,
    tensors,
)


@irdl_op_definition
class LltmOp(PopartOp):
    """`c' = c + elu(k) s(i), h' = tanh(c') s(o); i, o, k = [h, x] w^T + bias`, s the sigmoid. Source: pytorch/extension-cpp lltm.cpp."""

    name = "torch.lltm"
    ONNX: ClassVar = ("org.pytorch", "Lltm", 1)
    EXAMPLES: ClassVar = [([(2, 3), (12, 7), (12,), (2, 4), (2, 4)], {})]
    E: ClassVar = elements("E", f16, f32, f64)
    S: ClassVar = tensors("S", f16, f32, f64)
    x = operand_def(E)
    w = operand_def(E)
    bias = operand_def(E)
    h = operand_def(S)
    c = operand_def(S)
    new_h = result_def(S)
    new_c = result_def(S)

    def infer(self):
        return [self.h.type, self.c.type]

    def gates(self, b):
        both = calls.concat(b, [self.h, self.x], 1)
        sums = calls.op(b, "add", calls.op(b, "matmul", both, calls.transpose(b, self.w, (1, 0))), self.bias)
        n = shape_of(self.h.type)[1]
        return both, [calls.slice_dim(b, sums, 1, k * n, (k + 1) * n) for k in range(3)]

    def lower(self, b):
        _, (i, o, k) = self.gates(b)
        c = calls.map(b, Arg(1) + select(Arg(3), exp(Arg(3)) - 1.0, Arg(3) > 0) * sigmoid(Arg(2)), self.c, i, k)
        return [calls.map(b, tanh(Arg(1)) * sigmoid(Arg(2)), c, o), c]

    def gradient(self, b, grads):
        both, (i, o, k) = self.gates(b)
        d_o = calls.map(b, Arg(1) * tanh(Arg(2)) * sigmoid(Arg(3)) * (1.0 - sigmoid(Arg(3))), grads[0], self.new_c, o)
        d_c = calls.map(b, Arg(2) + Arg(1) * sigmoid(Arg(4)) * (1.0 - tanh(Arg(3)) * tanh(Arg(3))), *grads, self.new_c, o)
        d_i = calls.map(b, Arg(1) * select(Arg(3), exp(Arg(3)) - 1.0, Arg(3) > 0) * sigmoid(Arg(2)) * (1.0 - sigmoid(Arg(2))), d_c, i, k)
        d_k = calls.map(b, Arg(1) * sigmoid(Arg(2)) * select(1.0, exp(Arg(3)), Arg(3) > 0), d_c, i, k)
        d = calls.concat(b, [d_i, d_o, d_k], 1)
        d_both, n = calls.op(b, "matmul", d, self.w), shape_of(self.h.type)[1]
        d_h, d_x = calls.slice_dim(b, d_both, 1, 0, n), calls.slice_dim(b, d_both, 1, n, shape_of(both.type)[1])
        return [d_x, calls.op(b, "matmul", calls.transpose(b, d, (1, 0)), both), calls.reduce(b, "add", d, (0,)), d_h, d_c]


lltm = function_of(LltmOp)
