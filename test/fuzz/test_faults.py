"""Samples of calls that fail and of signals while commands write files, as CI runs them; and a program after memory that it did not get."""

from __future__ import annotations

import errno
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import populus
from fuzz import faults
from fuzz.children import mapped
from fuzz.failing_calls import ERRORS, Disk, Memory, Threads
from fuzz.faults import CASES
from populus.dialects.support.output_files import Place, put_in_place
from populus.runtime.engine.native.codegen import jit

HELD = ("refused", "goes on")


@pytest.fixture(autouse=True, scope="module")
def _kept_settings() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("POPULUS_GUARD", raising=False)
        yield


@pytest.mark.parametrize("name", [n for n in CASES if Disk in CASES[n].kinds])
def test_a_write_that_fails_leaves_the_old_file_or_the_new_one(name: str):
    calls = faults.stage().clean(name)[2][Disk]
    assert calls >= 3
    chosen = range(1, calls + 1) if calls <= 6 else [1, calls // 2, calls]
    for i, at in enumerate(chosen):
        kind, why = faults.fail(name, Disk, at, ERRORS[i % 3])
        assert kind in HELD, why


@pytest.mark.parametrize(("name", "at"), [("outputs", 4), ("train", 40), ("threads", 12)])
def test_memory_that_is_refused_is_one_line(name: str, at: int):
    kind, why = faults.fail(name, Memory, at, errno.ENOMEM)
    assert kind == "refused", why


@pytest.mark.parametrize("at", [1, 2])
def test_threads_that_cannot_start_are_done_without(at: int):
    kind, why = faults.fail("threads", Threads, at, 0)
    assert kind == "goes on", why


@pytest.mark.parametrize(
    ("name", "number", "share"),
    [
        ("outputs", signal.SIGTERM, 0.9),
        ("module", signal.SIGINT, 0.97),
        ("train", signal.SIGTERM, 0.8),
        ("cache", signal.SIGINT, 0.6),
        ("export", signal.SIGTERM, 0.99),
        ("build", signal.SIGINT, 0.98),
    ],
)
def test_a_signal_leaves_the_old_file_or_the_new_one(name: str, number: signal.Signals, share: float):
    kind, why = "unheard", ""
    for later in range(4):  # Python drops what a signal raises while a generator or an object is destroyed: one moment in some hundreds
        kind, why = faults.interrupt(name, number, share + later * 0.0017)
        if kind != "unheard":
            break
    assert kind == "interrupted", why


@pytest.mark.parametrize(
    ("name", "which", "most"),
    [
        ("outputs", resource.RLIMIT_FSIZE, 100),
        ("module", resource.RLIMIT_FSIZE, 500),
        ("cache", resource.RLIMIT_AS, 1000),
        ("cache", resource.RLIMIT_AS, 1 << 20),
        ("threads", resource.RLIMIT_AS, 1 << 22),
    ],
)
def test_limits_of_the_system_are_one_line(name: str, which: int, most: int):
    kind, why = faults.limit(name, which, most)
    assert kind == "refused", why


@pytest.mark.parametrize("name", ["cache", "threads"])
def test_memory_that_only_llvm_does_not_get_ends_in_its_line_or_ours(name: str):
    """The limit begins inside LLVM, after what it needs was seen to be there: it ends the process itself, with one line."""

    def limited() -> None:
        optimised = jit.optimised

        def without_memory(*arguments: Any, **named: Any) -> Any:
            resource.setrlimit(resource.RLIMIT_AS, (mapped(), resource.getrlimit(resource.RLIMIT_AS)[1]))
            return optimised(*arguments, **named)

        jit.optimised = without_memory

    kind, why = faults.begun_with(name, limited, "memory that LLVM is refused")
    assert kind in ("aborted by LLVM", "refused"), why


def test_what_a_command_lets_through_is_shown_by_its_lines():
    def broken() -> None:
        raise ValueError("not one of ours")

    kind, why = faults.begun_with("outputs", broken, "an error")
    assert kind == "wrong"
    assert "status 70" in why
    assert "ValueError: not one of ours" in why


def test_a_program_that_did_not_get_memory_runs_again():
    model, x = faults.stage().folder / "before" / "net.onnx", {"x": np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)}
    expected = populus.compile(model, tiles=2, engine="numpy").run(x)["y"]
    program = populus.compile(model, tiles=2, engine="numpy")
    for at in range(1, 40):  # the first run takes memory for all others
        with Memory(at).armed(Path()):
            try:
                found = program.run(x)["y"]
            except MemoryError:
                continue
        assert at > 1
        assert np.array_equal(found, expected)
        return
    raise AssertionError("it runs without memory never")


def test_a_library_that_is_built_on_guarded_memory_is_the_same(monkeypatch: pytest.MonkeyPatch):
    before = faults.stage().clean("build")[0]
    monkeypatch.setenv("POPULUS_GUARD", "1")
    with faults.stage().prepared("guarded", {}) as place:
        assert faults.stage().run(CASES["build"], "before", place).files["net.bin"] == before.files["net.bin"]


@pytest.mark.parametrize("fails", [0, 1, 2])
def test_files_are_put_in_place_together_or_not_at_all(tmp_path: Path, fails: int):
    moves = [(tmp_path / f"new{i}", tmp_path / f"place{i}") for i in range(3)]
    for source, target in moves:
        source.write_text("new")
        if target.name != "place1":
            target.write_text("old")
    moves[fails][0].unlink()
    with pytest.raises(FileNotFoundError):
        put_in_place([(source, Place.of(target)) for source, target in moves])
    assert {p.name: p.read_text() for p in tmp_path.glob("place*")} == {"place0": "old", "place2": "old"}
    assert not list(tmp_path.glob("*.partial"))
