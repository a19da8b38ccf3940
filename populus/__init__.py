"""ONNX models as programs for a machine of thousands of tiles.

    program = populus.compile("model.onnx", target="gc200", tiles=16)
    outputs = program.run({"x": x})
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from populus.api import Program, compile

__all__ = ["Program", "compile"]


def __getattr__(name: str) -> object:
    """The front door's names, on first use: importing a dialect should not bring in the compiler."""
    if name in __all__:
        from populus import api

        return getattr(api, name)
    raise AttributeError(f"module 'populus' has no attribute '{name}'")
