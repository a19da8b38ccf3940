"""Buckets of collectives (`popart-bucket`): many small ones become few."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from populus.dialects import gcl, popart
from populus.dialects.base.control_flow import read_by
from populus.dialects.popart import calls
from populus.dialects.popart.collective import OfTensor
from populus.dialects.signature import main_of
from populus.dialects.support.diagnostics import PopulusError, fused
from populus.dialects.support.element_types import size_in_bytes

Key: TypeAlias = "tuple[type[OfTensor], int, int, str, Attribute]"
DEFAULT = 25_000_000  # a ring of 100 GB/s moves that in 0.5 ms, some hundred times what a step between chips takes to start


@dataclass(frozen=True)
class PopartBucketPass(ModulePass):
    """Joins collectives of one kind, group and type in `@main`, so that one carries many tensors.

    A bucket takes up to `bytes` of operands in the order in which they are made, and stands after the last of them,
    or before the first op that reads one of its results. A larger operand stays alone. Results have the same bits,
    since each element is reduced as before. 0 bytes joins nothing. Bit for bit.
    """

    name = "popart-bucket"

    bytes: int = DEFAULT

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.bytes < 0:
            raise PopulusError(f"bytes = {self.bytes}; at least 0 is expected")
        if self.bytes:
            self._join(main_of(op).body.block)

    def _join(self, block: Block) -> None:
        filling: dict[Key, list[OfTensor]] = {}
        for op in list(block.ops):
            read = {v.owner for v in read_by(op)}
            for key in [k for k, members in filling.items() if any(m in read for m in members)]:
                _joined(filling.pop(key), Builder(InsertPoint.before(op)))
            if (key := _key(op)) is None:
                continue
            assert isinstance(op, OfTensor)
            size = _bytes(op.x)
            if sum(_bytes(m.x) for m in filling.get(key, ())) + size > self.bytes and key in filling:
                _joined(filling.pop(key), Builder(InsertPoint.before(op)))
            if size <= self.bytes:
                filling.setdefault(key, []).append(op)


def _key(op: Operation) -> Key | None:
    """Gives what collectives of one bucket have in common; None for an op that no bucket takes."""
    match op:
        case popart.AllReduceOp():
            return type(op), op.stride, op.size, op.reduction, calls.element(op.x)
        case popart.ReduceScatterOp() if op.reduction != gcl.LOCAL:
            return type(op), op.stride, op.size, op.reduction, calls.element(op.x)
        case popart.AllGatherOp():
            return type(op), op.stride, op.size, "", calls.element(op.x)
        case _:
            return None


def _bytes(x: SSAValue) -> int:
    return math.prod(calls.shape(x)) * size_in_bytes(calls.element(x))


def _joined(members: Sequence[OfTensor], b: Builder) -> None:
    """Replaces collectives by one, of their operands side by side: rows of a scatter, and of a gather's result, are members."""
    if len(members) == 1:
        return
    size, sizes = members[0].size, [math.prod(calls.shape(m.x)) for m in members]
    scatters = isinstance(members[0], popart.ReduceScatterOp)
    if scatters:
        sizes = [n // size for n in sizes]
        whole = calls.concat(b, [calls.reshape(b, m.x, (size, n)) for m, n in zip(members, sizes)], 1)
    else:
        whole = calls.concat(b, [calls.reshape(b, m.x, (n,)) for m, n in zip(members, sizes)], 0)
    made = b.insert(type(members[0])(whole, **members[0].properties))
    made.location = fused(*(m.location for m in members))
    together, begin = made.y, 0
    rows = calls.shape(together)[0] if len(calls.shape(together)) == 2 else 0
    for member, n in zip(members, sizes):
        begins, ends = ([0, begin], [rows, begin + n]) if rows else ([begin], [begin + n])
        own = calls.reshape(b, calls.slice(b, together, begins, ends), calls.shape(member.y))
        member.y.replace_all_uses_with(own)
        member.detach()
        member.erase()
        begin += n
