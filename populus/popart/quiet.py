"""Settings of a front end that change nothing here: accepted, with one warning by name at the user's line."""

from __future__ import annotations

import warnings

from populus.dialects.support.diagnostics import PopulusWarning
from populus.dialects.support.users_line import users_level

_SAID: set[tuple[str, str]] = set()


def ignored(name: str, why: str = "it changes no result on one machine", front: str = "popart") -> None:
    """Warns that a member has no effect here, once for each name in a process. `front`: the package that takes it."""
    if (front, name) not in _SAID:
        _SAID.add((front, name))
        warnings.warn(f"populus.{front} takes {name} and ignores it: {why}", PopulusWarning, stacklevel=users_level())
