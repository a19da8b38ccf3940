"""`make mutants`: how mistakes are drawn from the sources, and how what catches one is told."""

from __future__ import annotations

import ast
import os
import shlex
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks import drawn_mutants
from benchmarks.drawn_mistakes import COUNT, LEFT_OUT, ROOT, SHARES, Drawn, changes, drawn, edits, files, kept, read
from benchmarks.drawn_mutants import CHECKS, LIT, NETS, Plants, checks_of, failure, table

TEXT = '''"""A docstring with 3 numbers."""
from a import b

STEP = -4
Shape = tuple[int, 2]

def f(x: int = 1) -> tuple[int, 7]:
    """Gives 5."""
    assert x < 8, 9
    if x > 2 and g(x, 1.5):
        h(x)
    if not x:
        raise ValueError(f"{x - 1} is not {x + 3}")
    return max(x - y, z[i:j]), flag

def _cycles(v):
    return v + 1

def ours(v: Vertex) -> int:
    return v + 1
'''


def applied(kind: str) -> set[str]:
    """Gives the lines that the edits of a kind make of the text."""
    found = [(TEXT.splitlines(), e.applied(TEXT).splitlines()) for e in edits("a.py", TEXT) if e.kind == kind]
    return {" ".join(b.split()) for before, after in found for a, b in zip(before, after, strict=True) if a != b}


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("a sign dropped", {"STEP = 4"}),
        ("< for <=", {"if x >= 2 and g(x, 1.5):"}),
        ("and for or", {"if x > 2 or g(x, 1.5):"}),
        ("a condition dropped", {"if True and g(x, 1.5):", "if x > 2 and True:"}),
        ("a condition turned round", {"if not (x > 2 and g(x, 1.5)):"}),
        ("an `if` dropped", {"if True:", "if False:"}),
        ("a step dropped", {"pass"}),
        ("a wrong constant", {"if x > 2 and g(x, 2.5):"}),
        ("+ for -", {"return max(x + y, z[i:j]), flag"}),
        ("swapped operands", {"return max(y - x, z[i:j]), flag"}),
        ("min for max", {"return min(x - y, z[i:j]), flag"}),
        ("swapped axes or items", {"return flag, max(x - y, z[i:j])"}),
        ("swapped arguments", {"if x > 2 and g(1.5, x):", "return max(z[i:j], (x - y)), flag"}),
    ],
)
def test_a_kind_of_mistake_changes_these_lines(kind: str, lines: set[str]):
    assert applied(kind) == lines


def test_offsets_and_bounds_move_by_one_and_text_that_computes_nothing_stays():
    lines = applied("an offset or bound by 1")
    assert "return max(x - y, z[(i) + 1:j]), flag" in lines
    assert {"STEP = -5", "STEP = -3", "def f(x: int = 2) -> tuple[int, 7]:", "def f(x: int = 0) -> tuple[int, 7]:"} <= lines
    assert all(not line.startswith(("assert", "raise", "Shape", '"""')) and "tuple[int, 8]" not in line for line in lines)
    assert {e.function for e in edits("a.py", TEXT)} == {"", "f"}, "costs are left out"


def test_the_draw_is_that_of_the_seed_and_every_mistake_is_another_program():
    found, few = drawn(), drawn(count=20)
    assert few == drawn(count=20) != drawn(seed=1, count=20)
    assert len(found) == COUNT >= 150
    assert len({(e.file, e.begin, e.end) for e in found}) == COUNT
    for e in few:
        assert changes(e, (ROOT / e.file).read_text()), e
    each = Counter(next(folder for folder in SHARES if e.file.startswith(folder)) for e in found)
    assert each == {folder: round(share * COUNT) for folder, share in SHARES.items()}
    assert len({e.kind for e in found}) >= 12


def test_what_is_left_out_is_there_and_has_a_reason():
    for name, reason in LEFT_OUT.items():
        assert (ROOT / name).exists(), name
        assert len(reason) > 2
    assert all(ast.parse((ROOT / name).read_text()).body for folder in SHARES for name in files(folder))


def test_the_mistakes_that_are_kept_are_programs_that_stand_in_the_sources():
    """Where the sources have changed since, `python -m benchmarks.drawn_mistakes --draw` draws others."""
    mistakes = read()
    assert len(mistakes) == COUNT
    standing = [m for m in mistakes if m.stands]
    assert len(standing) > COUNT / 2
    for m in standing[::10]:
        text = (ROOT / m.file).read_text()
        assert ast.dump(ast.parse(text.replace(m.old, m.new))) != ast.dump(ast.parse(text))
    assert all(len(m.equivalent) > 20 for m in mistakes if m.equivalent)
    assert not [m for m in mistakes if m.equivalent and m.caught]
    assert {m.caught[0] for m in mistakes if m.caught} <= set(NETS)


def test_a_mistake_is_kept_with_lines_that_stand_once():
    text = "a = 1\nb = 2\na = 1\nb = 3\n"
    made = [kept(e, text) for e in edits("a.py", text)]
    assert all(text.count(m.old) == 1 for m in made)
    assert "a = 2\nb = 3\n" in {text.replace(m.old, m.new)[12:] for m in made}


