"""Every option of a command that names a file to write, on twelve kinds of paths: what is there stays what it is, and nothing is lost."""

from __future__ import annotations

import argparse
import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from populus.tools.main import COMMANDS, parser_of
from populus.tools.populus_opt import PopulusOpt

ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
NOBODY = 65534
PROGRAM = "import numpy as np, populus\npopulus.compile('model.onnx', tiles=2, cache=False).run({'x': np.ones((2, 4), np.float32)})\n"

# By command and option: the arguments. OUT is the path.
MACHINE = "--target gc200 --tiles 2"
FILES = {
    "run --outputs": "run model.onnx --no-cache --outputs OUT",
    "run --json": "run model.onnx --no-cache --json OUT",
    "run --profile": f"run model.onnx --no-cache {MACHINE} --engine numpy --profile OUT",
    "run --plan-to": f"run model.onnx --no-cache {MACHINE} --plan-to OUT",
    "run-program --profile": "run-program program.py --profile OUT",
    "check --json": "check model.onnx --json OUT",
    "profile --json": f"profile model.onnx {MACHINE} --json OUT",
    "profile --html": f"profile model.onnx {MACHINE} --html OUT",
    "profile --plan-to": f"profile model.onnx {MACHINE} --plan-to OUT",
    "bench --json": "bench model.onnx --json OUT",
    "explore --json": "explore model.onnx --vary tiles=2 --processes 1 --json OUT",
    "explore --csv": "explore model.onnx --vary tiles=2 --processes 1 --csv OUT",
    "explore --parquet": "explore model.onnx --vary tiles=2 --processes 1 --parquet OUT",
    "explore --html": "explore model.onnx --vary tiles=2 --processes 1 --html OUT",
    "explore --log": "explore model.onnx --vary tiles=2 --processes 1 --log OUT",
    "export --output": "export model.onnx -o OUT",
    "reduce --output": "reduce model.onnx --while true -o OUT",
    "demo --web": "demo --web OUT",
    "train --export": "train model.onnx --data data.npz --export OUT",
    "train --history": "train model.onnx --data data.npz --history OUT",
    "train --plot": "train model.onnx --data data.npz --plot OUT",
    "check-compat file": "check-compat --write OUT",
    "bench-op --baseline": "bench-op op.py --write --baseline OUT",
    "populus-opt --output-file": "populus-opt model.onnx -o OUT",
    "populus-opt --save-weights": "populus-opt model.onnx --save-weights OUT",
    "populus-opt --mlir-pass-pipeline-crash-reproducer": (
        "populus-opt model.onnx -p popart-autodiff --mlir-pass-pipeline-crash-reproducer OUT"
    ),
    "build --plan-to": f"build model.onnx -o built --cpu wasm32 {MACHINE} --plan-to OUT",
}
FOLDERS = {
    "build --output": "build model.onnx --cpu wasm32 -o OUT",
    "new-op --folder": "new-op twofold --folder OUT",
    "new-pass --folder": "new-pass twofold --folder OUT",
    "new-target --folder": "new-target twofold --folder OUT",
    "train --checkpoint": "train model.onnx --data data.npz --checkpoint OUT",
    "populus-opt --dump-dir": "populus-opt model.onnx -p onnx-infer-shapes --dump-dir OUT",
}
FAILS = ("populus-opt --mlir-pass-pipeline-crash-reproducer",)  # what it writes is of a run that fails
HYPHEN = ("run --json", "check --json", "profile --json", "profile --html", "bench --json", "explore --json", "populus-opt --output-file")
BEGUN = ("explore --log",)  # a file that is there is another run's, which is not written over
READ = ("bench-op --baseline",)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, its data, an op and a program."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, n]) for name, n in (("x", 4), ("y", 3)))
    weights = numpy_helper.from_array(np.ones((4, 30), np.float32)[:, :3], "w")
    graph = helper.make_graph([helper.make_node("Gemm", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "model.onnx")
    np.savez(tmp_path / "data.npz", x=np.ones((8, 4), np.float32), t=np.zeros(8, np.int64))
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "op.py").write_text((Path(__file__).parents[3] / "examples/leaky_relu.py").read_text())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def call(populus, populus_opt) -> Callable[[str, str], tuple[int, str, str]]:
    """Runs a command of the tables on a path; gives its status and what it says."""

    def run(command: str, path: str) -> tuple[int, str, str]:
        tool, *words = command.split()
        words = [path if word == "OUT" else word for word in words]
        done = populus_opt(*words) if tool == "populus-opt" else populus(tool, *words)
        assert "Traceback" not in done.err and "internal error" not in done.err, done.err
        return done.status, done.out, done.err

    return run


def options() -> set[str]:
    """Gives every option of every command whose value is a file or folder that is written, by what its help says."""
    opt = argparse.ArgumentParser()
    PopulusOpt([]).register_all_arguments(opt)
    parsers = {"populus-opt": opt}
    for name in COMMANDS:
        [commands] = [a for a in parser_of([name])._actions if isinstance(a, argparse._SubParsersAction)]
        parsers[name] = commands.choices[name]
    found: set[str] = set()
    for tool, parser in parsers.items():
        for action in parser._actions:
            of_a_file = str(action.metavar).partition(".")[0] in ("FILE", "DIR")
            words = ("write ", "writes ", "folder for", "keep each", "draw ", "the smallest case", "resume from")
            if (of_a_file and str(action.help).startswith(words)) or "write the module before" in str(action.help):
                found.add(f"{tool} {max(action.option_strings, key=len)}")
    return found


def test_every_option_that_writes_is_in_the_tables():
    tables = {*FILES, *FOLDERS}
    assert options() - tables == set()
    # The others of the tables say in their help what they hold, and --write or the command that they are written.
    assert tables - options() == {"check-compat file", "bench-op --baseline", "new-op --folder", "new-pass --folder", "new-target --folder"}


def read_from(pipe: Path) -> Callable[[], bytes]:
    """Reads a pipe in a thread, once; gives what comes."""
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    return lambda: (reader.join(60), found[0])[1]


def old(path: Path, mode: int = 0o644) -> None:
    """Makes a file that an output replaces. One that a command reads first is of its form."""
    path.write_text("{}")
    path.chmod(mode)


def left(place: Path, before: set[str]) -> set[str]:
    """Gives the names that a command left in its folder, without the file of weights beside a module."""
    return {path.name for path in place.iterdir()} - before - {"out.safetensors", "target.safetensors", "built"}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes with names")
@pytest.mark.parametrize("name", FILES)
def test_an_output_goes_where_its_path_leads(name: str, call, place: Path):
    command, before = FILES[name], {path.name for path in place.iterdir()}
    done = 1 if name in FAILS else 0  # the status of a run that writes
    out, target = place / "out.onnx", place / "target.onnx"

    # A new file; its content is not compared with that of others, which may have times in them.
    assert call(command, "out.onnx")[0] == done and out.stat().st_size > 0
    assert left(place, before) == {"out.onnx"}
    usual = stat.S_IMODE(out.stat().st_mode)
    out.unlink()

    # Devices, a full disk, a pipe and a socket stay what they are.
    assert name in READ or call(command, os.devnull)[0] == done
    assert Path(os.devnull).is_char_device()
    if Path("/dev/full").is_char_device() and name not in READ:
        status, _, said = call(command, "/dev/full")
        assert status == 1 and "/dev/full: cannot be written: " in said
        assert Path("/dev/full").is_char_device()
    if name not in READ:
        os.mkfifo(out)
        content = read_from(out)
        assert call(command, "out.onnx")[0] == done and content()
        assert stat.S_ISFIFO(out.stat().st_mode) and left(place, before) == {"out.onnx"}
        out.unlink()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("out.onnx")
        status, _, said = call(command, "out.onnx")
        assert status == 1 and "out.onnx: cannot be " in said
        assert stat.S_ISSOCK(out.stat().st_mode) and left(place, before) == {"out.onnx"}
    out.unlink()

    # A loop of links, and names that end as those of folders.
    out.symlink_to("out.onnx")
    wrong = {"out.onnx": "symbolic links", "new/": "s a directory", "model.onnx/out.onnx": "ot a directory", "no/out.onnx": "no"}
    for path, why in wrong.items():
        status, _, said = call(command, path)
        assert status == 1 and why in said and len(said.splitlines()) <= 2, said
    assert out.is_symlink() and left(place, before) == {"out.onnx"}
    out.unlink()

    # Links stay links, whether they lead to a file or to none.
    for there in (True, False):
        if there and name not in BEGUN:
            old(target, 0o640)
        out.symlink_to("target.onnx")
        if there or name not in READ:
            assert call(command, "out.onnx")[0] == done
            assert out.is_symlink() and target.stat().st_size > 2
            assert stat.S_IMODE(target.stat().st_mode) == (0o640 if there and name not in BEGUN else usual)
            assert left(place, before) == {"out.onnx", "target.onnx"}
            target.unlink()
        out.unlink()

    # A folder is in the way; modes and owners stay.
    out.mkdir()
    status, _, said = call(command, "out.onnx")
    assert status == 1 and "out.onnx: " in said.lower() and "is a directory" in said.lower()
    assert list(out.iterdir()) == [] and left(place, before) == {"out.onnx"}
    out.rmdir()
    old(out, 0o600)
    if ROOT:
        os.chown(out, NOBODY, NOBODY)
    status, _, said = call(command, "out.onnx")
    assert (status, "there is a log already" in said) == ((1, True) if name in BEGUN else (done, False))
    assert (stat.S_IMODE(out.stat().st_mode), out.stat().st_uid) == (0o600, NOBODY if ROOT else os.geteuid())
    assert (out.read_bytes() == b"{}") is (name in BEGUN)
    out.unlink()

    # One that is closed to us: of a folder of the system, where not even root makes files.
    if Path("/proc/version").exists() and name not in READ:
        status, _, said = call(command, "/proc/out.onnx")
        assert status == 1 and "/proc/out.onnx: cannot be written: " in said

    # Names: the longest, one that is too long, and - .
    longest = "n" * 250 + ".onnx"
    assert call(command, longest)[0] == done
    assert {found[:3] for found in left(place, before)} == {"nnn"}
    for found in left(place, before):
        (place / found).unlink()
    status, _, said = call(command, "n" * 256 + ".onnx")
    assert status == 1 and "ile name too long" in said
    status, printed, said = call(command, "-")
    if name in HYPHEN:
        assert status == done and printed
    else:
        assert status == 1 and "-: cannot be " in said
    assert left(place, before) == set()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes with names")
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_outputs_is_made_or_filled_and_nothing_else_is_put_in_its_place(name: str, call, place: Path):
    command, out = FOLDERS[name], place / "out"
    drafts = name.startswith("new-")  # into a folder that is there, and not over a file
    for kind in ("new", "folder", "link"):
        if kind == "link":
            (place / "target").mkdir()
            out.symlink_to("target")
        elif drafts and kind == "new":
            assert call(command, "out")[0] == 1 and not out.exists()
            out.mkdir()
        assert call(command, "out")[0] == 0
        assert call(command, "out")[0] == int(drafts)
        assert out.is_symlink() is (kind == "link") and any(out.iterdir())
        if kind != "new":
            for path in out.iterdir():
                path.unlink()
            (out.unlink if kind == "link" else out.rmdir)()
        elif drafts:
            for path in out.iterdir():
                path.unlink()
    (place / "target").rmdir()
    old(place / "file")
    os.mkfifo(place / "pipe")
    (place / "link").symlink_to("file")
    (place / "loop").symlink_to("loop")
    for path in ("file", "pipe", "link", "loop", os.devnull, "/proc/out", "n" * 256):
        status, _, said = call(command, path)
        assert status == 1 and path[:100] in said and len(said.splitlines()) == 1, said
    assert (place / "file").read_text() == "{}" and (place / "link").is_symlink() and (place / "pipe").is_fifo()
