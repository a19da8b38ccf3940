"""Results whose size is known only when the program runs: a buffer of the largest size, and how much of it is valid.

    func.func @main(..) attributes {bounded = [{output = "y", count = "y.count", axis = 1 : i64}]}

A program gives the buffer and the count; who runs it through `populus` gets the valid part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute, Operation

from populus.dialects.signature.entries import add_record, records

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEY = "bounded"


@dataclass(frozen=True)
class Bounded:
    """Of the result `output` the first elements along `axis` are valid, as many as the result `count` (a scalar) says."""

    output: str
    count: str
    axis: int


def bound(op: Operation, entry: Bounded) -> None:
    """Records on a function that one of its results is bounded."""
    values: dict[str, Attribute] = {
        "output": StringAttr(entry.output),
        "count": StringAttr(entry.count),
        "axis": IntegerAttr(entry.axis, i64),
    }
    add_record(op, KEY, values)


def bounded(op: Operation) -> list[Bounded]:
    """Returns the partly valid outputs recorded on a function."""
    return [_read(entry) for entry in records(op, KEY)]


def _read(entry: DictionaryAttr) -> Bounded:
    output, count, axis = (entry.data[name] for name in ("output", "count", "axis"))
    assert isinstance(output, StringAttr)
    assert isinstance(count, StringAttr)
    assert isinstance(axis, IntegerAttr)
    return Bounded(output.data, count.data, axis.value.data)


def trimmed(found: Mapping[str, NDArray[Any]], entries: tuple[Bounded, ...]) -> dict[str, NDArray[Any]]:
    """Drops the counts from the outputs, and trims partly valid ones to their valid part."""
    arrays = dict(found)
    for entry in entries:
        if entry.output in arrays and entry.count in found:
            valid = (slice(None),) * entry.axis + (slice(0, int(found[entry.count])),)
            arrays[entry.output] = arrays[entry.output][valid]
    for entry in entries:
        arrays.pop(entry.count, None)
    return arrays
