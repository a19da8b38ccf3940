"""`populus check-op` accepts no wrong definition of the library: each has its line, and no row ends the others."""

from __future__ import annotations

import pytest

from helpers.wrong_ops import ROWS, UNREADABLE, WRONG, WRONG_IN_TWO


def check(populus, folder, text):
    file = folder / "own.py"
    file.write_text(text)
    got = populus("check-op", file)
    return got.status, got.err.replace(f"{folder}/", ""), got.out


def test_the_right_definition_is_accepted(populus, tmp_path):
    assert check(populus, tmp_path, ROWS)[:2] == (0, "")


@pytest.mark.parametrize(("old", "new", "line"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_wrong_definition_has_its_line(old, new, line, populus, tmp_path):
    assert old in ROWS
    status, said, rows = check(populus, tmp_path, ROWS.replace(old, new, 1))
    lines = said.splitlines()
    assert status == 1
    assert [s for s in lines if line in s], said
    assert all(s.startswith("populus: own.py: acme.rows: ") for s in lines)
    assert len({*lines}) == len(lines)
    assert "internal error" not in said
    assert ("docs" in rows) == (": example: " not in said)  # the last row is there, unless there is no example


@pytest.mark.parametrize(("parts", "line"), [w[1:] for w in WRONG_IN_TWO], ids=[w[0] for w in WRONG_IN_TWO])
def test_a_wrong_gradient_beside_another_default_has_its_line(parts, line, populus, tmp_path):
    text = ROWS
    for old, new in parts:
        assert old in text
        text = text.replace(old, new, 1)
    status, said, _ = check(populus, tmp_path, text)
    assert status == 1
    assert line in said


@pytest.mark.parametrize(("old", "new", "line"), UNREADABLE, ids=range(len(UNREADABLE)))
def test_a_file_that_cannot_be_read_is_one_line(old, new, line, populus, tmp_path):
    assert old in ROWS
    status, said, _ = check(populus, tmp_path, ROWS.replace(old, new, 1))
    assert (status, said.count("\n")) == (1, 1)
    assert line in said
