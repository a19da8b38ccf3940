"""shrink a model or a text that fails to the smallest that still does, as a file with the seed in its name."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from populus.compare.levels import compare_levels
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.errors import printable
from populus.dialects.support.output_files import check_places, replacing
from populus.lowering.driver.files import decode, read_bytes
from populus.program.compile import compile
from populus.program.program import Program
from populus.runtime.differences import RTOL
from populus.tools.arrays import ATOL, compare
from populus.tools.command import line_of, whole
from populus.tools.reducing import of_model, of_text, smallest

if TYPE_CHECKING:
    from numpy.typing import NDArray

ORACLES = ("onnxruntime", "onnx", "strict", "popart", "popops", "poplar")
SECONDS = 60  # the longest that one candidate may take


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus reduce`."""
    add = parser.add_argument
    add("model", metavar="FILE", help="a .onnx model, or a .mlir module of any level")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--while", dest="command", metavar="COMMAND", help="keep what this command succeeds on; {} in it is the file")
    how.add_argument("--against", choices=ORACLES, help="keep what fails or differs likewise: from it, or there from the level above")
    add("--seed", type=whole(0), default=0, metavar="N", help="which random inputs (0)")
    add("--tiles", type=whole(1), default=4, metavar="N", help="number of tiles (4)")
    add("--engine", default="numpy", help="the engine that is compared (numpy)")
    add("-o", "--output", metavar="FILE", help="the smallest case (STEM-seed-N.onnx or .mlir beside FILE)")


def execute(args: argparse.Namespace) -> int:
    """Runs the command. Raises PopulusError if the file does not fail."""
    path = Path(args.model)
    content = read_bytes(path)
    is_model = path.suffix == ".onnx"
    case: Any = _model(content, args.model) if is_model else decode(content, args.model)
    tried = [0]
    if args.command is None:
        _import_all(args)

    def bytes_of(candidate: Any) -> bytes:
        return candidate.SerializeToString() if is_model else candidate.encode()

    first = outcome(content, path.suffix, args)
    if first in ("agrees", "refused"):
        raise PopulusError(f"{path}: nothing to reduce: {_question(args)} says that it {first}")

    def fails(candidate: Any) -> bool:
        tried[0] += 1
        return outcome(bytes_of(candidate), path.suffix, args) == first

    target: str | Path = args.output if args.output is not None else path.with_name(f"{path.stem}-seed-{args.seed}{path.suffix}")
    check_places([target])
    made = smallest(case, of_model if is_model else of_text, fails)  # pyright: ignore[reportArgumentType]
    found = bytes_of(made)
    with replacing(target) as partial:
        partial.write_bytes(found if is_model else f"// RUN: {_run_line(args)}\n{found.decode()}\n".encode())
    counts = [len(c.graph.node) if is_model else c.count("\n") + 1 for c in (made, case)]
    size = f"{counts[0]} of {counts[1]} {'nodes' if is_model else 'lines'}"
    print(printable(f"{target}: {size}, which still {first}; {tried[0]} candidates were tried"))
    return 0


def _model(content: bytes, name: str) -> Any:
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    try:
        return ModelProto.FromString(content)
    except DecodeError:
        raise PopulusError(f"{name}: this is not an ONNX model") from None


def _import_all(args: argparse.Namespace) -> None:
    """Imports what candidates need before they are forked, by a model of one node."""
    from onnx import helper

    info = [helper.make_tensor_value_info(name, 1, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", info[:1], info[1:])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "neg.onnx"
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path.write_bytes(made.SerializeToString())
        _judged(path, args)


def _question(args: argparse.Namespace) -> str:
    return f"'{args.command}'" if args.command is not None else f"--against {args.against}"


def _run_line(args: argparse.Namespace) -> str:
    """Gives the command of a lit test: it fails as long as the mistake is there."""
    if args.command is not None:
        return f"not {args.command if '{}' in args.command else args.command + ' {}'}".replace("{}", "%s")
    other = "--engine strict" if args.against == "strict" else "--check-levels"
    return f"populus run %s --tiles {args.tiles} --seed {args.seed} {other}"


def outcome(content: bytes, suffix: str, args: argparse.Namespace) -> str:
    """Tells how a case ends, in a child process: `agrees`, `refused`, `differs`, `fails ..`, or a signal."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"case{suffix}"
        path.write_bytes(content)
        if args.command is not None:
            words = [str(path) if w == "{}" else w.replace("{}", str(path)) for w in shlex.split(args.command)]
            words = words if "{}" in args.command else [*words, str(path)]
            try:
                ended = subprocess.run(words, capture_output=True, timeout=SECONDS, check=False).returncode
            except subprocess.TimeoutExpired:
                return "agrees"
            except OSError as error:
                raise PopulusError(f"'{args.command}': {error.strerror}") from error
            return "agrees" if ended else "succeeds"
        return _in_child(lambda: _judged(path, args)) if hasattr(os, "fork") else _judged(path, args)


def _in_child(judge: Callable[[], str]) -> str:
    """Calls a judge in a child process: a crash of it is an outcome."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.close(read)
        signal.alarm(SECONDS)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # warnings of candidates
        os.write(write, judge().encode()[:1000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return f"ends by {signal.Signals(os.WTERMSIG(status)).name}" if os.WIFSIGNALED(status) else said


def _judged(path: Path, args: argparse.Namespace) -> str:
    try:
        program = compile(path, tiles=args.tiles, engine=args.engine)
        inputs = program.signature.random(args.seed)
        if args.against in ("popart", "popops", "poplar"):
            return "differs" if any(c.first is not None for c in compare_levels(program, inputs) if c.level == args.against) else "agrees"
        found = program.run(inputs)
        expected = _expected(path, program, inputs, args)
        return "differs" if any(a.problem for a in compare(found, expected, RTOL, ATOL)) else "agrees"
    except Exception as error:
        if "internal error" not in (line := line_of("populus", error)):
            return "refused" if "differ" not in line else "differs"
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        return f"fails with {type(error).__name__} in {frame.tb_frame.f_code.co_name if frame is not None else '?'}"


def _expected(path: Path, program: Program, inputs: Mapping[str, NDArray[Any]], args: argparse.Namespace) -> dict[str, NDArray[Any]]:
    """Computes the outputs by the oracle, which is one for comparison only."""
    if args.against == "strict":
        return compile(path, tiles=args.tiles, engine="strict").run(inputs)
    import onnx

    model = onnx.load_model(path)  # pyright: ignore[reportUnknownMemberType]
    names = [o.name for o in model.graph.output]
    if args.against == "onnx":
        from populus.runtime.onnx_reference import run_reference

        values = run_reference(model, inputs)
        return {name: values[name] for name in names}
    try:
        onnxruntime: Any = import_module("onnxruntime")
    except ImportError:
        raise PopulusError("--against onnxruntime needs onnxruntime; pip install onnxruntime") from None
    options: Any = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session: Any = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(None, dict(inputs))))
