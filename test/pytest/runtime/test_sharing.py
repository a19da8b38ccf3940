"""A run of the native engine on any number of threads, simulated from the table of its steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import save

import populus
from benchmarks.models import Graph
from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.built.steps import WORDS, Step
from populus.runtime.engine.native.run.sharing import BARRIER, simulated
from populus.runtime.engine.native.run.step_loop import CHUNK
from populus.tools.main import main


def table(*launches: tuple[int, int]) -> Any:
    """Makes the steps of launches, each of (units, ns of work)."""
    rows = np.zeros((len(launches) + 1, WORDS), np.int64)
    for row, (units, work) in zip(rows, launches):
        row[:5] = Step.LAUNCH, 0, 0, units, work
    rows[-1, 0] = Step.STOP
    return rows


def shared(threads: int, *launches: tuple[int, int], times: int = 1) -> Any:
    return simulated(table(*launches), [times] * (len(launches) + 1), {i: f"step {i}" for i in range(len(launches))}, threads)


def test_units_that_divide_evenly_take_equal_time_and_a_barrier() -> None:
    found = shared(4, (64, 64_000), times=3)
    assert (found.launches, found.barriers, found.chunks, found.alone) == (3, 3, 16, 0)
    assert found.speedup == 64_000 / (16_000 + BARRIER)
    assert found.balance == pytest.approx(16_000 / (16_000 + BARRIER))


def test_three_units_keep_one_of_two_threads_waiting() -> None:
    found = shared(2, (3, 30_000))
    assert found.speedup == 30_000 / (20_000 + BARRIER)
    (worst,) = found.starved
    assert (worst.step, worst.lost, worst.units, worst.chunks) == ("step 0", 5_000 + BARRIER, 3, 3)


def test_threads_have_equally_many_chunks() -> None:
    found = shared(2, (100, 20_000))  # five chunks of 4 us would give one thread three of them
    assert found.chunks == 4
    assert found.speedup == 20_000 / (10_000 + BARRIER)


def test_work_of_one_unit_or_of_some_microseconds_is_not_shared() -> None:
    found = shared(16, (1, 50_000), (100, 5_000), (160, 160_000))
    assert (found.launches, found.barriers) == (3, 1)
    assert found.alone == 55_000 / 215_000
    assert [s.step for s in found.starved] == ["step 0", "step 1", "step 2"]


def test_large_shares_begin_at_whole_lines() -> None:
    units = 64 * CHUNK + 1  # the last of four chunks has the odd unit, and others are multiples
    found = shared(4, (units, 12_000))
    assert found.chunks == 4
    assert found.speedup < 12_000 / (3_000 + BARRIER)


def test_one_thread_shares_nothing() -> None:
    found = shared(1, (64, 64_000))
    assert (found.barriers, found.speedup, found.alone, found.starved) == (0, 1, 1, ())


@pytest.fixture
def product(tmp_path: Path) -> Path:
    g = Graph()
    save(g.model("product", g.op("Tanh", g.op("MatMul", "x", g.weight(256, 256))), [256, 256]), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_more_threads_are_bound_and_not_started(product: Path) -> None:
    session = populus.compile(product, target="host", engine="native", threads=1).session
    alone, many = session.sharing(1), session.sharing(64)
    assert (alone.barriers, alone.speedup) == (0, 1)
    assert many.barriers > 0 and 1 < many.speedup <= 64
    assert many == session.sharing(64)


def test_other_engines_have_one_thread(product: Path) -> None:
    session = populus.compile(product, target="host", engine="numpy").session
    with pytest.raises(PopulusError, match="the engine numpy runs on one thread"):
        session.sharing(2)


def test_the_command_prints_the_table_and_the_steps(product: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", str(product), "--engine", "native", "--profile", str(tmp_path / "p.html"), "--json", str(tmp_path / "r.json")]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "a run on more threads, simulated" in printed and "on 64 threads," in printed
    rows = json.loads((tmp_path / "r.json").read_text())["threads"]
    assert [row["threads"] for row in rows] == [2, 16, 64]
    assert main([*words[:2], "--engine", "numpy", *words[4:]]) == 0
    assert json.loads((tmp_path / "r.json").read_text())["threads"] == []
