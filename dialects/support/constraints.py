"""Declarations of an op's attributes and operands: kind, default, range, choices, sets of element types.

alpha: float = number(0.01, low=-1, high=1)
T: ClassVar = tensors("T", f16, f32, f64)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, FloatAttr, IntegerAttr, StringAttr, TensorType, f32, f64, i1, i64
from xdsl.ir import Attribute
from xdsl.irdl import AnyAttr, AttrConstraint, VarConstraint, VerificationContext, prop_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects.support.attribute_values import TypedConstraint
from populus.dialects.support.element_types import element_type_of

LARGEST = (2 - 2**-23) * 2.0**127
"""The largest finite number of f32, the type of float attributes, as of ONNX's."""


@dataclass(frozen=True)
class Within(TypedConstraint[FloatAttr]):
    """A float of any width from `low` to `high`, both included. A bound on either side excludes NaN."""

    KIND: ClassVar = "float"
    PLAIN: ClassVar = float
    low: float = -math.inf
    high: float = math.inf

    def verify(self, attr: Attribute, constraint_context: VerificationContext) -> None:
        if not isinstance(attr, FloatAttr):
            raise VerifyException(f"a float is expected, found {attr}")
        if math.isfinite(attr.value.data) and abs(attr.value.data) > LARGEST:  # the text of an f64
            raise VerifyException(f"{attr.value.data:g} is beyond the numbers of f32, of which the largest is {LARGEST:.7g}")
        bounded = self.low > -math.inf or self.high < math.inf
        if bounded and not self.low <= attr.value.data <= self.high:
            raise VerifyException(f"{attr.value.data:g} is not within {self}")

    def attribute_of(self, value: Any) -> Attribute:
        return FloatAttr(float(value), f32)

    def get_bases(self) -> set[type[Attribute]] | None:
        return {FloatAttr}

    def mapping_type_vars(self, type_var_mapping: object) -> Within:
        return self

    def __str__(self) -> str:
        return f"{self.low:g} .. {self.high:g}"


@dataclass(frozen=True)
class WholeWithin(TypedConstraint[IntegerAttr]):
    """A 64-bit integer from `low` to `high`, both included."""

    KIND: ClassVar = "int"
    PLAIN: ClassVar = int
    low: int = -(1 << 63)
    high: int = (1 << 63) - 1

    def verify(self, attr: Attribute, constraint_context: VerificationContext) -> None:
        if not isinstance(attr, IntegerAttr) or cast("IntegerAttr[Any]", attr).type != i64:
            raise VerifyException(f"an integer is expected, found {attr}")
        if not self.low <= attr.value.data <= self.high:
            raise VerifyException(f"{attr.value.data} is not within {self}")

    def attribute_of(self, value: Any) -> Attribute:
        return IntegerAttr(int(value), i64)

    def get_bases(self) -> set[type[Attribute]] | None:
        return {IntegerAttr}

    def mapping_type_vars(self, type_var_mapping: object) -> WholeWithin:
        return self

    def __str__(self) -> str:
        return f"{self.low} .. {self.high}"


@dataclass(frozen=True)
class TrueOrFalse(TypedConstraint[IntegerAttr]):
    """A 1-bit integer."""

    KIND: ClassVar = "bool"
    PLAIN: ClassVar = bool

    def verify(self, attr: Attribute, constraint_context: VerificationContext) -> None:
        if not isinstance(attr, IntegerAttr) or cast("IntegerAttr[Any]", attr).type != i1:
            raise VerifyException(f"true or false is expected, found {attr}")

    def attribute_of(self, value: Any) -> Attribute:
        return IntegerAttr(int(bool(value)), i1)

    def get_bases(self) -> set[type[Attribute]] | None:
        return {IntegerAttr}

    def mapping_type_vars(self, type_var_mapping: object) -> TrueOrFalse:
        return self


