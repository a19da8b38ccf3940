"""Tells which tests compare numbers: a plugin of pytest for the suites of other projects.

    python -m pytest -p comparing FILES        # with benchmarks/ on PYTHONPATH

A test may pass without a number being compared: it counts ops, or expects an error. This plugin watches the functions of NumPy, PyTorch and
pytest that compare. It prints a line `COMPARED FILE::NAME` for each test that passed and called one with an array, or a number that is no
whole one. Calls from libraries do not count. `(a == b).all()`, which nothing can watch, is found in the source of the test.
"""

# pyright: basic
from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable
from typing import Any

WATCHED = {
    "numpy": ("allclose", "isclose", "array_equal", "array_equiv"),
    "numpy.testing": (
        *("assert_allclose", "assert_almost_equal", "assert_approx_equal", "assert_array_almost_equal", "assert_array_equal"),
        *("assert_array_less", "assert_equal"),
    ),
    "torch": ("allclose", "isclose", "equal"),
    "torch.testing": ("assert_close", "assert_allclose"),
    "pytest": ("approx",),
}
LIBRARIES = re.compile(r"(populus|numpy|torch|scipy|xdsl|onnx|_pytest|pytest)\b")
BY_HAND = re.compile(r"[=<>]=?[^\n]*\.all\(\)|np\.all\(")

_calls: list[str] = []
compared: set[str] = set()
"""Node ids of the tests that passed and compared numbers."""


def _watched(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if not LIBRARIES.match(caller) and any(_has_numbers(x) for x in given[:2]):
            _calls.append(function.__name__)
        return function(*given, **named)

    return call


def _has_numbers(x: Any) -> bool:
    """Tells whether an argument has results: an array or tensor with elements, a float, or a list or a dictionary of these."""
    if isinstance(x, float):
        return True
    if isinstance(x, list | tuple):
        return any(map(_has_numbers, x))
    if isinstance(x, dict):
        return any(map(_has_numbers, x.values()))
    return hasattr(x, "dtype") and hasattr(x, "shape") and 0 not in tuple(x.shape)


for _module, _names in WATCHED.items():
    try:
        _found = importlib.import_module(_module)
    except ImportError:
        continue
    for _name in _names:
        if hasattr(_found, _name):
            setattr(_found, _name, _watched(getattr(_found, _name)))


def pytest_runtest_setup(item: Any) -> None:
    """Begins to count a test's comparisons."""
    _calls.clear()


def pytest_runtest_makereport(item: Any, call: Any) -> None:
    """Notes a test that ran to its end and compared."""
    if call.when == "call" and call.excinfo is None and (_calls or _compares_by_hand(item)):
        compared.add(item.nodeid)


def _compares_by_hand(item: Any) -> bool:
    try:
        return BY_HAND.search(inspect.getsource(item.function)) is not None
    except (AttributeError, OSError, TypeError):
        return False


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints them, as pytest prints outcomes."""
    for node in sorted(compared):
        terminalreporter.write_line(f"COMPARED {node}")
