"""ONNX schemas of custom ops, made from their definitions.

With them, `onnx.checker` and ONNX's shape inference accept models that use the ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import TensorType, bf16, f16, f32, f64, i1, i8, i16, i32, i64
from xdsl.dialects.test import TestOp
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from populus.dialects.data import constant
from populus.dialects.onnx.attributes import read_attribute
from populus.dialects.onnx.types import as_tensor, from_proto, spelled, to_proto
from populus.dialects.popart.definition import Definition, Operand, Property
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import ui8, ui16, ui32, ui64
from populus.dialects.support.registries import registry
from populus.lowering.onnx.custom_ops import as_given

if TYPE_CHECKING:
    from onnx import TensorProto
    from onnx.defs import OpSchema
    from onnx.shape_inference import InferenceContext

# Of an operand of any type.
KNOWN = (bf16, f16, f32, f64, i1, i8, i16, i32, i64, ui8, ui16, ui32, ui64)


KINDS = {
    "float": "FLOAT",
    "int": "INT",
    "bool": "INT",
    "string": "STRING",
    "ints": "INTS",
    "floats": "FLOATS",
    "strings": "STRINGS",
    "tensor": "TENSOR",
}


def schemas(definition: Definition) -> list[OpSchema]:
    """Makes one schema for each version of a definition, not registered; none without an ONNX identity."""
    from onnx.defs import OpSchema

    if definition.identity is None:
        return []
    domain, kind, versions = definition.identity
    parameters = [*definition.operands, *definition.results]
    versioned: list[OpSchema] = []
    for version in versions:
        schema = OpSchema(
            kind,
            domain,
            version,
            definition.doc,
            inputs=[_parameter(o) for o in definition.operands],
            outputs=[_parameter(o, left_out=len(definition.results) > 1) for o in definition.results],
            type_constraints=[
                (v, [f"tensor({_spelled(e)})" for e in next(p for p in parameters if _variable(p) == v).elements or KNOWN], "")
                for v in dict.fromkeys(_variable(p) for p in parameters)
            ],
            attributes=[_attribute(p) for p in definition.properties.values() if p.kind != "any"],
        )
        schema.set_type_and_shape_inference_function(_inference(definition))
        versioned.append(schema)
    return versioned


def register(definition: Definition) -> None:
    """Registers the schemas of a definition with ONNX; replaces schemas of the same identity."""
    # ONNX's reference lists all schemas when imported, and refuses a name in two domains, so it is imported first.
    import onnx.reference  # pyright: ignore[reportUnusedImport]  # noqa: F401
    from onnx import defs

    for schema in schemas(definition):
        if defs.has(schema.name, schema.since_version, schema.domain):
            known = defs.get_schema(schema.name, schema.since_version, schema.domain)
            if known.since_version == schema.since_version:
                defs.deregister_schema(schema.name, schema.since_version, schema.domain)
        defs.register_schema(schema)
        _WANTED[schema.name, schema.since_version, schema.domain] = schema
    _AT_ONNX.update(_WANTED)


_WANTED = registry(dict[tuple[str, int, str], "OpSchema"]())  # by name, version and domain
_AT_ONNX = dict(_WANTED)


def restore() -> None:
    """Gives ONNX the schemas of the registry, and no others of loaded ops."""
    from onnx import defs

    for key, schema in list(_AT_ONNX.items()):
        if _WANTED.get(key) is not schema:
            defs.deregister_schema(*key)
            del _AT_ONNX[key]
    for key in _WANTED.keys() - _AT_ONNX.keys():
        defs.register_schema(_WANTED[key])
        _AT_ONNX[key] = _WANTED[key]


def _variable(p: Operand) -> str:
    """Names the type variable of a parameter."""
    return p.variable or f"T_{p.name}"


def _spelled(element: Attribute) -> str:
    """Spells an element type as ONNX does."""
    return spelled(TensorType(element, [])).removeprefix("tensor(").removesuffix(")")


def _parameter(p: Operand, left_out: bool = False) -> Any:
    """Makes the formal parameter of an operand or result. `left_out`: a node may do without it."""
    from onnx.defs import OpSchema

    option = {
        "one": OpSchema.FormalParameterOption.Single,
        "optional": OpSchema.FormalParameterOption.Optional,
        "variadic": OpSchema.FormalParameterOption.Variadic,
    }["optional" if left_out and p.kind == "one" else p.kind]
    return OpSchema.FormalParameter(p.name, _variable(p), param_option=option, min_arity=0 if p.kind == "variadic" else 1)


def _attribute(p: Property) -> Any:
    """Makes the schema's attribute of a property."""
    from onnx.defs import OpSchema

    kind = getattr(OpSchema.AttrType, KINDS[p.kind])
    if p.default is None:
        return OpSchema.Attribute(p.name, kind, p.allowed, required=p.required)
    from onnx import AttributeProto
    from onnx.helper import make_attribute
    from onnx.numpy_helper import from_array

    default: Any = p.plain_default
    default = int(default) if isinstance(default, bool) else from_array(default) if p.kind == "tensor" else default
    made = make_attribute(p.name, default, attr_type=AttributeProto.AttributeType.Value(KINDS[p.kind]))
    return OpSchema.Attribute(p.name, made, p.allowed)


def _inference(definition: Definition) -> Callable[[InferenceContext], None]:
    """Makes ONNX's inference function from the op's shape rule; it sets nothing while a shape is open."""

    def infer(context: InferenceContext) -> None:
        types: list[TensorType[Attribute] | None] = []
        for i in range(context.get_num_inputs()):
            proto = context.get_input_type(i) if context.has_input(i) else None
            type = None if proto is None else as_tensor(from_proto(proto))
            if proto is not None and (type is None or min(type.get_shape(), default=0) < 0):
                return
            types.append(type)
        while types and types[-1] is None:
            types.pop()
        read = [o.name in definition.op.CONSTANTS for o in definition.taken(len(types))]
        values = [context.get_input_data(i) if r else None for i, r in enumerate(read)]
        if any(r and v is None and t is not None for r, v, t in zip(read, values, types)):
            return
        for i, type in enumerate(_results(definition, types, values, context)):
            context.set_output_type(i, to_proto(type))

    return infer


def _results(
    definition: Definition, types: Sequence[TensorType[Attribute] | None], values: Sequence[TensorProto | None], context: Any
) -> Sequence[Attribute]:
    """Infers the result types of the op. Raises ONNX's InferenceError if the op refuses its operands."""
    from onnx.numpy_helper import to_array

    unknown = iter(TestOp(result_types=[t for t in types if t is not None]).results)
    operands = [None if t is None else next(unknown) for t in types]
    operands = [o if o is None or v is None else constant(to_array(v)).result for o, v in zip(operands, values)]
    properties: dict[str, Any] = {}
    for p in definition.properties.values():
        if p.kind != "any" and (proto := context.get_attribute(p.name)) is not None:
            properties[p.name] = as_given(read_attribute(proto), p)
    try:
        op = definition.op(*operands, **definition.checked([o is not None for o in operands], properties))
    except (PopulusError, VerifyException) as error:
        from onnx.shape_inference import InferenceError

        raise InferenceError(str(error)) from None
    return [r.type for r in op.results]
