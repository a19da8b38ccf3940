"""An `onnx.defs` schema becomes an op class, when it is first asked for.

    op_class("", "Conv", 17)        # <class Conv_11>, name onnx.Conv_11: the version that opset 17 means

Operands, results, arities, types and defaults are the schema's; attributes are properties; graphs are regions.
"""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, FloatAttr, IntegerAttr, StringAttr
from xdsl.ir import Attribute, Operation, OpResult, Region, SSAValue
from xdsl.irdl import (
    AnyAttr,
    AttrConstraint,
    AttrSizedOperandSegments,
    AttrSizedResultSegments,
    BaseAttr,
    IRDLOperation,
    VerificationContext,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    opt_result_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from populus.dialects.onnx.attributes import plain, read_attribute
from populus.dialects.onnx.types import UnknownType, spelled
from populus.dialects.support.diagnostics import PlainErrors, PopulusError, nearest
from populus.dialects.support.guard import once

if TYPE_CHECKING:
    from onnx.defs import OpSchema

T = TypeVar("T")

SEGMENTS = ("operandSegmentSizes", "resultSegmentSizes")


@dataclass(frozen=True)
class Of(AttrConstraint[Attribute]):
    """One of these types as schemas spell them, of any shape; or a type that is not known yet."""

    allowed: frozenset[str]

    def verify(self, attr: Attribute, constraint_context: VerificationContext) -> None:
        if not isinstance(attr, UnknownType) and spelled(attr) not in self.allowed:
            raise VerifyException(f"{spelled(attr)} is not one of {', '.join(sorted(self.allowed))}")

    def mapping_type_vars(self, type_var_mapping: Mapping[Any, AttrConstraint | Any]) -> Self:
        return self


@dataclass(frozen=True)
class Parameter:
    """An input or output of a schema."""

    name: str
    kind: str  # "single", "optional" or "variadic"
    type: str  # a type variable, shared by all parameters of one type, or a type
    same: bool  # of a variadic: whether all have one type


class OnnxOp(PlainErrors, IRDLOperation, ABC):
    """The base of every op that is generated from a schema; `inputs` and `outputs` are in ONNX's order."""

    DOMAIN: ClassVar[str]
    OP_TYPE: ClassVar[str]
    VERSION: ClassVar[int]
    INPUTS: ClassVar[tuple[Parameter, ...]]
    OUTPUTS: ClassVar[tuple[Parameter, ...]]
    GRAPHS: ClassVar[tuple[str, ...]]  # attributes that are regions, in the order of `regions`
    DEFAULTS: ClassVar[Mapping[str, Attribute]]
    KINDS: ClassVar[Mapping[str, str]]  # ONNX's type of each attribute: INT, FLOATS, GRAPH, ..
    REQUIRED: ClassVar[tuple[str, ...]]  # the attributes that have to be given

    traits = traits_def(Pure())

    @classmethod
    def make(
        cls,
        inputs: Sequence[SSAValue | None],
        outputs: Sequence[Attribute | None],
        properties: Mapping[str, Attribute] = {},
        regions: Mapping[str, Region] = {},
    ) -> Self:
        """Makes an op from its inputs and the types of its outputs; None stands for an omitted one.

        Raises PopulusError if their number is wrong.
        """
        values, operand_sizes = _segments(cls, "input", cls.INPUTS, inputs)
        types, result_sizes = _segments(cls, "output", cls.OUTPUTS, outputs)
        given = dict(properties)
        for key, parameters, sizes in ((SEGMENTS[0], cls.INPUTS, operand_sizes), (SEGMENTS[1], cls.OUTPUTS, result_sizes)):
            if sum(p.kind != "single" for p in parameters) > 1:
                given[key] = _i32s(sizes)
        return cls.create(operands=values, result_types=types, properties=given, regions=[regions.get(g, Region()) for g in cls.GRAPHS])

    @property
    def inputs(self) -> list[SSAValue | None]:
        """By position as in the schema, None where one is left out; without those left out at the end."""
        return _positions(self.INPUTS, list(self.operands), self.properties.get(SEGMENTS[0]))

    @property
    def outputs(self) -> list[OpResult | None]:
        """By position as in the schema, None where one is left out; without those left out at the end."""
        return _positions(self.OUTPUTS, list(self.results), self.properties.get(SEGMENTS[1]))

    def input(self, i: int) -> SSAValue | None:
        """Returns input i, or None if it is omitted."""
        inputs = self.inputs
        return inputs[i] if i < len(inputs) else None

    def output(self, i: int) -> OpResult | None:
        """Returns output i, or None if it is omitted."""
        outputs = self.outputs
        return outputs[i] if i < len(outputs) else None

    def property(self, name: str) -> Any:
        """Returns a property or its default as a Python value; None if it is absent."""
        value = self.properties.get(name, self.DEFAULTS.get(name))
        return None if value is None else plain(value)

    def region(self, name: str) -> Region:
        """Returns the region of a graph attribute."""
        return self.regions[self.GRAPHS.index(name)]

    @classmethod
    def schema(cls) -> OpSchema:
        """Returns the schema of this version of the op."""
        import onnx.defs

        return onnx.defs.get_schema(cls.OP_TYPE, cls.VERSION, cls.DOMAIN)

    @classmethod
    def title(cls) -> str:
        """Names a version of an op as ONNX's documentation does: `Conv-11`, or `ai.onnx.ml.Scaler-1`."""
        return f"{cls.DOMAIN}.{cls.OP_TYPE}-{cls.VERSION}".removeprefix(".")

    def verify_(self) -> None:
        for name, region in zip(self.GRAPHS, self.regions):
            blocks = list(region.blocks)
            if len(blocks) != 1 or (last := blocks[0].last_op) is None or last.name != "onnx.yield":
                raise VerifyException(f"the graph '{name}' is not one block that ends in onnx.yield")
        found: dict[str, tuple[str, str]] = {}
        for parameters, values in ((self.INPUTS, self.inputs), (self.OUTPUTS, self.outputs)):
            for i, value in enumerate(values):
                p = parameters[min(i, len(parameters) - 1)]
                if value is None or isinstance(value.type, UnknownType) or not p.same or "(" in p.type:
                    continue
                type = spelled(value.type)
                other, first = found.setdefault(p.type, (p.name, type))
                if type != first:
                    raise VerifyException(f"{other} is {first}, {p.name} is {type}; {self.title()} wants one type {p.type} for both")

    def print(self, printer: Printer) -> None:
        def value(v: SSAValue | None) -> None:
            printer.print_string("none") if v is None else printer.print_operand(v)

        def type(v: SSAValue | None) -> None:
            printer.print_string("none") if v is None else printer.print_attribute(v.type)

        with printer.in_parens():
            printer.print_list(self.inputs, value)
        hidden = {*SEGMENTS, *(name for name, default in self.DEFAULTS.items() if self.properties.get(name) == default)}
        printer.print_op_attributes({**self.properties, **self.attributes}, reserved_attr_names=hidden)
        printer.print_regions(self.regions)
        printer.print_string(" : ")
        with printer.in_parens():
            printer.print_list(self.inputs, type)
        printer.print_string(" -> ")
        outputs: list[SSAValue | None] = list(self.outputs)
        if len(outputs) == 1:
            type(outputs[0])
        else:
            with printer.in_parens():
                printer.print_list(outputs, type)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        def value() -> Any:
            return None if parser.parse_optional_keyword("none") else parser.parse_unresolved_operand()

        def type() -> Attribute | None:
            return None if parser.parse_optional_keyword("none") else parser.parse_type()

        at = parser.pos
        inputs = parser.parse_comma_separated_list(parser.Delimiter.PAREN, value)
        given = parser.parse_optional_attr_dict()
        regions = parser.parse_region_list()
        parser.parse_punctuation(":")
        operand_types = parser.parse_comma_separated_list(parser.Delimiter.PAREN, type)
        parser.parse_punctuation("->")
        outputs = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, type)
        if outputs is None:
            outputs = [type()]
        if [v is None for v in inputs] != [t is None for t in operand_types]:
            parser.raise_error("operands and their types differ in number", at, parser.pos)
        operands = [None if t is None else parser.resolve_operand(v, t) for v, t in zip(inputs, operand_types)]
        known = cls.get_irdl_definition().properties
        try:
            op = cls.make(operands, outputs, {k: v for k, v in given.items() if k in known}, dict(zip(cls.GRAPHS, regions)))
        except PopulusError as error:
            parser.raise_error(str(error), at, parser.pos)
        op.attributes.update({k: v for k, v in given.items() if k not in known})
        return op


