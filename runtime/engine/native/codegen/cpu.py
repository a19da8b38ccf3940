"""CPU that code is made for: its name, its features, and the properties that the kernels' builders ask for."""

from __future__ import annotations

import ctypes
import importlib
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from importlib.util import find_spec
from typing import Any

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.runtime.built.code import processor
from populus.runtime.engine.native.codegen import object_cache

VARIABLE = "POPULUS_NATIVE_CPU"  # names one of CPUS to use instead of the CPU at hand

# Levels of the x86-64 psABI. Kernels must know a CPU's features, and LLVM does not list those of a name.
_V2 = "+cx16,+popcnt,+sahf,+sse3,+ssse3,+sse4.1,+sse4.2"
_V3 = f"{_V2},+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave"
_V4 = f"{_V3},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
_VNNI = {"alderlake": f"{_V3},+avxvnni", "cascadelake": f"{_V4},+avx512vnni"}  # which add dot products of bytes
CPUS: dict[str, dict[str, str]] = {  # architecture -> LLVM's name -> features
    "x86_64": {"x86-64": "", "x86-64-v2": _V2, "x86-64-v3": _V3, "haswell": _V3, "x86-64-v4": _V4, "skylake-avx512": _V4, **_VNNI},
    "aarch64": {"generic": "+neon"},
    "riscv64": {"generic-rv64": "+m,+a,+f,+d,+c,+v"},
    "wasm32": {"generic": "+simd128,+bulk-memory,+bulk-memory-opt,+mutable-globals,+nontrapping-fptoint,+sign-ext"},
}
RELAXED = "relaxed-simd"  # WebAssembly's products that are added and rounded once, where the CPU does so
ATOMICS = "atomics"  # WebAssembly's instructions on memory that threads share


