"""Names in a model's file may have any characters: a terminal shows them, and obeys none."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import onnx
import pytest
from onnx import helper

import populus as package
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.errors import printable
from populus.tools.command import LONGEST, line_of

BAD = {
    "an escape sequence": "a\x1b[31mred",
    "a title": "a\x1b]0;title\x07b",
    "a bell and a backspace": "a\x07\x08b",
    "a control of 8 bits": "a\x9b31mb",
    "marks of direction": "a\u202eb\u2066c\u200f",
    "lines": "a\nb\r\nc\u2028d\x85e",
    "an unassigned character": "a\u0378b",
    "markup": "a[red]b[/]",
    "a null": "a\0b",
    "a delete": "a\x7fb",
}
COMMANDS = (
    ("check", "--nodes"),
    ("check",),
    ("check", "--json", "-"),
    ("run", "--engine", "numpy"),
    ("run", "--check-levels"),
    ("profile", "--tiles", "2"),
    ("explore", "--machine", "gc200, tiles=2"),
    ("profile", "--json", "-"),
    ("profile", "--tiles", "2", "--html", "-"),
)


def saved(path, name: str, op: str = "Neg", domain: str = ""):
    info = [helper.make_tensor_value_info(f"{n}{name}", 1, [2]) for n in "xy"]
    node = helper.make_node(op, [info[0].name], [info[1].name], name=f"n{name}", domain=domain)
    imports = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    onnx.save(helper.make_model(helper.make_graph([node], "g", info[:1], info[1:]), opset_imports=imports, ir_version=8), path)


@pytest.mark.parametrize("bad", BAD.values(), ids=list(BAD))
def test_a_command_prints_only_characters_that_show_themselves(bad, tmp_path, populus):
    path = tmp_path / "m.onnx"
    for op, domain in (("Neg", ""), (f"Op{bad}", f"domain{bad}")):
        saved(path, bad, op, domain)
        for command, *options in COMMANDS:
            found = populus(command, path, *options)
            text = found.out + found.err
            assert text.replace("\n", "").isprintable(), (command, options, text)
            assert "internal error" not in text, text
            assert "Traceback" not in text, text


@pytest.mark.parametrize("bad", ["a\nb", "a\x1b[2Jb", "a[bold]b"])
def test_a_table_has_a_line_for_a_node_whatever_its_name(bad, tmp_path, populus):
    saved(tmp_path / "m.onnx", bad)
    found = populus("check", tmp_path / "m.onnx", "--nodes")
    (row,) = (line for line in found.out.splitlines() if line.startswith("Neg"))
    assert f"n{printable(bad)}".replace("\n", "\\n") in row


@pytest.mark.parametrize(
    "words",
    [
        ("reduce", "m{}.onnx", "--while", "true", "-o", "out{}.onnx"),
        ("check", "unknown{}.onnx"),
        ("run-program", "program{}.py", "--profile", "page{}.html"),
        ("run-program", "nothing{}.py", "--profile", "page{}.html"),
        ("run-program", "unknown{}.py"),
        ("new-op", "twofold", "--folder", "folder{}"),
        ("new-pass", "twofold", "--folder", "folder{}"),
        ("new-target", "twofold", "--folder", "folder{}"),
        ("export", "m{}.onnx", "-o", "out{}.onnx"),
        ("build", "m{}.onnx", "--cpu", "wasm32", "-o", "built{}"),
    ],
    ids=" ".join,
)
def test_a_path_is_shown_as_a_name_is(words, tmp_path, populus, monkeypatch):
    bad = "\x1b[31m\u202e\x07"
    monkeypatch.chdir(tmp_path)
    os.mkdir(f"folder{bad}")
    saved(f"m{bad}.onnx", "")
    saved(f"unknown{bad}.onnx", "", "Unknown")
    for name, text in (
        ("program", f"program = populus.compile({f'm{bad}.onnx'!r})\nprogram.run(program.signature.random())"),
        ("nothing", ""),
    ):
        (tmp_path / f"{name}{bad}.py").write_text(f"import populus\n{text}\n")
    (tmp_path / f"unknown{bad}.py").write_text(f"import populus\npopulus.compile({f'unknown{bad}.onnx'!r})\n")
    found = populus(*(word.replace("{}", bad) for word in words))
    text = found.out + found.err
    assert text.replace("\n", "").isprintable(), text
    assert "\\x1b[31m" in text


def test_json_on_standard_output_has_the_name_and_nothing_that_a_terminal_obeys(tmp_path, populus):
    name = "é\u202e\x9b\U0001f600\U000e0001"
    saved(tmp_path / "m.onnx", name)
    found = populus("check", tmp_path / "m.onnx", "--json", "-")
    assert found.out.replace("\n", "").isprintable()
    assert json.loads(found.out)["nodes"][0]["node"] == f"n{name}"


@pytest.mark.parametrize("command", [("check", "--nodes"), ("run", "--engine", "numpy"), ("check", "--json", "-")])
def test_a_stream_of_ascii_takes_every_name(command, tmp_path):
    saved(tmp_path / "m.onnx", "é→\U0001f600")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "NO_COLOR": "1"}
    words = [sys.executable, "-m", "populus", command[0], str(tmp_path / "m.onnx"), *command[1:]]
    found = subprocess.run(words, env=environment, capture_output=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.isascii()
    assert b"u2192" in found.stdout


def test_a_message_has_some_hundred_characters_with_both_ends_of_a_long_name():
    name = f"begin{'x' * 10_000}end"
    line = line_of("populus", PopulusError(f"'{name}': found this, expected that; do something else"))
    assert len(line) <= LONGEST + len("populus: ")
    assert "'begin" in line
    assert line.endswith("end': found this, expected that; do something else")
    assert len(line_of("populus", PopulusError("x" * 10_000))) <= LONGEST + len("populus: ")


def test_an_error_of_the_package_is_printable_too(tmp_path):
    saved(tmp_path / "m.onnx", "a\x1b[31mb", "Op\x1b]0;t\x07")
    with pytest.raises(package.ProgramError) as caught:
        package.compile(tmp_path / "m.onnx")
    assert str(caught.value).isprintable()