def _i32s(values: Sequence[int]) -> DenseArrayBase[Any]:
    from xdsl.dialects.builtin import i32

    return DenseArrayBase.from_list(i32, list(values))


def _segments(cls: type[OnnxOp], what: str, parameters: Sequence[Parameter], given: Sequence[T | None]) -> tuple[list[T], list[int]]:
    """Returns the present values and their number per parameter. Raises PopulusError for too many or too few."""
    flat: list[T] = []
    sizes: list[int] = []
    rest = list(given)
    while rest and rest[-1] is None:
        rest.pop()
    for i, p in enumerate(parameters):
        if p.kind == "variadic":
            if any(v is None for v in rest):
                raise PopulusError(f"{cls.title()} has a {what} '{p.name}' that is left out in the middle of others")
            taken = [v for v in rest if v is not None]
            rest = []
        else:
            taken = [v for v in rest[:1] if v is not None]
            rest = rest[1:]
            if p.kind == "single" and not taken:
                least = sum(q.kind == "single" for q in parameters)
                raise PopulusError(f"{cls.title()} has no {what} '{p.name}' (number {i + 1}); it needs {least} {what}s at least")
        flat += taken
        sizes.append(len(taken))
    if rest:
        raise PopulusError(f"{cls.title()} has {len(given)} {what}s; it takes {len(parameters)} at most")
    return flat, sizes


