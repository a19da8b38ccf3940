"""Scratch memory of frozen programs: it lies where no variable is live, and chunks take places in it in turn."""

from __future__ import annotations

import signal

import pytest
from onnx import helper

import populus
from helpers.built_nets import model, normal
from helpers.random_programs import Calls, Programs
from populus.dialects.support.child import in_child
from populus.dialects.support.diagnostics import PopulusError
from populus.program.building import frozen_program
from populus.runtime.built.kept import KeptProgram
from populus.runtime.codelets.task import Workspace
from populus.runtime.engine.native.frozen import binding
from populus.runtime.engine.native.frozen.keep import placed
from populus.runtime.liveness import liveness


def wide_then_deep(channels=32, side=28, batch=8):
    """A wide layer, of which nothing is left when Winograd's products need scratch memory, and a branch that lives across these."""
    weights = {"e": normal(8 * channels, 4, 1, 1), "r": normal(channels, 8 * channels, 1, 1), "w": normal(channels, channels, 3, 3)}
    nodes = [
        helper.make_node("Conv", ["x", "e"], ["wide"], name="wide"),
        helper.make_node("Relu", ["wide"], ["wider"], name="relu"),
        helper.make_node("Conv", ["wider", "r"], ["z"], name="narrow"),
        helper.make_node("Conv", ["z", "w"], ["c"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Tanh", ["c"], ["t"], name="tanh"),
        helper.make_node("Conv", ["t", "w"], ["d"], name="second", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["d", "z"], ["y"], name="sum"),
    ]
    return model(nodes, [("x", [batch, 4, side, side])], [("y", [batch, channels, side, side])], weights)


@pytest.fixture
def steps(monkeypatch):
    """The programs that are frozen, each with the bytes of scratch memory that its steps reserve: (step, begin, end)."""
    made, now = [], []
    nodes, load, reserve = binding.FreezingProgram._nodes, binding.FreezingProgram.load, Workspace.reserve

    def noted(self, op):
        now.append(op)
        yield from list(nodes(self, op))
        now.pop()

    def kept(self, begin, bytes):
        found = reserve(self, begin, bytes)
        at = found.ctypes.data - self._memory.ctypes.data
        if now:
            made[-1][1].append((now[-1], at, at + bytes))
        return found

    def loading(self):
        made.append((self, []))
        load(self)

    monkeypatch.setattr(binding.FreezingProgram, "_nodes", noted)
    monkeypatch.setattr(binding.FreezingProgram, "load", loading)
    monkeypatch.setattr(Workspace, "reserve", kept)
    return made


def check_apart(program, reserved):
    """Tells in how many steps scratch memory is used; it is none of that of a variable that is live in the step."""
    live = liveness(program.graph, shared=True)
    begin = program._arena.ctypes.data
    for op, first, last in reserved:
        inner = set(op.walk())
        numbers = [number for number, step in enumerate(live.steps) if step in inner]
        assert numbers, op
        for variable, spans in program.live_spans.items():
            if any(a <= n <= b for a, b in spans for n in numbers):
                array = program._memory[variable]
                at = array.ctypes.data - begin
                assert last <= at or at + array.nbytes <= first, (op, variable)
    return len({op for op, _, _ in reserved})


def test_scratch_memory_takes_no_more_than_the_widest_step(steps):
    program = populus.compile(wide_then_deep(), target="host", tiles=16)
    frozen = frozen_program(program, "native", {}, here=True)
    ((bound, reserved),) = steps
    assert check_apart(bound, reserved) >= 2
    assert max(last - first for _, first, last in reserved) > 1 << 17
    assert frozen.form.memory <= bound.arena_bytes + 64  # the word of the places


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_have_the_bits_of_scratch_memory_of_its_own(threads):
    program = populus.compile(wide_then_deep(), target="host", tiles=16, engine="native", threads=threads)
    inputs = program.signature.random(1)
    expected = program.run(inputs)["y"]
    kept = KeptProgram(placed(frozen_program(program, "native", {}, here=True)), threads)
    for _ in range(3):
        assert kept.run(inputs)["y"].tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", [Programs, Calls])
@pytest.mark.parametrize("seed", range(12))
def test_no_live_variable_of_a_random_program_shares_it(kind, seed, steps):
    program = populus.compile(kind(seed).module(), target="host", tiles=16, engine="native", threads=2)
    inputs = program.signature.random(seed)
    expected = program.run(inputs)
    try:
        frozen = frozen_program(program, "native", {}, here=True)
    except PopulusError:
        pytest.skip("a step of it is Python's")
    check_apart(*steps[-1])
    found = KeptProgram(placed(frozen), 2).run(inputs)
    assert {n: a.tobytes() for n, a in found.items()} == {n: a.tobytes() for n, a in expected.items()}


def test_more_threads_than_places_take_them_in_turn(monkeypatch):
    program = populus.compile(wide_then_deep(), target="host", tiles=16, engine="native", threads=2)
    inputs = program.signature.random(1)
    expected = program.run(inputs)["y"].tobytes()
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    frozen = frozen_program(program, "native", {}, here=True)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert frozen_program(program, "native", {}, here=True).form.memory > frozen.form.memory
    assert frozen_program(program, "native", {}).form.memory > frozen.form.memory  # for any number of threads elsewhere
    assert KeptProgram(placed(frozen), 7).run(inputs)["y"].tobytes() == expected


def test_a_forked_child_waits_for_no_place_that_a_thread_of_its_parent_had():
    program = populus.compile(wide_then_deep(), target="host", tiles=16, engine="native", threads=2)
    inputs = program.signature.random(1)
    expected = program.run(inputs)["y"].tobytes()
    kept = KeptProgram(placed(frozen_program(program, "native", {}, here=True)), 2)
    kept._memory[:] = b"\xff" * len(kept._memory)  # all places are taken

    def work(tell):
        signal.alarm(60)  # a run that waits would not end
        return kept.run(inputs)["y"].tobytes()

    assert in_child(work, print) == expected
