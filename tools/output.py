"""Results of commands as data: `--json FILE`, and the lines that say where files were written."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from populus.dialects.support.errors import printable
from populus.dialects.support.output_files import check_places, replacing

if TYPE_CHECKING:
    from numpy.typing import NDArray

Json: TypeAlias = "Mapping[str, Json] | Sequence[Json] | str | int | float | bool | None"


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds `--json`."""
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON to this file, or to standard output for -")


class Terminal(Console):
    """A console that shows every character of a text, and obeys none of them."""

    def render_str(self, text: str, **options: Any) -> Text:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().render_str(printable(text), **options)


def shown(name: str) -> str:
    """Gives a name from a file as markup of one line."""
    return escape(printable(name).replace("\n", "\\n"))


def console(args: argparse.Namespace, *, soft_wrap: bool = True) -> Terminal:
    """Makes the console of a command: standard error if a file goes to standard output.

    Raises PopulusError for a file of its options that cannot be written: what is in them may take long.
    """
    files = {name: getattr(args, name, None) for name in ("json", "html", "profile", "outputs", "plan_to")}
    check_places([path for name, path in files.items() if path != "-" or name not in ("json", "html")])
    return Terminal(highlight=False, soft_wrap=soft_wrap, stderr="-" in (files["json"], files["html"]))


def write_json(args: argparse.Namespace, data: Json) -> None:
    """Writes the result where `--json` says. NaN and infinities, which JSON lacks, become null. Raises PopulusError."""
    if args.json is None:
        return
    text = json.dumps(_finite(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if args.json == "-":
        to_standard_output(text)
        return
    with replacing(args.json) as partial:
        partial.write_text(text, encoding="utf-8")


def to_standard_output(text: str) -> None:
    """Prints JSON, or a page that has it, in which characters that a terminal would obey, or the stream does not have, are numbers."""
    stream = sys.stdout.encoding or "ascii"

    @cache
    def fits(c: str) -> bool:
        return c == "\n" or (c.isprintable() and bool(c.encode(stream, "ignore")))

    sys.stdout.write("".join(c if fits(c) else json.dumps(c)[1:-1].replace("\x7f", "\\u007f") for c in text))


def say_written(to: Console, *paths: str | None) -> None:
    """Prints the paths of files that were written; None and - are none."""
    for path in paths:
        if path is not None and path != "-":
            to.print(f"wrote {path}", style="dim", markup=False, soft_wrap=True)


def described(name: str, array: NDArray[Any]) -> dict[str, Json]:
    """Describes an array: its type and the range of its values."""
    import numpy as np

    found: dict[str, Json] = {"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
    if array.size and array.dtype.kind in "fiubV":
        values = array.astype(np.float64)
        found |= {"min": float(values.min()), "mean": float(values.mean()), "max": float(values.max())}
    return found


def _finite(data: Json) -> Json:
    match data:
        case float() if not math.isfinite(data):
            return None
        case str() | int() | float() | None:
            return data
        case Mapping():
            return {str(key): _finite(value) for key, value in data.items()}
        case _:
            return [_finite(value) for value in data]
