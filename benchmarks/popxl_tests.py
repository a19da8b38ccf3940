"""Counts what runs of PopXL's own tests: `python benchmarks/popxl_tests.py CHECKOUT [integration|unit|docs] [-v]`.

CHECKOUT is a copy of Graphcore's public PopART repository. Names `popxl` and `popart` are those of `populus`. Prints, for each suite,
how many of its test functions (or scripts) end well, and how many of these compare numbers (`comparing.py`); a function counts if all its
parameter sets do. With -v, each failure's last line.
The tests want PyTorch; those that ask for more packages count as failures.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

SUITES = {"integration": "tests/integration/popxl", "unit": "tests/unittests/python/popxl", "docs": "docs/popxl/files docs/popart/files"}
SECONDS = 1200  # that one file of tests, or a script, may take; those that start processes take the longest


def put_poprun_on_path() -> None:
    """Puts the command that stands in for PopDist's, and Python as it calls it, where tests that start processes find them."""
    commands = (Path(__file__).resolve().parent / "stand_ins", Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join([*map(str, commands), os.environ.get("PATH", "")])


def alias() -> None:
    """Gives the modules of `populus.popxl` and `populus.popart` the names that programs import."""
    for name in ("popxl", "popart"):
        package = importlib.import_module(f"populus.{name}")
        sys.modules[name] = package
        for inner in pkgutil.walk_packages(package.__path__, f"populus.{name}."):
            sys.modules[inner.name.removeprefix("populus.")] = importlib.import_module(inner.name)


def inner(kind: str, path: str) -> int:
    """Runs one file, in this process."""
    alias()
    if kind == "docs":
        import runpy

        sys.path.insert(0, str(Path(path).parent))
        sys.argv = [path]
        runpy.run_path(path, run_name="__main__")
        return 0
    import pytest

    plugins = ["-p", "comparing", "-p", "no:cacheprovider", "-p", "no:randomly", "--device-type", device_type(Path(path))]
    return pytest.main(["-q", "-rA", "--tb=line", *plugins, "--continue-on-collection-errors", "-W", "ignore", path])


def device_type(path: Path) -> str:
    """Gives the kind of device that the checkout's build runs a file of tests on: hardware if it names that alone, else a CPU."""
    build = path.with_name("CMakeLists.txt")
    text = build.read_text() if build.exists() else ""
    named = re.search(rf"\b{path.stem}\s+VARIANTS([\w\s]*?)(?:LABELS|PROPERTIES|\))", text)
    return "Hw" if named and named[1].split() == ["Hw"] else "Cpu"


def functions(path: Path) -> int:
    """Counts the test functions of a file."""
    return len(re.findall(r"^(?:    )?def test_\w+", path.read_text(), re.MULTILINE))


def ran(command: list[str], path: Path, folder: str, script: bool = False) -> tuple[Counter[str], list[str]]:
    """Counts a file's functions (or the file, a script), those that end well when a command runs it, and those that compare numbers.

    Gives the messages of the functions that fail too.
    """
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
        text, status = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired:
        text, status = f"more than {SECONDS} s", 1
    lines = [line for line in text.splitlines() if line.strip()]
    if script:
        return Counter(all=1, passed=int(status == 0)), [] if status == 0 else [f"{path.name}: {lines[-1] if lines else status}"]
    found = re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL) \S*?::([\w:]+)", text, re.MULTILINE)
    results: dict[str, set[str]] = {}
    for outcome, name in found:
        results.setdefault(name, set()).add(outcome)
    passed = {name for name, outcomes in results.items() if outcomes <= {"PASSED"}}
    compared = passed & set(re.findall(r"^COMPARED \S*?::([\w:]+)", text, re.MULTILINE))
    said = [line for line in lines if line.startswith(("FAILED", "ERROR"))] or ([] if status in (0, 5) else [f"{path.name}: {lines[-1]}"])
    return Counter(all=functions(path), passed=len(passed), compared=len(compared)), said


def counted(found: Counter[str]) -> str:
    """Says how many end well, and how many of these compare numbers."""
    numbers = f", of which {found['compared']} compare numbers" if found["compared"] else ""
    return f"{found['passed']} of {found['all']}{numbers}"


def main() -> None:
    """Prints the counts of the suites asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("suites", nargs="*", choices=[*SUITES, []], default=[])
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("-k", default="", help="only files whose name holds this")
    args = parser.parse_args()
    for suite in args.suites or SUITES:
        folders = [args.checkout / folder for folder in SUITES[suite].split()]
        files = sorted(path for folder in folders for path in (folder.glob("*.py") if suite == "docs" else folder.rglob("*.py")))
        files = [f for f in files if args.k in f.name and (suite == "docs" or f.name.startswith("test_"))]
        total: Counter[str] = Counter()
        for path in files:
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, __file__, "--inner", suite, str(path.resolve())]
                found, said = ran(command, path, folder, suite == "docs")
            total += found
            if args.verbose:
                print(f"{path.name}: {counted(found)}", *said, sep="\n    ", flush=True)
        print(f"{suite}: {counted(total)}", flush=True)


if __name__ == "__main__":
    here = Path(__file__).resolve()
    os.environ.setdefault("PYTHONPATH", os.pathsep.join([str(here.parents[1]), str(here.parent)]))
    put_poprun_on_path()
    if sys.argv[1:2] == ["--inner"]:
        raise SystemExit(inner(sys.argv[2], sys.argv[3]))
    main()
