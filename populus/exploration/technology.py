"""Joules and square millimetres of what a machine has and does: a table by technology, each row with its source.

    energy     operations x their energy + bytes of tile memory x sram(tile_bytes) + exchanged bytes x wire x distance
               + bytes of memory outside x dram (of the machine's kind)
    distance   two thirds of the side of a square of the machine's area: the mean of two places drawn in it, along both sides
    sram       energy of a byte, between the sizes of the table by a power of the size
    area       tiles x (tile_bytes x sram_byte + multiply-adds x mac + tile)

Energy is that of switching: no table row has leakage or the clock's tree, so a machine that waits costs nothing.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from xdsl.dialects.builtin import f16, f32
from xdsl.ir import Attribute

from populus.dialects.poplar.target import Target
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.element_types import is_float, size_in_bytes
from populus.lowering.driver.files import decode, read_bytes

FILE = Path(__file__).with_name("technology.json")
LARGEST = 1 << 40  # bytes of a memory whose energy is asked for
DEFAULT = "7nm"
KINDS: Mapping[str, tuple[str, ...]] = {
    "energy": (
        *("i8_add", "i8_mul", "i32_add", "i32_mul", "f16_add", "f16_mul", "f32_add", "f32_mul", "wire_byte_mm"),
        *("dram_byte", "gddr6_byte", "hbm2_byte"),
    ),
    "area": ("sram_byte", "f16_mac", "f32_mac", "i8_mac", "tile"),
}
MEMORIES = {"": "dram_byte", "ddr4": "dram_byte", "gddr6": "gddr6_byte", "hbm2": "hbm2_byte"}  # the row of each kind of DRAM
OPTIONAL = ("gddr6_byte", "hbm2_byte")  # of a user's file, for machines without such a memory
UNITS = {"energy": "pJ", "area": "mm2"}


@dataclass(frozen=True)
class Row:
    """A number with its unit and its source. `estimate`: the source does not state it; it follows as `source` says.

    `least`, `greatest`: an estimate's bounds, for which `bounds` has the reasons; of other rows the value.
    """

    value: float
    unit: str
    source: str
    estimate: bool
    least: float
    greatest: float
    bounds: str = ""


@dataclass(frozen=True)
class Technology:
    """The table of one technology. `sram`: (bytes of a memory, picojoules a byte), by growing size."""

    name: str
    rows: Mapping[tuple[str, str], Row]
    sram: tuple[tuple[int, Row], ...]

    def value(self, kind: str, name: str) -> float:
        """Gives a number of the table: picojoules, or square millimetres."""
        return self.rows[kind, name].value

    def bounded(self, greatest: bool) -> Technology:
        """Gives the table with each estimate at its least, or at its greatest."""
        rows = {key: replace(row, value=row.greatest if greatest else row.least) for key, row in self.rows.items()}
        return replace(self, rows=rows, sram=tuple((n, replace(r, value=r.greatest if greatest else r.least)) for n, r in self.sram))

    def sram_byte(self, size: int) -> float:
        """Computes the picojoules of a byte that a memory of `size` bytes reads or writes; beyond the table, as between its last rows."""
        points = [(math.log(n), math.log(row.value)) for n, row in self.sram]
        if len(points) == 1:
            return self.sram[0][1].value
        at = math.log(max(size, 1))
        i = max(1, min(sum(x < at for x, _ in points), len(points) - 1))
        (x0, y0), (x1, y1) = points[i - 1], points[i]
        return math.exp(y0 + (y1 - y0) * (at - x0) / (x1 - x0))

    def area(self, target: Target) -> float:
        """Computes the square millimetres of a machine's tiles, without links and all else around them."""
        element = f16 if target.holds(f16) else f32
        macs = target.macs_per_cycle(element) * self.value("area", "f16_mac" if element == f16 else "f32_mac")
        if target.byte_macs:
            macs += target.byte_macs * self.value("area", "i8_mac")
        return target.tiles * (target.tile_bytes * self.value("area", "sram_byte") + macs + self.value("area", "tile"))

    def operation(self, element: Attribute, product: bool) -> float:
        """Gives the picojoules of one operation: half of a multiply-add for products, whose sums are wider, else an addition."""
        size = size_in_bytes(element)
        own = ("f32" if size >= 4 else "f16") if is_float(element) else ("i32" if size > 1 else "i8")
        if not product:
            return self.value("energy", f"{own}_add")
        wide = "f32" if is_float(element) else "i32"
        return (self.value("energy", f"{own}_mul") + self.value("energy", f"{wide}_add")) / 2

    def dram_byte(self, target: Target) -> float:
        """Gives the picojoules of a byte of the memory outside: that of the machine's kind of DRAM, DDR4 if it names none."""
        kind = target.mesh.memory if target.mesh is not None else ""
        if ("energy", MEMORIES[kind]) not in self.rows:
            raise PopulusError(f"technology '{self.name}' has no energy of {MEMORIES[kind]}, the memory of '{target.name}'")
        return self.value("energy", MEMORIES[kind])

    def wire_byte(self, target: Target) -> float:
        """Computes the picojoules of a byte that goes from one tile to another, over the mean distance."""
        return self.value("energy", "wire_byte_mm") * 2 / 3 * math.sqrt(self.area(target))

    def record(self) -> dict[str, Any]:
        """Gives the table as data, each row with its source."""
        found: dict[str, Any] = {"name": self.name, "rows": []}
        listed = [(f"{kind}.{name}", row) for (kind, name), row in self.rows.items()]
        listed += [(f"energy.sram_byte of {n} bytes", row) for n, row in self.sram]
        for name, row in listed:
            found["rows"].append({"name": name, **vars(row)})
        return found


