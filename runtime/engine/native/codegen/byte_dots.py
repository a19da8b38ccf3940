"""Sums of four products of 8-bit integers in each 32-bit lane, as the CPU does them; always exact.

| form | CPU | instruction |
|---|---|---|
| `vnni` | x86 with AVX512-VNNI or AVX-VNNI | `vpdpbusd`: ui8 by i8 |
| `wide` | other x86, WebAssembly | two `pmaddwd` of a left-hand side in 16 bits; never `pmaddubsw`, which saturates |
| `thin` | the same, for few rows; all of WebAssembly | the same, of a right-hand side that is widened when it is loaded |
| `usdot`, `sdot` | 64-bit ARM with I8MM, with DOTPROD | ui8 by i8, i8 by i8 |
| `plain` | all others | products of 32 bits |

The right-hand side is i8, packed in four bytes of k for each column: `[k / 4][vector][lane][4]`. `wide` takes 16 bits:
`[k / 4][vector][2][lane][2]`. `thin` takes bytes in the order of `wide`: half as many to read, and reading bounds a product of few rows.
`plain` takes `[k / 4][vector][4][lane]`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.llvm_builder import Function

SIGNS = -2139062144  # 0x80808080: the sign bits of four bytes


def form_of(machine: Machine, few: bool = False) -> str:
    """Chooses the form for a CPU. `few`: for a left-hand side of few rows."""
    if "aarch64" in machine.triple:
        return "usdot" if machine.has("i8mm") else "sdot" if machine.has("dotprod") else "plain"
    if machine.architecture not in ("x86_64", "wasm32"):
        return "plain"
    vnni = "avx512vnni" if machine.vector_bytes == 64 else "avxvnni"
    if machine.vector_bytes > 16 and machine.has(vnni):
        return "vnni"
    if machine.vector_bytes == 64 and not machine.has("avx512bw"):
        return "plain"
    return "thin" if few else "wide"


def lanes_of(machine: Machine) -> int:
    """Counts the sums of a vector."""
    return machine.vector_bytes // 4


def block_of(machine: Machine) -> tuple[int, int]:
    """Returns the rows, and the vectors per row, of the largest block of sums that the registers hold."""
    if machine.vector_bytes == 64 or "aarch64" in machine.triple:
        return 6, 4
    return (4, 2) if machine.few_registers or form_of(machine) == "plain" else (6, 2)


def left_type(machine: Machine, dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """Returns the type that the left-hand side has in memory, of bytes of a type."""
    return np.dtype(np.int16) if form_of(machine) == "wide" else dtype


def bytes_of(machine: Machine, few: bool = False) -> int:
    """Counts the bytes of four rows of k of a packed vector."""
    return machine.vector_bytes * (2 if form_of(machine, few) == "wide" else 1)


def offset_of(machine: Machine, signed: bool) -> int:
    """Returns what the form adds to each element of the left-hand side: +128 makes i8 unsigned, -128 makes ui8 signed."""
    form = form_of(machine)
    if form == "vnni":
        return 128 if signed else 0
    return -128 if form == "sdot" and not signed else 0


def parts_of(machine: Machine) -> int:
    """Counts the instructions that sum four products."""
    return {"plain": 4, "wide": 2}.get(form_of(machine), 1)


def right(f: Function, machine: Machine, place: str, part: int, few: bool = False) -> str:
    """Loads a part of the right-hand side of one vector of columns, which is four rows of k."""
    form, n = form_of(machine, few), lanes_of(machine)
    if form == "plain":
        return f.let(f"sext <{n} x i8> {f.load(f'<{n} x i8>', f.beyond(place, part * n), 1)} to <{n} x i32>")
    if form == "thin":
        half = f.load(f"<{2 * n} x i8>", f.beyond(place, 2 * n * part), 1)
        return f.let(f"bitcast <{2 * n} x i16> {f.let(f'sext <{2 * n} x i8> {half} to <{2 * n} x i16>')} to <{n} x i32>")
    return f.load(f"<{n} x i32>", f.beyond(place, 4 * n * part), 4)


def left(f: Function, machine: Machine, place: str, part: int, signed: bool) -> str:
    """Loads a part of four elements of a row and spreads it over a vector, as `summed` takes it."""
    form, n = form_of(machine), lanes_of(machine)
    if form == "plain":
        return f.splat("i32", n, f.let(f"{'sext' if signed else 'zext'} i8 {f.load('i8', f.beyond(place, part))} to i32"))
    word = f.load("i32", f.beyond(place, 4 * part), 1)
    if offset_of(machine, signed):
        # Before it is spread: LLVM 22 never ends on a vector of constants combined with a spread load, as an operand of vpdpbusd.
        word = f.let(f"xor i32 {word}, {SIGNS}")
    return f.splat("i32", n, word)


def summed(f: Function, machine: Machine, total: str, x: str, y: str, signed: bool) -> str:
    """Adds products of each column to `total`: x of `left`, y of `right`, of one part."""
    form, n = form_of(machine), lanes_of(machine)
    vector, half, bytes = f"<{n} x i32>", f"<{2 * n} x i16>", f"<{4 * n} x i8>"
    if form == "plain":
        return f.let(f"add {vector} {total}, {f.let(f'mul {vector} {x}, {y}')}")
    if form == "wide":  # and `thin`
        return add_pairs(f, machine, total, *(f.let(f"bitcast {vector} {v} to {half}") for v in (x, y)))
    x, y = (f.let(f"bitcast {vector} {v} to {bytes}") for v in (x, y))
    if form == "vnni":
        return f.call(vector, f"llvm.x86.avx512.vpdpbusd.{32 * n}", (vector, total), (bytes, x), (bytes, y))
    form = "sdot" if signed else form
    a, b = (x, y) if form == "usdot" else (y, x)
    return f.call(vector, f"llvm.aarch64.neon.{form}.v4i32.v16i8", (vector, total), (bytes, a), (bytes, b))


def has_pairs(machine: Machine) -> bool:
    """Tells whether the CPU has `add_pairs`."""
    return form_of(machine) in ("vnni", "wide")


def add_pairs(f: Function, machine: Machine, total: str, x: str, y: str) -> str:
    """Adds two products of 16-bit integers in each lane to `total`, exact if not all four are the least integer."""
    lanes = lanes_of(machine)
    half, vector = f"<{2 * lanes} x i16>", f"<{lanes} x i32>"
    name = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}[lanes]
    name = "llvm.wasm.dot" if machine.architecture == "wasm32" else name
    return f.let(f"add {vector} {total}, {f.call(vector, name, (half, x), (half, y))}")


def packed(f: Function, machine: Machine, rows: Sequence[str], place: str, lane: str, few: bool = False) -> None:
    """Stores four rows of a column (i8) into the panel's vector at `place`."""
    form, n = form_of(machine, few), lanes_of(machine)
    if form == "plain":
        for j, row in enumerate(rows):
            f.store("i8", row, f.beyond(place, f.add(lane, j * n) if j else lane))
        return
    bits = 16 if form == "wide" else 8
    pairs = ((0, 1), (2, 3)) if form in ("wide", "thin") else ((0, 1, 2, 3),)
    type = f"i{bits * len(pairs[0])}"
    for i, chosen in enumerate(pairs):
        word = ""
        for position, j in enumerate(chosen):
            part = f.let(f"zext i{bits} {_sized(f, rows[j], bits)} to {type}")
            part = f.let(f"shl {type} {part}, {bits * position}") if position else part
            word = f.let(f"or {type} {word}, {part}") if word else part
        f.store(type, word, f.at(f.beyond(place, bits // 8 * len(chosen) * n * i), lane, type))


def _sized(f: Function, value: str, bits: int) -> str:
    """Extends an i8 with its sign to `bits`."""
    return value if bits == 8 else f.let(f"sext i8 {value} to i{bits}")
