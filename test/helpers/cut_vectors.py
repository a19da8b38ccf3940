"""Code for a CPU with other vectors and dot products than the CPU at hand: plugin of pytest, `-p helpers.cut_vectors`.

Plans, blocks and LLVM text are those of the CPU that POPULUS_CUT_CPU names. LLVM cuts vectors of 64 bytes for the CPU at hand, and
functions replace the instructions of AVX-512 that kernels name. So a wrong text or plan shows on any x86-64 CPU with AVX2, but for that of
tile registers. LLVM's own selection of instructions is not tested.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import pytest

from populus.runtime.engine.native.codegen import cpu, jit
from populus.runtime.engine.native.frozen import layout

VARIABLE = "POPULUS_CUT_CPU"  # names the CPU, one of `cpu.CPUS`
CUT = "cut-"  # begins the names of such CPUs
DOTS, PAIRS = "llvm.x86.avx512.vpdpbusd", "llvm.x86.avx512.pmaddw.d"
_KNOWN = dict(cpu.CPUS["x86_64"])
_HERE, _TARGET, _OPTIMISED = cpu._machine, jit.target_machine, jit.optimised  # pyright: ignore[reportPrivateUsage]


def _picked(vector: str, lanes: int, every: int, first: int) -> str:
    indices = ", ".join(f"i32 {every * i + first}" for i in range(lanes))
    return f"shufflevector <{every * lanes} x i32> {vector}, <{every * lanes} x i32> poison, <{lanes} x i32> <{indices}>"


def summing(name: str, lanes: int, every: int, extended: tuple[str, str], total: bool) -> str:
    """Writes a function that adds `every` products of adjacent integers for each of its lanes, and `total` if it has one."""
    inner, wide, type = every * lanes, f"<{every * lanes} x i32>", f"<{lanes} x i32>"
    narrow = f"<{inner} x i{32 // every}>"
    lines = [f"%{v}w = {how} {narrow} %{v} to {wide}" for v, how in zip("xy", extended)]
    lines += [f"%p = mul {wide} %xw, %yw", f"%s0 = {_picked('%p', lanes, every, 0)}"]
    for i in range(1, every):
        lines += [f"%q{i} = {_picked('%p', lanes, every, i)}", f"%s{i} = add {type} %s{i - 1}, %q{i}"]
    lines += [f"%r = add {type} %s{every - 1}, {'%total' if total else 'zeroinitializer'}", f"ret {type} %r"]
    parameters = ([f"{type} %total"] if total else []) + [f"{narrow} %x", f"{narrow} %y"]
    return f"define internal {type} @{name}({', '.join(parameters)}) alwaysinline {{\n" + "\n".join(lines) + "\n}\n"


def without_instructions(text: str) -> str:
    """Replaces the instructions of AVX-512 that a kernel's text names by functions."""
    for name, every, extended, total in ((DOTS, 4, ("zext", "sext"), True), (PAIRS, 2, ("sext", "sext"), False)):
        for bits in sorted({int(found) for found in re.findall(rf"@{re.escape(name)}\.(\d+)\(", text)}):
            there, ours = f"{name}.{bits}", f"cut_{every}_{bits}"
            text = re.sub(rf"^declare .*@{re.escape(there)}\(.*\n", "", text, flags=re.MULTILINE).replace(f"@{there}(", f"@{ours}(")
            text += summing(ours, bits // 32, every, extended, total)
    assert "llvm.x86.avx512" not in text, re.findall(r"@llvm\.x86\.avx512[^(]*", text)
    return text


def cut(name: str) -> cpu.Machine:
    """Describes a CPU of the table whose code the CPU at hand runs in its own instructions."""
    return cpu.Machine(here().triple, f"{CUT}{name}", _KNOWN[name], here().llvmlite)


def machine(name: str | None) -> cpu.Machine:
    """Describes a CPU as `cpu.machine` does, and one whose features this one lacks as cut."""
    lacks = name in _KNOWN and not cut(name).enabled <= here().enabled
    return cut(name) if name is not None and lacks else _HERE(name)


def here() -> cpu.Machine:
    """Describes the CPU at hand, whatever code is made for."""
    return _HERE(None)


def install(name: str, patch: Callable[[object, str, object], None] = setattr) -> None:
    """Makes all code of this process that of a cut CPU, but where another one is named."""

    def chosen(named: str | None) -> cpu.Machine:
        return cut(name) if named is None else machine(named)

    def target_machine(host: cpu.Machine) -> Any:
        return _TARGET(here() if host.cpu.startswith(CUT) else host)

    def passed(text: str, host: cpu.Machine, vectors: bool = False) -> tuple[Any, Any]:
        return _OPTIMISED(without_instructions(text) if host.cpu.startswith(CUT) else text, host, vectors)

    # A library that is built asks for the features of the instructions that it has.
    features = {**layout.FEATURES, "x86_64": tuple(f for f in layout.FEATURES["x86_64"] if f in here().enabled)}
    patch(layout, "FEATURES", features)
    patch(cpu, "_machine", chosen)
    patch(jit, "target_machine", target_machine)
    patch(jit, "optimised", passed)


def use(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a test's code that of a CPU of the table, whatever the CPU at hand has."""
    if machine(name).cpu == name:
        monkeypatch.setenv(cpu.VARIABLE, name)
    else:
        monkeypatch.delenv(cpu.VARIABLE, raising=False)
        install(name, monkeypatch.setattr)


def pytest_configure() -> None:
    """Installs the CPU that the environment names when pytest begins; else leaves all as it is."""
    if name := os.environ.get(VARIABLE):
        install(name)
