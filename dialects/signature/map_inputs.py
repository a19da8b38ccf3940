"""Inputs that are maps for the caller: the host makes a row of values, [1, n], of a map, and a program reads that.

func.func @main(..) attributes {map_inputs = [{input = "x", element = f32, keys = ["red", "green"]}, {input = "y", element = i64}]}

With `keys`, each key has its column, and an entry of another key is left out, as in scikit-learn and onnxruntime. Else there is a
column for each entry, in the order of the keys, or, with `size`, columns 0 to size - 1. A column without an entry is 0, or "".
Sources: ai.onnx.ml DictVectorizer-1 and CastMap-1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute, Operation

from populus.dialects.signature.entries import add_record, records
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEY = "map_inputs"


@dataclass(frozen=True)
class MapInput:
    """The argument `input` has a column for each key, each entry (`keys` is None), or each number below `size`."""

    input: str
    element: Attribute
    keys: tuple[int | str, ...] | None = None
    size: int | None = None

    def row(self, value: Mapping[Any, Any]) -> NDArray[Any]:
        """Makes the row [1, n] of a map. Raises PopulusError for a key that has no column, and for a value of another kind."""
        import numpy as np

        entries = {self._key(key): self._value(found) for key, found in value.items()}
        zero = "" if self._strings else 0
        if self.keys is not None:
            found = [entries.get(key, zero) for key in self.keys]
        elif self.size is None:
            found = [entries[key] for key in sorted(entries)]
        else:
            if strange := [key for key in entries if not 0 <= int(key) < self.size]:
                raise PopulusError(f"input '{self.input}': the key {strange[0]} is not in 0 to {self.size - 1}, the positions of max_map")
            found = [entries.get(i, zero) for i in range(self.size)]
        row = np.empty((1, len(found)), object if self._strings else dtype_of(self.element))
        row[0, :] = found
        return row

    @property
    def _strings(self) -> bool:
        return str(self.element) == "!onnx.string"

    def _key(self, key: Any) -> Any:
        words = bool(self.keys) and isinstance(cast("tuple[Any, ...]", self.keys)[0], str)
        if isinstance(key, bool) or not isinstance(key, str if words else int):
            kind = "strings" if words else "integers"
            raise PopulusError(f"input '{self.input}': the key {key!r} is {type(key).__name__}; keys are {kind}")
        return key

    def _value(self, value: Any) -> Any:
        """Converts a value to the element type; a text of a number is that number, and a number's text has six digits, as in C."""
        try:
            if self._strings:
                return value if isinstance(value, str) else f"{float(value):f}"
            if dtype_of(self.element).kind == "f":
                return float(value)
            whole = isinstance(value, int) or (isinstance(value, str) and value.strip().lstrip("+-").isdecimal())
            return int(value if whole else float(value))  # 2^53 + 1 is no float
        except (TypeError, ValueError, OverflowError):
            raise PopulusError(f"input '{self.input}': the value {value!r} is no number") from None


def note_map(op: Operation, entry: MapInput) -> None:
    """Records on a function that one of its arguments is a map for the caller."""
    record: dict[str, Attribute] = {"input": StringAttr(entry.input), "element": entry.element}
    if entry.keys is not None:
        record["keys"] = ArrayAttr(
            cast("list[Attribute]", [StringAttr(k) if isinstance(k, str) else IntegerAttr(k, i64) for k in entry.keys])
        )
    if entry.size is not None:
        record["size"] = IntegerAttr(entry.size, i64)
    add_record(op, KEY, record)


def map_inputs(op: Operation) -> list[MapInput]:
    """Gives the arguments of a function that are maps for the caller."""
    found: list[MapInput] = []
    for entry in records(op, KEY):
        name, size = entry.data["input"], entry.data.get("size")
        assert isinstance(name, StringAttr)
        stated = entry.data.get("keys")
        keys = None if stated is None else tuple(_plain(k) for k in cast("ArrayAttr[Attribute]", stated))
        found.append(MapInput(name.data, entry.data["element"], keys, None if size is None else cast("int", _plain(size))))
    return found


def as_rows(entries: Iterable[MapInput], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Gives the inputs with rows in the place of maps. A caller may also give the row itself, as an array.

    Raises PopulusError for a map that has no row.
    """
    rows = {e.input: e.row(cast("Any", value)) for e in entries if isinstance(value := inputs.get(e.input), Mapping)}
    return {**inputs, **rows}


def _plain(attribute: Attribute) -> int | str:
    return attribute.data if isinstance(attribute, StringAttr) else cast("IntegerAttr[Any]", attribute).value.data
