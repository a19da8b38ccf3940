"""Many threads at one program, at the compiler and at sessions: each gets what it would have got alone, or one line that refuses it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import populus
from helpers.concurrent_runs import THREADS, inputs_of, model, models, same, together
from populus import popxl
from populus.dialects.data import TABLE, store
from populus.dialects.onnx.schema import _make, op_class
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.guard import once
from populus.dialects.support.output_files import replacing
from populus.lowering.driver import extensions
from populus.popxl import ops
from populus.program.open_program import OpenProgram
from populus.program.program import Program
from populus.runtime.session import Session
from populus.training.session import TrainingSession
from populus.write.builder import Builder

ENGINES = ("numpy", "native", "strict")
HERE = Path(__file__).parent
NETS = models()


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """Objects and programs on disk are this test's own, so that all are made here."""
    monkeypatch.setenv("POPULUS_CACHE", str(tmp_path / "cache"))


def compiled(name: str, engine: str = "numpy", **options) -> Program:
    return populus.compile(NETS[name], engine=engine, tiles=4, **options)


def alone(program: Program, count: int = THREADS):
    """Inputs, and what one thread makes of them."""
    inputs = [inputs_of(program, seed) for seed in range(count)]
    return inputs, [program.run(given) for given in inputs]


# -- one program ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["product", "loop", "strings"])
def test_each_of_16_threads_gets_the_results_of_its_own_inputs(name, engine):
    program = compiled(name, engine)
    inputs, expected = alone(program)
    runs = 8 if engine == "strict" else 30
    found = together(lambda i: [same(program.run(inputs[(i + k) % THREADS]), expected[(i + k) % THREADS]) for k in range(runs)])
    assert all(all(f) for f in found)


@pytest.mark.parametrize("level", ["popart", "popops"])
def test_levels_above_the_tiles_are_run_by_many_threads(level):
    program = compiled("loop", level=level)
    inputs, expected = alone(program)
    assert all(together(lambda i: same(program.run(inputs[i]), expected[i])))


def test_a_session_is_loaded_and_a_level_made_once(monkeypatch):
    made: list[str] = []
    loaded, lowered = Session.__init__, Program._compiled
    monkeypatch.setattr(Session, "__init__", lambda self, *a, **k: (made.append("session"), loaded(self, *a, **k))[1])
    monkeypatch.setattr(Program, "_compiled", lambda self, level, *a: (made.append(level), lowered(self, level, *a))[1])
    program = compiled("product", "native")
    found = together(lambda i: (id(program.session), id(program.module("popops")), program.profile().summary["cycles"]))
    assert len(set(found)) == 1
    assert sorted(made) == ["poplar", "popops", "session"]


def test_a_program_is_looked_at_while_others_run_it():
    program = compiled("window")
    inputs, expected = alone(program)
    summary, text = program.profile().summary, str(program.module("poplar"))

    def work(i):
        if i % 2:
            return all(same(program.run(inputs[i]), expected[i]) for _ in range(20))
        return program.profile().summary == summary and str(program.module("poplar")) == text

    assert all(together(work))


def test_a_run_that_raises_lets_the_others_go_on():
    program = populus.compile(model("net (string[2] x) => (float[2] y) { y = Cast<to = 1>(x) }"), engine="numpy", tiles=4)

    def work(i):
        right = 0
        for k in range(20):
            texts = np.array([str(i), "none" if (i + k) % 2 else str(k)], object)
            try:
                right += program.run({"x": texts})["y"].tolist() == [i, k]
            except PopulusError as error:
                right += "none" in str(error) and (i + k) % 2 == 1
        return right

    assert together(work) == [20] * THREADS
    assert not program.session._program._run_inputs


def test_tasks_of_asyncio_run_one_program():
    program = compiled("product", "native")
    inputs, expected = alone(program)

    async def all_of_them():
        return await asyncio.gather(*(asyncio.to_thread(program.run, given) for given in inputs * 4))

    assert all(same(f, e) for f, e in zip(asyncio.run(all_of_them()), expected * 4, strict=True))


