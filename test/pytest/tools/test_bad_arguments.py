"""Options with values that they do not take, files that cannot be written, pipes that close: of every command."""

from __future__ import annotations

import argparse
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from populus.tools.main import COMMANDS, parser_of
from populus.tools.populus_opt import PopulusOpt

ROOT = Path(__file__).parents[3]
TEXT = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n  %y = popart.neg %x : tensor<2xf32>\n  return %y : tensor<2xf32>\n}"
TRAIN = ("train", "net.onnx", "--data", "good.npz", "--epochs", "1", "--batch", "2")
# The least that each command needs.
LEAST = {
    "run": ("good.mlir",),
    "run-program": ("program.py",),
    "poprun": (),  # what follows the program is the program's
    "build": ("good.mlir", "-o", "built"),
    "check": ("net.onnx",),
    "profile": ("good.mlir",),
    "explore": ("good.mlir",),
    "reduce": ("good.mlir", "--against", "strict"),
    "export": ("net.onnx", "-o", "out.onnx"),
    "check-op": ("own.py",),
    "new-op": ("twice",),
    "new-pass": ("drop-relu",),
    "new-target": ("mesh",),
    "targets": (),
    "cache": (),
    "check-compat": ("signatures.json",),
    "docs-op": ("relu",),
    "demo": (),
    "train": TRAIN[1:],
    "bench-op": ("own.py",),
    "bench": ("net.onnx",),
}
# Commands that write: OUT is a file or a folder that cannot be written.
WRITING = [
    "populus run good.mlir --outputs OUT.npz",
    "populus run good.mlir --json OUT.json",
    "populus run good.mlir --profile OUT.html",
    "populus run-program program.py --profile OUT.html",
    "populus explore good.mlir --csv OUT.csv",
    "populus explore good.mlir --json OUT.json",
    "populus explore good.mlir --html OUT.html",
    "populus build good.mlir -o OUT",
    "populus check net.onnx --json OUT.json",
    "populus profile good.mlir --json OUT.json",
    "populus profile good.mlir --html OUT.html",
    "populus export net.onnx -o OUT.onnx --dim n=2",
    "populus reduce good.mlir --while true -o OUT.mlir",
    "populus new-op twice --folder OUT",
    "populus new-pass drop-relu --folder OUT",
    "populus new-target mesh --folder OUT",
    "populus check-compat OUT.json --write",
    f"populus {' '.join(TRAIN)} --checkpoint OUT",
    f"populus {' '.join(TRAIN)} --export OUT.onnx",
    f"populus {' '.join(TRAIN)} --history OUT.csv",
    f"populus {' '.join(TRAIN)} --plot OUT.svg",
    "populus bench net.onnx --dim n=2 --json OUT.json",
    "populus bench-op own.py --baseline OUT.json --write",
    "populus-opt good.mlir -o OUT.mlir",
    "populus-opt good.mlir --save-weights OUT.safetensors",
    "populus-opt good.mlir -p popart-cse --dump-dir OUT",
]
PROGRAM = """import numpy as np
import popxl
from popxl import ops

ir = popxl.Ir()
with ir.main_graph:
    out = popxl.d2h_stream((2,), popxl.float32, "out")
    ops.host_store(out, popxl.constant(np.ones(2, np.float32)) + 1)
with popxl.Session(ir, "ipu_model") as session:
    session.run()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a model, a text, arrays, an op and a program, and nothing else."""
    monkeypatch.chdir(tmp_path)
    info = helper.make_tensor_value_info
    weights = [numpy_helper.from_array(np.ones((2, 3), np.float32), "w")]
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], name="fc")]
    graph = helper.make_graph(nodes, "g", [info("x", 1, ["n", 2])], [info("y", 1, ["n", 3])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "net.onnx")
    np.savez("good.npz", x=np.ones((4, 2), np.float32), labels=np.zeros(4, np.int64))
    Path("good.mlir").write_text(TEXT)
    Path("program.py").write_text(PROGRAM)
    shutil.copy(ROOT / "examples/leaky_relu.py", "own.py")
    return tmp_path


def options(name: str) -> list[argparse.Action]:
    """Lists the options of a command that take a value."""
    (commands,) = (a for a in parser_of([name])._actions if isinstance(a, argparse._SubParsersAction))
    return [a for a in commands.choices[name]._actions if a.option_strings and a.nargs != 0]


def assert_one_line(err: str) -> None:
    assert err.count("\n") == 1, err
    assert "internal error" not in err, err


def test_every_command_has_a_row():
    assert set(LEAST) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_without_a_value_or_with_one_of_another_type_is_a_mistake_of_use(name, folder, populus):
    before = sorted(folder.rglob("*"))
    for action in options(name):
        option = action.option_strings[-1]
        typed = action.type is not None or action.choices is not None
        for value in ("", "wrong", "1.5x", "nan", "-1e400") if typed else ("",):
            outcome = populus(name, *LEAST[name], *((f"{option}={value}",) if option.startswith("--") else (option, value)))
            assert outcome.status == 2, (option, value, outcome.err)
            assert_one_line(outcome.err)
            assert option.lstrip("-") in outcome.err, (option, value, outcome.err)
    assert sorted(folder.rglob("*")) == before


def test_an_option_of_populus_opt_takes_no_empty_and_no_unknown_value(folder, populus_opt):
    before = sorted(folder.rglob("*"))
    files = {"--output-file", "--save-weights", "--dump-dir", "--mlir-pass-pipeline-crash-reproducer"}  # options that take any name
    parser = argparse.ArgumentParser()
    PopulusOpt(args=["good.mlir", "--pipeline", "inference"]).register_all_arguments(parser)
    for action in (a for a in parser._actions if a.option_strings and a.nargs != 0):
        option = action.option_strings[-1]
        for value in ("",) if option in files else ("", "wrong", "nothing{a=1}", "x=", "=3"):
            outcome = populus_opt("good.mlir", f"{option}={value}")
            assert outcome.status in (1, 2), (option, value, outcome)
            assert_one_line(outcome.err)
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("run good.mlir --tiles 0", "argument --tiles: expected a whole number from 1 on, found '0'"),
        ("run good.mlir --seed -1", "argument --seed: expected a whole number from 0 on, found '-1'"),
        ("run good.mlir --rtol nan", "argument --rtol: expected a number from 0 on, found 'nan'"),
        ("run good.mlir --atol -1", "argument --atol: expected a number from 0 on, found '-1'"),
        ("check-op own.py --seconds inf", "argument --seconds: expected a number from 0 on, found 'inf'"),
        ("reduce good.mlir --against strict --seed -1", "argument --seed: expected a whole number from 0 on, found '-1'"),
        ("run-program program.py --tiles none", "--tiles none: expected a whole number from 1 on"),
        ("build good.mlir -o built --state x", "--state x: expected INPUT=OUTPUT, such as --state past=present"),
        ("run ", "argument MODEL: the value is empty"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_option(command, message, folder, populus):
    outcome = populus(*command.split(" "))
    assert outcome.status == 2
    assert outcome.err.startswith(f"populus: {message}")
    assert_one_line(outcome.err)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("good.mlir --dim n=2", "good.mlir has no symbolic dimensions; --dim is for ONNX models"),
        ("net.onnx --weights w.safetensors", "net.onnx states where its weights are; --weights is for modules"),
    ],
)
def test_populus_opt_refuses_what_its_input_has_no_use_for(command, message, folder, populus_opt):
    outcome = populus_opt(*command.split())
    assert outcome.status == 1 and outcome.err.startswith(f"populus-opt: {message}"), outcome
    assert_one_line(outcome.err)


