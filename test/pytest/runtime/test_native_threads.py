"""The native engine's walk: threads that share launches give the same bits, loops are one native call, signals come through."""

from __future__ import annotations

import ctypes
import gc
import importlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import populus
from helpers.command import Command
from helpers.wheel_models import LEFT_OUT, Case, cases
from populus.dialects.support.diagnostics import PopulusError, verify
from populus.dialects.support.parser import LocatingParser
from populus.dialects.table import context
from populus.runtime.built.steps import PART, PARTS, SHARED, WORDS, Step
from populus.runtime.built.team import Team
from populus.runtime.engine.native.codegen.jit import library
from populus.runtime.engine.native.kernels.launch import _ENTRY  # pyright: ignore[reportPrivateUsage]
from populus.runtime.engine.native.run import image, step_table
from populus.runtime.engine.native.run import program as native_program
from populus.runtime.engine.native.run.program import NativeProgram
from populus.runtime.engine.native.run.step_loop import TAKEN
from populus.runtime.engine.native.run.thread_pool import MOST, team, threads_of
from populus.runtime.session import Session
from populus.write.builder import Builder


@pytest.fixture
def shared(monkeypatch):
    """Every launch is worth sharing, however small."""
    monkeypatch.setattr(image, "LEAST", SHARED)
    monkeypatch.setattr(step_table, "WOKEN", 0)


def parsed(steps: str):
    module = LocatingParser(context(), f"poplar.graph @main target <host, tiles = 4> {{\n{steps}}}", "walk.mlir").parse_module()
    verify(module)
    return module


def same(found, expected):
    assert found.keys() == expected.keys()
    for name, e in expected.items():
        assert found[name].dtype == e.dtype
        assert (found[name] == e).all() if e.dtype.kind in "OSU" else found[name].tobytes() == e.tobytes(), name


CASES = [c for c in cases() if c.name not in LEFT_OUT][::4]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_bits_do_not_depend_on_threads(case: Case, shared):
    programs = [populus.compile(case.path, target="host", tiles=16, dims=case.dims(), engine="native", threads=n) for n in (1, 2, 3)]
    expected = programs[0].run(case.inputs())
    for program in programs[1:]:
        for _ in range(2):
            same(program.run(case.inputs()), expected)


# -- threads -------------------------------------------------------------------------------------------------------------

DOUBLED = """
%x = poplar.var "x" : !poplar.tensor<5000xf32>
%y = poplar.var "y" : !poplar.tensor<5000xf32>
poplar.stream_in "x" to %x : !poplar.tensor<5000xf32>
poplar.execute "first" {
  poplar.family @map {expr = #expr.fn<add(_1, _1)>} for (d0 = 5000) on (d0)
    in x1 = %x[d0] : !poplar.tensor<5000xf32>
    out y = %y[d0] : !poplar.tensor<5000xf32>
}
poplar.repeat 300 {
  poplar.execute "again" {
    poplar.family @map {expr = #expr.fn<add(_1, _2)>} for (d0 = 5000) on (d0)
      in x1 = %x[d0] : !poplar.tensor<5000xf32>
      inout x2 = %y[d0] : !poplar.tensor<5000xf32>
  }
}
poplar.stream_out %y to "y" : !poplar.tensor<5000xf32>
"""
X = np.arange(5000, dtype="f4") % 7


