"""make mutants: plants mistakes in the sources, one at a time, and tells which are caught, and by what.

    python -m benchmarks.mutants            # all
    python -m benchmarks.mutants liveness   # those of files with this word in their path
    python -m benchmarks.mutants --narrow   # only by the checks that they name

The mistakes are those of `source_mistakes.py`. Each is planted in a copy of the sources. The checks that it names run first, then
wider ones. Every check has to pass without a mistake.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.source_mistakes import GRAPHS, MISTAKES, RANDOM, Mistake

ROOT = Path(__file__).parent.parent
SECONDS = 600  # for one check of one mistake; a check that does not end has caught it
SEEDS = "30"  # of a fuzzer
WIDER = (RANDOM, GRAPHS, "test_levels.py")
LEFT_OUT = (".venv", ".git", "build", "dist", "__pycache__", ".pytest_cache")


class Copy:
    """A copy of the sources in a folder, in which one file at a time is changed."""

    def __init__(self, folder: Path):
        self.root = folder / "copy"
        shutil.copytree(ROOT, self.root, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        self._caches = (folder / f"cache{i}" for i in itertools.count())
        self._times = itertools.count(1_000_000_000, 10)
        self._passing: set[str] = set()

    def write(self, file: str, text: str) -> None:
        """Replaces a file; its new time makes Python compile it again."""
        path, now = self.root / file, next(self._times)
        path.write_text(text)
        os.utime(path, (now, now))

    def caught(self, mistake: Mistake, wider: Sequence[str]) -> str:
        """Gives the first check that fails with a mistake; empty if there is none. Raises SystemExit if a check fails without it."""
        checks = dict.fromkeys((*mistake.checks, *wider))
        right = (self.root / mistake.file).read_text()
        assert right.count(mistake.old) == 1, (mistake.file, mistake.old)
        for check in checks:
            self.write(mistake.file, right.replace(mistake.old, mistake.new))
            try:
                found = self.failure(check)
            finally:
                self.write(mistake.file, right)
            if found:
                if check not in self._passing and (why := self.failure(check)):
                    sys.exit(f"{why} fails without a mistake")
                self._passing.add(check)
                return found
        return ""

    def failure(self, check: str) -> str:
        """Runs a check in the copy, with an empty cache. Gives the test that fails, or the check if it does not end; else nothing."""
        cache = next(self._caches)
        environment = {**os.environ, "PYTHONPATH": str(self.root), "POPULUS_CACHE": str(cache), "PYTHONWARNINGS": "ignore"}
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        try:
            done = subprocess.run(
                command(check, str(cache)), cwd=self.root, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
            )
            test = re.search(r"^(?:FAILED|ERROR) test/pytest/(.+?)(?: - |$)", done.stdout, re.MULTILINE)
            return "" if done.returncode == 0 else test[1] if test else check
        except subprocess.TimeoutExpired:
            return f"{check}, which does not end"
        finally:
            shutil.rmtree(cache, ignore_errors=True)


def command(check: str, folder: str) -> list[str]:
    """Gives the command of a check: a test file, perhaps with `-k WORDS`; `lit FOLDER`; or `fuzz NAME`."""
    kind, *rest = shlex.split(check)
    if kind == "lit":
        return [str(Path(sys.executable).with_name("lit")), "--quiet", *(f"test/filecheck/lowering/{name}" for name in rest)]
    if kind == "fuzz":
        return [sys.executable, "test/fuzz", *rest, "--start", "0", "--count", SEEDS, "--save", folder]
    return [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"test/pytest/{kind}", *rest]


def main(words: Sequence[str]) -> int:
    """Prints a line of a table for each mistake. Gives 0 if all are caught."""
    narrow, words = "--narrow" in words, [word for word in words if word != "--narrow"]
    chosen = [m for m in MISTAKES if not words or any(word in m.file for word in words)]
    caught = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for mistake in chosen:
            by = "" if mistake.equivalent else copy.caught(mistake, () if narrow else WIDER)
            caught += bool(by)
            old, new = (" ".join(text.split()).replace("|", "\\|") for text in (mistake.old, mistake.new))
            said = by or (f"equivalent: {mistake.equivalent}" if mistake.equivalent else "nothing")
            print(f"| `{mistake.file}` | `{old}` | `{new}` | {said} |", flush=True)
    equivalent = sum(bool(m.equivalent) for m in chosen)
    print(f"{caught} of {len(chosen) - equivalent} mistakes are caught; {equivalent} more are equivalent")
    return int(caught + equivalent < len(chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
