"""Hooks of all tests, so that any order gives the same: random generators begin anew for each test, and ops that it loads end with it.

The launches of all native programs are checked. Each run notes what its tests took, in pytest's cache; `--within` takes
those that have not run here yet, and the shortest, up to a sum of seconds.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from copy import deepcopy
from itertools import accumulate
from math import ceil
from types import ModuleType
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("POPULUS_CHECK", "1")  # children of tests have it too

STATES: dict[str, list[tuple[np.random.Generator, Any]]] = {}  # by module: its generators, with their states after its import


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Sets the generators of the test's module back, before its fixtures: so its data does not depend on the tests before it."""
    item.stash[BEGUN] = sum(os.times()[:4])
    module: ModuleType | None = getattr(item, "module", None)
    if module is None:
        return
    if module.__name__ not in STATES:
        generators = [value for value in vars(module).values() if isinstance(value, np.random.Generator)]
        STATES[module.__name__] = [(g, deepcopy(g.bit_generator.state)) for g in generators]
    for generator, state in STATES[module.__name__]:
        generator.bit_generator.state = state


def _unloaded() -> Iterator[None]:
    """Forgets, after a test or a module, the files with ops that it has loaded."""
    from populus.lowering.driver.extensions import restored

    with restored():
        yield


of_a_module = pytest.fixture(_unloaded, scope="module", autouse=True, name="_unloaded_by_module")
of_a_test = pytest.fixture(_unloaded, autouse=True, name="_unloaded_by_test")

# -- what is quick

UNKNOWN = 0.1  # seconds of CPU that a test is taken to need before it ran here
NOTED = "populus/seconds"
SECONDS: dict[str, float] = {}
BEGUN = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--within`."""
    text = "run what has not run here yet, then the shortest tests, for so many seconds of CPU with those of their children"
    parser.addoption("--within", type=float, metavar="SECONDS", help=text)


def noted(config: pytest.Config) -> dict[str, float]:
    """Reads what each test took in its last run."""
    cache: pytest.Cache | None = getattr(config, "cache", None)
    return {} if cache is None else cache.get(NOTED, dict[str, float]())


def within(seconds: float, names: Sequence[str], known: dict[str, float]) -> set[str]:
    """Chooses tests that take so long together: those that are not known first, evenly spread if they are too many, then the shortest."""
    new = sorted(name for name in names if name not in known)
    new = new[:: max(1, ceil(len(new) * UNKNOWN / seconds))]
    shortest = sorted((known[name], name) for name in names if name in known)
    ends = accumulate((took for took, _ in shortest), initial=len(new) * UNKNOWN)
    next(ends)
    return {*new, *(name for (_, name), end in zip(shortest, ends, strict=True) if end <= seconds)}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what does not fit, if there is a limit."""
    if (seconds := config.getoption("--within")) is not None:
        chosen = within(seconds, [item.nodeid for item in items], noted(config))
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
        items[:] = [item for item in items if item.nodeid in chosen]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Measures a test, from the begin of its setup to the end of its teardown."""
    yield
    if (begun := item.stash.get(BEGUN, None)) is not None:
        item.user_properties.append(("cpu", sum(os.times()[:4]) - begun))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keeps what a test took, in the process that hears of all."""
    if report.when == "teardown":
        SECONDS.update((report.nodeid, round(float(str(seconds)), 3)) for name, seconds in report.user_properties if name == "cpu")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Notes what the tests took that ran; what did not run stays as it was noted."""
    config = session.config
    cache: pytest.Cache | None = getattr(config, "cache", None)
    if SECONDS and cache is not None and not hasattr(config, "workerinput"):
        cache.set(NOTED, {**noted(config), **SECONDS})
