"""The one rule of masks: what an op reads beyond the valid part of operands, and the valid part of its results, as its class says.

    matmul of [s of 512, k of 64] and [k of 64, 8]: zeros beyond k of both (`neutral`), rows as the first has them (`independent`)

An op says which dimensions it keeps apart, and what it reads beyond the valid part of others. A partly valid dimension of which it
says nothing is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias, cast

from xdsl.ir import Operation, SSAValue

from populus.dialects.popart.base import Link, Neutral, PopartOp
from populus.dialects.support import user_op_errors
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.to_popart.conversion import shape
from populus.lowering.onnx.to_popart.masks import FILLS, Masks, Place
from populus.lowering.onnx.valid_sizes import Axes, Axis, bound_of, described, dimensions, is_whole, whole

At: TypeAlias = "tuple[int, int]"
"""An operand and a dimension of it; or a result and one of it."""


def refuse(m: Masks, op: Operation, why: str) -> PopulusError:
    """Makes the error of an op that cannot have a bounded dimension there."""
    return PopulusError(f"{why}; bind the dimension {dimensions(m.valid.axes, op.operands)} to one size")


def refilled(op: Operation, values: Mapping[int, SSAValue]) -> None:
    """Replaces operands by position."""
    op.operands = [values.get(i, v) for i, v in enumerate(op.operands)]


def put(m: Masks, c: Place, op: Operation, axes: Axes) -> SSAValue:
    """Inserts an op whose result has these axes."""
    return m.state(m.plain(c, op), axes)


def links_of(op: PopartOp) -> list[Link]:
    """Gives what an op's `independent` says.

    Raises PopulusError if it fails, names no dimension of the op's operands and results, or dimensions of unlike sizes.
    """
    with user_op_errors.asked(op, "independent", lambda: op.name):
        links = [tuple(link) for link in op.independent()]
    for link in links:
        match link:
            case (i, d, result, to) if i in range(len(op.operands)) and result in range(len(op.results)):
                if _may_be(shape(op.operands[i]), d, shape(op.results[result]), to):
                    continue
            case _:
                pass
        said = "(operand, its dimension, result, its dimension) of one size is expected"
        raise PopulusError(f"{op.name}: its `independent` gives {link}; {said}{user_op_errors.at(op, 'independent')}")
    return cast("list[Link]", links)


def neutral_of(op: PopartOp) -> list[Neutral]:
    """Gives what an op's `neutral` says.

    Raises PopulusError if it fails, names no dimension of the op's operands and first result, dimensions of unlike sizes, or no element.
    """
    with user_op_errors.asked(op, "neutral", lambda: op.name):
        found = [tuple(entry) for entry in op.neutral()]
    for entry in found:
        match entry:
            case (i, d, fill, *rest) if i in range(len(op.operands)) and fill in FILLS and len(rest) < 2:
                own = shape(op.operands[int(i)])
                if _may_be(own, d, shape(op.results[0]), rest[0]) if rest else d in range(len(own)):
                    continue
            case _:
                pass
        said = f"(operand, its dimension, one of {', '.join(FILLS)}), or these and a dimension of the result of one size are expected"
        raise PopulusError(f"{op.name}: its `neutral` gives {entry}; {said}{user_op_errors.at(op, 'neutral')}")
    return cast("list[Neutral]", found)


def _may_be(own: Sequence[int], d: Any, other: Sequence[int], to: Any) -> bool:
    """Tells whether one dimension may become another, as it is or stretched."""
    return d in range(len(own)) and to in range(len(other)) and own[d] in (1, other[to])


REDUCED = -1  # in place of a result


def met(op: PopartOp) -> dict[At, list[int | None]]:
    """Gives the dimensions that have to be of one size, one for each operand: of each dimension of a result, and those reduced together."""
    groups: dict[At, list[int | None]] = {}
    reduced: dict[int, int] = {}
    for operand, d, result, to in links_of(op):
        groups.setdefault((result, to), [None] * len(op.operands))[operand] = d
    for operand, d, _, *to in neutral_of(op):
        if not to:
            reduced[operand] = reduced.get(operand, 0) + 1
        groups.setdefault((0, to[0]) if to else (REDUCED, reduced[operand]), [None] * len(op.operands))[operand] = d
    return groups


def read(m: Masks, c: Place, op: PopartOp) -> None:
    """Replaces what stands beyond the valid part of operands by the op's neutral elements."""
    found: dict[tuple[int, str], list[int]] = {}
    for operand, d, fill, *_ in neutral_of(op):
        found.setdefault((operand, fill), []).append(d)
    for (operand, fill), dims in found.items():
        refilled(op, {operand: m.filled(c, op.operands[operand], dims, fill)})


def kept(m: Masks, op: PopartOp, own: Collection[At] = ()) -> list[Axes]:
    """Gives the axes of an op's results, of which those that no operand decides are whole.

    own: dimensions of operands whose results the caller knows. Raises PopulusError for a partly valid one that the op does not name.
    """
    to: dict[At, list[At]] = {}
    for operand, d, result, e in links_of(op):
        to.setdefault((operand, d), []).append((result, e))
    for operand, d, _, *same in neutral_of(op):
        to.setdefault((operand, d), []).extend((0, e) for e in same)
    operands = [m.valid.of(v) for v in op.operands]
    for (result, _), group in met(op).items():
        axes = {operands[i][d] for i, d in enumerate(group) if d is not None}
        if result != REDUCED:  # of one element stretches; a whole one may be a constant at the bound
            axes = {a for a in axes if bound_of(a) != 1 and not is_whole(a)}
        if len(axes) > 1:
            raise refuse(m, op, f"{op.name} of {' and '.join(map(described, operands))} meets dimensions that are not of one size")
    found: list[list[Axis]] = [list(whole(shape(r))) for r in op.results]
    for i, axes_ in enumerate(operands):
        for d, axis in enumerate(axes_):
            if is_whole(axis) or (i, d) in own:
                continue
            if (i, d) not in to:
                raise _unnamed(m, op, i, d)
            for result, e in to[i, d]:
                if bound_of(axis) == bound_of(found[result][e]):
                    found[result][e] = axis
    return [tuple(axes) for axes in found]


def _unnamed(m: Masks, op: PopartOp, i: int, d: int) -> PopulusError:
    """Makes the error of an op that reads a bounded dimension, and says neither that it keeps it apart nor what it reads beyond."""
    reads = f"{op.name} reads dimension {d} of operand {user_op_errors.operand_name(op, i)}"
    if user_op_errors.is_ours(type(op)):
        return refuse(m, op, f"{reads}, of {described(m.valid.of(op.operands[i]))}")
    return PopulusError(
        f"{reads}, whose size {dimensions(m.valid.axes, [op.operands[i]])} is known only when the model runs; if it keeps the positions "
        "along it apart, let its class say so in `independent`; else in `neutral`, what it may read beyond that size"
    )


def declared(m: Masks, c: Place, op: PopartOp) -> SSAValue:
    """Inserts an op whose class says all that there is to know."""
    axes = kept(m, op)
    read(m, c, op)
    m.plain(c, op)
    for result, own in zip(op.results, axes):
        m.state(result, own)
    return op.results[0]
