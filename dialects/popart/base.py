"""Base classes of `popart` ops: shape rule, formula, gradient, aliases, lowering. Built-in ops and yours use the same classes.

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
from populus.dialects.base.tensor_op import TensorOp, ints
from populus.dialects.data import constant_value
from populus.dialects.expr import Arg, Cast, Expr
from populus.dialects.popart import library_calls as calls
from populus.dialects.popart.examples import Examples
from populus.dialects.support import shapes, user_op_errors
from populus.dialects.support.constraints import flag
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import element_type_of, is_float, shape_of, tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray


NOT_CONSTANT = (
    "the value of operand '{}' has to be known when compiling; give a constant, or state the value of an input (`values`, --value)"
)


Link: TypeAlias = tuple[int, int, int, int]
"""(operand, its dimension, result, its dimension)."""

Neutral: TypeAlias = "tuple[int, int, str] | tuple[int, int, str, int]"
"""(operand, its dimension, element), or these and a dimension of the first result."""


class NoGradient(PopulusError):
    """A gradient was requested of an op that has none."""


class PopartOp(TensorOp):
    """An op on immutable tensors of static shape, and the interface that passes use.

    `EXAMPLES`: operand shapes and attributes with which `populus check-op` tries the op; without it, all operands have one shape.
    `INTERNAL`: only passes create it, such as a gradient with an op of its own; a model's node that names it is refused.
    `SEED`: the index of the operand that seeds its random numbers; `popart-seed` changes the seed for each training run.
    `TARGETS`: the machines that have the op; any if there are none.
    `CONSTANTS`: names of operands that have to be constants; `value_of` gives their values.
    """

    EXAMPLES: ClassVar[Examples] = ()
    INTERNAL: ClassVar[bool] = False
    SEED: ClassVar[int | None] = None
    TARGETS: ClassVar[tuple[str, ...]] = ()
    CONSTANTS: ClassVar[tuple[str, ...]] = ()

    def verify_(self) -> None:
        super().verify_()
        for name in self.CONSTANTS:
            operand = cast("object", getattr(self, name))
            if operand is not None and constant_value(operand) is None:
                raise VerifyException(NOT_CONSTANT.format(name))

    def evaluate(self, *arrays: NDArray[Any]) -> Sequence[NDArray[Any]]:
        """Computes the results from the operands' arrays with NumPy, independently of any lowering.

        Element-wise ops do not need it: their formula defines the values. Without it, the ops that `lower` inserts define them.
        """
        raise NotImplementedError

    def gradient(self, b: Builder, grads: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        """Builds the gradient of each operand (None: no gradient flows to it) from those of the results; inserts ops at `b`.

        It may read operands, results and `grads`. Only the values that it reads stay live until the backward pass.
        Raises NoGradient if the op defines none.
        """
        raise NoGradient(f"{where(self)}: {self.name} has no gradient; leave it out of what is differentiated or give its class `gradient`")

    def block_rows(self) -> Mapping[int, int]:
        """Says which operands a matrix unit multiplies: of each that has two dimensions or more, the one along which its blocks have rows.

        A constant that only such operands show may be in a block format (`popart-encode`).
        """
        return {}

    def independent(self) -> Sequence[Link]:
        """Lists (operand, its dimension, result, its dimension): position i of the result is made of position i of the operand alone.

        Such a dimension may have a size that is known only when the model runs. An operand of one position may stretch.
        Element-wise ops do not need it.
        """
        return ()

    def neutral(self) -> Sequence[Neutral]:
        """Lists (operand, its dimension, element): beyond a size that is known only when the model runs, the op reads `element`.

        It is `zero`, `one`, `lowest` or `highest`, and changes no valid result. A fourth number is the dimension of the first
        result that has the same size; without it, the dimension is reduced. Reduced dimensions of two operands have one size.
        """
        return ()

    def value_of(self, name: str) -> NDArray[Any]:
        """Gives the value of the operand `name`, for `infer` and `lower`. Raises VerifyException if it is not a constant.

        The class lists the operand in `CONSTANTS`.
        """
        operand = cast("object", getattr(self, name))
        if name not in self.CONSTANTS:
            raise VerifyException(f"`value_of` reads operand '{name}'; list it in `CONSTANTS`")
        if (array := constant_value(operand)) is None:
            raise VerifyException(NOT_CONSTANT.format(name))
        return array

    def inplace_priority(self) -> Sequence[tuple[int, float] | tuple[int, float, int]]:
        """Lists (operand, priority, result) for operands that a result may overwrite; a priority of 0 or less forbids it.

        The first result is meant where none is named. `popart-inplace` chooses among them.

        Source: PopART's `inplacePriorityDefault`, where nearly all are 10.
        """
        return ()

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        """Builds the values that replace the results, from `popops`, `poplin`, `popnn`, `poprand` and `gcl` ops inserted at `b`.

        Raises PopulusError if the op defines no lowering.
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
        """Builds the formula from an expression for each operand."""

    def backward(self, *args: Any, **kwargs: Any) -> Expr | Sequence[Expr | None]:
        """Builds the gradient of each operand from `g`, the operands and `y`. The default is `g` times the derivative of `forward`.

        Override it with a form that is more accurate or reads less: reading `y` alone lets the op overwrite its operand.
        """
        raise NotImplementedError

    def formula(self) -> Expr:
        """Applies `forward` to `_1`, `_2`, ..."""
        found = cast("object", self.forward(*(Arg(i + 1) for i in range(len(self.operands)))))
        if not isinstance(found, Expr):
            raise VerifyException(f"its `forward` gives {found!r}; an expression is expected{user_op_errors.at(self, 'forward')}")
        return found

    def infer(self) -> Sequence[TensorType[Attribute]]:
        operands = [o.type for o in self.operands]
        shape = shapes.broadcast(*(shape_of(t) for t in operands))
        return [tensor(shape, expr.infer(self.formula(), [element_type_of(t) for t in operands]))]

    def derivatives(self) -> Sequence[Expr | None]:
        """Applies `backward`: `_1` .. `_n` are the operands, `_n+1` the result and `_n+2` its gradient."""
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

    def inplace_priority(self) -> Sequence[tuple[int, float] | tuple[int, float, int]]:
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
    `NEUTRAL`: the element that changes no result (`neutral`), such as `zero` of a sum; None of a mean, which counts.
    """

    NEUTRAL: ClassVar[str | None] = None

    x = operand_def(TensorType)
    axes = prop_def(DenseArrayBase.constr(i64))
    keep = flag()
    y = result_def(TensorType)

    @property
    @abstractmethod
    def reduction(self) -> str:
        """The library reduction."""

    def before(self, x: Expr) -> Expr:
        """Builds the reduced expression, in x's element type or a wider one to accumulate in."""
        return x

    def after(self, s: Expr) -> Expr:
        """Builds the result from the reduced value, back in x's element type."""
        return s

    def dims(self) -> tuple[int, ...]:
        return shapes.axes(ints(self.axes), len(shape_of(self.x.type)))

    def count(self) -> int:
        """Counts the elements that are reduced to one."""
        shape = shape_of(self.x.type)
        return math.prod(shape[d] for d in self.dims())

    def independent(self) -> Sequence[Link]:
        kept = [d for d in range(len(shape_of(self.x.type))) if d not in self.dims()]
        return [(0, d, 0, d if self.keep else i) for i, d in enumerate(kept)]

    def neutral(self) -> Sequence[Neutral]:
        return [] if self.NEUTRAL is None else [(0, d, self.NEUTRAL) for d in self.dims()]

    def infer(self) -> Sequence[TensorType[Attribute]]:
        element = element_type_of(self.x.type)
        reduced = expr.infer(self.before(Arg(1)), [element])
        shape = shapes.reduced(shape_of(self.x.type), self.dims(), self.keep)
        return [tensor(shape, expr.infer(self.after(Arg(1)), [reduced]))]

    def reduced(self, b: Builder) -> SSAValue:
        """Builds the operand of `after`, without the reduced dimensions."""
        match self.before(Arg(1)):
            case Cast(Arg(), to, False) if is_float(calls.element(self.x)) and is_float(to):
                return calls.reduce(b, self.reduction, self.x, self.dims(), to)
            case before:
                return calls.reduce(b, self.reduction, calls.map(b, before, self.x), self.dims())

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return [calls.reshape(b, calls.map(b, self.after(Arg(1)), self.reduced(b)), shape_of(self.y.type))]

    def kept(self, b: Builder, value: SSAValue) -> SSAValue:
        """Reshapes a value of y's elements to have 1 in place of the reduced dimensions, so that it broadcasts against x."""
        return calls.reshape(b, value, shapes.reduced(shape_of(self.x.type), self.dims(), keep=True))