def test_an_observer_may_not_run_the_session_that_it_observes():
    program = compiled("product")
    (given,), (expected,) = alone(program, 1)
    with pytest.raises(PopulusError, match="the program is in a run that this thread has not finished; run it after that"):
        program.session.run(given, lambda step, written: program.session.run(given))
    assert same(program.run(given), expected)


def test_a_session_of_views_is_for_one_thread():
    program = compiled("product")
    (given,), (expected,) = alone(program, 1)
    session = Session(program.module("poplar"), "numpy", views=True)
    views = session.run(given)
    with pytest.raises(PopulusError, match="views of its memory, which thread 'MainThread' reads; load a session for each thread"):
        together(lambda i: session.run(inputs_of(program, 1)), 2)
    assert same(views, expected)


# -- what a run gives is the caller's ------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["popart", "popops", "poplar"])
def test_results_share_no_memory_with_inputs_constants_or_each_other(level):
    w = np.arange(100, dtype=np.float32)
    text = "net (float[100] x) => (float[100] y, float[100] z, float[100] c) { y = Identity(x) z = Identity(x) c = Identity(w) }"
    program = populus.compile(model(text, w=w), level=level, engine="numpy", tiles=4)
    x = np.ones(100, np.float32)
    first = program.run({"x": x})
    x[:] = 5
    first["y"][:] = 7
    assert (first["z"] == 1).all()
    first["c"][:] = 9
    second = program.run({"x": x})
    assert (second["c"] == w).all() and (second["y"] == 5).all()
    assert (first["y"] == 7).all() and (first["c"] == 9).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_constant_is_what_its_array_was_when_it_was_given(engine):
    w = np.arange(256, dtype=np.float32).reshape(16, 16)
    with Builder() as b:
        (y,) = b.op("add", b.input("x", (16, 16)), b.constant(w, "w"))
        b.output("y", y)
    program = populus.compile(b.module(), engine=engine, tiles=4)
    w[:] = 0
    y = program.run({"x": np.zeros((16, 16), np.float32)})["y"]
    np.testing.assert_array_equal(y, np.arange(256, dtype=np.float32).reshape(16, 16))


# -- compiling -----------------------------------------------------------------------------------------------------------


def test_16_threads_compile_the_same_models_and_different_ones(own_cache):
    names = list(NETS)
    expected = {name: str(compiled(name).module("poplar")) for name in names}

    def work(i):
        name, engine = names[i % 6], ENGINES[i % 3]
        program = compiled(name, engine, cache=True)
        given = inputs_of(program, i)
        return name, engine, given, program.run(given), str(program.module("poplar"))

    for name, engine, given, outputs, text in together(work):
        assert text == expected[name]
        assert same(outputs, compiled(name, engine).run(given))