def technology(name: str | os.PathLike[str] | None = None) -> Technology:
    """Reads a technology: one of ours by its name, or a user's file of the same form. Raises PopulusError."""
    text = os.fspath(name or DEFAULT)
    if "." not in text and os.sep not in text:
        ours = _read(str(FILE))
        if text not in ours:
            raise PopulusError(f"no technology '{text}'{did_you_mean(text, ours)}; there are {', '.join(ours)}, or a file of your own")
        return _technology(str(FILE), text, ours[text])
    found = _read(text)
    if len(found) != 1:
        raise PopulusError(f"{text}: {len(found)} technologies; a file of your own has one")
    ((own, table),) = found.items()
    return _technology(text, own, table)


@lru_cache(8)
def _parsed(path: str, content: str) -> dict[str, Any]:
    try:
        found: object = json.loads(content)
    except (ValueError, RecursionError) as error:  # also a number of too many digits
        raise PopulusError(f"{path}: not JSON: {error}; populus/exploration/technology.json has the form") from error
    if not isinstance(found, dict) or not all(isinstance(t, dict) for t in cast("dict[str, Any]", found).values()):
        raise PopulusError(f"{path}: expected an object of technologies by name; populus/exploration/technology.json has the form")
    return cast("dict[str, Any]", found)


def _read(path: str) -> dict[str, Any]:
    return _parsed(path, decode(read_bytes(path), path))


def _technology(path: str, name: str, table: Mapping[str, Any]) -> Technology:
    """Builds a technology. Raises PopulusError for a row that is missing, unknown, or has no source."""
    rows: dict[tuple[str, str], Row] = {}
    for kind, names in KINDS.items():
        given = table.get(kind)
        if not isinstance(given, dict):
            raise PopulusError(f"{path}: technology '{name}' has no object '{kind}'")
        own = cast("dict[str, Any]", given)
        for row in own:
            if row not in (*names, "sram_byte"):
                raise PopulusError(f"{path}: '{kind}' has no row '{row}'{did_you_mean(row, names)}")
        for row in names:
            if row not in own and row in OPTIONAL:
                continue
            if row not in own:
                raise PopulusError(f"{path}: technology '{name}' has no {kind} of {row}; it states {', '.join(names)}")
            rows[kind, row] = _row(path, f"{kind}.{row}", own[row], UNITS[kind])
    given = cast("dict[str, Any]", table["energy"]).get("sram_byte")
    if not isinstance(given, list) or not given:
        raise PopulusError(f"{path}: technology '{name}' has no list energy.sram_byte, of memories by size")
    sram: dict[int, Row] = {}
    for entry in cast("list[Any]", given):
        size = cast("dict[str, Any]", entry).get("bytes") if isinstance(entry, dict) else None
        if not isinstance(size, int) or isinstance(size, bool) or not 0 < size < 1 << 63:
            raise PopulusError(f"{path}: a row of energy.sram_byte states bytes = {size}; expected the bytes of a memory")
        sram[size] = _row(path, "energy.sram_byte", entry, "pJ")
    made = Technology(name, rows, tuple(sorted(sram.items())))
    for bound in (made, made.bounded(False), made.bounded(True)):
        try:
            _ = bound.sram_byte(1), bound.sram_byte(LARGEST)
        except OverflowError as error:
            raise PopulusError(f"{path}: energy.sram_byte changes too fast between its last sizes for memories of other sizes") from error
    return made


def _row(path: str, name: str, given: Any, unit: str) -> Row:
    entry = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    value, source, estimate = entry.get("value"), entry.get("source"), entry.get("estimate", False)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= sys.float_info.max:
        raise PopulusError(f"{path}: {name} has the value {value}; expected {unit}, above 0")
    if not isinstance(source, str) or not source.strip():
        raise PopulusError(f"{path}: {name} has no source; no number is taken without one")
    if not isinstance(estimate, bool):
        raise PopulusError(f"{path}: {name} has estimate = {estimate}; expected true or false")
    least, greatest, why = (entry.get(key) for key in ("least", "greatest", "bounds"))
    if not estimate:
        if (least, greatest, why) != (None, None, None):
            raise PopulusError(f"{path}: {name} has bounds and is no estimate; a number of a source has none")
        return Row(float(value), unit, source, False, float(value), float(value))
    numbers = [n for n in (least, greatest) if isinstance(n, int | float) and not isinstance(n, bool)]
    if len(numbers) != 2 or not 0 < numbers[0] <= value <= numbers[1] <= sys.float_info.max:
        raise PopulusError(f"{path}: {name} is an estimate from {least} to {greatest}; expected least and greatest around {value}")
    if not isinstance(why, str) or not why.strip():
        raise PopulusError(f"{path}: {name} has no bounds; a text that says where least and greatest come from")
    return Row(float(value), unit, source, True, float(numbers[0]), float(numbers[1]), why)
