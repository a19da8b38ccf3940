"""Kernels that a frozen program needs beside its own where this process runs it: the walk, moves of arrays, the sums of a file."""

from __future__ import annotations

from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel
from populus.runtime.engine.native.codegen.llvm_builder import Function
from populus.runtime.engine.native.run.step_loop import WALK, WORKER


def _move(into: bool) -> Kernel:
    """Makes the kernel that moves a caller's array `into` the program, or out: its arguments are slot, place and bytes."""

    def build(name: str, machine: Machine) -> str:
        f = Function(name)
        slot, place, bytes = f.args("ppi")
        array = f.load("ptr", slot)
        ends = ("ptr", place), ("ptr", array)
        f.call("void", "llvm.memcpy.p0.p0.i64", *(ends if into else ends[::-1]), ("i64", bytes), ("i1", "false"))
        return f.done()

    return Kernel(f"move {'in' if into else 'out'}", build, vectors=True)


def _sums(name: str, machine: Machine) -> str:
    """Emits `void sums(data, rows, into)`: a row of a file is added to 8 sums, and these to 8 others, as `form.checksum` does."""
    f, row = Function(name, "ptr %data, i64 %rows, ptr %into", "void"), "<8 x i64>"

    def added(i: str, words: str, sums: str) -> list[str]:
        words = f.let(f"add {row} {words}, {f.load(row, f.beyond('%data', f.mul(i, 64)), 8)}")
        return [words, f.let(f"add {row} {sums}, {words}")]

    places = "%into", f.beyond("%into", 64)
    for total, place in zip(f.loop(0, "%rows", added, [(row, f.load(row, place, 8)) for place in places]), places):
        f.store(row, total, place, 8)
    return f.done("void")


SUMS = Kernel("sums of a file", _sums, vectors=True)

# By the names under which `built/kept.py` asks for them.
OWN = {
    "walk": WALK,
    "worker": WORKER,
    "in": _move(into=True),
    "out": _move(into=False),
    "sums": SUMS,
}
