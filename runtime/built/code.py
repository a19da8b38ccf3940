"""Machine code that needs no linker: kernels in one piece, which a process maps, and calls by address.

    first line, with two sizes · `at NAME OFFSET` of each kernel · `out NAME OFFSET` of each address that the process fills in · code

All else that the code names lies in it, at a fixed distance. So it runs at any place, and its file is read without a compiler.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

MAGIC = b"populus code 1"
ALIGNMENT = 64  # bytes of a kernel's first place
_READ, _WRITE, _RUN = 1, 2, 4  # of mprotect


class Flat(NamedTuple):
    """Code of kernels. `at`: the offset of each; `outside`: (function of C's library, offset of its address)."""

    code: bytes
    at: Mapping[str, int]
    outside: Sequence[tuple[str, int]] = ()

    def to_bytes(self) -> bytes:
        """Writes the file's content."""
        lines = [f"at {name} {offset}\n" for name, offset in self.at.items()]
        lines += [f"out {name} {offset}\n" for name, offset in self.outside]
        text = "".join(lines).encode()
        return b"%s %d %d\n" % (MAGIC, len(text), len(self.code)) + text + self.code

    @staticmethod
    def from_bytes(content: bytes) -> Flat | None:
        """Reads what `to_bytes` wrote; None for anything else."""
        first, _, rest = content.partition(b"\n")
        words = first[len(MAGIC) :].split()
        if not first.startswith(MAGIC) or len(words) != 2 or not all(word.isdigit() for word in words):
            return None
        text, code = map(int, words)
        if len(rest) != text + code:
            return None
        found: dict[str, list[tuple[str, int]]] = {"at": [], "out": []}
        for line in rest[:text].decode(errors="replace").splitlines():
            parts = line.split()
            if len(parts) != 3 or parts[0] not in found or not parts[2].isdigit():
                return None
            kind, name, offset = parts[0], parts[1], int(parts[2])
            if offset + (8 if kind == "out" else 1) > code:
                return None
            found[kind].append((name, offset))
        return Flat(rest[text:], dict(found["at"]), found["out"])

    @staticmethod
    def joined(parts: Sequence[Flat]) -> Flat:
        """Puts pieces one after the other."""
        code, at, outside = bytearray(), dict[str, int](), list[tuple[str, int]]()
        for part in parts:
            code.extend(bytes(-len(code) % ALIGNMENT))
            at |= {name: len(code) + offset for name, offset in part.at.items()}
            outside += [(name, len(code) + offset) for name, offset in part.outside]
            code.extend(part.code)
        return Flat(bytes(code), at, outside)


class MappedCode:
    """Code of a process: the addresses of kernels, which are valid as long as this is kept. Raises OSError if the system refuses it."""

    __slots__ = ("__weakref__", "_pages", "addresses")

    def __init__(self, flat: Flat):
        size = max(len(flat.code), 1)
        self._pages = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, _READ | _WRITE)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        self._pages[: len(flat.code)] = flat.code
        for name, offset in flat.outside:
            if (address := c_function(name)) is None:
                raise OSError(f"the system's libraries have no function '{name}'")
            self._pages[offset : offset + 8] = address.to_bytes(8, "little")
        if _system().mprotect(ctypes.c_void_p(begin), ctypes.c_size_t(size), _READ | _RUN):
            raise OSError(ctypes.get_errno(), "the system refuses to run code of this process")
        self.addresses = {name: begin + offset for name, offset in flat.at.items()}


@lru_cache(1)
def _system() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def c_function(name: str) -> int | None:
    """Returns the address of a function of C's library; None if it is not there."""
    try:
        return ctypes.cast(getattr(_system(), name), ctypes.c_void_p).value
    except AttributeError:
        return None


def processor() -> str:
    """Describes the CPU as the system does: its name, model and features. Empty if the system does not say."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = file.read().split("\n\n", 1)[0].splitlines()
    except OSError:
        return ""
    return "\n".join(line for line in lines if line.startswith(_SAID))


_SAID = ("model", "vendor_id", "cpu family", "stepping", "flags", "Features", "CPU ")
