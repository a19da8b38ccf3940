"""Tensor parallelism (`popart-tensor-parallel`): products cut over chips, each with its part of the weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects import popart
from populus.dialects.base.control_flow import read_by
from populus.dialects.popart import calls
from populus.dialects.popart.base import PopartOp
from populus.dialects.signature import main_of, return_of
from populus.dialects.support.dead_code import erase_dead
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import element_type_of, size_in_bytes, tensor
from populus.lowering.popart.free import free_of
from populus.lowering.popart.splits import PRODUCTS, Split, part_of, splits_of


@dataclass(frozen=True)
class PopartTensorParallelPass(ModulePass):
    """Makes `@main` the program of one of several chips, which compute one run of the model together.

    Each product and convolution is cut into `parts`: its columns or channels, the axis that it sums over, its batch
    or its rows. Terms of sums meet in a `popart.all_reduce`, and parts that an op has to have whole in a
    `popart.all_gather`. Other ops follow operands that are cut. Of the ways of an op the one with the fewest bytes
    between chips is taken, so two products that follow each other are cut by columns and then along their sum.
    Source: Shoeybi et al., Megatron-LM, 2019.

    `part`: the chip, the replica of this number in a group. Constants are its part of the weights. An input of which
    it reads one part alone is that part, and so is a result: a dimension is then `parts` times smaller.

    Raises PopulusError if no product can be cut into equal parts. To rounding: sums have another order.
    """

    name = "popart-tensor-parallel"

    parts: int = 1
    part: int = 0

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if not 0 <= self.part < self.parts:
            raise PopulusError(f"part = {self.part} of parts = {self.parts}; a part is from 0 to {self.parts - 1}")
        if self.parts > 1:
            _Chip(self, main_of(op)).build()


class Piece(NamedTuple):
    """A value of the chip's program: a whole, or the chip's part along a dimension."""

    value: SSAValue
    dim: int | None


class _Chip:
    """The program of a chip under construction, at the end of `@main`; what was there is erased."""

    def __init__(self, options: PopartTensorParallelPass, function: FuncOp):
        self.parts, self.part, self.function = options.parts, options.part, function
        self.b = Builder(InsertPoint.before(return_of(function)))
        self.pieces: dict[SSAValue, Piece] = {a: Piece(a, None) for a in function.body.block.args}
        self.made: dict[tuple[SSAValue, int | None], SSAValue] = {}  # wholes and parts of values, once each
        self.cut = 0  # products

    def build(self) -> None:
        """Builds the chip's program in the place of the whole one."""
        block = self.function.body.block
        old = [op for op in block.ops if not isinstance(op, ReturnOp)]
        free = free_of(old)
        for op in old:
            if op in free:
                self.pieces.update((r, Piece(r, None)) for r in op.results)
            else:
                self._op(op)
        if not self.cut:
            raise PopulusError(f"no product can be cut into {self.parts} equal parts; take fewer chips")
        last = return_of(self.function)
        last.operands = [self.pieces[v].value for v in last.operands]
        erase_dead(block)
        for argument in block.args:
            self._narrow(argument)
        self.function.update_function_type()

    def _op(self, op: Operation) -> None:
        """Builds an op, or the chip's part of it."""
        split = self._chosen(op)
        if split is None:
            copy = op.clone({v: self._as(v, None) for v in read_by(op)})
            copy.location = op.location
            self.b.insert(copy)
            self.pieces.update((old, Piece(new, None)) for old, new in zip(op.results, copy.results))
            return
        assert isinstance(op, PopartOp), op.name
        self.cut += isinstance(op, PRODUCTS)
        operands = [self._as(v, d) for v, d in zip(op.operands, split.operands)]
        value = self.b.insert(part_of(op, split, operands, self.parts)).results[0]
        if split.result is None:
            value = self._insert(popart.AllReduceOp(value, reduction="add", size=self.parts), op)
            if split.after is not None:
                index, d = split.after
                rank = len(calls.shape(value))
                along = popart.ReshapeOp(operands[index], shape=[-1 if i == d else 1 for i in range(rank)])
                value = self._insert(popart.AddOp(value, self._insert(along, op)), op)
        self.pieces[op.results[0]] = Piece(value, split.result)

    def _chosen(self, op: Operation) -> Split | None:
        """Gives the split with the fewest bytes between chips; None for a whole op: one that nothing asks to cut."""
        ways = splits_of(op, self.parts)
        if isinstance(op, PRODUCTS):
            return min(ways, key=lambda way: self._moved(op, way), default=None)
        gathered = sum(self._bytes(v) for v in op.operands if self.pieces[v].dim is not None)
        ways = [way for way in ways if any(d is not None and d == self.pieces[v].dim for v, d in zip(op.operands, way.operands))]
        return min((w for w in ways if self._moved(op, w, False) < gathered), key=lambda w: self._moved(op, w, False), default=None)

    def _moved(self, op: Operation, split: Split, result: bool = True) -> int:
        """Counts the bytes that a split makes whole: operands that are cut elsewhere; with `result` also the op's, a sum twice."""
        before = sum(self._bytes(v) for v, d in zip(op.operands, split.operands) if self.pieces[v].dim not in (None, d))
        return before + (self._bytes(op.results[0]) * (2 if split.result is None else 1) if result else 0)

    @staticmethod
    def _bytes(v: SSAValue) -> int:
        return math.prod(calls.shape(v)) * size_in_bytes(calls.element(v))

    def _as(self, v: SSAValue, dim: int | None) -> SSAValue:
        """Gives a value whole, or the chip's part of it along a dimension."""
        value, own = self.pieces[v]
        if own == dim:
            return value
        if (v, dim) not in self.made:
            whole = value if own is None else self._as(v, None) if dim is not None else self._gathered(value, own, v)
            self.made[v, dim] = whole if dim is None else self._sliced(whole, dim, v)
        return self.made[v, dim]

    def _gathered(self, part: SSAValue, dim: int, like: SSAValue) -> SSAValue:
        """Builds the whole of all chips' parts."""
        shape = calls.shape(part)
        all = self._insert(popart.AllGatherOp(part, size=self.parts), like.owner)
        order = [*range(1, dim + 1), 0, *range(dim + 1, len(shape) + 1)]
        if order != sorted(order):
            all = self._insert(popart.TransposeOp(all, permutation=order), like.owner)
        return self._insert(popart.ReshapeOp(all, shape=calls.shape(like)), like.owner)

    def _sliced(self, whole: SSAValue, dim: int, like: SSAValue) -> SSAValue:
        """Builds the chip's part of a whole."""
        shape = calls.shape(whole)
        size = shape[dim] // self.parts
        begins, ends = [0] * len(shape), list(shape)
        begins[dim], ends[dim] = self.part * size, (self.part + 1) * size
        return self._insert(popart.SliceOp(whole, begins=begins, ends=ends, steps=[1] * len(shape)), like.owner)

    def _insert(self, op: PopartOp, origin: object) -> SSAValue:
        if isinstance(origin, Operation):
            op.location = origin.location
        return self.b.insert(op).results[0]

    def _narrow(self, argument: BlockArgument) -> None:
        """Makes an argument the part that alone is read of it."""
        readers = [use.operation for use in argument.uses]
        if len(readers) == 1 and (part := readers[0]) in (v.owner for (of, _), v in self.made.items() if of is argument):
            new = Rewriter.replace_value_with_new_type(argument, tensor(calls.shape(part.results[0]), element_type_of(argument.type)))
            part.results[0].replace_all_uses_with(new)
            part.detach()
            part.erase()