def test_each_file_has_checks_that_exist():
    for folder in SHARES:
        for file in files(folder):
            assert {net for net, _ in checks_of(file)} >= set(NETS) - {"FileCheck"}
    for _, tests in CHECKS:
        assert all((ROOT / "test/pytest" / name.partition(" ")[0]).exists() for name in tests), tests
    assert all((ROOT / "test/filecheck/lowering" / name).is_dir() for name in LIT.values())


# -- one mistake


@pytest.fixture
def plants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plants:
    (tmp_path / "sources/lowering").mkdir(parents=True)
    (tmp_path / "sources/lowering/drawn.py").write_text("x = 1\n")

    def text() -> str:
        return Path("lowering/drawn.py").read_text()

    def readable() -> bool:
        return shlex.split(os.getcwd()) == [os.getcwd()]

    checks = {
        "readable by a shell": readable,
        "reads": lambda: int(text()[4:]) >= 0,
        "holds": lambda: text() == "x = 1\n",
        "never": lambda: False,
    }
    kinds = {"is": lambda name: "" if checks[name]() else f"{name} fails", "agreeing": lambda _: ""}
    monkeypatch.setattr(drawn_mutants, "ROOT", tmp_path / "sources")
    monkeypatch.setattr(drawn_mutants, "KINDS", kinds)
    monkeypatch.setattr(
        drawn_mutants,
        "checks_of",
        lambda _: [("a", "is readable by a shell"), ("a", "is reads"), ("b", "is never"), ("c", "is holds"), ("c", "is reads")],
    )
    return Plants(tmp_path, tmp_path / "cache")


def test_the_first_net_that_catches_is_told_and_one_that_always_fails_catches_nothing(plants: Plants, capsys: pytest.CaptureFixture[str]):
    def caught(new: str, every: bool = False) -> list[tuple[str, str]]:
        return list(plants.caught(0, Drawn("lowering/drawn.py", "", "", "x = 1\n", f"x = {new}\n"), every, None))

    assert caught("2") == [("c", "holds fails")]
    assert "never fails fails without a mistake" in capsys.readouterr().err
    assert caught("y") == [("a", "is reads: ValueError: invalid literal for int() with base 10: 'y\\n'")]
    assert caught("y", every=True)[1:] == [("c", "holds fails")]
    assert (plants.right / "lowering/drawn.py").read_text() == "x = 1\n"


def test_a_mistake_that_hangs_crashes_or_eats_memory_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def hang(_: str) -> str:
        while True:
            pass

    def sleep(_: str) -> str:
        time.sleep(60)
        return ""

    def crash(_: str) -> str:
        os.abort()

    def eat(_: str) -> str:
        return str(np.ones(1 << 40).size)

    kinds = {"hang": hang, "sleep": sleep, "crash": crash, "eat": eat}
    monkeypatch.setattr(drawn_mutants, "KINDS", kinds)
    monkeypatch.setattr(drawn_mutants, "SECONDS", 1)
    monkeypatch.setattr(drawn_mutants, "WALL", 5)
    found = {kind: failure(tmp_path, tmp_path, kind) for kind in kinds}
    assert found["hang"] in ("hang: does not end", "hang: SIGXCPU")
    assert found["sleep"] == "sleep: does not end"
    assert found["crash"] == "crash: SIGABRT"
    assert "MemoryError" in found["eat"]


def test_a_mutated_kernel_is_compiled_and_not_taken_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Objects are named by their text: a copy with a mistake in a kernel's text gives another result, from the same cache."""
    monkeypatch.setattr(drawn_mutants, "KINDS", {"run": _summed, "agreeing": lambda _: ""})
    plants = Plants(tmp_path, tmp_path / "cache")
    file = "runtime/engine/native/kernels/formulas.py"
    text = (ROOT / file).read_text()
    assert text.count("AddfOp") == 1
    mistake = Drawn(file, "", "", "AddfOp", "SubfOp")
    monkeypatch.setattr(drawn_mutants, "checks_of", lambda _: [("run", "run")])
    assert failure(plants.right, plants.cache, "run") == ""
    assert list(plants.caught(0, mistake, False, None)) == [("run", "[-1.0, -1.0]")]
    assert failure(plants.right, plants.cache, "run") == ""


def _summed(_: str) -> str:
    import populus
    from benchmarks.models import Graph

    g = Graph()
    program = populus.compile(g.model("sum", g.op("Add", "x", g.constant([2.0, 3.0])), [2]), engine="native")
    found = program.run({"x": np.array([1, 2], np.float32)})["y"].tolist()
    return "" if found == [3.0, 5.0] else str(found)


def test_the_table_counts_the_net_that_caught_first():
    mistakes = [
        Drawn("lowering/popops/fuse.py", "", "", "", "", ("triples", "a")),
        Drawn("lowering/poplar/map.py", "", "", "", "", missed=True),
        Drawn("lowering/poplar/graph.py", "", "", "", ""),
        Drawn("lowering/poplar/map.py", "", "", "", "", equivalent="no effect"),
        Drawn("lowering/popops/fuse.py", "", "", 'name = "popops-fuse"', ""),
    ]
    rows = table(mistakes)
    assert "| lowering/poplar | 3 |  |  |  |  |  | 1 | 1 | 1 |  |" in rows
    assert rows[-1] == "| all | 5 |  |  | 1 |  |  | 1 | 1 | 1 | 1 |"