def _positions(parameters: Sequence[Parameter], flat: list[T], sizes: Attribute | None) -> list[T | None]:
    if sizes is None and len(flat) == len(parameters):
        return [*flat]
    if isinstance(sizes, DenseArrayBase):
        counts = [int(n) for n in sizes.get_values()]
    else:  # at most one parameter is not single, so the counts follow
        loose = len(flat) - sum(p.kind == "single" for p in parameters)
        counts = [1 if p.kind == "single" else loose for p in parameters]
    result: list[T | None] = []
    for p, n in zip(parameters, counts):
        result += flat[:n] if n or p.kind == "variadic" else [None]
        flat = flat[n:]
    while result and result[-1] is None:
        result.pop()
    return result


def op_name(domain: str, op_type: str, version: int) -> str:
    """Makes the name of an op: `onnx.Conv_11`, `onnx.ai_onnx_ml_Scaler_1`."""
    prefix = f"{domain.replace('.', '_')}_" if domain else ""
    return f"onnx.{prefix}{op_type}_{version}"


@once
def op_class(domain: str, op_type: str, opset: int) -> type[OnnxOp]:
    """Returns the op class that opset `opset` of `domain` defines for `op_type`.

    Raises PopulusError if there is none, or if it was withdrawn by then.
    """
    import onnx.defs

    domain = "" if domain == "ai.onnx" else domain
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        schemas = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain == domain]
        known = {s.since_version for s in schemas if s.name == op_type}
        if known:
            text = f"{op_type} exists from opset {min(known)} on, the model states opset {opset}"
        else:
            names = {s.name for s in schemas if s.since_version <= opset and not s.deprecated}
            text = f"there is no op {op_type} in the domain '{domain or 'ai.onnx'}'{nearest(op_type, names)}"
        raise PopulusError(text) from None
    if schema.deprecated:
        raise PopulusError(f"{op_type} was withdrawn in opset {schema.since_version}, the model states opset {opset}")
    return _make(domain, op_type, schema.since_version)