def test_sessions_in_several_python_threads_share_the_workers(shared):
    module, found = parsed(DOUBLED), {}

    def work(i):
        session = Session(module, "native", threads=3)
        found[i] = [session.run({"x": X})["y"] for _ in range(20)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [0, 1, 2]
    for results in found.values():
        for y in results:
            np.testing.assert_array_equal(y, 302 * X)


def test_of_two_threads_each_has_the_same_chunks_in_each_turn():
    found: dict[str, list[int]] = {}
    meet = threading.Barrier(2, timeout=60)  # so both threads have taken a chunk before either takes another

    def kernel(_args: int, first: int, end: int) -> int:
        found.setdefault(threading.current_thread().name, []).append(first)
        assert end == first + 2
        meet.wait()
        return 0

    entry = _ENTRY(kernel)
    steps = np.zeros((2, WORDS), np.int64)
    steps[0, :5] = Step.LAUNCH, ctypes.cast(entry, ctypes.c_void_p).value or 0, 0, 8, 4 * PART
    steps[1, 0] = Step.STOP
    assert PARTS * MOST < (1 << TAKEN) - 1  # chunks of a launch at most, and what a count holds while the job changes
    workers = team(library(), 2)
    for _ in range(3):
        assert workers.walk(steps.ctypes.data, 0, 1 << 40, shared=True) == 1 << 2
    assert found == {threading.current_thread().name: [0, 2] * 3, "populus-1": [6, 4] * 3}


def test_more_threads_than_cpus_do_not_hang(shared):
    session = Session(parsed(DOUBLED), "native", threads=9)
    for _ in range(3):
        np.testing.assert_array_equal(session.run({"x": X})["y"], 302 * X)


def test_threads_end_with_the_last_program_that_needs_them(shared):
    def started(size: int, sessions: int) -> tuple[list[Session], list[threading.Thread]]:
        before = set(threading.enumerate())
        made = [Session(parsed(DOUBLED), "native", threads=size) for _ in range(sessions)]
        for session in made:
            np.testing.assert_array_equal(session.run({"x": X})["y"], 302 * X)
        return made, [t for t in threading.enumerate() if t not in before and t.name.startswith("populus-")]

    for size in (11, 13, 15):
        made, workers = started(size, 2)
        assert len(workers) == size - 1, "two programs of a size share their threads"
        made.pop()
        gc.collect()
        np.testing.assert_array_equal(made[0].run({"x": X})["y"], 302 * X)
        assert all(worker.is_alive() for worker in workers)
        made.clear()
        gc.collect()
        for worker in workers:
            worker.join(60)
            assert not worker.is_alive()


def test_a_forked_process_has_workers_of_its_own(shared):
    session = Session(parsed(DOUBLED), "native", threads=2)
    session.run({"x": X})
    if (child := os.fork()) == 0:
        right = False
        try:
            again = Session(parsed(DOUBLED), "native", threads=2)
            right = all((s.run({"x": X})["y"] == 302 * X).all() for s in (session, again))
        finally:
            os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_number_of_threads_is_that_of_the_caller_the_environment_or_the_cpus(monkeypatch):
    monkeypatch.delenv("POPULUS_THREADS", raising=False)
    assert threads_of() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("POPULUS_THREADS", "7")
    assert threads_of() == 7
    assert threads_of(2) == 2
    for wrong in ("0", "many", "1000"):
        monkeypatch.setenv("POPULUS_THREADS", wrong)
        with pytest.raises(PopulusError, match=f"POPULUS_THREADS = {wrong}; a program runs on 1 to 250 threads"):
            threads_of()


def test_threads_are_refused_where_there_is_one(populus: Command, tmp_path):
    path = next(c.path for c in CASES)
    assert populus("run", path, "--engine", "native", "--threads", "2").status == 0
    outcome = populus("run", path, "--engine", "numpy", "--threads", "2")
    assert outcome.status == 1
    assert "threads = 2 with engine numpy; the native engine runs on 1 thread or more" in outcome.err
    outcome = populus("run", path, "--engine", "native", "--threads", "0")
    assert outcome.status == 2
    assert "argument --threads: expected a whole number from 1 on, found '0'" in outcome.err


# -- interruptions -------------------------------------------------------------------------------------------------------

LONG = DOUBLED.replace("repeat 300", "repeat 1000000000")


@pytest.fixture
def interruptible():
    """SIGINT is an exception, which it is not in a process that was started under `nohup` or in the background of a script."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interruption_ends_a_run_and_leaves_the_session_as_it_was():
    code = f"""
import sys; sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[2])]!r}
import numpy as np, signal, threading, os
from test_native_threads import DOUBLED, LONG, X, parsed
from populus.runtime.engine.native.codegen.jit import library
from populus.runtime.engine.native.kernels.launch import _ENTRY  # pyright: ignore[reportPrivateUsage]
from populus.runtime.built import steps
from populus.runtime.engine.native.run import image, step_table
image.LEAST, step_table.WOKEN = steps.SHARED, 0
from populus.runtime.session import Session
signal.signal(signal.SIGINT, signal.default_int_handler)
long, short = Session(parsed(LONG), "native", threads=2), Session(parsed(DOUBLED), "native", threads=2)
for _ in range(2):
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        long.run({{"x": X}})
    except KeyboardInterrupt:
        print("interrupted")
    print((short.run({{"x": X}})["y"] == 302 * X).all())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["interrupted", "True"] * 2, done.stderr


