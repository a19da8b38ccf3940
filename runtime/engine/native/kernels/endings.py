"""Formulas on the sums of products of floats, applied in registers where a kernel stores the sums.

    y[m, n] = formula(c[m, n], x1[m, n], ..)

The operations are those of `map`, one after the other, so the bits are those of a pass of its own over c.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from populus.runtime.endings import EXTREMES, MOST, PLAIN, ending_tape
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.llvm_builder import Function, number
from populus.runtime.engine.native.codegen.touched import Arguments, Elements
from populus.runtime.engine.native.kernels.operands import OnMatrix
from populus.runtime.tape import Tape

SUFFIX = {"float": "f32", "double": "f64", "i32": "i32", "i64": "i64"}
BYTES = {"float": 4, "double": 8, "i32": 4, "i64": 8}
MAGIC = 12582912.0  # 1.5 2^23: adding a number to it rounds the number to an integer
LN2 = 0.693359375, 2.12194440e-4  # ln 2 is the first less the second; products of the first by small integers are exact
TANH_END = 9.1  # from here on the result is 1
TANH = 0.0013946746475994587, 0.008366755209863186, 0.04166627675294876, 0.16666541993618011, 0.5  # of p in `Formula.tanh`
LINE = 64  # bytes of a line of a cache
FETCH = ("i32 immarg", "0"), ("i32 immarg", "3"), ("i32 immarg", "1")  # to be read, into the first cache, data


def masked_load(f: Function, type: str, lanes: int, place: str, inside: str) -> str:
    """Loads the lanes of a mask; the others are 0."""
    vector = f"<{lanes} x {type}>"
    operands = ("ptr", place), ("i32 immarg", str(BYTES[type])), (f"<{lanes} x i1>", inside), (vector, "zeroinitializer")
    return f.call(vector, f"llvm.masked.load.v{lanes}{SUFFIX[type]}.p0", *operands)


@dataclass(frozen=True)
class Operand:
    """Operand of an ending in a kernel under construction: its address at the block's first element, and its steps.

    `adjacent`: it varies along the elements of a vector, and is contiguous there.
    """

    start: str
    steps: tuple[str, str]
    adjacent: bool

    def vector(self, f: Function, type: str, lanes: int, place: tuple[int | str, int | str], along: int, inside: str) -> str:
        """Loads the elements for the vector at a row and column of the block, along rows (0) or columns (1).

        `inside`: the mask of lanes in memory; empty for all.
        """
        at = self.start
        for side, (index, step) in enumerate(zip(place, self.steps)):
            if side != along and index:
                at = f.beyond(at, f.mul(step, index))
        if not self.adjacent:
            return f.splat(type, lanes, f.load(type, at))
        at = f.at(at, place[along], type)
        return masked_load(f, type, lanes, at, inside) if inside else f.load(f"<{lanes} x {type}>", at, BYTES[type])

    def fetch(self, f: Function, counts: tuple[int, int], along: int, bytes: int, write: bool = False) -> None:
        """Fetches the elements for a block, `bytes` of them along rows (0) or columns (1), before its sums are computed.

        `write`: they are to be written.
        """
        across = 1 - along
        for n in range(counts[across]):
            line = f.beyond(self.start, f.mul(self.steps[across], n)) if n else self.start
            for begin in sorted({*range(0, bytes, LINE), bytes - 1}):
                f.call("void", "llvm.prefetch.p0", ("ptr", f.beyond(line, begin)), ("i32 immarg", str(int(write))), *FETCH[1:])


@dataclass(frozen=True, eq=False)
class Ending:
    """Formula as code: `sums`, the operands of the tape that are the sums; for each other operand whether it is adjacent.

    `fixed`: for each other operand whether it varies along neither rows nor columns. `turned`: the elements of a vector
    are rows of a block that is stored transposed, and not columns. `converts`: the CPU converts f16 and f32.
    """

    tape: Tape
    sums: frozenset[int]
    adjacent: tuple[bool, ...]
    fixed: tuple[bool, ...]
    turned: bool
    converts: bool = False

    def on(self, machine: Machine) -> Ending:
        """Gives the code for a CPU."""
        return replace(self, converts=machine.converts_halves)

    @property
    def key(self) -> str:
        """Text that determines the code."""
        literals = [x.tobytes().hex() for x in self.tape.literals]
        steps = [(s.name, s.args, s.dtype.name) if s.name == "convert" else (s.name, s.args) for s in self.tape.steps]
        return f"ending {sorted(self.sums)} {literals} {steps} {self.tape.result} {self.adjacent} {self.fixed} {self.turned}"

    def operands(self, f: Function, words: str = "%words", row: str = "%row", column: str = "%column") -> list[Operand]:
        """Emits the addresses of the operands at a block's first element. `words`: for each its address and its steps."""
        found: list[Operand] = []
        for i, adjacent in enumerate(self.adjacent):
            base, down, right = (f.load(t, f.at(words, 3 * i + j, "i64")) for j, t in enumerate(("ptr", "i64", "i64")))
            start = f.beyond(base, f.add(f.mul(down, row), f.mul(right, column)))
            found.append(Operand(start, (down, right), adjacent))
        return found

    def applied(self, f: Function, type: str, lanes: int, value: str, others: Sequence[str]) -> str:
        """Emits the formula on a vector of sums and the vectors of the other operands."""
        vector, rest = f"<{lanes} x {type}>", iter(others)
        values = [value if i in self.sums else next(rest) for i in range(len(self.tape.operands))]
        first = len(values)
        values += [f"splat ({type} {number(float(x.item()), type)})" for x in self.tape.literals]
        literal = range(first, len(values))
        for step in self.tape.steps:
            if step.name == "tanh":
                values.append(_tanh(f, lanes, values[step.args[0]]))
                continue
            if step.name == "convert":  # to a half, which is held as f32, or of one
                values.append(rounded(f, lanes, values[step.args[0]], step.dtype.name, self.converts))
                continue
            a, b = (values[i] for i in step.args)
            if step.name in PLAIN:
                values.append(f.let(f"{PLAIN[step.name]} {vector} {a}, {b}"))
            else:
                values.append(_extreme(f, vector, EXTREMES[step.name], (a, b), [i in literal for i in step.args]))
        return values[self.tape.result]


