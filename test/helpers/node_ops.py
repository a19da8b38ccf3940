"""Python files with ops for `test_custom_nodes.py`: operands that may be left out, attributes of all kinds, values of operands."""

HEAD = """
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import TensorType, f16, f32, f64, i32, i64
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, result_def, var_operand_def, var_result_def

from populus.write.builder import function_of
from populus.dialects.expr import Arg, tanh
from populus.dialects.popart import calls
from populus.dialects.popart.array import array
from populus.dialects.popart.base import BinaryOp, PopartOp, UnaryOp
from populus.dialects.support.constraints import elements, flag, number, numbers, tensors, text, texts, whole, wholes
from populus.dialects.support.element_types import element_type_of, shape_of, tensor
"""

# y = x + 10 p + 100 q + the sum of the rest; p and q may be left out. Two results beside: the number of operands, and -y.
OPTIONAL = (
    HEAD
    + '''

@irdl_op_definition
class MixOp(PopartOp):
    """`y = x + 10 p + 100 q + sum of r; n = -y; z = 2 y`. Source: a test."""

    name = "acme.mix"
    ONNX: ClassVar = ("com.acme", "Mix", 1)
    EXAMPLES: ClassVar = [([(3,), (3,), (3,), (3,)], {})]
    T: ClassVar = tensors("T", f32, f64)
    x = operand_def(T)
    p = opt_operand_def(T)
    q = opt_operand_def(T)
    r = var_operand_def(T)
    y = result_def(T)
    n = result_def(T)
    z = result_def(T)

    def infer(self):
        return [self.x.type] * 3

    def lower(self, b):
        y = self.x
        for factor, v in ((10.0, self.p), (100.0, self.q), *((1.0, v) for v in self.r)):
            if v is not None:
                y = calls.map(b, Arg(1) + Arg(2) * factor, y, v)
        return [y, calls.map(b, -Arg(1), y), calls.map(b, Arg(1) * 2.0, y)]


mix = function_of(MixOp)
'''
)

# What an op is told by its attributes, as numbers.
ATTRIBUTES = (
    HEAD
    + '''

@irdl_op_definition
class ToldOp(PopartOp):
    """`y = x times what the attributes say`. Source: a test."""

    name = "acme.told"
    ONNX: ClassVar = ("com.acme", "Told", 1)
    T: ClassVar = tensors("T", f32)
    x = operand_def(T)
    y = result_def(T)
    label: str = text("one")
    names: tuple[str, ...] = texts(())
    sizes: tuple[int, ...] = wholes(())
    scales: tuple[float, ...] = numbers((0.5, 2.0))
    table: np.ndarray = array(np.zeros((2, 2), np.float32))
    keep: bool = flag(True)
    n: int = whole(1)
    alpha: float = number(1.0)

    def infer(self):
        return [self.x.type]

    def factor(self):
        told = (len(self.label), sum(map(len, self.names)), sum(self.sizes), sum(self.scales), float(self.table.sum()))
        return float(sum(v * 10.0**i for i, v in enumerate((*told, self.keep, self.n, self.alpha))))

    def lower(self, b):
        return [calls.map(b, Arg(1) * self.factor(), self.x)]


told = function_of(ToldOp)
'''
)

# Concatenation along an axis that is a tensor, as Paddle's `concat` has it; and an op of constants, whose result a Reshape reads.
VALUES = (
    HEAD
    + '''

@irdl_op_definition
class JoinOp(PopartOp):
    """`y = the xs side by side along the axis`. Source: a test."""

    name = "acme.join"
    ONNX: ClassVar = ("com.acme", "Join", 1)
    CONSTANTS: ClassVar = ("axis",)
    E: ClassVar = elements("E", f32, f64)
    axis = operand_def(tensors("I", i32, i64))
    xs = var_operand_def(E)
    y = result_def(E)

    def infer(self):
        shape, axis = list(shape_of(self.xs[0].type)), int(self.value_of("axis").reshape(()))
        shape[axis] = sum(shape_of(x.type)[axis] for x in self.xs)
        return [tensor(shape, element_type_of(self.xs[0].type))]

    def lower(self, b):
        return [calls.concat(b, list(self.xs), int(self.value_of("axis").reshape(())))]

    def gradient(self, b, grads):
        axis, at, found = int(self.value_of("axis").reshape(())), 0, []
        for x in self.xs:
            n = shape_of(x.type)[axis]
            found.append(calls.slice_dim(b, grads[0], axis, at, at + n))
            at += n
        return [None, *found]


@irdl_op_definition
class TwiceOp(PopartOp):
    """`y = x + x`. Source: a test."""

    name = "acme.twice"
    ONNX: ClassVar = ("com.acme", "Twice", 1)
    T: ClassVar = tensors("T", f32, i64)
    x = operand_def(T)
    y = result_def(T)

    def infer(self):
        return [self.x.type]

    def lower(self, b):
        return [calls.map(b, Arg(1) + Arg(1), self.x)]


@irdl_op_definition
class SquashOp(UnaryOp):
    """`y = tanh(x) + 1`. Source: a test."""

    name = "acme.squash"
    ONNX: ClassVar = ("com.acme", "Squash", 1)
    T: ClassVar = tensors("T", f32)
    x = operand_def(T)
    y = result_def(T)

    def forward(self, x):
        return tanh(x) + 1.0


class Sums:
    """The sums over the last of two dimensions, or over both."""

    KEPT: ClassVar = 0
    E: ClassVar = elements("E", f32)
    x = operand_def(E)
    y = result_def(E)

    def infer(self):
        return [tensor(shape_of(self.x.type)[: self.KEPT], f32)]

    def lower(self, b):
        return [calls.reduce(b, "add", self.x, tuple(range(self.KEPT, 2)))]


@irdl_op_definition
class RowsOp(Sums, PopartOp):
    """`y[i] = sum of x[i]`. Source: a test."""

    name = "acme.rows"
    ONNX: ClassVar = ("com.acme", "Rows", 1)
    KEPT: ClassVar = 1

    def independent(self):
        return [(0, 0, 0, 0)]


@irdl_op_definition
class TotalOp(Sums, PopartOp):
    """`y = sum of x`. Source: a test."""

    name = "acme.total"
    ONNX: ClassVar = ("com.acme", "Total", 1)


@irdl_op_definition
class TotalOfOp(Sums, PopartOp):
    """`y = sum of x`. Source: a test."""

    name = "acme.total_of"
    ONNX: ClassVar = ("com.acme", "TotalOf", 1)

    def neutral(self):
        return [(0, 0, "zero"), (0, 1, "zero")]


@irdl_op_definition
class SharesOp(PopartOp):
    """`y[i, k] = x[i, k] / product of w[j] x[j, k] over j`. Source: a test."""

    name = "acme.shares"
    ONNX: ClassVar = ("com.acme", "Shares", 1)
    E: ClassVar = elements("E", f32)
    x = operand_def(E)
    w = operand_def(E)
    y = result_def(E)

    def infer(self):
        return [self.x.type]

    def lower(self, b):
        terms = calls.map(b, Arg(1) * Arg(2), self.x, calls.reshape(b, self.w, (*shape_of(self.w.type), 1)))
        product = calls.reduce(b, "mul", terms, (0,))
        return [calls.map(b, Arg(1) / Arg(2), self.x, calls.reshape(b, product, (1, *shape_of(product.type))))]

    def independent(self):
        return [(0, 1, 0, 1)]

    def neutral(self):
        return [(0, 0, "one", 0), (1, 0, "one", 0)]


join, twice = function_of(JoinOp), function_of(TwiceOp)
'''
)

