"""Runs fuzzers and reports: `python test/fuzz`, `python test/fuzz texts --seconds 600`, `python test/fuzz graphs --start 17 --count 1`."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from pathlib import Path
from random import SystemRandom

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fuzz.children import FINDINGS, LONG, outcomes
from fuzz.table import TABLE, Fuzzer

LOOPS = r"loop|repeat|while|Loop|Scan"
COUNT = 200
"""Seeds of each fuzzer, where neither their number nor a time is said."""


def main() -> int:
    """Runs what the command line names. Gives 0 if nothing is found."""
    parser = argparse.ArgumentParser(prog="python test/fuzz")
    parser.add_argument("names", nargs="*", metavar="FUZZER", help=f"of {', '.join(TABLE)} (all in turn)")
    parser.add_argument("--start", type=int, default=None, help="the first seed (a fresh one)")
    parser.add_argument("--count", type=int, default=None, help=f"how many seeds of each ({COUNT}, or as many as the time allows)")
    parser.add_argument("--seconds", type=float, default=None, help="stop after this long, all together")
    parser.add_argument("--save", type=Path, default=Path("/tmp/populus-fuzz"), help="where the cases of findings go")
    options = parser.parse_args()
    if strange := [name for name in options.names if name not in TABLE]:
        parser.error(f"no fuzzer '{strange[0]}'; there are {', '.join(TABLE)}")
    chosen = [TABLE[name] for name in options.names] or [f for f in TABLE.values() if f.weight]
    start = SystemRandom().randrange(10**6) * 1000 if options.start is None else options.start
    count = options.count if options.count is not None else COUNT if options.seconds is None else 10**9
    whole = sum(f.weight or 1 for f in chosen)
    found = 0
    for fuzzer in chosen:
        seconds = None if options.seconds is None else options.seconds * (fuzzer.weight or 1) / whole
        found += run(fuzzer, start, count, seconds, options.save)
    return int(found > 0)


def run(fuzzer: Fuzzer, start: int, count: int, seconds: float | None, save: Path) -> int:
    """Runs one fuzzer, and prints each finding with the command that repeats it. Gives the number of findings."""
    begun, counts, reasons = time.monotonic(), Counter[str](), Counter[tuple[str, str]]()
    print(f"{fuzzer.name}: {fuzzer.about}, from seed {start} on", flush=True)
    for seed, (kind, why) in outcomes(range(start, start + count), fuzzer.judge):
        case = fuzzer.kept(seed) if kind in FINDINGS else ""
        if why == LONG and re.search(LOOPS, case if isinstance(case, str) else case.decode("latin1")):
            kind = "long"  # a program may loop for as long as it says
        counts[kind] += 1
        if kind in FINDINGS:
            save.mkdir(parents=True, exist_ok=True)
            path = save / f"{fuzzer.name}-{seed}{fuzzer.suffix}"
            path.write_bytes(case.encode(errors="surrogateescape") if isinstance(case, str) else case)
            print(f"{kind}: seed {seed}: {why}")
            print(f"    {path}; again: python test/fuzz {fuzzer.name} --start {seed} --count 1", flush=True)
        elif kind in ("known", "no oracle", "undecided"):
            reasons[kind, _general(why)] += 1
        if seconds is not None and time.monotonic() - begun > seconds:
            break
        if counts.total() % 1000 == 0:
            print(f"{counts.total()} seeds: {_counted(counts)}", file=sys.stderr, flush=True)
    for (kind, reason), n in reasons.most_common():
        print(f"{n:6} {kind}: {reason}")
    findings = sum(counts[kind] for kind in FINDINGS)
    last = start + counts.total() - 1
    took = time.monotonic() - begun
    print(f"{fuzzer.name}: {findings} findings in seeds {start} to {last}, {took:.0f} s: {_counted(counts)}", flush=True)
    return findings


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in counts.most_common())


def _general(reason: str) -> str:
    """Removes the names of one model from a reason."""
    return re.sub(r"'[^']*'|\([^()]*\)|node with name\S*|v\d+", "..", reason)[:150]


if __name__ == "__main__":
    sys.exit(main())
