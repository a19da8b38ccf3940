"""Store of kernels that a wheel has: object code for levels of CPUs, found by the hash of its LLVM text.

An equal text has equal results on every CPU of a level, so these objects replace LLVM's. A file has one level's:

    first line, with the hash of the rest · lines `NAME SIZE` of each object · an empty line · the objects
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256

from populus.runtime.engine.native.codegen.cpu import Machine, described

LEVELS = ("x86-64-v4", "x86-64-v3", "aarch64")  # the best first
FOLDER = os.path.dirname(os.path.abspath(__file__))
MAGIC = b"populus kernels 1"


def stored(name: str, host: Machine) -> bytes | None:
    """Returns the object of a text's hash for the best level that `host` has; None if no store has it."""
    found = (objects(FOLDER, level).get(name) for level in LEVELS if _has(host, level))
    return next((content for content in found if content is not None), None)


def _has(host: Machine, level: str) -> bool:
    """Tells whether a CPU runs a level's code, and its system links objects of Linux."""
    plan = described(level)
    return plan.architecture == host.architecture and plan.enabled <= host.enabled and "linux" in host.triple


@lru_cache(8)
def objects(folder: str, level: str) -> Mapping[str, bytes]:
    """Reads the store of a level. A missing or damaged file has none."""
    try:
        with open(path(folder, level), "rb") as file:
            first, _, rest = file.read().partition(b"\n")
    except OSError:
        return {}
    if first != _first(rest):
        return {}
    lines, _, content = rest.partition(b"\n\n")
    found, at = dict[str, bytes](), 0
    for line in lines.decode().splitlines():
        name, size = line.split()
        found[name], at = content[at : at + int(size)], at + int(size)
    return found


def write(found: Mapping[str, bytes], folder: str, level: str) -> None:
    """Writes the store of a level."""
    lines = "".join(f"{name} {len(content)}\n" for name, content in found.items())
    rest = lines.encode() + b"\n" + b"".join(found.values())
    with open(path(folder, level), "wb") as file:
        file.write(_first(rest) + b"\n" + rest)


def path(folder: str, level: str) -> str:
    """Names the file of a level's store."""
    return os.path.join(folder, f"{level}.kernels")


def _first(rest: bytes) -> bytes:
    return MAGIC + b" " + sha256(rest).hexdigest().encode()
