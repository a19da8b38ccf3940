"""ONNX models as programs for a machine of thousands of tiles.

program = populus.compile("model.onnx", target="gc200", tiles=16)
outputs = program.run({"x": x})
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

if not os.path.isdir(os.path.join(__path__[0], "dialects")):
    __path__.append(os.path.dirname(__path__[0]))  # in a clone, dialects and the others lie beside this folder; in a wheel, inside of it

from populus.dialects.support import guard

if TYPE_CHECKING:
    from populus.dialects.support.diagnostics import PopulusError
    from populus.dialects.support.errors import ProgramError
    from populus.exploration.explore import Exploration, explore
    from populus.lowering.driver.content_hash import content_hash
    from populus.lowering.driver.extensions import load
    from populus.program.building import build
    from populus.program.compile import compile
    from populus.program.program import Program
    from populus.runtime.built.library import BuiltProgram, load_program
    from populus.training.derivatives import Vjp, vjp
    from populus.training.epochs import train
    from populus.training.session import TrainingSession
    from populus.write.builder import Builder, function_of
    from populus.write.nets import net

    __version__: str

__all__ = [
    "Builder",
    "BuiltProgram",
    "Exploration",
    "PopulusError",
    "Program",
    "ProgramError",
    "TrainingSession",
    "Vjp",
    "build",
    "compile",
    "content_hash",
    "explore",
    "function_of",
    "load",
    "load_program",
    "net",
    "train",
    "vjp",
]

_HOMES = {
    "Builder": "write.builder:Builder",
    "PopulusError": "dialects.support.diagnostics:PopulusError",
    "BuiltProgram": "runtime.built.library:BuiltProgram",
    "Program": "program.program:Program",
    "ProgramError": "dialects.support.errors:ProgramError",
    "TrainingSession": "training.session:TrainingSession",
    "Vjp": "training.derivatives:Vjp",
    "build": "program.building:build",
    "compile": "program.front:compile",
    "content_hash": "lowering.driver.content_hash:content_hash",
    "Exploration": "exploration.explore:Exploration",
    "explore": "exploration.explore:explore",
    "function_of": "write.builder:function_of",
    "load": "lowering.driver.extensions:load",
    "load_program": "runtime.built.library:load_program",
    "net": "write.nets:net",
    "train": "training.epochs:train",
    "vjp": "training.derivatives:vjp",
}

_WITHOUT_COMPILER = ("BuiltProgram", "compile", "load_program")  # which find what is ready

guard.install()


def __dir__() -> list[str]:
    """Lists the public names, whether they were imported yet or not, and those of every module."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> object:
    """Imports a public name on first use, so that importing a dialect does not load the compiler."""
    if name in _HOMES:
        module, _, member = _HOMES[name].partition(":")
        if name not in _WITHOUT_COMPILER:
            import_module("populus.dialects.support.garbage").import_for_good(f"populus.{module}")
        return getattr(import_module(f"populus.{module}"), member)
    if name == "__version__":
        metadata = import_module("importlib.metadata")
        try:
            return metadata.version("populus-tiles")
        except metadata.PackageNotFoundError:  # a clone that is imported and not installed
            return "unknown"
    raise AttributeError(f"module 'populus' has no attribute '{name}'")
