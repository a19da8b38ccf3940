"""list what a model needs, op by op, and whether it is there; exit 1 if something is missing."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

from populus.lowering.inventory import inventory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `populus check`."""
    parser.add_argument("model", metavar="MODEL", help="a .onnx model")


def execute(args: argparse.Namespace) -> int:
    """Runs the command."""
    rows = inventory(args.model)
    Console(highlight=False).print(rows)
    return 1
