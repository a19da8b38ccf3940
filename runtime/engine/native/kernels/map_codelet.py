"""Codelet of a formula: a nest of `scf.for` around one element, in `func`, `arith`, `math` and `memref`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.builder import Builder
from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, IndexType, IntegerAttr, IntegerType, MemRefType, ModuleOp, i1
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint

from populus.runtime.engine.native.kernels.element_ops import element_type
from populus.runtime.engine.native.kernels.formulas import Formula
from populus.runtime.engine.native.kernels.map_pattern import Pattern

INDEX = IndexType()
BYTE = IntegerType(8)  # a boolean in memory


def module_of(pattern: Pattern, name: str, converts: bool = False) -> ModuleOp:
    """Builds the function `name` of a pattern, alone in a module. `converts`: as for `Formula`."""
    arguments = _arguments(pattern)
    nest = _Nest(Builder(InsertPoint.at_end(arguments.entry)), arguments.pointers)
    nest.read_numbers(pattern)
    nest.loops(arguments)
    nest.element(pattern, converts)
    function = func.FuncOp(name, (list(arguments.entry.arg_types), []), Region(arguments.entry))
    return ModuleOp([function])


@dataclass(frozen=True)
class _Arguments:
    """Arguments of the function. `pointers` and `strides` are by operand; the output follows the last operand.

    `sizes` and `strides` have one entry per loop. A stride known while compiling is an int; a number has none.
    """

    entry: Block
    pointers: dict[int, SSAValue]
    first: SSAValue
    sizes: Sequence[SSAValue]
    strides: dict[int, list[SSAValue | int]]


def _arguments(pattern: Pattern) -> _Arguments:
    """Makes the entry block: memrefs, sizes, strides, then the range of the outermost loop."""
    tape, rank = pattern.tape, pattern.rank
    places = [*pattern.pointers, len(tape.operands)]
    types = [_memref_of(d) for i, d in enumerate((*tape.operands, tape.dtype)) if i in places]
    entry = Block(arg_types=[*types, *[INDEX] * (pattern.numbers + 2)])
    *numbers, first, end = entry.args[len(types) :]
    sizes = [end, *numbers[: rank - 1]]
    rest: list[SSAValue] = list(numbers[rank - 1 :])
    strides: dict[int, list[SSAValue | int]] = {}
    for p in places:
        if pattern.strides[p] == "number":
            continue
        outer, rest = rest[: rank - 1], rest[rank - 1 :]
        kind = pattern.strides[p]
        strides[p] = [*outer, rest.pop(0) if kind == "any" else int(kind == "one")]
    return _Arguments(entry, dict(zip(places, entry.args)), first, sizes, strides)


def _memref_of(dtype: np.dtype[Any]) -> MemRefType:
    type = element_type(dtype)
    return MemRefType(BYTE if type == i1 else type, [DYNAMIC_INDEX])


class _Nest:
    """Loops of the function and the body of the innermost one, with the index of each operand's element."""

    def __init__(self, builder: Builder, pointers: dict[int, SSAValue]):
        self.builder, self.pointers = builder, pointers
        self.indices: dict[int, SSAValue] = {}
        self.numbers: dict[int, SSAValue] = {}

    def op(self, made: Operation) -> SSAValue:
        """Inserts an op and returns its result."""
        self.builder.insert(made)
        return made.results[0]

    def read_numbers(self, pattern: Pattern) -> None:
        """Loads the operands that are numbers."""
        places = [p for p, kind in enumerate(pattern.strides) if kind == "number"]
        if places:
            zero = self.op(arith.ConstantOp(IntegerAttr(0, INDEX)))
            self.numbers = {p: self.op(memref.LoadOp.get(self.pointers[p], [zero])) for p in places}

    def loops(self, arguments: _Arguments) -> None:
        """Opens the loops and computes the element indices in each; inserts into the innermost body afterwards."""
        zero, one = (self.op(arith.ConstantOp(IntegerAttr(n, INDEX))) for n in (0, 1))
        self.indices = dict.fromkeys(arguments.strides, zero)
        for d, size in enumerate(arguments.sizes):
            body = Block(arg_types=[INDEX])
            self.builder.insert(scf.ForOp(arguments.first if d == 0 else zero, size, one, [], Region(body)))
            outer, self.builder = self.builder, Builder(InsertPoint.at_end(body))
            for p, index in self.indices.items():
                stride = arguments.strides[p][d]
                step = body.args[0] if isinstance(stride, int) else self.op(arith.MuliOp(body.args[0], stride))
                self.indices[p] = index if stride == 0 else self.op(arith.AddiOp(index, step))
            outer.insert(scf.YieldOp() if d else func.ReturnOp())

    def element(self, pattern: Pattern, converts: bool) -> None:
        """Computes and stores one element, and ends the innermost body."""
        tape, out = pattern.tape, len(pattern.tape.operands)
        values = [
            self.numbers[i] if i in self.numbers else self.load(out if i in pattern.same else i, dtype)
            for i, dtype in enumerate(tape.operands)
        ]
        result = Formula(self.builder.insert, converts).run(tape, values, self.numbers)
        if tape.dtype.kind == "b":
            result = self.op(arith.ExtUIOp(result, BYTE))
        self.builder.insert(memref.StoreOp.get(result, self.pointers[out], [self.indices[out]]))
        self.builder.insert(scf.YieldOp())

    def load(self, place: int, dtype: np.dtype[Any]) -> SSAValue:
        """Loads an operand's element; a boolean is any byte but 0."""
        loaded = self.op(memref.LoadOp.get(self.pointers[place], [self.indices[place]]))
        if dtype.kind != "b":
            return loaded
        return self.op(arith.CmpiOp(loaded, self.op(arith.ConstantOp(IntegerAttr(0, BYTE))), "ne"))
