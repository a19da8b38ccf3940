"""Cycles of maps and reductions in a core's memory: unpack, one vector instruction a cycle, pack, each block under the others.

The instructions of a function for a vector of 32 lanes are our own count: a load, a store, and the length of its usual expansion. No
source that can be read has them. That of `erf` is near what the gelu of a published text encoder takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from populus.dialects.expr import Arg, Call, Cast, Const, Expr
from populus.dialects.poplar.target import Target
from populus.dialects.support.element_types import is_float, size_in_bytes
from populus.runtime.cycles.counts import Count, ceil_div
from populus.runtime.cycles.mesh.steps import mesh_of

BLOCK_CYCLES = 15.0  # between one block and the next
INSTRUCTIONS = {
    "add": 1, "sub": 1, "mul": 1, "neg": 1, "abs": 1, "max": 2, "min": 2, "square": 1, "select": 2, "equal": 2, "gt": 2, "gte": 2, "lt": 2,
    "lte": 2, "and": 1, "or": 1, "xor": 1, "not": 1, "signum": 4, "floor": 6, "ceil": 6, "trunc": 6, "nearbyint": 8, "inv": 12,
    "divide": 14, "sqrt": 14, "rsqrt": 14,
    "exp": 24, "expm1": 26, "log": 24, "log1p": 26, "tanh": 40, "sigmoid": 40, "erf": 100, "pow": 50, "rem": 30,
    "sin": 30, "cos": 30,
}  # fmt: skip
OTHER = 60  # of a function that is not listed


@lru_cache(4096)
def instructions(expression: Expr) -> int:
    """Counts the vector instructions of an expression."""
    match expression:
        case Call(function, args):
            return INSTRUCTIONS.get(function, OTHER) + sum(map(instructions, args))
        case Cast(x, _):
            return 1 + instructions(x)
        case _:
            return 0


def passes(n: Count, read: float, written: float, issued: float, target: Target) -> Any:
    """Estimates `n` elements through a core's units. `read`, `written`: bytes an element. `issued`: instructions a vector."""
    mesh = mesh_of(target)
    elements = mesh.block[0] * mesh.block[1]
    unpack, pack = 2 * read * elements / sum(mesh.unpack_bytes), written * elements / mesh.pack_bytes
    block = max(unpack, pack, elements / mesh.vector_lanes * (issued + 2)) + BLOCK_CYCLES
    return np.ceil(ceil_div(n, elements) * block)


def map_cycles(
    n: Count, expression: Expr, inputs: Sequence[Attribute], single: Sequence[bool], output: Attribute, target: Target, inout: bool
) -> Any:
    """Estimates a map over n elements. An operand of one element stays in the registers.

    A single sum, difference or product runs on the matrix unit, which has a row of the block's width 4 times a cycle.
    """
    read = sum(size_in_bytes(element) for element, one in zip(inputs, single) if not one)
    match expression:
        case Call("add" | "sub" | "mul", (Arg(), Arg() | Const())) if is_float(output):
            issued = 0.25 * (mesh_of(target).phases_of(output) if expression.function == "mul" else 1) - 2
        case _:
            issued = instructions(expression)
    return passes(n, read, size_in_bytes(output), issued, target)


def reduce_cycles(
    outputs: Count, depth: Count, element: Attribute, target: Target, contiguous: bool = False, add: bool = True, squares: bool = False
) -> Any:
    """Estimates the reduction of outputs x depth elements: one instruction for each vector, and five halvings of a vector at its end."""
    size = size_in_bytes(element)
    ends = 5 * outputs if contiguous else ceil_div(outputs, mesh_of(target).vector_lanes)
    return passes(outputs * depth, size, 0.0, 1.0 + squares, target) + ends
