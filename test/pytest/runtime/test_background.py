"""A small program is compiled by a thread while the numpy engine runs it, and is native after a stated number of runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import populus
from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.engine import background, choice
from populus.runtime.engine.background import AHEAD, Successor
from populus.runtime.engine.choice import runs_on_numpy
from populus.runtime.engine.native import NoMachineCodeError
from populus.runtime.engine.native.codegen import jit
from populus.runtime.engine.program import LoadedProgram
from populus.runtime.session import Session, graph_of
from populus.write.builder import Builder

Array = NDArray[Any]
X = np.random.default_rng(0).standard_normal((4, 40)).astype(np.float32)
RUNS = 20


def product() -> Any:
    b = Builder()
    x = b.input("x", X.shape)
    (y,) = b.op("matmul", x, b.constant(np.random.default_rng(1).standard_normal((40, 24)).astype(np.float32)))
    b.output("y", *b.op("tanh", y))
    return b.module()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes programs native after RUNS runs."""
    monkeypatch.setattr(choice, "COMPILING", 0)
    monkeypatch.setattr(choice, "LEAST", RUNS)


class Fake:
    """A program that has a name only."""

    def __init__(self, name: str):
        self.name = name


def successor(make: Any) -> Successor:
    return Successor(RUNS, make)


FIRST: Any = Fake("first")
SECOND: Any = Fake("second")


def test_the_engine_changes_after_a_stated_number_of_runs_and_so_do_the_bits(soon: None) -> None:
    program = populus.compile(product(), target="host")
    graph = graph_of(program.module("poplar"))
    numpy, native = (Session(graph, engine).run({"x": X})["y"] for engine in ("numpy", "native"))
    assert np.abs(numpy - native).max() < 1e-5
    for run in range(2 * RUNS):
        result = program.run({"x": X})["y"]
        assert program.session.engine == ("numpy" if run < RUNS else "native"), run
        np.testing.assert_array_equal(result, numpy if run < RUNS else native)


def test_sizes_of_an_open_program_go_over_each_by_itself(soon: None) -> None:
    from benchmarks.models import Graph

    g = Graph()
    model = g.model("open", g.op("MatMul", "x", g.weight(40, 40)), ["batch", 40])
    program = populus.compile(model, target="host")
    for run in range(RUNS + 1):
        result = program.run({"x": X})
        inner = program.program_for({"x": X}).session
        assert inner.engine == ("numpy" if run < RUNS else "native")
        assert next(iter(result.values())).shape == X.shape


def test_only_programs_of_the_user_without_states_and_of_engine_auto_go_over() -> None:
    program = populus.compile(product(), target="host")
    graph = graph_of(program.module("poplar"))

    def follows(session: Session) -> bool:
        return session._successor is not None  # pyright: ignore[reportPrivateUsage]

    assert follows(program.session) and follows(Session(graph, ahead=True))
    assert not follows(Session(graph))
    for options in ({"engine": "numpy"}, {"engine": "native"}, {"engine": "strict"}, {"sample": 1}, {"views": True}):
        assert not follows(Session(graph, ahead=True, **options)), options  # pyright: ignore[reportArgumentType]


def test_the_number_of_runs_follows_from_the_program_alone() -> None:
    program = populus.compile(product(), target="host")
    graph = graph_of(program.module("poplar"))
    families = sum(1 for op in graph.walk() if op.name == "poplar.family")
    assert runs_on_numpy(graph) == choice.COMPILING // (choice.points(graph) + families * choice.CALL)


def test_runs_go_on_while_the_thread_compiles_and_wait_only_at_their_number() -> None:
    begun, finish, returned = Event(), Event(), Event()

    def make() -> LoadedProgram:
        begun.set()
        finish.wait()
        return SECOND

    following = successor(make)
    for run in range(RUNS):
        assert following.after(FIRST) is FIRST
        if run == RUNS // AHEAD:
            begun.wait()
    found: list[Any] = []
    waiting = Thread(target=lambda: (found.append(following.after(FIRST)), returned.set()))
    waiting.start()
    assert not returned.is_set()
    finish.set()
    waiting.join()
    assert found == [SECOND]
    assert following.after(SECOND) is SECOND


def test_no_thread_starts_for_a_few_runs() -> None:
    following = successor(lambda: pytest.fail("made"))
    for _ in range(RUNS // AHEAD):
        assert following.after(FIRST) is FIRST


def test_without_machine_code_or_threads_the_program_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> LoadedProgram:
        raise NoMachineCodeError("no compiler")

    following = successor(none)
    assert all(following.after(FIRST) is FIRST for _ in range(3 * RUNS))

    def refuse(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(background.threading.Thread, "start", refuse)
    following = successor(lambda: SECOND)
    assert all(following.after(FIRST) is FIRST for _ in range(3 * RUNS))


def test_an_error_of_the_compiler_is_raised_when_its_program_is_due() -> None:
    def fail() -> LoadedProgram:
        raise PopulusError("a mistake")

    following = successor(fail)
    assert all(following.after(FIRST) is FIRST for _ in range(RUNS))
    with pytest.raises(PopulusError, match="a mistake"):
        following.after(FIRST)


def test_a_thread_gives_up_before_the_next_kernel_when_nobody_waits() -> None:
    begun, go, ended = Event(), Event(), Event()
    compiled: list[str] = []

    def make() -> LoadedProgram:
        begun.set()
        go.wait()
        try:
            jit.BEFORE.get()()
            compiled.append("kernel")
        finally:
            ended.set()
        return SECOND

    following = successor(make)
    for _ in range(RUNS // AHEAD + 1):
        following.after(FIRST)
    begun.wait()
    del following
    go.set()
    ended.wait()
    assert not compiled


PROCESS = """
import os, sys
import numpy as np
import populus
from populus.write.builder import Builder
from populus.runtime.engine import choice
choice.COMPILING, choice.LEAST = 0, 20
b = Builder()
(y,) = b.op("matmul", b.input("x", (4, 40)), b.constant(np.ones((40, 24), np.float32)))
b.output("y", *b.op("tanh", y))
program = populus.compile(b.module(), target="host")
x = {"x": np.ones((4, 40), np.float32)}
first = [program.run(x)["y"] for _ in range(4)][0]
"""


def ended(rest: str, cache: Path) -> tuple[int, str, str]:
    """Runs a process that goes on with `rest` while its thread compiles; gives its status and texts."""
    words, environment = [sys.executable, "-W", "ignore", "-c", PROCESS + rest], {**os.environ, "POPULUS_CACHE": str(cache)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("rest", ["sys.exit(3)", "del program"])
def test_a_process_ends_while_the_thread_compiles(rest: str, tmp_path: Path) -> None:
    assert ended(rest, tmp_path) == (3 if "exit" in rest else 0, "", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_waits_for_the_thread_and_both_processes_go_over(tmp_path: Path) -> None:
    rest = """
child = os.fork()
for _ in range(30):
    last = program.run(x)["y"]
assert program.session.engine == "native"
np.testing.assert_allclose(last, first, rtol=1e-6)
if child == 0:
    os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert ended(rest, tmp_path) == (0, "5\n", "")
