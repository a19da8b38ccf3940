"""make mutants: plants the mistakes that `drawn_mistakes.py` draws, one at a time, and tells which net catches each.

    python -m benchmarks.drawn_mutants                   # all
    python -m benchmarks.drawn_mutants --only 7 12       # some, by number
    python -m benchmarks.drawn_mutants --all --only 7    # every net, not the first that catches
    python -m benchmarks.drawn_mutants --again           # those that nothing has caught, and keeps what does
    python -m benchmarks.drawn_mutants --table           # the table, of what is kept

Each runs in a copy of the sources, of links but for the one file, in a child process with limits of time and memory. Nets run in order
of cost, until one catches. A check that fails has to pass without the mistake.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import io
import json
import os
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.drawn_mistakes import ROOT, SHARES, Drawn, read, write

MEMORY = 12 << 30  # bytes of addresses
SECONDS = 60  # of a processor, for one check
WALL = 900  # for one check
LEFT_OUT = (".venv", ".git", "build", "dist", ".pytest_cache", ".ruff_cache")
TESTS = "test/pytest/"

FUNCTIONS = "runtime/test_native_engine.py -k 'formula or units or power or nearest or two_over'"

LOWERED = ("lowering/test_tile_builder.py", "lowering/test_random_programs.py")

CHECKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("runtime/engine/native/frozen/", ("runtime/test_built.py",)),
    ("runtime/engine/native/kernels/byte_winograd", ("runtime/test_byte_products.py -k winograd", "runtime/test_byte_products.py")),
    ("runtime/engine/native/kernels/byte_floats", ("runtime/test_native_conversions.py",)),
    ("runtime/engine/native/kernels/byte_", ("runtime/test_byte_products.py", "lowering/test_quantized.py")),
    ("runtime/engine/native/codegen/byte_", ("runtime/test_byte_products.py", "runtime/test_native_code.py")),
    ("runtime/engine/native/kernels/half_", ("runtime/test_half_products.py",)),
    ("runtime/engine/native/kernels/packed_", ("runtime/test_packed_products.py",)),
    ("runtime/engine/native/kernels/winograd", ("runtime/test_winograd.py",)),
    ("runtime/engine/native/kernels/places", ("runtime/test_winograd.py", "runtime/test_native_products.py -k places")),
    ("runtime/engine/native/kernels/draws", ("runtime/test_poprand.py",)),
    ("runtime/engine/native/kernels/circular", (FUNCTIONS, "runtime/test_native_bits.py")),
    ("runtime/engine/native/kernels/wide_formulas", (FUNCTIONS, "runtime/test_native_bits.py")),
    ("runtime/engine/native/kernels/formula_calls", ("runtime/test_tile_code.py", FUNCTIONS)),
    ("runtime/engine/native/kernels/formula", (FUNCTIONS, "runtime/test_native_code.py", "runtime/test_endings.py")),
    ("runtime/engine/native/kernels/element_ops", (FUNCTIONS, "runtime/test_native_bits.py")),
    ("runtime/engine/native/kernels/endings", ("runtime/test_endings.py", "runtime/test_native_products.py")),
    ("runtime/engine/native/kernels/orders", ("runtime/test_native_engine.py -k form", "runtime/test_codelets.py")),
    ("runtime/engine/native/kernels/conversions", ("runtime/test_native_conversions.py",)),
    ("runtime/engine/native/kernels/tile_code", ("runtime/test_tile_code.py",)),
    ("runtime/engine/native/kernels/lifting", ("runtime/test_tile_code.py", "runtime/test_native_engine.py")),
    ("runtime/engine/native/kernels/planes", ("runtime/test_native_planes.py", "runtime/test_native_products.py")),
    ("runtime/engine/native/kernels/channel_pool", ("runtime/test_native_planes.py", "runtime/test_byte_products.py")),
    ("runtime/engine/native/kernels/pool", ("runtime/test_native_planes.py", "runtime/test_native_views.py")),
    ("runtime/engine/native/kernels/rows", ("runtime/test_native_rows.py",)),
    ("runtime/engine/native/kernels/tables", ("runtime/test_native_engine.py",)),
    ("runtime/engine/native/kernels/", ("runtime/test_native_engine.py", "runtime/test_native_code.py", "runtime/test_native_products.py")),
    ("runtime/engine/native/codegen/jit", ("runtime/test_native_engine.py", "runtime/test_built.py")),
    ("runtime/engine/native/run/thread", ("runtime/test_native_threads.py",)),
    ("runtime/engine/native/run/constants", ("runtime/test_native_engine.py -k constant", "runtime/test_native_products.py")),
    ("runtime/engine/native/run/slices", ("runtime/test_endings.py", "runtime/test_native_products.py")),
    ("runtime/engine/native/", ("runtime/test_native_engine.py", "runtime/test_native_threads.py", "runtime/test_native_code.py")),
    ("runtime/tasks", ("runtime/test_tasks.py", "runtime/test_endings.py")),
    ("runtime/endings", ("runtime/test_endings.py",)),
    ("runtime/codelets/tile", ("runtime/test_tile_code.py",)),
    ("runtime/codelets/tile_values", ("runtime/test_tile_code.py", "runtime/test_tile_language.py")),
    ("runtime/codelets/plain", ("runtime/test_tile_code_python.py", "runtime/test_tile_language.py")),
    ("runtime/codelets/winograd", ("runtime/test_winograd.py",)),
    ("runtime/codelets/packed", ("runtime/test_packed_products.py",)),
    ("runtime/codelets/fill", ("runtime/test_codelets.py", "runtime/test_poprand.py")),
    ("runtime/codelets/contraction", ("runtime/test_codelets.py", "runtime/test_half_sums.py", "runtime/test_numpy_engine.py")),
    ("runtime/codelets/", ("runtime/test_codelets.py", "runtime/test_numpy_engine.py")),
    ("lowering/popops/narrow", ("lowering/test_options.py", "tools/test_populus_run.py")),
    ("lowering/popops/powers", ("lowering/test_powers.py",)),
    ("lowering/popops/", ("lowering/test_rewrites.py", "test_planted_mistakes.py")),
    ("lowering/poplar/from_gcl", ("runtime/test_replicas.py",)),
    ("lowering/poplar/from_popops", ("runtime/test_tile_language.py -k part", *LOWERED)),
    ("lowering/poplar/from_poprand", ("runtime/test_poprand.py",)),
    ("lowering/poplar/allocate", ("runtime/test_memory.py", *LOWERED)),
    ("lowering/poplar/emit", ("runtime/test_tile_code.py",)),
    ("lowering/poplar/offload", ("lowering/test_offload.py",)),
    ("lowering/poplar/merge", ("lowering/test_tile_builder.py", "lowering/test_outline.py", "lowering/test_plans.py")),
    ("lowering/poplar/control", ("lowering/test_random_control.py", "lowering/test_control_flow.py")),
    ("lowering/poplar/graph", ("lowering/test_tile_builder.py", "lowering/test_outline.py")),
    ("lowering/", (*LOWERED, "lowering/test_plans.py")),
)
"""The tests of a file, quick ones first: those of the first prefix that fits."""

GENERAL = {tests for prefix, tests in CHECKS if prefix in ("runtime/engine/native/kernels/", "runtime/engine/native/", "lowering/")}

LIT = {
    "lowering/popops/fuse": "popops-fuse", "lowering/popops/narrow": "popops-narrow", "lowering/popops/powers": "popops-fuse",
    "lowering/poplar/allocate": "poplar-allocate", "lowering/poplar/merge": "poplar-merge", "lowering/poplar/map": "poplar-map",
    "lowering/poplar/fuse": "poplar-fuse", "lowering/poplar/offload": "poplar-offload",
    "lowering/poplar/emit": "poplar-emit", "lowering/poplar/to_llvm": "codelet-to-llvm",
    "lowering/poplar/from_gcl": "gcl-to-poplar", "lowering/poplar/from_popnn": "popnn-to-poplar",
    "lowering/poplar/from_poprand": "poprand-to-poplar", "lowering/poplar/from_poplin": "poplin-to-poplar",
    "lowering/poplar/": "popops-to-poplar",
}  # fmt: skip
"""The FileCheck tests of a file, by pass: those of the first prefix that fits."""

NETS = ("FileCheck", "tests of the file", "triples", "load-time check", "fuzzers")


def checks_of(file: str) -> list[tuple[str, str]]:
    """Lists the checks of a file: the net, and the check."""
    lit = next((name for prefix, name in LIT.items() if file.startswith(prefix)), None)
    tests = next(tests for prefix, tests in CHECKS if file.startswith(prefix))
    found = [] if lit is None else [("FileCheck", f"lit {lit}")]
    own = [("tests of the file", f"test {name}") for name in tests]
    found += [("triples", "triples 0"), *own] if tests in GENERAL else [*own[:1], ("triples", "triples 0"), *own[1:]]
    found.append(("triples", "triples 1"))
    fuzz = [("fuzzers", f"fuzz {name}") for name in ("graphs", "tiles", "levels", "gradients", "codelets")]
    return [*found, ("load-time check", "load 0"), *fuzz]


# -- the checks, in a child process


def lit(name: str) -> str:
    """Runs FileCheck tests of a pass."""
    import subprocess

    done = subprocess.run(
        [str(Path(sys.executable).with_name("lit")), "--quiet", f"test/filecheck/lowering/{name}"],
        capture_output=True, text=True, timeout=WALL, check=False,
    )  # fmt: skip
    return "" if done.returncode == 0 else f"lit {name}"


def test(words: str) -> str:
    """Runs a test file until the first failure."""
    import pytest

    failed: list[str] = []

    class First:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                failed.append(report.nodeid.removeprefix(TESTS))

        def pytest_collectreport(self, report: Any) -> None:
            if report.failed:
                failed.append(report.nodeid.removeprefix(TESTS))

    file, *rest = shlex.split(words)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        pytest.main(["-q", "-x", "-p", "no:cacheprovider", f"{TESTS}{file}", *rest], plugins=[First()])
    return failed[0] if failed else ""


EACH = 72  # triples of a check


def triples(part: str) -> str:
    """Runs a part of a sample of the triples: those that agree without a mistake."""
    from triples.cases import Case
    from triples.forms import FORMS
    from triples.running import BATCH

    chosen = [Case.read(case) for case in json.loads(Path(RIGHT).read_text())[int(part)]]
    for i in range(0, len(chosen), BATCH):
        for verdict in FORMS["plain"].judge(chosen[i : i + BATCH]):
            if verdict.outcome != "agrees":
                return f"{verdict.case}: {verdict.outcome}"
    return ""


RIGHT = "triples.json"
"""The triples of each part that agree without a mistake."""


def agreeing(parts: str) -> str:
    """Writes RIGHT."""
    from triples.cases import sample
    from triples.forms import FORMS

    listed, n = sample(0), int(parts)
    step = len(listed) // EACH
    chosen = [FORMS["plain"].judge(listed[part * step // n :: step][:EACH]) for part in range(n)]
    Path(RIGHT).write_text(json.dumps([[str(v.case) for v in verdicts if v.outcome == "agrees"] for verdicts in chosen]))
    return ""


def load(part: str) -> str:
    """Runs triples whose native programs are checked when they are loaded."""
    os.environ["POPULUS_CHECK"] = "1"
    return triples(part)


SEEDS = {"graphs": 24, "tiles": 30, "levels": 8, "gradients": 6, "codelets": 6}


def fuzz(name: str) -> str:
    """Runs the first seeds of a fuzzer."""
    from fuzz.children import FINDINGS
    from fuzz.table import TABLE
    from populus.dialects.support.diagnostics import PopulusError

    for seed in range(1000, 1000 + SEEDS[name]):
        try:
            kind, why = TABLE[name].judge(seed)
        except PopulusError:
            continue  # a mutated program that is refused
        if kind in FINDINGS:
            return f"fuzz {name} {seed}: {kind}: {why[:80]}"
    return ""


KINDS: dict[str, Callable[[str], str]] = {"lit": lit, "test": test, "triples": triples, "load": load, "fuzz": fuzz, "agreeing": agreeing}


def preload() -> None:
    """Imports what children share: other packages, nothing of these sources."""
    for name in ("numpy", "onnx.reference", "onnxruntime", "xdsl.dialects.builtin", "xdsl.parser", "llvmlite.binding", "pytest"):
        import_module(name)


def failure(root: Path, cache: Path, check: str) -> str:
    """Runs a check on a copy in a child process. Returns what fails; nothing if all passes."""
    kind, _, rest = check.partition(" ")
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.close(read)
        try:
            os.setpgid(0, 0)
            os.chdir(root)
            sys.path[:] = [str(root), str(root / "test"), *(p for p in sys.path if p not in ("", str(ROOT)))]
            os.environ |= {"PYTHONPATH": str(root), "POPULUS_CACHE": str(cache), "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
            os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            for name in [n for n in sys.modules if n.partition(".")[0] in ("populus", "benchmarks", "fuzz", "helpers", "triples")]:
                del sys.modules[name]
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            try:
                said = KINDS[kind](rest)
            except BaseException as error:
                said = f"{check}: {type(error).__name__}: {' '.join(str(error).split())[:100]}"
            os.write(write, said.encode()[:4000])
            os.close(write)
        finally:
            os._exit(0)
    os.close(write)
    said, begun = "", time.monotonic()
    os.set_blocking(read, False)
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        with contextlib.suppress(BlockingIOError):
            said += os.read(read, 4096).decode()
        if done:
            break
        if time.monotonic() - begun > WALL:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(read)
            return f"{check}: does not end"
        time.sleep(0.05)
    with contextlib.suppress(BlockingIOError):
        said += os.read(read, 4096).decode()
    os.close(read)
    if os.WIFSIGNALED(status):
        ended = signal.Signals(os.WTERMSIG(status))
        if ended == signal.SIGTERM:
            sys.exit(f"{check}: ended from outside")
        return f"{check}: {'does not end' if ended == signal.SIGXCPU or ended == signal.SIGKILL else ended.name}"
    return said


# -- copies


def linked(source: Path, target: Path) -> None:
    """Makes a copy of links."""
    shutil.copytree(source, target, symlinks=True, copy_function=os.link, ignore=shutil.ignore_patterns(*LEFT_OUT))


class Plants:
    """Copies of the sources, each with one mistake. A check that fails on the right sources too catches nothing, and stops the run."""

    def __init__(self, folder: Path, cache: Path):
        self.folder, self.cache = folder, cache
        self.right = folder / "right"
        shutil.copytree(ROOT, self.right, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        self.passing: set[str] = set()
        assert not (why := failure(self.right, cache, "agreeing 2")), why

    def caught(self, number: int, mistake: Drawn, every: bool, most: int | None) -> Iterator[tuple[str, str]]:
        """Yields the nets that catch a mistake, each with what fails."""
        root = self.folder / f"mutant-{number}"  # no space: lit puts paths into lines of a shell
        linked(self.right, root)
        path = root / mistake.file
        right = path.read_text()
        assert right.count(mistake.old) == 1, mistake
        path.unlink()
        path.write_text(right.replace(mistake.old, mistake.new))
        nets = set[str]()
        try:
            for net, check in checks_of(mistake.file)[:most]:
                if net in nets or not (found := failure(root, self.cache, check)):
                    continue
                if check not in self.passing and (why := failure(self.right, self.cache, check)):
                    print(f"{number}: passed over: {why} fails without a mistake", file=sys.stderr, flush=True)
                    continue
                self.passing.add(check)
                nets.add(net)
                yield net, found
                if not every:
                    return
        finally:
            shutil.rmtree(root, ignore_errors=True)


def main() -> int:
    """Prints a line for each mistake, and a table. Gives 0 if at least 95 of 100 that change anything are caught."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drawn_mutants")
    parser.add_argument("--only", type=int, nargs="*", default=None, help="numbers of mistakes")
    parser.add_argument("--again", action="store_true", help="those that nothing has caught")
    parser.add_argument("--share", default="0/1", metavar="I/N", help="those whose number is I modulo N")
    parser.add_argument("--quick", type=int, default=None, metavar="N", help="run the first N checks of a file only")
    parser.add_argument("--all", action="store_true", help="run every net")
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--cache", type=Path, default=None, help="a folder of compiled kernels (an empty one)")
    options = parser.parse_args()
    if not options.table:
        run(options)
    mistakes = read()
    print("\n".join(table(mistakes)))
    caught, equivalent = sum(m.caught is not None for m in mistakes), sum(bool(m.equivalent) for m in mistakes)
    left = sum(not (m.caught or m.missed or m.equivalent) for m in mistakes)
    judged = len(mistakes) - equivalent - left
    gone = sum(not (m.caught or m.missed or m.equivalent or m.stands) for m in mistakes)
    rest = f"{equivalent} more change nothing, the text of {gone} is gone, {left - gone} were not run"
    print(f"{caught} of {judged} mistakes are caught; {rest}")
    return int(caught < 0.95 * judged)


