"""User-defined ops: the `popart` class that an `onnx.custom` node stands for.

class Twice(PopartOp):
    name = "popart.twice"
    ONNX: ClassVar = ("my.domain", "Twice", 1)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from xdsl.context import Context
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from populus.dialects.base.tensor_op import Plain
from populus.dialects.data import constant
from populus.dialects.onnx.attributes import plain
from populus.dialects.onnx.schema import SEGMENTS, OnnxOp
from populus.dialects.onnx.structure import CustomOp
from populus.dialects.popart.base import PopartOp
from populus.dialects.popart.definition import Property, definition_of
from populus.dialects.support.diagnostics import PopulusError, nearest, option

if TYPE_CHECKING:
    from numpy.typing import NDArray

Known: TypeAlias = "Callable[[SSAValue], NDArray[Any] | None]"
Versions: TypeAlias = Mapping[int, type[PopartOp]]
Customs: TypeAlias = Mapping[tuple[str, str], Versions]
NO_CUSTOMS: Customs = MappingProxyType({})


def custom_ops(ctx: Context) -> Customs:
    """Lists the op classes of a context with an ONNX identity, by (domain, op type), then version."""
    classes: dict[tuple[str, str], dict[int, type[PopartOp]]] = {}
    if "popart" in ctx.registered_dialect_names and "popart" not in {d.name for d in ctx.loaded_dialects}:
        ctx.load_registered_dialect("popart")  # it has ops of PopART's own domain
    for op in ctx.loaded_ops:
        if issubclass(op, PopartOp) and getattr(op, "ONNX", None) is not None:
            identity = definition_of(op).identity
            assert identity is not None, op
            domain, kind, versions = identity
            classes.setdefault((domain, kind), {}).update(dict.fromkeys(versions, op))
    return classes


def build_custom(op: CustomOp, customs: Customs, known: Known | None = None) -> Operation:
    """Builds the `popart` op of a custom node, detached: operands by position, attributes by name.

    Of several versions, it takes the largest that is at most the model's. `known`: gives the value of an operand, which then counts
    as a constant. Raises PopulusError if no class matches the node, or if its attributes, inputs and outputs do not fit the class.
    """
    domain, kind = op.domain.data, op.op_type.data
    versions = customs.get((domain, kind))
    if versions is None:
        load = option("--load FILE.py", "load='FILE.py'")
        near = nearest(kind, (name for place, name in customs if place == domain))
        raise PopulusError(f"there is no op {kind} in the custom domain '{domain}'; give the file that defines it with {load}{near}")
    stated = op.version.value.data
    if not (fitting := [v for v in versions if v <= stated]):
        raise PopulusError(f"the model states version {stated} of '{domain}'; {kind} is there from version {min(versions)}")
    chosen = versions[max(fitting)]
    if chosen.INTERNAL:
        raise PopulusError(f"{chosen.name} is internal: passes make it, such as for a gradient, and a model does not; leave the node out")
    inputs = op.given
    if known is not None:
        inputs = [v if v is None or (a := known(v)) is None or a.dtype == object else constant(a).result for v in inputs]
    built = build(chosen, inputs, op.node_attributes.data)
    if len(op.outputs) > len(built.results):
        had = f"{len(built.results)} result{'' if len(built.results) == 1 else 's'}"
        raise PopulusError(f"the node has {len(op.outputs)} outputs; {chosen.name} has {had}")
    return built


def overriding(op: OnnxOp, customs: Customs) -> type[PopartOp] | None:
    """Gives the user's class that replaces an ONNX op of this version; None if there is none."""
    if (versions := customs.get((op.DOMAIN, op.OP_TYPE))) is None:
        return None
    fitting = [v for v in versions if v <= op.VERSION]
    return versions[max(fitting)] if fitting else None


def build_overriding(kind: type[PopartOp], op: OnnxOp) -> Operation:
    """Builds the op of a class from `overriding`, detached. Raises PopulusError if it does not fit the node."""
    if any(region.blocks for region in op.regions):
        raise PopulusError(f"{kind.name} takes the place of {op.OP_TYPE}, which holds graphs; only ops without can be replaced")
    own = build(kind, op.inputs, {k: v for k, v in op.properties.items() if k not in SEGMENTS})
    if len(own.results) < len(op.outputs):
        raise PopulusError(f"{kind.name} takes the place of {op.OP_TYPE}, which has {len(op.outputs)} results here, not {len(own.results)}")
    own.location = op.location
    return own


def build(kind: type[PopartOp], inputs: Sequence[SSAValue | None], attributes: Mapping[str, Attribute]) -> Operation:
    """Builds an op from a node's inputs and attributes. Raises PopulusError if they do not fit its definition."""
    definition = definition_of(kind)
    properties = {name: as_given(value, definition.properties.get(name)) for name, value in attributes.items()}
    checked = definition.checked([v is not None for v in inputs], properties)
    try:
        made = kind(*inputs, **checked)
        made.verify()
    except VerifyException as error:
        raise PopulusError(f"{kind.name}: {error}") from error
    return made


def as_given(value: Attribute, property: Property | None) -> Plain:
    """Converts an ONNX attribute for a class: a boolean from an integer, a float from a whole number."""
    if property is not None and property.kind == "float" and isinstance(value, IntegerAttr):
        return float(value.value.data)
    if property is not None and property.kind == "bool" and isinstance(value, IntegerAttr):
        return bool(value.value.data)
    return cast("Plain", plain(value)) if not isinstance(value, IntegerAttr | FloatAttr) else cast("Attribute", value)
