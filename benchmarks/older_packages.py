"""Older forms of packages, for tests that were written for them: a plugin of pytest, `-p older_packages`.

The tests of PopART were written for NumPy 1, onnx 1.7 and PyTorch 1.10. Where their references, or the arrays that they begin with, use
what these packages did otherwise, this plugin has the older form. No module of Populus that these tests load calls the functions here.
"""

# pyright: basic
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np


def _linspace(now: Callable[..., Any]) -> Callable[..., Any]:
    """Computes the steps between two floats of 32 bits in double precision, as NumPy 1 did: from the least to the largest is finite."""

    @functools.wraps(now)
    def linspace(start: Any, stop: Any, *given: Any, **named: Any) -> Any:
        return now(*(float(x) if isinstance(x, np.floating) else x for x in (start, stop)), *given, **named)

    return linspace


def _interpolate(now: Callable[..., Any]) -> Callable[..., Any]:
    """Calls a function of coefficients with the ratio alone, as onnx before 1.13 did: the scale came as the second argument with it."""

    @functools.wraps(now)
    def interpolate_nd(data: Any, coefficients: Callable[..., Any], *given: Any, **named: Any) -> Any:
        return now(data, lambda ratio, scale: coefficients(ratio), *given, **named)

    return interpolate_nd


def _export(now: Callable[..., Any]) -> Callable[..., Any]:
    """Exports by the trace that was PyTorch's way before 2.9; a list is one argument."""

    @functools.wraps(now)
    def export(model: Any, args: Any = (), *given: Any, **named: Any) -> Any:
        return now(model, (args,) if isinstance(args, list) else args, *given, **{"dynamo": False, **named})

    return export


def apply() -> None:
    """Puts the older forms in place, of the packages that are installed."""
    np.linspace = _linspace(np.linspace)
    try:
        from onnx.backend.test.case.node import resize
    except ImportError:
        pass
    else:
        setattr(resize, "interpolate_nd", _interpolate(getattr(resize, "interpolate_nd")))  # noqa: B009, B010
    try:
        import torch  # pyright: ignore[reportMissingImports], optional
    except ImportError:
        pass
    else:
        torch.onnx.export = _export(torch.onnx.export)


apply()