def run(options: argparse.Namespace) -> None:
    """Makes mistakes, and keeps what catches them. Those of text that stands no more are passed over."""
    index, of = map(int, options.share.split("/"))
    chosen = [(i, m) for i, m in enumerate(read()) if i % of == index and not m.equivalent and not (options.again and m.caught)]
    preload()
    with tempfile.TemporaryDirectory() as folder:
        plants = Plants(Path(folder), options.cache or Path(folder) / "cache")
        for i, m in chosen:
            if options.only is not None and i not in options.only:
                continue
            if not m.stands:
                print(f"{i}: {m}: stands no more", flush=True)
                continue
            begun = time.monotonic()
            nets = list(plants.caught(i, m, options.all, options.quick))
            print(f"{i}: {m}: {nets or 'NOTHING'} ({time.monotonic() - begun:.0f} s)", flush=True)
            if nets or options.quick is None:
                keep(i, nets[0] if nets else None)


def keep(number: int, caught: tuple[str, str] | None) -> None:
    """Keeps what caught a mistake; several runs may share the file."""
    with open(__file__) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mistakes = read()
        mistakes[number].caught, mistakes[number].missed = caught, caught is None
        write(mistakes)


def table(mistakes: Sequence[Drawn]) -> list[str]:
    """Writes the table: a row for each folder, a column for each net that caught first. Of a mistake that is gone, the text has changed."""

    def folder(m: Drawn) -> str:
        return next(f for f in SHARES if m.file.startswith(f))

    def column(m: Drawn) -> str:
        said = "nothing" if m.missed else "not run" if m.stands else "gone"
        return "no effect" if m.equivalent else m.caught[0] if m.caught else said

    counts = Counter((folder(m), column(m)) for m in mistakes)
    columns = (*NETS, "nothing", "no effect", "gone", "not run")
    rows = [f"| folder | drawn | {' | '.join(columns)} |", f"|{'---|' * (len(columns) + 2)}"]
    for name in (*SHARES, "all"):
        each = [sum(n for (f, found), n in counts.items() if found == c and name in (f, "all")) for c in columns]
        rows.append(f"| {name} | {sum(each)} | {' | '.join(str(n or '') for n in each)} |")
    return rows


if __name__ == "__main__":
    sys.exit(main())
