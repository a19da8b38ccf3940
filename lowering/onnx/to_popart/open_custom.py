"""Custom ops where the sizes of their operands are bounded, or decided by the data.

An element-wise op is computed as at the bounds. Any other says in `independent` which positions it keeps apart.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from populus.dialects.popart.base import ElementwiseOp, PopartOp
from populus.dialects.support import user_op_errors
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.to_popart.conversion import shape
from populus.lowering.onnx.to_popart.masks import Place
from populus.lowering.onnx.to_popart.open_shapes import agreed, aligned
from populus.lowering.onnx.valid_sizes import Axis, dimensions, is_whole, whole


def converted(place: Place, op: PopartOp) -> list[SSAValue]:
    """Inserts a user's op whose operands are partly valid, and gives its results with their valid parts.

    Raises PopulusError for a dimension that the op does not keep apart, with the method that says so.
    """
    m = place.masks
    assert m is not None
    if isinstance(op, ElementwiseOp):
        op.operands = aligned(place, list(op.operands))
        return [m.insert(place, op)]
    links = links_of(op)
    groups: dict[tuple[int, int], list[int | None]] = {}
    for operand, d, result, to in links:
        groups.setdefault((result, to), [None] * len(op.operands))[operand] = d
    values = agreed(place, list(op.operands), list(groups.values()))
    axes: list[list[Axis]] = [list(whole(shape(r))) for r in op.results]
    for i, value in enumerate(values):
        for d, axis in enumerate(m.valid.of(value)):
            to = [(result, e) for operand, own, result, e in links if (operand, own) == (i, d)]
            if is_whole(axis):
                continue
            if not to:
                name = user_op_errors.operand_name(op, i)
                raise PopulusError(
                    f"{op.name} reads dimension {d} of operand {name}, whose size {dimensions(m.valid.axes, [op.operands[i]])} is known "
                    "only when the model runs; if it keeps the positions along it apart, let its class say so in `independent`"
                )
            for result, e in to:
                axes[result][e] = axis
    op.operands = values
    m.plain(place, op)
    return [m.safe(place, m.state(r, tuple(a))) for r, a in zip(op.results, axes)]


def links_of(op: PopartOp) -> list[tuple[int, int, int, int]]:
    """Gives what an op's `independent` says.

    Raises PopulusError if it fails, names no dimension of the op's operands and results, or dimensions of unlike sizes.
    """
    with user_op_errors.asked(op, "independent", lambda: op.name):
        links = [tuple(link) for link in op.independent()]
    found: list[tuple[int, int, int, int]] = []
    for link in links:
        match link:
            case (operand, d, result, to) if operand in range(len(op.operands)) and result in range(len(op.results)):
                own, other = shape(op.operands[operand]), shape(op.results[result])
                if d in range(len(own)) and to in range(len(other)) and own[d] == other[to]:
                    found.append((operand, d, result, to))
                    continue
            case _:
                pass
        said = "(operand, its dimension, result, its dimension) of one size is expected"
        raise PopulusError(f"{op.name}: its `independent` gives {link}; {said}{user_op_errors.at(op, 'independent')}")
    return found
