"""`compile`: turns a model into a program."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from populus.dialects.poplar.target import HOST, Spec
from populus.dialects.support.budget import timed
from populus.dialects.support.diagnostics import PopulusError, PopulusWarning
from populus.dialects.support.garbage import no_garbage_collection
from populus.dialects.support.users_line import users_level
from populus.lowering.poplar.allocate import TooLargeError
from populus.program.models import as_model
from populus.program.open_program import OpenProgram, open_dimensions
from populus.program.options import WITH_OPTIONS, CompileOptions
from populus.program.program import Program
from populus.program.source import Source
from populus.program.watch import watch
from populus.runtime.session import graph_of

if TYPE_CHECKING:
    from populus.program.source import Model


@WITH_OPTIONS.after_one
def compile(model: Model | bytes | object, options: CompileOptions) -> Program:
    """Compiles a model.

    `model`: a path (`.onnx`, or `.mlir` at any level), the bytes of a model, an `onnx.ModelProto`, a module, or a function of
    onnxscript. With torch installed, also a program of `torch.export`, and with `example_inputs` an `nn.Module`. None is modified.
    The keywords are the fields of `populus.program.options.CompileOptions`, which documents them.
    A dimension that neither the model nor `dims` fixes stays open. Such a model is compiled once for each bucket of sizes that
    arrives (`populus.program.buckets`); with a range in `dims`, once for all sizes in it.

    Raises PopulusError for a model that cannot be read or compiled, and for invalid options.
    """
    return compiled(model, options)


def compiled(model: object, options: CompileOptions) -> Program:
    """Compiles as `compile` does, for callers that have an options object. Raises PopulusError."""
    if (watching := watch()) is not None:
        options = replace(options, **watching.changes())
    if options.apart:
        message = "compiled in this process, not apart: only programs of `populus.compile` are handed over by another"
        warnings.warn(message, PopulusWarning, stacklevel=users_level())
    loaded = options.extensions()
    options.check()
    source = Source(as_model(model, options.example_inputs), dict(options.dims or {}), loaded, bounds=dict(options.bounds or {}))
    pipeline, cache = options.passes(loaded), options.program_cache()

    def specialised(sized: Source) -> Program:
        return _built(Program(sized, pipeline, options, cache), options)

    once = source.once().given(options.values or {})
    source = replace(source, values=once.values)
    if names := open_dimensions(once):
        program = OpenProgram(once, pipeline, options, names, lambda sizes: specialised(once.at(sizes)))
        return _built(program, replace(options, host=True))
    try:
        program = specialised(source)
    except TooLargeError as error:
        raise _advised(error, source, specialised) from error
    place = f"{os.fspath(model)}: " if isinstance(model, str | os.PathLike) else ""
    if program.levels == ["poplar"]:
        _check_machine(program, options, place)
    elif options.weight_format is not None and program.levels[0] == "popops":
        raise PopulusError(f"{place}weight_format = {options.weight_format} is of levels onnx, stablehlo and popart; the text is at popops")
    return program


def _check_machine(program: Program, options: CompileOptions, place: str) -> None:
    """Raises PopulusError if a tile program is not of the machine of the options: its plans stand, and another would change nothing.

    A machine without numbers of its own is any of this name; `host`, the default, is any machine.
    """
    found, spec = graph_of(program.module("poplar")).target.data, Spec.of(options.target)
    made, other = found.target(), options.target != HOST.name and spec.name != found.name
    how = options.weight_format is not None or options.fidelity is not None  # what is multiplied, and in how many phases
    if other or how or (spec.overrides and spec.target() != made) or options.tiles not in (None, made.tiles):
        text = ", ".join([found.name, *(f"{name}={n}" for name, n in found.overrides)])
        advice = "leave out --target and --tiles, --weight-format and --fidelity, or give what it is made from"
        raise PopulusError(f"{place}a tile program for '{text}', which no option changes; {advice}")


def _advised(error: TooLargeError, source: Source, specialised: Callable[[Source], Program]) -> TooLargeError:
    """Adds the largest bound that fits the machine, of the dimension with the largest, to the error of a program that does not."""
    ranges = {name: size for name, size in source.dims.items() if isinstance(size, tuple)}
    if not ranges:
        return error
    name = max(ranges, key=lambda n: ranges[n][1])
    least, greatest = ranges[name]
    fits, large = max(least, 1) - 1, greatest  # the largest bound that is known to fit, and the least that does not
    while large - fits > 1:
        middle = (fits + large) // 2
        try:
            specialised(source.at({name: (least, middle)}))
            fits = middle
        except TooLargeError:
            large = middle
    found = f"the largest bound that fits is {fits}" if fits >= max(least, 1) else f"it does not fit with {least} either"
    return TooLargeError(f"{error}; '{name}' is bounded by {greatest}, and {found}")


def _built(program: Program, options: CompileOptions) -> Program:
    """Compiles the program. Raises PopulusError, also for a model that needs the host if `host` is False."""
    with no_garbage_collection(), timed():
        program.build(options.progress)
    if not options.host and (needs := program.host_calls):
        more = f" and {len(needs) - 3} more" if len(needs) > 3 else ""
        raise PopulusError(f"the model needs the host, which host=False forbids: {', '.join(needs[:3])}{more}")
    return program
