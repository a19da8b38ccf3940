"""build a model as a shared library with a C interface."""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

from populus.dialects.support.diagnostics import PopulusError
from populus.program.buckets import BUCKETS
from populus.program.building import build
from populus.tools.command import UsageError, buckets_of
from populus.tools.output import Terminal
from populus.tools.progress import working
from populus.tools.run import add_compile_arguments, check_engine, program_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus build`."""
    add_compile_arguments(parser)
    add = parser.add_argument
    add("-o", "--output", required=True, metavar="DIR", help="folder for the library, its header, its weights and an example")
    add("--name", help="the library is libNAME.so (the model's file name)")
    cpus = "native (this CPU, default), x86-64-v2, x86-64-v3, x86-64-v4, alderlake, cascadelake, aarch64, riscv64, or wasm32 for the web"
    add("--cpu", default="native", metavar="CPU", help=cpus)
    add("--relaxed", action="store_true", help="for wasm32: also a module of relaxed vectors, with the bits of the native engine")
    add("--parts", action="store_true", help="objects of the kernels, C and a Makefile instead of the library: no compiler is needed here")
    add("--single-file", action="store_true", help="for wasm32: one page that holds all, and opens from a file")
    add("--embed", action="store_true", help="put the weights inside the library")
    add("--state", action="append", default=[], metavar="INPUT=OUTPUT", help="keep an input from run to run, replaced by an output")
    add("--buckets", metavar="N,N,..", help="for wasm32: the greatest sizes of the ranges that open dimensions are built for")
    add("--cc", metavar="COMMAND", help="the C compiler (CC, or cc, gcc, clang, ziglang)")


def execute(args: argparse.Namespace) -> int:
    """Runs the command."""
    start = perf_counter()
    check_engine(args)
    args.engine = "native" if args.engine == "auto" else args.engine
    if args.engine != "native":
        raise PopulusError(f"--engine {args.engine}: a library has native code")
    states = dict(_pair(text) for text in args.state)
    program = program_of(args, "poplar", BUCKETS if args.buckets is None else buckets_of(args.buckets))
    name = args.name or "".join(c if c.isalnum() and c.isascii() else "_" for c in Path(args.model).stem)
    with working(f"building {args.output}"):
        made = build(
            program, args.output, name=name, cpu=args.cpu, embed=args.embed, states=states, compiler=args.cc, relaxed=args.relaxed,
            single_file=args.single_file, parts=args.parts,
        )  # fmt: skip
    files = [made.library, *([] if made.weights is None else [made.weights])]
    sizes = ", ".join(f"{path} ({_size(path.stat().st_size)})" for path in files)
    Terminal(highlight=False, soft_wrap=True).print(f"{sizes}, in {perf_counter() - start:.2f} s", markup=False)
    return 0


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def _pair(text: str) -> tuple[str, str]:
    name, equals, output = text.partition("=")
    if not equals or not name or not output:
        raise UsageError(f"--state {text}: expected INPUT=OUTPUT, such as --state past=present")
    return name, output
