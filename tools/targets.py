"""list the machines, ours and those of files: kind, size, and what judges their predictions"""

from __future__ import annotations

import argparse

from populus.dialects.poplar.target import KIB, PRESETS, Target
from populus.lowering.driver import extensions

HEADER = ("name", "kind", "tiles", "memory", "DRAM", "clock", "judged by")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus targets`."""
    parser.add_argument("--load", action="append", default=[], metavar="FILE", help="a file with machines of your own; may be repeated")


def row(target: Target) -> tuple[str, ...]:
    """Formats a machine's line."""
    mesh = target.mesh
    tiles = f"{target.tiles:,}" if mesh is None else f"{mesh.grid[0]} x {mesh.grid[1]}"
    dram = f"{mesh.dram_size / 2**30:g} GiB" if mesh is not None and mesh.dram_size else "-"
    memory = f"{target.tile_bytes // KIB:,} KiB"
    return target.name, target.kind, tiles, memory, dram, f"{target.clock_hz / 1e9:g} GHz", target.judged or "nothing"


def execute(args: argparse.Namespace) -> int:
    """Runs the command."""
    with extensions.restored():
        for file in args.load:
            extensions.load(file)
        rows = [HEADER, *(row(target) for target in PRESETS.values())]
    widths = [max(map(len, column)) for column in zip(*rows)]
    for cells in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip())
    return 0
