"""`--within` runs what has not run here yet, and then the shortest tests, up to a sum of seconds."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

CONFTEST = Path(__file__).parents[1] / "conftest.py"
TESTS = """
import time

def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

def test_long():
    burn({seconds})

def test_short():
    pass
"""


def run(folder: Path, *options: str) -> str:
    """Runs the tests of a folder; gives the last line."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "--rootdir", str(folder), *options, "test_own.py"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return ran.stdout.strip().splitlines()[-1] + ran.stderr


def test_what_took_long_in_its_last_run_is_left_out(tmp_path: Path):
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "test_own.py").write_text(TESTS.format(seconds=3))
    assert run(tmp_path, "--within=30").startswith("2 passed"), "what has not run yet runs"
    assert run(tmp_path, "--within=30").startswith("2 passed"), "three seconds fit"
    assert run(tmp_path, "--within=2").startswith("1 passed, 1 deselected")
    (tmp_path / "test_own.py").write_text(TESTS.format(seconds=0))
    assert run(tmp_path).startswith("2 passed"), "all run, and are noted anew"
    assert run(tmp_path, "--within=2").startswith("2 passed")


def test_the_shortest_that_fit_and_an_even_spread_of_what_is_not_known():
    spec = spec_from_file_location("conftest_of_quick", CONFTEST)
    assert spec is not None and spec.loader is not None
    own = module_from_spec(spec)
    spec.loader.exec_module(own)
    names = [f"test_{k:03}" for k in range(100)]
    assert own.within(2.0, names, {}) == set(names[::5])
    known = {name: 0.01 * k for k, name in enumerate(names)}
    assert own.within(0.451, names, known) == set(names[:10]), "0.01 to 0.09 are 0.45"
    del known[names[99]]
    assert own.within(0.451, names, known) == {names[99], *names[:8]}
