"""Mutated texts of every level: `make fuzz FUZZERS=texts`.

A text either is refused in one line, or it is a program: printed and read again it is the same, and every level below computes
what it computes.
"""

from __future__ import annotations

import random
import re
from functools import lru_cache
from pathlib import Path

import numpy as np
from xdsl.dialects.builtin import ModuleOp

import populus
from fuzz import tile_programs
from fuzz.children import Outcome
from fuzz.graphs import graph
from fuzz.mutations import ELEMENTS, attribute, changed, line, number, op, operand, replaced, shape, size, swapped, token
from populus.compare.levels import compare_levels
from populus.dialects.data import ConstantOp
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text, text_of
from populus.program.source import level_of

FILES = sorted((Path(__file__).parents[1] / "filecheck").rglob("*.mlir"))
GRAPHS, LEVELS, TILES = 200, ("onnx", "popart", "popops"), (4, 1, 16)
SHARE = 0.5
"""The share of texts that are parts of the FileCheck tests, which have every op; the others are levels of random graphs."""
MUTATIONS = (
    number, number, size, size, operand, operand, line, op, op, attribute, attribute, attribute, token, token, shape, shape,
    swapped(r"%[\w.]+"), swapped(r"tensor<[^<>]*>"), replaced(r"(?<=[x<])(?:" + "|".join(ELEMENTS) + r")(?=>)", ELEMENTS),
)  # fmt: skip
RANDOM = r"\w*\.(?:random|dropout|shuffle)|uniform|normal|bernoulli|multinomial"
"""Ops whose numbers a mutation may make every level draw in an order of its own."""


@lru_cache(None)
def parts() -> list[str]:
    """Lists the parts of the FileCheck tests' files that are texts of IR, without comments."""
    texts = [part for path in FILES for part in path.read_text().split("// -----")]
    plain = ["\n".join(re.sub(r"\s*//.*", "", row) for row in text.splitlines()) for text in texts]
    return ["\n".join(row for row in text.splitlines() if row.strip()) for text in plain if "%" in text]


@lru_cache(None)
def base(number: int, level: str) -> tuple[str, object] | None:
    """Gives a level of a random graph as text, and the module, which keeps its weights loaded; None if it is refused."""
    try:
        module = populus.compile(graph(number), tiles=4, level=level).module(level)
        return text_of(module, locations=False), module
    except PopulusError:
        return None


def mutated(seed: int) -> str:
    """Gives the changed text of a seed."""
    rng = random.Random(f"text {seed}")
    text = None
    while text is None:
        if rng.random() < SHARE:
            text = rng.choice(parts())
        elif (made := base(rng.randrange(GRAPHS), rng.choice(LEVELS))) is not None:
            text = made[0]
    return changed(text.splitlines(), rng, MUTATIONS)


def _finite(module: ModuleOp) -> bool:
    """Tells whether the constants are numbers: a lowering multiplies by the zeros of a border, and no formula does."""
    return all(op.array().dtype.kind != "f" or np.isfinite(op.array()).all() for op in module.walk() if isinstance(op, ConstantOp))


def judge(seed: int) -> Outcome:
    """Judges the text of a seed."""
    return judged(mutated(seed), seed)


def judged(text: str, seed: int) -> Outcome:
    """Reads a text, prints it and reads it again, and compares its levels. Raises PopulusError for what is no program."""
    module = parse_text(context(), text, "mutated.mlir")
    again = text_of(module, locations=False)
    if (twice := text_of(parse_text(context(), again, "printed.mlir"), locations=False)) != again:
        at = next(i for i, (a, b) in enumerate(zip(f"{again}\0", f"{twice}\0")) if a != b)
        return "differs", f"printed: {again[max(at - 80, 0) : at + 40]!r}, read and printed: {twice[max(at - 80, 0) : at + 40]!r}"
    if level_of(module) == "poplar":
        return tile_programs.judged(text, seed)
    program = populus.compile(module, tiles=TILES[seed % len(TILES)])
    inputs = program.signature.random(seed)
    wrong = [str(c) for c in compare_levels(program, inputs) if c.first is not None]
    if wrong and not re.search(RANDOM, text) and _finite(module):
        return "alarm", "; ".join(wrong)
    return "runs", ""
