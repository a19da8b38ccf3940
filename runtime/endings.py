"""Formulas that native launches compute on sums of floats where they store them: which these are, before there is any memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from populus.dialects.expr import Expr
from populus.runtime.tape import Tape, tape_of

TYPES = {"float32": "float", "float64": "double"}
PLAIN = {"add": "fadd", "divide": "fdiv", "mul": "fmul", "sub": "fsub"}
EXTREMES = {"max": "ogt", "min": "olt"}
HALVES = frozenset(("float16", "bfloat16"))  # computed in f32
MOST = 4  # operands beside the sums


def ending_tape(expr: Expr, inputs: Sequence[np.dtype[Any]], out: np.dtype[Any]) -> Tape | None:
    """Returns the tape of a formula whose steps launches have code for; None if they have not, or without a step.

    Roundings of f32 to halves are such steps. `inputs`: the type of each operand, the sums among them; `out`: of the result.
    """
    if out.name not in TYPES or {*inputs} != {out}:
        return None
    tape = tape_of(expr, tuple(inputs))
    if not tape.steps or tape.result < len(tape.operands) + len(tape.literals):
        return None
    forms = (*PLAIN, *EXTREMES, *(["tanh"] if out == np.float32 else []))
    known = all(
        s.dtype == out if s.name in forms else s.name == "convert" and (s.dtype == out or s.dtype.name in HALVES) for s in tape.steps
    )
    finite = all(x.dtype == out and not np.isnan(x) for x in tape.literals)
    return tape if known and finite else None
