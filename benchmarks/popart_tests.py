"""PopART's own tests of operators, run with `populus.popart` as `popart`: how many test functions pass.

    python benchmarks/popart_tests.py /path/to/a/checkout/of/graphcore/popart [FILE ..] [--today]

It wants torch and scipy, which are the references of these tests, and torch_scatter and torch_spline_conv for some. A function passes when
all its cases do. References take the older forms of `older_packages.py`, but with --today. The script is the plugin of pytest too.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

SUITE = "tests/integration/operators_test"
LIMIT = 90  # seconds for one case
NUMBERS = "compared"  # the outcome of a case that passed and compared numbers
# A failure's kind, by the first of these that is found in its last line.
KINDS = (
    ("an op is not there", r"is not there yet|has no op|there is no op|no member"),
    ("values differ", r"assert np.allclose|not close|allclose|AssertionError: $|Arrays are not"),
    ("types or shapes of results differ", r"\.dtype ==|\.shape ==|\.shape !="),
    ("another text of an error, or none", r"DID NOT RAISE|startswith|in str\(|e_info|e\.value"),
    ("the IR as text", r"_serializeIr|maingraph"),
    ("several machines or replicas", r"numI[Pp][Uu]s|replicat"),
    ("a package is missing, or a reference fails", r"No module named|module 'numpy'|torch\."),
    ("no gradient", r"no gradient|has no gradient"),
    ("longer than the limit", r"TimeoutError"),
    ("refused", r"PopulusError|popart_exception"),
)


class Overrun(TimeoutError):
    """A case took longer than `LIMIT`."""


if "POPART_TESTS_LOG" in os.environ:  # as a plugin, before any conftest imports popart
    import populus.popart

    sys.modules["popart"] = sys.modules["popart_core"] = populus.popart


def pytest_runtest_setup(item: Any) -> None:
    """Begins to count a case's seconds."""

    def stop(*_: object) -> None:
        raise Overrun(f"TimeoutError: longer than {LIMIT} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT)


def pytest_runtest_logreport(report: Any) -> None:
    """Writes what came of a case."""
    if report.when == "call" or report.outcome != "passed":
        numbers = report.when == "call" and report.nodeid in sys.modules["comparing"].compared
        _write(report.nodeid, NUMBERS if numbers else report.outcome, _last(report))
    if report.when == "teardown":
        signal.alarm(0)


def pytest_collectreport(report: Any) -> None:
    """Writes a file that cannot be read."""
    if report.failed:
        _write(report.nodeid, "failed", _last(report))


def _last(report: Any) -> str:
    text = str(report.longrepr or "")
    lines = [line for line in text.splitlines() if line.startswith("E ")]
    return " | ".join(line[1:].strip() for line in lines[:3])[:400] or text[-300:]


def _write(node: str, outcome: str, text: str) -> None:
    with Path(os.environ["POPART_TESTS_LOG"]).open("a") as log:
        log.write(json.dumps([node, outcome, text]) + "\n")


def functions(file: Path) -> list[str]:
    """Gives the names of the test functions of a file."""
    return re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)


def run(checkout: Path, files: list[Path], log: Path, plugins: tuple[str, ...]) -> None:
    """Runs the files in one process with these plugins, and goes on after a file that ends it."""
    environment = {**os.environ, "POPART_TESTS_LOG": str(log), "PYTHONPATH": f"{Path(__file__).parent}:{checkout / SUITE}"}
    rest = list(files)
    while rest:
        options = [f"-p{name}" for name in (*plugins, "no:cacheprovider", "no:randomly")]
        options += ["-q", "-q", "--tb=short", "--continue-on-collection-errors", "-W", "ignore"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *map(str, rest)],
            cwd=checkout,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode in (0, 1, 2, 5):
            return
        seen = {json.loads(line)[0].split("::")[0].rpartition("/")[2] for line in log.read_text().splitlines()}
        begun = [i for i, f in enumerate(rest) if f.name in seen]
        print(f"a process ended with {done.returncode}: {done.stderr[-300:]}", file=sys.stderr)
        rest = rest[max(begun, default=0) + 1 :]


def kind(text: str) -> str:
    """Tells why a case failed."""
    return next((name for name, pattern in KINDS if re.search(pattern, text)), "other")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--today", action="store_true", help="references as today's packages compute them")
    given = parser.parse_intermixed_args()  # files may follow an option
    folder = given.checkout.resolve() / SUITE
    every = sorted(f for f in folder.glob("*.py") if functions(f) and (not given.files or f.name in given.files or f.stem in given.files))
    log = given.log or Path(tempfile.mkdtemp()) / "results.jsonl"
    log.write_text("")
    run(given.checkout.resolve(), every, log, ("popart_tests", "comparing", *(() if given.today else ("older_packages",))))
    cases: dict[str, list[tuple[str, str]]] = defaultdict(list)
    broken: dict[str, str] = {}
    for line in log.read_text().splitlines():
        node, outcome, text = json.loads(line)
        name = node.rpartition("/")[2]
        if "::" in name:
            cases[name.partition("[")[0]].append((outcome, text))
        else:
            broken[name] = text
    total, reasons, parts = Counter[str](), Counter[str](), Counter[str]()
    for file in every:
        for name in functions(file):
            found = cases.get(f"{file.name}::{name}", [])
            failed = [text for outcome, text in found if outcome == "failed"]
            if file.name in broken:
                failed.append(broken[file.name])
            if failed:
                total["failed"] += 1
                reasons[kind(failed[0])] += 1
                parts["some cases"] += any(outcome in ("passed", NUMBERS) for outcome, _ in found)
                print(f"FAILED {file.name}::{name}: {failed[0]}")
            else:
                total["passed" if any(o in ("passed", NUMBERS) for o, _ in found) else "skipped"] += 1
                total[NUMBERS] += any(o == NUMBERS for o, _ in found)
    failed = f"{total['failed']} failed ({parts['some cases']} in part)"
    number, passed = sum(total.values()) - total[NUMBERS], f"{total['passed']} passed ({total[NUMBERS]} compare numbers)"
    print(f"\n{SUITE}: {number} functions, {passed}, {failed}, {total['skipped']} skipped")
    for name, number in reasons.most_common():
        print(f"  {number:4} {name}")


if __name__ == "__main__":
    main()
