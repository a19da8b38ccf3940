"""What an op of this level can say about itself; built-in ops and yours are made with the same classes.

A custom op is a class and nothing else. Element-wise, it is a formula:

    @irdl_op_definition
    class CubeOp(UnaryOp):
        \"\"\"`y = x^3`.\"\"\"

        name = "custom.cube"

        def forward(self, x: Expr) -> Expr:
            return x * x * x

Otherwise derive from `PopartOp` and write `infer` (shape rule), `lower` (library calls) and, to train through it,
`gradient` and `aliases`. Passes and interpreters ask these methods and know no op by name.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

from xdsl.builder import Builder
from xdsl.dialects.builtin import DenseArrayBase, TensorType, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import BaseAttr, VarConstraint, operand_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects import expr
from populus.dialects.base.tensor_op import Plain, TensorOp, ints
from populus.dialects.expr import Arg, Expr
from populus.dialects.popart import calls
from populus.dialects.support import shapes, user_op_errors
from populus.dialects.support.constraints import flag
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import element_type_of, shape_of, tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

Examples: TypeAlias = "Sequence[tuple[Sequence[tuple[int, ...]], Mapping[str, Plain]]]"


class NoGradient(PopulusError):
    """A gradient was asked of an op that has none."""


class PopartOp(TensorOp):
    """An op on immutable tensors of static shape, with what passes may ask of it.

    `EXAMPLES`: operand shapes and attributes with which `populus check-op` tries the op; without it, all operands have one shape.
    `INTERNAL`: made by passes alone, as a gradient that is an op of its own is; a node of a model that names it is refused.
    `SEED`: which operand is the seed of its random numbers; in training another for each run, by `popart-seed`.
    """

    EXAMPLES: ClassVar[Examples] = ()
    INTERNAL: ClassVar[bool] = False
    SEED: ClassVar[int | None] = None

    def evaluate(self, *arrays: NDArray[Any]) -> Sequence[NDArray[Any]]:
        """The results for the operands' arrays, by NumPy: what the op is at this level, apart from any lowering.

        Not for element-wise ops, whose formula says it. Without it, the values are those of what `lower` gives.
        """
        raise NotImplementedError

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        """The gradient of each operand (None: nothing flows to it), given those of the results; inserts ops at `b`.

        Operands, results and `grads` may be read: only what is read has to be kept until then.
        Raises NoGradient where the op does not state one.
        """
        raise NoGradient(f"{where(self)}: {self.name} has no gradient; leave it out of what is differentiated or give its class `gradient`")

    def inplace_priority(self) -> Sequence[tuple[int, float]]:
        """(operand, priority) of those that the first result may overwrite. Of priority 0 or less: never. `popart-inplace` chooses.

        Source: PopART's `inplacePriorityDefault`, where nearly all are 10.
        """
        return ()

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        """The values that replace the results, from `popops`, `poplin`, `popnn` and `poprand` ops inserted at `b`.

        Raises PopulusError where the op does not state them.
        """
        raise PopulusError(f"{where(self)}: {self.name} has no lowering; give its class `lower`, or `forward` if it is element-wise")


class ElementwiseOp(PopartOp):
    """`y[i] = forward(x1[i], x2[i], ...)`, operands broadcast against each other. One result.

    A subclass declares its operands, properties and `y`, and `forward`. Literals in the formula take the element type
    of what they meet; different element types do not mix without a `cast`.
    """

    y = result_def(TensorType)

    @abstractmethod
    def forward(self, *args: Any, **kwargs: Any) -> Expr:  # so typed, any list of parameters overrides it
        """The formula: takes an expression for each operand."""

    def backward(self, *args: Any, **kwargs: Any) -> Expr | Sequence[Expr | None]:
        """The gradient of each operand; takes `g`, the operands and `y`. By default `g` times the derivative of `forward`.

        State one where a form exists that is more accurate or reads less (`y` alone lets the op overwrite its operand).
        """
        raise NotImplementedError

    def formula(self) -> Expr:
        """`forward` on `_1`, `_2`, ..."""
        found = cast("object", self.forward(*(Arg(i + 1) for i in range(len(self.operands)))))
        if not isinstance(found, Expr):
            raise VerifyException(f"its `forward` gives {found!r}; an expression is expected{user_op_errors.at(self, 'forward')}")
        return found

    def infer(self) -> Sequence[TensorType[Attribute]]:
        operands = [o.type for o in self.operands]
        shape = shapes.broadcast(*(shape_of(t) for t in operands))
        return [tensor(shape, expr.infer(self.formula(), [element_type_of(t) for t in operands]))]

    def derivatives(self) -> Sequence[Expr | None]:
        """`backward`, with `_1` .. `_n` the operands, `_n+1` the result and `_n+2` its gradient."""
        n = len(self.operands)
        if type(self).backward is ElementwiseOp.backward:
            return calls.slopes(self.formula(), [calls.element(o) for o in self.operands])
        stated = self.backward(Arg(n + 2), *(Arg(i + 1) for i in range(n)), Arg(n + 1))
        found = cast("object", [stated] if isinstance(stated, Expr) else stated)
        if not isinstance(found, Sequence) or not all(g is None or isinstance(g, Expr) for g in cast("Sequence[object]", found)):
            said = f"its `backward` gives {found!r}; an expression for each operand is expected, or None"
            raise PopulusError(f"{where(self)}: {self.name}: {said}{user_op_errors.at(self, 'backward')}")
        gradients = cast("Sequence[Expr | None]", found)
        if len(gradients) != n:
            said = f"its `backward` gives {len(gradients)} gradients for {n} operands"
            raise PopulusError(f"{where(self)}: {self.name}: {said}{user_op_errors.at(self, 'backward')}")
        return gradients

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return calls.pull(b, self.derivatives(), self.operands, self.y, grads[0])

    def aliases(self) -> Sequence[tuple[int, int]]:
        return [(i, 0) for i, o in enumerate(self.operands) if o.type == self.y.type]

    def inplace_priority(self) -> Sequence[tuple[int, float]]:
        return [(i, 10.0) for i, _ in self.aliases()]

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return [calls.stretch(b, calls.map(b, self.formula(), *self.operands), shape_of(self.y.type))]


class UnaryOp(ElementwiseOp):
    """`y = forward(x)`, of x's type. A formula that gives another element type wants `ElementwiseOp`."""

    T: ClassVar = VarConstraint("T", BaseAttr(TensorType))
    x = operand_def(T)
    y = result_def(T)
    assembly_format = "$x attr-dict `:` type($x)"

    @abstractmethod
    def forward(self, x: Expr) -> Expr: ...


