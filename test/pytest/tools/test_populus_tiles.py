"""The distribution is `populus-tiles`; a stranger's `populus` in its place is told in one line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from populus_tiles import OURS

ROOT = Path(__file__).parents[3]
STRANGERS = {
    "another package": {"populus/__init__.py": "import pkg_resources_that_is_gone"},
    "a folder, before a package that is linked rather than copied": {
        "populus/notes.txt": "",
        "populus_tiles.py": (ROOT / "populus_tiles.py").read_text(),
    },
    "a file": {"populus.py": "raise SystemExit('ran')"},
    "another package written over ours": {"populus/__init__.py": "", "populus/tools/main.py": "raise SystemExit('ran')"},
}


def start(*folders: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs the console script's module as Python finds it from these folders."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    return subprocess.run(
        [sys.executable, "-m", "populus_tiles", *arguments], cwd=folders[0], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("what", STRANGERS)
def test_a_strangers_populus_in_place_of_ours_is_told_in_one_line_and_not_run(what: str, tmp_path: Path):
    for name, text in STRANGERS[what].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    ended = start(tmp_path, *([] if "populus_tiles.py" in STRANGERS[what] else [ROOT]), arguments=["check", "model.onnx"])
    assert (ended.returncode, ended.stdout) == (1, "")
    assert re.fullmatch(rf"populus: the package 'populus' at {re.escape(str(tmp_path))}\S* is another one, .*\n", ended.stderr), (
        ended.stderr
    )


def test_ours_runs(tmp_path: Path):
    ended = start(tmp_path, ROOT, arguments=["check", "model.txt"])
    said = "populus: model.txt: not an .onnx model, nor a .mlir program of StableHLO; check needs one\n"
    assert (ended.returncode, ended.stderr) == (1, said)


def test_ctrl_c_while_the_command_is_imported_is_one_line(tmp_path: Path):
    """The package that is imported does what Ctrl-C does, at the first line of the command's module."""
    for name, text in {"__init__": f"# {OURS}", "tools/__init__": "", "tools/main": "raise KeyboardInterrupt"}.items():
        path = tmp_path / f"populus/{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    ended = start(tmp_path, ROOT, arguments=["check", "model.txt"])
    assert (ended.returncode, ended.stderr) == (130, "populus: interrupted\n")


def test_the_distribution_has_a_name_of_its_own_and_its_scripts_begin_beside_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["name"] == "populus-tiles"
    names = ("populus", "populus-opt", "populus-gui", "populus-lsp-server")
    assert project["project"]["scripts"] == {name: f"populus_tiles:{name.replace('-', '_')}" for name in names}
    assert project["tool"]["setuptools"]["py-modules"] == ["populus_tiles"]


def test_nothing_suggests_to_install_the_strangers_populus():
    install = re.compile(r"(pip3?|uv|pipx|uvx|poetry|conda)( \S+)*? (install|add)[^\n`&]*\bpopulus(?!-tiles)\b|\bpopulus\[\w")
    assert install.search("pip install 'populus[images]'")
    assert install.search("pip install --upgrade populus")
    assert not install.search("pip install populus-tiles")
    assert not install.search("pip install . && populus demo")
    folders = ("dialects", "docs", "examples", "lowering", "runtime", "tools", "populus", "benchmarks", "test/seeds", "test/exports")
    files = [p for folder in folders for p in (ROOT / folder).rglob("*") if p.suffix in (".md", ".py", ".toml", ".txt", ".html", ".js")]
    assert len(files) > 300
    found = [p for p in [*files, *ROOT.glob("*.md"), *ROOT.glob("*.py"), *ROOT.glob("*.toml")] if install.search(p.read_text())]
    assert found == []
