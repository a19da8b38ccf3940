"""Hooks of all tests, so that any order gives the same: random generators begin anew for each test, and ops that it loads end with it.

The launches of all native programs are checked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
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
