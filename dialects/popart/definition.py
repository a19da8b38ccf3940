"""Definitions of ops, read from their classes: operands, results, attributes, ONNX identity, formula.

Schema, builder function, checks and page of an op are derived from its definition:

    definition_of(LeakyReluOp).properties["alpha"].default      # 0.01
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, FloatAttr, IntegerAttr, StringAttr, f32, f64, i1, i64
from xdsl.ir import Attribute
from xdsl.irdl import (
    AttrConstraint,
    AttrSizedOperandSegments,
    IRDLOperation,
    OpDef,
    OptOperandDef,
    RangeOf,
    VarConstraint,
    VarOperandDef,
    VerificationContext,
)
from xdsl.irdl.constraints import RangeLengthConstraint
from xdsl.irdl.operations import OptionalDef
from xdsl.utils.exceptions import VerifyException

from populus.dialects.base.tensor_op import Plain, attribute
from populus.dialects.popart.base import ElementwiseOp, PopartOp
from populus.dialects.popart.examples import problem
from populus.dialects.support.attribute_values import TypedConstraint
from populus.dialects.support.constraints import ElementsOf, Numbers, OneOf, Strings, TensorOf, Wholes, WholeWithin, Within
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.guard import once

RESERVED_DOMAINS = frozenset(
    ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview", "ai.onnx.preview.training", "ai.graphcore")
)

# kind -> an attribute of it
_SAMPLES: dict[str, Attribute] = {
    "float": FloatAttr(0.0, f32),
    "bool": IntegerAttr(0, i1),
    "int": IntegerAttr(0, i64),
    "string": StringAttr(""),
    "ints": DenseArrayBase.from_list(i64, [0]),
    "floats": DenseArrayBase.from_list(f64, [0.0]),
    "strings": ArrayAttr([StringAttr("")]),
}
_LISTS: dict[str, TypedConstraint[Any]] = {"ints": Wholes(), "floats": Numbers(), "strings": Strings()}


@dataclass(frozen=True)
class Operand:
    """An operand or a result. `kind`: `one`, `optional` or `variadic`. `variable`: of its type; equal ones are equal types.

    `elements`: the element types it may have; any if there are none. `any_shape`: the variable is of its element type alone.
    """

    name: str
    kind: str
    variable: str
    elements: tuple[Attribute, ...]
    any_shape: bool = False


@dataclass(frozen=True)
class Property:
    """An attribute. `kind`: `float`, `int`, `bool`, `string`, `ints`, `floats`, `strings`, `tensor`, or `any`: only text can say it."""

    name: str
    kind: str
    constraint: AttrConstraint
    default: Attribute | None
    optional: bool

    @property
    def required(self) -> bool:
        """True if it has no default and is not optional."""
        return self.default is None and not self.optional

    @property
    def plain_default(self) -> object:
        """The default as a Python value; None if there is none."""
        return None if self.default is None else plain(self.default)

    @property
    def allowed(self) -> str:
        """Its kind and range: `float, -1 .. 1`."""
        bounded = isinstance(self.constraint, Within | WholeWithin) and self.constraint not in (Within(), WholeWithin())
        return f"{self.kind}, {self.constraint}" if bounded or isinstance(self.constraint, OneOf) else self.kind

    def checked(self, value: Plain) -> Attribute:
        """Converts a value to the IR attribute. Raises PopulusError that states the allowed values."""
        if self.kind == "float" and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if self.kind == "bool" and isinstance(value, int) and value in (0, 1):
            value = bool(value)
        listed = _LISTS.get(self.kind) or (self.constraint if self.kind == "tensor" else None)
        try:
            if isinstance(value, Attribute) or not isinstance(listed, TypedConstraint):
                found = attribute(value)
            else:
                found = listed.attribute_of(cast("Any", value).tolist() if hasattr(value, "tolist") and self.kind != "tensor" else value)
            self.constraint.verify(found, VerificationContext())
        except (OverflowError, TypeError, ValueError, VerifyException):
            said = plain(value) if isinstance(value, Attribute) else value
            raise PopulusError(f"'{self.name}' is {said!r}; {self.allowed} is allowed") from None
        return found


@dataclass(frozen=True)
class Definition:
    """The definition of an op's class. `identity`: (domain, op type, versions) in ONNX, or None; `doc`: its docstring."""

    op: type[PopartOp]
    identity: tuple[str, str, tuple[int, ...]] | None
    operands: tuple[Operand, ...]
    results: tuple[Operand, ...]
    properties: Mapping[str, Property]
    doc: str

    @property
    def name(self) -> str:
        """The op's name without its dialect: `leaky_relu`."""
        return self.op.name.partition(".")[2]

    @property
    def formula(self) -> str:
        """The first text in backquotes of the docstring; empty if there is none."""
        found = re.search(r"`([^`]+)`", self.doc)
        return found.group(1) if found else ""

    @property
    def source(self) -> str:
        """The text after `Source:` in the docstring; empty if there is none."""
        found = re.search(r"Source:\s*(.+?)\s*$", self.doc, re.DOTALL)
        return " ".join(found.group(1).split()) if found else ""

    @property
    def has_evaluate(self) -> bool:
        """True if its values can be computed without lowering it."""
        return self.op.evaluate is not PopartOp.evaluate or issubclass(self.op, ElementwiseOp)

    @property
    def has_lowering(self) -> bool:
        """True if the class defines `lower`."""
        return self.op.lower is not PopartOp.lower

    @property
    def has_gradient(self) -> bool:
        """True if the class defines `gradient`."""
        return self.op.gradient is not PopartOp.gradient

    def taken(self, count: int) -> list[Operand]:
        """Lists the operand that each of so many given ones is."""
        found: list[Operand] = []
        for place, o in enumerate(self.operands, 1):
            times = max(0, count - len(found) - (len(self.operands) - place)) if o.kind == "variadic" else 1
            found += [o] * times
        return found[:count]

    def checked(self, given: Sequence[bool], properties: Mapping[str, Plain | None]) -> dict[str, Plain]:
        """Checks which operands are there, and converts the attributes. Raises PopulusError for either that does not fit.

        given: for each operand in order, whether it is there. Trailing ones that are not may be left out.
        """
        operands = len(given)
        least = max((i for i, o in enumerate(self.operands, 1) if o.kind == "one"), default=0)
        least -= any(o.kind == "variadic" for o in self.operands[:least])  # there may be none of it
        most = None if any(o.kind == "variadic" for o in self.operands) else len(self.operands)
        if operands < least or (most is not None and operands > most):
            names = ", ".join(o.name + {"optional": "?", "variadic": "..."}.get(o.kind, "") for o in self.operands)
            raise PopulusError(f"{self.op.name} takes {names}; {operands} operand{' is' if operands == 1 else 's are'} given")
        for o, there in zip(self.taken(operands), given):
            if not there and o.kind != "optional":
                part = "one of " if o.kind == "variadic" else ""
                raise PopulusError(f"{self.op.name}: {part}'{o.name}' is left out, which is not optional")
        found: dict[str, Plain] = {}
        for name, value in properties.items():
            if name not in self.properties:
                raise PopulusError(f"{self.op.name} has no attribute '{name}'{did_you_mean(name, self.properties)}")
            if value is not None:
                try:
                    found[name] = self.properties[name].checked(value)
                except PopulusError as error:
                    raise PopulusError(f"{self.op.name}: {error}") from None
        if missing := [p.name for p in self.properties.values() if p.required and p.name not in found]:
            raise PopulusError(f"{self.op.name} needs the attribute '{missing[0]}' ({self.properties[missing[0]].allowed})")
        return found


