"""A user's own op: the popart class that an `onnx.custom` node stands for.

class Twice(PopartOp):
    name = "popart.twice"
    ONNX: ClassVar = ("my.domain", "Twice", 1)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from xdsl.context import Context
from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, f32, i1, i64
from xdsl.ir import Attribute, Operation
from xdsl.irdl import IRDLOperation
from xdsl.utils.exceptions import VerifyException

from populus.dialects.diagnostics import PopulusError
from populus.dialects.onnx.attributes import plain
from populus.dialects.onnx.structure import CustomOp

Customs = Mapping[tuple[str, str], type[Operation]]


def custom_ops(ctx: Context) -> dict[tuple[str, str], type[Operation]]:
    """The op classes of a context that state which ONNX node they are, by (domain, op type)."""
    return {(c.ONNX[0], c.ONNX[1]): c for c in ctx.loaded_ops if isinstance(getattr(c, "ONNX", None), tuple)}  # pyright: ignore


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
    known = {d.attr_name if hasattr(d, "attr_name") else name for name, d in definition.properties.items()}  # pyright: ignore
    if unknown := sorted(set(given) - known):
        raise PopulusError(f"{found.name} has no property '{unknown[0]}'; it has {', '.join(sorted(known)) or 'none'}")
    try:
        return cast(Any, found)(*op.inputs, **{name: _value(value, definition.properties[name].constr) for name, value in given.items()})
    except (AssertionError, VerifyException) as error:
        raise PopulusError(f"{found.name}: {error}") from error


def _value(value: Attribute, constraint: Any) -> Any:
    """An ONNX attribute as a class takes it: booleans are integers in ONNX."""
    if isinstance(value, IntegerAttr) and value.type == i64:
        boolean = IntegerAttr(int(value.value.data != 0), i1)
        return boolean if constraint.verifies(boolean) and not constraint.verifies(value) else value
    if isinstance(value, FloatAttr) and value.type == f32:
        return value
    return [float(v) for v in value.get_values()] if isinstance(value, DenseArrayBase) and value.elt_type == f32 else plain(value)
