"""`Target`: a machine of tiles as data. `Mesh`: what a mesh of cores has besides. `machine` builds either from its fields."""

from __future__ import annotations

import math
from dataclasses import MISSING, Field, dataclass, fields
from functools import cached_property
from typing import Any, cast

from xdsl.dialects.builtin import Float8E4M3FNUZType, Float8E5M2FNUZType, bf16, f16, f32, i1, i8, i16, i32, i64
from xdsl.ir import Attribute

from populus.dialects.support.block_floats import MAGNITUDES, bytes_an_element
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.element_types import is_byte, is_float, size_in_bytes, ui8, ui16, ui32, ui64

KIB = 1024

# Poplar's element types: 64-bit integers (LONGLONG) and 8-bit floats (QUARTER, in two formats) are held though tiles compute them in
# software; doubles are not.
IPU_TYPES = (i1, i8, i16, i32, i64, ui8, ui16, ui32, ui64, f16, f32, Float8E4M3FNUZType(), Float8E5M2FNUZType())


# The formats of a mesh, and the element type that programs name each by. A block format has none: 16 of its elements share an exponent.
FORMATS: dict[str, Attribute | None] = {"bf16": bf16, "f16": f16, "f32": f32, "i8": i8, "i32": i32, "bfp8": None, "bfp4": None}
FORMAT_BYTES = {"bf16": 2.0, "f16": 2.0, "f32": 4.0, "i8": 1.0, "i32": 4.0} | {name: bytes_an_element(name) for name in MAGNITUDES}
FIDELITIES = {"LoFi": 1, "HiFi2": 2, "HiFi3": 3, "HiFi4": 4}  # passes of the multipliers over other bits of the operands
MEMORIES = ("ddr4", "gddr6", "hbm2")
# Any integers are moved, and computed by the cores' small processors.
MOVED = (i1, i8, i16, i32, i64, ui8, ui16, ui32, ui64)


@dataclass(frozen=True)
class Mesh:
    """Cores in a grid with a network between them, and DRAM at its edge. Cycles are of `clock_hz`; rates are bytes a cycle of one core.

    Without DRAM, its fields are 0.
    """

    grid: tuple[int, int]  # columns, rows
    launch_cycles: float  # of an empty program
    signal_cycles: float  # a semaphore from one core to another
    unicast_bytes: float  # one sender to one core
    row_bytes: float  # one sender to all cores of its row
    column_bytes: float  # one sender to all cores of its column
    multicast_cycles: float  # from the start of a multicast until all have it
    issue_cycles: float  # of a core, for one request to pages over all banks
    matrix_macs: int  # multiply-adds a cycle and phase
    phases: tuple[tuple[str, int], ...]  # by format, at the fidelity that is chosen if none is named
    unpack_bytes: tuple[float, float]  # from a core's memory to the registers of the second operand, and of the first
    pack_bytes: float  # from the registers back
    vector_lanes: int = 32  # elements of a vector instruction, of which one is issued in a cycle
    buffers: int = 2  # blocks of each operand in a core's memory; with 1, nothing moves under the computing
    block: tuple[int, int] = (32, 32)  # rows and columns of a block of elements: the grain of both innermost dimensions
    sub_block: int = 8  # blocks of output that the registers hold; half as many with sums of 32 bits
    phase_cycles: float = 0.0  # lost for each phase of each call of the matrix unit
    reader_cycles: float = 0.0  # of a core that reads a block of a product's operand from DRAM, besides waiting: more than `issue_cycles`
    step_cycles: float = 0.0  # lost in each step of a product, by whichever of computing and moving takes longer
    reads_while_sending: bool = False  # a core that sends an operand to others reads its next blocks at once
    hop_cycles: float = 0.0  # from one core to the next
    busy_clock_hz: float = 0.0  # that products longer than `busy_cycles` sustain; 0: `clock_hz`
    busy_cycles: float = 0.0
    dram_size: int = 0  # bytes
    dram_tile_bytes: float = 0.0  # read by one core
    dram_read_bytes: float = 0.0  # read by all cores together
    dram_write_bytes: float = 0.0  # written by all cores together
    dram_stream_bytes: float = 0.0  # read by the few cores that send a product's operands to all others
    dram_cycles: float = 0.0  # until the first bytes of a read
    banks: int = 0  # of DRAM, each read by the core beside it, which sends on what other cores need; 0: no core is placed so
    bank_bytes: float = 0.0  # read from one bank by that core
    memory: str = ""  # the kind of the DRAM, which decides the energy of its bytes; "": ddr4
    fidelity: int = 0  # passes over operands that are floats, whatever their format has of its own; 0: as many as it has
    fitted: tuple[str, ...] = ()  # the fields whose numbers were fitted to rows of the calibration

    def phases_of(self, element: Attribute, fidelity: str = "") -> int:
        """Returns the passes of the matrix unit over an operand of this element type: those of a fidelity, or else the format's own."""
        if fidelity:
            return FIDELITIES[fidelity]
        if self.fidelity and is_float(element):
            return self.fidelity
        own = next((n for name, n in self.phases if FORMATS[name] == element), None)
        return max(n for _, n in self.phases) if own is None else own

    def bank_rate(self, packets: float = math.inf) -> float:
        """Returns the bytes a cycle of a load of so many packets from the banks, each read by one core and sent on to another."""
        return min(self.banks, self.grid[0] * self.grid[1], packets) * min(self.bank_bytes, self.unicast_bytes)

    @property
    def load_bytes(self) -> float:
        """The bytes of DRAM a cycle that all cores get together: each reads its own, or the cores beside the banks read for all."""
        return max(self.dram_read_bytes, self.bank_rate())

    @property
    def multiply_cycles(self) -> float:
        """The cycles of a block times a block in one phase."""
        return self.block[0] * self.block[1] * self.block[0] / self.matrix_macs


