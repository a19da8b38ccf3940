"""Implementations of the codelets that `dialects/poplar/codelets.py` declares."""

from __future__ import annotations

from importlib import import_module

from populus.dialects.poplar.codelets import CODELETS
from populus.runtime.codelets import tile_code
from populus.runtime.codelets.implementation import Implementation
from populus.runtime.codelets.task import Piece, Run, Task, Workspace


class _Implementations(dict[str, Implementation]):
    """Loads a codelet's file at the codelet's first lookup."""

    def __missing__(self, name: str) -> Implementation:
        declaration = CODELETS[name]
        if declaration.code is not None:  # not stored: the source may change
            return tile_code.implementation(declaration.code)
        implementations: dict[str, Implementation] = import_module(f"{__name__}.{declaration.module}").IMPLEMENTATIONS
        self[name] = implementations[name]
        return self[name]


IMPLEMENTATIONS: dict[str, Implementation] = _Implementations()

__all__ = ["IMPLEMENTATIONS", "Implementation", "Piece", "Run", "Task", "Workspace"]
