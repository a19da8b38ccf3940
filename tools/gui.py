"""`populus-gui [FILE] [-p PIPELINE]`: xDSL's text interface, in which passes are chosen one by one, with our dialects and passes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.driver.files import read_bytes, text_of
from populus.tools.command import ArgumentParser, dims_of, reporting
from populus.tools.populus_opt import PopulusOpt
from populus.write.nets import model_path


def app_of(args: Sequence[str]) -> Any:
    """Makes the application: a file's module, and the passes of the pipeline. Raises PopulusError, also without textual."""
    parser = ArgumentParser(prog="populus-gui", description=__doc__)
    add = parser.add_argument
    add("input_file", nargs="?", metavar="FILE", help="a .mlir or .onnx file, or a net by name; an example without one")
    add("-p", "--passes", metavar="PIPELINE", help="passes to begin with: ours and xDSL's")
    add("--dim", action="append", default=[], metavar="NAME=N", help="size of a symbolic dimension of an ONNX model")
    add("--debug", action="store_true", help="show a traceback when something fails")
    given = parser.parse_args(args)
    try:
        interface = import_module("xdsl.interactive.app")
    except ImportError as error:
        raise PopulusError(f"populus-gui needs xDSL's text interface: pip install 'xdsl[gui]' ({error})") from error
    tool = PopulusOpt(["-p", given.passes] if given.passes else [])
    dialects = tuple((name, tool.ctx._registered_dialects[name]) for name in sorted(tool.ctx.registered_dialect_names))  # pyright: ignore[reportPrivateUsage]
    passes = tuple((name, load()) for name, load in sorted(tool.available_passes.items()))
    path = None if given.input_file is None else model_path(given.input_file)
    return interface.InputApp(dialects, passes, path, None if path is None else _text(path, given.dim), tool.passes.passes)


def _text(path: str, dims: Sequence[str]) -> str:
    """Gives the text of a module, or of a model as it is imported. Raises PopulusError."""
    if not path.endswith(".onnx"):
        return read_bytes(path).decode(errors="replace")
    from populus.lowering.onnx.importer import import_onnx

    return text_of(import_onnx(path, dims=dims_of(dims)), locations=False)


def _run(args: Sequence[str]) -> int:
    app_of(args).run()
    return 0


def main(argv: list[str] | None = None) -> int:
    """Runs the command; gives 0 on success, and 1 with one line on stderr on failure."""
    return reporting("populus-gui", sys.argv[1:] if argv is None else argv, _run)


if __name__ == "__main__":
    sys.exit(main())
