"""`poplar.codelet`: a codelet as a symbol of the module, so that the text of a tile program says by itself what it computes."""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr, SymbolNameConstraint, UnitAttr
from xdsl.ir import Attribute, Operation
from xdsl.irdl import IRDLOperation, irdl_op_definition, opt_prop_def, prop_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from populus.dialects.poplar.codelets import CODELETS, Codelet, register
from populus.dialects.poplar.tile_code import read_codelet
from populus.dialects.support.diagnostics import PlainErrors, PopulusError, did_you_mean


@irdl_op_definition
class CodeletOp(PlainErrors, IRDLOperation):
    """A codelet that families name. One written in Python has its file as the body; one of ours has the contract that it is used by.

        poplar.codelet @norm.5f0c8a21 python
          "from math import sqrt"
          "from populus.custom import Vector, codelet"
          ...
        poplar.codelet @fill contract {form = "fill", inputs = [], output = "y", params = {value = "number"}}

    The name of a codelet in Python ends with the digest of what it computes, which the verifier computes anew. A contract that
    differs from that of this version is refused: a kernel of another version may compute something else.
    """

    name = "poplar.codelet"
    sym_name = prop_def(SymbolNameConstraint())
    body = opt_prop_def(ArrayAttr[StringAttr])
    contract = opt_prop_def(DictionaryAttr)
    traits = traits_def(SymbolOpInterface())

    def __init__(self, codelet: Codelet):
        properties: dict[str, Attribute] = {"sym_name": StringAttr(codelet.name)}
        if codelet.code is None:
            properties["contract"] = contract_of(codelet)
        else:
            properties["body"] = ArrayAttr([StringAttr(line) for line in codelet.code.text.split("\n")])
        super().__init__(properties=properties)

    def verify_(self) -> None:
        name = self.sym_name.data
        if (self.body is None) == (self.contract is None):
            raise VerifyException(f"@{name} has either a body or a contract")
        if self.body is None:
            if name not in CODELETS or CODELETS[name].code is not None:
                raise VerifyException(f"there is no codelet '{name}'{did_you_mean(name, CODELETS)}")
            if (ours := contract_of(CODELETS[name])) != self.contract:
                raise VerifyException(f"@{name} has the contract {ours} in this version, not {self.contract}")
        else:
            self._register("\n".join(line.data for line in self.body.data))

    def _register(self, text: str) -> None:
        """Makes the codelet known by its name. Raises VerifyException for a body that is not one, or is another one."""
        name = self.sym_name.data
        known = CODELETS.get(name)
        if known is not None and known.code is not None and known.code.text == text:
            return
        try:
            code = read_codelet(text, f"@{name}")
        except PopulusError as error:
            raise VerifyException(str(error)) from None
        if code.symbol != name:
            raise VerifyException(f"@{name}: the body is that of @{code.symbol}")
        register(code)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        if self.contract is not None:
            printer.print_string(" contract ")
            printer.print_attribute(self.contract)
        if self.body is not None:
            printer.print_string(" python")
            with printer.indented():
                for line in self.body.data:
                    printer._print_new_line()  # pyright: ignore[reportPrivateUsage]
                    printer.print_string_literal(line.data)
        printer.print_op_attributes(self.attributes, print_keyword=True)

    @classmethod
    def parse(cls, parser: Parser) -> CodeletOp:
        properties: dict[str, Attribute] = {"sym_name": parser.parse_symbol_name()}
        if parser.parse_optional_keyword("contract") is not None:
            properties["contract"] = parser.parse_attribute()
        if parser.parse_optional_keyword("python") is not None:
            lines: list[StringAttr] = []
            while (line := parser.parse_optional_str_literal()) is not None:
                lines.append(StringAttr(line))
            properties["body"] = ArrayAttr(lines)
        attributes = parser.parse_optional_attr_dict_with_keyword()
        return cls.create(properties=properties, attributes={} if attributes is None else dict(attributes.data))


def contract_of(codelet: Codelet) -> DictionaryAttr:
    """Returns the contract of a codelet of ours: its fields, axes, form and parameters."""
    found: dict[str, Attribute] = {
        "inputs": _strings(codelet.inputs),
        "output": StringAttr(codelet.output),
        "form": StringAttr(codelet.form.__name__.rstrip("_")),
    }
    found |= {name: StringAttr(axes) for name in ("contracted", "whole") if (axes := getattr(codelet, name))}
    found |= {name: UnitAttr() for name in ("padded", "inout") if getattr(codelet, name)}
    if codelet.params:
        kinds = {name: StringAttr(kind) if isinstance(kind, str) else _strings(kind) for name, kind in codelet.params.items()}
        found["params"] = DictionaryAttr(kinds)
    return DictionaryAttr(dict(sorted(found.items())))


def _strings(texts: tuple[str, ...]) -> ArrayAttr[StringAttr]:
    return ArrayAttr([StringAttr(text) for text in texts])


def declared(op: Operation) -> dict[str, CodeletOp]:
    """Collects the codelets that are symbols of an op's module, by name."""
    module = op.get_toplevel_object()
    if not isinstance(module, ModuleOp):
        return {}
    return {inner.sym_name.data: inner for inner in module.body.block.ops if isinstance(inner, CodeletOp)}


def declare(op: Operation, codelet: Codelet) -> None:
    """Makes a codelet a symbol of an op's module, unless it is one."""
    module = op.get_toplevel_object()
    if isinstance(module, ModuleOp) and codelet.name not in declared(op):
        Rewriter.insert_op(CodeletOp(codelet), InsertPoint.at_start(module.body.block))
