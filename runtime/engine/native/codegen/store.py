"""Store of kernels that a wheel has: object code for levels of CPUs, found by the hash of the kernel's key and of the package.

A CPU's text of a kernel is the level's where they agree in the features that the text asks for. An equal text has equal results on
every CPU of a level, so these objects replace LLVM's, and no text is made. A file has one level's:

    first line, with the hash of the rest · lines `NAME SIZE FEATURE,..` of each object · an empty line · the objects
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256

from populus.runtime.engine.native.codegen.cpu import Machine, described

LEVELS = ("x86-64-v4", "x86-64-v3", "aarch64")  # the best first
FOLDER = os.path.dirname(os.path.abspath(__file__))
MAGIC = b"populus kernels 2"


@dataclass(frozen=True)
class Stored:
    """Object code of a kernel, and the features that its text `asked` the level for."""

    asked: frozenset[str]
    content: bytes


@dataclass(frozen=True, eq=False)
class Asked(Machine):
    """A CPU that notes for which features the text of one kernel asks it. It equals no other, so no cache answers for it."""

    features_asked: set[str] = field(default_factory=set[str])

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    @property
    def enabled(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Refuses to list all features: it would not be known for which of them the text asks."""
        raise AssertionError("the text of a kernel asks for a feature by `has`")

    def has(self, feature: str) -> bool:
        self.features_asked.add(feature)
        return f"+{feature}" in self.features.split(",")

    @staticmethod
    def like(machine: Machine) -> Asked:
        """Describes the same CPU."""
        return Asked(machine.triple, machine.cpu, machine.features, machine.llvmlite)


def stored(name: str, plan: Machine, host: Machine) -> bytes | None:
    """Returns the object of the best level that `host` runs, if its text is that for `plan`; None if no store has one."""
    for level in LEVELS:
        found = objects(FOLDER, level).get(name) if runs(host, level) else None
        if found is not None and all(described(level).has(feature) == plan.has(feature) for feature in found.asked):
            return found.content
    return None


def runs(host: Machine, level: str) -> bool:
    """Tells whether a CPU runs a level's code, and its system links objects of Linux."""
    plan = described(level)
    return plan.architecture == host.architecture and plan.enabled <= host.enabled and "linux" in host.triple


@lru_cache(8)
def objects(folder: str, level: str) -> Mapping[str, Stored]:
    """Reads the store of a level. A missing or damaged file has none."""
    try:
        with open(path(folder, level), "rb") as file:
            first, _, rest = file.read().partition(b"\n")
    except OSError:
        return {}
    if first != _first(rest):
        return {}
    lines, _, content = rest.partition(b"\n\n")
    found, at = dict[str, Stored](), 0
    for line in lines.decode().splitlines():
        name, size, asked = line.split(" ")
        found[name], at = Stored(frozenset(filter(None, asked.split(","))), content[at : at + int(size)]), at + int(size)
    return found


def write(found: Mapping[str, Stored], folder: str, level: str) -> None:
    """Writes the store of a level."""
    lines = "".join(f"{name} {len(kernel.content)} {','.join(sorted(kernel.asked))}\n" for name, kernel in found.items())
    rest = lines.encode() + b"\n" + b"".join(kernel.content for kernel in found.values())
    with open(path(folder, level), "wb") as file:
        file.write(_first(rest) + b"\n" + rest)


def path(folder: str, level: str) -> str:
    """Names the file of a level's store."""
    return os.path.join(folder, f"{level}.kernels")


def _first(rest: bytes) -> bytes:
    return MAGIC + b" " + sha256(rest).hexdigest().encode()
