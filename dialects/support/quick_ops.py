"""The base of our op classes: xDSL's ops, made and asked for operands and results in less time.

A net of a thousand ops makes 7,000, asks for 50,000 operands and results by name, and 300,000 times whether a value is of a class.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Self, cast

from xdsl.dialects.builtin import UNKNOWN_LOC, LocationAttr
from xdsl.ir import Attribute, Block, Operation, OpResult, Region, SSAValue, SSAValues
from xdsl.irdl import IRDLOperation, OpDef
from xdsl.irdl.operations import BeforeVariadicSingleAccessor, OptionalDef, UniqueVariadicAccessor, VarIRConstruct

_item = cast("Callable[[tuple[SSAValue, ...], int], SSAValue]", vars(tuple)["__getitem__"])  # not that of xDSL's tuples, which is Python's


class QuickOps(ABCMeta):
    """The class of op classes whose operands and results are found directly. No class is a virtual subclass of an op's."""

    __instancecheck__ = type.__instancecheck__

    def __setattr__(cls, name: str, value: Any) -> None:
        super().__setattr__(name, _quick(value))

    def own_accessors(cls, made: Mapping[str, Any], definition: OpDef) -> dict[str, Any]:
        """Gives what the class has in place of accessors that xDSL made of its definition."""
        return {name: quick for name, value in made.items() if (quick := _quick(value)) is not value}


def _quick(value: Any) -> Any:
    if isinstance(value, BeforeVariadicSingleAccessor) and value.construct in _QUICK:
        return _QUICK[value.construct](value.construct, value.idx)
    if isinstance(value, UniqueVariadicAccessor) and value == UniqueVariadicAccessor(VarIRConstruct.OPERAND, 0, 1):
        return _Operands(VarIRConstruct.OPERAND, 0, 1)
    return value


class _Operand(BeforeVariadicSingleAccessor):
    def __get__(self, obj: Operation, objtype: type | None = None) -> SSAValue:
        return _item(obj._operands, self.idx)  # pyright: ignore[reportPrivateUsage], as `operands` makes an object


class _Operands(UniqueVariadicAccessor):
    def __get__(self, obj: Operation, objtype: type | None = None) -> SSAValues:
        return obj._operands  # pyright: ignore[reportPrivateUsage]


class _Result(BeforeVariadicSingleAccessor):
    def __get__(self, obj: Operation, objtype: type | None = None) -> SSAValue:
        return _item(obj.results, self.idx)


class _Region(BeforeVariadicSingleAccessor):
    def __get__(self, obj: Operation, objtype: type | None = None) -> Region:
        return obj.regions[self.idx]


_QUICK = {VarIRConstruct.OPERAND: _Operand, VarIRConstruct.RESULT: _Result, VarIRConstruct.REGION: _Region}


class QuickOp(Operation, metaclass=QuickOps):
    """An op that is made in half the time, and hashed as any object."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__  # pyright: ignore[reportAssignmentType]

    @classmethod
    def create(
        cls,
        *,
        operands: Sequence[SSAValue] = (),
        result_types: Sequence[Attribute] = (),
        properties: Mapping[str, Attribute] = {},
        attributes: Mapping[str, Attribute] = {},
        location: LocationAttr | None = None,
        successors: Sequence[Block] = (),
        regions: Sequence[Region] = (),
    ) -> Self:
        op = cls.__new__(cls)
        if successors:
            op.successors = successors
        op.begin(operands, result_types, properties, regions)
        op.attributes.update(attributes)
        if location is not None:
            op.location = location
        return op

    def begin(
        self,
        operands: Sequence[SSAValue],
        result_types: Sequence[Attribute],
        properties: Mapping[str, Attribute],
        regions: Sequence[Region] = (),
    ) -> None:
        """Does what `Operation.__init__` does. The class itself has the values of parts that are absent."""
        if operands:
            self.operands = operands
        self.results = SSAValues([OpResult(type, self, i) for i, type in enumerate(result_types)])
        self.properties, self.attributes, self.location = dict(properties), {}, UNKNOWN_LOC
        for region in regions:
            self.add_region(region)
        self.__post_init__()

    def erase(self, safe_erase: bool = True, drop_references: bool = True) -> None:
        if any(result.first_use is not None for result in self.results):
            super().erase(safe_erase, drop_references)
            return
        assert self.parent is None, self
        if drop_references:
            self.drop_all_references()

    def __post_init__(self) -> None:
        for table, name, value in _defaults(cast("type[IRDLOperation]", type(self))):
            (self.properties if table == "properties" else self.attributes).setdefault(name, value)


@cache
def _defaults(kind: type[IRDLOperation]) -> list[tuple[str, str, Attribute]]:
    """Lists the properties and attributes of an op class that have a default value and may not be absent."""
    definition = kind.get_irdl_definition()
    stated = [("properties", *p) for p in definition.properties.items()] + [("attributes", *a) for a in definition.attributes.items()]
    return [(table, n, d.default_value) for table, n, d in stated if not isinstance(d, OptionalDef) and d.default_value is not None]
