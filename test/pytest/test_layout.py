"""The repository keeps its own rules: names agree, no link is there, the tables lead to what they name."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from xdsl.ir import Dialect
from xdsl.passes import ModulePass

from benchmarks import structure
from populus.dialects.table import DIALECTS, context
from populus.lowering.driver.passes import PASSES
from populus.lowering.driver.pipeline import FOLDER, Pipeline, names

ROOT = Path(__file__).parents[2]
FOLDERS = ("dialects", "lowering", "runtime", "tools")

# Folders whose READMEs have a table of their files: README -> its folder and the sub-folders for which it has a table as well.
TABLES = {
    "dialects": ("", "signature", "base", "support", "expr"),
    "dialects/onnx": ("",),
    "dialects/stablehlo": ("",),
    "dialects/popart": ("",),
    "dialects/popops": ("",),
    "dialects/poplar": ("", "machines"),
    "lowering": ("", "driver", "onnx", "stablehlo", "popart", "popops", "poplar", "poplar/plan"),
    "runtime": (
        "",
        "engine",
        "codelets",
        "exchange",
        "interpreter",
        "host",
        "engine/native",
        "built",
        "engine/native/codegen",
        "engine/native/frozen",
        "engine/native/kernels",
        "engine/native/run",
    ),
    "runtime/cycles": ("", "ipu", "mesh"),
    "tools": ("", "report"),
    "populus": ("", "program", "training", "write", "compare", "proof", "popart", "popxl", "poptorch", "torch_backend"),
    "populus/exploration": ("",),
    "test": ("", "helpers"),
    "test/fuzz": ("",),
    "test/triples": ("",),
}

HEAD = re.compile(r"^\| (?:file|folder)(?: or (?:file|folder))?(?: of `([\w/]+?)/?`)? \|", re.MULTILINE)


def sources() -> list[Path]:
    return sorted(p for folder in (*FOLDERS, "populus", "test") for p in (ROOT / folder).rglob("*.py") if "Output" not in p.parts)


def test_the_repository_has_no_links():
    """A checkout without them, as on Windows, is the same tree."""
    if not (ROOT / ".git").exists():
        pytest.skip("the files of a repository are asked for")
    listed = subprocess.run(["git", "ls-files", "--stage"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert listed
    assert not [line for line in listed.splitlines() if line.startswith("120000")]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_at_the_top_is_a_package_of_populus(folder):
    assert Path(importlib.import_module(f"populus.{folder}").__file__) == ROOT / folder / "__init__.py"


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect_of_the_table_is_there_under_its_name(name):
    dialect = DIALECTS[name]()
    assert isinstance(dialect, Dialect) and dialect.name == name
    context().load_registered_dialect(name)


def home(name: str) -> str:
    """Gives the module of a pass: `L-verb` is `lowering/L/verb`; `A-to-B` lies with A, but with the tile level if it leads there.

    Four dialects come down to the tile level and share its builder, so their rules stand beside it: `lowering/poplar/from_A`.
    """
    level, _, verb = name.partition("-")
    if name.endswith("-to-poplar"):
        return f"poplar.from_{level}"
    room = {"codelet": "poplar"}.get(level, level)  # codelets are part of the tile level
    return f"{room}.{verb.replace('-', '_')}"


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_has_one_name_in_table_class_file_and_test_folder(name):
    made = PASSES[name]()
    assert issubclass(made, ModulePass) and made.name == name
    assert made.__name__ == "".join(part.capitalize() for part in name.split("-")) + "Pass"
    assert made.__module__ == f"populus.lowering.{home(name)}"
    path = ROOT / "lowering" / home(name).replace(".", "/")
    assert path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()
    assert list((ROOT / "test/filecheck/lowering" / name).glob("*.mlir")), f"test/filecheck/lowering/{name} has no test"
    assert (made.__doc__ or "").strip() and not (made.__doc__ or "").startswith(made.__name__ + "(")


MOST_LINES, MOST_LINES_OF_A_FUNCTION = 450, 70  # a file or function above this has several subjects
STATED = re.compile(r"^\s*# long: \S.*", re.MULTILINE)  # a longer one states its reason in such a comment


def product_sources() -> list[Path]:
    """Gives the Python files of the product: no tests."""
    return sorted(p for folder in (*FOLDERS, "populus") for p in (ROOT / folder).rglob("*.py"))


def too_long(text: str) -> list[str]:
    """Lists a file's length and its long functions, unless the file states the reason."""
    if STATED.search(text):
        return []
    lines = len(text.splitlines())
    found = [f"{lines} lines, at most {MOST_LINES}"] if lines > MOST_LINES else []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MOST_LINES_OF_A_FUNCTION:
                found.append(f"{node.name} has {length} lines, at most {MOST_LINES_OF_A_FUNCTION}")
    return found


def test_files_and_functions_are_short_or_say_why_not():
    long = {p.relative_to(ROOT).as_posix(): too_long(p.read_text()) for p in product_sources()}
    found = {path: reasons for path, reasons in long.items() if reasons}
    assert not found, f"split these by subject, or state the reason in a comment `# long: ...`: {found}"


def test_long_files_and_functions_are_found():
    body = "    pass\n" * MOST_LINES_OF_A_FUNCTION
    assert too_long(f"def f():\n{body}") == ["f has 71 lines, at most 70"]
    assert too_long("x = 1\n" * 451) == ["451 lines, at most 450"]
    assert not too_long(f"def f():\n{body}# long: one table\n") and not too_long("x = 1\n" * 450)


def test_no_module_imports_one_that_leads_back_to_it():
    found = structure.graph(ROOT)
    assert sum(map(len, found.values())) > 2000, "the imports are found"
    assert not (left := structure.circles(found)), f"move what both sides need below both: {[sorted(c) for c in left]}"


