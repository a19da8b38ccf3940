"""The documentation page of an op, generated from its definition: `populus docs-op leaky_relu` prints one."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import TensorType, f32, i1, i8, i32
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.test_value import create_ssa_value

from populus.dialects.expr import Expr, derivative
from populus.dialects.popart.base import ElementwiseOp, PopartOp
from populus.dialects.popart.definition import Definition, Operand, definition_of, plain
from populus.dialects.support.diagnostics import PopulusError
from populus.write.builder import signature_of
from populus.write.latex import latex


def page(definition: Definition) -> str:
    """Renders an op as Markdown: name, docstring, formulas, call, operands, results, attributes, ONNX identity, gradient."""
    d = definition
    text = [f"# {d.op.name}", "", d.doc, ""]
    for formula in formulas(d):
        text += [f"$${formula}$$", ""]
    text += [f"`{d.name}{signature_of(d.op)}`", "", "| operand | type |", "|---|---|"]
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
    if d.op.INTERNAL:
        text += ["", "Only passes create it."]
    text += ["", "It has a gradient." if d.has_gradient else "It has no gradient.", ""]
    return "\n".join(text)


def page_of(op: type[PopartOp]) -> str:
    """Renders the page of an op's class. Raises PopulusError if the class lacks a part of its definition."""
    return page(definition_of(op))


def formulas(d: Definition) -> list[str]:
    """Gives the LaTeX formulas of an element-wise op with default attributes: the result, then each operand's gradient.

    `g` is the gradient of the result. Gives no formulas for other ops, and for ops with attributes that have no default.
    """
    if not issubclass(d.op, ElementwiseOp) or any(p.required for p in d.properties.values()):
        return []
    names = [o.name for o in d.operands]
    for element, bytes in ((f32, ()), (i1, ()), (i32, ()), (f32, ("zero",)), (f32, ("x", "zero"))):  # those of quantization have bytes
        try:
            op = d.op(*(create_ssa_value(_sample(o, i8 if o.name in bytes else element)) for o in d.operands))
            formula = op.formula()
            slopes = _slopes(op, formula)
        except (PopulusError, VerifyException):  # its operands have other element types
            continue
        found = [f"{d.results[0].name} = {latex(formula, names)}"]
        for name, slope in zip(names, slopes):
            if slope is not None:
                found.append(rf"\frac{{\partial L}}{{\partial {name}}} = {latex(slope, [*names, d.results[0].name, 'g'])}")
        return found
    return []


def _slopes(op: ElementwiseOp, formula: Expr) -> Sequence[Expr | None]:
    """Derives the gradients of the operands, or none if a function has no derivative."""
    try:
        flows = any(derivative(formula, i + 1) is not None for i in range(len(op.operands)))
    except KeyError:  # a function without a derivative
        return []
    return op.derivatives() if flows else []


def _sample(o: Operand, element: Attribute) -> TensorType[Attribute]:
    return TensorType(i1 if o.name == "condition" else element if not o.elements or element in o.elements else o.elements[0], [2])


def _named(o: Operand) -> str:
    return o.name + {"one": "", "optional": " (optional)", "variadic": " (any number)"}[o.kind]


def _type(o: Operand) -> str:
    elements = ", ".join(map(str, o.elements)) or "any"
    return f"{o.variable}: tensor of {elements}" if o.variable else f"tensor of {elements}"
