"""Hook of all tests: a module's random generator begins anew for each test."""

from __future__ import annotations

from copy import deepcopy
from types import ModuleType
from typing import Any

import numpy as np
import pytest

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
