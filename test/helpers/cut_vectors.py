"""Code for a CPU with AVX-512 and its dot products, on a CPU that lacks them: plugin of pytest, `-p helpers.cut_vectors`.

Plans, blocks and LLVM text are those of AVX-512. LLVM cuts vectors of 64 bytes for the CPU at hand, and functions replace the two
instructions that kernels name. So a wrong text or plan shows on any x86-64 CPU, but for that of tile registers. LLVM's own selection of
instructions for AVX-512 is not tested.
"""

from __future__ import annotations

import re
from typing import Any

from populus.runtime.engine.native.codegen import cpu, jit

NAME = "cut-avx512"  # of the CPU
DOTS, PAIRS = "llvm.x86.avx512.vpdpbusd", "llvm.x86.avx512.pmaddw.d"


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


def install() -> None:
    """Makes all code of this process that of the cut CPU."""
    known, target, optimised = cpu._machine, jit.target_machine, jit.optimised  # pyright: ignore[reportPrivateUsage]
    here = known(None)
    features = cpu.CPUS["x86_64"]["x86-64-v4"] + ",+avx512vnni"
    cut = cpu.Machine(here.triple, NAME, features, here.llvmlite)

    def machine(name: str | None) -> cpu.Machine:
        return cut if name is None else known(name)

    def target_machine(host: cpu.Machine, file: bool = False) -> Any:
        return target(here if host.cpu == NAME else host, file)

    def passed(text: str, host: cpu.Machine, file: bool = False) -> tuple[Any, Any]:
        return optimised(without_instructions(text) if host.cpu == NAME else text, host, file)

    for module, name, function in ((cpu, "_machine", machine), (jit, "target_machine", target_machine), (jit, "optimised", passed)):
        setattr(module, name, function)


def pytest_configure() -> None:
    """Installs the CPU when pytest begins."""
    install()
