"""The results of docs/gradients.md for each op, for other pages."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs/gradients.md"


def agreeing(page: Path = PAGE) -> dict[str, tuple[int, int]]:
    """Reads the page: for each differentiable op, the number of node tests whose gradients agree, and of all of them."""
    rows = re.findall(r"^\| (\w+) \| \d+ \| [^|]* \| (\d+) of (\d+) \|", page.read_text(), re.MULTILINE)
    return {op: (int(good), int(all)) for op, good, all in rows}


def column(op: str, page: Path = PAGE) -> str:
    """Formats the cell of an op in a table of ops: `5 of 5`, or empty if ONNX declares it not differentiable."""
    found = agreeing(page).get(op)
    return "" if found is None else f"{found[0]} of {found[1]}"
