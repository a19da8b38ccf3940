"""Convolutions by single elements with their roles swapped: rows are output channels, vectors are positions of a plane.

    y[m, n] = sum over k of w[m, k] x[k, n]

x is read in place, as a plane's positions are adjacent, and y is stored in whole vectors; only w is packed. Where few
channels fill their vectors badly, positions fill them better. The sums have the order and the bits of `contraction.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from populus.runtime.codelets.task import Array, Task
from populus.runtime.endings import MOST
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.codegen.llvm_builder import Function
from populus.runtime.engine.native.codegen.touched import Arguments, Elements, Touched
from populus.runtime.engine.native.kernels.blocks import block_kernel
from populus.runtime.engine.native.kernels.contraction import GROUP, STAGE, Product, Stages, count_of, lanes_of, start_of
from populus.runtime.engine.native.kernels.endings import LINE, ending_of
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.operands import Convolution, OnMatrix, Word, ending_words, on_matrix, step_of
from populus.runtime.engine.native.kernels.panels import Packed, Panels, Slices, Table, lines, offsets

BLOCKS, DEEP = 6, 96  # blocks of output channels from which a panel of so many k is packed for them, and four times as many of any
FILL = 1.07  # lanes of a plane's vectors for each position, up to which positions fill them well


def suits(library: Library, c: Convolution) -> bool:
    """Tells whether a convolution can be computed so, and whether it is the faster way."""
    x, y = c.x, c.target
    lanes, item = lanes_of(library.host, y.dtype), y.itemsize
    area, oc = math.prod(y.shape[3:]), y.shape[2]
    single = all(n == 1 for n in c.kernel) and all(s == 1 or n == 1 for s, n in zip(c.strides, y.shape[3:]))
    least = 2 if library.host.vector_bytes >= 32 else lanes * library.host.block[1] if library.host.few_registers else math.inf
    if not single or area < least:
        return False  # vectors of 16 bytes have no masked loads: there the last panel begins earlier
    if x.shape[3:] != y.shape[3:] or any(step_of(along, *c.outs) != item for along in (c.along_x(), c.along_y)):
        return False
    filled, channels = (-(-n // lanes) * lanes / n for n in (area, oc))
    return filled <= FILL or filled < channels


def convolution(library: Library, task: Task, c: Convolution, slices: Slices | None) -> list[Launch] | None:
    """Builds the launches of all images and groups of a convolution that `suits` accepts. None if there is no code for its formula."""
    w, y = c.w, c.target
    groups, oc = w.shape[:2]
    order = slice(None) if slices is None else slices.order
    area, launches = math.prod(y.shape[3:]), list[Launch]()
    ends = None if slices is None else slices.ends
    along_x, along_w, along_y = c.along_x(), c.along_w, c.along_y
    product = _Positions(library, c.x, along_x.table(), along_x.table("ic")[order], y, along_y.bytes["oc"], y.itemsize, oc, ends)
    depth, columns = along_w.table("ic")[order], along_w.table("oc")
    shape = (groups, len(depth) * oc)
    if c.constant:

        def pack() -> Array:
            room = lines(shape, w.dtype)
            for g in range(groups):
                product.fill(room[g], w[g], depth, columns)
            return room

        key = (product.panels, shape, w.strides[0], w.dtype.name, depth.tobytes(), columns.tobytes())
        room = pack() if task.constants is None else task.constants.form(w.ctypes.data, key, pack)
        task.packed += [Packed(room[g], w[g].ctypes.data, depth, columns, product.panels) for g in range(groups)]
    else:
        room = task.scratch(shape, w.dtype)
        launches += [product.pack(w[g], depth, columns, room[g]) for g in range(groups)]
    weights = offsets((y.shape[0], groups), (0, room.strides[0]))
    flat = None if c.formula is None else on_matrix(c.formula, c.along, ("oc",), c.outs)
    if c.formula is not None and flat is None:
        return None
    others = ending_words(c.formula, c.along, ("b", "g"), ("oc",), c.outs)
    made = product.over(room, area, along_x.table("b", "g"), along_y.table("b", "g"), weights, flat, others)
    return None if made is None else [*launches, made]


class _Positions(Product):
    """Product under construction whose packed side is w: [k][rows of a block], a block after the other."""

    @property
    def panels(self) -> Panels:
        """Blocks of output channels."""
        return Panels.of(self.n, 1, self.library.host.block[0])

    def over(
        self, packed: Array, area: int, xs: Table, ys: Table, ws: Table, formula: OnMatrix | None, others: Sequence[Word]
    ) -> Launch | None:
        """Builds the launch over planes of `area` positions, which are at xs and ys, with weights at ws.

        `formula`: on the sums of a plane; `others`: the words of its operands. Returns None if there is no code for it.
        """
        host, item, rows = self.library.host, self.c.itemsize, self.panels
        vectors = Panels.of(area, lanes_of(host, self.c.dtype), host.block[1])
        form = "swapped" if self.ends is None else "sliced swapped"
        # The last panel begins earlier by the lanes that it has too many, unless masks cost nothing: then all vectors are whole.
        late = not host.masks_freely and (vectors.parts > 1 or area == vectors.columns)
        # Rows of an image are far apart, and seldom begin with a line of the cache. A packed panel has neither fault.
        stages = Stages.words(len(self.depth), self.ends, vectors.broad * vectors.lanes * item)
        often = rows.parts >= (BLOCKS if len(self.depth) >= DEEP else 4 * BLOCKS)
        packs = late and often and _longest(stages) * vectors.broad * vectors.lanes * item <= STAGE
        form += " packed" if packs else ""
        inner, last = (f"{form} whole", f"{form} whole" if area == vectors.columns else f"{form} late") if late else (form, form)
        if host.few_registers and not any(isinstance(x, np.ndarray) and np.may_share_memory(x, self.c) for x in others):
            # Here it stores those lanes again, the same: all panels take one kernel, which is less code.
            parts = -(-area // (vectors.lanes * vectors.broad))
            vectors, inner, last = replace(vectors, parts=parts, wide=parts), f"{form} whole", f"{form} whole"
        ending = None if formula is None else ending_of(formula.at(0, 0), 1)
        if formula is not None and ending is None:
            return None
        heights = (rows.broad, rows.broad - (rows.wide < rows.parts))
        narrow = vectors.broad - (vectors.wide < vectors.parts)
        # Sizes that do not occur are not compiled.
        between = last if vectors.parts - vectors.wide == 1 else inner
        forms = ((vectors.broad, inner if vectors.parts > 1 else last), (narrow, between), (narrow, last))
        kernels = [block_kernel(r, v, self.c.dtype.name, form, ending) for v, form in forms for r in heights]
        args: list[int | Array | Kernel] = [
            self.a, self.depth, packed, self.c, *kernels, xs, ys, ws, len(self.depth), area,
            rows.parts, rows.wide, rows.broad, vectors.parts, vectors.wide, vectors.broad, vectors.lanes, item, self.row_step, int(late),
            int(packs), *stages, len(others) // 4, *others,
        ]  # fmt: skip
        assert len(args) == FIRST_WORD + len(others), len(args)
        work = len(xs) * rows.n * vectors.columns * len(self.depth) * item // 200
        return Launch(self.library, POSITIONS, args, len(xs) * vectors.parts * rows.parts, work)


def _longest(stages: Sequence[int | Array | Kernel]) -> int:
    """Measures the longest stage of k, of the words of `Stages`."""
    ends, begins = stages[:2]
    assert isinstance(ends, np.ndarray)
    assert isinstance(begins, np.ndarray)
    return int(np.diff(ends[begins]).max())


def _packed(f: Function, machine: Machine, wanted: str, room: str, x: str, depth: str, vectors: str, ends: str, slices: str) -> str:
    """Emits the packing of a stage of a panel of x, if it is wanted. Returns the panel's address, at element 0 of k."""
    low, high = f.load("i64", ends), f.load("i64", f.at(ends, slices, "i64"))
    size = machine.vector_bytes
    vector, bytes = f"<{size} x i8>", f.mul(vectors, size)

    def pack(count: int, i: str) -> None:
        line, into = f.beyond(x, f.load("i64", f.at(depth, i, "i64"))), f.beyond(room, f.mul(f.sub(i, low), bytes))
        taken = [f.load(vector, f.beyond(line, v * size), 1) for v in range(count)]
        for v, value in enumerate(taken):
            f.store(vector, value, f.beyond(into, v * size), 1)

    for count in range(1, machine.block[1] + 1):
        here = f.let(f"and i1 {wanted}, {f.let(f'icmp eq i64 {vectors}, {count}')}")
        f.loop(low, f.let(f"select i1 {here}, i64 {high}, i64 {low}"), partial(pack, count))
    return f.let(f"select i1 {wanted}, ptr {f.beyond(room, f.mul(f.sub('0', low), bytes))}, ptr {x}")


