"""Linker of WebAssembly objects: one module, without a toolchain.

The memory is the caller's. Its first MiB is the stack, so that one which grows too far ends the run; then come the objects' data. From the
global `heap` on nothing is used.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.engine.native.codegen.jit import WASM_CALLS
from populus.runtime.engine.native.frozen.wasm_object import MAGIC, Fix, Flag, Kind, Object, Part, Section, Symbol, read

STACK = 1 << 17  # bytes: the largest frame, of a panel that is packed, has 42 KB
PAGE = 1 << 16
WIDE = 5  # bytes of a number that a relocation writes
NAME = "populus"  # of the last section: the identity of the build, the digest of its weights, and the sum of all bytes before that sum


def linked(
    objects: Sequence[bytes],
    entries: Sequence[str],
    exports: Mapping[str, str],
    identity: bytes,
    notes: Mapping[str, bytes] = {},
    shared: int = 0,
) -> bytes:
    """Joins objects to a module.

    `entries`: functions that the table has from 1 on. `exports`: functions by the name that the module gives them. `identity`: 16 bytes
    that the file of weights has too, and 16 that are its digest. `notes`: content of custom sections by name. `shared`: the bytes after
    `heap` of a memory that threads share, each with a stack of its own; 0: one thread. The module imports `env.memory`, and
    `fmod` or `fmodf` if a kernel calls them.
    Raises PopulusError for a function that no object has.
    """
    return _Link([read(content) for content in objects]).module(entries, exports, identity, notes, shared)


def summed(content: bytes) -> int:
    """Sums bytes, in order: FNV-1a of 32 bits. One changed byte always changes it."""
    total = 0x811C9DC5
    for byte in content:
        total = (total ^ byte) * 0x01000193 & 0xFFFFFFFF
    return total


def unsigned(value: int, width: int = 1) -> bytes:
    """Encodes a number in LEB128. `width`: the least number of bytes."""
    out = bytearray()
    while value > 127 or len(out) < width - 1:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def signed(value: int, width: int = 1) -> bytes:
    """Encodes a signed number in LEB128. `width`: the least number of bytes."""
    out = bytearray()
    while not -64 <= value < 64 or len(out) < width - 1:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value & 127])


class _Link:
    """Objects, with numbers for all that they have: types, functions, addresses of data, slots of the table."""

    def __init__(self, objects: Sequence[Object]):
        self.objects = objects
        self.types: dict[bytes, int] = {}
        self.slots: dict[int, int] = {}  # function -> its slot of the table
        self.heap = STACK
        self.data: list[Part] = []
        self.addresses: dict[int, int] = {}  # of parts of data, by identity
        self._place_data()
        own = {s.name for o in objects for s in _visible(o)}
        missing = {name: o.types[type] for o in objects for name, type in o.imported if name not in own}
        if unknown := sorted(set(missing) - WASM_CALLS):
            raise PopulusError(f"the program calls {', '.join(unknown)}, which WebAssembly does not have; build it for another CPU")
        self.outside = {name: self._type(type) for name, type in sorted(missing.items())}
        self.functions = {name: number for number, name in enumerate(self.outside)}
        self.bodies: list[tuple[int, Part]] = []  # type and content of each function that the module has
        self.own: list[list[int]] = []  # numbers of each object's functions
        known: dict[tuple[bytes, bytes], int] = {}
        for o in objects:
            self.own.append([self._place(o, n, known) for n in range(len(o.functions))])
            for s in _visible(o):
                self.functions.setdefault(s.name, self.own[-1][s.index - len(o.imported)])

    def _place_data(self) -> None:
        """Gives each part of data its address. Constants of equal bytes are one."""
        known: dict[tuple[bytes, int], int] = {}
        for o in self.objects:
            data = o.parts[Section.DATA]
            written = {_at(data, r.offset) for r in o.relocations[Section.DATA]}
            for n, part in enumerate(data):
                key = bytes(part.content), part.align
                constant = part.name.startswith(".rodata") and n not in written
                if constant and key in known:
                    self.addresses[id(part)] = known[key]
                    continue
                self.heap = -(-self.heap // part.align) * part.align
                self.addresses[id(part)] = self.heap
                if constant:
                    known[key] = self.heap
                self.heap += len(part.content)
                self.data.append(part)

    def _place(self, o: Object, n: int, known: dict[tuple[bytes, bytes], int]) -> int:
        """Gives the number of an object's function. Those of equal code that names nothing else are one."""
        part, type = o.parts[Section.CODE][n], o.types[o.functions[n]]
        named = any(part.start <= r.offset < part.start + len(part.content) for r in o.relocations[Section.CODE])
        visible = any(s.index - len(o.imported) == n and not s.flags & Flag.WEAK for s in _visible(o))
        number = len(self.outside) + len(self.bodies)
        if not named and not visible and (found := known.setdefault((type, bytes(part.content)), number)) < number:
            return found
        self.bodies.append((self._type(type), part))
        return number

    def _type(self, type: bytes) -> int:
        return self.types.setdefault(type, len(self.types))

    def _function(self, number: int, index: int) -> int:
        """Gives the number of a function of object `number`, which has it as `index`."""
        o = self.objects[number]
        if index < len(o.imported):
            return self.functions[o.imported[index][0]]
        return self.own[number][index - len(o.imported)]

    def _value(self, number: int, kind: int, index: int, addend: int) -> int:
        """Gives the number that a relocation of object `number` writes."""
        o = self.objects[number]
        if kind == Fix.TYPE_LEB:
            return self._type(o.types[index])
        symbol = o.symbols[index]
        match symbol.kind:
            case Kind.FUNCTION:
                function = self._function(number, symbol.index)
                return self._slot(function) if kind in (Fix.SLOT_SLEB, Fix.SLOT_I32) else function
            case Kind.DATA:
                assert symbol.defined, symbol
                return self.addresses[id(o.parts[Section.DATA][symbol.index])] + symbol.offset + addend
            case _:  # the stack's global, the table: the only ones
                assert symbol.kind in (Kind.GLOBAL, Kind.TABLE), symbol
                return 0

    def _slot(self, function: int) -> int:
        return self.slots.setdefault(function, len(self.slots) + 1)

    def _relocate(self) -> None:
        """Writes all numbers into code and data."""
        for number, o in enumerate(self.objects):
            for section, relocations in o.relocations.items():
                parts = o.parts[section]
                for r in relocations:
                    part = parts[_at(parts, r.offset)]
                    value, at = self._value(number, r.kind, r.index, r.addend), r.offset - part.start
                    match r.kind:
                        case Fix.SLOT_I32 | Fix.ADDRESS_I32:
                            part.content[at : at + 4] = value.to_bytes(4, "little")
                        case Fix.SLOT_SLEB | Fix.ADDRESS_SLEB:
                            part.content[at : at + WIDE] = signed(value, WIDE)
                        case _:
                            assert r.kind in tuple(Fix), r
                            part.content[at : at + WIDE] = unsigned(value, WIDE)

    def module(self, entries: Sequence[str], exports: Mapping[str, str], identity: bytes, notes: Mapping[str, bytes], shared: int) -> bytes:
        """Builds the module."""
        for name in entries:
            self._slot(self.functions[name])
        assert len(self.slots) == len(entries), entries  # each its own, so that the file's numbers are the table's
        self._relocate()
        stack, heap = b"\x7f\x01\x41" + signed(STACK) + b"\x0b", b"\x7f\x00\x41" + signed(-(-self.heap // 64) * 64) + b"\x0b"
        bodies = [_sized(part.content) for _, part in self.bodies]
        segments = [b"\x00\x41" + signed(self.addresses[id(p)]) + b"\x0b" + _sized(p.content) for p in self.data]
        least, most = (unsigned(-(-end // PAGE)) for end in (self.heap, self.heap + shared))
        imports = [_text("env") + _text("memory") + (b"\x02\x03" + least + most if shared else b"\x02\x00" + least)]
        imports += [_text("env") + _text(name) + b"\x00" + unsigned(type) for name, type in self.outside.items()]
        shown = [_text("table") + b"\x01\x00", _text("heap") + b"\x03\x01"]
        shown += [_text("stack") + b"\x03\x00"] if shared else []
        shown += [_text(name) + b"\x00" + unsigned(self.functions[of]) for name, of in exports.items()]
        content = MAGIC + b"".join(
            bytes([kind]) + _sized(_list(entries))
            for kind, entries in (
                (Section.TYPE, list(self.types)),
                (Section.IMPORT, imports),
                (Section.FUNCTION, [unsigned(type) for type, _ in self.bodies]),
                (Section.TABLE, [b"\x70\x00" + unsigned(len(self.slots) + 1)]),
                (Section.GLOBAL, [stack, heap]),
                (Section.EXPORT, shown),
                (Section.ELEMENT, [b"\x00\x41\x01\x0b" + _list([unsigned(function) for function in self.slots])]),
                (Section.CODE, bodies),
                (Section.DATA, segments),
            )
        )
        content += b"".join(bytes([Section.CUSTOM]) + _sized(_text(name) + note) for name, note in notes.items())
        assert len(identity) == 32, identity
        content += bytes([Section.CUSTOM]) + unsigned(len(_text(NAME)) + 36) + _text(NAME) + identity
        return content + summed(content).to_bytes(4, "little")


def _visible(o: Object) -> list[Symbol]:
    """Lists the functions of an object that others may call."""
    return [s for s in o.symbols if s.kind == Kind.FUNCTION and s.defined and not s.flags & Flag.LOCAL]


def _at(parts: Sequence[Part], offset: int) -> int:
    """Finds the part that has a place of its section."""
    return bisect_right(parts, offset, key=lambda part: part.start) - 1


def _sized(content: bytes | bytearray) -> bytes:
    return unsigned(len(content)) + content


def _text(value: str) -> bytes:
    return _sized(value.encode())


def _list(entries: Sequence[bytes]) -> bytes:
    return unsigned(len(entries)) + b"".join(entries)
