"""What an op's definition may ask of its attributes and operands beyond their kind: ranges, choices, sets of element types.

alpha = number(0.01, low=-1, high=1)
T: ClassVar = tensors("T", f16, f32, f64)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, StringAttr, TensorType, f32, i1, i64
from xdsl.ir import Attribute
from xdsl.irdl import AttrConstraint, VarConstraint, VerificationContext, prop_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects.support.element_types import element_type_of


@dataclass(frozen=True)
class Within(AttrConstraint[FloatAttr]):
    """A float of any width from `low` to `high`, both included; NaN is not."""

    low: float = -math.inf
    high: float = math.inf

    def verify(self, attr: Attribute, constraint_context: VerificationContext) -> None:
        if not isinstance(attr, FloatAttr):
            raise VerifyException(f"a float is expected, found {attr}")
        if not self.low <= attr.value.data <= self.high:
            raise VerifyException(f"{attr.value.data:g} is not within {self}")

    def get_bases(self) -> set[type[Attribute]] | None:
        return {FloatAttr}

    def mapping_type_vars(self, type_var_mapping: object) -> Within:
        return self

    def __str__(self) -> str:
        return f"{self.low:g} .. {self.high:g}"


@dataclass(frozen=True)
class WholeWithin(AttrConstraint[IntegerAttr]):
    """A 64-bit integer from `low` to `high`, both included."""

    low: int = -(1 << 63)
    high: int = (1 << 63) - 1

    def verify(self, attr: Attribute, constraint_context: VerificationContext) -> None:
        if not isinstance(attr, IntegerAttr) or cast("IntegerAttr[Any]", attr).type != i64:
            raise VerifyException(f"an integer is expected, found {attr}")
        if not self.low <= attr.value.data <= self.high:
            raise VerifyException(f"{attr.value.data} is not within {self}")

    def get_bases(self) -> set[type[Attribute]] | None:
        return {IntegerAttr}

    def mapping_type_vars(self, type_var_mapping: object) -> WholeWithin:
        return self

    def __str__(self) -> str:
        return f"{self.low} .. {self.high}"


@dataclass(frozen=True)
class OneOf(AttrConstraint[StringAttr]):
    """A string that is one of `choices`."""

    choices: tuple[str, ...]

    def verify(self, attr: Attribute, constraint_context: VerificationContext) -> None:
        if not isinstance(attr, StringAttr):
            raise VerifyException(f"a string is expected, found {attr}")
        if attr.data not in self.choices:
            raise VerifyException(f"'{attr.data}' is not one of {self}")

    def get_bases(self) -> set[type[Attribute]] | None:
        return {StringAttr}

    def mapping_type_vars(self, type_var_mapping: object) -> OneOf:
        return self

    def __str__(self) -> str:
        return ", ".join(self.choices)


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


def number(default: float | None = None, low: float = -math.inf, high: float = math.inf) -> FloatAttr:
    """A float attribute of an op; without `default`, one that must be given."""
    return prop_def(Within(low, high), default_value=None if default is None else FloatAttr(default, f32))


def whole(default: int | None = None, low: int = -(1 << 63), high: int = (1 << 63) - 1) -> IntegerAttr:
    """An integer attribute of an op; without `default`, one that must be given."""
    return prop_def(WholeWithin(low, high), default_value=None if default is None else IntegerAttr(default, i64))


def flag(default: bool = False) -> IntegerAttr[Any]:
    """A boolean attribute of an op."""
    return prop_def(IntegerAttr.constr(i1), default_value=IntegerAttr(int(default), i1))


def choice(choices: Sequence[str], default: str | None = None) -> StringAttr:
    """A string attribute of an op that is one of a few."""
    return prop_def(OneOf(tuple(choices)), default_value=None if default is None else StringAttr(default))


def tensors(name: str, *elements: Attribute) -> VarConstraint[TensorType[Attribute]]:
    """A type variable: operands and results of it have one and the same tensor type, of one of these element types."""
    return VarConstraint(name, TensorOf(elements))
