"""A machine that records which of its fields are read."""

from __future__ import annotations

from dataclasses import fields

from populus.dialects.poplar.machine import Target


class Recording(Target):
    """A machine; `read` has the names of the fields that were read since it was made."""

    def __getattribute__(self, name: str) -> object:
        if name in _NAMES:
            _READ.add(name)
        return super().__getattribute__(name)


_NAMES = frozenset(f.name for f in fields(Target))
_READ: set[str] = set()


def recording(target: Target) -> tuple[Recording, set[str]]:
    """Makes a copy of a machine that records, and the set that gets the names."""
    made = Recording(**{name: getattr(target, name) for name in _NAMES})
    hash(made)
    _READ.clear()
    return made, _READ
