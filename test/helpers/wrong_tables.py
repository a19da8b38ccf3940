"""Wrong definitions of an op that reads rows of a table, for `populus check-op`."""

# Rows of a table by number.
TABLE = '''
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import TensorType, UnitAttr, f16, f32, f64, i32, i64
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def

from populus.dialects.expr import Arg
from populus.dialects.popart import calls
from populus.dialects.popart.base import PopartOp
from populus.dialects.popart.examples import Input
from populus.dialects.support.constraints import elements, flag, tensors
from populus.dialects.support.element_types import element_type_of, shape_of, tensor


@irdl_op_definition
class PickOp(PopartOp):
    """`y[i] = table[number[i]]`. Source: a test."""

    name = "acme.pick"
    ONNX: ClassVar = ("com.acme", "Pick", 1)
    EXAMPLES: ClassVar = [([(5, 3), Input((4,), "int64", low=0, high=4)], {})]
    table = operand_def(tensors("T", f32, f64))
    number = operand_def(tensors("I", i64))
    y = result_def(tensors("U", f32, f64))
    negate: bool = flag()

    def infer(self):
        return [tensor((*shape_of(self.number.type), shape_of(self.table.type)[1]), element_type_of(self.table.type))]

    def evaluate(self, table, number):
        return [table[number] * (-1 if self.negate else 1)]

    def lower(self, b):
        y = calls.op(b, "gather", self.table, self.number, axis=0)
        return [calls.map(b, -Arg(1), y) if self.negate else y]

    def independent(self):
        return [(1, 0, 0, 0)]
'''

# (name, texts and what replaces them, what the lines say)
WRONG_TABLES = [
    (
        "numbers up to 3",
        (("table[number] *", "table[np.minimum(number, 3)] *"),),
        ("evaluate: its `evaluate` gives other values than its lowering for y",),
    ),
    (
        "numbers that were seen",
        (("table[number] *", "table[number if number.sum() == 8 else number * 0] *"),),
        ("integers: for other integers popops gives other values than popart for y",),
    ),
    (
        "an attribute that evaluate does not read",
        (("(-1 if self.negate else 1)", "1"),),
        ("attributes: with 'negate' = True popops gives other values than popart for y",),
    ),
    (
        "an attribute that no node can have",
        (("negate: bool = flag()", "negate = prop_def(UnitAttr)"), ("high=4)], {})", 'high=4)], {"negate": UnitAttr()})')),
        ("ONNX model: ", "acme.pick needs the attribute 'negate'"),
    ),
    (
        "a result of any type that the schema has as floats",
        (('result_def(tensors("U", f32, f64))', 'result_def(tensors("U", f64))'),),
        ("example: ",),
    ),
    ("numbers outside of the table", (("low=0, high=4", "low=0, high=9"),), ("evaluate: acme.pick: its `evaluate` raises IndexError",)),
]
