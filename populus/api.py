"""`compile`: a model becomes a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.driver.pipeline import no_garbage_collection
from populus.open_program import OpenProgram, open_dimensions
from populus.options import WITH_OPTIONS, CompileOptions
from populus.program import Program
from populus.source import Source

if TYPE_CHECKING:
    from populus.source import Model


@WITH_OPTIONS.after_one
def compile(model: Model, options: CompileOptions) -> Program:
    """Compiles `model`: a path (`.onnx`, or `.mlir` at any level), an `onnx.ModelProto`, or a module, which is left as it is.

    The keywords are the fields of `populus.options.CompileOptions`, which says what each means. A model with open dimensions
    that `dims` does not name becomes a program for each size that its inputs come in. Raises PopulusError.
    """
    return compiled(model, options)


def compiled(model: Model, options: CompileOptions) -> Program:
    """Compiles as `compile` does, for callers that have the options in one value. Raises PopulusError."""
    loaded = options.extensions()
    options.check()
    source = Source(model, dict(options.dims or {}), loaded)
    pipeline, cache = options.passes(loaded), options.program_cache()

    def specialised(sizes: Mapping[str, int]) -> Program:
        sized = Source(model, {**source.dims, **sizes}, loaded)
        return _built(Program(sized, pipeline, options, cache), options)

    if names := open_dimensions(source):
        return _built(OpenProgram(source, pipeline, options, names, specialised), replace(options, host=True))
    return specialised({})


def _built(program: Program, options: CompileOptions) -> Program:
    """Compiles the program. Raises PopulusError, also where it needs the host and may not."""
    with no_garbage_collection():
        program.build(options.progress)
    if not options.host and (needs := program.host_calls):
        more = f" and {len(needs) - 3} more" if len(needs) > 3 else ""
        raise PopulusError(f"the model needs the host, which is not to compute: {', '.join(needs[:3])}{more}")
    return program
