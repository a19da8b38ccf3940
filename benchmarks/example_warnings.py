"""Runs the examples with every warning an error: `python -m benchmarks.example_warnings [-k WORD]`.

Each command runs in a copy of the examples, by `python -W error`, so a warning of ours, of a package or of Python ends it. Prints a line
for each, and the last line of one that fails. Exit 1 if one does. Examples of PyTorch want torch, onnxscript and scikit-learn.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PROGRAMS = (
    "library/model.py",
    "-m populus run-program popart/resnet_block.py --steps 2 --load leaky_relu.py",
    "-m populus run-program popxl/mnist.py --epochs 1",
    "-m populus run-program popxl/bert.py --steps 2",
    "-m populus run-program poptorch/digits.py --epochs 1 --images 240",
    "-m populus run digits/digits.onnx --load engines/counting.py --engine counting --dim n=2",
    "kernels/check.py kernels/kernels.py",
    "digits/make.py made",
    "digits/small.py .",
    "digits/export.py",
)
OPS = sorted(path.relative_to(EXAMPLES) for path in (*EXAMPLES.glob("*.py"), *EXAMPLES.glob("ops/*.py")))


def commands() -> list[str]:
    """Gives the commands of all examples, in their folder."""
    return [*PROGRAMS, *(f"-m populus check-op {path} --seconds 60" for path in OPS)]


def main() -> int:
    """Prints what came of each command; gives 1 if one ended with an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", default="", help="only commands that hold this")
    chosen = parser.parse_args().k
    failed = 0
    for command in (c for c in commands() if chosen in c):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
            words = [sys.executable, "-W", "error", *shlex.split(command)]
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        said = (done.stderr.strip().splitlines() or [""])[-1] if done.returncode else ""
        failed += bool(done.returncode)
        print(f"{'fails' if done.returncode else 'quiet'}  {command}{said and ': ' + said}", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
