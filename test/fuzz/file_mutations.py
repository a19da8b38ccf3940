"""Mutations of the bytes and of the words of a file."""

from __future__ import annotations

import random
import re

INTEGERS = (0, 1, -1, 2, 7, 255, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 33, 1 << 40, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1)


def bytes_changed(content: bytes, rng: random.Random) -> bytes:
    """Changes, drops, repeats or inserts bytes in one to three places, or cuts the content short."""
    made = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 3])):
        at, length = rng.randrange(len(made) + 1), rng.choice([1, 1, 2, 4, 8, 64])
        match rng.randrange(6):
            case 0 | 1 if at < len(made):
                made[at] = rng.choice([made[at] ^ (1 << rng.randrange(8)), 0, 255, rng.randrange(256)])
            case 2:
                del made[at : at + length]
            case 3:
                made[at:at] = made[at : at + length]
            case 4:
                made[at : at + 8] = (rng.choice(INTEGERS) & (2**64 - 1)).to_bytes(8, "little")
            case _:
                made = made[: rng.choice([at, len(made) - length])] if rng.random() < 0.3 else made + rng.randbytes(length)
    return bytes(made)


def text_changed(content: bytes, rng: random.Random) -> bytes:
    """Replaces a run of digits or letters by another, by a number at an extreme, or by an odd word."""
    found = list(re.finditer(rb"\w+|[\[\]{}(),:'\"]", content[:4000]))
    if not found:
        return content
    match = rng.choice(found)
    words = [
        str(rng.choice(INTEGERS)).encode(),
        rng.choice(found)[0],
        b"",
        b"null",
        b"1e999",
        b"NaN",
        b"[" * 3000,
        b"|O",
        b"True",
        b"-1",
        b"9" * 5000,
    ]
    return content[: match.start()] + rng.choice(words) + content[match.end() :]