def test_a_process_compiles_for_the_first_time_in_16_threads():
    code = f"""
import sys; sys.path.append({str(HERE.parent)!r})
from helpers.concurrent_runs import models, together, inputs_of, same
import populus
nets = list(models().values())
def made(i):
    program = populus.compile(nets[i % 6], engine=("numpy", "native")[i % 2], tiles=4)
    return program.run(inputs_of(program, 0))
found = together(made)
print([same(found[i], found[i + 6]) for i in range(10)])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == str([True] * 10), done.stderr


def test_compiling_and_running_go_on_at_the_same_time():
    program = compiled("product", "native")
    inputs, expected = alone(program)

    def work(i):
        if i % 4:
            return all(same(program.run(inputs[i]), expected[i]) for _ in range(30))
        other = compiled("window", "native")
        return same(other.run(inputs_of(other, 1)), window)

    other = compiled("window", "native")
    window = other.run(inputs_of(other, 1))
    assert all(together(work))


def test_an_op_class_is_one_for_all_threads():
    for cached in (op_class, _make):
        cached.cache_clear()
    assert len(set(together(lambda i: op_class("", "Conv", 17)))) == 1


def test_what_is_made_once_is_made_again_where_it_could_not_be():
    asked: list[int] = []

    @once
    def odd(n: int) -> int:
        asked.append(n)
        if len(asked) == 1:
            raise PopulusError("not yet")
        return n

    def work(i):
        try:
            return odd(3)
        except PopulusError:
            return None

    assert sorted(together(work), key=str) == [3] * (THREADS - 1) + [None]
    assert len(asked) == 2


def test_a_file_of_ops_is_run_once_by_16_threads(tmp_path):
    path = tmp_path / "slow_op.py"
    text = (HERE.parents[1] / "examples/leaky_relu.py").read_text()
    path.write_text(f"import time\ntime.sleep(0.05)\n{text}".replace("com.acme", "com.slow").replace("acme.", "slow."))
    found = together(lambda i: extensions.read(path) if i % 2 else extensions.load(path))
    try:
        assert len({id(op) for extension in found for op in extension.ops}) == 1
        assert all(len(extensions.known()) >= 1 for _ in range(2))
    finally:
        extensions.forget(path)


def test_threads_that_write_one_file_leave_one_whole_file(tmp_path):
    path = tmp_path / "weights"

    def work(i):
        with replacing(path) as partial:
            partial.write_bytes(bytes([i]) * 100_000)

    together(work)
    content = path.read_bytes()
    assert len(content) == 100_000 and len(set(content)) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_constant_is_read_while_another_program_lets_it_go():
    content = np.arange(1000, dtype=np.float32)
    handle = store(content.copy())

    def work(i):
        for _ in range(200):
            if i % 2:
                TABLE.release(handle, lambda: content.copy().view(np.uint8))
            elif not (TABLE.bytes(handle) == content.view(np.uint8)).all():
                return False
        return True

    assert all(together(work))


# -- sizes, gradients, training, PopXL ----------------------------------------------------------------------------------

OPEN = model("net (float[n,16] x) => (float[n,16] y) { y = MatMul(x, w) }", w=np.eye(16, dtype=np.float32))


def test_a_new_size_is_compiled_once_for_all_threads(monkeypatch):
    program = populus.compile(OPEN, engine="numpy", tiles=4)
    assert isinstance(program, OpenProgram)
    made: list[object] = []
    specialise = program.specialise
    monkeypatch.setattr(program, "specialise", lambda sizes: (made.append(sizes["n"]), specialise(sizes))[1])

    def work(i):
        x = np.full((1 + i % 3, 16), i, np.float32)
        return same(program.run({"x": x}), {"y": x})

    assert all(together(work))
    assert sorted(made, key=str) == [(3, 4), 1, 2]  # 3 is in a bucket with 4


def test_a_size_that_cannot_be_compiled_is_refused_to_each_thread_and_not_kept(monkeypatch):
    program = populus.compile(OPEN, engine="numpy", tiles=4)
    assert isinstance(program, OpenProgram)
    specialise = program.specialise

    def refuse(sizes):
        raise PopulusError("no room")

    def work(i):
        with pytest.raises(PopulusError, match="no room"):
            program.sized(n=2)

    monkeypatch.setattr(program, "specialise", refuse)
    together(work)
    monkeypatch.setattr(program, "specialise", specialise)
    assert program.sized(n=2).signature.outputs["y"].get_shape() == (2, 16)


def test_gradients_are_asked_for_by_16_threads():
    vjp = populus.vjp(NETS["product"], ["w"], tiles=4)
    x = np.random.default_rng(0).standard_normal((THREADS, 8, 16)).astype(np.float32)
    expected = [vjp.run({"x": a}, {"y": a}) for a in x]
    found = together(lambda i: vjp.run({"x": x[i]}, {"y": x[i]}))
    assert all(same(f[0], e[0]) and same(f[1], e[1]) for f, e in zip(found, expected, strict=True))


TRAINED = model("net (float[4,3] x) => (float[4,2] y) { y = MatMul(x, w) }", w=np.ones((3, 2), np.float32))
BATCH = {"x": np.random.default_rng(2).standard_normal((4, 3)).astype(np.float32)}
LABELS = np.array([0, 1, 1, 0], np.int32)


def test_steps_of_two_threads_at_once_are_refused_and_change_nothing():
    session, reference = (TrainingSession(TRAINED, optimizer="sgd", hyper={"lr": 0.1}, engine="numpy") for _ in range(2))

    def work(i):
        refusals = []
        for _ in range(10):
            try:
                session.step(BATCH, LABELS)
            except PopulusError as error:
                refusals.append(str(error))
        return refusals

    refusals = [line for lines in together(work) for line in lines]
    done = 10 * THREADS - len(refusals)
    assert refusals and all("at the same time; only one thread may train a session" in line for line in refusals)
    assert session.steps == len(session.losses) == done
    losses = [reference.step(BATCH, LABELS) for _ in range(done)]
    assert session.losses == losses
    assert same(session.weights, reference.weights)


def test_a_session_is_evaluated_and_saved_between_two_steps_while_it_trains():
    session, reference = (TrainingSession(TRAINED, optimizer="adam", engine="numpy") for _ in range(2))
    weights = [{n: a.copy() for n, a in reference.weights.items()}]
    for _ in range(30):
        reference.step(BATCH, LABELS)
        weights.append(reference.weights)
    data = session.samples({**BATCH, "labels": LABELS})
    scores = {session.evaluate(data)["loss"]}

    def work(i):
        if i == 0:
            for _ in range(30):
                session.step(BATCH, LABELS)
            return True
        saved = [session.checkpoint() for _ in range(10)]
        scores.add(session.evaluate(data)["loss"])
        return all(len(c.tensors["losses"]) == c.step and same({"w": c.tensors["weight:w"]}, weights[c.step]) for c in saved)

    assert all(together(work, 6))
    between = [*reference.losses, reference.evaluate(data)["loss"]]  # a step gives the loss before it
    assert all(any(np.isclose(score, loss, rtol=1e-5) for loss in between) for score in scores)


def test_two_trainings_into_one_folder_are_refused(tmp_path):
    data = {"x": np.tile(BATCH["x"], (4, 1)), "labels": np.tile(LABELS, 4)}
    first, second = threading.Event(), threading.Event()

    def hold(progress):
        first.set()
        second.wait(60)

    def work(i):
        if i == 0:
            return populus.train(TRAINED, data, epochs=1, checkpoint=tmp_path / "run", report=hold, engine="numpy").steps
        first.wait(60)
        try:
            with pytest.raises(PopulusError, match="another thread trains into this folder; give each training a folder of its own"):
                populus.train(TRAINED, data, epochs=1, checkpoint=tmp_path / "run", engine="numpy")
            return populus.train(TRAINED, data, epochs=1, checkpoint=tmp_path / "other", engine="numpy").steps
        finally:
            second.set()

    assert together(work, 2) == [4, 4]
    assert populus.train(TRAINED, data, epochs=2, checkpoint=tmp_path / "run", engine="numpy").steps == 8


def test_threads_attach_to_one_session_of_popxl():
    ir = popxl.Ir()
    with ir.main_graph:
        x = ops.host_load(popxl.h2d_stream((16,), popxl.float32, name="x"), "x")
        out = popxl.d2h_stream((16,), popxl.float32, name="y")
        ops.host_store(out, x + x)
    session = popxl.Session(ir, "cpu", tiles=4)
    (stream,) = session.expected_inputs()

    def work(i):
        right = True
        for k in range(10):
            with session:
                right = right and bool((session.run({stream: np.full(16, i + k, np.float32)})[out] == 2 * (i + k)).all())
        return right

    assert all(together(work))
    with pytest.raises(PopulusError, match="not attached"):
        session.run({stream: np.zeros(16, np.float32)})


# -- forks and interruptions ---------------------------------------------------------------------------------------------


def in_a_process(code: str) -> str:
    """What a program of its own prints; it may interrupt itself whatever this one does with interruptions."""
    head = f"import sys; sys.path.append({str(HERE.parent)!r})\nimport signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_that_is_forked_while_threads_run_and_compile_runs_too():
    outcome = in_a_process("""