# An op made of another one and its own formula.
CALLING = '''

@irdl_op_definition
class HalfSoftmaxOp(PopartOp):
    """`y = softmax(x) / 2`. Source: a test."""

    name = "acme.half_softmax"
    T: ClassVar = tensors("T", f32, f64)
    x = operand_def(T)
    y = result_def(T)

    def infer(self):
        return [self.x.type]

    def lower(self, b):
        (p,) = calls.ops(b, "softmax", self.x, axis=1)
        return [calls.op(b, "mul", p, calls.fill(b, 0.5, calls.element(p)))]


half_softmax = function_of(HalfSoftmaxOp)
'''

# Complex numbers as pairs, [.., 2].
COMPLEX = (
    HEAD
    + '''

class Pairs:
    T: ClassVar = tensors("T", f32, f64)
    z = operand_def(T)
    y = result_def(T)

    def infer(self):
        return [self.z.type]

    def parts(self, b, v):
        n = shape_of(v.type)
        return [calls.slice_dim(b, v, len(n) - 1, i, i + 1) for i in (0, 1)]

    def joined(self, b, real, imaginary):
        return [calls.concat(b, [real, imaginary], len(shape_of(real.type)) - 1)]


@irdl_op_definition
class ConjOp(Pairs, PopartOp):
    """`y = the conjugate of z`. Source: Paddle test/custom_op/custom_conj_op.cc."""

    name = "acme.conj"
    ONNX: ClassVar = ("com.acme", "Conj", 1)
    EXAMPLES: ClassVar = [([(3, 2)], {})]

    def lower(self, b):
        real, imaginary = self.parts(b, self.z)
        return self.joined(b, real, calls.map(b, -Arg(1), imaginary))

    def gradient(self, b, grads):
        return [calls.op(b, ConjOp, grads[0])]


@irdl_op_definition
class TimesOp(Pairs, PopartOp):
    """`y = z w`. Source: a test."""

    name = "acme.times"
    ONNX: ClassVar = ("com.acme", "Times", 1)
    w = operand_def(Pairs.T)

    def lower(self, b):
        a, c, d, e = *self.parts(b, self.z), *self.parts(b, self.w)
        real = calls.map(b, Arg(1) * Arg(3) - Arg(2) * Arg(4), a, c, d, e)
        return self.joined(b, real, calls.map(b, Arg(1) * Arg(4) + Arg(2) * Arg(3), a, c, d, e))


@irdl_op_definition
class Size2Op(Pairs, PopartOp):
    """`y = |z|^2`. Source: a test."""

    name = "acme.size2"
    ONNX: ClassVar = ("com.acme", "Size2", 1)
    y = result_def(tensors("U", f32, f64))

    def infer(self):
        return [tensor(shape_of(self.z.type)[:-1], element_type_of(self.z.type))]

    def lower(self, b):
        return [calls.reduce(b, "square_add", self.z, (len(shape_of(self.z.type)) - 1,))]
'''
)

# An element-wise op of two operands.
PLUS = (
    HEAD
    + '''

@irdl_op_definition
class PlusOp(BinaryOp):
    """`y = a + b`. Source: a test."""

    name = "acme.plus"
    ONNX: ClassVar = ("com.acme", "Plus", 1)

    def forward(self, a, b):
        return a + b
'''
)
