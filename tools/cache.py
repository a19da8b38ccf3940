"""`populus cache`: where compiled kernels and kept programs lie, how much they take, and their removal."""

from __future__ import annotations

import argparse

from populus.dialects.support.disk_cache import VARIABLE, DiskCache, default_place
from populus.dialects.support.errors import printable
from populus.program import ready
from populus.runtime.engine.native.codegen import object_cache

KINDS = {"kernels": ("populus-native", object_cache.LIMIT), "programs": ("populus-programs", ready.LIMIT)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus cache`."""
    parser.add_argument("action", nargs="?", choices=("show", "clear"), default="show", help="show (default), or clear: remove the files")


def execute(args: argparse.Namespace) -> int:
    """Runs the command."""
    for kind, (folder, limit) in KINDS.items():
        place = default_place(folder)
        if place is None:
            print(f"{kind:9} none, as {VARIABLE} is empty")
            continue
        disk = DiskCache(place, b"", limit)
        if args.action == "clear":
            disk.clear()
        files = disk.sizes()
        print(printable(f"{kind:9} {place}: {len(files)} files, {sum(files.values()) / 2**20:.1f} of at most {limit >> 20} MiB"))
    return 0
