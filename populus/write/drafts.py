"""Drafts: the file of Python that an op of C++ needs here, without its formula, from how it is registered with PopART."""

from __future__ import annotations

import re
from collections.abc import Iterable
from keyword import iskeyword

from populus.dialects.popart.definition import RESERVED_DOMAINS
from populus.dialects.support.diagnostics import PopulusError
from populus.write.registrations import Attribute, Registered

# PopART's data types, and ours.
_ELEMENTS = {
    "FLOAT16": "f16", "FLOAT": "f32", "DOUBLE": "f64", "BFLOAT16": "bf16", "BOOL": "i1", "INT8": "i8", "INT32": "i32", "INT64": "i64",
    "UINT8": "ui8", "UINT32": "ui32",
}  # fmt: skip
_FIELDS = {"Float": "number", "Int": "whole", "String": "text", "Floats": "numbers", "Ints": "wholes", "Strings": "texts", "": "number"}
_TYPES = {
    "Float": "float", "Int": "int", "String": "str", "Floats": "tuple[float, ...]", "Ints": "tuple[int, ...]",
    "Strings": "tuple[str, ...]", "": "float",
}  # fmt: skip
_FLOATS = {"f16", "f32", "f64", "bf16"}


def stem_of(name: str) -> str:
    """Gives the name of a file or a function for an op: `leaky_relu` for `LeakyRelu`. Raises PopulusError for no name of an op."""
    stem = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", stem):
        raise PopulusError(f"'{name}' is not a name for an op; expected letters and digits, such as SmoothStep or smooth_step")
    return stem


def draft(op: Registered, source: str) -> str:
    """Writes the file of an op. A call of it is refused with one line that says what to write, until its formula is there.

    `source`: the file of C++, for messages. Raises PopulusError for a name that Python or ONNX cannot have.
    """
    source = re.sub(r"[^\w.+-]", "_", source)
    stem, names, used = stem_of(op.name), {"ClassVar", "PopulusError", "function_of", "irdl_op_definition"}, {"name", "infer", "lower"}
    plain = len(op.inputs) == len(op.outputs) == 1 and op.copied == {0: 0} and set(_elements(*op.inputs.values())) <= _FLOATS
    inputs, outputs = dict[str, list[str]](), dict[str, list[str]]()
    for taken, given, one in ((inputs, op.inputs, "x"), (outputs, op.outputs, "y")):
        for name, kinds in given.items():
            taken[own := one if plain else _free(name, used)] = _elements(kinds)
            used.add(own)
    types = {**inputs, **outputs}
    lines = [f'    name = "{op.domain.rpartition(".")[2]}.{stem}"', f'    ONNX: ClassVar = ("{op.domain}", "{op.name}", {op.version})']
    if op.domain in RESERVED_DOMAINS:
        lines.append("    OVERRIDES: ClassVar = True")
    sets, of = list(dict.fromkeys(tuple(types[n]) for n in (*inputs, *outputs))), "tensors" if plain else "elements"
    for i, elements in enumerate(sets):
        lines.append(f'    E{i}: ClassVar = {of}("E{i}", {", ".join(elements)})')
        names |= {of, *elements}
    for kind, values in (("operand_def", inputs), ("result_def", outputs)):
        lines += [f"    {n} = {kind}(E{sets.index(tuple(types[n]))})" for n in values]
        names.add(kind) if values else None
    for name, attribute in op.attributes.items():
        lines.append(f"    {_checked(name, used)}: {_TYPES[attribute.kind]}{_field(attribute)}")
        names.add(_FIELDS[attribute.kind])
    where = f"{op.kind}x::grow of {source}"
    if plain:
        names |= {"UnaryOp", "Expr"}
        body = f'    def forward(self, x: Expr) -> Expr:\n        raise PopulusError("{stem}.py: write here what {where} computes")\n'
    else:
        names.add("PopartOp")
        body = f"    def infer(self):\n{_infer(op, list(inputs), list(outputs), stem, source)}\n\n"
        said = f"{stem}.py: write here what {where} computes, by populus.custom.calls"
        body += f'    def lower(self, b):\n        raise PopulusError("{said}")\n'
    imports = "".join(f"    {n},\n" for n in sorted(names, key=lambda n: (n.upper() != n, n)))
    base, fields = "UnaryOp" if plain else "PopartOp", "\n".join(lines)
    return _FILE.format(imports=imports, op=op, base=base, fields=fields, body=body, stem=stem, source=source)


_FILE = '''"""{op.name} of {op.domain}, drafted from {source}: write its formula where `PopulusError` is raised."""

from populus.custom import (
{imports})


@irdl_op_definition
class {op.name}Op({base}):
    """An op that {source} registers. Source: {op.domain} {op.name}-{op.version}."""

{fields}

{body}

{stem} = function_of({op.name}Op)
'''


def _elements(kinds: Iterable[str]) -> list[str]:
    """Gives our element types for PopART's, with f64 beside f32, in which `check-op` takes differences; floats for none that we have."""
    found = [_ELEMENTS[kind] for kind in kinds if kind in _ELEMENTS] or ["f16", "f32"]
    return [*found, "f64"] if "f32" in found and "f64" not in found else found


def _free(name: str, used: Iterable[str]) -> str:
    """Gives a name of an operand or a result that Python and the class can have."""
    while iskeyword(name) or name in used:
        name += "_"
    return name


def _checked(name: str, used: Iterable[str]) -> str:
    """Gives an attribute's name, which is ONNX's too. Raises PopulusError for one that a class of Python cannot have."""
    if iskeyword(name) or name in used:
        raise PopulusError(f"the attribute '{name}' has the name of an operand, a result or a word of Python; write this op by hand")
    return name


def _field(attribute: Attribute) -> str:
    """Gives the declaration of an attribute, with its default if that is a number or a text."""
    default = attribute.default
    number = None if default is None else re.fullmatch(r"(-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)[fFuUlL]*", default)
    declared = _FIELDS[attribute.kind]
    if attribute.kind == "Int" and number is not None and number[1].lstrip("-").isdecimal():
        return f" = {declared}({int(number[1])})"
    if attribute.kind == "Float" and number is not None:
        return f" = {declared}({float(number[1])!r})"
    if attribute.kind == "String" and default is not None and re.fullmatch(r'"[^"\\]*"', default):
        return f" = {declared}({default})"
    note = f"  # its default in C++ is {default}" if default is not None else "" if attribute.kind else "  # its kind is not stated"
    return f" = {declared}(){note}"


def _infer(op: Registered, inputs: list[str], outputs: list[str], stem: str, source: str) -> str:
    """Gives the lines of the shape rule, from what `setup` says plainly."""
    known = [f"self.{inputs[op.copied[i]]}.type" for i in range(len(outputs)) if op.copied.get(i, len(inputs)) < len(inputs)]
    if len(known) == len(outputs):
        return f"        return [{', '.join(known)}]"
    return f'        raise PopulusError("{stem}.py: give here the types that {op.kind}::setup of {source} gives its outputs")'