def test_threads_have_left_compiled_code_before_python_ends():
    """One that comes back while Python ends is unwound beside what ends with it, which may crash."""
    code = f"""
import sys; sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[2])]!r}
import atexit, threading
atexit.register(lambda: print([t.name for t in threading.enumerate() if t.name.startswith("populus-")]))
from test_native_threads import DOUBLED, X, parsed
from populus.runtime.built import steps
from populus.runtime.engine.native.run import image, step_table
image.LEAST, step_table.WOKEN = steps.SHARED, 0
from populus.runtime.session import Session
session = Session(parsed(DOUBLED), "native", threads=3)
session.run({{"x": X}})
print([t.name for t in threading.enumerate() if t.name.startswith("populus-")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["['populus-1', 'populus-2']", "[]"], done


def test_workers_whose_run_never_began_are_sent_home(shared, interruptible, monkeypatch):
    session = Session(parsed(DOUBLED), "native", threads=2)
    team: Team = session._program.team
    walk = team._walk
    monkeypatch.setattr(team, "_walk", lambda *_: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        session.run({"x": X})
    monkeypatch.setattr(team, "_walk", walk)
    np.testing.assert_array_equal(session.run({"x": X})["y"], 302 * X)


# -- control flow --------------------------------------------------------------------------------------------------------

N = "!poplar.tensor<i32>"
P = "!poplar.tensor<i1>"


def family(expr: str, target: str, *operands: str, type: str = N, out: str = N) -> str:
    ins = "\n".join(f"in x{i} = {o}[] : {type}" for i, o in enumerate(operands, 1))
    return f'poplar.execute "e" {{ poplar.family @map {{expr = #expr.fn<{expr}>}} for ()\n{ins}\nout y = {target}[] : {out}\n}}\n'


VARIABLES = "".join(f'%{v} = poplar.var "{v}" : {N}\n' for v in ("n", "i", "total", "old")) + f'%p = poplar.var "p" : {P}\n'
START = VARIABLES + f'poplar.stream_in "n" to %n : {N}\n' + family("mul(_1, 0)", "%i", "%n") + family("mul(_1, 0)", "%total", "%n")
END = f'poplar.stream_out %total to "total" : {N}\n'
STEP = f"poplar.copy %total to %old : {N}\n" + family("add(_1, _2)", "%total", "%old", "%i")
NEXT = f"poplar.copy %i to %old : {N}\n" + family("add(_1, 1)", "%i", "%old")
EVEN = family("equal(bitwise_and(_1, 1), 0)", "%p", "%i", out=P)
BELOW = family("lt(_1, _2)", "%p", "%i", "%n", out=P)
CALLS = "poplar.call @step\npoplar.repeat 3 {\npoplar.call @step\npoplar.call @add\n}\n"
TRIPLE = f"poplar.copy %total to %old : {N}\n" + family("mul(_1, 3)", "%total", "%old")

PROGRAMS = {
    "repeat": (f"poplar.repeat 5 {{\n{NEXT}{STEP}}}\n", lambda n: 15),
    "repeat in repeat": (f"poplar.repeat 3 {{\n{NEXT}poplar.repeat 4 {{\n{STEP}}}\n}}\n", lambda n: 24),
    "repeat nothing": (f"poplar.repeat 0 {{\n{NEXT}{STEP}}}\n", lambda n: 0),
    "while": (f"poplar.while %p : {P} before {{\n{BELOW}}} do {{\n{NEXT}{STEP}}}\n", lambda n: n * (n + 1) // 2),
    "if": (f"poplar.repeat 6 {{\n{NEXT}{EVEN}poplar.if %p : {P} {{\n{STEP}}} else {{\n{TRIPLE}}}\n}}\n", lambda n: 36),
    "switch": (
        f"poplar.repeat 4 {{\n{NEXT}poplar.switch %i : {N} case 2 {{\n{STEP}}} case 3 {{\n{TRIPLE}}} default {{\n{STEP}{STEP}}}\n}}\n",
        lambda n: (2 + 2) * 3 + 8,
    ),
    "call": (
        f"poplar.func @step {{\n{NEXT}poplar.call @add\n}}\npoplar.func @add {{\n{STEP}}}\n{CALLS}",
        lambda n: 1 + 2 * (2 + 3 + 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("threads", [1, 2])
def test_loops_and_branches_are_walked_by_compiled_code(name, threads, shared):
    body, expected = PROGRAMS[name]
    module = parsed(START + body + END)
    for n in (0, 7):
        inputs = {"n": np.array(n, "i4")}
        for engine in ("numpy", "strict"):
            assert Session(module, engine).run(inputs)["total"] == expected(n), engine
        program = NativeProgram(module.body.block.first_op, threads=threads)
        assert not program.fallbacks
        for _ in range(2):
            assert program.run(inputs)["total"] == expected(n)
        assert len(program.table.stops) == 2  # the streams
        steps = itertools.count()
        assert program.run(inputs, lambda step, written, steps=steps: next(steps))["total"] == expected(n)
        assert next(steps) >= 4


# -- which engine runs ---------------------------------------------------------------------------------------------------


def test_without_a_name_programs_of_any_size_are_machine_code_from_the_first_run_on(monkeypatch):
    small, large = parsed(DOUBLED.replace("repeat 300", "repeat 3")), parsed(DOUBLED)
    assert (Session(small).engine, Session(large).engine) == ("native", "native")
    assert Session(small, sample=2).engine == "numpy"
    monkeypatch.setattr(native_program, "library", lambda cpu: importlib.import_module("no_llvmlite_here"))
    assert Session(small).engine == "numpy"
    with pytest.raises(PopulusError, match="the native engine needs llvmlite, which is not installed"):
        Session(small, "native")
    with pytest.raises(PopulusError, match="the native engine checks no sample of vertices"):
        Session(small, "native", sample=2)


@pytest.mark.parametrize("engine", ["auto", "native"])
def test_a_program_has_the_same_bits_in_all_runs_by_default_and_when_native_is_named(engine):
    b = Builder()
    x = b.input("x", (4, 40))
    (y,) = b.op("matmul", x, b.constant(np.random.default_rng(1).standard_normal((40, 24)).astype(np.float32)))
    b.output("y", *b.op("tanh", y))
    program = populus.compile(b.module(), target="host", engine=engine)
    given = {"x": np.random.default_rng(0).standard_normal((4, 40)).astype(np.float32)}
    expected = Session(program.module("poplar"), "native").run(given)["y"]
    for _ in range(120):
        assert program.run(given)["y"].tobytes() == expected.tobytes()
    assert program.session.engine == "native"


def test_a_state_begins_on_the_engine_that_it_stays_on():
    b = Builder()
    h = b.input("h", (4, 8))
    (y,) = b.op("tanh", *b.op("add", b.input("x", (4, 8)), h))
    b.output("h_next", y)
    kept = populus.compile(b.module(), target="host").stateful({"h": "h_next"})
    kept.run({"x": np.ones((4, 8), np.float32)})
    assert kept._session.engine == "native"


def test_where_no_thread_can_be_started_one_does_all(shared, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    np.testing.assert_array_equal(Session(parsed(DOUBLED), "native", threads=7).run({"x": X})["y"], 302 * X)
