"""make mutants: plants mistakes in the sources, one at a time, and tells which are caught, and by what.

    python -m benchmarks.mutants            # all
    python -m benchmarks.mutants liveness   # those of files with this word in their path

Each mistake is data: a file, its text, the text in its place, and the tests of that file. They are planted in a copy of the sources.
Random graphs are tried first, then the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
SECONDS = 600  # for one check of one mistake; a check that does not end has caught it
FUZZ = ("test/fuzz", "graphs", "--start", "0", "--count", "40")


@dataclass(frozen=True)
class Mistake:
    """A mistake: in `file`, `old` becomes `new`. `tests`: the test files of that subject."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]


NUMPY, STRICT, PLANS = "runtime/test_numpy_engine.py", "runtime/test_strict_engine.py", "lowering/test_plans.py"
RANDOM, CONTROL = "lowering/test_random_programs.py", "lowering/test_random_control.py"
MEMORY, OFFLOAD, OPTIONS = "runtime/test_memory.py", "lowering/test_offload.py", "lowering/test_options.py"
REWRITES, INPLACE, CONVERSION = "lowering/test_rewrites.py", "lowering/test_inplace.py", "lowering/test_onnx_to_popart.py"
MISTAKES = (
    Mistake(
        "runtime/engine/arena.py",
        "if end > at and _meet",
        "if end > at + size and _meet",
        (NUMPY,),
    ),
    Mistake(
        "runtime/engine/arena.py",
        "first <= until and since <= last",
        "first < until and since < last",
        (NUMPY,),
    ),
    Mistake(
        "runtime/engine/arena.py",
        "if begin >= at + size:",
        "if begin >= at:",
        (NUMPY,),
    ),
    Mistake(
        "runtime/engine/arena.py",
        "a[-1][1] < b[0][0] or",
        "a[-1][1] <= b[0][0] or",
        (NUMPY,),
    ),
    Mistake(
        "runtime/liveness.py",
        "if variable not in self.written:\n            self.needs",
        "if variable in self.written:\n            self.needs",
        (MEMORY, OFFLOAD, CONTROL),
    ),
    Mistake(
        "runtime/liveness.py",
        "if not whole or variable in self.written:",
        "if variable in self.written:",
        (MEMORY, OFFLOAD, CONTROL),
    ),
    Mistake(
        "runtime/liveness.py",
        "if all(disjoint(view, piece) for piece in pieces):",
        "if True:",
        (MEMORY, OFFLOAD, CONTROL),
    ),
    Mistake(
        "runtime/liveness.py",
        "        if surely:\n            self.written |= other.written",
        "        if True:\n            self.written |= other.written",
        (MEMORY, OFFLOAD, CONTROL),
    ),
    Mistake(
        "runtime/liveness.py",
        "== math.prod(view.base)",
        ">= math.prod(view.base) // 2",
        (MEMORY, OFFLOAD, CONTROL),
    ),
    Mistake(
        "runtime/liveness.py",
        "self.needs |= other.needs - self.written",
        "self.needs |= set()",
        (MEMORY, OFFLOAD, CONTROL),
    ),
    Mistake(
        "lowering/popart/cse.py",
        "tuple(op.operands),",
        "frozenset(op.operands),",
        (REWRITES,),
    ),
    Mistake(
        "lowering/popart/cse.py",
        "or not op.has_trait(Pure)",
        "",
        (REWRITES,),
    ),
    Mistake(
        "lowering/popart/inplace.py",
        "operand not in marks and ",
        "",
        (INPLACE,),
    ),
    Mistake(
        "lowering/popart/inplace.py",
        "and memory.overwritable(op, operand, result)",
        "",
        (INPLACE,),
    ),
    Mistake(
        "lowering/poplar/merge.py",
        "if not earlier.touched or step.conflicts(earlier):",
        "if not earlier.touched:",
        (OPTIONS, RANDOM),
    ),
    Mistake(
        "lowering/poplar/merge.py",
        "and all(m.on_one_tile for m in met)",
        "",
        (OPTIONS, RANDOM),
    ),
    Mistake(
        "lowering/poplar/plan/reduction.py",
        '"add" if op == "square_add" else op',
        "op",
        (PLANS, RANDOM),
    ),
    Mistake(
        "lowering/poplar/plan/reduction.py",
        'params: dict[str, Attribute] = {"op": StringAttr(op)}',
        'params: dict[str, Attribute] = {"op": StringAttr("add")}',
        (PLANS, RANDOM),
    ),
    Mistake(
        "runtime/engine/superstep.py",
        "part[(part >= 0) & (part != tile)]",
        "part[(part >= 0) & (part > tile)]",
        (STRICT,),
    ),
    Mistake(
        "runtime/engine/superstep.py",
        "if writers.size and writers.max() >= 0:",
        "if writers.size and writers.max() > 0:",
        (STRICT,),
    ),
    Mistake(
        "runtime/engine/superstep.py",
        "        self._check_reads()\n",
        "",
        (STRICT,),
    ),
    Mistake(
        "runtime/engine/superstep.py",
        "            check_defined(family, number, slices, vertex)\n",
        "",
        (STRICT,),
    ),
    Mistake(
        "lowering/onnx/to_popart/tensor.py",
        "if d != axis:\n            rest",
        "if d == axis:\n            rest",
        (CONVERSION,),
    ),
    Mistake(
        "lowering/onnx/to_popart/tensor.py",
        "math.prod(size[d + 1 :]) for d",
        "math.prod(size[d:]) for d",
        (CONVERSION,),
    ),
)


def checked(mistake: Mistake, folder: Path) -> str:
    """Gives what catches a mistake in a copy of the sources: `random graphs`, a test file, or `nothing`."""
    copy = folder / "copy"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(".venv", ".git", "build", "__pycache__"))
    path = copy / mistake.file
    text = path.read_text()
    assert text.count(mistake.old) >= 1, (mistake.file, mistake.old)
    path.write_text(text.replace(mistake.old, mistake.new, 1))
    if not passes(FUZZ, copy):
        return "random graphs"
    pytest = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider")
    return next((test for test in mistake.tests if not passes((*pytest, f"test/pytest/{test}"), copy)), "nothing")


def passes(command: Sequence[str], copy: Path) -> bool:
    """Runs a check in the copy. One that does not end has failed."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "POPULUS_CACHE": str(copy / "cache"), "PYTHONWARNINGS": "ignore"}
    try:
        command = [sys.executable, *command]
        return subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=SECONDS, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def main(words: Sequence[str]) -> int:
    """Prints a line of a table for each mistake. Gives 0 if all are caught."""
    chosen = [m for m in MISTAKES if not words or any(word in m.file for word in words)]
    caught = 0
    for mistake in chosen:
        with tempfile.TemporaryDirectory() as folder:
            by = checked(mistake, Path(folder))
        caught += by != "nothing"
        old, new = (" ".join(text.split()) for text in (mistake.old, mistake.new))
        print(f"| `{mistake.file}` | `{old}` | `{new}` | {by} |", flush=True)
    print(f"{caught} of {len(chosen)} mistakes are caught")
    return int(caught < len(chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
