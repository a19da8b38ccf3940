"""The machine: tiles, their memory, exchange, element types and arithmetic units, as data.

`gc2`, `gc200` and `bow` are Graphcore's processors; `host` describes a CPU as a tile machine. Every field can be overridden:
`#poplar.target<gc200, tiles = 64>`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

from xdsl.dialects.builtin import Float8E4M3FNUZType, Float8E5M2FNUZType, bf16, f16, f32, f64, i1, i8, i16, i32, i64
from xdsl.ir import Attribute, Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.element_types import BYTES, is_byte, is_float, size_in_bytes, ui8, ui16, ui32, ui64
from populus.dialects.support.registries import registry

KIB = 1024

# Poplar's element types: 64-bit integers (LONGLONG) and 8-bit floats (QUARTER, in two formats) are held though tiles compute them in
# software; doubles are not.
IPU_TYPES = (i1, i8, i16, i32, i64, ui8, ui16, ui32, ui64, f16, f32, Float8E4M3FNUZType(), Float8E5M2FNUZType())


@dataclass(frozen=True)
class Target:
    """One machine. Cycles are tile cycles at `clock_hz`; sizes are bytes; rates are per tile and cycle."""

    name: str
    tiles: int
    tile_bytes: int
    clock_hz: float
    workers: int = 6
    exchange_bytes: int = 4  # received or sent
    bus_tiles: int = 1  # neighbours that receive at that rate each, together, what all of them want
    exchange_setup_cycles: int = 30
    sync_cycles: int = 150
    copy_bytes: int = 8  # memcpy on a tile
    outside_bytes: int = 15  # between all tiles and memory outside of them
    chips: int = 1  # of which each runs a replica; 1 stands for as many as there are replicas
    link_bytes: int = 120  # to the next chip, and from the one before at once
    link_cycles: int = 500  # to start a step between chips
    vector_bytes: int = 8  # the data path: 2 floats, 4 halves
    conv_units: int = 16  # out-channels of one call of the matrix unit
    wide_units: int = 8  # out-channels of a call that sums halves as floats
    conv_inputs: int = 8  # in-channels of one call, in floats; twice as many halves
    conv_macs: int = 16  # multiply-adds of floats in a cycle; of halves four times as many
    slic_taps: int = 4  # kernel elements in a row that one call takes of grouped channels; 0: it has no such calls
    interleaved_bytes: int = 0  # of a tile's memory that loads weights 16 bytes at a time instead of 8
    byte_macs: int = 0  # multiply-adds of 8-bit integers per cycle; 0: the vector unit does them
    reserved_bytes: int = 0  # stack, control code
    types: tuple[Attribute, ...] = IPU_TYPES
    lacks: tuple[str, ...] = ()  # library calls and codelets that others have: `popops.top_k`, `pool`

    def holds(self, element: Attribute) -> bool:
        """Tells whether a tile's memory and arithmetic support this element type."""
        return element in self.types

    def vector_width(self, element: Attribute) -> int:
        """Returns the elements per vector instruction: 2 floats or 4 halves on an IPU."""
        return max(1, self.vector_bytes // max(size_in_bytes(element), 2))

    @property
    def room(self) -> int:
        """The bytes of a tile for a program's data."""
        return self.tile_bytes - self.reserved_bytes

    def grain(self, element: Attribute) -> int:
        """Returns the smallest share of the innermost dimension, in elements: one vector."""
        return max(1, self.vector_bytes // size_in_bytes(element))

    def in_channels(self, element: Attribute) -> int:
        """Returns the in-channels that one call of the matrix unit sums: 8 floats or 16 halves on an IPU."""
        return self.conv_inputs * (2 if size_in_bytes(element) == 2 else 1)

    def out_channels(self, element: Attribute, sums: Attribute) -> int:
        """Returns the out-channels of one call that sums products of `element` in the type `sums`.

        A GC200 has 16; 8 for halves that are summed as floats.
        """
        wide = size_in_bytes(element) == 2 and size_in_bytes(sums) > 2
        return min(self.conv_units, self.wide_units) if wide else self.conv_units

    def macs_per_cycle(self, element: Attribute, sums: Attribute | None = None) -> int:
        """Returns the multiply-adds per cycle of a tile's matrix unit, at its fastest unless `sums` is given.

        A GC200 has 16 for floats, 64 for halves, and 32 for halves that are summed as floats. 8-bit integers take
        their own unit (`byte_macs`), or else the vector unit, 2 cycles for each vector.
        """
        if is_byte(element):
            return self.byte_macs or max(1, self.vector_width(element) // 2)
        size = size_in_bytes(element)
        rate = self.conv_macs * 4 // size if size >= 4 else self.conv_macs * 2 * size
        return max(1, rate if sums is None else rate * self.out_channels(element, sums) // self.conv_units)

    def matrix_peak_of(self, element: Attribute) -> float:
        """Computes the floating point operations per second of all tiles' matrix units in one type."""
        return 2.0 * self.macs_per_cycle(element) * self.tiles * self.clock_hz

    @cached_property
    def matrix_peak(self) -> float:
        """Floating point operations per second of all tiles in their fastest type."""
        return self.matrix_peak_of(f16 if f16 in self.types else f32)


PARTIALS = ("f32", "f16")  # types that halves are summed in


def sum_type(element: Attribute, partials: str = "") -> Attribute:
    """Returns the type in which products of `element` are summed: floats for halves, unless `partials` is "f16".

    With "f16", a running sum of halves is rounded after each call of the matrix unit, and partial results take half the
    bytes. Other types are summed as they are, and 8-bit floats as floats.
    """
    if not is_float(element) or size_in_bytes(element) >= 4:
        return element
    return element if partials == "f16" and element == f16 else f32


# Constants: reference values of Graphcore's published material; `exchange_setup_cycles` and `sync_cycles` are assumptions, and
# `outside_bytes` stands for some 20 GB/s of streaming memory to an IPU (from the host's memory on GC2).
# `link_bytes`: ten links of 32 GB/s, half of them in each direction; `link_cycles` is an assumption.
PRESETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target(
            "gc2",
            tiles=1216,
            tile_bytes=256 * KIB,
            clock_hz=1.6e9,
            conv_units=8,
            conv_macs=8,
            slic_taps=0,
            interleaved_bytes=128 * KIB,
            outside_bytes=6,
            link_bytes=100,
            reserved_bytes=4 * KIB,
        ),
        Target(
            "gc200", tiles=1472, tile_bytes=624 * KIB, clock_hz=1.325e9, bus_tiles=2, interleaved_bytes=416 * KIB, reserved_bytes=4 * KIB
        ),
        Target(
            "bow",
            tiles=1472,
            tile_bytes=624 * KIB,
            clock_hz=1.85e9,
            bus_tiles=2,
            interleaved_bytes=416 * KIB,
            outside_bytes=11,
            link_bytes=86,
            reserved_bytes=4 * KIB,
        ),
        # A CPU: few tiles with large memories. The rates are those of one AVX2-class core shared by the tiles of a socket,
        # and a barrier costs what waking a thread does.
        Target(
            "host",
            tiles=16,
            tile_bytes=1024 * KIB * KIB,
            clock_hz=2.5e9,
            workers=1,
            exchange_bytes=8,
            exchange_setup_cycles=100,
            sync_cycles=2500,
            copy_bytes=16,
            link_bytes=1,  # arrays between processes of one machine are copied some four times; see docs/replicas.md
            link_cycles=50_000,
            vector_bytes=32,
            conv_units=4,
            wide_units=4,
            conv_inputs=4,
            conv_macs=32,
            slic_taps=0,
            byte_macs=128,
            types=tuple(dict.fromkeys((*IPU_TYPES, bf16, f64, *BYTES))),
        ),
    )
}

_OWN = dict(PRESETS)
registry(PRESETS)


def is_ours(target: Target) -> bool:
    """Tells whether it is a built-in machine and not one from a file."""
    return _OWN.get(target.name) is target


def register(target: Target, place: str) -> None:
    """Makes a machine known by its name; again, after its file has changed, in place of what it was.

    Raises PopulusError for the name of a machine that is here already, or that another file defines.
    """
    if target.name in _OWN or _PLACES.get(target.name, place) != place:
        other = "of ours" if target.name in _OWN else f"of {_PLACES[target.name]}"
        raise PopulusError(f"{place}: target '{target.name}' is one {other}; give yours another name")
    if why := impossible(target):
        raise PopulusError(f"{place}: target '{target.name}': {why}")
    PRESETS[target.name], _PLACES[target.name] = target, place


def impossible(target: Target) -> str | None:
    """Returns the reason why no machine has these numbers; None if one may."""
    for name in sorted(_INTEGER_FIELDS):
        if (value := getattr(target, name)) < (0 if name in _MAY_BE_0 else 1):
            return f"{name} = {value}; expected at least {0 if name in _MAY_BE_0 else 1}"
    if not 0 < target.clock_hz < math.inf:
        return f"clock_hz = {target.clock_hz}; expected cycles per second"
    for name in ("exchange_bytes", "vector_bytes", "copy_bytes", "reserved_bytes"):
        if (value := getattr(target, name)) >= target.tile_bytes and value:
            return f"{name} = {value} is not less than the tile's memory, tile_bytes = {target.tile_bytes}"
    if target.bus_tiles > target.tiles and target.bus_tiles > 2:
        return f"bus_tiles = {target.bus_tiles} is more than all tiles, {target.tiles}"
    if not target.types:
        return "types is empty; a machine holds some element type"
    return None


_PLACES = registry(dict[str, str]())  # of machines from files
_MAY_BE_0 = ("interleaved_bytes", "slic_taps", "byte_macs", "exchange_setup_cycles", "link_cycles", "reserved_bytes", "sync_cycles")
_INTEGER_FIELDS = {f.name for f in fields(Target) if f.type == "int"}


def make_target(name: str, overrides: Sequence[tuple[str, int]] = ()) -> Target:
    """Makes the preset `name` with fields replaced.

    Raises PopulusError for an unknown preset or field (naming the nearest), or a number that no machine has.
    """
    if name not in PRESETS:
        raise PopulusError(f"no target '{name}'{did_you_mean(name, PRESETS)}")
    for field, value in overrides:
        if field not in _INTEGER_FIELDS:
            raise PopulusError(f"target '{name}' has no field '{field}' to override{did_you_mean(field, _INTEGER_FIELDS)}")
        if value < (0 if field in _MAY_BE_0 else 1) or value > 2**40:
            raise PopulusError(f"target '{name}': {field} = {value} is out of range")
        if field == "tiles" and value > 2**20:
            raise PopulusError(f"target '{name}': {value} tiles are more than the {2**20} that fit in memory here")
    if not overrides:
        return PRESETS[name]
    made = replace(PRESETS[name], **dict(overrides))
    if (why := impossible(made)):
        raise PopulusError(f"target '{name}': {why}")
    return made


@dataclass(frozen=True)
class Spec:
    """A preset's name and what is overridden."""

    name: str
    overrides: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(text: str, tiles: int | None = None) -> Spec:
        """Reads a user's text: `gc200`, or `gc200, tiles=64, tile_bytes=300000`. The argument `tiles` replaces the number of tiles.

        Raises PopulusError for another form, an unknown preset or field, and a number that no machine has.
        """
        name, *rest = (part.strip() for part in text.split(","))
        overrides: dict[str, int] = {}
        for part in rest:
            field, equals, number = (piece.strip() for piece in part.partition("="))
            if not equals or not number.isdecimal():
                raise PopulusError(f"target '{text}': '{part}' is not FIELD=N, such as tiles=64")
            overrides[field] = int(number)
        if tiles is not None:
            overrides["tiles"] = tiles
        spec = Spec(name, tuple(overrides.items()))
        spec.target()
        return spec

    def target(self) -> Target:
        """Makes the machine. Raises PopulusError as `make_target` does."""
        return make_target(self.name, self.overrides)


@irdl_attr_definition
class TargetAttr(Data[Spec]):
    """`#poplar.target<gc200, tiles = 64>`."""

    name = "poplar.target"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Spec:
        with parser.in_angle_brackets():
            name = parser.parse_identifier("a target")
            overrides: list[tuple[str, int]] = []
            while parser.parse_optional_punctuation(",") is not None:
                field = parser.parse_identifier("a field of the target")
                parser.parse_punctuation("=")
                overrides.append((field, parser.parse_integer(allow_boolean=False)))
        return Spec(name, tuple(overrides))

    def print_parameter(self, printer: Printer) -> None:
        overrides = "".join(f", {field} = {value}" for field, value in self.data.overrides)
        with printer.in_angle_brackets():
            printer.print_string(self.data.name + overrides)

    def verify(self) -> None:
        try:
            self.data.target()
        except PopulusError as error:
            raise VerifyException(str(error)) from error
