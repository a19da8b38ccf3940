"""ONNX schemas of custom ops, made from their definitions.

With them, `onnx.checker` and ONNX's shape inference accept models that use the ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import Float16Type, Float32Type, Float64Type, TensorType
from xdsl.dialects.test import TestOp
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from populus.dialects.onnx.attributes import read_attribute
from populus.dialects.onnx.types import as_tensor, from_proto, spelled, to_proto
from populus.dialects.popart.definition import Definition, Operand, Property
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.custom_ops import as_given

if TYPE_CHECKING:
    from onnx.defs import OpSchema
    from onnx.shape_inference import InferenceContext

_FLOATS = (Float16Type(), Float32Type(), Float64Type())


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
            outputs=[_parameter(o) for o in definition.results],
            type_constraints=[
                (v, [f"tensor({_spelled(e)})" for e in next(p for p in parameters if _variable(p) == v).elements or _FLOATS], "")
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


def _variable(p: Operand) -> str:
    """Names the type variable of a parameter."""
    return p.variable or f"T_{p.name}"


def _spelled(element: Attribute) -> str:
    """Spells an element type as ONNX does."""
    return spelled(TensorType(element, [])).removeprefix("tensor(").removesuffix(")")


def _parameter(p: Operand) -> Any:
    """Makes the formal parameter of an operand or result."""
    from onnx.defs import OpSchema

    option = {
        "one": OpSchema.FormalParameterOption.Single,
        "optional": OpSchema.FormalParameterOption.Optional,
        "variadic": OpSchema.FormalParameterOption.Variadic,
    }[p.kind]
    return OpSchema.FormalParameter(p.name, _variable(p), param_option=option)


def _attribute(p: Property) -> Any:
    """Makes the schema's attribute of a property."""
    from onnx.defs import OpSchema

    kinds = {"float": "FLOAT", "int": "INT", "bool": "INT", "string": "STRING", "ints": "INTS", "floats": "FLOATS"}
    kind = getattr(OpSchema.AttrType, kinds[p.kind])
    if p.default is None:
        return OpSchema.Attribute(p.name, kind, p.allowed, required=p.required)
    from onnx.helper import make_attribute

    default = p.plain_default
    return OpSchema.Attribute(p.name, make_attribute(p.name, int(default) if isinstance(default, bool) else default), p.allowed)


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
        for i, type in enumerate(_results(definition, types, context)):
            context.set_output_type(i, to_proto(type))

    return infer


def _results(definition: Definition, types: Sequence[TensorType[Attribute] | None], context: Any) -> Sequence[Attribute]:
    """Infers the result types of the op. Raises ONNX's InferenceError if the op refuses its operands."""
    values = iter(TestOp(result_types=[t for t in types if t is not None]).results)
    operands = [None if t is None else next(values) for t in types]
    properties: dict[str, Any] = {}
    for p in definition.properties.values():
        if p.kind != "any" and (proto := context.get_attribute(p.name)) is not None:
            properties[p.name] = as_given(read_attribute(proto), p)
    try:
        op = definition.op(*operands, **definition.checked(len(operands), properties))
    except (PopulusError, VerifyException) as error:
        from onnx.shape_inference import InferenceError

        raise InferenceError(str(error)) from None
    return [r.type for r in op.results]
