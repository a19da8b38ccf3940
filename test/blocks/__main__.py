"""`python -m blocks [--whole] [PAGE..]`, with `test` on the path: runs the code blocks of pages, each page in an empty folder.

Prints an outcome for each block and command, with the reason of each that is not run. Exit status 1 if one fails.
Without pages: all of the repository that have a block.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from blocks.models import ROOT
from blocks.pages import PAGES
from blocks.reading import blocks
from blocks.running import RESULTS, Outcome, Page, Reader, path_of_commands

OURS = ("docs", "dialects", "lowering", "runtime", "tools", "populus", "test", "examples", "benchmarks")


def pages() -> list[str]:
    """Lists the pages of the repository that have a block."""
    found = (*ROOT.glob("*.md"), *(p for folder in OURS for p in (ROOT / folder).rglob("*.md")))
    return sorted(str(p.relative_to(ROOT)) for p in found if next(blocks(p.read_text()), None) is not None)


def read(name: str, *, whole: bool) -> bool:
    """Runs the blocks of one page here, in an empty folder, and prints the outcomes. Tells if none failed."""
    failed = False
    with tempfile.TemporaryDirectory() as top:
        os.environ["PATH"] = path_of_commands(Path(top) / "bin")
        folder = Path(top) / "reader"
        folder.mkdir()
        os.chdir(folder)
        for outcome in Reader(ROOT / name, name, PAGES.get(name, Page()), whole=whole).outcomes():
            failed |= outcome.result == "failed"
            print(outcome, flush=True)
        os.chdir(ROOT)
    return not failed


def main(arguments: list[str]) -> int:
    """Runs the pages that are named, here with `--here`, else each in a process of its own; without names all."""
    parser = argparse.ArgumentParser(prog="blocks")
    parser.add_argument("pages", nargs="*")
    parser.add_argument("--whole", action="store_true", help="also what takes long")
    parser.add_argument("--here", action="store_true", help="in this process")
    asked = parser.parse_args(arguments)
    if asked.here:
        return sum(not read(name, whole=asked.whole) for name in asked.pages)
    counts: Counter[str] = Counter()
    for name in asked.pages or pages():
        command = [sys.executable, "-m", "blocks", "--here", *(["--whole"] if asked.whole else []), name]
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        printed = ran.stdout
        if ran.returncode not in (0, 1):
            printed += f"{Outcome(name, 'the page', 'failed', f'status {ran.returncode}')}\n"
        print(printed, end="", flush=True)
        counts.update(r for line in printed.splitlines() for r in RESULTS if f": {r}: " in line[:200] and line.startswith(name))
    print(", ".join(f"{counts[result]} {result}" for result in RESULTS), file=sys.stderr)
    return int(counts["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
