"""The base of every op on immutable tensors: built from Python values, with one shape rule that infers and verifies.

    ConvOp(x, w, bias, strides=(2, 2))      # popart.conv; the result type follows from `infer`

Used by `popart`, custom ops, `popops`, `poplin`, `popnn` and `poprand` alike.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    TensorType,
    f32,
    f64,
    i1,
    i32,
    i64,
)
from xdsl.ir import Attribute, Operation, OpResult, SSAValue, SSAValues
from xdsl.irdl import AttrSizedOperandSegments, IRDLOperation, OptOperandDef, ParsePropInAttrDict, VarOperandDef, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import DiagnosticException, VerifyException

from populus.dialects.expr import Expr, ExprAttr
from populus.dialects.support import user_op_errors
from populus.dialects.support.attribute_values import OPERANDS, TypedAttributes
from populus.dialects.support.diagnostics import PlainErrors

if TYPE_CHECKING:
    from numpy.typing import NDArray

Value: TypeAlias = "SSAValue | Operation"
Plain: TypeAlias = "bool | int | float | str | Expr | Attribute | Sequence[int] | Sequence[float] | Sequence[str] | NDArray[Any]"


INPLACE = "inplace"  # an attribute: the number of the operand that the result is to overwrite, or -1 for none; a list for several results

LOW_VALUE, HIGH_VALUE = 0.1, 1000.0  # Source: PopART's OutlineConsts


def attribute(value: Plain) -> Attribute:
    """Converts a Python value to an attribute: bool i1, int i64, float f32 (as ONNX's), str, expression, sequence of them.

    NumPy's numbers and arrays of one dimension count as Python's. Raises TypeError for another value.
    """
    if hasattr(value, "tolist"):  # NumPy's
        value = cast("Plain", cast("Any", value).tolist())
    match value:
        case Attribute():
            return value
        case bool():
            return _integer(int(value), i1)
        case int():
            return _integer(value, i64)
        case float():
            return _float(value, math.copysign(1, value))
        case str():
            return StringAttr(value)
        case Expr():
            return ExprAttr(value)
        case _:
            return _list(cast("Sequence[Any]", value))


@lru_cache(1 << 12)
def _integer(value: int, type: IntegerType) -> Attribute:
    return IntegerAttr(value, type)


@lru_cache(1 << 12)
def _float(value: float, sign: float) -> Attribute:  # `sign`, as 0 and -0 are equal
    return FloatAttr(value, f32)


def _list(value: Sequence[Any]) -> Attribute:
    values = [v.item() if hasattr(v, "item") else v for v in value]
    if values and all(isinstance(v, str) for v in values):
        return ArrayAttr([StringAttr(v) for v in values])
    if all(isinstance(v, int) for v in values):
        return integers(values)
    return DenseArrayBase.from_list(f64, [float(v) for v in values])


def integers(values: Sequence[int]) -> DenseArrayBase[Any]:
    """Makes an `array<i64: ...>` property; equal ones are the same object."""
    return _packed(tuple(map(int, values)))


@lru_cache(1 << 14)
def _packed(values: tuple[int, ...]) -> DenseArrayBase[Any]:
    return DenseArrayBase.from_list(i64, values)


def ints(array: DenseArrayBase[Any]) -> tuple[int, ...]:
    """Returns the integers of an `array<i64: ...>` property."""
    if array.elt_type is i64:  # as all that are not parsed; views ask for theirs each time that they are composed
        return _unpacked(array.data.data)
    return tuple(int(v) for v in array.get_values())


@lru_cache(1 << 14)
def _unpacked(data: bytes) -> tuple[int, ...]:
    return i64.unpack(data, len(data) // i64.size)


@cache
def _takes(kind: type[TensorOp]) -> int | None:
    """Gives the number of operands of an op class, if none of them may be absent or several; else None."""
    operands = kind.get_irdl_definition().operands
    return None if any(isinstance(operand, VarOperandDef) for _, operand in operands) else len(operands)


class TensorOp(PlainErrors, IRDLOperation, metaclass=TypedAttributes):
    """An op without effects on tensors of static shape. Subclasses declare operands, properties and `infer`.

    The constructor takes the operands in order (None for an absent optional one; one may be variadic, and takes those that are left
    by the operands after it) and the properties by name as Python values.

    `OUTLINE_VALUE`: what it is worth that the op is there once and not several times (`popart-outline`): LOW_VALUE for what is a few
    vertices, HIGH_VALUE for what is much code. `OUTLINE_IGNORES`: attributes in which ops of one function may differ; its calls
    then all have those of the first.
    """

    OUTLINE_VALUE: ClassVar[float] = LOW_VALUE
    OUTLINE_IGNORES: ClassVar[frozenset[str]] = frozenset()

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = OPERANDS

    def __init__(self, *operands: Value | None, **properties: Plain | None):
        definition = type(self).get_irdl_definition()
        unknown = properties.keys() - definition.properties
        assert not unknown, f"{self.name} has no property {', '.join(sorted(unknown))}"
        given = [v if v is None or isinstance(v, SSAValue) else SSAValue.get(v) for v in operands]
        if _takes(type(self)) == len(given) and None not in given:
            self._begin(cast("list[SSAValue]", given), properties, {})
            return
        found: list[SSAValue] = []
        sizes: list[int] = []
        for place, (name, operand) in enumerate(definition.operands, 1):
            before = len(found)
            if isinstance(operand, VarOperandDef):  # OptOperandDef is one too
                optional = isinstance(operand, OptOperandDef)
                count = min(len(given), 1) if optional else max(0, len(given) - (len(definition.operands) - place))
                assert optional or None not in given[:count], f"{self.name}: one of {name} is absent"
                found.extend(v for v in given[:count] if v is not None)
                del given[:count]
            else:
                value = given.pop(0) if given else None
                assert value is not None, f"{self.name} needs more operands"
                found.append(value)
            sizes.append(len(found) - before)
        assert not given, f"{self.name} takes fewer operands"
        sized = any(isinstance(option, AttrSizedOperandSegments) for option in definition.options)
        self._begin(found, properties, {AttrSizedOperandSegments.attribute_name: DenseArrayBase.from_list(i32, sizes)} if sized else {})

    def _begin(self, operands: Sequence[SSAValue], properties: Mapping[str, Plain | None], sizes: Mapping[str, Attribute]) -> None:
        attributes = {name: attribute(value) for name, value in properties.items() if value is not None}
        # Not IRDLOperation's: it would build and check the same lists a second time, for a third of an op's cost.
        self.begin(operands, (), {**attributes, **sizes})
        self.results = SSAValues(OpResult(t, self, i) for i, t in enumerate(self.inferred()))

    def inferred(self) -> Sequence[TensorType[Attribute]]:
        """Calls `infer`. Raises VerifyException, with file and line, for an error in a user's shape rule."""
        try:
            types = self.infer()
        except (DiagnosticException, VerifyException):
            raise
        except (Exception, SystemExit) as error:  # a user's file must not end our process
            if user_op_errors.is_ours(type(self)):
                raise
            raise VerifyException(user_op_errors.fault(self, "infer", error)) from error
        if not user_op_errors.is_ours(type(self)):
            user_op_errors.check_types(self, types)
        return types

    @abstractmethod
    def infer(self) -> Sequence[TensorType[Attribute]]:
        """Computes the result types from operands and properties: the op's shape rule.

        Raises ShapeError (or VerifyException) that states both shapes that disagree.
        """

    def aliases(self) -> Sequence[tuple[int, int]]:
        """Lists (operand, result) pairs that may share memory: views, and results that can be computed in place."""
        return ()

    @property
    def is_view(self) -> bool:
        """True for a view: the result shares the operand's memory, and nothing is computed."""
        return False

    def verify_(self) -> None:
        inferred = list(self.inferred())
        found = [r.type for r in self.results]
        if inferred != found:
            raise VerifyException(
                f"the result is {', '.join(map(str, found))}; operands and attributes give {', '.join(map(str, inferred))}"
            )
        mark = self.attributes.get(INPLACE)
        if isinstance(mark, IntegerAttr) and mark.value.data >= len(self.operands):
            raise VerifyException(f"{INPLACE} is {mark.value.data}; there are {len(self.operands)} operands")
