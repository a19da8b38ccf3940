"""write a model, at the level onnx or popart, as an ONNX file that other tools open, such as Netron and onnxruntime."""

from __future__ import annotations

import argparse

from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.output_files import check_places, replacing
from populus.lowering.driver.files import in_file
from populus.lowering.driver.pipeline import Pipeline
from populus.program.compile import compile
from populus.tools.command import add_model, dims_of, values_of
from populus.tools.output import Terminal, say_written
from populus.tools.progress import working

LEVELS = ("onnx", "popart")
LEFT_OUT = ("popart-outline", "popart-inplace")  # ONNX has neither the functions of the first nor the marks of the second


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus export`."""
    add = parser.add_argument
    add_model(parser, "a .onnx model, a .mlir module at the level onnx or popart, or a net by name")
    add("-o", "--output", required=True, metavar="FILE.onnx", help="write the model here")
    add("--level", default="popart", choices=LEVELS, help="the level to export: popart, after its rewrites (default), or onnx")
    add("--pipeline", default="inference", metavar="NAME|FILE", help="the passes: inference (default), inference-plain, or a file")
    add("--dim", action="append", default=[], metavar="NAME=N", help="size of a symbolic dimension")
    add("--value", action="append", default=[], metavar="NAME=V", help="make an input a constant, such as one that decides a branch")
    add("--load", action="append", default=[], metavar="FILE.py", help="load ops and passes from a Python file")


def execute(args: argparse.Namespace) -> int:
    """Runs the command."""
    from populus.lowering.onnx.exporter import export_onnx
    from populus.lowering.popart.exporter import export_popart

    [place] = check_places([args.output])
    if place.is_file and not args.output.endswith(".onnx"):
        raise PopulusError(f"{args.output}: not the name of an .onnx file")
    pipeline = Pipeline.read(args.pipeline)
    pipeline = Pipeline(tuple(p for p in pipeline.passes if p.name not in LEFT_OUT))
    with working(f"exporting {args.model}"), in_file(args.model):
        dims, values = dims_of(args.dim), values_of(args.value)
        program = compile(args.model, level=args.level, pipeline=pipeline, dims=dims, values=values, load=args.load)
        found = (export_onnx if args.level == "onnx" else export_popart)(program.module(args.level))
    with replacing(args.output) as partial:
        partial.write_bytes(found.SerializeToString(deterministic=True))
    say_written(Terminal(highlight=False), args.output)
    return 0
