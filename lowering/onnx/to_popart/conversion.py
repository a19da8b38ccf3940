"""Conversion of one node: the operands that its rule reads, and the place where it inserts `popart` ops.

A rule is a function of a `Conversion` that gives the values of the node's outputs: one, or a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from xdsl.builder import Builder
from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, BlockArgument, SSAValue

from populus.dialects.base.tensor_op import TensorOp
from populus.dialects.data import constant_value
from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.signature.required_values import Required, require
from populus.dialects.signature.string_table import handles
from populus.dialects.support import shapes
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import element_type_of, shape_of
from populus.lowering.onnx.dynamic_sizes import Bound
from populus.lowering.onnx.to_popart.masks import Masks, Place

if TYPE_CHECKING:
    from numpy.typing import NDArray

Output: TypeAlias = "SSAValue | None"
Rule: TypeAlias = "Callable[[Conversion], Output | list[Output]]"
Rules: TypeAlias = Mapping[str, Rule]


class Conversion(Place):
    """The node `op`, whose operands are converted already, and the insertion point of its replacement."""

    def __init__(self, op: OnnxOp, builder: Builder, masks: Masks | None = None):
        super().__init__(op, builder, masks)
        self.op: OnnxOp = op
        self.counts: dict[int, Bound] = {}  # of this node's outputs
        self.inputs = op.inputs
        self.version = op.VERSION

    def at(self, builder: Builder) -> Conversion:
        """Makes the same conversion with another insertion point."""
        return Conversion(self.op, builder, self.masks)

    def has(self, i: int) -> bool:
        """Tells whether input `i` is present."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def input(self, i: int) -> SSAValue:
        """Gives input `i`, which the schema requires."""
        value = self.inputs[i]
        assert value is not None, (self.op.name, i)
        return value

    def optional(self, i: int) -> SSAValue | None:
        """Gives input `i`; None if it is absent."""
        return self.inputs[i] if i < len(self.inputs) else None

    def known(self, i: int) -> NDArray[Any]:
        """Gives the array of input `i`. Raises PopulusError if it is not a constant."""
        array = constant_value(self.input(i))
        if array is None:
            raise PopulusError(f"its input '{self._parameter(i)}' is computed when the model runs; it has to be a constant here")
        return array

    def number(self, i: int) -> Any:
        """Gives the one number of input `i`. Raises PopulusError if it is not a constant, or has another number of elements."""
        array = self.known(i)
        if array.size != 1:
            raise PopulusError(f"its input '{self._parameter(i)}' has {array.size} elements; one number is expected")
        return array.reshape(-1)[0]

    def _parameter(self, i: int) -> str:
        return self.op.INPUTS[min(i, len(self.op.INPUTS) - 1)].name

    def ints(self, i: int, attribute: str) -> list[int] | None:
        """Gives integers that are an attribute in some versions of the op and input `i` in others.

        Returns None if the node has neither. Raises PopulusError if the input is not a constant.
        """
        if (entries := self.get(attribute)) is not None:
            return [int(v) for v in entries]
        return [int(v) for v in self.known(i).reshape(-1)] if i > 0 and self.has(i) else None

    def trusted(self, i: int) -> None:
        """Trusts the result shape that the model states, with which input `i` has to agree.

        Shape inference has checked a constant; an input of the model is checked when it arrives at run time.
        Raises PopulusError if the model computes the input, because nothing would check it.
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
        """Gives an attribute, or its default, as a Python value; None if there is none."""
        return self.op.property(name)

    def list(self, name: str) -> list[Any]:
        """Gives the entries of a list attribute; an empty list if it is absent."""
        entries = self.get(name)
        return [] if entries is None else list(entries)

    def used(self, i: int) -> bool:
        """Tells whether output `i` has a use."""
        output = self.op.output(i)
        return output is not None and bool(output.uses)

    def axis(self, rank: int, default: int = 0, name: str = "axis") -> int:
        """Gives an axis attribute, counted from the front. Raises PopulusError if it is out of range."""
        stated = self.get(name)
        return shapes.axis(default if stated is None else stated, rank)

    def handles(self, strings: Iterable[str]) -> NDArray[Any]:
        """Gives the handles of strings: [n], i32."""
        import numpy as np

        function = self.op.parent_op()
        while not isinstance(function, FuncOp):
            assert function is not None, self.op
            function = function.parent_op()
        return np.array(handles(function, strings), np.int32)


def texts(attribute: Attribute | None) -> list[str]:
    """Gives the strings of an array attribute; none for None."""
    entries = cast("ArrayAttr[Attribute]", attribute) if isinstance(attribute, ArrayAttr) else ()
    return [text.data for text in entries if isinstance(text, StringAttr)]


def shape(value: SSAValue) -> tuple[int, ...]:
    """Gives the shape of a value."""
    return shape_of(value.type)


def element(value: SSAValue) -> Attribute:
    """Gives the element type of a value."""
    return element_type_of(value.type)


def regular(kind: type[TensorOp]) -> Rule:
    """Makes the rule of an op that both dialects share: operands by position, properties by name."""

    def rule(c: Conversion) -> Output:
        names = kind.get_irdl_definition().properties
        values = {name: c.get(name) for name in names}
        return c.insert(kind(*c.inputs, **values))

    return rule
