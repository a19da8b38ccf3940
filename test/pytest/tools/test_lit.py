"""The lit tests run in-process; that is only right if processes agree."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

FILECHECK = Path(__file__).parents[2] / "filecheck"
BIN = Path(sys.executable).parent


@pytest.fixture
def run():
    spec = spec_from_file_location("inprocess", FILECHECK / "inprocess.py")
    assert spec is not None
    assert spec.loader is not None
    inprocess = module_from_spec(spec)
    spec.loader.exec_module(inprocess)
    return inprocess.InProcess({"say": "module:say", "count": "module:count"})


@pytest.mark.parametrize(
    ("line", "stages"),
    [
        ("say a | count", [["say", "a"], ["count"]]),
        ("not say 'a b' 2>&1 | count", [["not", "say", "a b", "stderr-to-stdout"], ["count"]]),
        ("say p{a=1,b=2},q", [["say", "p{a=1,b=2},q"]]),
        ("say a > file", None),
        ("say a && count", None),
        ("other | count", None),
    ],
)
def test_a_line_of_our_commands_is_taken_apart_and_any_other_is_left_to_lit(line, stages, run):
    assert run.stages(line) == stages


@pytest.mark.skipif(not (BIN / "populus-opt").exists(), reason="the commands are not installed beside this interpreter")
def test_processes_agree_with_functions():
    files = [FILECHECK / "tools" / "populus-opt" / name for name in ("load.mlir", "onnx.mlir")]  # a line starts processes of a second
    for parameters in ([], ["--param", "processes=1"]):
        command = [BIN / "lit", "--quiet", *parameters, *files]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
