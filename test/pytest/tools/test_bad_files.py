"""Files and names that are none of what a command reads: one line, exit status 1, in time linear in the file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text
from populus.tools.main import main as populus
from populus.tools.populus_opt import main as populus_opt

CONTENTS = {
    "a string that is not closed": b'x = "' + b"a" * 73,
    "brackets": b"[" * 10_000,
    "brackets of an attribute": b"builtin.module attributes {a = " + b"[" * 10_000,
    "regions": b"builtin.module {" * 10_000,
    "objects": b'{"a":' * 10_000,
    "not UTF-8": b"\xe9t\xe9",
    "zeros": bytes(78),
    "a number of many digits": b"9" * 5000,
    "nothing": b"",
}
# The command, with FILE for what is wrong, and how such a file is called.
COMMANDS = [
    "populus run FILE.mlir",
    "populus run FILE.onnx",
    "populus run good.onnx --inputs FILE.npz",
    "populus run good.onnx --expect FILE.pb",
    "populus run good.onnx --pipeline FILE.txt",
    "populus run good.onnx --load FILE.py",
    "populus run good.onnx --plan FILE.plan",
    "populus check FILE.onnx",
    "populus check good.onnx --load FILE.py",
    "populus run-program own.py --load FILE.py",
    "populus build FILE.onnx -o built",
    "populus build good.onnx -o built --pipeline FILE.txt",
    "populus reduce FILE.onnx --against strict",
    "populus reduce FILE.mlir --against strict",
    "populus export FILE.onnx -o out.onnx",
    "populus export FILE.mlir -o out.onnx",
    "populus docs-op leaky_relu --load own.py --tests FILE.py",
    "populus profile FILE.mlir",
    "populus profile FILE.json",
    "populus profile good.onnx --before FILE.json",
    "populus explore FILE.onnx",
    "populus explore good.onnx --technology FILE.json",
    "populus explore good.onnx --resume --log FILE.jsonl",
    "populus check-op FILE.py",
    "populus check-compat FILE.json",
    "populus docs-op --load FILE.py",
    "populus train FILE.onnx --data good.npz",
    "populus train good.onnx --loss mean_squared_error --data FILE.npz",
    "populus train good.onnx --loss mean_squared_error --data good.npz --labels y --batch 4 --validate FILE.npz",
    "populus bench FILE.onnx",
    "populus bench-op FILE.py",
    "populus bench-op own.py --baseline FILE.json",
    "populus-opt FILE.mlir",
    "populus-opt FILE.onnx",
    "populus-opt FILE.mlir --split-input-file",
    "populus-opt FILE.mlir --run-reproducer",
    "populus-opt good.mlir --weights FILE.safetensors",
    "populus-opt good.mlir --pipeline FILE.txt",
    "populus-opt good.mlir --load FILE.py",
]
# No passes, no plans; the log of a run that was killed before its first line.
EMPTY_IS_FINE = (
    "populus run good.onnx --plan FILE.plan",
    "populus-opt good.mlir --pipeline FILE.txt",
    "populus explore good.onnx --resume --log FILE.jsonl",
)
TEXT = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n  %y = popart.neg %x : tensor<2xf32>\n  return %y : tensor<2xf32>\n}"
OWN = Path(__file__).parents[3] / "examples" / "leaky_relu.py"


def run(command: str, file: str) -> int:
    tool, *args = command.replace("FILE", "\0").split()
    return {"populus": populus, "populus-opt": populus_opt}[tool]([a.replace("\0", file) for a in args])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    info = helper.make_tensor_value_info
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [info("x", 1, [2])], [info("y", 1, [2])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), "good.onnx")
    np.savez("good.npz", x=np.ones((4, 2), np.float32), y=np.ones((4, 2), np.float32))
    (tmp_path / "good.mlir").write_text(TEXT)
    (tmp_path / "own.py").write_text(OWN.read_text())
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_of_something_else_is_refused_in_one_line(command, folder, capsys):
    suffix = command.partition("FILE")[2].partition(" ")[0]
    before = sorted(folder.rglob("*"))
    for what, content in CONTENTS.items():
        if what == "nothing" and command in EMPTY_IS_FINE:
            continue
        (folder / f"wrong{suffix}").write_bytes(content)
        assert run(command, "wrong") == 1, what
        error, *source = capsys.readouterr().err.splitlines()
        assert not source or (command.startswith("populus-opt FILE.mlir") and source[1].strip() == "^"), (what, source)
        assert "internal error" not in error, what
    (folder / f"wrong{suffix}").unlink()
    (folder / f"folder{suffix}").mkdir()
    for name in ("missing", "nul\0", os.fsdecode(b"\xe9"), "folder", "good.npz/inside"):
        assert run(command, name) == 1, name
        error = capsys.readouterr().err
        assert error.count("\n") == 1, (name, error)
        assert "internal error" not in error, name
    (folder / f"folder{suffix}").rmdir()
    assert sorted(folder.rglob("*")) == before


def test_an_argument_with_a_nul_says_so(capsys):
    for main in (populus, populus_opt):
        assert main(["a\0.onnx"]) == 1
        assert "argument 'a\\x00.onnx' has a NUL character, which paths and names must not have" in capsys.readouterr().err


@pytest.mark.parametrize("length", [73, 100_000])
@pytest.mark.parametrize("piece", ["a", "\\n", "\\\\", "\\41"])
def test_a_string_that_is_not_closed_is_found_at_once(piece, length):
    with pytest.raises(PopulusError, match=r"^t.mlir:2:1: End of file reached before closing string literal"):
        parse_text(context(), f'\n"{piece * length}\n"', "t.mlir")


def test_a_string_with_every_escape_is_read():
    text = 'builtin.module attributes {a = "tab\\t, line\\n, quote\\", back\\\\, A\\41"} {\n}\n'
    assert parse_text(context(), text, "t.mlir").attributes["a"].data == 'tab\t, line\n, quote", back\\, AA'


def test_a_numeral_that_is_no_digit_is_refused_where_it_stands():
    with pytest.raises(PopulusError, match="^t.mlir:1:32: unexpected character '²'"):
        parse_text(context(), "builtin.module attributes {a = ²} {}", "t.mlir")


@pytest.mark.parametrize("text", ["builtin.module {", "builtin.module attributes {a = " + "["])
def test_what_is_nested_too_deeply_is_refused_at_its_place(text):
    with pytest.raises(PopulusError, match=r"^t.mlir:1:\d+: nested (too deeply to be read|deeper than 64 regions .*)$"):
        parse_text(context(), text[:-1] + text[-1] * 10_000 if text.endswith("[") else text * 10_000, "t.mlir")


def test_a_path_that_is_not_utf_8_is_read_and_written(folder):
    name = os.fsdecode(b"\xe9.mlir")
    (folder / name).write_text(TEXT)
    assert populus(["run", name, "--profile", os.fsdecode(b"\xe9.html")]) == 0
    assert populus_opt([name, "-o", os.fsdecode(b"out\xe9.mlir")]) == 0
    assert 'loc("\\\\udce9.mlir":2:3)' in (folder / os.fsdecode(b"out\xe9.mlir")).read_text()