@once
def _built_in() -> dict[str, type[PopartOp]]:
    """Finds the ops of the dialect by their classes; all of its modules are imported with the first of them."""
    found, todo = dict[str, type[PopartOp]](), [PopartOp]
    while todo:
        todo += (op := todo.pop()).__subclasses__()
        name: object = vars(op).get("name")
        if op.__module__.startswith("populus.dialects.popart.") and isinstance(name, str) and name.startswith("popart."):
            found[name.removeprefix("popart.")] = op
    return found


def built_in(name: str) -> type[PopartOp]:
    """Finds a built-in op by name, such as `relu`. Raises PopulusError with the nearest name if there is none."""
    ops = _built_in()
    if name not in ops:
        raise PopulusError(f"there is no op '{name}'{did_you_mean(name, ops)}")
    return ops[name]


def plain(value: Attribute) -> object:
    """Converts an attribute to a Python value; returns an attribute of another kind as it is."""
    match value:
        case FloatAttr():
            return _shortest(value.value.data, value.type)
        case IntegerAttr():
            return bool(value.value.data) if value.type == i1 else value.value.data
        case StringAttr():
            return value.data
        case DenseArrayBase():
            return tuple(cast("DenseArrayBase[Any]", value).get_values())
        case ArrayAttr() if all(isinstance(v, StringAttr) for v in value):
            return tuple(v.data for v in cast("ArrayAttr[StringAttr]", value))
        case _ if hasattr(value, "array"):  # a tensor
            return cast("Any", value).array
        case _:
            return value


def _shortest(value: float, type: Attribute) -> float:
    """Shortens a 32-bit float to the fewest digits that identify it: 0.01, not 0.009999999776."""
    import numpy as np

    return float(str(np.float32(value))) if type == f32 else value


