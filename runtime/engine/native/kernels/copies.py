"""Kernels that copy between views of any strides, and pad images with a border of zeros."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from populus.runtime.codelets.task import Array, Piece, Task
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.codegen.llvm_builder import Function
from populus.runtime.engine.native.codegen.touched import Arguments, Elements, Touched
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.operands import Convolution, Nest, step_of

RANK = 4
SQUARE = 16  # elements per side of a transposed block


def _copy(item: int, widened: str, pattern: str, rank: int, name: str, machine: Machine) -> str:
    """Emits `rank` loops, the first of which is cut into units.

    `pattern`: the innermost strides that are one element: both, target, source, none. `widened`: how bytes become elements, if they do.
    """
    type = f"i{8 * item}"
    given = "i8" if widened else type
    f = Function(name)
    source, target = f.args("pp")
    sizes, steps, leaps = ([f.arg(2 + rank * g + d) for d in range(rank)] for g in range(3))

    def level(d: int, x: str, y: str, first: str, end: str) -> None:
        def body(i: str) -> None:
            if d < rank - 1:
                level(d + 1, f.beyond(x, f.mul(i, steps[d])), f.beyond(y, f.mul(i, leaps[d])), "0", sizes[d + 1])
                return
            here = f.at(x, i, given) if pattern in ("both", "source") else f.beyond(x, f.mul(i, steps[d]))
            there = f.at(y, i, type) if pattern in ("both", "target") else f.beyond(y, f.mul(i, leaps[d]))
            value = f.load(given, here)
            f.store(type, f.let(f"{widened} i8 {value} to {type}") if widened else value, there)

        if d == rank - 1 and pattern == "both":
            f.each(first, end, body)
        else:
            f.loop(first, end, body)

    level(0, source, target, "%first", "%end")
    return f.done()


def _copied(given: int, item: int, rank: int, pattern: str, args: Arguments, units: int) -> Touched:
    source, target = args[:2]
    sizes, steps, leaps = ([*args[2 + rank * g : 2 + rank * (g + 1)]] for g in range(3))
    sizes[0] = units
    if pattern in ("both", "source"):
        steps[-1] = given
    if pattern in ("both", "target"):
        leaps[-1] = item
    return Touched([Elements.at(source, given, *zip(sizes, steps))], [Elements.at(target, item, *zip(sizes, leaps))])


def copy(library: Library, source: Array, target: Array) -> list[Launch] | None:
    """Builds launches that copy elements of one type, or bytes to 16 bits. Returns None if these kernels do not apply."""
    return copied(library, Nest.of(source, target))


def copied(library: Library, nest: Nest) -> list[Launch] | None:
    """Builds such launches from an array to another."""
    source, target = nest.arrays
    if target.size == 0:
        return []
    given, item = source.itemsize, target.itemsize
    widened = {"uint8": "zext", "int8": "sext"}.get(source.dtype.name, "") if target.dtype == np.int16 else ""
    if (source.dtype != target.dtype and not widened) or item not in (1, 2, 4, 8) or share_elements(source, target):
        return None
    shape, (steps, leaps) = nest.loops()
    side = next((d for d in range(len(shape) - 1) if steps[d] == given), -1)
    if len(shape) < RANK and leaps[-1] == item and steps[-1] != given and side >= 0 and shape[-1] % SQUARE == 0:
        # Source elements are adjacent along `side`, target elements along the last dimension. Blocks of SQUARE by SQUARE
        # keep the source's cache lines until all of their elements are copied.
        order = [*(d for d in range(len(shape) - 1) if d != side), len(shape) - 1, side]
        shape[-1] //= SQUARE
        shape = [*(shape[d] for d in order), SQUARE]
        steps, leaps = ([*(s[d] * SQUARE if d == len(s) - 1 else s[d] for d in order), s[-1]] for s in (steps, leaps))
    if len(shape) > 1 and leaps[-1] != item and leaps[-2] == item and steps[-1] != given:
        for s in (shape, steps, leaps):
            s[-1], s[-2] = s[-2], s[-1]
    rank = max(RANK, len(shape))
    lead = rank - len(shape)
    if lead and len(shape) > 1:  # units divide the first dimension
        args = [*shape[:1], *[1] * lead, *shape[1:], *steps[:1], *[0] * lead, *steps[1:], *leaps[:1], *[0] * lead, *leaps[1:]]
    else:
        args = [*[1] * lead, *shape, *[0] * lead, *steps, *[0] * lead, *leaps]
    pattern = {(True, True): "both", (True, False): "source", (False, True): "target", (False, False): "none"}[
        steps[-1] == given, leaps[-1] == item
    ]
    key = f"copy {widened}{item} {pattern} {rank}"
    kernel = Kernel(key, partial(_copy, item, widened, pattern, rank), partial(_copied, given, item, rank, pattern))
    return [Launch(library, kernel, [source, target, *args], args[0], target.nbytes // (10 if pattern == "both" else 4))]


def share_elements(a: Array, b: Array) -> bool:
    """Tells whether an element of a is one of b, or whether that takes long to find out."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=1000)  # pyright: ignore[reportArgumentType]  # NumPy takes any limit
    except np.exceptions.TooHardError:
        return True


