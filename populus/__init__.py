"""ONNX models as programs for a machine of thousands of tiles.

    program = populus.compile("model.onnx", target="gc200", tiles=16)
    outputs = program.run({"x": x})
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from populus.api import Program, compile
    from populus.derivatives import Vjp, vjp

__all__ = ["Program", "Vjp", "compile", "vjp"]

_HOMES = {"Program": "api", "Vjp": "derivatives", "compile": "api", "vjp": "derivatives"}


def __getattr__(name: str) -> object:
    """The front door's names, on first use: importing a dialect should not bring in the compiler."""
    if name in _HOMES:
        return getattr(import_module(f"populus.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'populus' has no attribute '{name}'")