class BinaryOp(ElementwiseOp):
    """`y = forward(a, b)`, broadcasting as in `shapes.broadcast`."""

    a = operand_def(TensorType)
    b = operand_def(TensorType)

    @abstractmethod
    def forward(self, a: Expr, b: Expr) -> Expr: ...


class ReduceOp(PopartOp):
    """`y = after(reduction over axes of before(x))`, with 1 in place of the reduced dimensions where `keep`.

    `reduction` is one of `popops.REDUCTIONS`. `axes` may be empty: then nothing is reduced, but the formulas apply.
    """

    x = operand_def(TensorType)
    axes = prop_def(DenseArrayBase.constr(i64))
    keep = flag()
    y = result_def(TensorType)

    @property
    @abstractmethod
    def reduction(self) -> str:
        """The library reduction."""

    def before(self, x: Expr) -> Expr:
        """What is reduced. Of x's element type or a wider one to accumulate in."""
        return x

    def after(self, s: Expr) -> Expr:
        """The result from the reduced value, back in x's element type."""
        return s

    def dims(self) -> tuple[int, ...]:
        return shapes.axes(ints(self.axes), len(shape_of(self.x.type)))

    def count(self) -> int:
        """How many elements make one."""
        shape = shape_of(self.x.type)
        return math.prod(shape[d] for d in self.dims())

    def infer(self) -> Sequence[TensorType[Attribute]]:
        element = element_type_of(self.x.type)
        reduced = expr.infer(self.before(Arg(1)), [element])
        shape = shapes.reduced(shape_of(self.x.type), self.dims(), self.keep)
        return [tensor(shape, expr.infer(self.after(Arg(1)), [reduced]))]

    def reduced(self, b: Builder) -> SSAValue:
        """The value that `after` takes, without the reduced dimensions."""
        return calls.reduce(b, self.reduction, calls.map(b, self.before(Arg(1)), self.x), self.dims())

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return [calls.reshape(b, calls.map(b, self.after(Arg(1)), self.reduced(b)), shape_of(self.y.type))]

    def kept(self, b: Builder, value: SSAValue) -> SSAValue:
        """A value of y's elements with 1 in place of the reduced dimensions, so that it broadcasts against x."""
        return calls.reshape(b, value, shapes.reduced(shape_of(self.x.type), self.dims(), keep=True))
