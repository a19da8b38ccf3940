"""Strings in a program: on tiles each is a handle, its number in a table that the host keeps.

    func.func @main(%x: tensor<2xi32>) attributes {texts = {table = ["", "a", "b"], inputs = ["x"], outputs = ["y"]}}

Equal strings have equal handles, so that they are moved, compared and looked up like integers. The empty string is handle 0.
The table of a function has the strings of its constants; strings that arrive at run time get the next numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr, i32
from xdsl.ir import Attribute, Operation

KEY = "texts"
HANDLE = i32  # the element type of handles


@dataclass(frozen=True)
class Texts:
    """The strings of a function: those of its constants, and the names of inputs and outputs that are handles."""

    table: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Tells whether any input or output has strings."""
        return bool(self.inputs or self.outputs)


NO_TEXTS = Texts()


def texts(op: Operation) -> Texts:
    """Returns the string table of a function; an empty one if it has no strings."""
    found = op.attributes.get(KEY)
    if not isinstance(found, DictionaryAttr):
        return NO_TEXTS
    return Texts(*(_strings(found.data[name]) for name in ("table", "inputs", "outputs")))


def set_texts(op: Operation, value: Texts) -> None:
    """Records it on a function."""
    entries = {name: ArrayAttr([StringAttr(s) for s in getattr(value, name)]) for name in ("table", "inputs", "outputs")}
    op.attributes[KEY] = DictionaryAttr(cast("dict[str, Attribute]", entries))


def handles(op: Operation, strings: Iterable[str]) -> list[int]:
    """Returns the handles of strings in a function's table; adds the new ones."""
    found = texts(op)
    numbers = {text: i for i, text in enumerate(found.table or ("",))}
    result = [numbers.setdefault(text, len(numbers)) for text in strings]
    if len(numbers) > len(found.table):
        set_texts(op, Texts(tuple(numbers), found.inputs, found.outputs))
    return result


def _strings(value: Attribute) -> tuple[str, ...]:
    entries = cast("ArrayAttr[Attribute]", value) if isinstance(value, ArrayAttr) else ()
    return tuple(s.data for s in entries if isinstance(s, StringAttr))
