"""Judges triples and reports: `python test/triples`, `python test/triples --sample --turn 5`, `python test/triples CASE`."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from triples.cases import Case, sample, whole
from triples.forms import FORMS
from triples.judging import FINDINGS
from triples.running import verdicts


def main() -> int:
    """Judges what the command line names. Gives 0 if nothing is found."""
    parser = argparse.ArgumentParser(prog="python test/triples")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="producer:layout:consumer:size:values:readers; by default the whole list")
    parser.add_argument("--form", choices=(*FORMS, "all"), default=None, help="how cases stand in a program")
    parser.add_argument("--sample", action="store_true", help="the sample that CI runs")
    parser.add_argument("--turn", type=int, default=0, help="another turn has other sizes, values, readers and pairs")
    parser.add_argument("--from", type=int, default=0, dest="begin", help="the first case of the list")
    parser.add_argument("--step", type=int, default=1, help="every n-th case of the list")
    parser.add_argument("--only", default="", help="a regular expression of cases")
    parser.add_argument("--seconds", type=float, default=None, help="stop after this long")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    if options.cases:
        try:
            cases = [Case.read(text) for text in options.cases]
        except (TypeError, KeyError) as error:
            parser.error(f"a case is producer:layout:consumer:size:values:readers ({error})")
    else:
        listed = sample(options.turn) if options.sample else whole(options.turn)
        cases = [case for i, case in enumerate(listed) if i >= options.begin and (i - options.begin) % options.step == 0]
        cases = [case for case in cases if re.search(options.only, str(case))]
    print(f"{len(cases)} cases of turn {options.turn}", flush=True)
    names = [options.form or "plain"] if options.form != "all" and (options.form or options.cases) else list(FORMS)
    end = None if options.seconds is None else time.monotonic() + options.seconds
    return int(sum(run(name, FORMS[name].share(cases) if len(names) > 1 else cases, options.workers, end) for name in names) > 0)


def run(form: str, cases: Sequence[Case], workers: int, end: float | None) -> int:
    """Judges cases in one form, and prints each finding with the command that repeats it. Gives the number of findings."""
    begun, told, counts, reasons = time.monotonic(), time.monotonic(), Counter[str](), Counter[str]()
    for verdict in verdicts(cases, FORMS[form].judge, workers):
        counts[verdict.outcome] += 1
        if verdict.outcome in FINDINGS:
            print(f"{verdict.outcome}: {verdict.reason}\n    make triples FORM={form} CASE={verdict.case}", flush=True)
        elif verdict.outcome != "agrees":
            reasons[f"{verdict.outcome}: {_general(verdict.reason)}"] += 1
        if time.monotonic() - told > 60:
            told = time.monotonic()
            print(f"{form}: {counts.total()} of {len(cases)}, {told - begun:.0f} s: {_counted(counts)}", file=sys.stderr, flush=True)
        if end is not None and time.monotonic() > end:
            print(f"{form}: out of time after {counts.total()} of {len(cases)}")
            break
    for reason, n in reasons.most_common():
        print(f"{n:6} {reason}")
    findings = sum(counts[kind] for kind in FINDINGS)
    took = time.monotonic() - begun
    print(f"{form}: {counts.total()} cases, {findings} findings, {took:.0f} s: {_counted(counts)}", flush=True)
    return findings


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in counts.most_common())


def _general(reason: str) -> str:
    """Removes the names and numbers of one model from a reason."""
    return re.sub(r"'[^']*'|\([^()]*\)|name:\S*|k?\d+_?\w*", "..", reason)[:150]


if __name__ == "__main__":
    sys.exit(main())