@dataclass(frozen=True)
class OneOf(TypedConstraint[StringAttr]):
    """A string that is one of `choices`."""

    KIND: ClassVar = "string"
    PLAIN: ClassVar = str
    choices: tuple[str, ...]

    def verify(self, attr: Attribute, constraint_context: VerificationContext) -> None:
        if not isinstance(attr, StringAttr):
            raise VerifyException(f"a string is expected, found {attr}")
        if attr.data not in self.choices:
            raise VerifyException(f"'{attr.data}' is not one of {self}")

    def attribute_of(self, value: Any) -> Attribute:
        return StringAttr(str(value))

    def get_bases(self) -> set[type[Attribute]] | None:
        return {StringAttr}

    def mapping_type_vars(self, type_var_mapping: object) -> OneOf:
        return self

    def __str__(self) -> str:
        return ", ".join(self.choices)


@dataclass(frozen=True)
class AnyText(TypedConstraint[StringAttr]):
    """A string."""

    KIND: ClassVar = "string"
    PLAIN: ClassVar = str

    def verify(self, attr: Attribute, constraint_context: VerificationContext) -> None:
        if not isinstance(attr, StringAttr):
            raise VerifyException(f"a string is expected, found {attr}")

    def attribute_of(self, value: Any) -> Attribute:
        if not isinstance(value, str):
            raise TypeError(value)
        return StringAttr(value)

    def get_bases(self) -> set[type[Attribute]] | None:
        return {StringAttr}

    def mapping_type_vars(self, type_var_mapping: object) -> AnyText:
        return self


@dataclass(frozen=True)
class Wholes(TypedConstraint["DenseArrayBase[Any]"]):
    """A list of 64-bit integers; its value is a tuple."""

    KIND: ClassVar = "ints"
    PLAIN: ClassVar = tuple
    ELEMENT: ClassVar[Attribute] = i64

    def verify(self, attr: Attribute, constraint_context: VerificationContext) -> None:
        if not isinstance(attr, DenseArrayBase) or cast("DenseArrayBase[Any]", attr).elt_type != self.ELEMENT:
            raise VerifyException(f"a list of {self.KIND} is expected, found {attr}")

    def attribute_of(self, value: Any) -> Attribute:
        if any(isinstance(v, bool) or int(v) != v for v in value):
            raise ValueError(value)
        return DenseArrayBase.from_list(i64, [int(v) for v in value])

    def value_of(self, attribute: Attribute) -> Any:
        return tuple(cast("DenseArrayBase[Any]", attribute).get_values())

    def get_bases(self) -> set[type[Attribute]] | None:
        return {DenseArrayBase}

    def mapping_type_vars(self, type_var_mapping: object) -> Wholes:
        return self


@dataclass(frozen=True)
class Numbers(Wholes):
    """A list of floats of double precision; its value is a tuple."""

    KIND: ClassVar = "floats"
    ELEMENT: ClassVar[Attribute] = f64

    def attribute_of(self, value: Any) -> Attribute:
        return DenseArrayBase.from_list(f64, [float(v) for v in value])


@dataclass(frozen=True)
class Strings(TypedConstraint["ArrayAttr[Any]"]):
    """A list of strings; its value is a tuple."""

    KIND: ClassVar = "strings"
    PLAIN: ClassVar = tuple

    def verify(self, attr: Attribute, constraint_context: VerificationContext) -> None:
        if not isinstance(attr, ArrayAttr) or not all(isinstance(v, StringAttr) for v in cast("ArrayAttr[Any]", attr)):
            raise VerifyException(f"a list of strings is expected, found {attr}")

    def attribute_of(self, value: Any) -> Attribute:
        if isinstance(value, str) or not all(isinstance(v, str) for v in value):
            raise TypeError(value)
        return ArrayAttr([StringAttr(str(v)) for v in value])

    def value_of(self, attribute: Attribute) -> Any:
        return tuple(v.data for v in cast("ArrayAttr[StringAttr]", attribute))

    def get_bases(self) -> set[type[Attribute]] | None:
        return {ArrayAttr}

    def mapping_type_vars(self, type_var_mapping: object) -> Strings:
        return self


