"""A line for each case of a benchmark that judges, and the status of the command."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from populus.dialects.support.diagnostics import PopulusError


def judged(names: Iterable[str], judge: Callable[[str], tuple[bool, str]]) -> int:
    """Prints what `judge` says of each case and the seconds it took. Gives 1 if one is wrong, or raises PopulusError: an alarm."""
    wrong = False
    for name in names:
        begun = time.perf_counter()
        try:
            right, said = judge(name)
        except PopulusError as error:
            right, said = False, f"alarm: {error}"
        wrong |= not right
        print(f"{name}: {said} ({time.perf_counter() - begun:.0f} s)", flush=True)
    return int(wrong)
