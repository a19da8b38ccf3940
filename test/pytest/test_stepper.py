"""The one loop of steps: the order of runs and updates, what is held from one to the next, and what an error leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import f32

from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import tensor
from populus.lowering.popart.training_names import SEED
from populus.program.replicas import Place
from populus.program.signature import Signature
from populus.program.stepper import Schedule, Stepper
from populus.runtime.gcl import Group, communicator
from populus.runtime.ranks import World

SCALAR = tensor((), f32)


@dataclass
class Formula:
    """A program that is a function of Python."""

    inputs: tuple[str, ...]
    function: Any
    taken: list[dict[str, Any]] = field(default_factory=list)

    @property
    def signature(self):
        return Signature(dict.fromkeys(self.inputs, SCALAR), {})

    def run(self, inputs, /):
        assert inputs.keys() <= set(self.inputs), f"{set(inputs) - set(self.inputs)} are unknown"
        self.taken.append(dict(inputs))
        return {name: np.float32(value) for name, value in self.function(**inputs).items()}


def gradient(x, w, Accl=None, buffer=0.0):
    own = x * w
    return {"loss": own, "seen": buffer + 1, **({"g": own} if Accl is None else {"Accl": Accl + own})}


def stepper(replicas=1, **schedule):
    parts = schedule.get("parts", 1)
    runs = [Formula(("x", "w", "buffer", *(("Accl",) if parts > 1 else ())), gradient) for _ in range(replicas)]

    def update(w, G, rate, loss):
        return {"new": w - rate * communicator().reduced(Group(1, replicas), "add", np.asarray(G), "gradients"), "loss": loss}

    updates = [Formula(("w", "G", "rate", "loss"), update) for _ in range(replicas)]
    sums = {"G": "Accl" if parts > 1 else "g"}
    made = Schedule(changes={"w": "new", "buffer": "seen"}, sums=sums, means=("loss",), **schedule)
    return Stepper(made, Place(replicas, range(replicas), World(0, 1)), runs, updates), runs, updates


def taken(steps, values, replicas=1, held=None, rate=lambda _: {"rate": np.float32(0.5)}):
    rest = iter(values)
    begin = [{"w": np.float32(2), "buffer": np.float32(0)} for _ in range(replicas)] if held is None else held
    return list(steps.run(lambda i, p: [{"x": np.float32(next(rest))} for _ in range(replicas)], begin, lambda n, k: [n, k], rate))


def test_an_update_takes_what_the_runs_before_it_add_up_to():
    steps, runs, updates = stepper(parts=3, iterations=2)
    found = taken(steps, [1, 2, 3, 4, 5, 6])
    assert [(r.iteration, r.part) for r in found] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert [float(t["Accl"]) for t in runs[0].taken] == [0, 2, 6, 0, -16, -36]
    assert [float(t["G"]) for t in updates[0].taken] == [12, -60]
    assert [float(r.held[0]["w"]) for r in found] == [2, 2, -4, -4, -4, 26]
    assert [float(r.held[0]["buffer"]) for r in found] == [1, 2, 3, 4, 5, 6]
    assert [float(t["loss"]) for t in updates[0].taken] == [4, -20]  # means over the parts
    assert [r.means[0]["loss"] for r in found] == [2, 3, 4, -16, -18, -20]


def test_an_accumulator_begins_so_that_adding_to_it_changes_no_bit():
    steps, runs, _ = stepper(parts=2)
    found = taken(steps, [-0.0, -0.0])
    assert all(np.signbit(t["Accl"]) for t in runs[0].taken)
    assert np.signbit(found[1].results[0]["Accl"])


def test_a_step_of_one_run_needs_no_accumulator():
    steps, runs, updates = stepper()
    found = taken(steps, [3])
    assert set(runs[0].taken[0]) == {"x", "w", "buffer"} and float(updates[0].taken[0]["G"]) == 6
    assert float(found[0].held[0]["w"]) == -1


def test_replicas_meet_in_the_update():
    steps, _, updates = stepper(replicas=2, parts=2)
    found = taken(steps, [1, 10, 2, 20], replicas=2)
    assert [float(u.taken[0]["G"]) for u in updates] == [6, 60]
    assert [float(held["w"]) for held in found[-1].held] == [-31, -31]


def test_scalars_may_change_from_iteration_to_iteration():
    steps, _, _ = stepper(iterations=2)
    found = taken(steps, [1, 1], rate=lambda i: {"rate": np.float32([0.5, 0.25][i])})
    assert [float(r.held[0]["w"]) for r in found] == [1, 0.75]


def test_an_error_in_a_run_leaves_what_was_given():
    steps, runs, _ = stepper(iterations=3)
    begin = [{"w": np.float32(2), "buffer": np.float32(0)}]

    def fails(x, w, buffer):
        if len(runs[0].taken) == 2:
            raise PopulusError("a run fails")
        return gradient(x, w, buffer=buffer)

    runs[0].function = fails
    with pytest.raises(PopulusError, match="a run fails"):
        taken(steps, [1, 1, 1], held=begin)
    assert float(begin[0]["w"]) == 2 and float(begin[0]["buffer"]) == 0


def test_seeds_are_drawn_for_programs_that_take_one_and_differ():
    run = Formula(("x", SEED), lambda x, **_: {"y": x})
    quiet = Formula(("x",), lambda x: {"y": x})
    for program in (run, quiet):
        steps = Stepper(Schedule(iterations=2, parts=2, draws=3), Place.alone(), [program])
        list(steps.run(lambda i, p: [{"x": 1}], [{}], lambda n, k: [9, n, k]))
    words = [tuple(t[SEED].tolist()) for t in run.taken]
    assert len(set(words)) == 4 and all(len(w) == 6 for w in words)
    assert words[3] == tuple(np.random.SeedSequence([9, 3, 0]).generate_state(6, np.uint32).tolist())
    assert SEED not in quiet.taken[0]


def test_a_feed_may_have_what_another_stage_takes_and_nothing_else():
    first, last = Formula(("x",), lambda x: {"y": x}), Formula(("labels",), lambda labels: {"y": labels})
    place = Place(2, range(2), World(0, 1))
    steps = Stepper(Schedule(), place, [first, last], known={"x", "labels"})
    list(steps.run(lambda i, p: [{"x": 1, "labels": 2}] * 2, [{}, {}], lambda n, k: []))
    assert (first.taken, last.taken) == ([{"x": 1}], [{"labels": 2}])
    with pytest.raises(AssertionError, match="'z'"):
        list(steps.run(lambda i, p: [{"x": 1, "z": 2}] * 2, [{}, {}], lambda n, k: []))
