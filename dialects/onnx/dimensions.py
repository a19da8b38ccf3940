"""Sizes that the open dimensions of a model are bound to."""

from __future__ import annotations

from collections.abc import Mapping

from populus.dialects.onnx.sizes import Limited, Size, as_size, parse, size
from populus.dialects.signature.bounded_dimensions import check_bounds
from populus.dialects.support.diagnostics import PopulusError


def parts(name: str) -> set[str]:
    """Gives the dimensions of a name such as `past + cur`; none for another name."""
    try:
        return parse(name).names()
    except PopulusError:
        return set()


class Dimensions:
    """The sizes that open dimensions are bound to: one each, or a least and a greatest.

    `limits`: the greatest value of a size that several dimensions make, such as `past + cur`, if it is stated.
    """

    def __init__(self, dims: Mapping[str, int | tuple[int, int]]):
        self.bounds: dict[str, tuple[int, int]] = {}
        self.fixed: dict[str, int] = {}
        self.limits: dict[Size, int] = {}
        for name, entry in dims.items():
            low, high = (entry, entry) if isinstance(entry, int) else entry
            if not isinstance(entry, int):
                check_bounds(name, low, high)
            if low != high and (own := parts(name)) != {name} and own and own <= set(dims):
                continue
            if low == high:
                self.fixed[name] = high
            else:
                self.bounds[name] = (low, high)
        for name, entry in dims.items():
            if name not in self.fixed and name not in self.bounds and not isinstance(entry, int):
                self.limits[self._made(name)] = entry[1]

    def _made(self, name: str) -> Size:
        """Gives the size that a name such as `past + cur` states."""
        return parse(name).replaced({p: as_size(n) for p, n in self.fixed.items()})

    def upper(self, value: Size) -> int:
        """Gives the greatest value of a size."""
        return value.upper(Limited(self.bounds, self.limits))

    def size(self, name: str) -> Size | None:
        """Gives the size of a dimension; None if it stays open."""
        if name in self.fixed:
            return as_size(self.fixed[name])
        if name in self.bounds:
            return size(name)
        found = parts(name)
        if not found or not all(p in self.fixed or p in self.bounds for p in found):
            return None
        return self._made(name)

    def stated(self, name: str) -> int:
        """Gives the number of a dimension that a type inside the graph names; -1 if it is open or bounded."""
        found = self.size(name)
        number = None if found is None else found.constant
        return -1 if number is None else number
