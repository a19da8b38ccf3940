"""The dialects by name, one line each; nothing of a dialect is imported before its name is met."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from xdsl.context import Context
from xdsl.ir import Dialect


def lazily(place: str) -> Callable[[], Any]:
    """Makes a function that imports and returns the object at `"package.module:NAME"`.

    That function raises AttributeError or ModuleNotFoundError if there is none.
    """
    module, _, name = place.partition(":")
    return lambda: getattr(import_module(module), name)


DIALECTS: dict[str, Callable[[], Dialect]] = {
    "data": lazily("populus.dialects.data:DATA"),
    "expr": lazily("populus.dialects.expr:EXPR"),
    "onnx": lazily("populus.dialects.onnx:ONNX"),
    "stablehlo": lazily("populus.dialects.stablehlo:STABLEHLO"),
    "chlo": lazily("populus.dialects.stablehlo:CHLO"),
    "popart": lazily("populus.dialects.popart:POPART"),
    "train": lazily("populus.dialects.popart.train:TRAIN"),
    "sparse": lazily("populus.dialects.popart.sparse:SPARSE"),
    "popops": lazily("populus.dialects.popops:POPOPS"),
    "poplin": lazily("populus.dialects.poplin:POPLIN"),
    "popnn": lazily("populus.dialects.popnn:POPNN"),
    "poprand": lazily("populus.dialects.poprand:POPRAND"),
    "gcl": lazily("populus.dialects.gcl:GCL"),
    "poplar": lazily("populus.dialects.poplar:POPLAR"),
    "check": lazily("populus.dialects.check:CHECK"),
    "host": lazily("populus.dialects.host:HOST"),
}

SHARED_DIALECTS = {  # xDSL's, for functions, codelets and tests
    "builtin": lazily("xdsl.dialects.builtin:Builtin"),
    "func": lazily("xdsl.dialects.func:Func"),
    "arith": lazily("xdsl.dialects.arith:Arith"),
    "math": lazily("xdsl.dialects.math:Math"),
    "scf": lazily("xdsl.dialects.scf:Scf"),
    "cf": lazily("xdsl.dialects.cf:Cf"),
    "memref": lazily("xdsl.dialects.memref:MemRef"),
    "test": lazily("xdsl.dialects.test:Test"),
}


def context() -> Context:
    """Makes a context with our dialects and those of xDSL that our programs use. Each is loaded on first mention."""
    ctx = Context()
    for name, dialect in (SHARED_DIALECTS | DIALECTS).items():
        ctx.register_dialect(name, dialect)
    ctx.load_registered_dialect("builtin")
    return ctx
