"""Faults that are planted in tile programs: each kind changes one place of a module, drawn at random.

A kind gets the graph and a generator. It returns what it did in words, and raises NothingToChange if the place that it drew has nothing
of its kind. The changed program may be invalid; types of views are kept up with sizes, so that it is not refused for these alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeAlias

from benchmarks import family_faults as family
from benchmarks import step_faults as step
from populus.dialects.poplar.program import GraphOp

Kind: TypeAlias = Callable[[GraphOp, random.Random], str]

KINDS: dict[str, Kind] = {
    "offset of an access": family.offset,
    "stride of an access": family.stride,
    "bounds of an axis": family.bounds,
    "wrong axis": family.wrong_axis,
    "swapped axes": family.swapped_axes,
    "part's number": family.part_dropped,
    "term left out": family.shorter_access,
    "number of parts": family.parts,
    "tiles of a family": family.tiles,
    "order of tiles": family.uncut,
    "layout": family.layout,
    "address": family.address,
    "swapped fields": family.swapped_fields,
    "other operand": family.other_operand,
    "kind of a field": family.field_kind,
    "parameter": family.parameter,
    "kind of an argument": family.argument_kind,
    "swapped arguments": step.swapped_arguments,
    "shrunk variable": step.shrunk,
    "bounds of a slice": step.slice_bounds,
    "dropped copy": step.dropped_copy,
    "dropped zeroing": step.dropped_zeroing,
    "dropped step": step.dropped_step,
    "dropped exchange": step.dropped_exchange,
    "order of families": step.split_step,
    "order of steps": step.reordered,
    "turns of a loop": step.turns,
    "written constant": step.constant_written,
}
