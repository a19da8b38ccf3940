"""Options of PopTorch without a meaning on one machine: accepted, with one warning by name."""

from __future__ import annotations

import warnings

from populus.dialects.support.diagnostics import PopulusWarning

_SAID: set[str] = set()


def ignored(name: str) -> None:
    """Warns that a setting changes nothing here, once for each name in a process."""
    if name not in _SAID:
        _SAID.add(name)
        warnings.warn(f"populus.poptorch takes {name} and ignores it: it changes no result on one machine", PopulusWarning, stacklevel=4)
