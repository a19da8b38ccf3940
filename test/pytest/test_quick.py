"""`--quick` leaves out what took long in its last run, and nothing else."""

from __future__ import annotations

import subprocess
import sys
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
    (tmp_path / "test_own.py").write_text(TESTS.format(seconds=0.5))
    assert run(tmp_path, "--quick").startswith("2 passed"), "what has not run yet counts as quick"
    assert run(tmp_path, "--quick").startswith("1 passed, 1 deselected")
    (tmp_path / "test_own.py").write_text(TESTS.format(seconds=0))
    assert run(tmp_path).startswith("2 passed"), "all run, and are noted anew"
    assert run(tmp_path, "--quick").startswith("2 passed")