import os, threading, warnings
from helpers.concurrent_runs import inputs_of, models, same
import populus
warnings.simplefilter("ignore")
nets = models()
programs = {e: populus.compile(nets["product"], engine=e, tiles=4) for e in ("numpy", "native", "strict")}
inputs = inputs_of(programs["numpy"], 0)
expected = {e: p.run(inputs) for e, p in programs.items()}
for name in ("window", "table"):  # what is imported on the way is there: Python itself forks no import of another thread
    first = populus.compile(nets[name], engine="native", tiles=4)
    first.run(inputs_of(first, 1))
stop = threading.Event()
def run(program):
    while not stop.is_set():
        program.run(inputs)
def make():
    while not stop.is_set():
        populus.compile(nets["window"], engine="native", tiles=4).session
threads = [threading.Thread(target=run, args=(p,)) for p in programs.values()] + [threading.Thread(target=make)]
for thread in threads: thread.start()
for _ in range(3):
    if (child := os.fork()) == 0:
        right = False
        try:
            new = populus.compile(nets["table"], engine="native", tiles=4)
            right = all(same(p.run(inputs), expected[e]) for e, p in programs.items()) and bool(new.run(inputs_of(new, 1)))
        finally:
            os._exit(0 if right else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop.set()
for thread in threads: thread.join()
""")
    assert outcome.split() == ["0"] * 3


def test_an_interruption_reaches_the_thread_that_waits_for_another_ones_run():
    outcome = in_a_process("""
import os, threading
from helpers.concurrent_runs import inputs_of, models, same
import populus
for engine in ("numpy", "native"):
    program = populus.compile(models()["product"], engine=engine, tiles=4)
    inputs, session = inputs_of(program, 0), program.session
    expected = session.run(inputs)
    inside, leave = threading.Event(), threading.Event()
    def observe(step, written):
        inside.set()
        leave.wait(60)
    other = threading.Thread(target=lambda: session.run(inputs, observe))
    other.start()
    inside.wait(60)
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        session.run(inputs)
    except KeyboardInterrupt:
        print("interrupted")
    leave.set()
    other.join(60)
    print(same(session.run(inputs), expected))
""")
    assert outcome.split() == ["interrupted", "True"] * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_that_is_forked_while_a_thread_imports_a_module_of_ours_imports_it_too(tmp_path):
    (tmp_path / "slow.py").write_text("import builtins, time\nbuiltins.importing.set()\ntime.sleep(0.5)\nvalue = 7\n")
    outcome = in_a_process(f"""
import builtins, importlib, os, threading, warnings
import populus
warnings.simplefilter("ignore")
builtins.importing = threading.Event()
populus.__path__.append({str(tmp_path)!r})
other = threading.Thread(target=importlib.import_module, args=("populus.slow",))
other.start()
builtins.importing.wait(60)
if (child := os.fork()) == 0:
    signal.alarm(20)  # ends a child that waits for a lock whose owner it does not have
    right = False
    try:
        right = importlib.import_module("populus.slow").value == 7
    finally:
        os._exit(0 if right else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
other.join()
""")
    assert outcome.split() == ["0"]


@pytest.mark.parametrize(("name", "status"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_whose_exception_python_drops_comes_again(name, status):
    outcome = in_a_process(f"""
import os, time
from populus.tools.command import reporting
class Dying:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        while True: time.sleep(0.001)  # until the handler raises, which Python only prints
def body(args):
    Dying()
    while True: time.sleep(0.001)
print(reporting("tool", [], body))
""")
    assert outcome.split() == [str(status)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_workers_of_an_exploration_end_with_the_process_that_began_them():
    """They have its output open: it is at its end once they are gone."""
    outcome = in_a_process("""
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from populus.exploration.running import _begin
if (child := os.fork()) == 0:
    pool = ProcessPoolExecutor(2, mp_context=get_context("fork"), initializer=_begin, initargs=(os.getpid(),))
    pool.submit(os.getpid).result()
    os.kill(os.getpid(), signal.SIGKILL)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
    assert outcome.split() == ["-9"]
