"""Notebooks: the cells of a file, and what they print.

    python notebooks.py FILE.ipynb    # runs the cells in order, and prints the page
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Cell:
    """A cell: `kind` is `code` or `markdown`. `printed`: the text that a code cell prints, and its last value."""

    kind: str
    source: str
    printed: str = ""


def cells(path: Path) -> Iterator[Cell]:
    """Reads the cells of a notebook (nbformat 4)."""
    for cell in json.loads(path.read_text())["cells"]:
        yield Cell(cell["cell_type"], "".join(cell["source"]))


def executed(path: Path) -> Iterator[Cell]:
    """Runs the code cells of one of our notebooks in order, in one namespace, and gives all cells with what they print."""
    namespace: dict[str, Any] = {"__name__": path.stem}
    for cell in cells(path):
        yield Cell("code", cell.source, _printed(cell.source, namespace)) if cell.kind == "code" else cell


def _printed(source: str, namespace: dict[str, Any]) -> str:
    """Runs a cell. Its last expression is shown as in a notebook."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(tree, "<cell>", "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace)  # noqa: S307, of our own files
            if value is not None:
                print(repr(value))
    return out.getvalue()


def markdown(cells: Iterator[Cell]) -> str:
    """Writes cells as Markdown."""
    parts: list[str] = []
    for cell in cells:
        parts.append(f"```python\n{cell.source}\n```" if cell.kind == "code" else cell.source)
        if cell.printed:
            parts.append(f"```text\n{cell.printed.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(markdown(executed(Path(sys.argv[1]))), end="")
