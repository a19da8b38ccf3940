"""The documentation page of an op, from its definition."""

from __future__ import annotations

from populus.builder import signature_of
from populus.dialects.popart.base import PopartOp
from populus.dialects.popart.definition import Definition, Operand, definition_of, plain


def page(definition: Definition) -> str:
    """Markdown: name, docstring, call, operands and results, attributes, ONNX identity, gradient."""
    d = definition
    text = [f"# {d.op.name}", "", d.doc, "", f"`{d.name}{signature_of(d.op)}`", "", "| operand | type |", "|---|---|"]
    text += [f"| {_named(o)} | {_type(o)} |" for o in d.operands]
    text += ["", "| result | type |", "|---|---|", *(f"| {_named(r)} | {_type(r)} |" for r in d.results)]
    if d.properties:
        text += ["", "| attribute | allowed | default |", "|---|---|---|"]
        for p in d.properties.values():
            default = "required" if p.required else "" if p.default is None else repr(plain(p.default))
            text.append(f"| {p.name} | {p.allowed} | {default} |")
    if d.identity is not None:
        domain, kind, versions = d.identity
        text += ["", f"ONNX: `{kind}` of `{domain or 'ai.onnx'}`, version {', '.join(map(str, versions))}."]
    text += ["", "It has a gradient." if d.has_gradient else "It has no gradient.", ""]
    return "\n".join(text)


def page_of(op: type[PopartOp]) -> str:
    """The page of an op's class. Raises PopulusError for a class that lacks a part."""
    return page(definition_of(op))


def _named(o: Operand) -> str:
    return o.name + {"one": "", "optional": " (optional)", "variadic": " (any number)"}[o.kind]


def _type(o: Operand) -> str:
    elements = ", ".join(map(str, o.elements)) or "any"
    return f"{o.variable}: tensor of {elements}" if o.variable else f"tensor of {elements}"
