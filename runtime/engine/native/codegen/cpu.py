"""The CPU that code is made for: its name, its features, and what of them the kernels' builders ask."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

VARIABLE = "POPULUS_NATIVE_CPU"  # a CPU by LLVM's name, such as x86-64 or haswell, instead of the one at hand


def binding() -> Any:
    """`llvmlite.binding`, ready for this machine. Imported when first asked for, as it takes 80 ms. Raises ImportError without llvmlite."""
    llvm: Any = importlib.import_module("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@dataclass(frozen=True)
class Machine:
    """A CPU. `features`: as LLVM writes them, `+avx2,-sse4a,...`."""

    triple: str
    cpu: str
    features: str
    llvmlite: str

    @cached_property
    def enabled(self) -> frozenset[str]:
        return frozenset(f[1:] for f in self.features.split(",") if f.startswith("+"))

    @property
    def fused(self) -> bool:
        """Whether a multiplication and an addition are one instruction, rounded once."""
        return bool({"fma", "neon"} & self.enabled)

    @property
    def vector_bytes(self) -> int:
        """The widest vector register."""
        return next((n for feature, n in (("avx512f", 64), ("avx", 32)) if feature in self.enabled), 16)

    @property
    def block(self) -> tuple[int, int]:
        """Rows, and vectors to a row, of the largest block of sums that the registers hold."""
        return {64: (8, 3), 32: (6, 2), 16: (6, 2) if "neon" in self.enabled else (4, 2)}[self.vector_bytes]


@lru_cache(4)
def machine(cpu: str | None = None) -> Machine:
    """This machine; with `cpu`, or that name in the environment, as if it were such a one with no features beyond."""
    llvm = binding()
    version = str(importlib.import_module("llvmlite").__version__)
    triple = str(llvm.get_process_triple())
    chosen = cpu or os.environ.get(VARIABLE)
    if not chosen:
        return Machine(triple, str(llvm.get_host_cpu_name()), str(llvm.get_host_cpu_features().flatten()), version)
    features = {"haswell": "+avx,+avx2,+fma", "x86-64-v3": "+avx,+avx2,+fma"}.get(chosen, "")
    return Machine(triple, chosen, features, version)
