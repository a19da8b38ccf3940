"""Registries: tables of a module to which loaded files add. A scope leaves them as it found them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TypeVar

Table = TypeVar("Table", bound="dict[Any, Any]")

_TABLES: list[tuple[dict[Any, Any], dict[Any, Any]]] = []  # each with its content when its module was imported


def registry(table: Table) -> Table:
    """Makes a module's table one of those that `restored` restores."""
    _TABLES.append((table, dict(table)))
    return table


@contextmanager
def restored() -> Generator[None, None, None]:
    """Restores all registries after a block, also those of modules that it imports."""
    before = [dict(table) for table, _ in _TABLES]
    try:
        yield
    finally:
        for i, (table, imported) in enumerate(_TABLES):
            content = before[i] if i < len(before) else imported
            if table != content:
                table.clear()
                table.update(content)
