"""Emission (`poplar-emit`): the code of a program's vertices, as functions next to the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute
from xdsl.passes import ModulePass

from populus.dialects.expr import ExprAttr
from populus.dialects.poplar import FamilyOp, TensorType
from populus.dialects.poplar.tile_mlir import Operand, function_of
from populus.dialects.support.element_types import dtype_of


@dataclass(frozen=True)
class PoplarEmitPass(ModulePass):
    """Adds a function of `scf`, `arith`, `math` and `memref` for each formula and each codelet written in Python.

    Its arguments are the vectors of one vertex. Families with the same code share a function, whose `families`
    counts them. Codelets of the machine's library (products, pools, ..) have no code here. `codelet-to-llvm`
    lowers the functions further. Bit for bit.
    """

    name = "poplar-emit"
    PHASE = "emit"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        made: dict[str, FuncOp] = {}
        for family in [f for f in op.walk() if isinstance(f, FamilyOp)]:
            for key, module in _code(family):
                if key not in made:
                    *called, function = (f for f in module().body.block.ops if isinstance(f, FuncOp))
                    _declare(op, called)
                    function.detach()
                    function.properties["sym_name"] = StringAttr(f"{_name(family)}_{len(made)}")
                    function.attributes["families"] = IntegerAttr(0, i64)
                    function.location = family.location
                    op.body.block.add_op(function)
                    made[key] = function
                count = made[key].attributes["families"]
                assert isinstance(count, IntegerAttr), count
                made[key].attributes["families"] = IntegerAttr(count.value.data + 1, i64)


def _declare(module: ModuleOp, functions: Sequence[FuncOp]) -> None:
    """Adds the functions that a codelet calls, each once."""
    known = {f.sym_name.data for f in module.body.block.ops if isinstance(f, FuncOp)}
    for f in functions:
        if f.sym_name.data not in known:
            f.detach()
            module.body.block.add_op(f)


def _code(family: FamilyOp) -> Iterator[tuple[str, Callable[[], ModuleOp]]]:
    """Yields a key that identifies the family's code, and what makes the code; nothing for a library codelet."""
    from populus.runtime.engine.native.kernels.map_codelet import module_of
    from populus.runtime.engine.native.kernels.map_pattern import Pattern
    from populus.runtime.tape import tape_of
    from populus.runtime.views import params_of

    code = family.declaration.code
    if code is not None:
        sizes = {axis: max(b - a for a, b in zip(s.bounds(), s.bounds()[1:])) for axis, s in family.space.axes}
        elements = {f.name: _element(v.type) for f, v in family.connections()}
        operands = {v: Operand(tuple(sizes[a] for a in axes), elements[v]) for v, axes in code.axes.items()}
        scalars = {n: v for n, v in params_of(family.params).items() if isinstance(v, int | float)}
        function = function_of(code, operands, scalars)
        yield function.key, function.module
    elif isinstance(formula := family.params.data.get("expr"), ExprAttr):
        operands = tuple(dtype_of(_element(v.type)) for f, v in family.connections() if f.name != "y")
        pattern = Pattern(tape_of(formula.data, operands), 1, ("one",) * (len(operands) + 1), ())
        yield pattern.key, partial(module_of, pattern, "map")


def _name(family: FamilyOp) -> str:
    code = family.declaration.code
    return family.codelet.data if code is None else code.name


def _element(type: Attribute) -> Attribute:
    assert isinstance(type, TensorType), type
    return type.element
