"""Builder of products of 8-bit integers from `matmul` and `conv`, alone or together with the `map` that reads their sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from populus.runtime.codelets.task import Array, Task, seen_as
from populus.runtime.engine.native.codegen import byte_dots
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Library
from populus.runtime.engine.native.kernels import byte_depthwise, byte_winograd
from populus.runtime.engine.native.kernels.byte_contraction import ByteProduct, Bytes
from populus.runtime.engine.native.kernels.copies import copy
from populus.runtime.engine.native.kernels.elementwise import formula_kernel, has_code
from populus.runtime.engine.native.kernels.formula_words import WORDS, Epilogue
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.lifting import lifted
from populus.runtime.engine.native.kernels.map_pattern import STRIDE, Pattern
from populus.runtime.engine.native.kernels.operands import (
    Convolution,
    Formula,
    Matrix,
    OnMatrix,
    points_of,
    shown,
    sides_from,
    stored,
    walk,
    walk_over,
    walks_of,
)
from populus.runtime.engine.native.kernels.panels import lines
from populus.runtime.tape import tape_of

Launches: TypeAlias = list[Launch]
BYTES, INT32 = ("int8", "uint8"), np.dtype(np.int32)


def is_product(task: Task) -> bool:
    """Tells whether a `matmul` or `conv` is one of 8-bit integers that these kernels compute."""
    left, right = (task.fields["a"], task.fields["b"]) if "a" in task.fields else (task.fields["x"], task.fields["w"])
    out = task.fields["c" if "a" in task.fields else "y"].array
    return left.array.dtype.name in BYTES and right.array.dtype == np.int8 and out.dtype == np.int32


def epilogue(formula: OnMatrix, host: Machine, sums_type: np.dtype[np.generic] = INT32) -> Epilogue | None:
    """Builds the arguments of a formula on sums of 32 bits; None if it has no kernel."""
    out, given = formula.out, formula.inputs
    tape, literals = lifted(tape_of(formula.expr, tuple(sums_type if x is None else x.array.dtype for x in given)))
    if tape.result < len(tape.operands) or not has_code(tape, host):
        return None
    same = tuple(i for i, x in enumerate(given) if x is not None and x.is_written(out))
    if any(x is not None and i not in same and np.may_share_memory(x.array, out.array) for i, x in enumerate(given)):
        return None
    # Of each address its memory, the bytes of an element, and the bytes to the next row and column.
    places = [(out.array, 4, (4, 4)) if x is None else (x.array, x.array.itemsize, x.moves) for x in given]
    places += [(a, a.itemsize, (0, 0)) for a in literals]
    item = out.array.itemsize
    places.append((out.array, item, out.moves if out.shape[1] > 1 else (out.moves[0], item)))
    steps = [[m // item for m in moves] for _, item, moves in places]
    numbers = range(len(given), len(places) - 1)
    pattern = Pattern(tape, 2, tuple("number" if i in numbers else STRIDE.get(s[1], "any") for i, s in enumerate(steps)), same)
    own = [i for i in range(len(steps)) if i not in same]
    strides: list[int] = []
    sums = step = -1
    for place, i in enumerate(own):
        if i < len(given) and given[i] is None:
            sums, step = place, len(own) + 1 + len(strides)
        if i not in numbers:
            strides += [steps[i][0], *([steps[i][1]] if pattern.strides[i] == "any" else [])]
    words = np.array([*[0] * len(own), 0, *strides], np.int64)
    if len(words) > WORDS or sums < 0:
        return None
    return Epilogue(
        formula_kernel(pattern), words, np.array([places[i][2] for i in own], np.int64), sums, len(own), step, [places[i][0] for i in own]
    )


@dataclass
class _Binding:
    """Launches under construction for one task."""

    library: Library
    task: Task
    launches: Launches

    def copied(self, source: Array, target: Array) -> bool:
        """Adds a copy; returns False if there is no kernel for it."""
        made = copy(self.library, source, target)
        self.launches += made or []
        return made is not None

    def right(self, product: ByteProduct, constant: bool, b: Array, channels: int) -> Bytes:
        """Gives the packed right-hand side b [k.., ic, n]: of a constant now, else by launches.

        `channels`: the number of input channels with those that x has more, whose weights are 0.
        """
        columns, size = product.panels.columns, -(-product.room // 64) * 64
        wide = (*b.shape[:-2], channels, b.shape[-1])

        def split(room: Array) -> Bytes:
            return Bytes(room[:size], room[size:].view(np.int32))

        def launch(b: Array, into: Bytes) -> Launch:
            along, (*depth, column) = shown(b), sides_from(b)
            return product.pack(b, along.table(*depth), along.table(column), into)

        def pack() -> Array:
            room, whole = np.empty(size + 4 * columns, np.uint8), b
            if b.shape != wide:
                whole = np.zeros(wide, b.dtype)
                whole[..., : b.shape[-2], :] = b
            launch(whole, split(room))()
            return room

        if constant:
            if self.task.constants is None:
                return split(pack())
            key = ("bytes", product.panels, product.signed, product.few, b.shape, b.strides, channels)
            return split(self.task.constants.form(b.ctypes.data, key, pack))
        if b.shape != wide:
            room = self.task.scratch(wide, b.dtype)
            made = self.copied(np.zeros((), b.dtype), room) and self.copied(b, room[..., : b.shape[-2], :])
            assert made, b.strides
            b = room
        right = split(self.task.scratch((size + 4 * columns,), np.uint8))
        self.launches.append(launch(b, right))
        return right

    def transformed(self, w: Array, plane: byte_winograd.Plane) -> Array:
        """Gives the constant w [oc, ic, 3, 3] as Winograd's algorithm multiplies by it."""
        room, fill = partial(lines, plane.weights, np.int16), partial(byte_winograd.packing, self.library, plane)
        if self.task.constants is not None:
            return self.task.constants.filled(w, ("points", plane, w.strides), room, fill)
        fill(w, u := room())()
        return u

    def multiply(self, product: ByteProduct, a: Array, rows: Array, depth: Array, right: Bytes, c: Matrix | OnMatrix) -> bool:
        """Adds the product of all rows into c, a matrix or what a formula makes. Returns False without a kernel."""
        if isinstance(c, OnMatrix):
            last = epilogue(c, self.library.host)
            if last is None:
                return False
            self.launches.append(product.launch(a, rows, depth, right, None, 0, last))
            return True
        into = c if c.shape[1] == 1 or c.steps[1] == 4 else Matrix.plain(self.task.scratch(c.shape, c.array.dtype))
        self.launches.append(product.launch(a, rows, depth, right, into.array, into.steps[0], None))
        return into is c or self.copied(into.array, c.seen)


