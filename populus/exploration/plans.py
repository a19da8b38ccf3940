"""Plans of a program, searched together: the best few of each contraction are tried in one memory, each trial a whole program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.poplar.plan.alternatives import Problem, best_plans
from populus.lowering.poplar.plan.stated import Record, Stated, recording, stated_of

ROUNDS = 2  # over all contractions, if the first one changed something

Made = TypeVar("Made")


@dataclass
class Found:
    """The best plans: what was compiled with them, the plans that are stated, and the number of programs that were compiled."""

    plans: tuple[Stated, ...] = ()
    trials: int = 0


def searched(compile: Callable[[Sequence[Stated]], Made], cost: Callable[[Made], tuple[float, ...]], most: int) -> tuple[Made, Found]:
    """Searches the combination of plans of a program, from that of the planner on.

    `compile`: makes the program with stated plans; `cost`: what is less of a better program. `most`: the plans of each contraction that
    are tried. Contractions of one shape have one plan, and those that have most work go first: one after the other takes the plan with
    which the whole program costs least. A program that does not fit costs more than any; if the planner's does not, the search begins
    with the plans of the fewest bytes.

    Raises PopulusError, that of the planner's program, if none fits.
    """
    found, best, error = Found(), None, None
    with recording() as record:
        try:
            best = compile(())
        except PopulusError as caught:
            error = caught
    alike = _alike(record)
    choices: dict[Problem, list[Sequence[Stated]]] = {}
    for problem, names in alike.items():
        ways = best_plans(problem, most)
        choices[problem] = [tuple(stated_of(name, plan, resident, False, None) for name in names) for plan, resident in ways]
    current: dict[Problem, Sequence[Stated]] = {}

    def tried(plans: Mapping[Problem, Sequence[Stated]]) -> Made | None:
        """Compiles the program with these plans; None if it does not fit."""
        found.trials += 1
        try:
            return compile([stated for entry in plans.values() for stated in entry])
        except PopulusError:
            return None

    if best is None:
        current = {problem: plans[-1] for problem, plans in choices.items() if plans}
        best = tried(current) if current else None
        if best is None:
            assert error is not None, "the planner's program fits, or says why it does not"
            raise error
    for _ in range(ROUNDS):
        before = dict(current)
        for problem, plans in choices.items():
            for plan in plans:
                if plan == current.get(problem):
                    continue
                trial = {**current, problem: plan}
                made = tried(trial)
                if made is not None and cost(made) < cost(best):
                    best, current = made, trial
        if current == before:
            break
    found.plans = tuple(stated for entry in current.values() for stated in entry)
    return best, found


def _alike(record: Record) -> dict[Problem, list[str]]:
    """Groups the names of contractions by what their plans depend on, those with most work first."""
    made: dict[Problem, list[str]] = {}
    for name, problem in record.problems.items():
        made.setdefault(problem, []).append(name)
    return dict(sorted(made.items(), key=lambda entry: -entry[0].shape.macs * len(entry[1])))
