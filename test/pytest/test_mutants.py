"""`make mutants`: the mistakes that it plants still fit the sources, and a sample of its faults in tile programs is found."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from benchmarks import mutants, tile_mutants
from benchmarks.family_faults import NothingToChange, address, ops, tiles
from benchmarks.source_mistakes import MISTAKES, Mistake
from benchmarks.step_faults import dropped_zeroing
from benchmarks.tile_faults import KINDS
from benchmarks.tile_machine import TileMachine
from benchmarks.tile_mutants import Base, Mutant, judged
from populus.dialects.poplar import ExecuteOp, StorageOp
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text
from populus.runtime.session import Session, graph_of

ROOT = Path(__file__).parents[2]
SMALL = ("images", "loop", "training rows")


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: f"{Path(m.file).stem}: {' '.join(m.old.split())[:40]}")
def test_the_text_that_a_mistake_replaces_stands_once_in_its_file(mistake: Mistake):
    assert (ROOT / mistake.file).read_text().count(mistake.old) == 1
    assert mistake.old != mistake.new
    for check in mistake.checks:
        kind, _, name = check.partition(" ")
        folder = {"lit": "test/filecheck/lowering", "fuzz": "test/fuzz"}.get(kind, "test/pytest")
        assert (ROOT / folder / (f"{name}.py" if kind == "fuzz" else name if kind == "lit" else kind)).exists(), check


def test_there_are_mistakes_of_every_room():
    rooms = [m.file.partition("/")[0] for m in MISTAKES if not m.equivalent]
    assert len(rooms) >= 60
    assert {room: rooms.count(room) >= 8 for room in rooms} == {"lowering": True, "runtime": True, "dialects": True}


def test_a_check_that_a_mistake_breaks_is_told_from_one_that_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "a.py").write_text("x = 1\n")
    monkeypatch.setattr(mutants, "ROOT", tmp_path / "sources")
    monkeypatch.setattr(mutants, "command", lambda check, folder: [sys.executable, "-S", "-c", f"import a; assert {check}"])
    copy = mutants.Copy(tmp_path)
    assert copy.caught(Mistake("a.py", "x = 1", "x = 2", ("a.x > 0", "a.x < 2", "a.x == 1")), ()) == "a.x < 2"
    assert copy.caught(Mistake("a.py", "x = 1", "x = 2", ("a.x > 0",)), ("a.x == 1",)) == "a.x == 1"
    assert copy.caught(Mistake("a.py", "x = 1", "x = 2", ("a.x > 0",)), ()) == ""
    with pytest.raises(SystemExit, match="a.x == 3 fails without a mistake"):
        copy.caught(Mistake("a.py", "x = 1", "x = 2", ("a.x == 3",)), ())
    assert (tmp_path / "sources" / "a.py").read_text() == "x = 1\n"


# -- faults in tile programs


@pytest.mark.parametrize("name", SMALL)
def test_a_machine_of_bytes_computes_what_strict_does(name: str):
    right = tile_mutants.base(name)
    for seed, shared in ((1, False), (2, True)):
        found = TileMachine(graph_of(right.module), seed, shared).run(right.inputs)
        assert {n: np.array_equal(found[n], y, equal_nan=True) for n, y in right.results.items()} == dict.fromkeys(right.results, True)


def test_a_sample_of_planted_faults_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tile_mutants, "PROGRAMS", {name: tile_mutants.PROGRAMS[name] for name in ("images", "loop")})
    kinds = {name: kind for name, kind in KINDS.items() if "argument" not in name}
    monkeypatch.setattr(tile_mutants, "KINDS", kinds)
    score = tile_mutants.scored(range(2 * len(kinds)))
    assert score.of() == 2 * len(kinds)
    assert score.missed == 0
    assert score.of("verifier") > 0
    assert score.of("strict", "fault") > 0
    assert score.of("", "other program") > 0


@pytest.mark.parametrize("seed", [45, 73])
def test_swapped_arguments_of_a_net_change_its_logits(seed: int):
    """Behind the softmax of weights that let activations grow, these had no effect."""
    m = tile_mutants.mutant(seed)
    assert m.base == "shufflenet"
    assert m.kind == "swapped arguments"
    assert judged(m).effect == "other program"


PROGRAM = """
poplar.graph @main target <gc200, tiles = 2> {
  %x = poplar.var "x" on [4 in 2] order [0] at 0 : !poplar.tensor<4xf32>
  %z = poplar.var "z" on [4 in 2] order [0] at 8 : !poplar.tensor<4xf32>
  %y = poplar.var "y" on [4 in 2] order [0] at 16 : !poplar.tensor<4xf32>
  poplar.stream_in "x" to %x : !poplar.tensor<4xf32>
  poplar.execute "z" { poplar.family @fill {value = 3.0 : f32} for (i = 4 in 2) on (i) out y = %z[i] : !poplar.tensor<4xf32> }
  poplar.execute "y" {
    poplar.family @map {expr = #expr.fn<add(_1, _2)>} for (i = 4 in 2) on (i)
      in x1 = %x[i] : !poplar.tensor<4xf32>
      in x2 = %z[i] : !poplar.tensor<4xf32>
      out y = %y[i] : !poplar.tensor<4xf32>
  }
  poplar.stream_out %y to "y" : !poplar.tensor<4xf32>
}
"""
INPUTS = {"x": np.arange(4, dtype=np.float32)}


def module() -> ModuleOp:
    return parse_text(context(), PROGRAM, "program.mlir")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Base(module(), INPUTS, Session(module(), "strict").run(INPUTS))
    monkeypatch.setattr(tile_mutants, "base", lambda name: right)


def changed(change: Callable[[ModuleOp], object]) -> tuple[str, str]:
    made = module()
    change(made)
    verdict = judged(Mutant("small", "", "", made))
    return verdict.by, verdict.effect


def label(made: ModuleOp, name: str) -> StorageOp:
    return next(op for op in ops(graph_of(made), StorageOp) if op.label.data == name)


@pytest.mark.usefixtures("small")
def test_how_changes_are_told_apart():
    assert changed(lambda made: None) == ("", "none")
    assert changed(lambda made: dropped_zeroing(graph_of(made), random.Random(0))) == ("strict", "fault")
    assert changed(lambda made: setattr(label(made, "z"), "address", label(made, "x").address)) == ("strict", "fault")
    assert changed(lambda made: setattr(label(made, "y"), "address", label(made, "z").address)) == ("strict", "none")

    def refilled(made: ModuleOp) -> None:
        fill = next(op for op in ops(graph_of(made), ExecuteOp)).families()[0]
        fill.operands[0] = label(made, "x").result

    assert changed(refilled) == ("strict", "fault")  # z has no value


@pytest.mark.usefixtures("small")
def test_a_fault_that_strict_does_not_find_is_missed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("populus.runtime.engine.program.check_addresses", lambda graph: None)
    assert changed(lambda made: setattr(label(made, "z"), "address", label(made, "x").address)) == ("", "fault")


def test_a_kind_says_that_it_finds_nothing_to_change():
    graph = graph_of(parse_text(context(), "poplar.graph @main target <gc200, tiles = 2> {\n}", "empty.mlir"))
    for kind in (address, tiles, dropped_zeroing):
        with pytest.raises(NothingToChange):
            kind(graph, random.Random(0))