def rounded(f: Function, lanes: int, x: str, to: str, converts: bool) -> str:
    """Emits the rounding of f32 to a half, to nearest even, with operations that every CPU has or that convert. To f32 x is as it is.

    `lanes`: of a vector; 0 for one number.
    """
    vector, words, halves, truths = (f"<{lanes} x {type}>" if lanes else type for type in ("float", "i32", "half", "i1"))
    suffix = f"v{lanes}i32" if lanes else "i32"

    def number_of(type: str, value: str | int) -> str:
        return f"splat ({type} {value})" if lanes else str(value)

    def bits(name: str, a: str, b: str | int) -> str:
        return f.let(f"{name} {words} {a}, {number_of('i32', b) if isinstance(b, int) else b}")

    def bound(name: str, a: str, b: int) -> str:
        return f.call(words, f"llvm.{name}.{suffix}", (words, a), (words, number_of("i32", b)))

    def moved(name: str, a: str, b: str) -> str:
        return f.let(f"{name} {vector} {a}, {b}")

    if to == "float32":
        return x
    if to == "float16" and converts:
        return f.let(f"fpext {halves} {f.let(f'fptrunc {vector} {x} to {halves}')} to {vector}")
    given = f.let(f"bitcast {vector} {x} to {words}")
    if to == "bfloat16":
        odd = bits("and", bits("lshr", given, 16), 1)
        near = bits("and", bits("add", bits("add", given, 0x7FFF), odd), -0x10000)
        value = f.let(f"bitcast {words} {near} to {vector}")
        return f.let(f"select {truths} {f.let(f'fcmp uno {vector} {x}, {x}')}, {vector} {x}, {vector} {value}")
    # Added to x, a power of two 13 binary orders above it, but finite, has the last bit of an f16: that of 2^-14 for what is smaller.
    sign = bits("and", given, -(1 << 31))
    order = bound("umin", bound("umax", bits("and", given, 0xFF << 23), 113 << 23), 200 << 23)
    power = f.let(f"bitcast {words} {bits('or', bits('add', order, 13 << 23), sign)} to {vector}")
    near = f.let(f"bitcast {vector} {moved('fsub', moved('fadd', x, power), power)} to {words}")
    value = f.let(f"bitcast {words} {bits('or', near, sign)} to {vector}")  # -0 too
    up, down = (number_of("float", number(2.0**e)) for e in (112, -112))
    return moved("fmul", moved("fmul", value, up), down)  # 2^16 and more become infinite


def _tanh(f: Function, lanes: int, x: str) -> str:
    """Emits the hyperbolic tangent with the operations of `formulas.py`, in their order, on f32."""
    vector, words = f"<{lanes} x float>", f"<{lanes} x i32>"

    def op(name: str, a: str, b: str) -> str:
        return f.let(f"{name} {vector} {a}, {b}")

    def constant(value: float) -> str:
        return f"splat (float {number(float(np.float32(value)), 'float')})"

    def bits(name: str, a: str, value: int) -> str:
        return f.let(f"{name} {words} {a}, splat (i32 {value})")

    end, magic, one = constant(TANH_END), constant(MAGIC), constant(1.0)
    a = f.call(vector, f"llvm.fabs.v{lanes}f32", (vector, x))
    a = f.let(f"select <{lanes} x i1> {f.let(f'fcmp olt {vector} {end}, {a}')}, {vector} {end}, {vector} {a}")
    shifted = op("fadd", op("fmul", a, constant(2 / math.log(2))), magic)
    n = op("fsub", shifted, magic)
    r = op("fadd", op("fadd", a, a), op("fmul", n, constant(-LN2[0])))
    r = op("fadd", r, op("fmul", n, constant(LN2[1])))
    p = constant(TANH[0])
    for coefficient in TANH[1:]:
        p = op("fadd", op("fmul", p, r), constant(coefficient))
    q = op("fadd", op("fmul", p, op("fmul", r, r)), r)
    exponent = bits("shl", f.let(f"bitcast {vector} {shifted} to {words}"), 23)
    power = f.let(f"bitcast {words} {bits('add', exponent, 127 << 23)} to {vector}")
    y = op("fadd", op("fmul", q, power), op("fsub", power, one))
    return f.call(vector, f"llvm.copysign.v{lanes}f32", (vector, op("fdiv", y, op("fadd", y, constant(2.0)))), (vector, x))


