"""Executes programs symbolically: library calls, which `popart` ops stand for, and tile programs; all elements at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from xdsl.dialects.builtin import ModuleOp

from populus.dialects.poplar.program import GraphOp
from populus.dialects.signature import input_names, main_of, output_names, return_of
from populus.dialects.support.element_types import element_type_of, is_float, is_integer, is_unsigned, shape_of
from populus.proof.calls import Calls
from populus.proof.report import walked
from populus.proof.tiles import Tiles
from populus.runtime.session import graph_of

if TYPE_CHECKING:
    from populus.proof.terms import Pieces, Terms

Results: TypeAlias = "dict[str, tuple[Pieces, tuple[int, ...]]]"
"""The outputs of a program by name: their terms and shapes."""


def execute(terms: Terms, module: ModuleOp) -> Results:
    """Executes a program of library calls or of tiles. Raises Undecided, which names the op that has no meaning here."""
    with walked():
        return _executed(terms, module)


def _executed(terms: Terms, module: ModuleOp) -> Results:
    if any(isinstance(op, GraphOp) for op in module.body.block.ops):
        return Tiles(terms).executed(graph_of(module))
    main = main_of(module)
    calls = Calls(terms)
    for name, arg in zip(input_names(main), main.body.block.args):
        element = element_type_of(arg.type)
        if is_integer(element):
            terms.drawn[name] = range(4) if is_unsigned(element) else range(-2, 4)  # few, for i8's products
        calls.values[arg] = terms.input(name, shape_of(arg.type), is_float(element))
    calls.block(main.body.block)
    return {name: (calls.of(v), shape_of(v.type)) for name, v in zip(output_names(main), return_of(main).operands)}
