"""Optimizers: ops that update a weight and its state from a gradient.

    %w1, %v1, %t1 = train.momentum %w, %g, %v, %t, %rate, %decay, %momentum, %damping : ...

Hyperparameters are scalar tensors, so that a schedule changes them without compiling again. An average's beta is given as
`1 - beta`, which keeps its accuracy in f32. Weights and gradients may be of 16 bits; states and scalars are then f32, and so is
the arithmetic and, where it was summed or scaled, the gradient. `step`, a scalar of the state, counts the updates before this one.
"""

# The lambdas that formulas are take expressions, which pyright does not see through a Callable of any arity.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import TensorType, bf16, f16, f32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects import expr
from populus.dialects.base.tensor_op import HIGH_VALUE
from populus.dialects.expr import Arg, Expr, cast, equal, select
from populus.dialects.popart import calls
from populus.dialects.popart import optimizer_formulas as formulas
from populus.dialects.popart.base import PopartOp
from populus.dialects.support.constraints import choice, flag
from populus.dialects.support.element_types import is_float, shape_of, tensor


def wide(weight: Attribute) -> Attribute:
    """Returns the element type of states and scalars for weights of an element type."""
    return f32 if weight in (f16, bf16) else weight


def mapped(b: Builder, formula: Callable[..., Expr], *values: SSAValue) -> SSAValue:
    """Inserts `popops.map` with the formula that a Python function builds from one expression per value."""
    return calls.map(b, formula(*(Arg(i) for i in range(1, len(values) + 1))), *values)


class OptimizerOp(PopartOp):
    """`weight, given, STATE.., SCALARS.. -> new_weight, new_STATE..`. A subclass states the names and `update`."""

    OUTLINE_VALUE: ClassVar[float] = HIGH_VALUE

    STATE: ClassVar[tuple[str, ...]] = ()
    SCALARS: ClassVar[tuple[str, ...]] = ()

    if TYPE_CHECKING:  # `__init_subclass__` declares them
        rate: SSAValue
        decay: SSAValue
        velocity: SSAValue
        step: SSAValue
        momentum: SSAValue
        damping: SSAValue
        mean: SSAValue
        square: SSAValue
        rest1: SSAValue
        rest2: SSAValue
        epsilon: SSAValue
        rest: SSAValue
        slowing: SSAValue
        moved: SSAValue
        limit: SSAValue

    def __init_subclass__(cls, **options: Any) -> None:
        """Declares the operands and results. Each class declares all of them: xDSL puts those of a base class last."""
        super().__init_subclass__(**options)
        for name in ("weight", "given", *cls.STATE, *cls.SCALARS):
            setattr(cls, name, operand_def(TensorType))
        for name in ("weight", *cls.STATE):
            setattr(cls, f"new_{name}", result_def(TensorType))

    def update(self, b: Builder, w: SSAValue, g: SSAValue) -> Sequence[SSAValue]:
        """Builds the new weight and state, in the wide type."""
        raise NotImplementedError

    @classmethod
    def state_types(cls, weight: TensorType[Attribute]) -> list[TensorType[Attribute]]:
        """Lists the types of a weight's state."""
        element = wide(weight.element_type)
        return [tensor(() if name == "step" else weight.get_shape(), element) for name in cls.STATE]

    def infer(self) -> Sequence[TensorType[Attribute]]:
        weight = self.operands[0].type
        assert isinstance(weight, TensorType)
        gradient = self.operands[1].type
        if not is_float(weight.element_type) or gradient not in (weight, tensor(shape_of(weight), wide(weight.element_type))):
            raise VerifyException(f"the weight is {weight} and its gradient {gradient}; equal types of floats are expected")
        states = self.state_types(weight)
        names = [*self.STATE, *self.SCALARS]
        for name, operand, type in zip(names, self.operands[2:], [*states, *[tensor((), wide(weight.element_type))] * len(self.SCALARS)]):
            if operand.type != type:
                raise VerifyException(f"{name} is {operand.type}; {type} is expected")
        return [tensor(shape_of(weight), weight.element_type), *states]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        element = calls.element(self.operands[0])
        inside = wide(element)
        w, g = self.operands[:2]
        w, g = (v if calls.element(v) == inside else mapped(b, lambda x: cast(x, inside), v) for v in (w, g))
        weight, *states = self.update(b, w, g)
        if inside != element:
            weight = mapped(b, lambda x: cast(x, element), weight)
        return [weight, *states]


