"""The populus command itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib import import_module
from io import StringIO

import numpy as np
import pytest
from onnx import TensorProto, helper, save
from rich.console import Console

from populus.tools.completion import SHELLS
from populus.tools.main import COMMANDS
from populus.write.nets import net


def test_the_module_is_the_command_and_has_versions(populus):
    got = populus("--version")
    assert (got.status, got.err) == (0, "")
    for name in ("populus", "xdsl", "onnx", "numpy", "llvmlite", "Python"):
        assert re.search(rf"{name} (\d|not installed|unknown)", got.out), name
    ran = subprocess.run([sys.executable, "-m", "populus", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == got.out


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_has_commands_and_options(shell, populus):
    if shell != "fish":
        pytest.importorskip("shtab")
    got = populus("--print-completion", shell)
    assert (got.status, got.err) == (0, "")
    assert all(name in got.out for name in COMMANDS)
    assert "check-levels" in got.out, "an option of run"
    if (program := shutil.which(shell)) is not None and shell in ("bash", "fish"):
        subprocess.run([program, "-n"], input=got.out, text=True, check=True)
    wrong = populus("--print-completion", "bashh")
    assert (wrong.status, wrong.err) == (2, "populus: no completion for 'bashh'; did you mean 'bash'?\n")


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_completion_has_the_options_of_populus_opt(shell: str, populus_opt):
    got = populus_opt("--print-completion", shell)
    assert got.status == 0
    assert "mlir-print-ir-after-change" in got.out
    if (program := shutil.which(shell)) is not None and shell in ("bash", "fish"):
        subprocess.run([program, "-n"], input=got.out, text=True, check=True)


def test_nets_of_the_onnx_package_are_models_by_name(populus, populus_opt):
    for arguments in (["squeezenet"], ["--example", "squeezenet"]):
        got = populus("check", *arguments)
        assert (got.status, got.err) == (0, "")
        assert "66 nodes: 66 tile" in got.out
    assert "onnx.Conv" in populus_opt("squeezenet").out
    assert net("squeezenet").name == "light_squeezenet.onnx"
    got = populus("check", "squeeznet")
    assert (got.status, got.err) == (
        1, "populus: squeeznet: no such file, and no net that is here; did you mean 'squeezenet'?\n"
    )  # fmt: skip
    got = populus("run", "squeezenet", "--example", "squeezenet")
    assert (got.status, got.err) == (2, "populus: MODEL and --example are both given; state one of them\n")


@pytest.mark.parametrize(
    ("args", "keys"),
    [
        (["run", "M", "--check-levels", "--expect", "E", "--inputs", "I"], ["outputs", "levels", "comparisons", "failed"]),
        (["check", "M"], ["nodes", "counts", "sizes"]),
        (["profile", "M", "--tiles", "4"], ["summary", "ops", "steps"]),
        (["bench", "M", "--repeat", "1", "--tiles", "4"], ["cycles", "compile_seconds"]),
    ],
    ids=lambda a: a[0],
)
def test_results_are_written_as_json(args, keys, populus, tmp_path):
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Log", ["x"], ["y"], "log")], "g", info[:1], info[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    np.savez(tmp_path / "i.npz", x=np.array([-1, 1], np.float32))
    np.savez(tmp_path / "e.npz", y=np.array([np.nan, 0.5], np.float32))
    files = {"M": tmp_path / "m.onnx", "I": tmp_path / "i.npz", "E": tmp_path / "e.npz"}
    given = [str(files.get(a, a)) for a in args]
    got = populus(*given, "--json", "-")
    assert got.status == (1 if args[0] == "run" else 0), got.err
    found = json.loads(got.out)
    found = found[0] if isinstance(found, list) else found
    assert set(keys) <= set(found)
    if args[0] == "run":
        assert found["outputs"][0] == {"name": "y", "dtype": "float32", "shape": [2], "min": None, "mean": None, "max": None}
        assert found["comparisons"][0]["absolute"] == 0.5
        assert found["failed"] == [found["comparisons"][0]["problem"]]
        assert [c["first"] for c in found["levels"]] == [None] * 4
    said = populus(*given, "--json", tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text()) is not None
    assert f"wrote {tmp_path / 'r.json'}" in said.out


def test_output_is_plain_when_piped_or_asked_for(monkeypatch):
    """A pipe has no colours and is not cut at 80 columns; NO_COLOR has no colours on a terminal."""
    script = "import sys; from populus.tools.main import main; sys.exit(main(['check', 'squeezenet', '--nodes']))"
    monkeypatch.setenv("COLUMNS", "80")
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "\x1b" not in ran.stdout
    assert max(map(len, ran.stdout.splitlines())) <= 80
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Console(file=StringIO(), force_terminal=True, highlight=False)
    terminal.print("[red]differs[/]")
    assert "\x1b[31m" not in terminal.file.getvalue()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name, populus):
    got = populus(name, "--help")
    assert (got.status, got.err) == (0, "")
    assert "--debug" in got.out
    assert import_module(f"populus.tools.{name.replace('-', '_')}").__doc__


def test_help_lists_the_commands(populus):
    got = populus("--help")
    assert got.status == 0
    assert all(summary.split(",")[0] in " ".join(got.out.split()) for summary in COMMANDS.values())


@pytest.mark.parametrize(
    ("args", "message", "status"),
    [
        ([], "populus: the following arguments are required: COMMAND (--help lists the options)\n", 2),
        (["ru"], "populus: no command 'ru'; did you mean 'run'? (--help lists the commands)\n", 2),
        (
            ["bench", "--repeat", "0"],
            "populus: argument --repeat: expected a whole number from 1 on, found '0' (--help lists the options)\n",
            2,
        ),
    ],
)
def test_what_is_no_command_is_one_line(args, message, status, populus):
    got = populus(*args)
    assert (got.status, got.err) == (status, message)


def test_verbose_prints_passes_and_quiet_prints_no_warning(populus, tmp_path):
    net = str(tmp_path / "net.onnx")
    node = helper.make_node("Add", ["x", "x"], ["y"], name="twice")
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, size) for name, size in (("x", [2]), ("y", [3]))]
    save(helper.make_model(helper.make_graph([node], "g", info[:1], info[1:]), opset_imports=[helper.make_opsetid("", 17)]), net)
    plain, verbose, quiet = (populus("run", net, "--no-cache", *more) for more in ((), ("-v",), ("-q",)))
    assert "is stated to be tensor<3xf32>" in plain.err and "ops" not in plain.err
    assert quiet.err == "" and quiet.out.splitlines()[:2] == plain.out.splitlines()[:2]
    passes = [line for line in verbose.err.splitlines() if re.fullmatch(r"[a-z-]+: \d+\.\d{3} s, \d+ to \d+ ops", line)]
    assert {"onnx-infer-shapes", "popart-fuse", "popops-to-poplar"} <= {line.partition(":")[0] for line in passes}
    assert populus("run", net, "-v", "-q").status == 2


def test_help_breaks_no_name_at_its_hyphens_and_groups_options(populus):
    shown = populus("run", "--help").out
    titles = [line for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles[:2] == ["positional arguments:", "options:"] and len(titles) == 8
    assert not [line for line in shown.partition("positional")[2].splitlines() if re.search(r"\w-$", line)]
    of_options = shown.partition("options:")[2].partition("machine and engine:")[0]
    assert of_options.count("\n  -") <= 10
