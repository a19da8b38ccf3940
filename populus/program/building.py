"""`build`: a model as a shared library with a C interface, and its weights in a file beside it."""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from xdsl.ir import Attribute

from populus.dialects.poplar.memory import ConstOp, StorageOp
from populus.dialects.signature.bounded_dimensions import PREFIX
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of
from populus.dialects.support.errors import checked
from populus.dialects.support.garbage import no_garbage_collection
from populus.dialects.support.output_files import replacing_all
from populus.dialects.support.quick_classes import quick_classes
from populus.lowering.driver.extensions import known
from populus.program.built_sizes import noted, open_sizes, programs_of
from populus.program.open_program import OpenProgram
from populus.program.program import Program
from populus.program.ready import MOST, ReadyProgram, absolute, padded
from populus.program.ready_open import ReadyOpenProgram, rule_of
from populus.program.signature import Signature
from populus.runtime.engine.states import check_states
from populus.runtime.session import graph_of

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from populus.program.ready import Place
    from populus.runtime.engine.native.frozen.freeze import Frozen, Part

NARROW = frozenset(("int8", "uint8", "float16", "bfloat16"))  # elements whose products tile registers compute

Type = tuple[tuple[int, ...], "np.dtype[Any]"]
Types = dict[str, Type]


@dataclass(frozen=True)
class Built:
    """A built program: its library, its module or the Makefile of its parts, and its file of weights; None if the weights are inside."""

    library: Path
    weights: Path | None


# Libraries of the C compiler's system, by the names that `-l` gives them: a program that links with -L. would get ours.
SYSTEM = frozenset(("atomic", "c", "c++", "dl", "gcc", "gcc_s", "gomp", "m", "nsl", "pthread", "resolv", "rt", "stdc++", "util", "z"))


def build(
    program: Program,
    folder: str | os.PathLike[str],
    *,
    name: str = "model",
    cpu: str = "native",
    embed: bool = False,
    states: Mapping[str, str] = {},
    compiler: str | None = None,
    relaxed: bool = False,
    single_file: bool = False,
    parts: bool = False,
) -> Built:
    """Builds a compiled model: writes `lib<name>.so`, `<name>.bin`, `populus.h`, `example.c` and a Makefile into a folder.

    The library needs neither Python nor this package. Equal models, options and versions of the tools give equal bytes.

    - `cpu`: `native`, this CPU; `x86-64-v2`, `-v3` or `-v4`; `aarch64`, by a cross compiler; `wasm32`, for browsers and Node, without one:
      it writes `<name>.wasm`, `<name>.bin`, `populus.mjs`, its types and `index.html`. A model with open dimensions has a program for
      each of the buckets that it was compiled with, and its weights once. If the program was compiled for `threads`, then also
      `worker.mjs`: where memory can be shared, as many threads run it, and one elsewhere.
    - `relaxed`: for `wasm32`, also `<name>.relaxed.wasm`, whose results have the bits of the native engine.
    - `single_file`: for `wasm32`, one page `<name>.html` that holds all and opens from a file, instead.
    - `parts`: writes what the C compiler would link instead of the library: an object of each kernel, the runtime in C and a Makefile.
    - `embed`: the weights are inside the library instead of in `<name>.bin`.
    - `states`: inputs that a run keeps for the next, each with the output that replaces it.
    - `compiler`: the command of the C compiler; by default `CC`, or the first of `cc`, `gcc`, `clang` and ziglang that there is.

    Raises PopulusError for an unknown CPU, for a model that needs Python or the host, with the node that does, and without a compiler.
    """
    from populus.program.program import Program
    from populus.runtime.engine.native.codegen.cpu import WASM, described
    from populus.runtime.engine.native.frozen.link import compiler as compiler_of
    from populus.runtime.engine.native.frozen.link import write_library
    from populus.runtime.engine.native.frozen.web import write_web

    checked(program, Program, "program", "what populus.compile gives", PopulusError)
    checked(folder, (str, os.PathLike), "folder", "the path of a folder", PopulusError)
    architecture = described(cpu).architecture
    web = architecture == WASM
    _check(name, cpu, web, embed, relaxed, single_file, parts)
    threads = program.options.threads or 1
    if single_file and threads > 1:
        raise PopulusError(f"single_file opens from a file, where a browser shares no memory; leave it, or threads = {threads}")
    command = None if web or parts else compiler_of(architecture, compiler)
    frozen = frozen_program(program, cpu, states)
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target, prefix=".partial-") as made, no_garbage_collection():
            place = Path(made)
            if web:
                sizes = noted(program, programs_of(program, states), states, frozen.begins)
                write_web(frozen, place, name, relaxed, single_file, sizes, threads)
            else:
                write_library(frozen, place, name, command, embed)
            files = sorted(place.iterdir())
            with replacing_all([target / file.name for file in files]) as partials:
                for file, partial in zip(files, partials):
                    shutil.move(file, partial)
    except OSError as error:
        raise PopulusError(f"{target}: cannot be written: {error.strerror or error}") from error
    library = f"{name}.html" if single_file else f"{name}.wasm" if web else "Makefile" if parts else f"lib{name}.so"
    return Built(target / library, None if embed or single_file else target / f"{name}.bin")


