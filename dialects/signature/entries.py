"""Lists of entries kept as an attribute of a function or graph, in the order in which they were added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr
from xdsl.ir import Attribute, Operation


def add_record(op: Operation, key: str, entry: Mapping[str, Attribute]) -> None:
    """Adds an entry under `key`."""
    op.attributes[key] = ArrayAttr([*records(op, key), DictionaryAttr(dict(entry))])


def records(op: Operation, key: str) -> list[DictionaryAttr]:
    """Returns the entries under `key`."""
    found = op.attributes.get(key)
    entries = list(cast("ArrayAttr[Attribute]", found)) if isinstance(found, ArrayAttr) else []
    return [entry for entry in entries if isinstance(entry, DictionaryAttr)]
