"""make mutants: plants faults in tile programs, one at a time, and tells which are refused or found before a run goes wrong.

    python -m benchmarks.tile_mutants                 # 700 faults
    python -m benchmarks.tile_mutants --count 50 --seed 7
    python -m benchmarks.tile_mutants --only 123      # one again, with what it is

A changed program is a *fault* if it leaves memory, or if its results depend on what the machine leaves open: on the first content of
memory, the order of tiles, when a tile sees what another writes, whether arguments are copied, the engine. `TileMachine` draws these. A
change whose results do not depend on them makes another valid program; only a comparison with the program that was meant finds it.
"""

from __future__ import annotations

import argparse
import itertools
import random
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

import populus
from benchmarks.family_faults import NothingToChange, ops
from benchmarks.models import LIGHT, Graph, lstm, randomised, transformer
from benchmarks.spread import check_spread
from benchmarks.tile_faults import KINDS
from benchmarks.tile_machine import TileMachine
from populus.dialects.poplar import StorageOp
from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.session import Session, graph_of
from populus.training.session import TrainingSession

Array: TypeAlias = NDArray[Any]
Results: TypeAlias = "dict[str, Array] | str"

COUNT = 700
TRIES = 3000  # draws of a program and a place, until one has what a kind changes
SECONDS = 120  # for one run of a changed program, whose loops may not end
TOLERANCE = {2: 2e-2, 4: 1e-4, 8: 1e-6}  # by bytes of a float: between engines, which sum in other orders


# -- programs


def _layers(count: int, causal: bool = False) -> Any:
    return transformer(layers=count, batch=1, sequence=8, hidden=32, heads=4, feed_forward=64, causal=causal)


def _images() -> Any:
    g = Graph()
    y = "x"
    for inputs, outputs in ((3, 8), (8, 12)):
        y = g.op("Relu", g.op("Conv", y, g.weight(outputs, inputs, 3, 3, scale=0.2), g.weight(outputs), pads=[1, 1, 1, 1]))
        y = g.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    return g.model("images", g.linear(g.op("Flatten", y), 48, 5), [4, 5], inputs=[4, 3, 8, 8])


def _rows() -> Any:
    g = Graph()
    return g.model("rows", g.linear(g.op("Relu", g.linear("x", 12, 10)), 10, 4), [8, 4], inputs=[8, 12])


def _trained(model: Any, tiles: int, **options: Any) -> ModuleOp:
    session = TrainingSession(model, loss="cross_entropy", tiles=tiles, engine="numpy", **options)
    return session.program.module("poplar")


def _compiled(model: Any, tiles: int, **options: Any) -> ModuleOp:
    return populus.compile(model, tiles=tiles, engine="numpy", **options).module("poplar")


PROGRAMS: dict[str, tuple[int, Callable[[], ModuleOp]]] = {
    "bert": (12, lambda: _compiled(_layers(1), 16)),
    "gpt": (12, lambda: _compiled(_layers(2, causal=True), 8)),
    "loop": (12, lambda: _compiled(lstm(sequence=40, inputs=8, hidden=8), 4)),
    "lstm": (8, lambda: _compiled(lstm(sequence=5, inputs=8, hidden=8), 4)),
    "images": (10, lambda: _compiled(_images(), 16)),
    "training rows": (12, lambda: _trained(_rows(), 8, optimizer="adam")),
    "training images": (12, lambda: _trained(_images(), 8, optimizer="sgd")),
    "squeezenet": (1, lambda: _compiled(randomised(LIGHT / "light_squeezenet.onnx", logits=True), 4)),
    "shufflenet": (1, lambda: _compiled(randomised(LIGHT / "light_shufflenet.onnx", logits=True), 4)),
}
"""By name: how often a program is drawn, and its tile program."""


@dataclass(frozen=True)
class Base:
    """A right program: its module, inputs and results."""

    module: ModuleOp
    inputs: Mapping[str, Array]
    results: dict[str, Array]


