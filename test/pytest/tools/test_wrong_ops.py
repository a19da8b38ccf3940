"""`populus check-op` accepts no wrong definition of the library: each has its line, and no row ends the others."""

from __future__ import annotations

import gc
import time

import pytest

from helpers.wrong_ops import COUNTED, ENDLESS, ROWS, UNREADABLE, WRONG, WRONG_IN_TWO
from helpers.wrong_tables import TABLE, WRONG_TABLES
from populus.tools.op_limits import TooLong, limit


def check(populus, folder, text, *options):
    file = folder / "own.py"
    file.write_text(text)
    got = populus("check-op", file, *options)
    return got.status, got.err.replace(f"{folder}/", ""), got.out


def replaced(text, parts):
    for old, new in parts:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


@pytest.mark.parametrize("text", [ROWS, TABLE], ids=["rows", "table"])
def test_the_right_definition_is_accepted(text, populus, tmp_path):
    assert check(populus, tmp_path, text)[:2] == (0, "")


@pytest.mark.parametrize(("old", "new", "line"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_wrong_definition_has_its_line(old, new, line, populus, tmp_path):
    status, said, rows = check(populus, tmp_path, replaced(ROWS, [(old, new)]))
    lines = said.splitlines()
    assert status == 1
    assert [s for s in lines if line in s], said
    assert all(s.startswith("populus: own.py: acme.rows: ") for s in lines)
    assert len({*lines}) == len(lines)
    assert "internal error" not in said
    assert ("docs" in rows) == (": example: " not in said)  # the last row is there, unless there is no example


@pytest.mark.parametrize(("parts", "line"), [w[1:] for w in WRONG_IN_TWO], ids=[w[0] for w in WRONG_IN_TWO])
def test_a_definition_that_is_wrong_in_several_places_has_its_line(parts, line, populus, tmp_path):
    status, said, _ = check(populus, tmp_path, replaced(ROWS, parts))
    assert status == 1
    assert line in said


def test_integers_that_differ_by_one_are_told_apart_however_large_they_are(populus, tmp_path):
    assert check(populus, tmp_path, COUNTED)[:2] == (0, "")
    status, said, _ = check(populus, tmp_path, replaced(COUNTED, [("Arg(1) + 2_000_000", "Arg(1) + 2_000_001")]))
    assert status == 1
    assert "its `evaluate` gives other values than its lowering for y: by up to 1" in said


@pytest.mark.parametrize(("parts", "found"), [w[1:] for w in WRONG_TABLES], ids=[w[0] for w in WRONG_TABLES])
def test_a_wrong_table_or_kernel_has_its_lines(parts, found, populus, tmp_path):
    status, said, _ = check(populus, tmp_path, replaced(TABLE, parts))
    assert status == 1
    assert [line for line in found if line not in said] == [], said
    assert all(s.startswith("populus: own.py: acme.pick: ") for s in said.splitlines())


@pytest.mark.parametrize(("old", "new", "line"), ENDLESS, ids=[e[2] for e in ENDLESS])
def test_what_has_no_end_is_left_after_its_time(old, new, line, populus, tmp_path):
    status, said, _ = check(populus, tmp_path, replaced(ROWS, [(old, new)]), "--seconds", "0.6")
    assert status == 1
    assert [s for s in said.splitlines() if "not done after 0.6 s" in s and line in s], said


def test_tile_code_that_is_not_what_python_computes_is_found(populus, tmp_path, monkeypatch):
    """The machine's code is wrong here, and not the user's."""
    from populus.runtime.interpreter import popops

    def wrong(code, arrays, scalars):
        right(code, arrays, scalars)
        for name in code.outputs:
            arrays[name] += 1

    right = popops.run_tile_code
    monkeypatch.setattr(popops, "run_tile_code", wrong)
    status, said, _ = check(populus, tmp_path, ROWS)
    assert status == 1
    assert "plain Python: codelet total as tile code gives other values than as Python for y: by up to" in said


@pytest.mark.parametrize(("old", "new", "line"), UNREADABLE, ids=range(len(UNREADABLE)))
def test_a_file_that_cannot_be_read_is_one_line(old, new, line, populus, tmp_path):
    status, said, _ = check(populus, tmp_path, replaced(ROWS, [(old, new)]))
    assert (status, said.count("\n")) == (1, 1)
    assert line in said


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of a second alarm in the callback
def test_an_alarm_that_python_drops_comes_again():
    """Other packages have callbacks of the garbage collector, such as Dask's, from which no exception gets out."""
    dropped, last = 0, time.monotonic() + 20

    def callback(phase, info):
        nonlocal dropped
        if not dropped:
            try:
                while time.monotonic() < last:
                    pass
            except TooLong:
                dropped += 1

    def endless():
        while time.monotonic() < last:
            gc.collect(0)

    gc.callbacks.append(callback)
    try:
        with pytest.raises(TooLong, match="not done after 0.05 s, it"), limit(0.05, "own.py", lambda: "it"):
            endless()
    finally:
        gc.callbacks.remove(callback)
    assert dropped == 1
