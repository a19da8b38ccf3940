"""The README in a clone in which nothing was built: its first command prints what is shown, its second is CI's. With times.

PYTHONPATH=test python3 test/helpers/first_screen.py CLONE
PYTHONPATH=test python3 test/helpers/first_screen.py CLONE --hour [--python PATH]    # also a second result, and the README's other blocks
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from blocks.reading import blocks, missing


def timed(command: Sequence[str | Path], clone: Path, **environment: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """Runs a command in the clone; gives it with its output, and its seconds."""
    begin = perf_counter()
    ran = subprocess.run(command, cwd=clone, stdout=subprocess.PIPE, text=True, check=False, env={**os.environ, **environment})
    return ran, perf_counter() - begin


def main() -> int:
    """Runs the first command; gives 1, and the line that is not printed, if it is not what the page says. With --hour, the rest too."""
    parser = argparse.ArgumentParser()
    parser.add_argument("clone", type=lambda path: Path(path).resolve())
    parser.add_argument("--hour", action="store_true")
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    args = parser.parse_args()
    first, shown, second, *_ = blocks((args.clone / "README.md").read_text())
    assert (second.text.strip(), "\nmake test\n" in (args.clone / ".ci/run").read_text()) == ("make test", True), second
    with tempfile.TemporaryDirectory(prefix="populus-python-") as folder:
        command = Path(folder, "python3")  # a link would be the base of the environment, and gone with the folder
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(str(args.python))} "$@"\n')
        command.chmod(0o755)
        ran, seconds = timed(["sh", "-ec", first.text], args.clone, PATH=f"{folder}{os.pathsep}{os.environ['PATH']}")
    line = missing(shown.text, ran.stdout)
    if ran.returncode or line is not None:
        print(f"{ran.stdout[-3000:]}\nstatus {ran.returncode}, not printed: {line}")
        return 1
    python = args.clone / ".venv/bin/python"
    version, _ = timed([python, "--version"], args.clone)
    print(f"{version.stdout.strip()}: README's first command took {seconds:.0f} s", flush=True)
    if not args.hour:
        return 0
    again, seconds = timed([python.with_name("populus"), "demo"], args.clone)
    print(f"{version.stdout.strip()}: from the installed package to a result, {seconds:.1f} s", flush=True)
    rest, seconds = timed([python, "-m", "blocks", "--whole", "README.md"], args.clone, PYTHONPATH="test")
    print(f"{rest.stdout}{version.stdout.strip()}: README's other blocks took {seconds:.0f} s")
    return int(again.returncode or rest.returncode or missing(shown.text, again.stdout) is not None)


if __name__ == "__main__":
    sys.exit(main())
