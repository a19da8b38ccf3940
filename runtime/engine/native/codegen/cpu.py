"""The CPU that code is made for: its name, its features, and what of them the kernels' builders ask."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from populus.dialects.support.diagnostics import PopulusError, did_you_mean

VARIABLE = "POPULUS_NATIVE_CPU"  # one of CPUS instead of the CPU at hand

# Levels of the x86-64 psABI. LLVM does not say what a name stands for, and kernels must know: a CPU without its features is another one.
_V2 = "+cx16,+popcnt,+sahf,+sse3,+ssse3,+sse4.1,+sse4.2"
_V3 = f"{_V2},+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave"
_V4 = f"{_V3},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
CPUS: dict[str, dict[str, str]] = {  # by architecture, and by LLVM's name: features
    "x86_64": {"x86-64": "", "x86-64-v2": _V2, "x86-64-v3": _V3, "haswell": _V3, "x86-64-v4": _V4, "skylake-avx512": _V4},
    "aarch64": {"generic": "+neon"},
}


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


def machine(cpu: str | None = None) -> Machine:
    """This machine; with `cpu`, or that name in the environment, as if it were such a one with no features beyond.

    Raises PopulusError for a name that is none of this architecture's CPUS, and for a CPU with features that this one has not.
    """
    return _machine(cpu or os.environ.get(VARIABLE) or None)


@lru_cache(16)
def _machine(cpu: str | None) -> Machine:
    llvm = binding()
    version = str(importlib.import_module("llvmlite").__version__)
    triple = str(llvm.get_process_triple())
    host = Machine(triple, str(llvm.get_host_cpu_name()), str(llvm.get_host_cpu_features().flatten()), version)
    if cpu is None:
        return host
    known = CPUS.get(triple.partition("-")[0], {})
    if cpu not in known:
        raise PopulusError(f"{VARIABLE} = {cpu} is no CPU that code is made for here{did_you_mean(cpu, known)}")
    chosen = Machine(triple, cpu, known[cpu], version)
    if missing := sorted(chosen.enabled - host.enabled):
        raise PopulusError(f"{VARIABLE} = {cpu}; this CPU, {host.cpu}, lacks {', '.join(missing)}")
    return chosen