@dataclass(frozen=True)
class TensorOf(AttrConstraint["TensorType[Attribute]"]):
    """A tensor with one of some element types."""

    elements: tuple[Attribute, ...]

    def verify(self, attr: Attribute, constraint_context: VerificationContext) -> None:
        if not isinstance(attr, TensorType):
            raise VerifyException(f"a tensor is expected, found {attr}")
        element = element_type_of(cast(Attribute, attr))
        if element not in self.elements:
            raise VerifyException(f"the element type is {element}; it is one of {', '.join(map(str, self.elements))}")

    def get_bases(self) -> set[type[Attribute]] | None:
        return {TensorType}

    def mapping_type_vars(self, type_var_mapping: object) -> TensorOf:
        return self


@dataclass(frozen=True)
class ElementsOf(TensorOf):
    """A tensor of any shape with the element type that `name` stands for, one of some."""

    name: str = ""

    def verify(self, attr: Attribute, constraint_context: VerificationContext) -> None:
        super().verify(attr, constraint_context)
        VarConstraint(self.name, AnyAttr()).verify(element_type_of(attr), constraint_context)

    def variables(self) -> set[str]:
        return {self.name}

    def mapping_type_vars(self, type_var_mapping: object) -> ElementsOf:
        return self


def number(default: float | None = None, low: float = -math.inf, high: float = math.inf) -> float:
    """Declares a float attribute of an op, `alpha: float = number(0.01)`; required without `default`."""
    return cast(float, prop_def(Within(low, high), default_value=None if default is None else FloatAttr(default, f32)))


def whole(default: int | None = None, low: int = -(1 << 63), high: int = (1 << 63) - 1) -> int:
    """Declares a 64-bit integer attribute of an op, `axis: int = whole(1)`; required without `default`."""
    return cast(int, prop_def(WholeWithin(low, high), default_value=None if default is None else IntegerAttr(default, i64)))


def flag(default: bool | None = False) -> bool:
    """Declares a boolean attribute of an op, `keep: bool = flag()`; required where `default` is None."""
    return cast(bool, prop_def(TrueOrFalse(), default_value=None if default is None else IntegerAttr(int(default), i1)))


def choice(choices: Sequence[str], default: str | None = None) -> str:
    """Declares a string attribute of an op that is one of a few, `mode: str = choice(("a", "b"))`; required without `default`."""
    return cast(str, prop_def(OneOf(tuple(choices)), default_value=None if default is None else StringAttr(default)))


def text(default: str | None = None) -> str:
    """Declares a string attribute of an op, `equation: str = text()`; required without `default`."""
    return cast(str, prop_def(AnyText(), default_value=None if default is None else StringAttr(default)))


def wholes(default: Sequence[int] | None = None) -> tuple[int, ...]:
    """Declares a list of integers, `sizes: tuple[int, ...] = wholes((2, 2))`; required without `default`, which may be empty."""
    of = Wholes()
    return cast("tuple[int, ...]", prop_def(of, default_value=None if default is None else of.attribute_of(default)))


def numbers(default: Sequence[float] | None = None) -> tuple[float, ...]:
    """Declares a list of floats, `scales: tuple[float, ...] = numbers((0.5,))`; required without `default`, which may be empty."""
    of = Numbers()
    return cast("tuple[float, ...]", prop_def(of, default_value=None if default is None else of.attribute_of(default)))


def texts(default: Sequence[str] | None = None) -> tuple[str, ...]:
    """Declares a list of strings, `names: tuple[str, ...] = texts(())`; required without `default`, which may be empty."""
    of = Strings()
    return cast("tuple[str, ...]", prop_def(of, default_value=None if default is None else of.attribute_of(default)))


def elements(name: str, *types: Attribute) -> ElementsOf:
    """Declares an element type: operands and results with this constraint have it, and any shapes."""
    return ElementsOf(types, name)


def tensors(name: str, *elements: Attribute) -> VarConstraint[TensorType[Attribute]]:
    """Declares a type variable: its operands and results have the same tensor type, of one of these element types."""
    return VarConstraint(name, TensorOf(elements))
