"""Builder of LLVM text: a function `i64 kernel(ptr args, i64 first, i64 end)`, its loops, its vectors."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from populus.runtime.engine.native.codegen.cpu import RELAXED, Machine

Carried = Sequence[tuple[str, str]]  # (type, value before the loop)


def number(value: float, type: str = "float") -> str:
    """Writes a constant so that LLVM reads it without rounding: as the bits of a double."""
    if type == "float":
        (value,) = struct.unpack("f", struct.pack("f", value))
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


class Function:
    """Function under construction. Values are their text: `%t3`, `7`."""

    def __init__(self, name: str, parameters: str = "ptr noalias %args, i64 %first, i64 %end", result: str = "i64"):
        self.head = f"define {result} @{name}({parameters}) {{"
        self.lines: list[str] = ["entry:"]
        self.block = "entry"
        self.declared: set[str] = set()
        self.metadata: list[str] = []
        self.group = ""  # access group of the current loop of independent turns
        self._count = 0

    def fresh(self, stem: str = "t") -> str:
        """Makes a new value name."""
        self._count += 1
        return f"{stem}{self._count}"

    def line(self, text: str) -> None:
        """Appends a line."""
        self.lines.append("  " + text)

    def let(self, text: str) -> str:
        """Appends an instruction and returns its value."""
        value = "%" + self.fresh()
        self.line(f"{value} = {text}")
        return value

    def start(self, label: str) -> None:
        """Starts a block."""
        self.lines.append(f"{label}:")
        self.block = label

    # -- integers and addresses

    def add(self, a: str, b: str | int) -> str:
        """Adds two i64 values; folds an addition of 0."""
        return a if b in ("0", 0) else self.let(f"add i64 {a}, {b}")

    def sub(self, a: str, b: str | int) -> str:
        """Subtracts two i64 values."""
        return self.let(f"sub i64 {a}, {b}")

    def mul(self, a: str, b: str | int) -> str:
        """Multiplies two i64 values."""
        return self.let(f"mul i64 {a}, {b}")

    def at(self, pointer: str, index: str | int, type: str) -> str:
        """Computes the address of an element."""
        return self.let(f"getelementptr inbounds {type}, ptr {pointer}, i64 {index}")

    def beyond(self, pointer: str, bytes: str | int) -> str:
        """Computes the address `bytes` bytes after a pointer."""
        return self.let(f"getelementptr inbounds i8, ptr {pointer}, i64 {bytes}")

    def load(self, type: str, pointer: str, align: int = 0) -> str:
        """Loads a value; `align` in bytes, 0 for the type's own."""
        return self.let(f"load {type}, ptr {pointer}" + (f", align {align}" if align else "") + self.group)

    def store(self, type: str, value: str, pointer: str, align: int = 0) -> None:
        """Stores a value; `align` in bytes, 0 for the type's own."""
        self.line(f"store {type} {value}, ptr {pointer}" + (f", align {align}" if align else "") + self.group)

    def arg(self, position: int, type: str = "i64") -> str:
        """Loads word `position` of the arguments."""
        return self.load(type, self.at("%args", position, "i64"))

    def args(self, types: str) -> list[str]:
        """Loads the first arguments; `p` is a pointer, `i` a number."""
        return self.args_from(0, types)

    def args_from(self, position: int, types: str) -> list[str]:
        """Loads the arguments from `position` on; types as for `args`."""
        return [self.arg(position + n, "ptr" if t == "p" else "i64") for n, t in enumerate(types)]

    def args_of(self, position: str, types: str) -> list[str]:
        """Loads the arguments from a computed position on; types as for `args`."""
        places = [self.at("%args", self.add(position, n), "i64") for n in range(len(types))]
        return [self.load("ptr" if t == "p" else "i64", place) for t, place in zip(types, places)]

    # -- vectors

    def splat(self, type: str, lanes: int, value: str) -> str:
        """Builds a vector of one value."""
        if lanes == 1:
            return value
        one = self.let(f"insertelement <{lanes} x {type}> poison, {type} {value}, i64 0")
        return self.let(f"shufflevector <{lanes} x {type}> {one}, <{lanes} x {type}> poison, <{lanes} x i32> zeroinitializer")

    def add_product(self, machine: Machine, type: str, lanes: int, total: str, a: str, b: str) -> str:
        """Adds the product of two vectors of floats to `total`; rounds once if the CPU has an instruction that does, else twice."""
        vector, suffix = f"<{lanes} x {type}>", {"float": "f32", "double": "f64"}[type]
        if not machine.fused:
            return self.let(f"fadd {vector} {total}, {self.let(f'fmul {vector} {a}, {b}')}")
        if not machine.has(RELAXED):
            return self.call(vector, f"llvm.fma.v{lanes}{suffix}", (vector, a), (vector, b), (vector, total))
        own = machine.vector_bytes // {"float": 4, "double": 8}[type]  # LLVM does not cut wider ones
        part = f"<{own} x {type}>"
        assert lanes % own == 0, lanes
        found: list[str] = []
        for at in range(0, lanes, own):
            cut = [self.shuffled(vector, v, "poison", range(at, at + own)) if lanes > own else v for v in (a, b, total)]
            found.append(self.call(part, f"llvm.wasm.relaxed.madd.v{own}{suffix}", *((part, v) for v in cut)))
        while len(found) > 1:
            found = [self.shuffled(f"<{own} x {type}>", *pair, range(2 * own)) for pair in zip(found[::2], found[1::2], strict=True)]
            own *= 2
        return found[0]

    def shuffled(self, vector: str, a: str, b: str, lanes: Sequence[int]) -> str:
        """Picks lanes of two vectors of a type, counted through both."""
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        return self.let(f"shufflevector {vector} {a}, {vector} {b}, <{len(lanes)} x i32> <{mask}>")

    def call(self, result: str, name: str, *operands: tuple[str, str]) -> str:
        """Calls an intrinsic and records its declaration. Operands are (type, value)."""
        self.declared.add(f"declare {result} @{name}({', '.join(t for t, _ in operands)})")
        text = f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in operands)})"
        if result == "void":
            self.line(text)
            return ""
        return self.let(text)

    def held(self, type: str, value: str) -> str:
        """Emits an instruction of no code that nothing computed from `value` comes before, and no later `held` either."""
        return self.let(f'call {type} asm sideeffect "", "=r,0"({type} {value})')

    # -- control

    def loop(
        self, first: str | int, end: str | int, body: Callable[..., Sequence[str] | None], carried: Carried = (), step: str | int = 1
    ) -> list[str]:
        """Emits `for i in range(first, end, step)`.

        `body(i, *values)` returns the values for the next turn. Returns the values after the last turn.
        """
        before = self.block
        head, inside, out = self.fresh("head"), self.fresh("body"), self.fresh("out")
        self.line(f"br label %{head}")
        self.start(head)
        i = "%" + self.fresh("i")
        phis = ["%" + self.fresh("p") for _ in carried]
        position = len(self.lines)
        more = self.let(f"icmp slt i64 {i}, {end}")
        self.line(f"br i1 {more}, label %{inside}, label %{out}")
        self.start(inside)
        new = body(i, *phis) or ()
        following = self.add(i, step)
        last = self.block
        self.line(f"br label %{head}")
        lines = [f"  {i} = phi i64 [ {first}, %{before} ], [ {following}, %{last} ]"]
        for phi, (type, initial), value in zip(phis, carried, new, strict=True):
            lines.append(f"  {phi} = phi {type} [ {initial}, %{before} ], [ {value}, %{last} ]")
        self.lines[position:position] = lines
        self.start(out)
        return phis

    def each(self, first: str | int, end: str | int, body: Callable[[str], None]) -> None:
        """Emits a loop whose turns are independent, so that LLVM makes vectors of it."""
        group, loop = len(self.metadata), len(self.metadata) + 1
        self.metadata += ["distinct !{}", f"distinct !{{!{loop}, !{loop + 1}}}"]
        self.metadata += [f'!{{!"llvm.loop.parallel_accesses", !{group}}}']
        self.group = f", !llvm.access.group !{group}"
        self.loop(first, end, body)
        self.group = ""
        back = max(n for n, line in enumerate(self.lines) if line.startswith("  br label %head"))
        self.lines[back] += f", !llvm.loop !{loop}"

    def when(self, condition: str, then: Callable[[], None], otherwise: Callable[[], None] | None = None) -> None:
        """Emits a branch."""
        yes, no, out = self.fresh("then"), self.fresh("else"), self.fresh("join")
        self.line(f"br i1 {condition}, label %{yes}, label %{no if otherwise else out}")
        self.start(yes)
        then()
        self.line(f"br label %{out}")
        if otherwise:
            self.start(no)
            otherwise()
            self.line(f"br label %{out}")
        self.start(out)

    def choose(self, condition: str, type: str, then: Callable[[], Sequence[str]], otherwise: Callable[[], Sequence[str]]) -> list[str]:
        """Emits a branch whose sides give values of a type; returns those of the side that is taken."""
        yes, no, out = self.fresh("then"), self.fresh("else"), self.fresh("join")
        self.line(f"br i1 {condition}, label %{yes}, label %{no}")
        found: list[tuple[Sequence[str], str]] = []
        for label, side in ((yes, then), (no, otherwise)):
            self.start(label)
            values = side()
            found.append((values, self.block))
            self.line(f"br label %{out}")
        self.start(out)
        (first, a), (second, b) = found
        return [self.let(f"phi {type} [ {x}, %{a} ], [ {y}, %{b} ]") for x, y in zip(first, second, strict=True)]

    def done(self, result: str = "i64 0") -> str:
        """Ends the function. Returns its text with its declarations."""
        self.line(f"ret {result}")
        marks = [f"!{n} = {text}" for n, text in enumerate(self.metadata)]
        return "\n".join([*sorted(self.declared), self.head, *self.lines, "}", *marks, ""])
