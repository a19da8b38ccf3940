"""Kills `populus explore` at drawn moments, resumes it each time, and compares the result with that of a run that nothing stopped.

python -m benchmarks.explored_kills [KILLS] [SEED]
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep

MODEL, VARY = "digits", ("tiles=1:64:1", "tile_bytes=64K,128K,256K,512K", "exchange_bytes=2,4,8,16")
SEARCH = ("--search", "optuna", "--points", "120", "--seed", "1", "--processes", "2")


def command(folder: Path, name: str, *more: str) -> list[str]:
    """Gives the command that searches, and writes its points as JSON."""
    varied = [text for given in VARY for text in ("--vary", given)]
    return [sys.executable, "-m", "populus", "explore", MODEL, *varied, *SEARCH, "--json", str(folder / name), *more]


def points(log: Path) -> int:
    """Counts the points of a log."""
    return max(log.read_bytes().count(b"\n") - 1, 0) if log.exists() else 0


def main(arguments: list[str]) -> int:
    """Prints how many points each killed run had, and whether the last one gave the same bytes; status 1 if it did not."""
    kills, seed = (int(arguments[i]) if len(arguments) > i else default for i, default in enumerate((20, 0)))
    draw = random.Random(seed)
    with TemporaryDirectory() as name, (Path(name) / "stderr").open("w+b") as errors:
        folder = Path(name)
        subprocess.run(command(folder, "whole.json"), check=True, capture_output=True)
        log = folder / "log.jsonl"
        there: list[int] = []
        for _ in range(kills):
            more = ["--resume"] if log.exists() else []
            process = subprocess.Popen(
                command(folder, "part.json", "--log", str(log), *more),
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
            until = points(log) + draw.randrange(1, 11)
            while process.poll() is None and points(log) < until:
                sleep(0.002)
            sleep(draw.uniform(0, 0.05))  # somewhere between two points
            process.send_signal(which := draw.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)))
            if process.wait() != (-which if which == signal.SIGKILL else 128 + which):
                raise RuntimeError(f"{which.name} did not end a run: status {process.returncode}, {(folder / 'stderr').read_text()}")
            there.append(points(log))
        resumed = ["--resume"] if log.exists() else []
        subprocess.run(command(folder, "part.json", "--log", str(log), *resumed), check=True, capture_output=True)
        same = (folder / "part.json").read_bytes() == (folder / "whole.json").read_bytes()
    print(f"points in the log after each of {kills} ends: {', '.join(map(str, there))}; {'the same bytes' if same else 'OTHER bytes'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
