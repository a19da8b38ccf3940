"""ONNX models as programs for a machine of thousands of tiles.

program = populus.compile("model.onnx", target="gc200", tiles=16)
outputs = program.run({"x": x})
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from populus import moved
from populus.dialects.support import guard

if TYPE_CHECKING:
    from populus.api import compile
    from populus.builder import Builder, function_of
    from populus.building import build
    from populus.derivatives import Vjp, vjp
    from populus.dialects.support.diagnostics import PopulusError
    from populus.dialects.support.errors import ProgramError
    from populus.epochs import train
    from populus.lowering.driver.content_hash import content_hash
    from populus.lowering.driver.extensions import add_extension, load
    from populus.nets import net
    from populus.program import Program
    from populus.runtime.built.library import BuiltProgram, load_program
    from populus.training import TrainingSession

    __version__: str

__all__ = [
    "Builder",
    "BuiltProgram",
    "PopulusError",
    "Program",
    "ProgramError",
    "TrainingSession",
    "Vjp",
    "add_extension",
    "build",
    "compile",
    "content_hash",
    "function_of",
    "load",
    "load_program",
    "net",
    "train",
    "vjp",
]

_HOMES = {
    "Builder": "builder:Builder",
    "PopulusError": "dialects.support.diagnostics:PopulusError",
    "BuiltProgram": "runtime.built.library:BuiltProgram",
    "Program": "program:Program",
    "ProgramError": "dialects.support.errors:ProgramError",
    "TrainingSession": "training:TrainingSession",
    "Vjp": "derivatives:Vjp",
    "add_extension": "lowering.driver.extensions:add_extension",
    "build": "building:build",
    "compile": "front:compile",
    "content_hash": "lowering.driver.content_hash:content_hash",
    "function_of": "builder:function_of",
    "load": "lowering.driver.extensions:load",
    "load_program": "runtime.built.library:load_program",
    "net": "nets:net",
    "train": "epochs:train",
    "vjp": "derivatives:vjp",
}

guard.install()
moved.install()


def __dir__() -> list[str]:
    """Lists the public names, whether they were imported yet or not, and those of every module."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> object:
    """Imports a public name on first use, so that importing a dialect does not load the compiler."""
    if name in _HOMES:
        module, _, member = _HOMES[name].partition(":")
        return getattr(import_module(f"populus.{module}"), member)
    if name == "__version__":
        metadata = import_module("importlib.metadata")
        try:
            return metadata.version("populus-tiles")
        except metadata.PackageNotFoundError:  # a clone that is imported and not installed
            return "unknown"
    raise AttributeError(f"module 'populus' has no attribute '{name}'")
