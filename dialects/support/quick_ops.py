"""The class of our op classes: quicker accessors of operands and results, and quicker `isinstance`, than xDSL's.

A net of a thousand ops asks for 50,000 operands and results by name, and 300,000 times whether a value is of a class.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Mapping
from typing import Any, cast

from xdsl.ir import Operation, SSAValue
from xdsl.irdl import OpDef
from xdsl.irdl.operations import BeforeVariadicSingleAccessor, VarIRConstruct

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
    quick = _QUICK.get(value.construct) if isinstance(value, BeforeVariadicSingleAccessor) else None
    return value if quick is None else quick(value.construct, value.idx)


class _Operand(BeforeVariadicSingleAccessor):
    def __get__(self, obj: Operation, objtype: type | None = None) -> SSAValue:
        return _item(obj._operands, self.idx)  # pyright: ignore[reportPrivateUsage], as `operands` makes an object


class _Result(BeforeVariadicSingleAccessor):
    def __get__(self, obj: Operation, objtype: type | None = None) -> SSAValue:
        return _item(obj.results, self.idx)


_QUICK = {VarIRConstruct.OPERAND: _Operand, VarIRConstruct.RESULT: _Result}