def _check(name: str, cpu: str, web: bool, embed: bool, relaxed: bool, single_file: bool, parts: bool) -> None:
    """Raises PopulusError for a name that a library cannot have, and for options that a CPU does not have."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
        raise PopulusError(f"name '{name}'; a library's name has letters, digits, '_', '-' and '.'")
    if not web and name.lower() in SYSTEM:
        raise PopulusError(f"name '{name}'; lib{name}.so is a library of the system, which programs would link instead; give another")
    if web and embed:
        raise PopulusError("embed puts weights into a library; for wasm32 they are in a file of their own")
    if web and parts:
        raise PopulusError("parts are those of a library; the module for wasm32 needs no compiler")
    if single_file and not web:
        raise PopulusError(f"single_file is for wasm32; for {cpu} embed puts the weights into the library")
    if relaxed and not web:
        raise PopulusError(f"relaxed is for wasm32; for {cpu} products are fused wherever its CPUs do so")


def frozen_program(program: Program, cpu: str, states: Mapping[str, str], padded: bool = False, here: bool = False) -> Frozen:
    """Freezes a compiled model for a CPU. Raises PopulusError for one that a file cannot hold, with the reason.

    `padded`: something else pads arrays of several sizes, as a page does. `here`: this machine runs it.
    """
    from populus.runtime.engine.native.codegen.cpu import WASM, described
    from populus.runtime.engine.native.frozen.freeze import freeze

    if program.level != "poplar":
        raise PopulusError(f"programs of the level poplar are built; this one is for {program.level}")
    if isinstance(program, OpenProgram) and cpu != WASM:
        raise PopulusError(f"dimension '{_open(program)}' is open; a built program has one size, so give it (dims, --dim NAME=N)")
    plan, threads = described(cpu), program.options.threads
    if cpu == WASM:
        threads = threads or 1  # each takes memory of its own
        plan = plan.threaded() if threads > 1 else plan
    return freeze([_part(one, states, padded or cpu == WASM) for one in programs_of(program, states)], plan, states, threads, here)


def _part(program: Program, states: Mapping[str, str], padded: bool) -> Part:
    """Gives the tile program, with the types of its inputs and outputs. A state of several sizes may become the front of an output."""
    from populus.runtime.engine.native.frozen.freeze import Part

    refuse_python(program.signature, padded)
    inputs, outputs = _types(dict(program.signature.inputs)), _types(dict(program.signature.outputs))
    padding = program.signature.padding
    fronts = {o: inputs[i] for i, o in states.items() if padding and i in inputs and o in outputs and _holds(outputs[o], inputs[i])}
    if padding is not None:
        inputs |= {PREFIX + dimension: ((), np.dtype(np.int32)) for dimension in padding.bounds}
    check_states(states, {n: str(t) for n, t in inputs.items()}, {n: str(t) for n, t in {**outputs, **fronts}.items()})
    return Part(graph_of(program.module("poplar")), inputs, outputs)


def _holds(large: Type, small: Type) -> bool:
    """Tells whether the front of an array may be another one."""
    return large[1] == small[1] and len(large[0]) == len(small[0]) and all(n >= m for n, m in zip(large[0], small[0]))


def kept(program: Program, place: Place, begun: int) -> ReadyProgram | ReadyOpenProgram | None:
    """Freezes a compiled model, which then runs so, and is kept among the programs that are ready. Returns None as `kept_as` does.

    `begun`: the time in ns before it was read. A model with open dimensions is frozen for each bucket that it meets.
    """
    options, opened = program.options, program.source.once().opened
    if options.engine not in ("auto", "native") or options.sample or program.level != "poplar" or opened is None or known():
        return None
    lines = place.lines(files_of(place.model, opened.proto), begun)
    if sys.platform != "linux" or lines is None:
        return None
    if not isinstance(program, OpenProgram):
        return kept_as(program, place, lines)
    return None if opened.maps else ReadyOpenProgram(place, rule_of(program), lines, lambda: program, kept_as, program)


def kept_as(program: Program, place: Place, lines: Sequence[str]) -> ReadyProgram | None:
    """Freezes a compiled program, and keeps it as one of the model's files of these lines.

    It is kept after the first run, so that nobody waits for it; at once if the user asks.
    Returns None for a program that is not for the native engine or that cannot be built. If nobody asked, also for one with more than
    MOST bytes of constants, with those of the model's other sizes, and for one that tile registers, which frozen programs do not use,
    would run faster.
    """
    from populus.runtime.engine.native.codegen.cpu import NATIVE

    if not _takes_arrays(program.signature) or not is_worth_keeping(program, place):
        return None
    try:
        with no_garbage_collection(), quick_classes():  # the engine imports its kernels
            from populus.runtime.built.kept import KeptProgram
            from populus.runtime.built.library import threads_of
            from populus.runtime.engine.native.frozen.keep import placed

            frozen = frozen_program(program, NATIVE, {}, padded=True, here=True)
            built = KeptProgram(placed(frozen), threads_of(program.options.threads))
    except (PopulusError, ImportError, OSError):
        return None
    note = note_of(program.signature)
    keep = partial(_keep, place, lines, frozen, note)
    if place.asked:
        keep()
    return ReadyProgram(padded(built, note), lambda: program, None if place.asked else keep)


def is_worth_keeping(program: Program, place: Place) -> bool:
    """Tells whether a program is to be kept: whatever is asked for, and else what is neither large nor faster on tile registers."""
    from populus.runtime.engine.native.codegen.cpu import machine

    if place.asked:
        return True
    storages = [op for op in graph_of(program.module("poplar")).walk() if isinstance(op, StorageOp)]
    if machine().tiles and any(dtype_of(op.type.element).name in NARROW for op in storages):
        return False
    return place.taken() + sum(_bytes(op) for op in storages if isinstance(op, ConstOp)) <= MOST


def note_of(signature: Signature) -> str:
    """Writes what the file of a program says of dimensions of several sizes; nothing if there are none."""
    sizes = open_sizes(signature)
    return "" if sizes is None else sizes.note().decode()


def _keep(place: Place, lines: Sequence[str], frozen: Frozen, note: str) -> None:
    """Writes the files of a kept program: by the C compiler where its code needs a linker, and nothing where there is none."""
    from populus.runtime.engine.native.frozen.freeze import write_weights
    from populus.runtime.engine.native.frozen.keep import flat_code, write_kept
    from populus.runtime.engine.native.frozen.link import compiler, link

    def write(folder: Path, name: str) -> tuple[str, str]:
        if (code := flat_code(frozen)) is not None:
            return "code", write_kept(frozen, code, folder, name)
        identity = write_weights(frozen, folder, name)
        link(frozen, folder, name, identity, compiler(frozen.plan.architecture), embed=False)
        (folder / f"lib{name}.so").rename(folder / f"{name}.so")
        return "so", identity.hex()

    with suppress(PopulusError, MemoryError):
        for check in frozen.checks:  # a file that stays mapped may have changed since the first run
            check()
        place.keep(lines, write, note)


def _bytes(op: StorageOp) -> int:
    return math.prod(op.type.shape) * dtype_of(op.type.element).itemsize


def _takes_arrays(signature: Signature) -> bool:
    try:
        refuse_python(signature, padded=True)
    except PopulusError:
        return False
    return True


def files_of(path: str, proto: Message) -> list[str]:
    """Lists the files of a model: its own, and those that its tensors are in."""
    return sorted({path, *(absolute(os.path.join(os.path.dirname(path), name)) for name in _locations(proto))})


def _locations(message: Message) -> Iterator[str]:
    """Finds the names of the files that a model's tensors are in."""
    for field, value in message.ListFields():
        if field.name == "external_data":
            yield from (entry.value for entry in value if entry.key == "location")
        elif field.message_type is not None:
            for inner in cast("Sequence[Message]", value if isinstance(value, Sequence) else [value]):
                yield from _locations(inner)


