"""Dialects by their modules: an op class that a module defines is in its dialect, so no list repeats it."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Operation


def ops_of(prefix: str, names: Mapping[str, object]) -> list[type[Operation]]:
    """Gives the op classes among `names` whose op name starts with `prefix`, by op name. A class without a `name` of its own is a base."""
    kinds = {kind for kind in names.values() if isinstance(kind, type) and issubclass(kind, Operation) and "name" in vars(kind)}
    return sorted((kind for kind in kinds if kind.name.startswith(prefix)), key=lambda kind: kind.name)
