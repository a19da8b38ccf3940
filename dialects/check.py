"""The `check` dialect: what a test program expects of its own values, at every level at which tensors are values.

check.close %y, dense<[0.0, 2.0]> : tensor<2xf32>
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, FloatAttr, TensorType, f64
from xdsl.ir import Attribute, Dialect, SSAValue
from xdsl.irdl import IRDLOperation, ParsePropInAttrDict, irdl_op_definition, operand_def, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from populus.dialects.data import StoredAttr, array_attribute, attribute_array, print_value

if TYPE_CHECKING:
    from numpy.typing import NDArray


def _own_type(value: Attribute) -> Attribute | None:
    """Returns the type at the end of a dense attribute's text; None for another attribute."""
    return cast("DenseIntOrFPElementsAttr[Any]", value).type if isinstance(value, DenseIntOrFPElementsAttr) else None


@irdl_op_definition
class CloseOp(IRDLOperation):
    """Running it fails unless every element of x is within `atol + rtol |expected|` of what is expected.

    NaN expects NaN; an infinity expects itself. Booleans and integers are compared by the same rule, so exactly where both
    tolerances are 0. The op is kept by every pass: it has no result, but it has an effect.
    """

    name = "check.close"
    x = operand_def(TensorType)
    expected = prop_def(Attribute)
    rtol = prop_def(FloatAttr, default_value=FloatAttr(1e-5, f64))
    atol = prop_def(FloatAttr, default_value=FloatAttr(1e-6, f64))
    irdl_options = (ParsePropInAttrDict(),)

    def __init__(self, x: SSAValue, expected: NDArray[Any], rtol: float = 1e-5, atol: float = 1e-6):
        properties = {"expected": array_attribute(expected), "rtol": FloatAttr(rtol, f64), "atol": FloatAttr(atol, f64)}
        super().__init__(operands=[x], properties=properties)

    @classmethod
    def parse(cls, parser: Parser) -> CloseOp:
        x = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        expected = parser.parse_attribute()
        if (type := _own_type(expected)) is None:
            parser.parse_punctuation(":")
            type = parser.parse_type()
        attributes = parser.parse_optional_attr_dict()
        properties = {name: attributes.pop(name) for name in ("rtol", "atol") if name in attributes}
        op = cls.build(operands=[parser.resolve_operand(x, type)], properties={"expected": expected, **properties}, attributes=attributes)
        assert isinstance(op, CloseOp)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.x)
        printer.print_string(", ")
        print_value(printer, self.expected)
        if _own_type(self.expected) is None:
            printer.print_string(" : ")
            printer.print_attribute(self.x.type)
        tolerances = {n: v for n, v in (("rtol", self.rtol), ("atol", self.atol)) if v != _DEFAULTS[n]}
        printer.print_op_attributes({**tolerances, **self.attributes})

    def verify_(self) -> None:
        if (type := _own_type(self.expected)) is not None:
            if type != self.x.type:
                raise VerifyException(f"the operand is {self.x.type}, what is expected {type}")
        elif not isinstance(self.expected, StoredAttr):
            raise VerifyException(f"{self.expected} is neither dense nor stored")

    def expected_array(self) -> NDArray[Any]:
        """Returns the expected values, in the operand's shape and element type."""
        return attribute_array(self.expected, self.x.type)


_DEFAULTS = {"rtol": FloatAttr(1e-5, f64), "atol": FloatAttr(1e-6, f64)}

CHECK = Dialect("check", [CloseOp], [])
