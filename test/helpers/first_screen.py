"""The first screen of the README, in a clone in which nothing was built: its first command prints what is shown, its second is CI's.

PYTHONPATH=test python3 test/helpers/first_screen.py CLONE
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import perf_counter

from blocks.reading import blocks, missing


def main(clone: Path) -> int:
    """Runs the first command; gives 1, and the line that is not printed, if it is not what the page says."""
    first, shown, second, *_ = blocks((clone / "README.md").read_text())
    assert (second.text.strip(), "\nmake test\n" in (clone / ".ci/run").read_text()) == ("make test", True), second
    begin = perf_counter()
    ran = subprocess.run(["sh", "-ec", first.text], cwd=clone, stdout=subprocess.PIPE, text=True, check=False)
    line = missing(shown.text, ran.stdout)
    print(f"README's first command took {perf_counter() - begin:.0f} s")
    if ran.returncode or line is not None:
        print(f"{ran.stdout[-3000:]}\nstatus {ran.returncode}, not printed: {line}")
    return int(ran.returncode != 0 or line is not None)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