def binding() -> Any:
    """Imports `llvmlite.binding` and initialises it for this machine.

    The import takes 80 ms, so it waits for the first use. Raises ImportError without llvmlite.
    """
    llvm: Any = importlib.import_module("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@dataclass(frozen=True)
class Machine:
    """CPU with its `features` in LLVM's spelling: `+avx2,-sse4a,...`."""

    triple: str
    cpu: str
    features: str
    llvmlite: str

    @cached_property
    def enabled(self) -> frozenset[str]:
        """Names of the enabled features."""
        return frozenset(f[1:] for f in self.features.split(",") if f.startswith("+"))

    def has(self, feature: str) -> bool:
        """Tells whether a feature is enabled: all that a kernel's text may depend on, beside the architecture."""
        return feature in self.enabled

    @property
    def architecture(self) -> str:
        """Name of the instruction set: `x86_64`, `aarch64`, ..."""
        name = self.triple.partition("-")[0]
        return {"arm64": "aarch64", "amd64": "x86_64"}.get(name.lower(), name)

    @property
    def fused(self) -> bool:
        """True if a multiplication and an addition are one instruction, rounded once."""
        return any(map(self.has, ("fma", "neon", "v", RELAXED)))

    @property
    def vector_bytes(self) -> int:
        """Bytes of the widest vector register."""
        return next((n for feature, n in (("avx512f", 64), ("avx", 32)) if self.has(feature)), 16)

    @property
    def masks_freely(self) -> bool:
        """True if a masked load or store is one operation, by a register of masks. AVX2's loads are two, its stores dozens."""
        return self.has("avx512f")

    @property
    def converts_halves(self) -> bool:
        """True if instructions convert f16 and f32."""
        return self.has("f16c") or self.has("neon")

    @property
    def tiles(self) -> bool:
        """True if tile registers multiply 8-bit integers, and this process may use them."""
        return all(map(self.has, ("amx-tile", "amx-int8", "avx512vnni", "avx512bw")))

    @property
    def half_tiles(self) -> bool:
        """True if tile registers multiply bf16 too."""
        return self.tiles and self.has("amx-bf16")

    def relaxed(self) -> Machine:
        """Describes WebAssembly with relaxed vectors."""
        return replace(self, features=f"{self.features},+{RELAXED}")

    def threaded(self) -> Machine:
        """Describes WebAssembly whose memory threads share."""
        return replace(self, features=f"{self.features},+{ATOMICS}")

    def without_tiles(self) -> Machine:
        """Describes the CPU without its tile registers, for which a process must ask the system."""
        return replace(self, features=self.features.replace("+amx", "-amx"))

    @property
    def few_registers(self) -> bool:
        """True if sums of 16 lanes take all vector registers: V8 keeps some 15 vectors of 16 bytes."""
        return self.architecture == WASM

    @property
    def block(self) -> tuple[int, int]:
        """Rows, and vectors per row, of the largest block of sums that the registers hold."""
        few = (6, 2) if self.has("neon") or self.has("v") else (4, 2)  # V8 keeps at most 9 sums in registers
        return {64: (8, 3), 32: (6, 2), 16: few}[self.vector_bytes]


def machine(cpu: str | None = None) -> Machine:
    """Describes this machine, or the CPU named by `cpu` or by the environment, with exactly that name's features.

    Raises PopulusError for a name that is not one of this architecture's CPUS, and for a CPU with features that this
    one lacks.
    """
    return _machine(cpu or os.environ.get(VARIABLE) or None)


NATIVE, WASM = "native", "wasm32"  # names of what programs are built for, beside CPUS of x86-64
CROSS = {"aarch64": ("aarch64", "generic"), "riscv64": ("riscv64", "generic-rv64"), WASM: (WASM, "generic")}


def described(cpu: str) -> Machine:
    """Describes a CPU that a program is built for, which this one need not be. `native`: this CPU.

    Raises PopulusError for an unknown name.
    """
    if cpu == NATIVE:
        return machine().without_tiles()
    architecture, name = CROSS.get(cpu, ("x86_64", cpu))
    known = CPUS[architecture]
    if name not in known:
        raise PopulusError(f"no CPU '{cpu}'{did_you_mean(cpu, [NATIVE, *CROSS, *CPUS['x86_64']])}")
    return Machine(f"{architecture}-unknown-{'unknown' if architecture == WASM else 'linux-gnu'}", name, known[name], machine().llvmlite)


def _tiles_allowed() -> bool:
    """Asks Linux for the tile registers, which every thread of the process then has. Returns False without them."""
    if not sys.platform.startswith("linux"):
        return False
    arch_prctl, request, tile_data = 158, 0x1023, 18  # ARCH_REQ_XCOMP_PERM: Documentation/arch/x86/xstate.rst
    try:
        return ctypes.CDLL(None).syscall(arch_prctl, request, tile_data) == 0
    except (AttributeError, OSError):
        return False


def _asked() -> Machine:
    """Asks LLVM for this CPU: its library alone, as `llvmlite.binding` and what that imports take longer than the answer."""
    llvmlite = importlib.import_module("llvmlite")
    try:
        answers = _answers(ctypes.CDLL(os.path.join(os.path.dirname(str(llvmlite.__file__)), "binding", "libllvmlite.so")))
    except (OSError, AttributeError):  # of another system, or another llvmlite
        llvm = binding()
        answers = llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    triple, cpu, features = map(str, answers)
    return Machine(triple, cpu, features, str(llvmlite.__version__))


def _answers(library: ctypes.CDLL) -> tuple[str, str, str]:
    def said(function: Callable[..., object]) -> str:
        text = ctypes.c_char_p()
        function(ctypes.byref(text))
        found = (text.value or b"").decode()
        library.LLVMPY_DisposeString(text)
        return found

    features = filter(None, said(library.LLVMPY_GetHostCPUFeatures).split(","))
    by_name = ",".join(sorted(features, key=lambda feature: feature[1:]))
    return said(library.LLVMPY_GetProcessTriple), said(library.LLVMPY_GetHostCPUName), by_name


def _host() -> Machine:
    """Describes this CPU. LLVM's answer is kept for what the system says of the CPU, so that its import can wait for a kernel to compile.

    Raises ImportError without llvmlite.
    """
    said, found = processor(), find_spec("llvmlite")
    if found is None or found.origin is None:
        raise ImportError("llvmlite")
    if not said:
        return _asked()
    at = os.stat(found.origin)
    key = sha256(repr((said, found.origin, at.st_size, at.st_mtime_ns, platform.machine())).encode()).hexdigest()
    content = object_cache.get(f"cpu-{key}")
    if content is not None and len(lines := content.decode().split("\n")) == len(fields(Machine)):
        return Machine(*lines)
    host = _asked()
    object_cache.put(f"cpu-{key}", f"{host.triple}\n{host.cpu}\n{host.features}\n{host.llvmlite}".encode())
    return host


@lru_cache(16)
def _machine(cpu: str | None) -> Machine:
    host = _host()
    triple, version = host.triple, host.llvmlite
    if cpu is None:
        return host if not host.tiles or _tiles_allowed() else host.without_tiles()
    known = CPUS.get(triple.partition("-")[0], {})
    if cpu not in known:
        raise PopulusError(f"{VARIABLE} = {cpu} is no CPU that code is made for here{did_you_mean(cpu, known)}")
    chosen = Machine(triple, cpu, known[cpu], version)
    if missing := sorted(chosen.enabled - host.enabled):
        raise PopulusError(f"{VARIABLE} = {cpu}; this CPU, {host.cpu}, lacks {', '.join(missing)}")
    return chosen
