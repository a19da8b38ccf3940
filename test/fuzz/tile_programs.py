"""Mutated tile programs on every engine, with guarded memory: `make fuzz FUZZERS=tiles`.

A program either is refused in one line, or runs: on each engine with the same result. Each seed takes the tile program of a
random graph, changes its text in one to three places, and runs it in a child process, so that a crash is a finding too.
"""

from __future__ import annotations

import random
import re
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

import populus
from fuzz.children import Outcome
from fuzz.graphs import graph
from fuzz.mutations import ELEMENTS, access, changed, line, number, operand, replaced, size, swapped
from populus.dialects.poplar.codelets import CODELETS
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text, text_of
from populus.runtime.session import Session

ENGINES = ("strict", "numpy", "native")
TILES = (4, 1, 16)
BASES = 400
"""The number of random graphs whose tile programs are changed."""
LENGTH = 2000
"""Longer texts are drawn less often, so that as much time goes to each: a case costs what its text takes to read."""

Array: TypeAlias = NDArray[Any]
STRICT_ALONE = (
    r"tile \d+ holds \d+ bytes|have bytes of a tile in common"
    "|unwritten|not written|never written|wrote earlier|both write|nothing wrote|while"
)
"""The sanitizer's own rules: addresses and memory of tiles, and which elements are written before they are read."""


@lru_cache(None)
def base(number: int) -> tuple[str, object] | None:
    """Gives the tile program of a random graph as text, and the module, which keeps its weights loaded; None if it is refused."""
    try:
        module = populus.compile(graph(number), tiles=TILES[number % len(TILES)]).module("poplar")
        return text_of(module, locations=False), module
    except PopulusError:
        return None


AXES = r"\b(?:d\d|o\d|k\d|r\d?|ic|oc|[bgmnkc])\b"
MUTATIONS = (
    number, number, size, size, size, access, access, operand, line,
    swapped(AXES), swapped(r"%[\w.]+"),
    replaced(r"(?<=@)(?:" + "|".join(sorted(CODELETS)) + r")\b", tuple(sorted(CODELETS))),
    replaced(r"\b(?:in|out|inout)(?= )", ("in", "out", "inout")),
    replaced(r"(?<=x)(?:" + "|".join(ELEMENTS) + r")(?=>)", ELEMENTS),
    replaced(r'"(?:add|mul|min|max|set|average|sum|square_add|uniform|normal)"', ('"add"', '"mul"', '"max"', '"average"', '"no"')),
)  # fmt: skip


def judge(seed: int) -> Outcome:
    """Judges the program of a seed."""
    return judged(mutated(seed), seed)


def mutated(seed: int) -> str:
    """Gives the changed tile program of a seed."""
    rng = random.Random(seed)
    made = None
    while made is None or rng.random() * len(made[0]) > LENGTH:
        made = base(rng.randrange(BASES))
    lines = made[0].splitlines()
    return changed(lines, rng, MUTATIONS)


# -- judging


def judged(text: str, seed: int) -> Outcome:
    """Runs a text on each engine and compares. Raises PopulusError for what is no program."""
    module = parse_text(context(), text, "mutated.mlir")
    results = {engine: _run(module.clone(), engine, seed) for engine in ENGINES}
    refusals = {e: r for e, r in results.items() if isinstance(r, str)}
    if refusals:
        if any("\n" in r for r in refusals.values()):
            return "lines", str(refusals)
        if set(refusals) == {"strict"} and re.search(STRICT_ALONE, refusals["strict"]):
            return "strict", ""
        if "strict" not in refusals and all("is not loaded" in r for r in refusals.values()):
            return "refused", ""  # strict reads a constant when a vertex does, the others when they load the program
        if len(refusals) < len(results) or len({_plain(r) for e, r in refusals.items() if e != "strict"}) > 1:
            return "disagree", str({e: r if isinstance(r, str) else "runs" for e, r in results.items()})
        return "refused", ""
    strict, *others = [r for r in results.values() if isinstance(r, dict)]
    for other in others:
        if why := _difference(strict, other):
            return "differs", why
    return "runs", ""


def _run(module: ModuleOp, engine: str, seed: int) -> dict[str, Array] | str:
    """Gives the outputs of a program, or the line of its refusal."""
    rng = np.random.default_rng(seed)
    try:
        session = Session(module, engine)
        arrays = {name: _drawn(rng, shape, dtype) for name, (shape, dtype) in session.inputs.items()}
        return session.run(arrays)
    except PopulusError as error:
        return str(error)


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if dtype.kind in "iu":
        return rng.integers(0, 4, shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.standard_normal(shape).astype(dtype)


def _plain(line: str) -> str:
    return re.sub(r"^.*?: ", "", line)


def _difference(a: dict[str, Array], b: dict[str, Array]) -> str:
    """Describes the first output that differs by more than rounding; empty if none does."""
    for name, x in a.items():
        y = b[name]
        if x.shape != y.shape or x.dtype != y.dtype:
            return f"{name}: {x.dtype}{x.shape} and {y.dtype}{y.shape}"
        if x.dtype.kind in "iub":
            continue  # integers of floats that rounding moved across a step: the levels' fuzzer compares those
        u, v = x.astype(np.float64), y.astype(np.float64)
        if not (np.isfinite(u).all() and np.isfinite(v).all()):
            continue  # what overflows depends on the order of a sum
        most = max(float(np.abs(u).max(initial=0)), 1.0)
        if float(np.abs(u - v).max(initial=0)) > (2e-2 if x.itemsize < 4 else 1e-3) * most:
            return f"{name}: {float(np.abs(u - v).max()):.3g} of {most:.3g}"
    return ""
