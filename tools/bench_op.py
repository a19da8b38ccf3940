"""print the cycles of each op in a file, and compare them with a stored baseline"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.output_files import replacing
from populus.lowering.driver.extensions import Extension, read
from populus.lowering.driver.files import decode, read_bytes
from populus.program.compile import compile
from populus.tools.command import whole
from populus.tools.op_model import OpModel

SLOWER = 0.05  # the largest relative increase of cycles that passes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus bench-op`."""
    add = parser.add_argument
    add("file", metavar="FILE.py", help="a Python file that defines ops")
    add("--target", default="gc200", metavar="T", help="the machine (gc200)")
    add("--tiles", type=whole(1), default=16, metavar="N", help="number of tiles to use (16)")
    add("--baseline", metavar="F.json", help="stored cycles; exit 1 if an op takes 5%% more")
    add("--write", action="store_true", help="write the cycles to the baseline")


def execute(args: argparse.Namespace) -> int:
    """Runs the command."""
    found = cycles(read(args.file), args.file, args.target, args.tiles)
    if not found:
        raise PopulusError(f"{args.file}: defines no op to measure")
    before = _read(args.baseline) if args.baseline is not None and not args.write else {}
    width = max(map(len, found))
    slower: list[str] = []
    for name, count in found.items():
        was = before.get(name)
        print(f"{name:{width}} {count:12.0f} cycles" + (f"  {count / was - 1:+.1%}" if was else ""))
        if was and count > was * (1 + SLOWER):
            slower.append(f"{name}: {count:.0f} cycles, {was:.0f} before")
    if args.write:
        if args.baseline is None:
            raise PopulusError("--write writes to the file of --baseline; give one")
        with replacing(args.baseline) as path:
            path.write_text(json.dumps(found, indent=1) + "\n")
    if slower:
        raise PopulusError(f"{args.baseline}: {len(slower)} ops are slower by more than {SLOWER:.0%}: {'; '.join(slower)}")
    return 0


def cycles(extension: Extension, file: str, target: str, tiles: int) -> dict[str, float]:
    """Measures each op on its examples, by the machine's cost model: cycles by the op's name."""
    found: dict[str, float] = {}
    for definition in (d for d in extension.definitions() if d.has_lowering):
        model = OpModel(definition)
        programs = [compile(model.module(example), target=target, tiles=tiles, load=[file]) for example in model.examples]
        found[definition.op.name] = sum(float(p.profile().summary["cycles"]) for p in programs)
    return found


def _read(path: str) -> dict[str, float]:
    try:
        found = json.loads(decode(read_bytes(Path(path)), path))
        return {str(name): float(count) for name, count in found.items()}
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError) as error:
        raise PopulusError(f"{path}: no cycles of ops: {error}; --write makes such a file") from error
