"""Numbers of a formula as operands of its kernel, so that formulas which differ in numbers alone share their machine code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from populus.runtime.engine.native.kernels.native_support import COMPARES, of_numpy
from populus.runtime.tape import Tape, TapeStep

Array = NDArray[Any]

BOUNDS = frozenset(("max", "min"))
# Steps whose code is the same for all numbers, by the kind of element. Of others, LLVM makes better code for some: integers that divide.
STEPS = {
    "f": COMPARES | BOUNDS | {"add", "blend", "divide", "mul", "sub"},
    "i": COMPARES | BOUNDS | {"add", "blend", "sub"},
    "u": COMPARES | BOUNDS | {"add", "blend", "sub"},
}
SIMPLE = frozenset((-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0))  # a few kernels more, in which they cost less than a register


def lifted(tape: Tape) -> tuple[Tape, list[Array]]:
    """Makes numbers of a formula further operands. Returns the tape, without literals that no step reads, and these operands.

    They are finite, and come from the expression. Those that bound a conversion stay, as `native_support.fits` reads them.
    Scales and zero points of 8-bit integers are operands whatever their value is.
    """
    first, steps = len(tape.operands), len(tape.operands) + len(tape.literals)
    readers: dict[int, list[TapeStep]] = {tape.result: []}
    for step in tape.steps:
        for i in step.args:
            readers.setdefault(i, []).append(step)
    bytes = any(d.name in ("int8", "uint8") for d in (*tape.operands, tape.dtype))
    bounded = any(s.name == "convert" and s.dtype.kind in "iu" for s in tape.steps)
    read = [i for i in range(first, steps) if i in readers]
    chosen = [
        i
        for i in read
        if i != tape.result
        and i - first in tape.given
        and _plain(tape.literals[i - first], bytes)
        and all(_takes(step, i, tape.literals[i - first], bounded) for step in readers[i])
    ]
    others = [i for i in read if i not in chosen]
    order = [*range(first), *chosen, *others, *range(steps, steps + len(tape.steps))]
    place = {old: new for new, old in enumerate(order)}
    made = Tape(
        (*tape.operands, *(tape.literals[i - first].dtype for i in chosen)),
        tuple(tape.literals[i - first] for i in others),
        tuple(TapeStep(s.name, tuple(place[i] for i in s.args), s.dtype) for s in tape.steps),
        place[tape.result],
        tape.dtype,
    )
    return made, [tape.literals[i - first] for i in chosen]


def _plain(literal: Array, bytes: bool) -> bool:
    """Tells whether a number is of a type that is computed with, finite, and not a simple one."""
    if not of_numpy(literal.dtype) or literal.dtype.kind not in STEPS or literal.dtype == np.float16:
        return False
    value: float = literal.item()
    return math.isfinite(value) and (value not in SIMPLE or (bytes and literal.dtype.kind == "f"))


def _takes(step: TapeStep, number: int, literal: Array, bounded: bool) -> bool:
    """Tells whether a step has the same code if a literal is an operand."""
    if step.name not in STEPS[literal.dtype.kind] or (step.name in BOUNDS and bounded):
        return False
    if step.name == "divide" and step.args[1] == number:
        return not _exact_inverse(step.args, literal)
    return step.name != "blend" or number not in step.args[2:]


def _exact_inverse(args: Sequence[int], literal: Array) -> bool:
    """Tells whether a divisor is a power of two: LLVM multiplies by its inverse."""
    return abs(math.frexp(float(literal.item()))[0]) == 0.5
