"""File of a built program: words and the places among them, descriptions of tensors, and constants.

    header (256 bytes) · words · relocs · tensors · texts · names and shapes · constants from the next page on

All numbers are little-endian words of 64 bits, except relocs, which are `number of the word << 2 | base`, of 32 bits: the loader
replaces or moves that word by the base. Offsets count from the start of the file. `runtime.c` reads the same layout.

A program for wasm32 packs some constants when it is loaded, as a page gets fewer bytes so. They are the file's last, and come to the
end of the session's memory. The steps from `loading` on pack them into its front, in their order; the rest is zeroed then. Variables
need most of the memory that packing does, and no constant is written over before it is packed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray  # 5 ms

MAGIC, VERSION = int.from_bytes(b"populus\0", "little"), 2
HEAD, PAGE, ALIGNMENT = 256, 4096, 64  # bytes
SUMS = 7  # the number of the first of two words that have the sums of all others
PIECE = 1 << 13  # rows of 8 words that are read and summed at a time
MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243, "wasm32": int.from_bytes(b"wasm", "little")}  # ELF's numbers, where it has one

# Features of a CPU that code may use, in the order of their bits; the runtime checks the same table.
FEATURES: dict[str, tuple[str, ...]] = {
    "x86_64": (
        *("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16", "movbe", "avx", "fma", "f16c", "avx2", "bmi", "bmi2", "lzcnt"),
        *("avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni"),
        *("avx512bitalg", "avx512vpopcntdq", "gfni", "vaes", "vpclmulqdq", "avx512fp16", "avx512bf16", "avxvnni", "avxvnniint8"),
        *("avxneconvert", "avxifma"),
    ),
    "aarch64": ("neon", "dotprod", "fullfp16", "fp16fml", "sve", "sve2", "i8mm", "bf16", "lse", "rcpc"),
    "riscv64": ("m", "a", "f", "d", "c", "v"),
    "wasm32": ("simd128",),
}


class Base(IntEnum):
    """Origin that a place is counted from: a kernel of this number, the file, the memory of a session, the words."""

    CODE, DATA, MEMORY, WORDS = range(4)


def checksum(pieces: Iterable[NDArray[np.uint64]]) -> bytes:
    """Gives the two sums of a file in pieces of whole rows, with zeros in their place. A change of one byte always changes the first.

    They are of its words in 8 columns, and of those sums after each row; the columns of each are mixed into one word.
    """
    words, sums = np.zeros(8, np.uint64), np.zeros(8, np.uint64)
    for number, piece in enumerate(pieces):
        part = (piece.copy() if number == 0 else piece).reshape(-1, 8)
        if number == 0:
            part.reshape(-1)[SUMS : SUMS + 2] = 0
        sums += len(part) * words + (part * np.arange(len(part), 0, -1, dtype=np.uint64)[:, None]).sum(0, np.uint64)
        words += part.sum(0, np.uint64)
    return b"".join(folded(columns.tolist()).to_bytes(8, "little") for columns in (words, sums))


def folded(columns: Sequence[int]) -> int:
    """Returns the 8 sums of columns as one word."""
    found = 0
    for column in columns:
        found = (found ^ column) * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
        found ^= found >> 31
    return found