def adadelta(b: Builder, u: SSAValue, v: SSAValue, d: SSAValue, epsilon: SSAValue, rest: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Computes Adadelta's step x, and the new running average u of x^2."""
    x = mapped(b, formulas.adadelta, u, v, d, epsilon)
    return x, mapped(b, formulas.average_square, u, x, rest)


def counted(b: Builder, step: SSAValue) -> SSAValue:
    """Adds 1 to the count of steps."""
    return mapped(b, lambda t: t + 1, step)


@irdl_op_definition
class SgdOp(OptimizerOp):
    """`w -= rate (g + decay w)`. Source: PyTorch SGD."""

    name = "train.sgd"
    SCALARS: ClassVar = ("rate", "decay")

    def update(self, b: Builder, w: SSAValue, g: SSAValue) -> Sequence[SSAValue]:
        return [mapped(b, lambda w, g, r, d: formulas.descend(w, formulas.plus_decay(g, w, d), r), w, g, self.rate, self.decay)]


def stepped(b: Builder, w: SSAValue, d: SSAValue, v: SSAValue, op: MomentumOp | VelocityOp) -> SSAValue:
    """Builds `w - rate v`, or `w - rate (d + momentum v)` with `nesterov`."""
    if op.nesterov:
        return mapped(b, lambda w, d, v, m, r: w - r * (d + m * v), w, d, v, op.momentum, op.rate)
    return mapped(b, formulas.descend, w, v, op.rate)


@irdl_op_definition
class MomentumOp(OptimizerOp):
    """`v = momentum v + (1 - damping) d` with `d = g + decay w` (v = d in the first step); `w -= rate v`.

    With `nesterov`, `w -= rate (d + momentum v)`. Source: PyTorch SGD.
    """

    name = "train.momentum"
    STATE: ClassVar = ("velocity", "step")
    SCALARS: ClassVar = ("rate", "decay", "momentum", "damping")
    nesterov = flag()

    def update(self, b: Builder, w: SSAValue, g: SSAValue) -> Sequence[SSAValue]:
        d = mapped(b, formulas.plus_decay, g, w, self.decay)
        first = mapped(b, lambda t: equal(t, 0.0), self.step)
        v = mapped(b, lambda v, d, m, p, f: select(d, m * v + (1 - p) * d, f), self.velocity, d, self.momentum, self.damping, first)
        return [stepped(b, w, d, v, self), v, counted(b, self.step)]


@irdl_op_definition
class VelocityOp(OptimizerOp):
    """As `train.momentum`, but the first step is as the others: v begins with zeros. Source: Graphcore, PopART `SGD`."""

    name = "train.velocity"
    STATE: ClassVar = ("velocity",)
    SCALARS: ClassVar = ("rate", "decay", "momentum", "damping")
    nesterov = flag()

    def update(self, b: Builder, w: SSAValue, g: SSAValue) -> Sequence[SSAValue]:
        d = mapped(b, formulas.plus_decay, g, w, self.decay)
        v = mapped(b, lambda v, d, m, p: m * v + (1 - p) * d, self.velocity, d, self.momentum, self.damping)
        return [stepped(b, w, d, v, self), v]


class _AdamOp(OptimizerOp):
    """With `biased`, neither average is divided by `1 - beta^t`."""

    STATE: ClassVar = ("mean", "square", "step")
    SCALARS: ClassVar = ("rate", "decay", "rest1", "rest2", "epsilon")
    biased = flag()

    def moments(self, b: Builder, g: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue, SSAValue]:
        """Builds the new averages and step, and `m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon)`."""
        t = counted(b, self.step)
        m, v = mapped(b, formulas.average, self.mean, g, self.rest1), mapped(b, formulas.average_square, self.square, g, self.rest2)
        if self.biased:
            return m, v, t, mapped(b, formulas.adam, m, v, self.epsilon)
        c1, c2 = (mapped(b, formulas.correction, t, rest) for rest in (self.rest1, self.rest2))
        x = mapped(b, formulas.corrected_adam, m, v, c1, c2, self.epsilon)
        return m, v, t, x


@irdl_op_definition
class AdamOp(_AdamOp):
    """`m, v` the averages of d and d^2 with `d = g + decay w`; `w -= rate m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon)`.

    Source: Kingma and Ba, 2015; PyTorch Adam.
    """

    name = "train.adam"

    def update(self, b: Builder, w: SSAValue, g: SSAValue) -> Sequence[SSAValue]:
        m, v, t, x = self.moments(b, mapped(b, formulas.plus_decay, g, w, self.decay))
        return [mapped(b, formulas.descend, w, x, self.rate), m, v, t]


@irdl_op_definition
class AdamWOp(_AdamOp):
    """As `train.adam`, but the decay is of the weight itself: `w (1 - rate decay)` is what is updated.

    Source: Loshchilov and Hutter, 2019; PyTorch AdamW.
    """

    name = "train.adamw"

    def update(self, b: Builder, w: SSAValue, g: SSAValue) -> Sequence[SSAValue]:
        m, v, t, x = self.moments(b, g)
        return [mapped(b, formulas.descend, mapped(b, formulas.shrink, w, self.rate, self.decay), x, self.rate), m, v, t]


@irdl_op_definition
class LambOp(_AdamOp):
    """`x = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + decay w`; `w -= rate min(|w|, limit) / |x| x`.

    The ratio is 1 where a norm is 0. Source: You et al., 2020.
    """

    name = "train.lamb"
    SCALARS: ClassVar = (*_AdamOp.SCALARS, "limit")

    def update(self, b: Builder, w: SSAValue, g: SSAValue) -> Sequence[SSAValue]:
        m, v, t, x = self.moments(b, g)
        x = mapped(b, formulas.plus_decay, x, w, self.decay)
        sizes = [calls.reduce(b, "square_add", value, range(len(calls.shape(w)))) for value in (w, x)]
        rate = mapped(b, lambda p, q, r, k: r * formulas.trust(p, q, k), *sizes, self.rate, self.limit)
        return [mapped(b, formulas.descend, w, x, rate), m, v, t]


@irdl_op_definition
class AdaMaxOp(_AdamOp):
    """`m` the average of `d = g + decay w`, `u = max(beta2 u, |d| + epsilon)`; `w -= rate m / (1 - beta1^t) / u`. u is `square`.

    With `outside`, epsilon is added to u where it divides: `u = max(beta2 u, |d|)`; `w -= rate m / (1 - beta1^t) / (u + epsilon)`.
    Source: Kingma and Ba, 2015, section 7; PyTorch Adamax; `outside`: Graphcore, PopART `AdamMode.AdaMax`.
    """

    name = "train.adamax"
    outside = flag()

    def update(self, b: Builder, w: SSAValue, g: SSAValue) -> Sequence[SSAValue]:
        d, t = mapped(b, formulas.plus_decay, g, w, self.decay), counted(b, self.step)
        m = mapped(b, formulas.average, self.mean, d, self.rest1)
        if self.outside:
            u = mapped(b, lambda u, d, c: formulas.decayed_max(u, expr.absolute(d), c), self.square, d, self.rest2)
            below = mapped(b, lambda u, e: u + e, u, self.epsilon)
        else:
            u = mapped(b, lambda u, d, c, e: formulas.decayed_max(u, expr.absolute(d) + e, c), self.square, d, self.rest2, self.epsilon)
            below = u
        rate = mapped(b, lambda r, t, c: r / formulas.correction(t, c), self.rate, t, self.rest1)
        return [mapped(b, lambda w, m, u, r: w - r * (m / u), w, m, below, rate), m, u, t]


@irdl_op_definition
class RmsPropOp(OptimizerOp):
    """`v` the average of d^2 with `d = g + decay w`; `n = momentum n + d / (sqrt(v) + epsilon)`; `w -= rate n`.

    With `centered`, the variance `v - a^2` is in place of v, a the average of d. With `inside`, the divisor is `sqrt(v + epsilon)`.
    `squares` `sum`: v is the sum of d^2, as Adagrad's. `moving`: a is the average of what `n` adds, x^2, and
    `x = sqrt(a + epsilon) / sqrt(v + epsilon) d`, as Adadelta's.
    Source: PyTorch RMSprop; `inside`, `squares` and `moving`: Graphcore, PopART `Adaptive`.
    """

    name = "train.rmsprop"
    STATE: ClassVar = ("square", "mean", "velocity")
    SCALARS: ClassVar = ("rate", "decay", "rest", "epsilon", "momentum")
    centered = flag()
    inside = flag()
    moving = flag()
    squares = choice(("average", "sum"), "average")

    def update(self, b: Builder, w: SSAValue, g: SSAValue) -> Sequence[SSAValue]:
        d = mapped(b, formulas.plus_decay, g, w, self.decay)
        if self.squares == "sum":
            v = mapped(b, formulas.sum_square, self.square, d)
        else:
            v = mapped(b, formulas.average_square, self.square, d, self.rest)
        a, spread = self.mean, v
        if self.moving:
            x, a = adadelta(b, a, v, d, self.epsilon, self.rest)
            n = mapped(b, lambda n, x, k: k * n + x, self.velocity, x, self.momentum)
            return [mapped(b, formulas.descend, w, n, self.rate), v, a, n]
        if self.centered:
            a = mapped(b, formulas.average, self.mean, d, self.rest)
            spread = mapped(b, lambda v, a: v - a * a, v, a)
        below = (lambda s, e: expr.sqrt(s + e)) if self.inside else (lambda s, e: expr.sqrt(s) + e)
        n = mapped(b, lambda n, d, s, e, k: k * n + d / below(s, e), self.velocity, d, spread, self.epsilon, self.momentum)
        return [mapped(b, formulas.descend, w, n, self.rate), v, a, n]


@irdl_op_definition
class AdagradOp(OptimizerOp):
    """`s += d^2` with `d = g + decay w`; `w -= rate / (1 + t slowing) d / (sqrt(s) + epsilon)`, t the steps before.

    Source: Duchi et al., 2011; PyTorch Adagrad; ONNX ai.onnx.preview.training Adagrad-1.
    """

    name = "train.adagrad"
    STATE: ClassVar = ("square", "step")
    SCALARS: ClassVar = ("rate", "decay", "slowing", "epsilon")

    def update(self, b: Builder, w: SSAValue, g: SSAValue) -> Sequence[SSAValue]:
        d = mapped(b, formulas.plus_decay, g, w, self.decay)
        s = mapped(b, formulas.sum_square, self.square, d)
        rate = mapped(b, lambda r, t, k: r / (1 + t * k), self.rate, self.step, self.slowing)
        weight = mapped(b, lambda w, d, s, e, r: w - r * (d / (expr.sqrt(s) + e)), w, d, s, self.epsilon, rate)
        return [weight, s, counted(b, self.step)]


@irdl_op_definition
class AdadeltaOp(OptimizerOp):
    """`v` the average of d^2 with `d = g + decay w`; `x = sqrt((u + epsilon) / (v + epsilon)) d`; `w -= rate x`; u the average of x^2.

    Source: Zeiler, 2012; PyTorch Adadelta.
    """

    name = "train.adadelta"
    STATE: ClassVar = ("square", "moved")
    SCALARS: ClassVar = ("rate", "decay", "rest", "epsilon")

    def update(self, b: Builder, w: SSAValue, g: SSAValue) -> Sequence[SSAValue]:
        d = mapped(b, formulas.plus_decay, g, w, self.decay)
        v = mapped(b, formulas.average_square, self.square, d, self.rest)
        x, u = adadelta(b, self.moved, v, d, self.epsilon, self.rest)
        return [mapped(b, formulas.descend, w, x, self.rate), v, u]