@once
def definition_of(op: type[PopartOp]) -> Definition:
    """Reads the definition of a class. Raises PopulusError, naming class and part, if a part is missing or wrong."""
    title = f"class {op.__name__}"
    if not isinstance(getattr(op, "name", None), str) or op.name.count(".") != 1 or not all(op.name.split(".")):
        raise PopulusError(
            f'{title}: `name` is {getattr(op, "name", None)!r}; a dialect and a name are expected, such as "acme.leaky_relu"'
        )
    title = f"{title} ({op.name})"
    if missing := sorted(cast("Sequence[str]", getattr(op, "__abstractmethods__", ()))):
        raise PopulusError(f"{title} lacks `{missing[0]}`; give the class a method of that name")
    irdl = cast("OpDef | None", op.get_irdl_definition())
    if irdl is None or irdl.name != op.name:
        raise PopulusError(f"{title} lacks @irdl_op_definition above it")
    doc = inspect.cleandoc(op.__doc__ or "")
    inherited = next(b.__doc__ for b in op.__mro__[1:] if issubclass(b, IRDLOperation))
    if sys.flags.optimize < 2 and (not doc or op.__doc__ == inherited):  # python -OO has removed all docstrings
        raise PopulusError(f"{title} lacks a docstring; its first line is the formula, such as `y = max(x, 0)`")
    options = (AttrSizedOperandSegments.attribute_name,)
    found = Definition(
        op,
        _identity(title, vars(op).get("ONNX", getattr(op, "ONNX", None))),
        tuple(_operand(n, d) for n, d in irdl.operands),
        tuple(_operand(n, d) for n, d in irdl.results),
        {n: _property(n, d) for n, d in irdl.properties.items() if n not in options},
        doc,
    )
    _check_members(title, found)
    return found


def _check_members(title: str, found: Definition) -> None:
    """Raises PopulusError for a default that is not allowed, a seed that is no operand, and examples that are none.

    One operand may be several; in a node of ONNX's, that is the last.
    """
    several = [o.name for o in found.operands if o.kind == "variadic"]
    if len(several) > 1:
        raise PopulusError(f"{title}: '{several[0]}' and '{several[1]}' may both be any number of operands; only one can")
    if several and found.identity is not None and found.operands[-1].name != several[0]:
        raise PopulusError(f"{title}: '{several[0]}' is any number of operands; in ONNX it has to be the last operand")
    for p in found.properties.values():
        if p.default is not None:
            try:
                p.checked(p.default)
            except PopulusError as error:
                raise PopulusError(f"{title}: the default of {error}") from None
    seed, names = cast("object", found.op.SEED), [o.name for o in found.operands]
    if seed is not None and seed not in range(len(names)):
        raise PopulusError(f"{title}: `SEED` is {seed!r}; the number of an operand is expected, of {', '.join(names)}")
    examples = cast("object", found.op.EXAMPLES)
    if problem(examples):
        raise PopulusError(f"{title}: `EXAMPLES` is {examples!r}; pairs of shapes and attributes are expected, such as [([(2, 3)], {{}})]")


def _identity(title: str, stated: object) -> tuple[str, str, tuple[int, ...]] | None:
    if stated is None:
        return None
    parts = cast("tuple[object, ...]", stated) if isinstance(stated, tuple) else ()
    if len(parts) == 3:
        domain, kind, version = parts
        versions = cast("tuple[object, ...]", version) if isinstance(version, tuple) else (version,)
        numbers = tuple(v for v in versions if isinstance(v, int) and v > 0)
        if isinstance(domain, str) and isinstance(kind, str) and kind.isidentifier() and numbers and len(numbers) == len(versions):
            return "" if domain == "ai.onnx" else domain, kind, numbers
    raise PopulusError(f'{title}: `ONNX` is {stated!r}; domain, op type and version are expected, such as ("com.acme", "LeakyRelu", 1)')


def _operand(name: str, definition: Any) -> Operand:
    kind = "optional" if isinstance(definition, OptOperandDef) else "variadic" if isinstance(definition, VarOperandDef) else "one"
    constraint: Any = cast(Any, definition).constr
    if isinstance(constraint, RangeLengthConstraint):
        constraint = cast(Any, constraint).constraint
    if isinstance(constraint, RangeOf):
        constraint = cast(Any, constraint).constr
    variable = ""
    if isinstance(constraint, VarConstraint):
        variable, constraint = constraint.name, cast(Any, constraint).constraint
    if isinstance(constraint, ElementsOf):
        variable = constraint.name
    return Operand(
        name, kind, variable, constraint.elements if isinstance(constraint, TensorOf) else (), isinstance(constraint, ElementsOf)
    )


def _property(name: str, definition: Any) -> Property:
    constraint, default = cast(AttrConstraint, definition.constr), cast("Attribute | None", definition.default_value)
    kind = constraint.KIND if isinstance(constraint, TypedConstraint) else _kind_accepted(constraint)
    return Property(name, kind, constraint, default, isinstance(definition, OptionalDef))


def _kind_accepted(constraint: AttrConstraint) -> str:
    """Gives the one kind that a constraint of xDSL's own accepts (`prop_def(FloatAttr)`); `any` if there are several or none."""
    kinds = [k for k, sample in _SAMPLES.items() if constraint.verifies(sample)]
    if kinds == ["bool", "int"]:  # any IntegerAttr
        return "int"
    return kinds[0] if len(kinds) == 1 else "any"