@pytest.mark.parametrize("command", WRITING)
def test_what_cannot_be_written_is_one_line_and_leaves_nothing(command, folder, populus, populus_opt):
    tool, *arguments = command.split(" ")
    suffix = command.partition("OUT")[2].partition(" ")[0]
    places = ["good.npz/inside", "/proc/none"]  # a file where a folder is expected; a folder that nobody may write to
    if suffix:
        places += ["nowhere/out", "folder"]  # a folder that is not there; a folder where a file is expected
        (folder / f"folder{suffix}").mkdir()
        (folder / f"folder{suffix}" / "kept").touch()
    before = sorted(folder.rglob("*"))
    for place in places:
        outcome = {"populus": populus, "populus-opt": populus_opt}[tool](*(a.replace("OUT", place) for a in arguments))
        assert outcome.status == 1, (place, outcome)
        assert_one_line(outcome.err)
        assert sorted(folder.rglob("*")) == before, place


FILES = [command for command in WRITING if command.partition("OUT")[2].startswith(".")]


@pytest.mark.parametrize("command", FILES)
def test_a_command_writes_through_links_and_pipes_and_keeps_modes(command, folder, populus, populus_opt):
    tool, *arguments = command.split(" ")
    suffix = command.partition("OUT")[2].partition(" ")[0]

    def ran(name):
        return {"populus": populus, "populus-opt": populus_opt}[tool](*(a.replace("OUT", name) for a in arguments))

    target, link, pipe = (folder / f"{name}{suffix}" for name in ("target", "link", "pipe"))
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target.name)
    assert ran("link").status == 0
    assert link.is_symlink()
    assert target.read_bytes() not in (b"old", b"")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    os.mkfifo(pipe)
    found, end = [b""], b"the end of the test"
    both = os.open(pipe, os.O_RDWR)  # open for all that the command writes, one plot after the other

    def read():
        while not found[0].endswith(end):
            found[0] += os.read(both, 1 << 16)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert ran("pipe").status == 0
    os.write(both, end)
    reader.join(60)
    os.close(both)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert len(found[0]) > len(end)
    left = sorted(p.name for p in folder.iterdir())
    refused = ran("target" + suffix + "/x")
    assert refused.status == 1
    assert_one_line(refused.err)
    assert sorted(p.name for p in folder.iterdir()) == left


