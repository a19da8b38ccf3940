"""Dropout whose seed is an operand: the gradient draws the same mask again, and keeps none."""

from populus.custom import (
    Arg,
    ClassVar,
    Input,
    PopartOp,
    calls,
    element_type_of,
    f32,
    f64,
    function_of,
    irdl_op_definition,
    number,
    operand_def,
    result_def,
    shape_of,
    tensors,
    ui32,
    whole,
)


@irdl_op_definition
class SeededDropoutOp(PopartOp):
    """`y = x m / (1 - ratio), m = 1 with probability 1 - ratio, else 0`. Source: Paddle phi dropout_kernel.cc."""

    name = "paddle.dropout"
    ONNX: ClassVar = ("org.paddle", "SeededDropout", 1)
    SEED: ClassVar = 1
    EXAMPLES: ClassVar = [([(4, 6), Input((2,), "uint32", low=0, high=1000)], {})]
    T: ClassVar = tensors("T", f32, f64)
    x = operand_def(T)
    seed = operand_def(tensors("S", ui32))
    y = result_def(T)
    ratio: float = number(0.5, low=0, high=0.9)
    stream: int = whole(3)

    def infer(self):
        return [self.x.type]

    def masked(self, b, v):
        of = {"shape": shape_of(v.type), "element": element_type_of(v.type)}
        mask = calls.op(b, "random", self.seed, distribution="bernoulli", a=1 - self.ratio, stream=self.stream, **of)
        return calls.map(b, Arg(1) * Arg(2) * (1 / (1 - self.ratio)), v, mask)

    def lower(self, b):
        return [self.masked(b, self.x)]

    def gradient(self, b, grads):
        return [self.masked(b, grads[0]), None]


dropout = function_of(SeededDropoutOp)
