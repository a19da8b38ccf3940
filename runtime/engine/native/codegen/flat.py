"""Linker of one kernel: LLVM's object for x86-64 as code that runs at any place (`built/code.py`)."""

from __future__ import annotations

import struct

from populus.runtime.built.code import ALIGNMENT, Flat

_SYMBOLS, _ADDENDS, _FILLED, _ALLOCATED, _WRITTEN = 2, 4, 1, 2, 1  # kinds and flags of ELF's sections
_PC32, _PLT32 = 2, 4  # the distance of a place; of a function, which may be another library's
_X86_64 = 62
_JUMP = b"\xff\x25\x00\x00\x00\x00"  # jmp to the address in the next 8 bytes


def flat(content: bytes, name: str) -> Flat | None:
    """Returns the code of an object of the kernel `name`; None for another CPU, and for variables or other kinds of references."""
    if content[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", content, 18)[0] != _X86_64:
        return None
    (begin,), (count, names) = struct.unpack_from("<Q", content, 40), struct.unpack_from("<HH", content, 60)
    sections = [struct.unpack_from("<IIQQQQIIQQ", content, begin + 64 * i) for i in range(count)]
    texts = sections[names][4]
    code, places = bytearray(), dict[int, int]()
    for number, (label, kind, flags, _, at, size, _, _, align, _) in enumerate(sections):
        if not flags & _ALLOCATED or not size or _text(content, texts + label) == ".eh_frame":
            continue
        if kind != _FILLED or flags & _WRITTEN or align > ALIGNMENT:
            return None
        code.extend(bytes(-len(code) % ALIGNMENT))
        places[number] = len(code)
        code.extend(content[at : at + size])
    (table,) = (s for s in sections if s[1] == _SYMBOLS)
    strings = sections[table[6]][4]
    symbols = [struct.unpack_from("<IBBHQQ", content, table[4] + 24 * i) for i in range(table[5] // 24)]
    outside: dict[str, int] = {}
    for section in sections:
        if section[1] != _ADDENDS or section[7] not in places:
            continue
        for i in range(section[5] // 24):
            offset, which, addend = struct.unpack_from("<QQq", content, section[4] + 24 * i)
            label, _, _, home, value, _ = symbols[which >> 32]
            kind = which & 0xFFFFFFFF
            if home in places and kind in (_PC32, _PLT32):
                target = places[home] + value
            elif home == 0 and kind == _PLT32:
                target = outside.setdefault(_text(content, strings + label), -1)
                if target < 0:
                    code.extend(bytes(-len(code) % 16))
                    target = outside[_text(content, strings + label)] = len(code)
                    code.extend(_JUMP + bytes(8))
            else:
                return None
            at = places[section[7]] + offset
            struct.pack_into("<i", code, at, target + addend - at)
    begins = [places[home] + value for label, _, _, home, value, _ in symbols if home in places and _text(content, strings + label) == name]
    if len(begins) != 1:
        return None
    return Flat(bytes(code), {name: begins[0]}, [(function, at + len(_JUMP)) for function, at in outside.items()])


def _text(content: bytes, at: int) -> str:
    return content[at : content.index(b"\0", at)].decode()
