"""Mutated tile programs on every engine, with guarded memory: `python test/fuzz/tile_programs.py --start 0 --count 2000`.

A program either is refused in one line, or runs: on each engine with the same result. Each seed takes the tile program of a
random graph, changes its text in one to three places, and runs it in a child process, so that a crash is a finding too.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import populus
from fuzz.graphs import graph
from populus.dialects.poplar.codelets import CODELETS
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text, text_of
from populus.runtime.session import Session

ENGINES = ("strict", "numpy", "native")
TILES = (4, 1, 16)
BASES = 400
"""The number of random graphs whose tile programs are changed."""
SECONDS, BYTES = 20, 4 << 30
"""The most that one program may take."""
ELEMENTS = ("f32", "f16", "i32", "i64", "ui8", "i8", "i1", "f64", "bf16")

Array: TypeAlias = NDArray[Any]
Outcome: TypeAlias = "tuple[str, str]"
"""How a seed ended (`refused`, `runs`, `strict`: refused by it alone, or a finding), and why."""
STRICT_ALONE = "have bytes of a tile in common|unwritten|not written|never written|wrote earlier|both write|nothing wrote|while"
"""The sanitizer's own rules: addresses on tiles, and which elements are written before they are read."""
FINDINGS = ("differs", "disagree", "failed", "lines", "signal")


@lru_cache(None)
def base(number: int) -> tuple[str, object] | None:
    """Gives the tile program of a random graph as text, and the module, which keeps its weights loaded; None if it is refused."""
    try:
        module = populus.compile(graph(number), tiles=TILES[number % len(TILES)]).module("poplar")
        return text_of(module, locations=False), module
    except PopulusError:
        return None


# -- mutations: each takes the text's lines and a generator, and changes the lines