def dense(library: Library, task: Task, array: Array) -> tuple[Array, list[Launch]] | None:
    """Gives scratch memory of the array's shape whose elements are adjacent, and launches that copy the array to it."""
    room = task.scratch(array.shape, array.dtype)
    launches = copy(library, array, room)
    return None if launches is None else (room, launches)


def near(task: Task, piece: Piece, dimension: int, place: int) -> Piece:
    """Gives scratch memory of a piece's dimensions, one of which has another place in the order of memory: -1 is the last, dense."""
    shape = np.moveaxis(piece.array, dimension, place).shape
    return replace(piece, array=np.moveaxis(task.scratch(shape, piece.array.dtype), place, dimension))


def _pad(item: int, straight: bool, name: str, machine: Machine) -> str:
    """Emits the copy of planes [h, w] into [top + h + bottom, left + w + right], with zeros around.

    Units are planes.
    """
    type = f"i{8 * item}"
    f = Function(name)
    source, target = f.args("pp")
    plane_step, row_step, h, w, top, bottom, left, right, step = (f.arg(2 + i) for i in range(9))
    width = f.add(f.add(left, w), right)
    height = f.add(f.add(top, h), bottom)

    def plane(p: str) -> None:
        x = f.beyond(source, f.mul(p, plane_step))
        y = f.at(target, f.mul(p, f.mul(width, height)), type)

        def zeros(first: str, end: str) -> None:
            f.each(first, end, lambda i: f.store(type, "0", f.at(y, i, type)))

        def row(r: str) -> None:
            start = f.mul(f.add(top, r), width)
            middle, behind, following = f.add(start, left), f.add(f.add(start, left), w), f.add(start, width)
            zeros(start, middle)
            into, line = f.at(y, middle, type), f.beyond(x, f.mul(r, row_step))

            def one(i: str) -> None:
                here = f.at(line, i, type) if straight else f.beyond(line, f.mul(i, step))
                f.store(type, f.load(type, here), f.at(into, i, type))

            f.each(0, w, one)
            zeros(behind, following)

        zeros("0", f.mul(top, width))
        f.loop(0, h, row)
        zeros(f.mul(f.add(top, h), width), f.mul(height, width))

    f.loop("%first", "%end", plane)
    return f.done()


def _padded(item: int, straight: bool, args: Arguments, units: int) -> Touched:
    source, target, plane_step, row_step, h, w, top, bottom, left, right, step = args
    read = Elements.at(source, item, (units, plane_step), (h, row_step), (w, item if straight else step))
    return Touched([read], [Elements.at(target, item, (units * (top + h + bottom) * (left + w + right), item))])


def pad(library: Library, c: Convolution, target: Array) -> list[Launch] | None:
    """Builds launches that put the planes of a convolution's x inside a contiguous target, with its padding.

    Returns None if the kernel does not apply.
    """
    source, step, item = c.x, step_of(c.along_x(), "b", "g", "ic"), c.x.itemsize
    if len(c.sides) != 2 or source.dtype != target.dtype or item not in (4, 8) or step is None:
        return None
    tall, wide = c.sides
    straight = wide.n == 1 or wide.step == item
    kernel = Kernel(f"pad {item} {straight}", partial(_pad, item, straight), partial(_padded, item, straight))
    args = [source, target, step, tall.step, tall.n, wide.n, *c.pads[0], *c.pads[1], wide.step]
    return [Launch(library, kernel, args, math.prod(source.shape[:3]), target.nbytes // 8)]


def bordered(library: Library, source: Array, target: Array, before: Sequence[int]) -> list[Launch] | None:
    """Builds launches that put source [.., sides..] into target, with zeros around.

    `before`: elements before the source along each side.
    """
    lead = source.ndim - len(before)
    middle = target[(..., *(slice(b, b + n) for b, n in zip(before, source.shape[lead:])))]
    zeros = copy(library, np.zeros((), target.dtype), target)
    inner = copy(library, source, middle)
    return None if zeros is None or inner is None else [*zeros, *inner]
