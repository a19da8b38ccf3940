"""Two sums, each of which may overwrite its first operand, as Paddle's test of several operands in place has them."""

from populus.custom import Arg, ClassVar, PopartOp, calls, f16, f32, f64, function_of, irdl_op_definition, operand_def, result_def, tensors


@irdl_op_definition
class TwoSumsOp(PopartOp):
    """`out_xy = x + y; out_ab = a + b`. Source: Paddle test/custom_op/custom_inplace.cc."""

    name = "paddle.two_sums"
    ONNX: ClassVar = ("org.paddle", "TwoSums", 1)
    T: ClassVar = tensors("T", f16, f32, f64)
    U: ClassVar = tensors("U", f16, f32, f64)
    x = operand_def(T)
    y = operand_def(T)
    a = operand_def(U)
    b = operand_def(U)
    out_xy = result_def(T)
    out_ab = result_def(U)

    def infer(self):
        return [self.x.type, self.a.type]

    def lower(self, b):
        return [calls.map(b, Arg(1) + Arg(2), self.x, self.y), calls.map(b, Arg(1) + Arg(2), self.a, self.b)]

    def gradient(self, b, grads):
        return [grads[0], grads[0], grads[1], grads[1]]

    def aliases(self):
        return [(0, 0), (2, 1)]

    def inplace_priority(self):
        return [(0, 10.0, 0), (2, 10.0, 1)]


two_sums = function_of(TwoSumsOp)