def _extreme(f: Function, vector: str, predicate: str, pair: tuple[str, str], literal: Sequence[bool]) -> str:
    """Emits a maximum or minimum with the operations of `formulas.py`; it is NaN if either operand is."""
    (a, b), mask = pair, f"<{vector[1:].split(maxsplit=1)[0]} x i1>"

    def choice(test: str, yes: str, no: str) -> str:
        return f.let(f"select {mask} {f.let(f'fcmp {test}')}, {vector} {yes}, {vector} {no}")

    if literal[1]:
        return choice(f"{predicate} {vector} {b}, {a}", b, a)
    value = choice(f"{predicate} {vector} {a}, {b}", a, b)
    return value if literal[0] else choice(f"uno {vector} {a}, {a}", a, value)


def ending_of(formula: OnMatrix, along: int) -> Ending | None:
    """Gives the code of a formula. `along`: 1 if elements of the output are adjacent along columns, 0 along rows. None without code."""
    out, others = formula.out, formula.others
    dtype = out.array.dtype
    tape = ending_tape(formula.expr, [dtype if x is None else x.array.dtype for x in formula.inputs], dtype)
    if tape is None or len(others) > MOST:
        return None
    if any(np.may_share_memory(x.array, out.array) and not x.is_written(out) for x in others):
        return None
    if along == 0 and not any(x.moves[0] for x in others):
        along, turned = 1, False  # per column: before the block is transposed
    else:
        turned = along == 0
    steps = [x.moves[along] for x in others]
    if any(s not in (0, dtype.itemsize) for s in steps):
        return None
    sums = frozenset(i for i, x in enumerate(formula.inputs) if x is None)
    return Ending(tape, sums, tuple(s != 0 for s in steps), tuple(not any(x.moves) for x in others), turned)


PLANE_WORDS = 4  # of an operand on planes: its address, the places of planes, the steps of channels and rows


class OnPlanes:
    """Ending in a kernel under construction that stores vectors of columns, with the words of its operands from `position` on."""

    def __init__(self, f: Function, ending: Ending | None, position: int, type: str, lanes: int):
        self.f, self.ending, self.type, self.lanes = f, ending, type, lanes
        count = 0 if ending is None else len(ending.adjacent)
        self.words = [f.args_from(position + PLANE_WORDS * i, "ppii") for i in range(count)]

    def at(self, plane: str, channel: str = "0") -> Callable[[str, str, str, str, str], str]:
        """Emits the operands' addresses on a plane, or on a channel of an image.

        Returns `ended(value, row, rows, column, mask)`, which emits the formula on a vector; rows outside the plane are
        clamped, as their masks are empty.
        """
        f = self.f
        images = [(f.beyond(base, f.load("i64", f.at(places, plane, "i64"))), step) for base, places, step, _ in self.words]
        starts = [f.beyond(image, f.mul(step, channel)) for image, step in images]
        fixed = () if self.ending is None else self.ending.fixed
        # Loaded here, as LLVM cannot know that no store changes them.
        once = [f.splat(self.type, self.lanes, f.load(self.type, start)) if same else "" for start, same in zip(starts, fixed)]

        def ended(value: str, row: str, rows: str, column: str, mask: str) -> str:
            if self.ending is None:
                return value
            above = f.call("i64", "llvm.smax.i64", ("i64", row), ("i64", "0"))
            inside, taken = f.call("i64", "llvm.smin.i64", ("i64", above), ("i64", f.sub(rows, 1))), list[str]()
            for start, words, adjacent, value_once in zip(starts, self.words, self.ending.adjacent, once):
                if value_once:
                    taken.append(value_once)
                    continue
                line = f.beyond(start, f.mul(inside, words[3]))
                operand = Operand(f.at(line, column, self.type) if adjacent else line, ("0", "0"), adjacent)
                taken.append(operand.vector(f, self.type, self.lanes, (0, 0), 1, mask))
            return self.ending.applied(f, self.type, self.lanes, value, taken)

        return ended


def plane_reads(ending: Ending | None, words: Arguments, sides: tuple[int, int], channels: int = 1) -> list[Elements]:
    """States what an ending on planes reads, by its words."""
    reads: list[Elements] = []
    for i, adjacent in enumerate(() if ending is None else ending.adjacent):
        x, places, channel, row = words[PLANE_WORDS * i : PLANE_WORDS * (i + 1)]
        reads.append(Elements.at(x, x.itemsize, places, (channels, channel), (sides[0], row), (sides[1], adjacent * x.itemsize)))
    return reads