def test_a_circle_of_imports_is_found():
    texts = {
        "populus.a": "from populus import b",
        "populus.b": "def f():\n    from populus.c import g\n",
        "populus.c": "import populus.a\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import populus.d\n",
        "populus.d": "import populus.a, populus.e",
        "populus.e": "",
    }
    running, all_ = ({name: structure.imports(text, texts, types) for name, text in texts.items()} for types in (False, True))
    assert structure.circles(running) == [{"populus.a", "populus.b", "populus.c"}]
    assert structure.circles(all_) == [{"populus.a", "populus.b", "populus.c", "populus.d"}]
    two = {"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"c", "e"}, "e": set[str]()}
    assert sorted(map(sorted, structure.circles(two))) == [["a", "b"], ["c", "d"]]
    assert structure.floors(two) == 3


def test_every_file_of_lowering_has_a_room():
    assert [p.name for p in (ROOT / "lowering").glob("*.py")] == ["__init__.py"]
    folders = {p.parent.name for p in (ROOT / "lowering").glob("*/__init__.py")}
    assert folders == {"driver", "onnx", "stablehlo", "popart", "popops", "poplar"}


def test_every_pass_of_lowering_is_in_the_table():
    texts = [path.read_text() for path in sources() if "lowering" in path.parts and "test" not in path.parts]
    found = {name for text in texts for name in re.findall(r'^    name = "([a-z]+-[a-z-]+)"$', text, re.MULTILINE)}
    assert found <= set(PASSES)


@pytest.mark.parametrize("name", names())
def test_a_named_pipeline_reads_and_begins_with_a_remark(name):
    assert Pipeline.named(name).passes
    assert (FOLDER / f"{name}.txt").read_text().startswith("# ")


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_says_what_it_is_in_its_first_line(path):
    tree = ast.parse(path.read_text())
    if tree.body:
        assert ast.get_docstring(tree), f"{path} has no docstring"


def test_folders_of_filecheck_mirror_what_they_test():
    for folder in (ROOT / "test/filecheck").glob("*"):
        if folder.is_dir() and folder.name not in ("Output", "__pycache__"):
            assert folder.name in ("dialects", "lowering", "run", "tools"), folder
    for folder in (ROOT / "test/filecheck/lowering").glob("*/"):
        assert folder.name in PASSES, folder
    for folder in (ROOT / "test/filecheck/dialects").glob("*/"):
        assert folder.name in DIALECTS, folder


def test_requirements_pin_what_the_project_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in lines if "==" in line}
    for requirement in asked:
        name = re.split(r"[\[<>=]", requirement)[0].lower().replace("_", "-")
        assert name in pinned, name


def test_no_helper_of_tests_has_the_name_of_an_installed_package():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    folders = [ROOT / path for path in options["pythonpath"] if path != "."]
    names = {p.stem for folder in folders for p in folder.glob("*.py")}
    names |= {p.parent.name for folder in folders for p in folder.glob("*/__init__.py")}
    assert {"fuzz", "helpers"} <= names
    assert not names & {*packages_distributions(), *sys.stdlib_module_names}


def tables(text: str) -> dict[str, set[str]]:
    """Gives the files and folders named in each table of files, by the sub-folder that the table's head names ("": its own)."""
    found: dict[str, set[str]] = {}
    for head in HEAD.finditer(text):
        rows = text[head.start() :].split("\n\n", 1)[0].splitlines()[2:]
        names = {n.rstrip("/") for row in rows for n in re.findall(r"`([\w.\-]+(?:\.\w+|/))`", row.split(" | ")[0])}
        found.setdefault(head[1] or "", set()).update(names)
    return found


def contents(folder: Path) -> set[str]:
    """Gives the Python files of a folder, but for `__init__.py`, and its folders in which there is a tracked kind of file."""
    kinds = (".py", ".txt", ".mlir", ".json")
    inside = {p.name for p in folder.glob("*.py") if p.name != "__init__.py"}
    folders = {p.name for p in folder.iterdir() if p.is_dir() and p.name != "__pycache__" and any(q.suffix in kinds for q in p.iterdir())}
    return inside | folders


@pytest.mark.parametrize(("readme", "folder"), [(r, f) for r, folders in TABLES.items() for f in folders])
def test_the_table_of_a_room_names_every_file_of_it_and_no_other(readme, folder):
    place = ROOT / readme / folder
    named, there = tables((ROOT / readme / "README.md").read_text()).get(folder, set()), contents(place)
    assert named, f"{readme}/README.md has no table `| file of `{folder}/` |`"
    passes = {Path(f"{home(name).replace('.', '/')}.py") for name in PASSES} if readme == "lowering" else set[Path]()
    missing = {n for n in there - named if Path(folder, n) not in passes}  # a pass has a row in docs/pipelines.md
    assert not missing, f"{readme}/README.md: add {sorted(missing)} to the table of {place.relative_to(ROOT)}/"
    assert not (gone := {n for n in named if not (place / n).exists()}), f"{readme}/README.md: {sorted(gone)} is not in {place}"


def test_every_table_of_files_is_held_to_its_room():
    for page in (p for folder in (*FOLDERS, "populus", "test") for p in (ROOT / folder).rglob("README.md")):
        if found := tables(page.read_text()):
            assert set(found) == set(TABLES[str(page.parent.relative_to(ROOT))]), page


def test_the_map_of_tests_has_a_room_for_every_file_of_tests():
    text = (ROOT / "test/README.md").read_text()
    files = {p.relative_to(ROOT / "test").as_posix() for p in (ROOT / "test/pytest").rglob("test_*.py")}
    assert not (missing := {f for f in files if f"]({f})" not in text}), f"test/README.md: add {sorted(missing)} to a row"
