"""Convolutions of 8-bit integers with one channel in and out of each group: a vector holds channels of one position.

    y[p, c] = sum over t of x[p, t, c] w[t, c]        i32, or formula(y, ..)

Element (p, t, 0) of x is at rows[p] + depth[t]; channels are adjacent and fill whole vectors. Four positions share each load of
weights. Where the CPU adds pairs of products of 16 bits, taps go by twos, and the weights of a channel's two taps are adjacent. A
formula runs on some positions by some channels, as in `byte_contraction.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from populus.runtime.codelets.task import Array
from populus.runtime.engine.native.codegen import byte_dots
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.codegen.llvm_builder import Function
from populus.runtime.engine.native.codegen.touched import Arguments, Elements, Touched
from populus.runtime.engine.native.kernels.formula_words import WORDS, Epilogue, call_formula, formula_touches
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.panels import Table

TOGETHER = 4  # positions whose sums are in registers
POSITIONS, VECTORS = 32, 4  # of a unit
FIRST_WORD = 10  # the arguments from here on are those of a formula


def lanes_of(machine: Machine) -> int:
    """Counts the channels of a vector."""
    return byte_dots.lanes_of(machine)


def _depthwise(formula: bool, signed: bool, name: str, machine: Machine) -> str:
    """Emits the kernel. Units are POSITIONS positions of VECTORS vectors of channels, those of the same channels first."""
    f = Function(name)
    x, rows, depth, w, c = f.args("ppppp")
    taps, m, n, row_step, w_step = (f.arg(5 + i) for i in range(5))
    lanes, pairs = lanes_of(machine), byte_dots.has_pairs(machine)
    bytes, vector = f"<{lanes} x i8>", f"<{lanes} x i32>"
    both, wide = f"<{2 * lanes} x i8>", f"<{2 * lanes} x i16>"
    turns = ", ".join(f"i32 {i // 2 + lanes * (i % 2)}" for i in range(2 * lanes))
    kind, size = "sext" if signed else "zext", 2 if pairs else 1  # bytes of a channel's weights
    chunks = f.let(f"sdiv i64 {f.add(m, POSITIONS - 1)}, {POSITIONS}")
    held = f.let(f"alloca [{POSITIONS * VECTORS * lanes} x i32], align 64")
    room = f.let(f"alloca [{WORDS} x i64], align 64")

    def widened(kind: str, place: str) -> str:
        return f.let(f"{kind} {bytes} {f.load(bytes, place, 1)} to {vector}")

    def pair(place: str, first: str, second: str) -> str:
        x0, x1 = (f.load(bytes, f.beyond(place, offset), 1) for offset in (first, second))
        turned = f.let(f"shufflevector {bytes} {x0}, {bytes} {x1}, <{2 * lanes} x i32> <{turns}>")
        return f.let(f"{kind} {both} {turned} to {wide}")

    def unit(u: str) -> None:
        panel, chunk = f.let(f"sdiv i64 {u}, {chunks}"), f.let(f"srem i64 {u}, {chunks}")
        first, column = f.mul(chunk, POSITIONS), f.mul(panel, VECTORS * lanes)
        count = f.call("i64", "llvm.smin.i64", ("i64", f.sub(m, first)), ("i64", str(POSITIONS)))
        width = f.call("i64", "llvm.smin.i64", ("i64", f.sub(n, column)), ("i64", str(VECTORS * lanes)))
        last = f.sub(count, 1)

        def channels(v: str) -> None:
            weights, own = f.beyond(w, f.mul(f.add(column, v), size)), f.beyond(x, f.add(column, v))

            def block(i: str) -> None:
                # Beyond the last position its sums are computed, and stored, again.
                places = [f.call("i64", "llvm.smin.i64", ("i64", f.add(i, p)), ("i64", last)) for p in range(TOGETHER)]
                starts = [f.beyond(own, f.load("i64", f.at(rows, f.add(first, p), "i64"))) for p in places]

                def two_taps(t: str, *sums: str) -> list[str]:
                    place = f.at(depth, f.mul(t, 2), "i64")
                    offsets = f.load("i64", place), f.load("i64", f.beyond(place, 8))
                    weight = f.let(f"sext {both} {f.load(both, f.beyond(weights, f.mul(t, w_step)), 1)} to {wide}")
                    return [byte_dots.add_pairs(f, machine, s, pair(start, *offsets), weight) for s, start in zip(sums, starts)]

                def tap(t: str, *sums: str) -> list[str]:
                    offset, weight = f.load("i64", f.at(depth, t, "i64")), widened("sext", f.beyond(weights, f.mul(t, w_step)))
                    values = [widened(kind, f.beyond(s, offset)) for s in starts]
                    products = [f.let(f"mul {vector} {v}, {weight}") for v in values]
                    return [f.let(f"add {vector} {s}, {p}") for s, p in zip(sums, products)]

                sums = f.loop(0, taps, two_taps if pairs else tap, [(vector, "zeroinitializer")] * TOGETHER)
                for p, total in zip(places, sums):
                    if formula:
                        f.store(vector, total, f.at(held, f.add(f.mul(p, VECTORS * lanes), v), "i32"), 4)
                    else:
                        f.store(vector, total, f.at(f.beyond(c, f.mul(f.add(first, p), row_step)), f.add(column, v), "i32"), 4)

            f.loop(0, count, block, step=TOGETHER)

        f.loop(0, width, channels, step=lanes)
        if formula:
            call_formula(f, FIRST_WORD, room, first, column, count, width, str(VECTORS * lanes), held)

    f.loop("%first", "%end", unit)
    return f.done()


def _touches(formula: bool, args: Arguments, units: int) -> Touched:
    """States what a launch touches."""
    x, rows, depth, w, c, _, m, n, row_step = args[:9]
    reads = [Elements.at(x, 1, rows[:m], np.unique(depth), (n, 1)), Elements.of(w)]
    if not formula:
        return Touched(reads, [Elements.at(c, 4, (m, row_step), (n, 4))])
    others, writes = formula_touches(args[FIRST_WORD:], m, n)
    return Touched([*reads, *others], writes)


def taps_of(machine: Machine, depth: Table) -> Table:
    """Lists the offsets of the taps as the kernel reads them: the last twice if taps go by twos and are odd."""
    return np.append(depth, depth[-1:]) if byte_dots.has_pairs(machine) and len(depth) % 2 else depth


def weights_shape(machine: Machine, taps: int, channels: int) -> tuple[int, int, int]:
    """Returns the shape of the weights: (steps of k, channels, taps of a step)."""
    return (-(-taps // 2), channels, 2) if byte_dots.has_pairs(machine) else (taps, channels, 1)


def launch(
    library: Library, x: Array, rows: Table, depth: Table, w: Array, n: int, c: Array, row_step: int, signed: bool, formula: Epilogue | None
) -> Launch:
    """Builds the launch. w: as `weights_shape`; c: [positions, channels], of the `n` channels that fill whole vectors; `row_step`: bytes
    from a position to the next, without a formula."""
    assert n % lanes_of(library.host) == 0, n
    depth = taps_of(library.host, depth)
    assert len(depth) == w.shape[0] * w.shape[2], (len(depth), w.shape)
    wide = VECTORS * lanes_of(library.host)
    units = -(-n // wide) * -(-len(rows) // POSITIONS)
    args: list[int | Array | Kernel] = [x, rows, depth, w, c, len(w), len(rows), n, row_step, w[0].nbytes]
    key = f"byte depthwise {formula is not None} {signed}"
    kernel = Kernel(key, partial(_depthwise, formula is not None, signed), partial(_touches, formula is not None))
    words: Sequence[int | Array | Kernel] = () if formula is None else formula.arguments()
    return Launch(library, kernel, [*args, *words], units, len(rows) * n * len(depth) // 30)
