"""The ops that programs may use: `getSupportedOperations` and their definitions, read from the tables of opsets and rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from populus.dialects.popart import POPART as Popart
from populus.lowering.onnx.host_ops import FUNCTIONS
from populus.lowering.onnx.structure import RULES as RESOLVED
from populus.lowering.onnx.to_popart import RULES as LOWERED
from populus.popart.builder import VERSIONS
from populus.popart.graphcore_signatures import SIGNATURES
from populus.popart.rules import rule_of
from populus.popart.translation import NATIVE

if TYPE_CHECKING:
    from onnx.defs import OpSchema

_CONSTANT = ("Constant", "Shape", "Size")  # their results are known while compiling


@dataclass(frozen=True)
class OperatorIdentifier:
    """An op: its domain, type, and the version of the domain that has it."""

    domain: str
    type: str
    version: int


@dataclass(frozen=True)
class OpDefinitionInput:
    """An input of an op: its name, and the element types that it may have."""

    name: str
    supportedTensors: Sequence[str] = ()
    constant: bool = False


@dataclass(frozen=True)
class OpDefinitionOutput:
    """An output of an op: its name, and the element types that it may have."""

    name: str
    supportedTensors: Sequence[str] = ()


@dataclass(frozen=True)
class OpDefinitionAttribute:
    """An attribute of an op: a regular expression of its values."""

    supportedValuesRegex: str = ".*"


@dataclass(frozen=True)
class OpDefinition:
    """Inputs, outputs and attributes of an op."""

    inputs: Sequence[OpDefinitionInput] = ()
    outputs: Sequence[OpDefinitionOutput] = ()
    attributes: Mapping[str, OpDefinitionAttribute] = field(default_factory=dict[str, OpDefinitionAttribute])


@cache
def _public() -> Mapping[OperatorIdentifier, OpDefinition]:
    """Gives the ops that a program may name, with their definitions."""
    found: dict[OperatorIdentifier, OpDefinition] = {}
    for schema in _schemas(VERSIONS[-1]):
        if _has_rule(schema):
            found[OperatorIdentifier("ai.onnx", schema.name, schema.since_version)] = _definition(schema)
    for signature in SIGNATURES.values():
        if rule_of("ai.graphcore", signature.op) is not None or signature.op in NATIVE:
            names = {n: OpDefinitionAttribute() for n in signature.attributes}
            found[OperatorIdentifier("ai.graphcore", signature.op, 1)] = OpDefinition(attributes=names)
    return found


def _schemas(newest: int) -> Iterator[OpSchema]:
    from onnx.defs import get_all_schemas_with_history

    for schema in get_all_schemas_with_history():
        if not schema.domain and schema.since_version <= newest and not schema.deprecated:
            yield schema


def _has_rule(schema: Any) -> bool:
    """Tells whether the compiler has a rule for an op, or ONNX a function, or shapes and constants are its result."""
    name = schema.name
    known = name in LOWERED or name in RESOLVED or name in FUNCTIONS or rule_of("", name) is not None
    return known or name in _CONSTANT or bool(schema.has_function or schema.has_context_dependent_function)


def _definition(schema: OpSchema) -> OpDefinition:
    """Gives the definition of an op of ONNX, from its schema."""
    inputs = [OpDefinitionInput(i.name, sorted(i.types)) for i in schema.inputs]
    outputs = [OpDefinitionOutput(o.name, sorted(o.types)) for o in schema.outputs]
    return OpDefinition(inputs, outputs, {n: OpDefinitionAttribute() for n in schema.attributes})


@cache
def _internal() -> Mapping[OperatorIdentifier, OpDefinition]:
    """Gives the ops of the `popart` dialect, which no program names."""
    found: dict[OperatorIdentifier, OpDefinition] = {}
    kinds: Iterator[Any] = iter(Popart.operations)
    for kind in kinds:
        inputs = [OpDefinitionInput(n) for n, _ in kind.get_irdl_definition().operands]
        outputs = [OpDefinitionOutput(n) for n, _ in kind.get_irdl_definition().results]
        found[OperatorIdentifier("populus", kind.name, 1)] = OpDefinition(inputs, outputs)
    return found


def getSupportedOperationsDefinition(includeInternal: bool) -> dict[OperatorIdentifier, OpDefinition]:
    """Gives the ops that there are with their definitions; those of the compiler's own level too, if asked."""
    return {**_public(), **(_internal() if includeInternal else {})}


def getSupportedOperations(includeInternal: bool) -> list[OperatorIdentifier]:
    """Lists the ops that there are; those of the compiler's own level too, if asked."""
    return list(getSupportedOperationsDefinition(includeInternal))


def getUnsupportedOperations(opsetVersion: int) -> list[OperatorIdentifier]:
    """Lists the ops of an opset of ONNX that the compiler has no rule for."""
    newest: dict[str, OpSchema] = {}
    for schema in _schemas(opsetVersion):
        if schema.name not in newest or newest[schema.name].since_version < schema.since_version:
            newest[schema.name] = schema
    return [OperatorIdentifier("ai.onnx", n, s.since_version) for n, s in newest.items() if not _has_rule(s)]
