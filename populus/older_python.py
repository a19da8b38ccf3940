"""Lets programs that were written for Python 3.8 to 3.10, as those of the SDK were, define their dataclasses."""

from __future__ import annotations

import dataclasses
from typing import Any

_get_field: Any = getattr(dataclasses, "_get_field", None)


def install() -> None:
    """Lets a dataclass be the default of a field, as before Python 3.11, though it has no hash. Lists, dicts and sets stay refused."""
    if _get_field is not None:
        setattr(dataclasses, "_get_field", _field)  # noqa: B010


def uninstall() -> None:
    """Takes it back."""
    if _get_field is not None:
        setattr(dataclasses, "_get_field", _get_field)  # noqa: B010


def _field(cls: type, name: str, *args: Any) -> Any:
    given: Any = getattr(cls, name, None)
    default: object = given.default if type(given).__name__ == "Field" else given  # of dataclasses
    kind: Any = type(default)
    if not dataclasses.is_dataclass(kind) or kind.__hash__ is not None:
        return _get_field(cls, name, *args)
    kind.__hash__ = object.__hash__  # which Python takes for a sign that a value may change
    try:
        return _get_field(cls, name, *args)
    finally:
        kind.__hash__ = None
