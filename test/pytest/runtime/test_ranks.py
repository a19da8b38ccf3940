"""Ranks of `mpiexec`: the bits of one process, and one line when a rank is lost, fails, ends early or is elsewhere."""

from pathlib import Path

import pytest

from helpers.rank_program import collectives, meetings
from helpers.ranks import mpiexec, needs_mpi
from populus.dialects.support.diagnostics import PopulusError
from populus.program.replicas import Place
from populus.runtime import guardian, ranks

PROGRAM = Path(__file__).parents[2] / "helpers/rank_program.py"


@needs_mpi
@pytest.mark.parametrize("size", [2, 4])
def test_replicas_of_ranks_have_the_bits_of_one_process(size):
    found = mpiexec(size, PROGRAM, "equal", 4, 8)
    assert found.stdout.split() == [meetings(4), meetings(8), collectives(4)], found.stderr


@needs_mpi
@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("killed", "populus: rank 1 of 2 (process "),
        ("ended", "populus: rank 1 has ended, and replica "),
        ("else", "populus: replicas of one group are at different steps: replica "),
    ],
)
def test_one_line_names_the_rank_that_is_gone(kind, line):
    found = mpiexec(2, PROGRAM, "faults", 2, kind, timeout=60, left=kind == "killed")
    lines = [text for text in found.stderr.splitlines() if text.startswith("populus: ")]
    assert found.returncode and len(lines) == 1 and lines[0].startswith(line), found.stderr


def test_the_launcher_says_who_a_process_is(monkeypatch):
    assert ranks.launched() == (0, 1)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    assert ranks.launched() == (3, 4)


def test_replicas_are_dealt_to_ranks_in_equal_numbers(monkeypatch):
    monkeypatch.setattr("populus.program.replicas.world", lambda: ranks.World(1, 3))
    assert list(Place.of(6).here) == [2, 3]
    with pytest.raises(PopulusError, match="8 replicas cannot be dealt to 3 ranks in equal numbers"):
        Place.of(8)


def test_ranks_without_mpi4py_are_told_what_to_install(monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setitem(__import__("sys").modules, "mpi4py", None)
    monkeypatch.setattr(ranks.world, "cache_clear", ranks.world.cache_clear)
    ranks.world.cache_clear()
    try:
        with pytest.raises(PopulusError, match=r"2 ranks, and mpi4py cannot be loaded .*pip install mpi4py mpich"):
            ranks.world()
    finally:
        ranks.world.cache_clear()


class Said(guardian.Rank):
    """A rank that said something."""

    def __init__(self, number, said=None):
        self.number, self.said, self.place = number, said, "here"


def test_a_message_of_several_ranks_is_printed_once():
    assert guardian.lines(2, [Said(0, "populus: bad"), Said(1, "populus: bad")], []) == ["populus: bad"]
    assert guardian.lines(3, [Said(2, "populus: bad"), Said(1, "populus: worse")], []) == ["populus: worse (rank 1 of 3)"]
    assert guardian.lines(2, [Said(0, ""), Said(1, "")], []) == []


def test_ranks_that_are_gone_in_the_same_moment_are_all_named():
    assert guardian.lines(4, [], [Said(2)]) == [
        "populus: rank 2 of 4 (here) was lost; the others end too, and the newest checkpoint is whole"
    ]
    found = guardian.lines(2, [], [Said(1), Said(0)])
    assert found == ["populus: rank 0 of 2 (here) and rank 1 of 2 (here) were lost; the newest checkpoint is whole"]
