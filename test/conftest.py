"""Hooks of all tests, so that any order gives the same: random generators begin anew for each test, and ops that it loads end with it.

The launches of all native programs are checked. Each run notes the tests that took long, in pytest's cache; `--quick` leaves these out.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from copy import deepcopy
from types import ModuleType
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("POPULUS_CHECK", "1")  # children of tests have it too

STATES: dict[str, list[tuple[np.random.Generator, Any]]] = {}  # by module: its generators, with their states after its import


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Sets the generators of the test's module back, before its fixtures: so its data does not depend on the tests before it."""
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

QUICK = 0.3  # seconds of CPU of a test and the processes that it starts
SLOW = "populus/slow"
SECONDS: dict[str, float] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--quick`."""
    parser.addoption("--quick", action="store_true", help=f"leave out the tests that took more than {QUICK} s in their last run here")


def slow(config: pytest.Config) -> set[str]:
    """Reads the tests that took long in their last run."""
    cache: pytest.Cache | None = getattr(config, "cache", None)
    return set() if cache is None else set(cache.get(SLOW, list[str]()))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is slow, if quick tests are asked for."""
    if config.getoption("--quick"):
        out = slow(config)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in out])
        items[:] = [item for item in items if item.nodeid not in out]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Measures a test."""
    before = sum(os.times()[:4])
    try:
        yield
    finally:
        item.user_properties.append(("cpu", sum(os.times()[:4]) - before))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keeps what a test took, in the process that hears of all."""
    if report.when == "call":
        SECONDS.update((report.nodeid, float(str(seconds))) for name, seconds in report.user_properties if name == "cpu")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Notes which of the tests that ran are slow; what did not run stays as it was noted."""
    config = session.config
    cache: pytest.Cache | None = getattr(config, "cache", None)
    if SECONDS and cache is not None and not hasattr(config, "workerinput"):
        cache.set(SLOW, sorted(slow(config) - SECONDS.keys() | {name for name, seconds in SECONDS.items() if seconds > QUICK}))
