"""The source distribution and the wheel: built, unpacked in an empty folder, and what pages and notebooks state run from there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from blocks.__main__ import pages
from blocks.pages import PAGES

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
NOTHING_TO_RUN = (
    "CONTRIBUTING.md",
    *(f"docs/{page}-measured.md" for page in ("explore", "mesh", "stablehlo")),
    "docs/popart-api.md",
    "docs/pytorch.md",
    "docs/poptorch-compatibility.md",
    "docs/reliability.md",
    "dialects/README.md",
    "test/README.md",
    "test/triples/README.md",
)
PARTS = ("populus", "dialects", "lowering", "runtime", "tools")
BESIDE = ("test", "docs", "examples", "benchmarks")  # of the source distribution, and not of the wheel
SOURCES = (
    *("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "Makefile", "requirements.txt"),
    *("populus_tiles.py", *PARTS, *BESIDE),
)
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
            shutil.copytree(ROOT / name, top / "copy" / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, top / "copy" / name)
    source = built(top / "copy", "sdist", top / "sdist")
    with tarfile.open(source) as archive:
        archive.extractall(top / "unpacked", filter="data")
    (folder,) = (top / "unpacked").iterdir()
    beside = {p.relative_to(ROOT) for part in BESIDE for p in walked(ROOT / part) if "Output" not in p.parts and p.suffix != ".pyc"}
    assert not (missing := sorted(p for p in beside if not (folder / p).is_file())), missing
    assert (folder / "CHANGELOG.md").is_file()
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
    path = os.pathsep.join((str(installed), str(ROOT / "test")))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    failed = "\n".join(re.findall(r"^.*: failed: .*(?:\n(?!\S+: (?:ran|not run|failed): ).*)*", ran.stdout, re.MULTILINE))
    assert ran.returncode == 0, f"{command}: {failed}{ran.stderr[-2000:]}"
    return ran.stdout


def test_the_wheel_has_every_file_that_the_repository_has(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        there = set(archive.namelist())
        (metadata,) = (n for n in there if n.endswith("dist-info/METADATA"))
        head = HeaderParser().parsestr(archive.read(metadata).decode())
    ours = (p.relative_to(ROOT) for part in PARTS for p in walked(ROOT / part) if p.suffix in KINDS)
    assert {path.as_posix() if path.parts[0] == "populus" else f"populus/{path.as_posix()}" for path in ours} <= there
    assert not [name for name in there if name.startswith(BESIDE)]
    assert head["Name"] == "populus-tiles"
    assert "Topic :: Software Development :: Compilers" in head.get_all("Classifier", [])
    page = head.get_payload()
    assert page.startswith("# Populus")
    assert re.findall(r"\]\(([^)]*)\)", page) == [link for link in re.findall(r"\]\(([^)]*)\)", page) if link.startswith("https://")] != []


KINDS = (".py", ".pyi", ".js", ".css", ".json", ".txt", ".typed", ".c", ".h", ".mk", ".onnx", ".npz")


def walked(folder: Path) -> list[Path]:
    """Lists the files of a folder."""
    return [Path(at) / name for at, _, names in os.walk(folder) for name in names if "__pycache__" not in at]


def grouped() -> list[list[str]]:
    """Gives the pages with blocks: each page that takes something for granted alone, and the others together."""
    alone = [name for name in pages() if name in PAGES]
    return [*([name] for name in alone), [name for name in pages() if name not in PAGES]]


@pytest.mark.parametrize("names", grouped(), ids=lambda names: names[0] if len(names) == 1 else "others")
def test_every_block_of_a_page_does_what_the_page_says(installed: Path, tmp_path: Path, names: list[str]):
    printed = run(installed, tmp_path, "-m", "blocks", "--here", *names)
    assert re.search(r"^\S+: ran: ", printed, re.MULTILINE) or names[0] in NOTHING_TO_RUN


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs_from_its_first_cell_to_its_last(installed: Path, tmp_path: Path, path: Path):
    printed = run(installed, tmp_path, str(ROOT / "docs/site/notebooks.py"), str(path))
    assert printed.count("```python\n") > 2
    assert "```text\n" in printed


def test_the_package_knows_its_version(installed: Path, tmp_path: Path):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run(installed, tmp_path, "-c", "import populus; print(populus.__version__)").strip() == version


def test_the_first_page_is_run_from_the_wheel(installed: Path, tmp_path: Path):
    where = run(installed, tmp_path, "-c", "import populus; print(populus.__file__)").strip()
    assert where == str(installed / "populus" / "__init__.py")
