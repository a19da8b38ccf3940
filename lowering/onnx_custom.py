"""A user's own op: the popart class that an `onnx.custom` node stands for.

class Twice(PopartOp):
    name = "popart.twice"
    ONNX: ClassVar = ("my.domain", "Twice", 1)
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from xdsl.context import Context
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, i1
from xdsl.ir import Attribute, Operation
from xdsl.irdl import IRDLOperation
from xdsl.utils.exceptions import VerifyException

from populus.dialects.diagnostics import PopulusError
from populus.dialects.onnx.attributes import plain
from populus.dialects.onnx.structure import CustomOp

Customs: TypeAlias = Mapping[tuple[str, str], type[Operation]]
NO_CUSTOMS: Customs = MappingProxyType({})


def custom_ops(ctx: Context) -> dict[tuple[str, str], type[Operation]]:
    """The op classes of a context that state which ONNX node they are, by (domain, op type)."""
    stated = [(getattr(c, "ONNX", None), c) for c in ctx.loaded_ops]
    return {(entry[0], entry[1]): c for entry, c in stated if isinstance(entry, tuple)}


def build_custom(op: CustomOp, customs: Customs) -> Operation:
    """The popart op of a custom node: operands by position, properties by name. Not inserted anywhere.

    Raises PopulusError if no class stands for the node, or if its attributes and inputs are not those of the class.
    """
    key = (op.domain.data, op.op_type.data)
    found = customs.get(key)
    if found is None:
        raise PopulusError(f"there is no op {key[1]} in the custom domain '{key[0]}'; give the file that defines it with --load FILE.py")
    version = cast(Any, found).ONNX[2]
    if op.version.value.data != version:
        raise PopulusError(f"the model states version {op.version.value.data} of '{key[0]}'; {found.__name__} is version {version}")
    assert issubclass(found, IRDLOperation), found
    definition = found.get_irdl_definition()
    given = op.node_attributes.data
    known = set(definition.properties)
    if unknown := sorted(set(given) - known):
        raise PopulusError(f"{found.name} has no property '{unknown[0]}'; it has {', '.join(sorted(known)) or 'none'}")
    try:
        return cast(Any, found)(*op.inputs, **{name: _value(value, definition.properties[name].constr) for name, value in given.items()})
    except (AssertionError, VerifyException) as error:
        raise PopulusError(f"{found.name}: {error}") from error


def _value(value: Attribute, constraint: Any) -> object:
    """An ONNX attribute as a class takes it: numbers stay attributes, booleans are integers in ONNX."""
    if isinstance(value, IntegerAttr) and not constraint.verifies(value):
        return IntegerAttr(int(value.value.data != 0), i1)
    if isinstance(value, IntegerAttr | FloatAttr):
        return cast("Attribute", value)
    return plain(value)
