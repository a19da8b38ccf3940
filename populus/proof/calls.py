"""Executes library calls symbolically. A `popart` op means what the library calls do to which it is lowered, by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from xdsl.dialects.func import CallOp as FunctionCallOp
from xdsl.dialects.func import FuncOp as FunctionOp
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.traits import SymbolTable

from populus.dialects.base.control_flow import Branch, Loop
from populus.dialects.base.tensor_op import INPLACE
from populus.dialects.data import ConstantOp
from populus.dialects.expr import Arg
from populus.dialects.gcl import Collective
from populus.dialects.host import CallOp as HostOp
from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.popart.base import PopartOp
from populus.dialects.poplar.affine import box, shown
from populus.dialects.poplar.meaning import RESULT, Meaning
from populus.dialects.support.diagnostics import where
from populus.dialects.support.element_types import dtype_of, element_type_of, is_float, shape_of
from populus.dialects.support.user_op_errors import is_ours
from populus.lowering.popart.to_popops import lower_block
from populus.proof.codelets import Family, Operand, outside, row_of
from populus.proof.loops import Part, chosen, looped
from populus.proof.onnx import defined, has_definition
from populus.proof.onnx.functions import expanded
from populus.proof.pieces import over, united
from populus.proof.report import Undecided, verified
from populus.proof.terms import Terms
from populus.proof.trees import Leaf, Pieces


class Calls:
    """Library calls: what each value is."""

    def __init__(self, terms: Terms, values: dict[SSAValue, Pieces] | None = None):
        self.terms, self.values = terms, dict(values or {})

    def of(self, value: SSAValue) -> Pieces:
        """Gives what a value is."""
        return self.values[value]

    def block(self, block: Block) -> list[Pieces]:
        """Executes a block. Returns the operands of its last op, which are its results."""
        for op in block.ops:
            if op.results:
                self.values.update(zip(op.results, self.op(op)))
        assert block.last_op is not None
        return [self.of(v) for v in block.last_op.operands]

    def op(self, op: Operation) -> Sequence[Pieces]:
        """Gives the results of an op: those of before, if it was met with the same operands. Raises Invalid for one that is refused."""
        if isinstance(op, FunctionCallOp | Branch | Loop):
            verified(op)
        match op:
            case ConstantOp():
                return [self.terms.stored(op.value, shape_of(op.result.type), op.array)]
            case FunctionCallOp():
                return self.called(op)
            case Branch():
                return self.branch(op)
            case Loop():
                return self.loop(op)
            case OnnxOp():
                return self.defined(op)
            case _:
                operands = tuple(self.of(v) for v in op.operands)
                marks = ((k, v) for k, v in op.attributes.items() if k != INPLACE)
                key = (op.name, *op.properties.items(), *marks, *op.operand_types, *op.result_types)
                return self.terms.once.of(key, operands, partial(self.made, op, key))

    def made(self, op: Operation, key: tuple[object, ...]) -> Sequence[Pieces]:
        """Gives the results of an op that is met for the first time. One of equal types and attributes is verified once, but a user's."""
        if op.regions or not is_ours(type(op)):
            verified(op)
        else:
            self.terms.once.of(("verified", *key, op.attributes.get(INPLACE)), (), partial(verified, op))
        if isinstance(op, HostOp | Collective):
            return self.outside(op)
        return self.lowered(op) if isinstance(op, PopartOp) else self.computed(op)

    def defined(self, op: OnnxOp) -> Sequence[Pieces]:
        """Gives the results of an ONNX op by its definition."""
        if op.OP_TYPE == "If" and not op.DOMAIN:
            then, otherwise = (Calls(self.terms, self.values).block(op.region(n).block) for n in ("then_branch", "else_branch"))
            condition = self.of(op.operands[0])
            return [chosen(self.terms, condition, a, b, box(shape_of(r.type))) for a, b, r in zip(then, otherwise, op.results)]
        if op.regions:
            raise Undecided(f"{op.name} ({where(op)})")
        key = (op.name, *op.properties.items(), *op.result_types, *(element_type_of(v.type) for v in op.operands))
        used = (bool(r.uses) for r in op.results)
        make = partial(defined, self.terms, op, self.values) if has_definition(op) else partial(self.function, op)
        try:
            found = self.terms.once.of((*key, *used), tuple(map(self.of, op.operands)), make)
        except Undecided as why:
            raise Undecided(f"{op.name} ({where(op)}): {why}") from None
        if not all(self.terms.constants.of(p.tree) for v in op.operands for p in self.of(v)):
            return found
        return [self.settled(pieces, r.type) for pieces, r in zip(found, op.results)]

    def settled(self, pieces: Pieces, type: Attribute) -> Pieces:
        """Gives what constants alone decide as a constant, so that shapes and indices that are computed of it are known."""
        shape, element = shape_of(type), element_type_of(type)
        if not pieces or any(isinstance(p.tree, Leaf) and p.tree.node in self.terms.arrays for p in pieces):
            return pieces
        array = self.terms.ground.array(pieces, shape, dtype_of(element))
        return pieces if array is None else self.terms.once.of("settled", (pieces,), lambda: self.terms.array(array, shape))

    def function(self, op: OnnxOp) -> Sequence[Pieces]:
        """Gives the results of an op that ONNX defines as a function."""
        block, operands = expanded(op)
        inner = Calls(self.terms, {v: self.of(operand) for v, operand in operands.items()})
        assert block.last_op is not None
        sizes = [(shape_of(own.type), shape_of(r.type)) for own, r in zip(block.last_op.operands, op.results, strict=True)]
        if any(math.prod(own) != math.prod(said) for own, said in sizes):
            raise Undecided("a function whose result has another size")
        return [self.terms.reshaped(x, *both) for x, both in zip(inner.block(block), sizes)]  # Celu makes a vector of a scalar

    def computed(self, op: Operation) -> Sequence[Pieces]:
        """Gives the result of a library call: its families' over whole axes, a later one over an earlier one."""
        t, shape = self.terms, shape_of(op.results[0].type)
        if len(op.operands) == 1 and (at := shown(op, shape, shape_of(op.operands[0].type))) is not None:
            return [t.seen(self.of(op.operands[0]), at)]
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
        return [united(result)]

    def outside(self, op: Operation) -> Sequence[Pieces]:
        """Gives the results of a host function, or of a collective."""
        name, params = op.name.removeprefix("gcl."), {k: v for k, v in op.properties.items() if k not in ("shape", "element")}
        if isinstance(op, HostOp):
            name, params = op.function.data, {} if op.params is None else dict(op.params.data)
        inputs = [(self.of(v), shape_of(v.type)) for v in op.operands]
        return outside(self.terms, name, params, inputs, [(shape_of(r.type), element_type_of(r.type)) for r in op.results])

    def lowered(self, op: PopartOp) -> Sequence[Pieces]:
        """Gives the results of a `popart` op: those of its library calls, which see constants and no other producer."""
        if op.regions:
            raise Undecided(f"{op.name} ({where(op)})")
        block = Block(arg_types=op.operand_types)
        values: dict[SSAValue, SSAValue] = dict(zip(op.operands, block.args))
        for value in dict.fromkeys(op.operands):
            if isinstance(value.owner, ConstantOp):
                constant = value.owner.clone()
                block.add_op(constant)
                values[value] = constant.result
        copy = op.clone(values)
        block.add_ops([copy, ReturnOp(*copy.results)])
        inner = Calls(self.terms, dict(zip(block.args, (self.of(v) for v in op.operands))))
        lower_block(block, None)
        return inner.block(block)

    def called(self, op: FunctionCallOp) -> Sequence[Pieces]:
        """Gives the results of a function for these arguments."""
        function = SymbolTable.lookup_symbol(op, op.callee)
        assert isinstance(function, FunctionOp), op.callee
        return Calls(self.terms, dict(zip(function.body.block.args, (self.of(v) for v in op.operands)))).block(function.body.block)

    def branch(self, op: Branch) -> Sequence[Pieces]:
        """Gives the results of a branch: of either region, by the condition."""
        ends = [Calls(self.terms, self.values).block(region.block) for region in (op.then, op.otherwise)]
        return [chosen(self.terms, self.of(op.condition), a, b, box(shape_of(r.type))) for a, b, r in zip(*ends, op.results)]

    def loop(self, op: Loop) -> Sequence[Pieces]:
        """Gives the results of a loop: its recurrence's, and rows of one iteration."""
        t, most = self.terms, op.most
        carried = [Part(self.of(v), shape_of(v.type), is_float(element_type_of(v.type))) for v in op.carried]
        if most == 0:
            if op.go is not None:
                raise Undecided(f"{op.name} ({where(op)}): a conditional loop of no iterations")
            return [*(part.first for part in carried), *([] for _ in op.collected)]
        parts = [*([] if op.go is None else [Part(self.of(op.go), (), False)]), *carried]

        def turn(index: Pieces, states: Sequence[Pieces]) -> tuple[list[Pieces], list[Pieces]]:
            inner = Calls(t, self.values)
            inner.values[op.index] = index
            inner.values.update(zip(op.states, states[len(states) - len(carried) :]))
            for table, row in zip(op.tables, op.rows):
                inner.values[row] = row_of(t, self.of(table), shape_of(table.type), element_type_of(table.type), index)
            ends = inner.block(op.body.block)
            if op.go is not None and most is not None:
                ends[0] = t.elementwise(Arg(1) & (Arg(2) < most - 1), box(()), [ends[0], index], False)
            return ends[: len(parts)], ends[len(parts) :]

        shapes = [shape_of(v.type) for v in op.collected]
        finals, tables = looped(t, most, op.go is not None, parts, turn, shapes)
        return [*finals[len(parts) - len(carried) :], *tables]
