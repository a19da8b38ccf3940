"""Ways to split an op over chips: which dimension of each operand is cut, and what the parts of the result are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, i64
from xdsl.ir import Attribute, Operation, SSAValue

from populus.dialects import popart
from populus.dialects.base.tensor_op import ints
from populus.dialects.popart import calls
from populus.dialects.popart.base import ElementwiseOp, PopartOp, ReduceOp

PRODUCTS = (popart.MatMulOp, popart.GemmOp, popart.ConvOp)
"""Ops that are split for themselves; others follow operands that are cut."""
_POOLS = (popart.MaxPoolOp, popart.AveragePoolOp)
_AS_DECLARED = (
    ReduceOp,
    popart.ConcatOp,
    popart.LayerNormOp,
    popart.LogSoftmaxOp,
    popart.PadOp,
    popart.RmsNormOp,
    popart.SoftmaxOp,
    popart.TransposeOp,
)
"""Ops whose parts have the op's own attributes."""


@dataclass(frozen=True)
class Split:
    """`operands`: the dimension along which each is cut, None for one that each chip reads whole. `result`: that of the result.

    A result of None is a sum: the chips' results are its terms. `after`: the operand that the terms leave out, and that is added to the
    sum along this dimension of the result. `properties`: those that a part has in place of the op's.
    """

    operands: tuple[int | None, ...]
    result: int | None
    after: tuple[int, int] | None = None
    properties: Mapping[str, Attribute] = field(default_factory=dict[str, Attribute])

    def equal(self, op: Operation, parts: int) -> bool:
        """Tells whether everything that is cut has equal parts."""
        cut = [(v, d) for v, d in zip(op.operands, self.operands) if d is not None]
        cut += [] if self.result is None else [(op.results[0], self.result)]
        return all(calls.shape(v)[d] % parts == 0 for v, d in cut)


def splits_of(op: Operation, parts: int) -> list[Split]:
    """Lists the ways to split an op into equal parts, the best of equal ones first; none for an op that has to be whole."""
    if not isinstance(op, PopartOp) or len(op.results) != 1 or op.regions:
        return []
    return [split for split in _ways(op, parts) if split.equal(op, parts)]


def part_of(op: PopartOp, split: Split, operands: Sequence[SSAValue], parts: int) -> PopartOp:
    """Creates a chip's part of an op from parts of its operands."""
    kept = [o for i, o in enumerate(operands) if split.after is None or i != split.after[0]]
    made = type(op)(*kept, **{**op.properties, **split.properties})
    made.location = op.location
    whole = calls.shape(op.results[0])
    expected = tuple(n // parts if d == split.result else n for d, n in enumerate(whole))
    assert calls.shape(made.results[0]) == expected, (op.name, split, calls.shape(made.results[0]), expected)
    return made


def _ways(op: PopartOp, parts: int) -> Iterator[Split]:
    shapes, result = [calls.shape(o) for o in op.operands], calls.shape(op.results[0])
    rank = len(result)
    match op:
        case popart.MatMulOp() if min(map(len, shapes)) >= 2:
            yield from _products(shapes, rank)
        case popart.GemmOp():
            yield from _gemm(op, shapes)
        case popart.ConvOp():
            yield from _convolution(op, parts)
        case ElementwiseOp():
            yield from (Split(_broadcast(shapes, rank, d), d) for d in range(rank) if result[d] > 1)
        case popart.ReshapeOp():
            yield from _reshape(shapes[0], result, parts)
        case popart.ExpandOp() if len(shapes[0]) == rank:
            same = [d for d in range(rank) if shapes[0][d] == result[d] > 1]
            yield from (Split((d,), d, properties={"shape": _lessened(result, d, parts)}) for d in same)
        case popart.SliceOp():
            for d, bounds in enumerate(op.bounds()):
                if bounds == (0, shapes[0][d], 1):
                    yield Split((d,), d, properties={"ends": _lessened(ints(op.ends), d, parts)})
        case popart.BatchNormOp():
            yield Split((1, 0, 0, 0, 0), 1)
            yield Split((0, None, None, None, None), 0)
        case _ if isinstance(op, _POOLS):
            yield from (Split((d,), d) for d in (1, 0))
        case _ if isinstance(op, _AS_DECLARED):
            yield from _apart(op, shapes, result)
        case _:
            return


def _apart(op: PopartOp, shapes: Sequence[Sequence[int]], result: Sequence[int]) -> Iterator[Split]:
    """Lists the dimensions of the result that an op keeps apart, as its class says; operands that stretch along one are read whole."""
    found: dict[int, list[int | None]] = {}
    for operand, d, _, to in op.independent():
        if shapes[operand][d] == result[to]:
            found.setdefault(to, [None] * len(shapes))[operand] = d
    yield from (Split(tuple(found[to]), to) for to in sorted(found))


def _products(shapes: Sequence[Sequence[int]], rank: int) -> Iterator[Split]:
    """Lists the ways of a product: the axis that is summed, columns, batch dimensions, rows."""
    a, b = map(len, shapes)
    yield Split((a - 1, b - 2), None)
    yield Split((None, b - 1), rank - 1)
    yield from (Split(_broadcast([s[:-2] for s in shapes], rank - 2, d), d) for d in range(rank - 2))
    yield Split((a - 2, None), rank - 2)


def _gemm(op: popart.GemmOp, shapes: Sequence[Sequence[int]]) -> Iterator[Split]:
    k, m = (0, 1) if op.trans_a else (1, 0)
    n = 0 if op.trans_b else 1
    if op.c is None:
        yield Split((k, 1 - n), None)
    elif op.beta == 1 and len(shapes[2]) == 1:
        yield Split((k, 1 - n, None), None, after=(2, 1))
    rest = () if op.c is None else (_broadcast([shapes[2]], 2, 1)[0],)
    yield Split((None, n, *rest), 1)
    rest = () if op.c is None else (_broadcast([shapes[2]], 2, 0)[0],)
    yield Split((m, None, *rest), 0)


def _convolution(op: popart.ConvOp, parts: int) -> Iterator[Split]:
    bias = () if op.bias is None else (0,)
    if op.group > 1:
        if op.group % parts == 0:
            yield Split((1, 0, *bias), 1, properties={"group": IntegerAttr(op.group // parts, i64)})
    else:
        yield Split((1, 1, *(None for _ in bias)), None, after=(2, 1) if bias else None)
        yield Split((None, 0, *bias), 1)
    yield Split((0, None, *(None for _ in bias)), 0)


def _broadcast(shapes: Sequence[Sequence[int]], rank: int, d: int) -> tuple[int | None, ...]:
    """Gives the dimension of each operand that dimension d of the common shape comes from; None where it is stretched."""
    own = [d - rank + len(shape) for shape in shapes]
    return tuple(o if o >= 0 and shape[o] > 1 else None for o, shape in zip(own, shapes))


def _reshape(old: Sequence[int], new: Sequence[int], parts: int) -> Iterator[Split]:
    """Lists pairs of dimensions with as many elements before them: equal parts of both have the same elements."""
    for d, e in ((d, e) for d in range(len(old)) for e in range(len(new))):
        if old[d] % parts == new[e] % parts == 0 and math.prod(old[:d]) == math.prod(new[:e]):
            yield Split((d,), e, properties={"shape": _lessened(new, e, parts)})


def _lessened(sizes: Sequence[int], d: int, parts: int) -> Attribute:
    return DenseArrayBase.from_list(i64, [n // parts if i == d else n for i, n in enumerate(sizes)])
