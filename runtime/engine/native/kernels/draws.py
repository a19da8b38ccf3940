"""Kernel of `random`: the numbers of `runtime/poprand.py`, each from its position alone, with the bits of the numpy engine."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from populus.dialects.expr import Arg, cast
from populus.dialects.support.element_types import element_of
from populus.runtime.codelets.fill import runs_of
from populus.runtime.codelets.task import Task
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.codegen.llvm_builder import Function, number
from populus.runtime.engine.native.codegen.touched import Arguments, Elements, Touched
from populus.runtime.engine.native.kernels.copies import copy
from populus.runtime.engine.native.kernels.elementwise import formula
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.native_support import BYTES
from populus.runtime.engine.native.kernels.rows import scalar_function
from populus.runtime.poprand import MULTIPLIERS, ROUNDS, WEYL

if TYPE_CHECKING:
    from xdsl.ir import SSAValue

    from populus.runtime.engine.native.kernels.formulas import Formula

BLOCK = 1024  # numbers of a unit


def _log(f: Formula, x: SSAValue) -> SSAValue:
    """Computes log in f64 and rounds it once."""
    from xdsl.dialects import arith
    from xdsl.dialects.builtin import f32, f64

    from populus.runtime.engine.native.kernels import wide_formulas

    return f.op(arith.TruncFOp(wide_formulas.log(f, f.op(arith.ExtFOp(x, f64))), f32))


def _cos(f: Formula, x: SSAValue) -> SSAValue:
    from populus.runtime.engine.native.kernels import circular_formulas

    return circular_formulas.cos(f, x)


def _words(f: Function, counter: list[str], key: list[str]) -> list[str]:
    """Emits Philox: four random words (i32) from a counter of four and a key of two."""
    c, k = list(counter), list(key)
    for turn in range(ROUNDS):
        halves: list[tuple[str, str]] = []
        for word, factor in zip((c[0], c[2]), MULTIPLIERS):
            product = f.mul(f.let(f"zext i32 {word} to i64"), factor)
            high = f.let(f"trunc i64 {f.let(f'lshr i64 {product}, 32')} to i32")
            halves.append((high, f.let(f"trunc i64 {product} to i32")))
        (high0, low0), (high1, low1) = halves
        first = f.let(f"xor i32 {f.let(f'xor i32 {high1}, {c[1]}')}, {k[0]}")
        third = f.let(f"xor i32 {f.let(f'xor i32 {high0}, {c[3]}')}, {k[1]}")
        c = [first, low1, third, low0]
        if turn < ROUNDS - 1:
            k = [f.let(f"add i32 {word}, {weyl - (1 << 32) if weyl >> 31 else weyl}") for word, weyl in zip(k, WEYL)]
    return c


def _draw(distribution: str, name: str, machine: Machine) -> str:
    """Emits the numbers of runs of adjacent positions. Units are blocks of a run."""
    f = Function(name)
    y, key0, key1, numbers, starts, count, blocks, stream = f.args("pppppiii")
    key = [f.load("i32", k) for k in (key0, key1)]
    a, b, c = (f.load("float", f.at(numbers, i, "float")) for i in range(3))
    streams = [f.let(f"trunc i64 {stream} to i32"), f.let(f"trunc i64 {f.let(f'lshr i64 {stream}, 32')} to i32")]

    def real(word: str) -> str:
        converted = f.let(f"sitofp i32 {f.let(f'lshr i32 {word}, 8')} to float")
        return f.let(f"fmul float {converted}, {number(2.0**-24)}")

    def block(unit: str) -> None:
        run = f.let(f"sdiv i64 {unit}, {blocks}")
        begin = f.mul(f.sub(unit, f.mul(run, blocks)), BLOCK)
        end = f.call("i64", "llvm.smin.i64", ("i64", f.add(begin, BLOCK)), ("i64", count))
        first = f.load("i64", f.at(starts, run, "i64"))
        out = f.at(y, f.mul(run, count), "float")

        def one(i: str) -> None:
            index = f.add(first, i)
            low, high = f.let(f"trunc i64 {index} to i32"), f.let(f"trunc i64 {f.let(f'lshr i64 {index}, 32')} to i32")
            words = _words(f, [low, high, *streams], key)
            u = real(words[0])
            if distribution == "uniform":  # a, b - a, b, and the number before b
                value = f.let(f"fadd float {f.let(f'fmul float {u}, {b}')}, {a}")
                inside = f.let(f"fcmp olt float {value}, {c}")
                value = f.let(f"select i1 {inside}, float {value}, float {last}")
            elif distribution == "normal":  # a, b, 2 pi
                log = f.let(f"call float @{name}_log(float {f.let(f'fsub float 1.0, {u}')})")
                size = f.call("float", "llvm.sqrt.f32", ("float", f.let(f"fmul float -2.0, {log}")))
                wave = f.let(f"call float @{name}_cos(float {f.let(f'fmul float {c}, {real(words[1])}')})")
                scaled = f.let(f"fmul float {b}, {f.let(f'fmul float {size}, {wave}')}")
                value = f.let(f"fadd float {a}, {scaled}")
            else:
                value = f.let(f"select i1 {f.let(f'fcmp olt float {u}, {a}')}, float 1.0, float 0.0")
            f.store("float", value, f.at(out, i, "float"))

        f.each(begin, end, one)

    last = f.load("float", f.at(numbers, 3, "float"))
    f.loop("%first", "%end", block)
    used: dict[str, Any] = {"log": _log, "cos": _cos} if distribution == "normal" else {}
    return "".join(scalar_function(f"{name}_{n}", function) for n, function in used.items()) + f.done()


def _touches(args: Arguments, units: int) -> Touched:
    """States what a launch of `_draw` touches."""
    out, low, high, _, starts, count = args[:6]
    return Touched([Elements.of(low), Elements.of(high)], [Elements.at(out, 4, (len(starts) * count, 4))])


def random(library: Library, task: Task) -> list[Launch] | None:
    """Draws numbers of a distribution by an element's position in the whole of y."""
    y, seed, sizes = task["y"], task["seed"].reshape(-1), task.fields["y"].whole
    if y.size == 0:
        return []
    if y.dtype.name in BYTES or seed.size != 2:
        return None
    f32 = np.float32
    distribution, a, b, stream = task.text("distribution"), float(task.number("a")), float(task.number("b")), int(task.number("stream"))
    if distribution == "uniform" and b <= a:
        return copy(library, np.asarray(f32(a)).astype(y.dtype), y)
    starts, count = runs_of(task, sizes)
    with np.errstate(all="ignore"):
        numbers = {
            "uniform": (f32(a), f32(b) - f32(a), f32(b), np.nextafter(f32(b), f32(a))),
            "normal": (f32(a), f32(b), f32(2 * np.pi), f32(0)),
        }.get(distribution, (f32(a), f32(0), f32(0), f32(0)))
    direct = y.dtype == f32 and y.flags.c_contiguous
    out = y if direct else task.scratch(y.shape, f32)
    after = [] if direct else formula(library, cast(Arg(1), element_of(y.dtype)), [out], y)
    if after is None:
        return None
    blocks = -(-count // BLOCK)
    signed = (stream + (1 << 63)) % (1 << 64) - (1 << 63)
    args = [out, seed[:1], seed[1:], np.array(numbers, f32), np.array(starts, np.int64), count, blocks, signed]
    kernel = Kernel(f"draw {distribution}", partial(_draw, distribution), _touches)
    return [Launch(library, kernel, args, len(starts) * blocks, y.size * (20 if distribution == "normal" else 5)), *after]
