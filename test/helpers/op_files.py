"""Python files that several rows' tests load, behind the text of `examples/leaky_relu.py`."""

from pathlib import Path

KERNEL_SELECTION = Path(__file__).parents[2] / "examples/kernels/kernels.py"

# A gradient that is an op of its own: X2, X10, P13.
PAIR = '''

from populus.dialects.popart.base import BinaryOp


@irdl_op_definition
class SoftClipGradOp(BinaryOp):
    """`y = a (1 - limit tanh(b)^2)`, the gradient of soft_clip: a that of its result, b its operand. Source: a test."""

    name = "acme.soft_clip_grad"
    ONNX: ClassVar = ("com.acme", "SoftClipGrad", 1)
    INTERNAL: ClassVar = True
    T: ClassVar = tensors("T", f16, f32, f64)
    a = operand_def(T)
    b = operand_def(T)
    y = result_def(T)
    limit: float = number(1.0, low=0, high=8)

    def forward(self, a: Expr, b: Expr) -> Expr:
        return self.limit * a * (1 - tanh(b) * tanh(b))


@irdl_op_definition
class SoftClipOp(UnaryOp):
    """`y = limit tanh(x)`. Source: a test."""

    name = "acme.soft_clip"
    ONNX: ClassVar = ("com.acme", "SoftClip", 1)
    T: ClassVar = tensors("T", f16, f32, f64)
    x = operand_def(T)
    y = result_def(T)
    limit: float = number(1.0, low=0, high=8)

    def forward(self, x: Expr) -> Expr:
        return self.limit * tanh(x)

    def gradient(self, b, grads):
        return [b.insert(SoftClipGradOp(grads[0], self.x, limit=self.limit)).y]


soft_clip = function_of(SoftClipOp)
from populus.dialects.expr import tanh
'''

# An op that says what it is, and not how tiles compute it: P1.
NO_LOWERING = '''

from populus.dialects.popart.base import PopartOp


@irdl_op_definition
class ReverseOp(PopartOp):
    """`y[i] = x[n - 1 - i]`. Source: a test."""

    name = "acme.reverse"
    T: ClassVar = tensors("T", f16, f32, f64)
    x = operand_def(T)
    y = result_def(T)

    def infer(self):
        return [self.x.type]

    def evaluate(self, x):
        return [x[::-1].copy()]


reverse = function_of(ReverseOp)
'''

# Kernels of the example's op: `blocked` in blocks of 8 channels, `both` planar or packed; and the pass that chooses among them.
KERNELS = f"""

from dataclasses import dataclass

from populus.dialects.popart import calls
from populus.lowering.driver.extensions import read

kernels = read({str(KERNEL_SELECTION)!r}).module
NCHW8C, PLANAR, Config, Kernel = kernels.NCHW8C, kernels.PLANAR, kernels.Config, kernels.Kernel


class Blocked(Kernel):
    op, name = LeakyReluOp, "blocked"
    arity, rank, dtypes = (1, 1), 4, (f32,)

    def configs(self, op):
        return [Config((NCHW8C,), (NCHW8C,), cost=0.25)]

    def lower(self, b, op, operands, config):
        return [calls.map(b, op.formula(), *operands)]


class Both(Kernel):
    op, name = LeakyReluOp, "both"
    rank = 4

    def configs(self, op):
        return [Config((PLANAR,), (PLANAR,), cost=0.9), Config((PLANAR,), (NCHW8C,), cost=4.0)]

    def lower(self, b, op, operands, config):
        return [config.outputs[0].packed(b, calls.map(b, op.formula(), *operands))]


@dataclass(frozen=True)
class AcmeSelectKernelsPass(kernels.SelectKernelsPass):
    name = "acme-select-kernels"
    KERNELS: ClassVar = (Blocked, Both)
"""

# A dropout of one's own, whose seed is an operand: P23.
DROPOUT = '''

from xdsl.dialects.builtin import TensorType

from populus.dialects.support.constraints import whole
from populus.dialects.expr import Arg
from populus.dialects.popart import RandomOp, calls
from populus.dialects.popart.base import PopartOp


@irdl_op_definition
class NoiseOp(PopartOp):
    """`y = x m / keep, m = 1 with probability keep, else 0`. Source: a test."""

    name = "acme.noise"
    SEED: ClassVar = 1
    T: ClassVar = tensors("T", f16, f32, f64)
    x = operand_def(T)
    seed = operand_def(TensorType)
    y = result_def(T)
    keep: float = number(0.5, low=0, high=1)
    stream: int = whole(-1)

    def infer(self):
        return [self.x.type]

    def masked(self, b, value):
        keep = self.keep
        mask = b.insert(RandomOp(self.seed, distribution="bernoulli", a=keep, stream=self.stream, shape=self.x.type.get_shape())).y
        return calls.map(b, Arg(1) * Arg(2) * (1 / keep), value, mask)

    def lower(self, b):
        return [self.masked(b, self.x)]

    def gradient(self, b, grads):
        return [self.masked(b, grads[0]), None]


noise = function_of(NoiseOp)
'''