def _open(program: OpenProgram) -> str:
    return next(name for dimensions in program.names.values() for name in dimensions.values())


def refuse_python(signature: Signature, padded: bool = False) -> None:
    """Raises PopulusError for what Python does around a program's runs. `padded`: something else pads arrays of several sizes."""
    if signature.padding is not None and not padded:
        raise PopulusError("a dimension has several sizes; a library has one, so give it (dims, --dim NAME=N); for wasm32 it has all")
    for name in (*signature.texts.inputs, *signature.texts.outputs):
        raise PopulusError(f"'{name}' is strings, which need Python; a built program has arrays of numbers")
    for name in (*signature.pairs.inputs, *signature.pairs.outputs):
        raise PopulusError(f"'{name}' is complex numbers, which need Python; a built program has arrays of floats")
    for entry in signature.maps:
        raise PopulusError(f"output '{entry.output}' is a sequence of maps, which needs Python; a built program has arrays of numbers")
    for entry in signature.map_inputs:
        raise PopulusError(f"input '{entry.input}' is a map, which needs Python; a built program has arrays of numbers")
    for entry in signature.bounded:
        raise PopulusError(f"the data decide the size of output '{entry.output}'; a built program has one size")
    for entry in signature.required:
        name = list(signature.inputs)[entry.input]
        raise PopulusError(f"input '{name}' decides shapes; in a built program it is a constant, so give its value (values, --value)")


def _types(types: Mapping[str, Attribute]) -> Types:
    found: Types = {}
    for name, type in types.items():
        found[name] = (shape_of(type), dtype_of(element_type_of(type)))
    return found