def matmul(library: Library, task: Task, formula: Formula | None = None) -> Launches | None:
    """Computes `c[g, m, n] = sum over k of a[g, m, k] b[g, k, n]` of ui8 or i8 by i8, in i32, or a formula of it."""
    left, right, c = task.fields["a"], task.fields["b"], task.fields["c"].without_parts()
    a, b = left.array, right.array
    if not is_product(task) or 0 in (a.size, b.size, c.size):
        return None
    (groups, m, n), k = c.shape, a.shape[2]
    along_c, along_b = walks_of(task, "c"), walk_over(task, right)
    each = stored(c, formula, along_c, ("m",), ("n",))
    if each is None:
        return None
    to = _Binding(library, task, [])
    fours, dtype = 4 * -(-k // 4), byte_dots.left_type(library.host, a.dtype)
    if k % 4 or (k > 1 and a.strides[2] != 1) or dtype != a.dtype:
        room = task.scratch((len(a), m, fours), dtype)
        if not to.copied(a, room[:, :, :k]):
            return None
        a = room
    along = walk(left.access, points_of(task), a.strides)
    depth = along.by("k", 4, fours).table("k")
    shared = not along_b.bytes.get("g")
    whole = stored(c, formula, along_c, ("g", "m"), ("n",)) if shared and groups > 1 else None
    if whole is not None:
        product = ByteProduct(library, n, k, a.dtype == np.int8, groups * m)
        done = to.multiply(product, a, along.table("g", "m"), depth, to.right(product, right.constant, b[0], k), whole)
        return to.launches if done else None
    product = ByteProduct(library, n, k, a.dtype == np.int8, m)
    rows = along.table("m")
    for g in range(groups):
        used = task.used
        packed = to.right(product, right.constant, b[0 if shared else g], k)
        if not to.multiply(product, a[min(g, len(a) - 1)], rows, depth, packed, each.at(g)):
            return None
        task.used = used
    return to.launches


def conv(library: Library, task: Task, formula: Formula | None = None) -> Launches | None:
    """Computes a convolution of ui8 or i8 by i8 in i32, or a formula of it.

    Channels of x that are adjacent, in fours, are read in place; others are copied so, with the padding around them.
    """
    c = Convolution.of(task, formula)
    if c is None or not is_product(task) or 0 in (c.x.size, c.w.size, c.y.size):
        return None
    (groups, oc), area, last = c.y.shape[1:3], c.area, c.stored("b")
    if formula is not None and last is None:
        return None
    to = _Binding(library, task, [])
    single = c.x.shape[2] == 1 == oc and groups > 1 and groups % byte_depthwise.lanes_of(library.host) == 0
    channels_last = c.stored("b", column="g") if single else None
    single = channels_last is not None
    plane = ending = None
    if (
        c.kernel == (3, 3)
        and groups == 1
        and c.constant
        and isinstance(last, OnMatrix)
        and all(v.stride == v.dilation == 1 for v in c.windows)
    ):
        plane = byte_winograd.Plane(c.w.shape[2], oc, c.y.shape[3], c.y.shape[4], byte_dots.lanes_of(library.host))
        ending = epilogue(last, library.host) if byte_winograd.suits(library.host, plane) else None
    dtype = c.x.dtype if single or ending is not None else byte_dots.left_type(library.host, c.x.dtype)
    placed = _in_place(to, c, single, dtype)
    if placed is None:
        return None
    c, channels = placed
    x, w, rows = c.x, c.w, c.along_x().table("b", *c.outs)
    if channels_last is not None:
        return _depthwise(to, c, rows, channels_last)
    if plane is not None and ending is not None:
        return [*to.launches, byte_winograd.launch(library, task, plane, c, to.transformed(w[0], plane), ending)]
    product = ByteProduct(library, oc, math.prod(c.kernel) * channels, x.dtype == np.int8, area)
    depth = c.along_x().by("ic", 4, channels).table(*c.taps, "ic")
    for g in range(groups):
        used = task.used
        weights = w[g].transpose(*range(2, w.ndim - 1), 1, 0)
        right = to.right(product, c.constant, weights, channels)
        into = Matrix.plain(task.scratch((area, oc), c.y.dtype)) if last is None else last.at(slice(None), g)
        if not to.multiply(product, x[0, g], rows, depth, right, into):
            return None
        if last is None and isinstance(into, Matrix):
            own = np.moveaxis(c.y[:, g], 1, -1)
            if not to.copied(into.array.reshape(own.shape), own):
                return None
        task.used = used
    return to.launches


def _depthwise(to: _Binding, c: Convolution, rows: Array, last: Matrix | OnMatrix) -> Launches | None:
    """Adds a convolution with one channel in and out of each group."""
    x, w = c.x, c.w
    taps = w.reshape(w.shape[0], -1) if c.constant else seen_as(w, (w.shape[0], math.prod(w.shape[1:])))
    ending = epilogue(last, to.library.host) if isinstance(last, OnMatrix) else None
    if taps is None or (ending is None and (c.formula is not None or last.out.steps[1] != 4)):
        return None
    shape = byte_depthwise.weights_shape(to.library.host, taps.shape[1], taps.shape[0])

    def pack() -> Array:
        room = np.zeros(shape, w.dtype)
        for i in range(shape[2]):
            room[: taps[:, i :: shape[2]].shape[1], :, i] = taps[:, i :: shape[2]].T
        return room

    if c.constant:
        weights = pack() if to.task.constants is None else to.task.constants.form(w.ctypes.data, ("taps", shape, w.strides), pack)
    else:
        weights = to.task.scratch(shape, w.dtype)
        if not to.copied(np.zeros((), w.dtype), weights.reshape(-1)):
            return None
        for i in range(min(shape[2], taps.shape[1])):
            part = taps[:, i :: shape[2]]
            if not to.copied(part.T, weights[: part.shape[1], :, i]):
                return None
    made = byte_depthwise.launch(
        to.library, x, rows, c.along_x().table(*c.taps), weights, len(w), last.out.array, last.out.steps[0], x.dtype == np.int8, ending
    )
    return [*to.launches, made]


def _in_place(to: _Binding, c: Convolution, single: bool, dtype: np.dtype[np.generic]) -> tuple[Convolution, int] | None:
    """Gives the convolution of x of a type with its padding and with channels that are adjacent, a multiple of four; and their number.

    Further channels hold anything, because their weights are 0. `single`: groups are the channels.
    """
    x = np.swapaxes(c.x, 1, 2) if single else c.x
    batch, groups, ic, *sides = x.shape
    channels = 4 * -(-ic // 4)
    if not c.is_padded and channels == ic and (ic == 1 or x.strides[2] == 1) and dtype == x.dtype:
        return c, ic
    room = to.task.scratch((batch, *c.padded, groups, channels), dtype)
    spatial = range(len(sides))
    if c.is_padded:
        words = room.reshape(-1)[: room.size // 8 * 8].view(np.int64)
        rest = room.reshape(-1)[room.size // 8 * 8 :]
        if not to.copied(np.zeros((), np.int64), words) or not to.copied(np.zeros((), dtype), rest):
            return None
    inner = room[(slice(None), *c.inner, slice(None), slice(ic))]
    source = x.transpose(0, *(3 + d for d in spatial), 1, 2)
    # A copy has at most four dimensions: batches go one by one.
    if not all(to.copied(source[b], inner[b]) for b in range(batch)):
        return None
    placed = room.transpose(0, len(sides) + 1, len(sides) + 2, *(1 + d for d in spatial))
    return c.reading(np.swapaxes(placed, 1, 2) if single else placed), channels
