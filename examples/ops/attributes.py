"""An op whose attributes are of every kind, as Paddle's test of attributes has them."""

import numpy as np

from populus.custom import (
    Arg,
    ClassVar,
    PopartOp,
    array,
    calls,
    f32,
    f64,
    flag,
    function_of,
    irdl_op_definition,
    number,
    numbers,
    operand_def,
    result_def,
    tensors,
    text,
    texts,
    whole,
    wholes,
)


@irdl_op_definition
class AttributesOp(PopartOp):
    """`y = x scale + offset`: scale and offset are made of all attributes. Source: Paddle test/custom_op/attr_test_op.cc."""

    name = "paddle.attributes"
    ONNX: ClassVar = ("org.paddle", "Attributes", 1)
    T: ClassVar = tensors("T", f32, f64)
    x = operand_def(T)
    y = result_def(T)
    bool_attr: bool = flag(True)
    int_attr: int = whole(10)
    float_attr: float = number(3.25)
    str_attr: str = text("StrAttr")
    int_vec: tuple[int, ...] = wholes((10, 10, 10))
    float_vec: tuple[float, ...] = numbers((3.25, 3.25, 3.25))
    str_vec: tuple[str, ...] = texts(("StrAttr", "StrAttr"))
    table: np.ndarray = array(np.ones((2, 2), np.float32))

    def infer(self):
        return [self.x.type]

    def lower(self, b):
        scale = self.float_attr * self.int_attr * (1.0 if self.bool_attr else -1.0) + sum(self.float_vec)
        offset = len(self.str_attr) + sum(map(len, self.str_vec)) + sum(self.int_vec) + float(self.table.sum())
        return [calls.map(b, Arg(1) * scale + offset, self.x)]

    def gradient(self, b, grads):
        scale = self.float_attr * self.int_attr * (1.0 if self.bool_attr else -1.0) + sum(self.float_vec)
        return [calls.map(b, Arg(1) * scale, grads[0])]


attributes = function_of(AttributesOp)