# long: one kernel; its parts share the values of the function
def _positions(name: str, machine: Machine) -> str:
    """Emits the kernel of all blocks. Units are blocks of a panel of positions, panels of a plane, planes."""
    f = Function(name)
    a, depth, packed, c, *rest = f.args("ppppppppppppp")
    kernels, (xs, ys, ws) = rest[:6], rest[6:]
    k, area, blocks, tall, high, parts, wide, broad, lanes, item, row_step, late, packs = (f.arg(13 + i) for i in range(13))
    table, others = Stages(f, 26), f.arg(29)
    each = machine.block[0] * machine.block[1] * machine.vector_bytes
    buffer = f.let(f"alloca [{GROUP * each} x i8], align 64")
    words = f.let(f"alloca [{3 * MOST} x i64], align 64")
    packed_x = "" if machine.masks_freely else f.let(f"alloca [{STAGE} x i8], align 64")

    def panel(q: str) -> None:
        p = f.let(f"sdiv i64 {q}, {parts}")
        j = f.sub(q, f.mul(p, parts))
        narrow = f.let(f"icmp sge i64 {j}, {wide}")
        vectors = f.sub(broad, f.let(f"zext i1 {narrow} to i64"))
        column, width = f.mul(start_of(f, j, wide, broad), lanes), f.mul(vectors, lanes)
        valid = f.call("i64", "llvm.smin.i64", ("i64", width), ("i64", f.sub(area, column)))
        is_late, is_packed = (f.let(f"icmp ne i64 {word}, 0") for word in (late, packs))
        over = f.let(f"select i1 {is_late}, i64 {f.sub(width, valid)}, i64 0")
        column, valid = f.sub(column, over), f.let(f"select i1 {is_late}, i64 {over}, i64 {valid}")
        start = f.mul(column, item)
        x, y = (f.beyond(f.beyond(base, f.load("i64", f.at(t, p, "i64"))), start) for base, t in ((a, xs), (c, ys)))
        w = f.beyond(packed, f.load("i64", f.at(ws, p, "i64")))
        last = f.let(f"icmp eq i64 {j}, {f.sub(parts, 1)}")
        tall_kernel, short_kernel = (
            f.let(f"select i1 {last}, ptr {kernels[4 + i]}, ptr {f.let(f'select i1 {narrow}, ptr {kernels[2 + i]}, ptr {kernels[i]}')}")
            for i in range(2)
        )

        def operand(i: str) -> None:
            """Writes the words of an ending's operand, at this plane."""
            base, places, *steps = f.args_of(f.add(f.mul(i, 4), FIRST_WORD), "ppii")
            into = f.at(words, f.mul(i, 3), "i64")
            f.store("ptr", f.beyond(base, f.load("i64", f.at(places, p, "i64"))), into)
            for n, step in enumerate(steps, 1):
                f.store("i64", step, f.at(into, n, "i64"))

        f.loop(0, others, operand)

        def blocks_of(first: str, last: str, ends: str, slices: str, stage: str) -> None:
            right = x if machine.masks_freely else _packed(f, machine, is_packed, packed_x, x, depth, vectors, ends, slices)

            def block(i: str) -> None:
                row = start_of(f, i, tall, high)
                kernel = f.let(f"select i1 {f.let(f'icmp sge i64 {i}, {tall}')}, ptr {short_kernel}, ptr {tall_kernel}")
                weights = f.beyond(w, f.mul(f.mul(row, k), item))
                held = f.beyond(buffer, f.mul(f.sub(i, first), each))
                # The first blocks fetch a line each of the next panel's positions, which are too far apart for the CPU to
                # foresee; the others have nothing to fetch.
                share = f.sub(i, first)
                next = f.let(f"select i1 {f.let(f'icmp sle i64 {share}, {vectors}')}, i64 {f.add(vectors, share)}, i64 0")
                ahead = f.beyond(x, f.mul(next, LINE))
                f.line(
                    f"call void {kernel}(ptr {right}, ptr {depth}, ptr {depth}, ptr {weights}, "
                    f"ptr {f.beyond(y, f.mul(row, row_step))}, i64 {row_step}, i64 {valid}, ptr {ends}, i64 {slices}, i64 {stage}, "
                    f"ptr {held}, ptr {ahead}, i64 0, ptr {words}, i64 {row}, i64 {column})"
                )

            f.loop(first, last, block)

        earlier = f.mul(q, blocks)
        begin = f.call("i64", "llvm.smax.i64", ("i64", f.sub("%first", earlier)), ("i64", "0"))
        until = f.call("i64", "llvm.smin.i64", ("i64", f.sub("%end", earlier)), ("i64", blocks))
        table.groups(begin, until, blocks_of)

    f.loop(f.let(f"sdiv i64 %first, {blocks}"), f.let(f"sdiv i64 {f.sub(f.add('%end', blocks), 1)}, {blocks}"), panel)
    return f.done()


FIRST_WORD = 30  # the arguments from here on are those of an ending: for each operand its address, places by plane, steps


def _touches(args: Arguments, units: int) -> Touched:
    """States what a launch of `_positions` touches."""
    a, depth, packed, c = args[:4]
    xs, ys, ws = args[10:13]
    k, area, blocks, tall, high, _, _, _, _, item, row_step = args[13:24]
    m, positions = count_of(tall, high, blocks), (area, item)
    reads = [Elements.at(a, item, xs, depth[:k], positions), Elements.at(packed, item, ws, (k * m, item))]
    for i in range(args[29]):
        x, places, down, right = args[FIRST_WORD + 4 * i : FIRST_WORD + 4 * (i + 1)]
        reads.append(Elements.at(x, x.itemsize, places, (m, down), (area, right)))
    return Touched(reads, [Elements.at(c, item, ys, (m, row_step), positions)])


POSITIONS = Kernel("positions", _positions, _touches)
