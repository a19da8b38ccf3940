"""write a model as an ONNX file, for Netron and onnxruntime, or as StableHLO, for XLA, JAX and IREE."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.output_files import check_places, replacing
from populus.lowering.driver.files import in_file
from populus.lowering.driver.pipeline import Pipeline
from populus.program.compile import compile
from populus.tools.command import add_model, dims_of, values_of
from populus.tools.output import Terminal, say_written
from populus.tools.progress import working

if TYPE_CHECKING:
    from populus.program.source import Model

LEVELS = ("onnx", "popart")
SUFFIXES = (".onnx", ".mlir")
LEFT_OUT = ("popart-outline", "popart-inplace")  # neither form has the functions of the first and the marks of the second
FUSED = "popops-fuse"  # StableHLO has an op for each function of a formula, and XLA fuses them itself


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus export`."""
    add = parser.add_argument
    add_model(parser, "a .onnx model, a .mlir module at the level onnx or popart, or a net by name")
    add("-o", "--output", required=True, metavar="FILE.onnx|FILE.mlir", help="write the model here")
    add("--level", default="popart", choices=LEVELS, help="the level of an ONNX file: popart, after its rewrites (default), or onnx")
    add("--pipeline", default="inference", metavar="NAME|FILE", help="the passes: inference (default), inference-plain, or a file")
    add("--dim", action="append", default=[], metavar="NAME=N", help="size of a symbolic dimension")
    add("--value", action="append", default=[], metavar="NAME=V", help="make an input a constant, such as one that decides a branch")
    add("--load", action="append", default=[], metavar="FILE.py", help="load ops and passes from a Python file")


def execute(args: argparse.Namespace) -> int:
    """Runs the command."""
    suffix = Path(args.output).suffix
    [place] = check_places([args.output])
    if place.is_file and suffix not in SUFFIXES:
        raise PopulusError(f"{args.output}: the name of an .onnx or .mlir file is expected")
    if suffix == ".mlir" and args.level == "onnx":
        raise PopulusError(f"{args.output}: StableHLO is written from what popart computes; leave out --level onnx")
    given = {"dims": dims_of(args.dim), "values": values_of(args.value), "load": args.load}
    with replacing(args.output) as partial, working(f"exporting {args.model}"), in_file(args.model):
        if suffix == ".mlir":
            with partial.open("w") as stream:
                stream.writelines(stablehlo(args.model, args.pipeline, **given))
        else:
            partial.write_bytes(onnx(args.model, args.level, args.pipeline, **given))
    say_written(Terminal(highlight=False), args.output)
    return 0


def onnx(model: Model, level: Literal["onnx", "popart"], pipeline: str, **given: Any) -> bytes:
    """Exports a model to the bytes of an ONNX file. `given`: options of `compile`. Raises PopulusError for what ONNX has no form of."""
    from populus.lowering.onnx.exporter import export_onnx
    from populus.lowering.popart.exporter import export_popart

    module = compile(model, level=level, pipeline=_without(pipeline, *LEFT_OUT), **given).module(level)
    return (export_onnx if level == "onnx" else export_popart)(module).SerializeToString(deterministic=True)


def stablehlo(model: Model, pipeline: str = "inference", **given: Any) -> Iterator[str]:
    """Exports a model to the lines of a StableHLO text. `given` as for `onnx`. Raises PopulusError for what StableHLO has no form of."""
    from populus.lowering.stablehlo.exporter import export_stablehlo

    return export_stablehlo(compile(model, level="popops", pipeline=_without(pipeline, *LEFT_OUT, FUSED), **given).module("popops"))


def _without(pipeline: str, *names: str) -> Pipeline:
    return Pipeline(tuple(p for p in Pipeline.read(pipeline).passes if p.name not in names))
