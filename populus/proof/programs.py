"""Executes programs symbolically: library calls (popops, poplin, popnn, poprand) and tile programs, all elements at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp as FunctionCallOp
from xdsl.dialects.func import FuncOp as FunctionOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import SymbolTable

from populus.dialects.data import ConstantOp, constant_value
from populus.dialects.poplar import affine
from populus.dialects.poplar.affine import box, reshape_map, shown
from populus.dialects.poplar.compute import CopyOp, ExecuteOp, FamilyOp
from populus.dialects.poplar.meaning import RESULT, Meaning
from populus.dialects.poplar.memory import ConstOp, root_of, type_of
from populus.dialects.poplar.program import CallOp, GraphOp, SequenceOp, StreamInOp, StreamOutOp
from populus.dialects.signature import input_names, main_of, output_names, return_of
from populus.dialects.support.diagnostics import where
from populus.dialects.support.element_types import element_type_of, is_float, shape_of
from populus.proof.codelets import Family, Operand
from populus.proof.report import Undecided
from populus.proof.terms import SAME, Piece, Pieces, Terms, united
from populus.proof.trees import Leaf
from populus.runtime.session import graph_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]

Results: TypeAlias = "dict[str, tuple[Pieces, tuple[int, ...]]]"
"""The outputs of a program by name: their terms and shapes."""


def execute(terms: Terms, module: ModuleOp) -> Results:
    """Executes a program of library calls or of tiles. Raises Undecided, which names the op that has no meaning here."""
    if any(isinstance(op, GraphOp) for op in module.body.block.ops):
        return _Tiles(terms).executed(graph_of(module))
    main = main_of(module)
    calls = _Calls(terms)
    for name, arg in zip(input_names(main), main.body.block.args):
        calls.values[arg] = terms.leaf("input", name, shape_of(arg.type), is_float(element_type_of(arg.type)))
    calls.block(main.body.block)
    return {name: (calls.of(v), shape_of(v.type)) for name, v in zip(output_names(main), return_of(main).operands)}


def constant(terms: Terms, array: Array, shape: Sequence[int]) -> Pieces:
    """Makes a constant: the same node for the same bytes, under any shape."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if not flat.size:
        return []
    number = terms.constant(flat)
    return terms.seen([Piece(box(flat.shape), Leaf(number, SAME))], reshape_map(tuple(shape), flat.shape))


class _Calls:
    """Library calls: what each value is."""

    def __init__(self, terms: Terms):
        self.terms, self.values = terms, dict[SSAValue, Pieces]()

    def of(self, value: SSAValue) -> Pieces:
        return self.values[value]

    def block(self, block: Block) -> None:
        for op in block.ops:
            if op.results:
                self.op(op)

    def op(self, op: Operation) -> None:
        t = self.terms
        if isinstance(op, ConstantOp):
            array = constant_value(op.result)
            assert array is not None, op
            self.values[op.result] = constant(t, array, shape_of(op.result.type))
            return
        if isinstance(op, FunctionCallOp):
            self.called(op)
            return
        shape = shape_of(op.results[0].type)
        if len(op.operands) == 1 and (at := shown(op, shape, shape_of(op.operands[0].type))) is not None:
            self.values[op.results[0]] = t.seen(self.of(op.operands[0]), at)
            return
        meaning: Callable[[], Meaning] | None = getattr(op, "meaning", None)
        if meaning is None:
            raise Undecided(f"{op.name} ({where(op)})")
        result: Pieces = []
        for whole in meaning():
            fields: dict[str, Operand] = {}
            for name, number, access in whole.fields:
                value = op.results[0] if number == RESULT else op.operands[number]
                pieces = result if number == RESULT else self.of(value)
                fields[name] = Operand(pieces, shape_of(value.type), element_type_of(value.type), access)
            try:
                new = Family(t, whole.codelet, whole.domain, whole.params, fields).written()
            except Undecided as why:
                raise Undecided(f"{op.name} ({where(op)}): {why}") from None
            result = over(result, new)
        self.values[op.results[0]] = united(result)

    def called(self, op: FunctionCallOp) -> None:
        function = SymbolTable.lookup_symbol(op, op.callee)
        assert isinstance(function, FunctionOp), op.callee
        inner = _Calls(self.terms)
        inner.values = dict(zip(function.body.block.args, (self.of(v) for v in op.operands)))
        inner.block(function.body.block)
        last = function.body.block.last_op
        assert last is not None
        self.values.update(zip(op.results, (inner.of(v) for v in last.operands)))


def over(old: Pieces, new: Pieces) -> Pieces:
    """Writes new elements over old ones."""
    if not new:
        return old
    written = new[0].elements
    for p in new[1:]:
        written = written.union(p.elements)
    rests = ((p, p.elements.subtract(written)) for p in old)
    return [*(Piece(rest.coalesce(), p.tree) for p, rest in rests if not rest.is_empty()), *new]


class _Tiles:
    """A tile program: what each variable holds."""

    def __init__(self, terms: Terms):
        self.terms, self.views = terms, affine.Views()
        self.memory: dict[SSAValue, Pieces] = {}
        self.results: Results = {}

    def executed(self, graph: GraphOp) -> Results:
        self.block(graph.body.block)
        return self.results

    def content(self, root: SSAValue) -> Pieces:
        if root not in self.memory:
            owner = root.owner
            self.memory[root] = constant(self.terms, owner.array(), type_of(root).shape) if isinstance(owner, ConstOp) else []
        return self.memory[root]

    def read(self, value: SSAValue) -> Pieces:
        return self.terms.seen(self.content(root_of(value)), self.views.of(value))

    def write(self, value: SSAValue, pieces: Pieces) -> None:
        root = root_of(value)
        self.memory[root] = united(over(self.content(root), self.terms.seen(pieces, self.views.of(value).reverse())))

    def block(self, block: Block) -> None:
        for op in block.ops:
            match op:
                case StreamInOp():
                    self.write(op.dst, self.terms.leaf("input", op.stream.data, type_of(op.dst).shape, is_float(type_of(op.dst).element)))
                case StreamOutOp():
                    self.results[op.stream.data] = (self.read(op.src), type_of(op.src).shape)
                case CopyOp():
                    self.write(op.dst, self.read(op.src))
                case ExecuteOp():
                    for family in op.families():
                        self.family(op, family)
                case CallOp():
                    self.call(op)
                case SequenceOp():
                    self.block(op.body.block)
                case _ if op.regions and op.name != "poplar.func":
                    raise Undecided(op.name)
                case _ if op.name == "poplar.outside":
                    raise Undecided(op.name)
                case _:
                    pass

    def call(self, op: CallOp) -> None:
        for parameter, value in op.bindings():
            self.memory[parameter.result] = self.read(value) if parameter.read else []
        self.block(op.target().body.block)
        for parameter, value in op.bindings():
            if parameter.written:
                self.write(value, self.memory[parameter.result])

    def family(self, op: ExecuteOp, family: FamilyOp) -> None:
        connections = sorted(family.connections(), key=lambda c: c[0].kind != "in")  # the output last, for `inout` too
        if sum(f.kind != "in" for f, _ in connections) != 1:
            raise Undecided(f"'{op.label.data}' @{family.codelet.data}")
        fields = {f.name: Operand(self.read(v), type_of(v).shape, type_of(v).element, f.access) for f, v in connections}
        try:
            written = Family(self.terms, family.codelet.data, family.space, family.params.data, fields).written()
        except Undecided as why:
            raise Undecided(f"'{op.label.data}': {why}") from None
        self.write(connections[-1][1], written)
