"""Typed attributes of ops: the class body declares `alpha: float = number(0.01)`, and `self.alpha` is a float.

The IR keeps an attribute: `op.properties["alpha"]` is a `FloatAttr`, and printing and parsing are xDSL's. A declaration without a
type, `alpha = number(0.01)`, is the same to Python, and unknown to type checkers.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, StringAttr
from xdsl.ir import Attribute, Operation
from xdsl.irdl import AttrConstraint, AttrSizedOperandSegments, IRDLOperation, OpDef, VarOperandDef
from xdsl.irdl.operations import OptPropertyDef
from xdsl.utils.exceptions import PyRDLOpDefinitionError

from populus.dialects.support.quick_ops import QuickOps

if TYPE_CHECKING:
    from xdsl.irdl.declarative_assembly_format import FormatProgram
    from xdsl.parser import Parser
    from xdsl.printer import Printer

AttributeT_co = TypeVar("AttributeT_co", bound=Attribute, covariant=True)
SCALARS = {"bool", "float", "int", "str"}


class TypedConstraint(AttrConstraint[AttributeT_co]):
    """A constraint on an attribute whose accessor gives a Python value of type `PLAIN`.

    `KIND`: the attribute's kind in schemas, pages and messages.
    """

    KIND: ClassVar[str]
    PLAIN: ClassVar[type]

    @abstractmethod
    def attribute_of(self, value: Any) -> Attribute:
        """Gives the IR attribute of a Python value. Raises TypeError or ValueError for a value of another kind."""

    def value_of(self, attribute: Attribute) -> Any:
        """Gives the Python value of an IR attribute."""
        return self.PLAIN(plain_value(attribute))


def plain_value(attribute: Attribute) -> float | int | str:
    """Gives the Python value in a float, integer or string attribute, at the attribute's own precision."""
    if isinstance(attribute, StringAttr):
        return attribute.data
    assert isinstance(attribute, FloatAttr | IntegerAttr), attribute
    return cast("FloatAttr | IntegerAttr[Any]", attribute).value.data


class _TypedAccessor:
    """Reads a property of an op as a Python value; takes values and attributes."""

    def __init__(self, name: str, constraint: TypedConstraint[Attribute]):
        self.name, self.constraint = name, constraint

    def __get__(self, op: IRDLOperation | None, owner: type | None = None) -> Any:
        if op is None:
            return self
        return self.constraint.value_of(op.properties[self.name])

    def __set__(self, op: IRDLOperation, value: Any) -> None:
        op.properties[self.name] = value if isinstance(value, Attribute) else self.constraint.attribute_of(value)


class TypedAttributes(QuickOps):
    """The class of op classes whose accessors of typed attributes give Python values.

    xDSL's `irdl_op_definition` sets an accessor for each property and, last, `get_irdl_definition`. Then the definition is complete, and
    the accessors of properties with a `TypedConstraint` are replaced. A class with several operands that may be absent or several
    gets xDSL's option for them. The format OPERANDS is read when an op of the class is first printed or parsed: for all classes
    that takes a fifth of their import.
    """

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], /, **keywords: Any):
        super().__init__(name, bases, namespace, **keywords)
        fields: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            fields |= vars(base)
        several = [f for f in fields.values() if isinstance(kind := getattr(f, "cls", None), type) and issubclass(kind, VarOperandDef)]
        options = cast("tuple[Any, ...]", fields.get("irdl_options", ()))
        if len(several) > 1 and not any(isinstance(o, AttrSizedOperandSegments) for o in options):
            cls.irdl_options = (*options, AttrSizedOperandSegments(as_property=True))
        stated, made = fields.get("assembly_format"), fields.get("print") is _print
        if stated == OPERANDS or (stated is None and made):
            cls.assembly_format = None
            # With several, it would not say whose an operand is; the generic form has a property for that.
            generic = len(several) > 1
            cls.print, cls.parse = (Operation.print, classmethod(_GENERIC)) if generic else (_print, classmethod(_parse))
        elif made:
            cls.print, cls.parse = Operation.print, classmethod(_GENERIC)

    def __setattr__(cls, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "get_irdl_definition":
            for field, accessor in cls.own_accessors({}, cast("type[IRDLOperation]", cls).get_irdl_definition()).items():
                super().__setattr__(field, accessor)

    def own_accessors(cls, made: Mapping[str, Any], definition: OpDef) -> dict[str, Any]:
        """Gives those of properties with a `TypedConstraint` too. Raises PyRDLOpDefinitionError for a field of another type."""
        found = super().own_accessors(made, definition)
        for field, (name, table) in definition.accessor_names.items():
            stated = definition.properties[name] if table == "property" else None
            if stated is None or isinstance(stated, OptPropertyDef) or not isinstance(stated.constr, TypedConstraint):
                continue
            constraint = stated.constr
            declared, expected = _declared_type(cls, field), constraint.PLAIN.__name__
            if declared and declared != expected and {declared, expected} & SCALARS:
                said = f"class {cls.__name__}: `{field}: {declared}` has values of type {expected}; declare `{field}: {expected}`"
                raise PyRDLOpDefinitionError(said)
            found[field] = _TypedAccessor(name, constraint)
        return found


OPERANDS = "operands attr-dict `:` functional-type(operands, results)"
_GENERIC = cast("Any", Operation.parse).__func__


def _format_of(cls: type[Any]) -> FormatProgram:
    from xdsl.irdl.declarative_assembly_format import FormatProgram

    found = cast("FormatProgram | None", vars(cls).get("operands_format"))
    if found is None:
        found = FormatProgram.from_str(OPERANDS, cls.get_irdl_definition())
        cls.operands_format = found
    return found


def _parse(cls: Any, parser: Parser) -> IRDLOperation:
    return _format_of(cls).parse(parser, cls)


def _print(self: Any, printer: Printer) -> None:
    _format_of(cast("type[Any]", type(self))).print(printer, self)


def _declared_type(cls: type, field: str) -> str:
    """Gives the name of the type that the class body declares for a field; empty if it declares none."""
    owner = next(c for c in cls.__mro__ if field in c.__dict__)
    declared = inspect.get_annotations(owner).get(field, "")
    return declared if isinstance(declared, str) else getattr(declared, "__name__", "")
