"""An addition whose second operand may be left out, and its gradient, as Paddle's test of optional operands has them."""

from populus.custom import (
    Arg,
    ClassVar,
    PopartOp,
    calls,
    f16,
    f32,
    f64,
    function_of,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    result_def,
    tensors,
    var_operand_def,
)


@irdl_op_definition
class OptionalAddOp(PopartOp):
    """`out = x + y, or 2 x without y`. Source: Paddle test/custom_op/custom_optional.cc."""

    name = "paddle.optional_add"
    ONNX: ClassVar = ("org.paddle", "OptionalAdd", 1)
    EXAMPLES: ClassVar = [([(3, 4)], {}), ([(3, 4), (3, 4)], {}), ([(3, 4), None, (3, 4), (3, 4)], {})]
    T: ClassVar = tensors("T", f16, f32, f64)
    x = operand_def(T)
    y = opt_operand_def(T)
    more = var_operand_def(T)
    out = result_def(T)

    def infer(self):
        return [self.x.type]

    def lower(self, b):
        values = [self.x, self.x if self.y is None else self.y, *self.more]
        total = values[0]
        for v in values[1:]:
            total = calls.map(b, Arg(1) + Arg(2), total, v)
        return [total]

    def gradient(self, b, grads):
        g = grads[0]
        return [calls.map(b, Arg(1) * 2.0, g) if self.y is None else g] + [g] * (len(self.operands) - 1)


optional_add = function_of(OptionalAddOp)
