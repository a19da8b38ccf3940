"""The places of calls of one function: the ops of the model that a call stands for.

The ops of a function have the locations of the first ops that it was made of. Each other call lists, as its attribute
`places`, the names of its own: `[["layer0/conv", "layer1/conv"], ...]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, FusedLoc, LocationAttr, NameLoc, StringAttr
from xdsl.ir import Operation

from populus.dialects.support.diagnostics import fused, named, parts_of

PLACES = "places"


def names_in(location: LocationAttr) -> list[str]:
    """Lists the names of the model's ops in a location, in order."""
    parts = parts_of(location) if isinstance(location, FusedLoc) else [location]
    return [part.desc.data for part in parts if isinstance(part, NameLoc)]


def set_places(call: Operation, pairs: Iterable[tuple[LocationAttr, LocationAttr]]) -> None:
    """Stores the names that a call has in place of its function's. `pairs`: locations of the function's op and of the call's own."""
    found: dict[str, str] = {}
    for inside, own in pairs:
        names = names_in(inside), names_in(own)
        if len(names[0]) == len(names[1]):
            found |= dict(zip(*names))
    set_names(call, found)


def set_names(call: Operation, found: Mapping[str, str]) -> None:
    """Stores the names that a call has in place of its function's, by the latter."""
    if listed := [ArrayAttr([StringAttr(a), StringAttr(b)]) for a, b in found.items() if a != b]:
        call.attributes[PLACES] = ArrayAttr(listed)


def places_of(call: Operation) -> dict[str, str]:
    """Reads the names that a call has in place of its function's; empty if they are equal or unknown."""
    stated = call.attributes.get(PLACES)
    if not isinstance(stated, ArrayAttr):
        return {}
    pairs = [
        [name.data for name in cast("ArrayAttr[StringAttr]", pair) if isinstance(cast("object", name), StringAttr)]
        for pair in cast("ArrayAttr[StringAttr]", stated)
        if isinstance(cast("object", pair), ArrayAttr)
    ]
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def renamed(location: LocationAttr, names: Mapping[str, str]) -> LocationAttr:
    """Gives a location with other names of the model's ops."""
    if not names:
        return location
    parts = parts_of(location) if isinstance(location, FusedLoc) else [location]
    return fused(*(named(names.get(p.desc.data, p.desc.data)) if isinstance(p, NameLoc) else p for p in parts))
