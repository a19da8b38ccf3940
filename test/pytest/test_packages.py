"""The source distribution and the wheel: built, unpacked in an empty folder, and the first page's commands run from there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALL = "POPULUS_ALL_BLOCKS" in os.environ  # `make blocks`: also the commands that take long
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "populus_tiles.py", "populus", "dialects", "lowering", "runtime", "tools")
BUILD = "from setuptools import build_meta as b; b.build_{}(r'{}')"


def built(folder: Path, kind: str, to: Path) -> Path:
    """Builds a distribution of the project in a folder, as pip does, without its isolation."""
    ran = subprocess.run([sys.executable, "-c", BUILD.format(kind, to)], cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    (found,) = to.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is built from the source distribution, which is built from the repository's files."""
    top = tmp_path_factory.mktemp("packages")
    (top / "copy").mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, top / "copy" / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, top / "copy" / name)
    source = built(top / "copy", "sdist", top / "sdist")
    with tarfile.open(source) as archive:
        archive.extractall(top / "unpacked", filter="data")
    (folder,) = (top / "unpacked").iterdir()
    return built(folder, "wheel", top / "wheel")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the content of the wheel, which is what pip installs."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def run(installed: Path, folder: Path, *command: str) -> str:
    """Runs Python in an empty folder, with the wheel's packages and none of the repository's; gives what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{command}: {ran.stderr[-2000:]}"
    return ran.stdout


def test_the_wheel_has_every_file_that_the_repository_has(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        there = set(archive.namelist())
        (metadata,) = (n for n in there if n.endswith("dist-info/METADATA"))
        head = HeaderParser().parsestr(archive.read(metadata).decode())
    ours = (p.relative_to(ROOT / "populus") for p in walked(ROOT / "populus") if p.suffix in KINDS)
    assert {f"populus/{path.as_posix()}" for path in ours} <= there
    assert not [name for name in there if name.startswith(("test", "benchmarks", "docs"))]
    assert head["Name"] == "populus-tiles"
    assert "Topic :: Software Development :: Compilers" in head.get_all("Classifier", [])


KINDS = (".py", ".pyi", ".js", ".css", ".json", ".txt", ".typed", ".c", ".h", ".mk")


def walked(folder: Path) -> list[Path]:
    """Lists the files of a folder, through links."""
    return [Path(at) / name for at, _, names in os.walk(folder, followlinks=True) for name in names if "__pycache__" not in at]


def commands() -> list[list[str]]:
    """Gives the commands of populus on the first page, as modules for `python -m`."""
    text = re.sub(r"## From a clone.*?(?=^## )", "", (ROOT / "README.md").read_text(), flags=re.DOTALL | re.MULTILINE)
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    found = [[part.strip('"') for part in re.findall(r'"[^"]*"|\S+', line)] for line in lines if line.startswith("populus")]
    modules = {"populus": "populus", "populus-opt": "populus.tools.populus_opt"}
    return [["-m", modules[tool], *arguments] for tool, *arguments in found]


def test_the_first_page_runs_from_the_wheel_in_an_empty_folder(installed: Path, tmp_path: Path):
    where = run(installed, tmp_path, "-c", "import populus; print(populus.__file__)").strip()
    assert where == str(installed / "populus" / "__init__.py")
    shown = commands()
    assert len(shown) == 8
    for command in shown:
        if ALL or not {"check-op", "--check-levels", "--example"} & set(command):  # these have tests of their own
            quick = command if ALL else ["squeezenet" if c == "resnet50" else c for c in command]
            assert run(installed, tmp_path, *quick) or "-o" in quick or "--dump-dir" in quick, command
    assert {"page.html", "twice.py", "model.mlir", "steps"} <= {p.name for p in tmp_path.iterdir()}


def test_the_python_of_the_first_page_runs_from_the_wheel(installed: Path, tmp_path: Path):
    (block,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    printed = run(installed, tmp_path, "-c", block)
    assert "<Program (data_0: f32[1, 3, 224, 224]) -> (softmaxout_1: f32[1, 1000, 1, 1]) on gc200, 1472 tiles" in printed
    assert "poplar.graph @main target <gc200" in printed
