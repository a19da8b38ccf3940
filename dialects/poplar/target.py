"""The machines that are known by name, ours and those of files, and `#poplar.target`, which names one.

Every whole number of a machine can be overridden: `#poplar.target<gc200, tiles = 64>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from os.path import realpath

from xdsl.ir import Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from populus.dialects.poplar.machine import (
    FIDELITIES,
    INTEGER_FIELDS,
    IPU_TYPES,
    KIB,
    MAY_BE_0,
    PARTIALS,
    Mesh,
    Target,
    impossible,
    machine,
    mesh_target,
    sum_type,
)
from populus.dialects.poplar.machines.graphcore import BOW, GC2, GC200
from populus.dialects.poplar.machines.host import HOST
from populus.dialects.poplar.machines.n150 import N150
from populus.dialects.poplar.machines.p150 import P150
from populus.dialects.support.block_floats import MAGNITUDES
from populus.dialects.support.diagnostics import PopulusError, did_you_mean, option
from populus.dialects.support.registries import registry
from populus.dialects.support.shapes import is_size

__all__ = [
    "IPU_TYPES",
    "KIB",
    "PARTIALS",
    "PRESETS",
    "Mesh",
    "Spec",
    "Target",
    "TargetAttr",
    "check_block_format",
    "impossible",
    "is_ours",
    "machine",
    "make_target",
    "mesh_fields",
    "register",
    "sum_type",
]

PRESETS: dict[str, Target] = {target.name: target for target in (GC2, GC200, BOW, HOST, N150, P150)}

_OWN = dict(PRESETS)
registry(PRESETS)


def is_ours(target: Target) -> bool:
    """Tells whether it is a built-in machine and not one from a file."""
    return _OWN.get(target.name) is target


def register(target: Target, place: str) -> None:
    """Makes a machine known by its name; again, after its file has changed, in place of what it was.

    Raises PopulusError for the name of a machine that is here already, or that another file defines.
    """
    if target.name in _OWN or realpath(_PLACES.get(target.name, place)) != realpath(place):
        other = "of ours" if target.name in _OWN else f"of {_PLACES[target.name]}"
        raise PopulusError(f"{place}: target '{target.name}' is one {other}; give yours another name")
    if why := impossible(target):
        raise PopulusError(f"{place}: target '{target.name}': {why}")
    PRESETS[target.name], _PLACES[target.name] = target, place


_PLACES = registry(dict[str, str]())  # of machines from files


def make_target(name: str, overrides: Sequence[tuple[str, int]] = ()) -> Target:
    """Makes the preset `name` with fields replaced.

    Raises PopulusError for an unknown preset or field (naming the nearest), or a number that no machine has.
    """
    if name not in PRESETS:
        raise PopulusError(f"no target '{name}'{did_you_mean(name, PRESETS)}")
    preset = PRESETS[name]
    known = mesh_fields() if preset.mesh is not None else INTEGER_FIELDS
    for field, value in overrides:
        if field not in known:
            raise PopulusError(f"target '{name}' has no field '{field}' to override{did_you_mean(field, known)}")
        if value < (0 if field in MAY_BE_0 else 1) or value > 2**40:
            raise PopulusError(f"target '{name}': {field} = {value} is out of range")
        if field == "tiles" and value > 2**20:
            raise PopulusError(f"target '{name}': {value} tiles are more than the {2**20} that fit in memory here")
    if not overrides:
        return preset
    made = replace(preset, **dict(overrides)) if preset.mesh is None else _other_mesh(preset, preset.mesh, dict(overrides))
    if (why := impossible(made)):
        raise PopulusError(f"target '{name}': {why}")
    return made


_STATED = ("tile_bytes", "reserved_bytes", "chips", "link_bytes", "link_cycles")
_NUMBERS = {f.name for f in fields(Mesh) if f.type in ("int", "float")}


def mesh_fields() -> frozenset[str]:
    """Lists the fields of a mesh that can be overridden."""
    return frozenset({"tiles", "columns", "rows", *_STATED, *_NUMBERS})


def _other_mesh(preset: Target, mesh: Mesh, overrides: dict[str, int]) -> Target:
    """Makes a mesh with fields replaced: `columns` and `rows` for its grid; `tiles` follows from them."""
    grid = overrides.get("columns", mesh.grid[0]), overrides.get("rows", mesh.grid[1])
    tiles = overrides.get("tiles", grid[0] * grid[1])
    if tiles != grid[0] * grid[1]:
        raise PopulusError(
            f"target '{preset.name}': tiles = {tiles}, and its grid has {grid[0]} columns and {grid[1]} rows; give columns=N and rows=N"
        )
    numbers = {name: value for name, value in overrides.items() if name in _NUMBERS}
    own = {name: overrides.get(name, getattr(preset, name)) for name in _STATED}
    changed = replace(mesh, grid=grid, **numbers)
    return mesh_target(changed, name=preset.name, tiles=tiles, clock_hz=preset.clock_hz, lacks=preset.lacks, judged=preset.judged, **own)


@dataclass(frozen=True)
class Spec:
    """A preset's name and what is overridden."""

    name: str
    overrides: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(text: str, tiles: int | None = None, fidelity: str | None = None) -> Spec:
        """Reads a user's text: `gc200`, or `gc200, tiles=64, tile_bytes=300000`. The argument `tiles` is how many of its tiles to use,
        `fidelity` a name of FIDELITIES, for a mesh.

        Raises PopulusError for another form, an unknown preset or field, a number that no machine has, and for more tiles than this
        machine has. A CPU's tiles are of software, so it has any number.
        """
        name, *rest = (part.strip() for part in text.split(","))
        overrides: dict[str, int] = {}
        if "=" in name:
            raise PopulusError(f"target '{text}': expected a name, and a comma before each FIELD=N, such as 'gc200, tiles=64'")
        for part in rest:
            field, equals, number = (piece.strip() for piece in part.partition("="))
            if not equals or not is_size(number):
                raise PopulusError(f"target '{text}': '{part}' is not FIELD=N, such as tiles=64 or tile_bytes=262144")
            overrides[field] = int(number)
        if tiles is not None:
            if name != HOST.name and tiles > (most := make_target(name, tuple(overrides.items())).tiles):
                larger = ", ".join([name, *(f"{f}={n}" for f, n in {**overrides, "tiles": tiles}.items())])
                hint = option(f"--target '{larger}'", f"target='{larger}'")
                raise PopulusError(f"tiles = {tiles}, and a {name} has {most}; {hint} is a machine with more")
            overrides["tiles"] = tiles
        if fidelity is not None:
            overrides["fidelity"] = _phases_of(fidelity, make_target(name, tuple(overrides.items())))
        spec = Spec(name, tuple(overrides.items()))
        spec.target()
        return spec

    def target(self) -> Target:
        """Makes the machine. Raises PopulusError as `make_target` does."""
        return make_target(self.name, self.overrides)


def _phases_of(fidelity: str, target: Target) -> int:
    """Returns the phases of a fidelity. Raises PopulusError for one that is none, and for a machine without phases."""
    if fidelity not in FIDELITIES:
        raise PopulusError(f"fidelity = {fidelity}{did_you_mean(fidelity, FIDELITIES)}; there are {', '.join(FIDELITIES)}")
    if target.mesh is None:
        raise PopulusError(f"fidelity = {fidelity}: target {target.name} multiplies in one way; meshes such as n150 have phases")
    return FIDELITIES[fidelity]


def check_block_format(format: str, target: Target) -> None:
    """Raises PopulusError for a block format that is none, or that the machine lacks."""
    if format not in MAGNITUDES:
        raise PopulusError(f"weight_format = {format}{did_you_mean(format, MAGNITUDES)}; the block formats are {', '.join(MAGNITUDES)}")
    if format not in target.blocks:
        having = ", ".join(name for name, machine in PRESETS.items() if format in machine.blocks)
        raise PopulusError(f"weight_format = {format}: target {target.name} has no such format; {having} have it")


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
