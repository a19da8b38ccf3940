"""Dialects by their modules: an op class that a module defines is in its dialect, so no list repeats it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from xdsl.ir import Operation


def ops_of(prefix: str, names: Mapping[str, object]) -> list[type[Operation]]:
    """Gives the op classes among `names` whose op name starts with `prefix`, by op name. A class without a `name` of its own is a base."""
    # By the bases, as `issubclass` would ask every class below Operation for each that is none.
    kinds = {kind for kind in names.values() if isinstance(kind, type) and Operation in kind.__mro__ and "name" in vars(kind)}
    return sorted((kind for kind in cast("set[type[Operation]]", kinds) if kind.name.startswith(prefix)), key=lambda kind: kind.name)
