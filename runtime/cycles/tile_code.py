"""Cycles of codelets written in Python: the author's formula, else an estimate from the body.

The estimate counts one instruction per load, store and simple operation, more for divisions and functions, and two
per turn of a loop. The workers of a tile share the outermost lanes; one worker runs a codelet without lanes. Loops
whose end the data decide are taken to go once through the longest vector that they read, along its last dimension: the
loops around share its elements.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from populus.dialects.poplar.tile_functions import FLOATS
from populus.dialects.poplar.tile_program import (
    Apply,
    Assign,
    Call,
    Exit,
    For,
    If,
    Load,
    Name,
    Number,
    Scratch,
    Size,
    Statement,
    Store,
    TileCode,
    Value,
    While,
    assigned,
    from_data,
    own_values,
    parts,
    statements,
)

START = 20  # cycles to begin and to end a vertex
TURN = 2
COSTS = dict.fromkeys(FLOATS, 12) | {"div": 4, "floordiv": 8, "mod": 8, "pow": 30, "sqrt": 5}


def tile_code_cycles(code: TileCode, sizes: Mapping[str, Any], scalars: Mapping[str, int], workers: int) -> Any:
    """Estimates the tile cycles of a vertex from the sizes of its box."""
    if code.cycles is not None:
        return code.cycles(*(sizes[name] for name in inspect.signature(code.cycles).parameters))
    return workers * (START + _Count(code, sizes, scalars, workers).block(code.body))


def instructions(code: TileCode, sizes: Mapping[str, int], scalars: Mapping[str, int]) -> int:
    """Counts the instructions of a vertex from its body, whatever the author states."""
    return int(_Count(code, sizes, scalars, 1).block(code.body))


def flops(code: TileCode, sizes: Mapping[str, int], scalars: Mapping[str, int]) -> int:
    """Counts the floating-point operations of the whole family."""
    return int(_Flops(code, sizes, scalars, 1).block(code.body))


class _Count:
    """Instruction count of statements. Sizes may be arrays of several sizes."""

    def __init__(self, code: TileCode, sizes: Mapping[str, Any], scalars: Mapping[str, int], workers: int):
        self.code, self.sizes, self.workers = code, sizes, workers
        self.known: dict[str, Any] = dict(scalars)
        self.shared = False
        self.around: Any = 1  # turns of the loops around
        self.variables = assigned(code.body)
        self.scratch = {s.vector: s.shape for s in code.scratch()}

    def block(self, body: Sequence[Statement]) -> Any:
        """Counts a sequence of statements."""
        return sum((self.statement(s) for s in body), 0)

    def statement(self, s: Statement) -> Any:
        """Counts one statement; a branch counts as its longer side."""
        match s:
            case Assign():
                return self.value(s.value)
            case Store():
                return self.store() + sum(self.value(v) for v in (*s.index, s.value))
            case If():
                return self.value(s.condition) + self.turn() + np.maximum(self.block(s.then), self.block(s.otherwise))
            case For():
                return self.loop(s)
            case While():
                return self.repeated(self.turns(s), (s.condition,), s.body)
            case Scratch():
                return self.store() * prod(self.integer(n) for n in s.shape)
            case Exit():
                return self.turn()

    def loop(self, s: For) -> Any:
        """Counts a loop. The workers share the outermost loop over lanes."""
        if from_data(s, self.variables):
            return self.repeated(self.turns(s), (), s.body)
        start, stop = self.integer(s.start), self.integer(s.stop)
        turns = np.maximum(0, -((start - stop) // s.step))
        first = s.var in self.code.loops and not self.shared
        if first:
            self.shared = True
            turns = -(-turns // self.workers)
        self.known[s.var] = (start + stop) // 2  # bounds that depend on it take its middle value
        total = self.repeated(turns, (), s.body)
        if first:
            self.shared = False
        return total

    def turns(self, s: For | While) -> Any:
        """Estimates the turns of a loop whose end the data decide."""
        loads = {p.vector for inner in (s, *statements(s.body)) for p in own_values(inner) if isinstance(p, Load)}
        found: Any = 1
        for v in sorted(loads):
            last = self.integer(self.scratch[v][-1]) if v in self.scratch else self.sizes[self.code.axes[v][-1]]
            found = np.maximum(found, last)
        return np.maximum(1, found // np.maximum(1, self.around))

    def repeated(self, turns: Any, conditions: Sequence[Value], body: Sequence[Statement]) -> Any:
        """Counts turns of a body."""
        around, self.around = self.around, self.around * turns
        total = turns * (self.block(body) + self.turn() + sum(self.value(c) for c in conditions))
        self.around = around
        return total

    def integer(self, value: Value) -> Any:
        """Evaluates an integer expression of sizes, scalars and loop variables."""
        match value:
            case Number():
                return int(value.value)
            case Name():
                return self.known.get(value.name, 1)
            case Size():
                if value.vector in self.scratch:
                    return self.integer(self.scratch[value.vector][value.dim])
                return self.sizes[self.code.axes[value.vector][value.dim]]
            case Apply():
                a, *rest = (self.integer(v) for v in value.args)
                return _INTEGERS[value.function](a, *rest) if value.function in _INTEGERS else 1
            case Load() | Call():
                return 1

    def value(self, value: Value) -> Any:
        """Counts the parts of an expression."""
        return sum(self.block(p.body) if isinstance(p, Call) else self.part(p) for p in parts(value))

    def part(self, p: Value) -> int:
        """Counts one operation or load."""
        return COSTS.get(p.function, 1) if isinstance(p, Apply) else int(isinstance(p, Load))

    def store(self) -> int:
        """Counts a store."""
        return 1

    def turn(self) -> int:
        """Counts the overhead of a branch or of one turn of a loop."""
        return TURN


class _Flops(_Count):
    """Count of floating-point operations."""

    def part(self, p: Value) -> int:
        return int(isinstance(p, Apply) and p.kind == "float" and p.function not in ("select", "float"))

    def store(self) -> int:
        return 0

    def turn(self) -> int:
        return 0


_INTEGERS: dict[str, Any] = {
    "abs": np.abs,
    "add": lambda a, b: a + b,
    "floordiv": lambda a, b: a // b,
    "int": lambda a: a,
    "max": np.maximum,
    "min": np.minimum,
    "mod": lambda a, b: a % b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "sub": lambda a, b: a - b,
}
