"""Seeds judged in child processes with guarded memory and limits on time and memory: a crash is a finding of its seed."""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, TypeAlias

from populus.tools.command import line_of

SECONDS, BYTES = 20, 2 << 30
"""The most that one seed may take: seconds of a processor, bytes of address space."""
FINDINGS = ("alarm", "differs", "disagree", "failed", "lines", "memory", "signal", "wrong", "wrongly refused")
LONG = "longer than the limit"

ORACLE = "oracle"
_PARENT: list[TextIO] = []
"""In a child, the pipe to its parent."""

Outcome: TypeAlias = "tuple[str, str]"
"""How a seed ended (one of FINDINGS, or another word), and why."""


def outcomes(seeds: range, judge: Callable[[int], Outcome]) -> Iterator[tuple[int, Outcome]]:
    """Judges seeds in child processes; a child goes on until it dies."""
    at = seeds.start
    while at < seeds.stop:
        read, write = os.pipe()
        asked = False  # the child is inside of somebody else's code
        if (child := os.fork()) == 0:
            os.close(read)
            _serve(range(at, seeds.stop), judge, write)
        os.close(write)
        try:
            with os.fdopen(read, "r", errors="replace") as lines:
                for line in lines:
                    kind, _, why = line.rstrip("\n").partition("\t")
                    if kind == ORACLE:
                        asked = why == "asked"
                        continue
                    yield at, (kind, why.replace("\\n", "\n"))
                    at += 1
        except GeneratorExit:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
        _, status = os.waitpid(child, 0)
        if at < seeds.stop:
            name = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit {os.waitstatus_to_exitcode(status)}"
            why = LONG if name in ("SIGALRM", "SIGPROF") else name
            yield at, (("no oracle", f"it ends by {why}") if asked else ("signal", why))
            at += 1


def _serve(seeds: range, judge: Callable[[int], Outcome], write: int) -> None:
    """Judges seeds and writes a line for each. Never returns."""
    os.environ["POPULUS_GUARD"] = os.environ["POPULUS_CHECK"] = "1"
    os.environ["POPULUS_LIMITS"] = f"bytes={BYTES // 8 >> 20}M"  # a program that says that it is large is refused
    faulthandler.disable()  # the parent reports a signal
    limit = resource.getrlimit(resource.RLIMIT_AS)[1]
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    with os.fdopen(write, "w", errors="replace") as out:
        _PARENT[:] = [out]
        for seed in seeds:
            resource.setrlimit(resource.RLIMIT_AS, (mapped() + BYTES, limit))
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            signal.alarm(20 * SECONDS)  # one that waits for ever; a busy machine may take long for 20 seconds of a processor
            kind, why = contained(judge, seed)
            signal.alarm(0)
            signal.setitimer(signal.ITIMER_PROF, 0)
            out.write(f"{kind}\t{why[-1500:]}".replace("\n", "\\n") + "\n")
            out.flush()
    os._exit(0)


@contextmanager
def asking() -> Generator[None, None, None]:
    """Tells the parent that somebody else's code runs inside: a crash there is no finding."""
    for said in _PARENT:
        print(f"{ORACLE}\tasked", file=said, flush=True)
    try:
        yield
    finally:
        for said in _PARENT:
            print(f"{ORACLE}\tanswered", file=said, flush=True)


def contained(judge: Callable[[int], Outcome], seed: int) -> Outcome:
    """Calls a judge of a seed. A refusal that a command prints in one line is `refused`, with its line; all else is a finding."""
    try:
        return judge(seed)
    except Exception as error:
        line = line_of("populus", error)
        if "internal error" not in line:
            return "memory" if "out of memory" in line else "refused", line
        return "failed", traceback.format_exc(limit=-4)


def mapped() -> int:
    """Counts the bytes of address space that the process has now."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
