"""Batches of cases judged in child processes: a crash is a finding of its case."""

from __future__ import annotations

import json
import os
import selectors
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

from triples.cases import Case
from triples.judging import Verdict

BATCH = 24
Judge = Callable[[Sequence[Case]], list[Verdict]]


def verdicts(cases: Sequence[Case], judge: Judge, workers: int) -> Iterator[Verdict]:
    """Judges cases in batches, in `workers` child processes. Batches hold neighbours of the list, which share kernels."""
    batches = [cases[i : i + BATCH] for i in range(0, len(cases), BATCH)]
    yield from _judged([batches[i::workers] for i in range(workers)], judge)


def _judged(shares: Sequence[Sequence[Sequence[Case]]], judge: Judge) -> Iterator[Verdict]:
    """Judges a share of batches in each child; a batch whose child dies is judged again, case by case."""
    chooser = selectors.DefaultSelector()
    for share in shares:
        _start(chooser, list(share), judge)
    while chooser.get_map():
        for key, _ in chooser.select():
            lines, child, waiting = key.data
            line = lines.readline()
            if line:
                yield from (Verdict(Case.read(c), outcome, reason) for c, outcome, reason in json.loads(line))
                waiting.pop(0)
                continue
            chooser.unregister(key.fileobj)
            lines.close()
            _, status = os.waitpid(child, 0)
            if not waiting:
                continue
            first = waiting.pop(0)
            if len(first) == 1:
                why = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit {os.waitstatus_to_exitcode(status)}"
                yield Verdict(first[0], "crashed", why)
            else:
                waiting = [[case] for case in first] + waiting
            if waiting:
                _start(chooser, waiting, judge)


def _start(chooser: selectors.BaseSelector, batches: list[Sequence[Case]], judge: Judge) -> None:
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.close(read)
        with os.fdopen(write, "w") as out:
            _serve(out, batches, judge)
        os._exit(0)
    os.close(write)
    lines = os.fdopen(read, "r")
    chooser.register(lines, selectors.EVENT_READ, (lines, child, list(batches)))


SECONDS = 600
"""The most that a batch may take, of a processor."""


def _serve(out: TextIO, batches: Sequence[Sequence[Case]], judge: Judge) -> None:
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for batch in batches:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        found = judge(batch)
        out.write(json.dumps([(str(v.case), v.outcome, v.reason[:1000]) for v in found]) + "\n")
        out.flush()
