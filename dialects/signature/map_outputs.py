"""Outputs that are maps for the caller: a program gives the values, [n, keys], and the host makes a map of each row.

func.func @main(..) attributes {maps = [{output = "probabilities", keys = ["no", "yes"]}]}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute, Operation

from populus.dialects.signature.entries import add_record, records

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEY = "maps"


@dataclass(frozen=True)
class Map:
    """The result `output` has a column for each key."""

    output: str
    keys: tuple[int | str, ...]

    def rows(self, values: NDArray[Any]) -> list[dict[int | str, float]]:
        """Makes a map from each row of the values; a vector is one row."""
        return [dict(zip(self.keys, row)) for row in values.reshape(-1, len(self.keys)).tolist()]


def note(op: Operation, entry: Map) -> None:
    """Records on a function that one of its results is maps."""
    keys = [StringAttr(k) if isinstance(k, str) else IntegerAttr(k, i64) for k in entry.keys]
    add_record(op, KEY, {"output": StringAttr(entry.output), "keys": ArrayAttr(cast("list[Attribute]", keys))})


def maps(op: Operation) -> list[Map]:
    """Gives the maps recorded on a function."""
    return [_read(entry) for entry in records(op, KEY)]


def _read(entry: DictionaryAttr) -> Map:
    output, keys = entry.data["output"], entry.data["keys"]
    assert isinstance(output, StringAttr)
    found = cast("ArrayAttr[Attribute]", keys).data
    return Map(output.data, tuple(k.data if isinstance(k, StringAttr) else cast("IntegerAttr[Any]", k).value.data for k in found))