CLOSED = (
    "populus --version",
    "populus check net.onnx",
    "populus docs-op relu",
    "populus-opt good.mlir",
    "populus profile good.mlir --json -",
)


@pytest.mark.parametrize("command", CLOSED)
def test_a_reader_that_goes_away_is_no_error(command, folder):
    tool, *arguments = command.split()
    module = {"populus": "populus", "populus-opt": "populus.tools.populus_opt"}[tool]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        run = [sys.executable, "-m", module, *arguments]
        ran = subprocess.run(run, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writing)
    assert "Error" not in ran.stderr
    assert "Exception" not in ran.stderr


FULL = (*CLOSED, "populus --help", "populus run --help", "populus-opt --help", "populus check net.onnx --json -")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this machine has no /dev/full")
@pytest.mark.parametrize("command", FULL)
def test_a_full_standard_output_is_one_line_and_status_1(command, folder):
    tool, *arguments = command.split()
    module = {"populus": "populus", "populus-opt": "populus.tools.populus_opt"}[tool]
    with open("/dev/full", "w") as full:
        ran = subprocess.run([sys.executable, "-m", module, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ran.returncode == 1, ran.stderr
    assert f"{tool}: the system refused a write or a file: no space left on device\n" in ran.stderr
    assert "internal error" not in ran.stderr
    assert "Exception ignored" not in ran.stderr


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
def test_a_closed_standard_output_is_one_line(folder):
    line = f'exec "{sys.executable}" -m populus check net.onnx >&-'
    ran = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, f"populus: standard output is closed; expected a file, a pipe or {os.devnull}\n")


def test_python_without_docstrings_and_assertions_compiles_and_runs(folder):
    words = ("run", "net.onnx", "--dim", "n=4", "--outputs", "y.npz", "--engine", "numpy")
    ran = subprocess.run([sys.executable, "-OO", "-m", "populus", *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert np.load("y.npz")["y"].shape == (4, 3)
