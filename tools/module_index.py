"""An index of a module's text for editors: its mistakes, and the values, symbols and ops that stand at a place.

It is read by the parser of all texts, so a mistake is what `populus-opt` says. Offsets count Unicode code points from the text's begin.
A text that does not parse has the index of what stands before its mistake.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from xdsl.context import Context
from xdsl.dialects.builtin import FileLineColLoc, ModuleOp, StringAttr
from xdsl.ir import AttributeInvT, BlockArgument, Operation, OpResult, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.parser import UnresolvedOperand
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.lexer import Span

from populus.dialects.poplar import GraphOp
from populus.dialects.support.diagnostics import PopulusError, check_order, verify, where
from populus.dialects.support.parser import LocatingParser
from populus.lowering.stablehlo.importer import needs_jaxlib, read_text
from populus.lowering.stablehlo.jaxlib_reader import generic_text

MOST_MISTAKES = 100
_OP = re.compile(r'(?:%[\w$.-]+(?::[0-9]+)?\s*,?\s*)*(?:=\s*)?"?([\w$.]+)"?', re.ASCII)
_SYMBOL = re.compile(r'@("[^"\n]*"|[\w$.-]+)', re.ASCII)
_TYPED = re.compile(r'(?P<value>%[\w$.-]*)$|@(?P<symbol>[\w$.-]*)$|^[^"/]*?(?:[=({]\s*|^\s*)"?(?P<op>[a-z_]\w*(?:\.\w*)*)?$', re.ASCII)
_ENTRY = re.compile(r"[{,]\s*(\w*)$", re.ASCII)
Extent = tuple[int, int]
"""The begin and the end of a stretch of text."""


@dataclass(frozen=True)
class Mistake:
    """A stretch of a text, and what is wrong with it."""

    extent: Extent
    message: str


@dataclass(frozen=True)
class Mention:
    """A place in a text where a value is defined or used."""

    extent: Extent
    value: SSAValue
    defines: bool


@dataclass(frozen=True)
class Stated:
    """An op, its place from its first result to its end, and that of its name."""

    op: Operation
    extent: Extent
    name: Extent


class _Indexing(LocatingParser):
    """The parser of our texts, which notes where ops and values stand."""

    def __init__(self, ctx: Context, text: str, name: str):
        self.ops: list[Stated] = []
        self.mentions: list[Mention] = []
        self.meant: dict[SSAValue, SSAValue] = {}  # values used before their definition, and what they turned out to be
        super().__init__(ctx, text, name)

    def resolve_operand(self, operand: UnresolvedOperand, type: AttributeInvT) -> SSAValue[AttributeInvT]:
        value = super().resolve_operand(operand, type)
        self.mentions.append(Mention((operand.span.start, operand.span.end), value, False))
        return value

    def _register_ssa_definition(self, name: str, values: Sequence[SSAValue], span: Span) -> None:
        for index, forward in self.forward_ssa_references.get(name, {}).items():
            if index < len(values):
                self.meant[forward] = values[index]
        super()._register_ssa_definition(name, values, span)
        self.mentions.extend(Mention((span.start, span.end), value, True) for value in values)

    def parse_operation(self) -> Operation:
        begin = self._current_token.span.start
        op = super().parse_operation()
        found = _OP.match(self._current_token.span.input.content, begin)
        if found is not None:
            self.ops.append(Stated(op, (begin, max(self.pos, found.end())), found.span(1)))
        return op


@dataclass
class Index:
    """The ops and values of a text by their places; `module` is None if the text does not parse."""

    text: str
    ctx: Context
    module: ModuleOp | None = None
    mistakes: list[Mistake] = field(default_factory=list[Mistake])
    ops: list[Stated] = field(default_factory=list[Stated])
    mentions: list[Mention] = field(default_factory=list[Mention])

    @cached_property
    def cycles(self) -> dict[Operation, int]:
        """The predicted cycles of the steps of all tile programs, each as often as it runs. Empty for a program that has a mistake."""
        from populus.runtime.profile import profile

        found: dict[Operation, int] = {}
        graphs = [op for op in self.module.walk() if isinstance(op, GraphOp)] if self.module is not None and not self.mistakes else []
        for graph in graphs:
            try:
                for step in profile(graph).steps:
                    found[step.op] = found.get(step.op, 0) + step.cycles * step.count
            except PopulusError:
                continue  # not laid out yet
        return found

    def mention(self, at: int) -> Mention | None:
        """Returns the value that stands at an offset."""
        return next((m for m in self.mentions if m.extent[0] <= at <= m.extent[1]), None)

    def stated(self, at: int) -> Stated | None:
        """Returns the op whose name stands at an offset."""
        return next((s for s in self.ops if s.name[0] <= at <= s.name[1]), None)

    def symbol(self, at: int) -> str | None:
        """Returns the name of the symbol that stands at an offset, without its `@`."""
        return next((name for name, (begin, end) in self._symbols() if begin <= at <= end), None)

    def definition(self, at: int) -> Extent | None:
        """Returns the place at which the value or the symbol at an offset is defined; None if it is built in, or if there is none."""
        if (mention := self.mention(at)) is not None:
            return next((m.extent for m in self.mentions if m.defines and m.value is mention.value), None)
        if (symbol := self.symbol(at)) is None:
            return None
        named = (s for s in self.ops if (s.op.attributes | s.op.properties).get("sym_name") == StringAttr(symbol))
        return next((s.name for s in named), None)

    def uses(self, at: int) -> list[Extent]:
        """Returns all places of the value or the symbol at an offset, its definition among them."""
        if (mention := self.mention(at)) is not None:
            return sorted({m.extent for m in self.mentions if m.value is mention.value})
        symbol = self.symbol(at)
        return [extent for name, extent in self._symbols() if name == symbol]

    def _symbols(self) -> Iterator[tuple[str, Extent]]:
        for found in _SYMBOL.finditer(self.text):
            yield found[1].strip('"'), found.span()

    def hover(self, at: int) -> tuple[Extent, str] | None:
        """Returns the stretch at an offset and what is known of it, as Markdown: type, op, node of the model, cycles."""
        if (mention := self.mention(at)) is not None:
            value, name = mention.value, self.text[slice(*mention.extent)]
            match value:
                case OpResult():
                    lines = [f"a result of `{value.op.name}`", *self._of(value.op)]
                case BlockArgument():
                    parent = value.block.parent_op()
                    lines = [f"argument {value.index} of `{parent.name}`"] if parent is not None else []
                case _:
                    lines = ["not defined"]
            return mention.extent, "\n\n".join([f"```mlir\n{name} : {value.type}\n```", *lines])
        if (stated := self.stated(at)) is not None:
            return stated.name, "\n\n".join([f"`{stated.op.name}`", *self._of(stated.op)])
        return None

    def _of(self, op: Operation) -> list[str]:
        lines = [" ".join(paragraph.split()) for paragraph in (type(op).__doc__ or "").strip().split("\n\n")[:1] if paragraph]
        if not isinstance(op.location, FileLineColLoc) and (node := where(op)) != op.name:
            lines.append(f"node: {node}")
        if op in self.cycles:
            lines.append(f"cycles: {self.cycles[op]:,}, predicted")
        return lines

    def proposals(self, at: int) -> list[str]:
        """Returns what may stand at an offset: values and symbols defined so far, ops, or attributes of the op whose braces are open."""
        line = self.text[self.text.rfind("\n", 0, at) + 1 : at]
        typed = _TYPED.search(line)
        if typed is None or (typed["op"] is not None and self._attributes(line)):
            return self._attributes(line)
        if typed["value"] is not None:
            scope = next((s.extent for s in self.ops if s.extent[0] <= at <= s.extent[1] and s.op.regions), (0, at))
            names = {self.text[slice(*m.extent)] for m in self.mentions if m.defines and scope[0] <= m.extent[0] < at}
            return sorted(n for n in names if n.startswith(typed["value"]))
        if typed["symbol"] is not None:
            return sorted({f"@{name}" for name, (begin, end) in self._symbols() if not begin <= at <= end})
        return self._attributes(line) or self._op_names(typed["op"] or "")

    def _op_names(self, typed: str) -> list[str]:
        dialect = typed.partition(".")[0] if "." in typed else None
        if dialect is None:
            return sorted(f"{name}." for name in self.ctx.registered_dialect_names if name.startswith(typed))
        self.ctx.get_optional_op(typed)  # loads the dialect
        return sorted(op.name for op in self.ctx.loaded_ops if op.name.startswith(typed))

    def _attributes(self, line: str) -> list[str]:
        typed, opened = _ENTRY.search(line), line.rfind("{")
        if typed is None or opened < 0 or "}" in line[opened:]:
            return []
        for name in reversed(re.findall(r"[a-z_]\w*\.[\w.]+", line[:opened], re.ASCII)):
            op = self.ctx.get_optional_op(name)
            if op is not None and issubclass(op, IRDLOperation):
                definition = op.get_irdl_definition()
                return sorted(n for n in {*definition.properties, *definition.attributes} if n.startswith(typed[1]))
        return []


def index_of(make_context: Callable[[], Context], text: str, name: str) -> Index:
    """Reads a text and checks each op of it. `name` stands for the file in messages.

    The pretty form of StableHLO is read by jaxlib, which tells its mistakes alone.
    """
    ctx = make_context()
    index, parser = Index(text, ctx), None
    if needs_jaxlib(text.encode()):
        try:
            verify(read_text(ctx, generic_text(text.encode(), name), name))
        except (PopulusError, ParseError) as error:
            index.mistakes.append(_stated(text, name, str(error)))
        return index
    try:
        parser = _Indexing(ctx, text, name)
        index.module = parser.parse_module()
    except ParseError as error:
        index.mistakes.append(Mistake((error.span.start, max(error.span.end, error.span.start + 1)), " ".join(error.msg.split())))
    except PopulusError as error:
        index.mistakes.append(Mistake((0, 1), str(error)))
    if parser is not None:
        index.ops = parser.ops
        index.mentions = [Mention(m.extent, parser.meant.get(m.value, m.value), m.defines) for m in parser.mentions]
    if index.module is not None:
        _verify(index, index.module)
    return index


def _stated(text: str, name: str, message: str) -> Mistake:
    """Finds the place that a message begins with."""
    at = re.match(rf"{re.escape(name)}:([0-9]+):([0-9]+): ", message)
    if at is None:
        return Mistake((0, 1), message)
    begin = sum(len(line) for line in text.splitlines(keepends=True)[: int(at[1]) - 1]) + int(at[2]) - 1
    return Mistake((begin, begin + 1), message[at.end() :])


def _verify(index: Index, module: ModuleOp) -> None:
    """Adds a mistake for each op that its verifier refuses, innermost first, or else for a value that is used before it is defined."""
    names = {s.op: s.name for s in index.ops}
    for op in module.walk(region_first=True):
        if len(index.mistakes) == MOST_MISTAKES:
            return
        try:
            op.verify(verify_nested_ops=False)
        except VerifyException as error:
            index.mistakes.append(Mistake(names.get(op, (0, 1)), f"{op.name}: {' '.join(str(error).split())}"))
    if index.mistakes:
        return
    try:
        check_order(module)
    except PopulusError as error:
        refused = next((s.name for s in index.ops if str(error).startswith(f"{where(s.op)}:")), (0, 1))
        index.mistakes.append(Mistake(refused, str(error)))
