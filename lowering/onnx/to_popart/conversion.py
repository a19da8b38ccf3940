"""One node that is being converted: what its rule reads, and where it puts `popart` ops.

A rule is a function of a `Conversion` that gives the values of the node's outputs: one, or a list of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from xdsl.builder import Builder
from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from populus.dialects.base.tensor_op import TensorOp
from populus.dialects.data import constant, constant_value
from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.popart import CastOp, ExpandOp, ReshapeOp, TransposeOp
from populus.dialects.signature.required_values import Required, require
from populus.dialects.signature.string_table import handles
from populus.dialects.support import shapes
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of
from populus.lowering.onnx.dynamic_sizes import Bound

if TYPE_CHECKING:
    from numpy.typing import NDArray

Output: TypeAlias = "SSAValue | None"
Rule: TypeAlias = "Callable[[Conversion], Output | list[Output]]"
Rules: TypeAlias = Mapping[str, Rule]


class Conversion:
    """The node `op`, whose operands are converted already, and the place for what replaces it."""

    def __init__(self, op: OnnxOp, builder: Builder, bounds: Mapping[SSAValue, Bound] | None = None):
        self.op = op
        # Of values that are valid in part: along which axis, and how much of it.
        self.bounds: Mapping[SSAValue, Bound] = {} if bounds is None else bounds
        self.counts: dict[int, Bound] = {}  # the same of this node's outputs
        self.builder = builder
        self.inputs = op.inputs
        self.version = op.VERSION

    def has(self, i: int) -> bool:
        """Whether input i is given."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def input(self, i: int) -> SSAValue:
        """Input i, which the schema requires."""
        value = self.inputs[i]
        assert value is not None, (self.op.name, i)
        return value

    def optional(self, i: int) -> SSAValue | None:
        return self.inputs[i] if i < len(self.inputs) else None

    def known(self, i: int) -> NDArray[Any]:
        """The elements of input i, which has to be known when compiling."""
        array = constant_value(self.input(i))
        if array is None:
            parameter = self.op.INPUTS[min(i, len(self.op.INPUTS) - 1)].name
            raise PopulusError(f"its input '{parameter}' is computed when the model runs; it has to be a constant here")
        return array

    def ints(self, i: int, attribute: str) -> list[int] | None:
        """What is an attribute in some versions of the op and input i in others; None if it is in neither."""
        if (given := self.get(attribute)) is not None:
            return [int(v) for v in given]
        return [int(v) for v in self.known(i).reshape(-1)] if i > 0 and self.has(i) else None

    def trusted(self, i: int) -> None:
        """The result's shape is what the model states, which input i has to agree with.

        A constant was compared when shapes were inferred; an input of the model is compared when it arrives.
        Raises PopulusError if it is computed when the model runs, as nothing would compare it.
        """
        value, output = self.input(i), self.op.output(0)
        assert output is not None
        if constant_value(value) is not None:
            return
        function = self.op.parent_op()
        if not (isinstance(value, BlockArgument) and isinstance(function, FuncOp) and function.body.block is value.block):
            self.known(i)
        assert isinstance(function, FuncOp)
        assert isinstance(value, BlockArgument)
        require(function, Required(value.index, self.op.OP_TYPE, shape(self.input(0)), shape(output), bool(self.get("allowzero"))))

    def get(self, name: str) -> Any:
        """An attribute or its default as a Python value; None if there is none."""
        return self.op.property(name)

    def list(self, name: str) -> list[Any]:
        """The entries of a list attribute; none if it is absent."""
        given = self.get(name)
        return [] if given is None else list(given)

    def used(self, i: int) -> bool:
        """Whether anything reads output i."""
        output = self.op.output(i)
        return output is not None and bool(output.uses)

    def axis(self, rank: int, default: int = 0, name: str = "axis") -> int:
        """An axis attribute, from the front."""
        given = self.get(name)
        return shapes.axis(default if given is None else given, rank)

    def insert(self, op: Operation) -> SSAValue:
        """Puts an op in place, where the node comes from; its only result."""
        op.location = self.op.location
        return self.builder.insert(op).results[0]

    def constant(self, array: NDArray[Any]) -> SSAValue:
        return self.insert(constant(array))

    def handles(self, strings: Iterable[str]) -> NDArray[Any]:
        """The handles of strings, [n] of i32."""
        import numpy as np

        function = self.op.parent_op()
        while not isinstance(function, FuncOp):
            assert function is not None, self.op
            function = function.parent_op()
        return np.array(handles(function, strings), np.int32)

    def scalar(self, value: float | int, like: SSAValue) -> SSAValue:
        """A scalar constant of the element type of `like`."""
        import numpy as np

        return self.constant(np.array(value, dtype_of(element_type_of(like.type))))

    def reshape(self, x: SSAValue, shape: Sequence[int]) -> SSAValue:
        return x if shape_of(x.type) == tuple(shape) else self.insert(ReshapeOp(x, shape=tuple(shape)))

    def transpose(self, x: SSAValue, permutation: Sequence[int]) -> SSAValue:
        same = list(permutation) == list(range(len(permutation)))
        return x if same else self.insert(TransposeOp(x, permutation=tuple(permutation)))

    def expand(self, x: SSAValue, shape: Sequence[int]) -> SSAValue:
        return x if shape_of(x.type) == tuple(shape) else self.insert(ExpandOp(x, shape=tuple(shape)))

    def cast(self, x: SSAValue, to: Attribute) -> SSAValue:
        return x if element_type_of(x.type) == to else self.insert(CastOp(x, to=to))


def texts(attribute: Attribute | None) -> list[str]:
    """The strings of an array of them; none for None."""
    found = cast("ArrayAttr[Attribute]", attribute) if isinstance(attribute, ArrayAttr) else ()
    return [text.data for text in found if isinstance(text, StringAttr)]


def shape(value: SSAValue) -> tuple[int, ...]:
    return shape_of(value.type)


def element(value: SSAValue) -> Attribute:
    return element_type_of(value.type)


def regular(kind: type[TensorOp]) -> Rule:
    """The rule of an op that is the same in both dialects: operands by position, properties by name."""

    def rule(c: Conversion) -> Output:
        names = kind.get_irdl_definition().properties
        values = {name: c.get(name) for name in names}
        return c.insert(kind(*c.inputs, **values))

    return rule
