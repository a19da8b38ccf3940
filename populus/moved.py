"""Former module names that users' files import, each mapped to the present module."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast

MOVED = {
    "populus.dialects.constraints": "populus.dialects.support.constraints",
    "populus.dialects.diagnostics": "populus.dialects.support.diagnostics",
    "populus.dialects.element_types": "populus.dialects.support.element_types",
    "populus.dialects.shapes": "populus.dialects.support.shapes",
    "populus.lowering.extensions": "populus.lowering.driver.extensions",
    "populus.lowering.legality": "populus.lowering.driver.legality",
    "populus.lowering.passes": "populus.lowering.driver.passes",
    "populus.lowering.pipeline": "populus.lowering.driver.pipeline",
    "populus.lowering.rewriting": "populus.lowering.popart.rewriting",
}


class _Finder:  # by form a finder and a loader: their classes in importlib.abc take 10 ms to import
    """Finds the names of the table. Each module is loaded once: both names give the same object, so classes compare equal."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, cast("Any", self)) if fullname in MOVED else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Leaves it to Python to make the module that `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        warnings.warn(f"{name} is {MOVED[name]} now", DeprecationWarning, stacklevel=2)
        sys.modules[name] = import_module(MOVED[name])


def install() -> None:
    """Makes the former names importable."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