def _number(lines: list[str], rng: random.Random) -> None:
    """Changes one number."""
    at, match = _pick(lines, rng, r"(?<![\w%#.])\d+(?![\w.]*\w*\")")
    n = int(match[0])
    other = rng.choice([n + 1, n - 1, 0, 1, 2 * n, n // 2, rng.randint(0, 70), -n, 2**31, 2**63])
    lines[at] = lines[at][: match.start()] + str(other) + lines[at][match.end() :]


def _size(lines: list[str], rng: random.Random) -> None:
    """Changes a number wherever it stands, so that types stay consistent."""
    _, match = _pick(lines, rng, r"(?<=[<x(\[ ])\d+(?=[x, \])])")
    n = int(match[0])
    other = str(rng.choice([n + 1, max(n - 1, 0), 2 * n, rng.randint(1, 9)]))
    for i, line in enumerate(lines):
        lines[i] = re.sub(rf"(?<=[<x(\[ =]){n}(?=[x, \])]|$)", other, line)


def _swapped(pattern: str) -> Callable[[list[str], random.Random], None]:
    """Makes the mutation that exchanges two matches of a pattern in one line."""

    def change(lines: list[str], rng: random.Random) -> None:
        rows = [i for i, line in enumerate(lines) if len(set(re.findall(pattern, line))) > 1]
        i = rng.choice(rows)
        first, second = sorted(rng.sample(list(re.finditer(pattern, lines[i])), 2), key=lambda m: m.start())
        line = lines[i]
        lines[i] = line[: first.start()] + second[0] + line[first.end() : second.start()] + first[0] + line[second.end() :]

    return change


def _access(lines: list[str], rng: random.Random) -> None:
    """Replaces the access to one dimension."""
    rows = [i for i, line in enumerate(lines) if re.match(r"\s+(in|out|inout) ", line)]
    i = rng.choice(rows)
    head, inside, tail = re.fullmatch(r"(.*?= %[\w.]+\[)(.*?)(\].*)", lines[i]).groups()  # type: ignore[union-attr]
    accesses = inside.split(", ")
    axes = re.findall(r"[a-z]\w*", " ".join(lines[j] for j in rows)) or ["d0"]
    axis = rng.choice(["d0", "d1", "r", "k", "k0", "o0", "g", "m", "n", rng.choice(axes)])
    new = [axis, "*", f"at {axis}", str(rng.randint(0, 3)), f"{axis} * 2", f"{axis} + 1", f"{axis} + {rng.choice(['d0', 'k0', 'o0'])}"]
    accesses[rng.randrange(len(accesses))] = rng.choice(new)
    lines[i] = head + ", ".join(accesses) + tail


def _replaced(pattern: str, others: tuple[str, ...]) -> Callable[[list[str], random.Random], None]:
    """Makes the mutation that replaces a match of a pattern by one of `others`."""

    def change(lines: list[str], rng: random.Random) -> None:
        at, match = _pick(lines, rng, pattern)
        lines[at] = lines[at][: match.start()] + rng.choice(others) + lines[at][match.end() :]

    return change


def _value(lines: list[str], rng: random.Random) -> None:
    """Replaces an operand by another value of the program."""
    values = sorted({v for line in lines for v in re.findall(r"%[\w.]+", line)})
    at, match = _pick(lines, rng, r"%[\w.]+")
    lines[at] = lines[at][: match.start()] + rng.choice(values) + lines[at][match.end() :]


def _line(lines: list[str], rng: random.Random) -> None:
    """Drops, repeats or moves a line."""
    i = rng.randrange(len(lines))
    match rng.randrange(3):
        case 0:
            del lines[i]
        case 1:
            lines.insert(i, lines[i])
        case _:
            lines.insert(rng.randrange(len(lines)), lines.pop(i))


def _pick(lines: list[str], rng: random.Random, pattern: str) -> tuple[int, re.Match[str]]:
    found = [(i, m) for i, line in enumerate(lines) for m in re.finditer(pattern, line)]
    return rng.choice(found)


AXES = r"\b(?:d\d|o\d|k\d|r\d?|ic|oc|[bgmnkc])\b"
MUTATIONS = (
    _number, _number, _size, _size, _size, _access, _access, _value, _line,
    _swapped(AXES), _swapped(r"%[\w.]+"),
    _replaced(r"(?<=@)(?:" + "|".join(sorted(CODELETS)) + r")\b", tuple(sorted(CODELETS))),
    _replaced(r"\b(?:in|out|inout)(?= )", ("in", "out", "inout")),
    _replaced(r"(?<=x)(?:" + "|".join(ELEMENTS) + r")(?=>)", ELEMENTS),
    _replaced(r'"(?:add|mul|min|max|set|average|sum|square_add|uniform|normal)"', ('"add"', '"mul"', '"max"', '"average"', '"no"')),
)  # fmt: skip


def mutated(seed: int) -> str:
    """Gives the changed tile program of a seed."""
    rng = random.Random(seed)
    made = None
    while made is None:
        made = base(rng.randrange(BASES))
    lines = made[0].splitlines()
    for _ in range(rng.choice([1, 1, 2, 3])):
        try:
            rng.choice(MUTATIONS)(lines, rng)
        except (IndexError, ValueError, AttributeError):
            continue  # the text has nothing of that kind
    return "\n".join(lines)


# -- judging


def judged(text: str, seed: int) -> Outcome:
    """Runs a text on each engine and compares. A PopulusError is a refusal; any other exception is a finding."""
    try:
        ctx = context()
        parse_text(ctx, text, "mutated.mlir")
    except PopulusError as error:
        return ("lines", str(error)) if "\n" in str(error) else ("refused", "")
    except Exception:
        return "failed", traceback.format_exc(limit=-4)
    results = {engine: _run(text, engine, seed) for engine in ENGINES}
    for engine, result in results.items():
        if isinstance(result, tuple):
            return result[0], f"{engine}: {result[1]}"
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


def _run(text: str, engine: str, seed: int) -> dict[str, Array] | str | Outcome:
    """Gives the outputs of a program, the line of its refusal, or a finding."""
    rng = np.random.default_rng(seed)
    try:
        session = Session(parse_text(context(), text, "mutated.mlir"), engine)
        arrays = {name: _drawn(rng, shape, dtype) for name, (shape, dtype) in session.inputs.items()}
        return session.run(arrays)
    except PopulusError as error:
        return str(error)
    except MemoryError:
        return "no memory"
    except Exception:
        return "failed", traceback.format_exc(limit=-4)


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


# -- children: a crash of one is a finding of its seed


def outcomes(seeds: range) -> Iterator[tuple[int, Outcome]]:
    """Judges seeds in child processes with limits on time and memory; a child goes on until it dies."""
    at = seeds.start
    while at < seeds.stop:
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            os.close(read)
            _serve(range(at, seeds.stop), write)
        os.close(write)
        with os.fdopen(read, "r", errors="replace") as lines:
            for line in lines:
                kind, _, why = line.rstrip("\n").partition("\t")
                yield at, (kind, why.replace("\\n", "\n"))
                at += 1
        _, status = os.waitpid(child, 0)
        if at < seeds.stop:
            name = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit {os.waitstatus_to_exitcode(status)}"
            yield at, ("signal", "longer than the limit" if name == "SIGALRM" else name)
            at += 1


def _serve(seeds: range, write: int) -> None:
    """Judges seeds and writes a line for each. Never returns."""
    os.environ["POPULUS_GUARD"] = "1"
    limit = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (_mapped() + BYTES, limit))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with os.fdopen(write, "w") as out:
        for seed in seeds:
            signal.alarm(SECONDS)
            kind, why = judged(mutated(seed), seed)
            signal.alarm(0)
            out.write(f"{kind}\t{why[-1500:]}".replace("\n", "\\n") + "\n")
            out.flush()
    os._exit(0)


def _mapped() -> int:
    """Counts the bytes of address space that the process has now."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def main() -> int:
    """Prints what is found. Gives 0 if nothing is."""
    parser = argparse.ArgumentParser(prog="python test/fuzz/tile_programs.py")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=2000, help="how many seeds")
    parser.add_argument("--seconds", type=float, default=None, help="stop after this long")
    parser.add_argument("--save", type=Path, default=Path("/tmp/populus-fuzz"), help="where programs of findings go")
    options = parser.parse_args()
    begun, counts = time.monotonic(), Counter[str]()
    for seed, (kind, why) in outcomes(range(options.start, options.start + options.count)):
        counts[kind] += 1
        if kind in FINDINGS:
            options.save.mkdir(parents=True, exist_ok=True)
            (options.save / f"tiles-{seed}.mlir").write_text(mutated(seed))
            print(f"{kind}: seed {seed}: {why}", flush=True)
        if options.seconds is not None and time.monotonic() - begun > options.seconds:
            break
    print(", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())))
    return 1 if any(counts[kind] for kind in FINDINGS) else 0


if __name__ == "__main__":
    sys.exit(main())
