"""Regions that combine two values: which of them are sums, products, extremes or assignments."""

from __future__ import annotations

import math

from xdsl.dialects.builtin import i1
from xdsl.ir import Attribute, Block

from populus.dialects.stablehlo.ops import HloOp
from populus.dialects.support.element_types import dtype_of, is_float

ON_NUMBERS = {"add": "add", "multiply": "mul", "maximum": "max", "minimum": "min"}
ON_BOOLEANS = {"or": "max", "add": "max", "maximum": "max", "and": "min", "multiply": "min", "minimum": "min"}


def monoid(block: Block, element: Attribute) -> str | None:
    """Names the operation of a region on two scalars: `add`, `mul`, `max`, `min`, or `set` for the second; None for another."""
    end = block.last_op
    assert end is not None
    if len(block.args) != 2 or len(end.operands) != 1:
        return None
    a, b = block.args
    if end.operands[0] is b and block.first_op is end:
        return "set"
    op = block.first_op
    if op is None or op.next_op is not end or not isinstance(op, HloOp) or end.operands[0].owner is not op:
        return None
    if set(op.operands) != {a, b}:
        return None
    return (ON_BOOLEANS if element == i1 else ON_NUMBERS).get(op.kind)


def neutral(kind: str, element: Attribute) -> float | int | bool | None:
    """Gives the element that changes nothing; None for `set`."""
    if kind in ("add", "mul"):
        return 0 if kind == "add" else 1
    if kind == "set":
        return None
    largest = kind == "min"
    if element == i1:
        return largest
    if is_float(element):
        return math.inf if largest else -math.inf
    import numpy as np

    limits = np.iinfo(dtype_of(element))
    return int(limits.max if largest else limits.min)
