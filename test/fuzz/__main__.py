"""Runs random graphs and reports: `python test/fuzz --start 0 --count 3000`, `python test/fuzz --start 17 --count 1 --all`."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fuzz.graphs import graph
from fuzz.judging import CONFIGURATIONS, Verdict, judge


def main() -> int:
    """0 if nothing was found."""
    parser = argparse.ArgumentParser(prog="python test/fuzz")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=3000, help="how many seeds")
    parser.add_argument("--seconds", type=float, default=None, help="stop after this long")
    parser.add_argument("--all", action="store_true", help="each seed on every engine and number of tiles")
    parser.add_argument("--save", type=Path, default=Path("/tmp/populus-fuzz"), help="where failing models go")
    options = parser.parse_args()
    begun = time.monotonic()
    outcomes: Counter[tuple[str, str]] = Counter()
    reasons: Counter[tuple[str, str]] = Counter()
    bad = 0
    for seed in range(options.start, options.start + options.count):
        if options.seconds is not None and time.monotonic() - begun > options.seconds:
            break
        if seed > options.start and seed % 100 == 0:
            print(f"{seed - options.start} of {options.count} seeds, {bad} findings", file=sys.stderr, flush=True)
        for configuration in CONFIGURATIONS if options.all else (None,):
            verdict = judge(seed, configuration)
            outcomes[verdict.engine, verdict.outcome] += 1
            if verdict.outcome in ("known", "no oracle"):
                reasons[verdict.outcome, general(verdict.reason)] += 1
            if verdict.found:
                bad += 1
                report(verdict, options.save)
    for (outcome, reason), n in sorted(reasons.items(), key=lambda item: -item[1]):
        print(f"{n:6} {outcome}: {reason}")
    for engine in sorted({e for e, _ in outcomes}):
        print(f"{engine:12}", ", ".join(f"{n} {outcome}" for (e, outcome), n in sorted(outcomes.items()) if e == engine))
    total = Counter(outcome for (_, outcome), n in outcomes.items() for _ in range(n))
    print(f"{sum(total.values())} runs in {time.monotonic() - begun:.0f} s:", ", ".join(f"{n} {outcome}" for outcome, n in total.items()))
    return int(bad > 0)


def general(reason: str) -> str:
    """A reason without the names of one model."""
    return re.sub(r"'[^']*'|\([^()]*\)|node with name\S*|v\d+", "..", reason)[:150]


def report(verdict: Verdict, folder: Path) -> None:
    """Says what was found, and keeps the model."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"seed-{verdict.seed}.onnx"
    model = graph(verdict.seed)
    onnx.save(model, path)
    ops = ", ".join(n.op_type for n in model.graph.node if n.op_type != "Constant")
    print(f"seed {verdict.seed} {verdict.engine} {verdict.outcome}: {verdict.reason[:400]}")
    print(f"    opset {model.opset_import[0].version}: {ops}; {path}; again: python test/fuzz --start {verdict.seed} --count 1", flush=True)


if __name__ == "__main__":
    sys.exit(main())
