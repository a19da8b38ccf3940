"""Reader of relocatable WebAssembly objects, as LLVM writes them.

Source: WebAssembly Core 2.0, section 5 (binary format); WebAssembly/tool-conventions, `Linking.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag

MAGIC = b"\0asm\1\0\0\0"


class Section(IntEnum):
    """Kind of a section."""

    CUSTOM, TYPE, IMPORT, FUNCTION, TABLE, MEMORY, GLOBAL, EXPORT, START, ELEMENT, CODE, DATA = range(12)


class Kind(IntEnum):
    """Kind of a symbol."""

    FUNCTION, DATA, GLOBAL, SECTION, TAG, TABLE = range(6)


class Flag(IntFlag):
    """Flags of a symbol."""

    WEAK, LOCAL, UNDEFINED, EXPLICIT = 0x1, 0x2, 0x10, 0x40


class Fix(IntEnum):
    """Kind of a relocation: the value that is written, and its form."""

    FUNCTION_LEB, SLOT_SLEB, SLOT_I32, ADDRESS_LEB, ADDRESS_SLEB, ADDRESS_I32, TYPE_LEB, GLOBAL_LEB = range(8)
    TABLE_LEB = 20


ADDED = frozenset((Fix.ADDRESS_LEB, Fix.ADDRESS_SLEB, Fix.ADDRESS_I32))  # relocations with an addend
SEGMENTS, SYMBOLS = 5, 8  # parts of the section `linking`


@dataclass(frozen=True)
class Symbol:
    """Name of a function, of a place in a segment of data, or of a global. `index`: of what it names, -1 for data elsewhere."""

    kind: int
    flags: int
    name: str
    index: int
    offset: int = 0

    @property
    def defined(self) -> bool:
        """True if the object has what the symbol names."""
        return not self.flags & Flag.UNDEFINED


@dataclass(frozen=True)
class Relocation:
    """Place in the section of code or of data that a linker writes. `index`: of a symbol, or of a type."""

    kind: int
    offset: int
    index: int
    addend: int


@dataclass
class Part:
    """Function body or segment of data: its place in its section, and its bytes. `align`, `name`: of data."""

    start: int
    content: bytearray
    align: int = 16
    name: str = ""


@dataclass
class Object:
    """Content of an object file. `imported`: functions, each a name and a type. `functions`: types of its own ones."""

    types: list[bytes] = field(default_factory=list[bytes])
    imported: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    functions: list[int] = field(default_factory=list[int])
    parts: dict[int, list[Part]] = field(default_factory=lambda: {Section.CODE: [], Section.DATA: []})
    symbols: list[Symbol] = field(default_factory=list[Symbol])
    relocations: dict[int, list[Relocation]] = field(default_factory=lambda: {Section.CODE: [], Section.DATA: []})


class Reader:
    """Reader of bytes from a place on."""

    def __init__(self, data: bytes, at: int, end: int):
        self.data, self.at, self.end = data, at, end

    def byte(self) -> int:
        """Reads a byte."""
        self.at += 1
        return self.data[self.at - 1]

    def number(self, signed: bool = False) -> int:
        """Reads a number of variable length (LEB128)."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value - (1 << shift) if signed and byte & 64 else value

    def take(self, count: int) -> bytes:
        """Reads bytes."""
        self.at += count
        return self.data[self.at - count : self.at]

    def name(self) -> str:
        """Reads a name."""
        return self.take(self.number()).decode()

    def each(self) -> Iterator[int]:
        """Counts the entries of a list, whose length it reads first."""
        yield from range(self.number())

    def inside(self) -> Reader:
        """Reads a length, and gives a reader of so many bytes; this one goes on after them."""
        size = self.number()
        self.at += size
        return Reader(self.data, self.at - size, self.at)


def read(data: bytes) -> Object:
    """Reads an object file."""
    assert data[:8] == MAGIC, data[:8]
    o, r = Object(), Reader(data, 8, len(data))
    while r.at < r.end:
        kind = r.byte()
        s = r.inside()
        match kind:
            case Section.TYPE:
                o.types = [_type(s) for _ in s.each()]
            case Section.IMPORT:
                for _ in s.each():
                    _import(o, s)
            case Section.FUNCTION:
                o.functions = [s.number() for _ in s.each()]
            case Section.CODE:
                begin = s.at
                for _ in s.each():
                    body = s.inside()
                    o.parts[kind].append(Part(body.at - begin, bytearray(body.data[body.at : body.end])))
            case Section.DATA:
                begin = s.at
                for _ in s.each():
                    _segment(o, s, begin)
            case Section.CUSTOM:
                _custom(o, s)
            case _:  # memories, tables and the like are the linker's
                pass
    return o


def _type(s: Reader) -> bytes:
    at = s.at
    assert s.byte() == 0x60, at
    for _ in range(2):
        s.take(s.number())
    return s.data[at : s.at]


def _limits(s: Reader) -> None:
    if s.number() & 1:
        s.number()
    s.number()


def _import(o: Object, s: Reader) -> None:
    s.name()
    name, kind = s.name(), s.byte()
    if kind == 0:
        o.imported.append((name, s.number()))
    elif kind == 1:
        s.byte()
        _limits(s)
    elif kind == 2:
        _limits(s)
    else:
        s.take(2)


def _segment(o: Object, s: Reader, begin: int) -> None:
    flags = s.number()
    assert flags == 0, flags  # it has an address
    assert s.byte() == 0x41, s.at
    s.number(signed=True)
    s.byte()
    body = s.inside()
    o.parts[Section.DATA].append(Part(body.at - begin, bytearray(body.data[body.at : body.end])))


def _custom(o: Object, s: Reader) -> None:
    name = s.name()
    if name == "linking":
        assert s.number() == 2, s.at
        while s.at < s.end:
            kind = s.byte()
            part = s.inside()
            if kind == SEGMENTS:
                for n in part.each():
                    segment = o.parts[Section.DATA][n]
                    segment.name, segment.align, _ = part.name(), 1 << part.number(), part.number()
            elif kind == SYMBOLS:
                o.symbols = [_symbol(part) for _ in part.each()]
    elif name in ("reloc.CODE", "reloc.DATA"):
        s.number()
        for _ in s.each():
            kind, offset, index = s.byte(), s.number(), s.number()
            addend = s.number(signed=True) if kind in ADDED else 0
            o.relocations[Section.CODE if name == "reloc.CODE" else Section.DATA].append(Relocation(kind, offset, index, addend))


def _symbol(s: Reader) -> Symbol:
    kind, flags = s.byte(), s.number()
    if kind == Kind.SECTION:
        return Symbol(kind, flags, "", s.number())
    if kind == Kind.DATA:
        name = s.name()
        if flags & Flag.UNDEFINED:
            return Symbol(kind, flags, name, -1)
        index, offset = s.number(), s.number()
        s.number()
        return Symbol(kind, flags, name, index, offset)
    index = s.number()
    named = not flags & Flag.UNDEFINED or flags & Flag.EXPLICIT
    return Symbol(kind, flags, s.name() if named else "", index)