@dataclass(frozen=True)
class Target:
    """One machine. Cycles are tile cycles at `clock_hz`; sizes are bytes; rates are per tile and cycle.

    `mesh`: of a mesh of cores. Its own fields replace those from `exchange_bytes` on, which `machine` derives for what plans by them.
    """

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
    joins: bool = False  # runs a `poplar.task` as one launch, which does not store what is between its families
    load_bytes: int = 8  # of weights into the matrix unit in a cycle; twice as many from interleaved memory
    unit_bytes: int = 32  # of weights in one of its units: 4 deep, one data path wide
    product_start_cycles: int = 5  # of a vertex of the matrix unit, which runs on the supervisor, beyond its estimate
    vertex_start_cycles: int = 82  # of any other vertex
    call_cycles: int = 0  # a machine without calls of a matrix unit: of a product, besides its multiply-adds at `conv_macs`; 0: it has them
    judged: str = ""  # the measurements that its predictions are held to
    mesh: Mesh | None = None

    @property
    def kind(self) -> str:
        """The family of formulas that predicts the machine's cycles."""
        return "ipu" if self.mesh is None else "mesh"

    @property
    def has_calls(self) -> bool:
        """Tells whether products are calls of a matrix unit with one operand loaded: an IPU's."""
        return self.mesh is None and not self.call_cycles

    @property
    def blocks(self) -> tuple[str, ...]:
        """The block formats that a tile's memory and matrix unit have."""
        return () if self.mesh is None else tuple(name for name, _ in self.mesh.phases if name in MAGNITUDES)

    def holds(self, element: Attribute) -> bool:
        """Tells whether a tile's memory and arithmetic support this element type."""
        return element in self.types

    def vector_width(self, element: Attribute) -> int:
        """Returns the elements per vector instruction: 2 floats or 4 halves on an IPU."""
        if self.mesh is not None:
            return self.mesh.vector_lanes
        return max(1, self.vector_bytes // max(size_in_bytes(element), 2))

    @property
    def room(self) -> int:
        """The bytes of a tile for a program's data."""
        return self.tile_bytes - self.reserved_bytes

    def grain(self, element: Attribute) -> int:
        """Returns the smallest share of the innermost dimension, in elements: one vector, or a row of a block."""
        if self.mesh is not None:
            return self.mesh.block[1]
        return max(1, self.vector_bytes // size_in_bytes(element))

    def in_channels(self, element: Attribute) -> int:
        """Returns the in-channels that one call of the matrix unit sums: 8 floats or 16 halves on an IPU."""
        if self.mesh is not None:
            return self.mesh.block[1]
        return self.conv_inputs * (2 if size_in_bytes(element) == 2 else 1)

    def out_channels(self, element: Attribute, sums: Attribute) -> int:
        """Returns the out-channels of one call that sums products of `element` in the type `sums`.

        A GC200 has 16; 8 for halves that are summed as floats.
        """
        if self.mesh is not None:
            return self.mesh.block[1]
        wide = size_in_bytes(element) == 2 and size_in_bytes(sums) > 2
        return min(self.conv_units, self.wide_units) if wide else self.conv_units

    def macs_per_cycle(self, element: Attribute, sums: Attribute | None = None) -> int:
        """Returns the multiply-adds per cycle of a tile's matrix unit, at its fastest unless `sums` is given.

        A GC200 has 16 for floats, 64 for halves, and 32 for halves that are summed as floats. 8-bit integers take
        their own unit (`byte_macs`), or else the vector unit, 2 cycles for each vector.
        """
        if self.mesh is not None:
            return max(1, self.mesh.matrix_macs // self.mesh.phases_of(element))
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
        return self.matrix_peak_of(next(e for e in (f16, bf16, f32) if e in self.types or e == f32))


PARTIALS = ("f32", "f16")  # types that halves are summed in


def sum_type(element: Attribute, partials: str = "") -> Attribute:
    """Returns the type in which products of `element` are summed: floats for halves, unless `partials` is "f16".

    With "f16", a running sum of halves is rounded after each call of the matrix unit, and partial results take half the
    bytes. Other types are summed as they are, and 8-bit floats as floats.
    """
    if not is_float(element) or size_in_bytes(element) >= 4:
        return element
    return element if partials == "f16" and element == f16 else f32


# Of a mesh's own `Target`: what its file states. All other fields follow from its `Mesh`.
_STATED = ("name", "tiles", "tile_bytes", "clock_hz", "reserved_bytes", "lacks", "chips", "link_bytes", "link_cycles", "judged")
_DRAM = tuple(f.name for f in fields(Mesh) if f.name.startswith("dram_"))
MAY_BE_0 = (
    "fidelity", "reader_cycles", "step_cycles",
    "interleaved_bytes", "slic_taps", "byte_macs", "exchange_setup_cycles", "link_cycles", "reserved_bytes", "sync_cycles", "call_cycles",
    "phase_cycles", "hop_cycles", "busy_clock_hz", "busy_cycles", "launch_cycles", "signal_cycles", "issue_cycles", *_DRAM,
    "banks", "bank_bytes",
)  # fmt: skip
INTEGER_FIELDS = {f.name for f in fields(Target) if f.type == "int"}
_KINDS = ("ipu", "mesh")


def machine(kind: str, **numbers: Any) -> Target:
    """Builds a machine of a family of formulas from its fields: for "ipu" those of `Target`, for "mesh" also those of `Mesh`.

    `formats` of a mesh: names of FORMATS; `phases`: of each, by name. Raises PopulusError for another kind, for a missing, unknown or
    impossible field.
    """
    name = numbers.get("name", "")
    if kind not in _KINDS:
        raise PopulusError(f"machine '{name}': kind = '{kind}'; expected ipu or mesh{did_you_mean(str(kind), _KINDS)}")
    own: dict[str, Field[Any]] = {f.name: f for f in fields(Target) if f.name != "mesh" and (kind == "ipu" or f.name in _STATED)}
    known = own if kind == "ipu" else {**own, **{f.name: f for f in fields(Mesh)}, "formats": None}
    for field in numbers:
        if field not in known:
            raise PopulusError(f"machine '{name}' has no field '{field}'{did_you_mean(field, known)}")
    missing = [n for n, f in known.items() if n not in numbers and (f is None or f.default is MISSING)]
    if missing:
        raise PopulusError(f"machine '{name}': no {', '.join(missing)}; a machine of kind {kind} states each")
    if kind == "ipu":
        made = Target(**numbers)
        if why := impossible(made):
            raise PopulusError(f"machine '{name}': {why}")
        return made
    stated = {n: numbers[n] for n in own if n in numbers}
    mesh = {n: value for n, value in numbers.items() if n not in own and n != "formats"}
    mesh["phases"] = _phases(name, numbers["formats"], numbers["phases"])
    return mesh_target(Mesh(**mesh), **stated)


def _phases(name: str, formats: Any, phases: Any) -> tuple[tuple[str, int], ...]:
    """Checks the formats of a mesh, each with its phases. Raises PopulusError for one that is none, or that only one of both has."""
    for format in (*formats, *phases):
        if format not in FORMATS:
            why = f"no format '{format}'{did_you_mean(str(format), FORMATS)}; there are {', '.join(FORMATS)}"
            raise PopulusError(f"machine '{name}': {why}")
    if apart := sorted(set(formats) ^ set(phases)):
        raise PopulusError(f"machine '{name}': {apart[0]} is in one of formats and phases; expected it in both")
    for format, n in phases.items():
        if n not in FIDELITIES.values():
            raise PopulusError(f"machine '{name}': phases of {format} = {n}; expected 1 to 4")
    return tuple(sorted(phases.items()))


def mesh_target(mesh: Mesh, **stated: Any) -> Target:
    """Builds the `Target` of a mesh. The fields that planners read follow from `mesh`.

    Raises PopulusError for numbers that no mesh has.
    """
    if why := _impossible_mesh(mesh, stated["tiles"]):
        raise PopulusError(f"machine '{stated['name']}': {why}")
    floats = tuple(e for name, _ in mesh.phases if (e := FORMATS[name]) is not None and is_float(e))
    made = Target(
        **stated,
        workers=1,
        exchange_bytes=max(int(mesh.unicast_bytes), 1),
        exchange_setup_cycles=int(mesh.signal_cycles),
        sync_cycles=0,
        copy_bytes=max(int(mesh.pack_bytes), 1),
        outside_bytes=max(math.ceil(mesh.load_bytes), 1),
        vector_bytes=4 * mesh.vector_lanes,
        conv_units=mesh.block[1],
        wide_units=mesh.block[1],
        conv_inputs=mesh.block[0],
        conv_macs=mesh.matrix_macs,
        slic_taps=0,
        types=(*MOVED, *floats),
        mesh=mesh,
    )
    if why := impossible(made):
        raise PopulusError(f"machine '{stated['name']}': {why}")
    return made


def _of_another_type(target: Target) -> str | None:
    """Returns the first field that is no text, truth value or tuple where one is expected, as a user's file may have it; or None."""
    for name, kind, expected in (("name", str, "a text"), ("judged", str, "a text"), ("joins", bool, "True or False")):
        if not isinstance(value := getattr(target, name), kind):
            return f"{name} = {value!r}; expected {expected}"
    for name, kind, expected in (("types", Attribute, "element types, such as (f32, i32)"), ("lacks", str, "names, such as ('pool',)")):
        value: Any = getattr(target, name)
        if not isinstance(value, tuple) or not all(isinstance(entry, kind) for entry in cast("tuple[Any, ...]", value)):
            return f"{name} = {value!r}; expected a tuple of {expected}"
    return None


def impossible(target: Target) -> str | None:
    """Returns the reason why no machine has these numbers; None if one may."""
    if why := _of_another_type(target):
        return why
    for name in sorted(INTEGER_FIELDS):
        if not isinstance(getattr(target, name), int) or isinstance(getattr(target, name), bool):
            return f"{name} = {getattr(target, name)}; expected a whole number"
        if (value := getattr(target, name)) < (0 if name in MAY_BE_0 else 1):
            return f"{name} = {value}; expected at least {0 if name in MAY_BE_0 else 1}"
    clock: Any = target.clock_hz
    if isinstance(clock, bool) or not isinstance(clock, (int, float)) or not 0 < clock < math.inf:
        return f"clock_hz = {clock!r}; expected cycles per second"
    for name in ("exchange_bytes", "vector_bytes", "copy_bytes", "reserved_bytes"):
        if (value := getattr(target, name)) >= target.tile_bytes and value:
            return f"{name} = {value} is not less than the tile's memory, tile_bytes = {target.tile_bytes}"
    if target.bus_tiles > target.tiles and target.bus_tiles > 2:
        return f"bus_tiles = {target.bus_tiles} is more than all tiles, {target.tiles}"
    if not target.types:
        return "types is empty; a machine holds some element type"
    return None


def _impossible_mesh(mesh: Mesh, tiles: Any) -> str | None:
    """Returns the reason why no mesh has these numbers; None if one may."""
    for field in fields(Mesh):
        value: Any = getattr(mesh, field.name)
        if field.name in ("phases", "fitted", "reads_while_sending", "memory"):
            continue
        pair = field.name in ("grid", "unpack_bytes", "block")
        numbers = cast("tuple[Any, ...]", value if pair and isinstance(value, tuple) else (value,))
        if len(numbers) != 1 + pair:
            return f"{field.name} = {value}; expected two numbers"
        for number in numbers:
            whole = field.type in ("int", "tuple[int, int]")
            if isinstance(number, bool) or not isinstance(number, int if whole else (int, float)) or not math.isfinite(number):
                return f"{field.name} = {value}; expected {'a whole number' if whole else 'a number'}"
            if number < 0 or (number == 0 and field.name not in MAY_BE_0):
                return f"{field.name} = {value}; expected {'at least 0' if field.name in MAY_BE_0 else 'more than 0'}"
    if mesh.grid[0] * mesh.grid[1] != tiles:
        return f"grid = {mesh.grid} has {mesh.grid[0] * mesh.grid[1]} cores and not tiles = {tiles}"
    given = [name for name in _DRAM if getattr(mesh, name)]
    if given and len(given) < len(_DRAM):
        lacking = next(name for name in _DRAM if name not in given)
        return f"{given[0]} without {lacking}; expected all of {', '.join(_DRAM)}, or none for a machine without DRAM"
    if mesh.dram_tile_bytes > mesh.dram_read_bytes:
        return f"dram_tile_bytes = {mesh.dram_tile_bytes} of one core is more than dram_read_bytes = {mesh.dram_read_bytes} of all"
    if bool(mesh.banks) != bool(mesh.bank_bytes) or (mesh.banks and not mesh.dram_size):
        return f"banks = {mesh.banks} with bank_bytes = {mesh.bank_bytes}; expected both on a machine with DRAM, or neither"
    if unknown := [name for name in mesh.fitted if name not in {f.name for f in fields(Mesh)}]:
        return f"fitted names no field '{unknown[0]}'{did_you_mean(unknown[0], (f.name for f in fields(Mesh)))}"
    memory: Any = mesh.memory
    if memory != "" and memory not in MEMORIES:
        return f"memory = {memory!r}{did_you_mean(str(memory), MEMORIES)}; expected {', '.join(MEMORIES)}"
    if memory and not mesh.dram_size:
        return f"memory = {memory!r} without dram_size; a machine without DRAM has no kind of it"
    if mesh.fidelity > max(FIDELITIES.values()):
        return f"fidelity = {mesh.fidelity}; expected 1 to 4 ({', '.join(FIDELITIES)}), or 0 for each format's own phases"
    if mesh.buffers > 2:
        return f"buffers = {mesh.buffers}; expected 1 or 2"
    return None
