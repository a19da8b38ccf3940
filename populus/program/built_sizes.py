"""Programs that a build of a model with open dimensions has: one for each bucket of sizes, or for each choice of several."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from populus.dialects.onnx.dimensions import parts
from populus.dialects.onnx.sizes import Size, parse, size
from populus.dialects.support.diagnostics import PopulusError
from populus.program.buckets import BUCKETS, bucket
from populus.program.open_program import OpenProgram
from populus.runtime.built.open_sizes import OpenSizes

if TYPE_CHECKING:
    from populus.program.open_program import Key
    from populus.program.program import Program
    from populus.program.signature import Signature

MOST = 64  # programs of a build

Range: TypeAlias = "int | tuple[int, int]"


def programs_of(program: Program, states: Mapping[str, str]) -> list[Program]:
    """Lists the programs that a build of a compiled model has, the least sizes first. They are compiled if needed.

    Raises PopulusError for open dimensions without buckets, for more than MOST programs, and for an op that serves no range.
    """
    if not isinstance(program, OpenProgram):
        return [program]
    keys = _keys(program, states)
    if len(keys) > MOST:
        names = ", ".join(name for name, _ in keys[0])
        raise PopulusError(f"{len(keys)} programs for the buckets of {names}; at most {MOST} are built, so give fewer (buckets, --buckets)")
    return [program.keyed(key) for key in keys]


def _keys(program: OpenProgram, states: Mapping[str, str]) -> list[Key]:
    """Gives the sizes of each program. A dimension that only states have grows from 0, so its programs serve all sizes up to a bucket."""
    buckets = program.options.buckets
    names = program.free(list(dict.fromkeys(d for named in program.names.values() for d in named.values())))
    if tuple(buckets) == tuple(BUCKETS):
        raise PopulusError(
            f"dimension '{names[0]}' is open; give the buckets of sizes that the page serves (buckets, --buckets 1,16,64), "
            "or a size or a range (dims, --dim NAME=N, --dim NAME=1..N)"
        )
    given = {d for name, named in program.names.items() if name not in states for d in named.values()}
    served: list[Range] = [bucket(n, buckets) for n in buckets]
    grown: list[Range] = [(0, n) for n in buckets]
    choices: Iterable[tuple[Range, ...]] = product(*(served if name in given else grown for name in names))
    found = [tuple(sorted(zip(names, choice))) for choice in choices]
    return sorted(found, key=lambda key: prod(high(sizes) for _, sizes in key))


def high(sizes: Range) -> int:
    """Gives the greatest of some sizes."""
    return sizes if isinstance(sizes, int) else sizes[1]


def noted(program: Program, programs: Sequence[Program], states: Mapping[str, str], begins: Sequence[Sequence[int]]) -> bytes | None:
    """Gives what sizes.mjs reads: the sizes of each program and its `begins`; None for one program of one size."""
    if not isinstance(program, OpenProgram):
        sizes = open_sizes(program.signature)
        found = [] if sizes is None else [sizes]
    else:
        found = [_sizes_at(program, one) for one in programs]
    notes = [json.loads(sizes.note(states)) | {"begins": list(begin)} for sizes, begin in zip(found, begins)]
    return json.dumps(notes, separators=(",", ":")).encode() if notes else None


def open_sizes(signature: Signature) -> OpenSizes | None:
    """Gives the open sizes of a program; None if it has one size."""
    if (padding := signature.padding) is None:
        return None
    return OpenSizes(padding.bounds, padding.inputs, padding.outputs, padding.equal, padding.limits)


def _sizes_at(program: OpenProgram, one: Program) -> OpenSizes:
    """Gives the sizes of a program of an open model. Dimensions of one size are among them."""
    found = open_sizes(one.signature) or OpenSizes({}, {}, {}, (), ())
    named = dict.fromkeys(d for dimensions in program.names.values() for d in dimensions.values())
    free, dims = program.free(list(named)), one.source.dims
    bounds = {name: (n, n) if isinstance(n := dims[name], int) else n for name in free}
    inputs: dict[str, list[Size | None]] = {}
    for name, type in one.signature.inputs.items():
        stated = program.names.get(name, {})
        axes = found.inputs.get(name) or (None,) * len(type.get_shape())
        inputs[name] = [_made(stated[d], free) if axis is None and d in stated else axis for d, axis in enumerate(axes)]
    return OpenSizes(bounds, inputs, found.outputs, found.equal, found.limits)


def _made(name: str, free: Sequence[str]) -> Size:
    """Gives the size of a dimension, which may be a sum of others, such as `past + cur`."""
    return size(name) if name in free else parse(name) if parts(name) <= set(free) else size(name)