@once
def _make(domain: str, op_type: str, version: int) -> type[OnnxOp]:
    import onnx.defs

    schema: Any = onnx.defs.get_schema(op_type, version, domain)
    types = {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints}
    inputs, outputs = ([_parameter(p) for p in ps] for ps in (schema.inputs, schema.outputs))
    graphs = tuple(sorted(n for n, a in schema.attributes.items() if a.type == onnx.defs.OpSchema.AttrType.GRAPH))
    defaults = {
        name: read_attribute(a.default_value)
        for name, a in schema.attributes.items()
        if a.default_value.name and a.default_value.type and name not in graphs
    }
    namespace: dict[str, Any] = {
        "name": op_name(domain, op_type, version),
        "DOMAIN": domain,
        "OP_TYPE": op_type,
        "VERSION": version,
        "INPUTS": tuple(inputs),
        "OUTPUTS": tuple(outputs),
        "GRAPHS": graphs,
        "DEFAULTS": defaults,
        "KINDS": {name: a.type.name for name, a in schema.attributes.items()},
        "REQUIRED": tuple(sorted(name for name, a in schema.attributes.items() if a.required)),
        "__annotations__": dict(OnnxOp.__annotations__),  # what tells xDSL that the constants are no fields
        "__module__": "populus.dialects.onnx.ops",
        "__doc__": schema.doc,
    }
    for p in inputs:
        constraint = Of(types.get(p.type, frozenset((p.type,))))
        define = {"single": operand_def, "optional": opt_operand_def, "variadic": var_operand_def}[p.kind]
        namespace[field_name(p.name, namespace)] = define(constraint)
    for p in outputs:
        constraint = Of(types.get(p.type, frozenset((p.type,))))
        define = {"single": result_def, "optional": opt_result_def, "variadic": var_result_def}[p.kind]
        namespace[field_name(p.name, namespace)] = define(constraint)
    for name in sorted(schema.attributes):
        a = schema.attributes[name]
        if name in graphs:
            namespace[field_name(name, namespace)] = region_def()  # empty where it is left out
        elif a.required:
            namespace[field_name(name, namespace)] = prop_def(_constraint(a.type.name), prop_name=name)
        elif name in defaults:
            namespace[field_name(name, namespace)] = prop_def(_constraint(a.type.name), defaults[name], prop_name=name)
        else:
            namespace[field_name(name, namespace)] = opt_prop_def(_constraint(a.type.name), prop_name=name)
    options: list[Any] = []
    if sum(p.kind != "single" for p in inputs) > 1:
        options.append(AttrSizedOperandSegments(as_property=True))
    if sum(p.kind != "single" for p in outputs) > 1:
        options.append(AttrSizedResultSegments(as_property=True))
    namespace["irdl_options"] = tuple(options)
    if str(schema.node_determinism).endswith("NonDeterministic"):
        namespace["traits"] = traits_def()
    return irdl_op_definition(type(op_name(domain, op_type, version).removeprefix("onnx."), (OnnxOp,), namespace))


def field_name(name: str, taken: Iterable[str]) -> str:
    """Names the Python attribute of a parameter or property: its own name, with `_` appended if that is taken."""
    result = re.sub(r"\W", "_", name)
    while result in taken or hasattr(OnnxOp, result):
        result += "_"
    return result


def _parameter(p: Any) -> Parameter:
    kind: str = p.option.name.lower()
    return Parameter(p.name, kind, p.type_str, kind != "variadic" or p.is_homogeneous)


_CONSTRAINTS: dict[str, AttrConstraint[Attribute]] = {
    "INT": BaseAttr(IntegerAttr),
    "FLOAT": BaseAttr(FloatAttr),
    "STRING": BaseAttr(StringAttr),
    "INTS": BaseAttr(DenseArrayBase),
    "FLOATS": BaseAttr(DenseArrayBase),
    "STRINGS": BaseAttr(ArrayAttr),
}


def _constraint(type: str) -> AttrConstraint[Attribute]:
    return _CONSTRAINTS.get(type, AnyAttr())


def all_classes() -> list[type[OnnxOp]]:
    """Lists every version of every op, each domain's newest last. The first call takes about 0.1 s."""
    import onnx.defs

    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if not s.deprecated]
    return [_make(s.domain, s.name, s.since_version) for s in sorted(schemas, key=lambda s: (s.domain, s.name, s.since_version))]


def is_onnx(op: Operation) -> bool:
    """Tells whether an op belongs to this level."""
    return op.name.startswith("onnx.")
