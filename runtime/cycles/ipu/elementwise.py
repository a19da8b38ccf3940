"""Cycles of element-wise vertices: inner loops of single functions, and maps of one or several functions.

Counts may be arrays or numbers.
Source: popops `popopsCycleEstimators.cpp` and its tables (`popopsCycleEstimators.hpp`); the form for fused maps is
our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from xdsl.dialects.builtin import i1
from xdsl.ir import Attribute

from populus.dialects.expr import Arg, Call, Cast, Const, Expr, infer
from populus.dialects.poplar.target import Target
from populus.dialects.support.element_types import is_float, size_in_bytes
from populus.runtime.cycles.counts import Count, ceil_div

Loop = tuple[float, int]
"""Cycles of one turn of an inner loop, loop overhead included, and the elements that it processes."""

# function: (float, half, integer). An integer entry serves booleans too.
LOOPS: dict[str, tuple[Loop, Loop, Loop]] = {
    "abs": ((5, 1), (5, 1), (6, 1)),
    "acos": ((106, 1), (106, 1), (106, 1)),
    "acosh": ((106, 1), (106, 1), (106, 1)),
    "add": ((3, 2), (3, 4), (7, 1)),
    "and": ((5, 4), (5, 4), (5, 4)),
    "asin": ((106, 1), (106, 1), (106, 1)),
    "asinh": ((106, 1), (106, 1), (106, 1)),
    "atan": ((106, 1), (106, 1), (106, 1)),
    "atan2": ((272, 2), (578, 4), (272, 2)),
    "atanh": ((106, 1), (106, 1), (106, 1)),
    "bitwise_and": ((7, 1), (7, 1), (7, 1)),
    "bitwise_not": ((6, 1), (6, 1), (6, 1)),
    "bitwise_or": ((7, 1), (7, 1), (7, 1)),
    "bitwise_xor": ((7, 1), (7, 1), (7, 1)),
    "cast": ((5, 2), (5, 4), (2, 1)),
    "ceil": ((6, 2), (6, 4), (6, 2)),
    "cos": ((2304, 1), (25, 1), (2304, 1)),
    "cosh": ((12, 2), (8, 4), (12, 2)),
    "divide": ((10, 2), (21, 4), (277, 1)),
    "equal": ((14, 4), (9, 4), (22, 4)),
    "erf": ((41, 1), (13, 1), (41, 1)),
    "exp": ((6, 2), (4, 4), (6, 2)),
    "expm1": ((8, 1), (9, 4), (8, 1)),
    "floor": ((6, 2), (6, 4), (6, 2)),
    "gt": ((14, 4), (9, 4), (22, 4)),
    "gte": ((14, 4), (9, 4), (26, 4)),
    "inv": ((6, 2), (15, 4), (6, 2)),
    "isfinite": ((9, 2), (9, 4), (9, 2)),
    "isinf": ((9, 2), (9, 4), (9, 2)),
    "isnan": ((9, 2), (9, 4), (9, 2)),
    "log": ((12, 2), (4, 4), (12, 2)),
    "log1p": ((22, 2), (22, 4), (22, 2)),
    "lt": ((14, 4), (9, 4), (22, 4)),
    "lte": ((14, 4), (9, 4), (26, 4)),
    "max": ((3, 2), (4, 4), (7, 1)),
    "min": ((3, 2), (4, 4), (7, 1)),
    "mul": ((3, 2), (3, 4), (7, 1)),
    "nearbyint": ((6, 2), (6, 4), (6, 2)),
    "neg": ((2, 2), (2, 4), (6, 1)),
    "not": ((5, 4), (5, 4), (5, 4)),
    "or": ((5, 4), (5, 4), (5, 4)),
    "pow": ((312, 1), (325, 1), (32, 1)),
    "rem": ((133, 2), (300, 4), (292, 1)),
    "rsqrt": ((8, 2), (19, 4), (8, 2)),
    "select": ((5, 1), (5, 1), (5, 1)),
    "shift_left": ((7, 1), (7, 1), (7, 1)),
    "shift_right": ((7, 1), (7, 1), (7, 1)),
    "sigmoid": ((12, 2), (6, 4), (12, 2)),
    "signum": ((9, 2), (9, 4), (5, 1)),
    "sin": ((2304, 1), (25, 1), (2304, 1)),
    "sinh": ((12, 2), (8, 4), (12, 2)),
    "sqrt": ((10, 2), (23, 4), (110, 1)),
    "square": ((2, 2), (2, 4), (5, 2)),
    "sub": ((3, 2), (3, 4), (7, 1)),
    "tan": ((5100, 1), (5700, 1), (5100, 1)),
    "tanh": ((12, 2), (4, 4), (12, 2)),
    "trunc": ((3, 2), (11, 4), (3, 2)),
    "xor": ((5, 4), (5, 4), (5, 4)),
}  # PopLibs has no figures for acos, acosh, asinh, atan, atanh, cosh, sinh, isnan, isinf: those of the nearest function

# Cheaper loops for a second operand of one element.
SCALAR_LOOPS: dict[str, tuple[Loop, Loop, Loop]] = {
    "add": ((2, 2), (2, 4), (6, 1)),
    "sub": ((2, 2), (2, 4), (6, 1)),
    "mul": ((2, 2), (2, 4), (6, 1)),
    "divide": ((6, 2), (8, 2), (277, 1)),
    "max": ((3, 2), (3, 4), (6, 1)),
    "min": ((3, 2), (3, 4), (6, 1)),
}


def loop(function: str, element: Attribute, target: Target, table: dict[str, tuple[Loop, Loop, Loop]] = LOOPS) -> Loop:
    """Looks up the inner loop of a function for an element type.

    A data path wider than an IPU's does more elements in it.
    """
    kind = 2 if not is_float(element) else 1 if size_in_bytes(element) == 2 else 0
    cycles, elements = table[function][kind]
    return cycles, elements if elements == 1 else max(1, elements * target.vector_bytes // 8)


def inner(n: Count, of: Loop) -> Any:
    """Computes the worker cycles of the loop over n elements."""
    return ceil_div(n, of[1]) * of[0]


def unary(n: Count, function: str, element: Attribute, target: Target, inout: bool = False) -> Any:
    """Estimates UnaryOp1D. `inout`: in place."""
    start = 55 if inout else 33 if function == "exp" else 17
    return 20 + target.workers * (start + inner(ceil_div(n, target.workers), loop(function, element, target)))


def binary(n: Count, function: str, element: Attribute, target: Target, inout: bool = False) -> Any:
    """Estimates BinaryOp1D. `inout`: in place."""
    start = 58 if inout else 29 if is_float(element) and size_in_bytes(element) == 4 else 26
    return 11 + target.workers * (start + inner(ceil_div(n, target.workers), loop(function, element, target)))


def broadcast_scalar(n: Count, function: str, element: Attribute, target: Target) -> Any:
    """Estimates BroadcastScalar1D, whose second operand is one element."""
    table = SCALAR_LOOPS if function in SCALAR_LOOPS else LOOPS
    return 11 + target.workers * (20 + inner(ceil_div(n, target.workers), loop(function, element, target, table)))


def cast(n: Count, source: Attribute, to: Attribute, target: Target) -> Any:
    """Estimates Cast1D. Loads bound float to half, stores half to float; casts of integers are C++ code."""
    wide = max(1, target.vector_bytes // 8)
    sizes = size_in_bytes(source), size_in_bytes(to)
    if is_float(source) and is_float(to):
        elements, cycles, single = (4 * wide, 2, 2) if sizes[0] > sizes[1] else (2 * wide, 1, 3)
    else:
        elements, cycles, single = (4, 12, 3) if 1 in sizes and i1 not in (source, to) else (1, 2, 2)
    own = ceil_div(n, target.workers)
    return 12 + target.workers * (37 + cycles * (own // elements) + single * (own % elements))


def fill(n: Count, element: Attribute, target: Target) -> Any:
    """Estimates Fill, which the workers share."""
    return 11 + target.workers * (26 + ceil_div(ceil_div(n, target.workers), max(1, target.vector_bytes // size_in_bytes(element))))


def fused(n: Count, expression: Expr, inputs: Sequence[Attribute], output: Attribute, target: Target) -> Any:
    """Estimates a generated vertex: one loop over vectors, with a load per input, a store, and all function bodies."""
    width, body = body_of(expression, tuple(inputs), output, target)
    trips = ceil_div(ceil_div(n, target.workers), width)
    return 11 + target.workers * (30 + trips * (len(inputs) + 1 + body))


@lru_cache(4096)
def body_of(expression: Expr, inputs: tuple[Attribute, ...], output: Attribute, target: Target) -> tuple[int, float]:
    """Computes (elements at a time, cycles of the functions for that many).

    A function's own loads, stores and loop overhead are not counted again.
    """
    width = target.vector_width(max((*inputs, output), key=size_in_bytes))

    def cost(e: Expr) -> float:
        match e:
            case Cast(x, _):
                return cost(x) + width * 0.5
            case Call(function, args):
                return own(e, function) + sum(map(cost, args))
            case _:
                return 0.0

    def own(e: Call, function: str) -> float:
        cycles, elements = loop(function, operand_type(e, inputs, output), target)
        return max(1.0, (cycles - 2) * width / elements)

    return width, cost(expression)


def operand_type(e: Call, inputs: Sequence[Attribute], output: Attribute) -> Attribute:
    """Finds the element type that a call computes in: that of its first operand that is not a literal."""
    return next((infer(a, inputs) for a in e.args if not _literal(a)), output)


def _literal(e: Expr) -> bool:
    match e:
        case Const():
            return True
        case Call(_, args):
            return all(map(_literal, args))
        case _:
            return False


def map_cycles(
    n: Count, expression: Expr, inputs: Sequence[Attribute], single: Sequence[bool], output: Attribute, target: Target, inout: bool
) -> Any:
    """Estimates a map over n elements: by PopLibs' vertex for the expression if there is one, else a generated one.

    `single`: for each input, whether the vertex reads one element of it for all n.
    """
    match expression:
        case Arg():
            return 20 + ceil_div(n * size_in_bytes(output), target.copy_bytes)
        case Const():
            return fill(n, output, target)
        case Cast(Arg(i), to):
            return cast(n, inputs[i - 1], to, target)
        case Call(function, (Arg(i),)) if not single[i - 1]:
            return unary(n, function, inputs[i - 1], target, inout)
        case Call(function, (Arg(i), Arg(j))) if not single[i - 1] and not single[j - 1]:
            return binary(n, function, inputs[i - 1], target, inout)
        case Call(function, (Arg(i), Arg(j))) if not single[i - 1]:
            return broadcast_scalar(n, function, inputs[i - 1], target)
        case Call(function, (Arg(i), Const())):
            return broadcast_scalar(n, function, inputs[i - 1], target)
        case _:
            return fused(n, expression, inputs, output, target)