@lru_cache(None)
def base(name: str) -> Base:
    """Compiles a program, and runs it on drawn inputs, whose results are not saturated."""
    module = PROGRAMS[name][1]()
    session = Session(module, "strict")
    rng = np.random.default_rng(1)
    inputs = {n: _drawn(rng, shape, dtype) for n, (shape, dtype) in session.inputs.items()}
    results = session.run(inputs)
    check_spread(results, name)
    return Base(module, inputs, results)


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if dtype.kind in "iu":
        return rng.integers(0, 4, shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(bool) if dtype.kind == "b" else (0.5 + rng.random(shape)).astype(dtype)


# -- one fault


@dataclass(frozen=True)
class Mutant:
    """A changed program: `kind` and `what` say how, `base` of which."""

    base: str
    kind: str
    what: str
    module: ModuleOp


def mutant(seed: int) -> Mutant:
    """Draws the changed program of a seed."""
    rng = random.Random(seed)
    names = [name for name, (weight, _) in PROGRAMS.items() for _ in range(weight)]
    kind = list(KINDS)[seed % len(KINDS)]
    for attempt in itertools.count():
        assert attempt < TRIES, f"no program has anything for '{kind}'"
        name = rng.choice(names)
        module = base(name).module.clone()
        try:
            return Mutant(name, kind, KINDS[kind](graph_of(module), rng), module)
        except NothingToChange:
            continue
    raise AssertionError(seed)


@dataclass(frozen=True)
class Verdict:
    """The end of a changed program.

    `by`: `verifier`, `strict`, or nothing. `effect`: `fault`, `other program` or `none`; of what the verifier refuses, `unknown`.
    """

    by: str
    effect: str
    why: str


def judged(m: Mutant) -> Verdict:
    """Gives what becomes of a changed program."""
    try:
        m.module.verify()
    except (VerifyException, PopulusError) as error:
        return Verdict("verifier", "unknown", _line(error))
    right = base(m.base)
    graph = graph_of(m.module)

    def ran(load: Callable[[], Any]) -> Results:
        return _run(load, right.inputs)

    strict = ran(lambda: Session(m.module, "strict"))
    before = ran(lambda: TileMachine(graph, 1, shared=False))
    at_once = ran(lambda: TileMachine(graph, 2, shared=True))
    whole = ran(lambda: Session(_unplaced(m.module), "numpy"))
    seen = before if isinstance(strict, str) else strict
    depends = isinstance(seen, str) or not (
        _agree(seen, before, exactly=True) and _agree(seen, at_once, exactly=True) and _agree(seen, whole, exactly=False)
    )
    if depends and strict == ENDLESS == before == at_once:
        depends = False
    changed = isinstance(seen, str) or not _agree(seen, right.results, exactly=False)
    effect = "fault" if depends else "other program" if changed else "none"
    return Verdict("strict" if isinstance(strict, str) and strict != ENDLESS else "", effect, strict if isinstance(strict, str) else "")


ENDLESS = "does not end"


def _unplaced(module: ModuleOp) -> ModuleOp:
    """Copies a program without addresses, which say whether variables share memory and not what they are."""
    copy = module.clone()
    for op in ops(graph_of(copy), StorageOp):
        op.properties.pop("address", None)
    return copy


def _run(load: Callable[[], Any], inputs: Mapping[str, Array]) -> Results:
    """Gives the results of a program, or the line of its refusal."""
    try:
        with _limited(), np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = load()
            return program.run({name: array for name, array in inputs.items() if name in program.inputs})
    except TimeoutError:
        return ENDLESS
    except (PopulusError, VerifyException) as error:
        return _line(error)
    except Exception as error:
        return f"{type(error).__name__}: {_line(error)}"


@contextmanager
def _limited() -> Generator[None, None, None]:
    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _agree(a: Results, b: Results, exactly: bool) -> bool:
    """Tells whether two runs have the same results: bit for bit, or within rounding."""
    if isinstance(a, str) or isinstance(b, str) or a.keys() != b.keys():
        return False
    return all(_equal(x, b[name], exactly) for name, x in a.items())


def _equal(x: Array, y: Array, exactly: bool) -> bool:
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    if exactly or x.dtype.kind in "iub":
        return np.array_equal(x, y, equal_nan=x.dtype.kind not in "iub")
    u, v = x.astype(np.float64), y.astype(np.float64)
    most = max(float(np.abs(v[np.isfinite(v)]).max(initial=0)), 1e-30)
    return bool(np.isclose(u, v, rtol=0, atol=TOLERANCE[x.itemsize] * most, equal_nan=True).all())


# -- the score


COLUMNS = (
    ("verifier", None),
    *(("strict", "fault"), ("strict", "other program"), ("strict", "none")),
    *(("", "fault"), ("", "other program"), ("", "none")),
)
"""Of the table: caught by, and the effect."""


@dataclass(frozen=True)
class Score:
    """Counts of changed programs by (kind, caught by, effect)."""

    counts: Counter[tuple[str, str, str]]

    def of(self, by: str | None = None, effect: str | None = None, kind: str | None = None) -> int:
        """Counts those with these properties."""
        return sum(n for (k, b, e), n in self.counts.items() if by in (None, b) and effect in (None, e) and kind in (None, k))

    @property
    def missed(self) -> int:
        """The number of faults that neither the verifier nor `strict` finds."""
        return self.of("", "fault")

    @property
    def faults(self) -> int:
        """The number of faults: those found, less the refused programs without an effect, and those missed."""
        return self.of("verifier") + self.of("strict", "fault") + self.missed

    def lines(self) -> list[str]:
        """Writes the table, a row for each kind."""
        rows = ["| kind | planted | verifier | strict | strict, other program | strict, no effect | missed | other program | no effect |"]
        rows.append(f"|{'---|' * 9}")
        for kind in KINDS:
            if planted := self.of(kind=kind):
                rows.append(f"| {kind} | {planted} | {' | '.join(str(self.of(by, effect, kind) or '') for by, effect in COLUMNS)} |")
        rows.append(f"| all | {self.of()} | {' | '.join(str(self.of(by, effect)) for by, effect in COLUMNS)} |")
        return rows


def scored(seeds: Sequence[int], tell: Callable[[int, Mutant, Verdict], None] = lambda *_: None) -> Score:
    """Counts what becomes of the changed programs of some seeds."""
    counts = Counter[tuple[str, str, str]]()
    for seed in seeds:
        m = mutant(seed)
        verdict = judged(m)
        tell(seed, m, verdict)
        counts[m.kind, verdict.by, verdict.effect] += 1
    return Score(counts)


def main() -> int:
    """Prints the faults that are missed, then the table and the score. Gives 0 if at least 98 of 100 faults are found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tile_mutants")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--only", type=int, default=None, help="judge one, and print it")
    parser.add_argument("--all", action="store_true", help="print each")
    options = parser.parse_args()
    seeds = [options.only] if options.only is not None else range(options.seed, options.seed + options.count)

    def tell(seed: int, m: Mutant, v: Verdict) -> None:
        if options.all or options.only is not None or (not v.by and v.effect == "fault"):
            print(f"{seed}: {m.base}: {m.kind}: {m.what}: {v.by or 'not found'}, {v.effect}; {v.why}", flush=True)

    score = scored(seeds, tell)
    print("\n".join(score.lines()))
    found = score.faults - score.missed
    share = 100 * found / max(score.faults, 1)
    print(f"{found} of {score.faults} faults are found ({share:.1f} %); {score.of('', 'other program')} changes make another program")
    return int(found < 0.98 * score.faults)


if __name__ == "__main__":
    sys.exit(main())
