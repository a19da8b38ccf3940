"""Generates docs/seeds.md: for each row of `rows.tsv` its tests, and the missing parts. `python test/helpers/seeds_page.py` writes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parents[1] / "seeds"
PAGE = HERE.parents[1] / "docs" / "seeds.md"
POPXL = PAGE.with_name("popxl-ops.md")

PARTS = {
    "P": ("PopART custom operators", "test_popart.py"),
    "C": ("ONNC's IR extension guide", "test_onnc.py"),
    "X": ("PopXL custom operations", "test_popxl.py"),
    "V": ("OpenVINO custom CPU operations", "test_openvino.py"),
    "F": ("Paddle's notes on operators", "test_paddle.py"),
}

HEAD = """# Five documents on operators, and our coverage

Five documents describe how operators are added to other compilers. Each mechanism in them is a row. Its tests are named after it
and are in `test/seeds`. `test/helpers/seeds_page.py` generates this page from the tests' names and `test/seeds/rows.tsv`.
"""

OPERATORS = """Each is one file with definition, gradient where it has one, and tile code if need be. `make check-ops` checks its contract,
and `test/pytest/test_example_ops.py` its values. The original is one file of its system, without its bindings, GPU code and tests.
Sizes are of whole files, as stored.
"""
OPS = PAGE.parents[1] / "examples" / "ops"


@dataclass(frozen=True)
class Row:
    """A mechanism: its tests, and a note on missing parts, or (`- ...`) why it does not apply."""

    id: str
    mechanism: str
    note: str
    tests: tuple[str, ...]

    @property
    def status(self) -> str:
        if self.tests:
            return "partly" if self.note else "holds"
        return "does not apply" if self.note.startswith("- ") else "open"


def rows() -> list[Row]:
    """Reads the table's rows in order."""
    tests = dict(_tests())
    found: list[Row] = []
    for line in (HERE / "rows.tsv").read_text().splitlines()[1:]:
        id, mechanism, note = line.split("\t")
        found.append(Row(id, mechanism, note, tuple(name for name, of in tests.items() if of == id)))
    return found


def _tests() -> Iterator[tuple[str, str]]:
    for _, file in PARTS.values():
        yield from re.findall(r"^def (test_([PCXVF]\d+)_\w+)", (HERE / file).read_text(), re.MULTILINE)


def page() -> str:
    """Renders docs/seeds.md."""
    every = rows()
    count = {s: sum(r.status == s for r in every) for s in ("holds", "partly", "does not apply", "open")}
    text = [HEAD, ", ".join(f"{s}: {n}" for s, n in count.items()) + f"; {len(every)} rows in all.\n"]
    for letter, (title, file) in PARTS.items():
        text += [f"## {title}\n", f"`test/seeds/{file}`\n", "| row | mechanism | status | tests, or why not |", "|---|---|---|---|"]
        for r in every:
            if r.id.startswith(letter):
                said = [*(f"`{t}`" for t in r.tests), *([r.note.removeprefix("- ")] if r.note else [])]
                text.append(f"| {r.id} | {r.mechanism} | {r.status} | {' '.join(said)} |")
        text.append("")
    return "\n".join([*text, *operators()])


def operators() -> list[str]:
    """Renders the table of operators of other systems in `examples/ops`: their sizes here and there, by `operators.tsv`."""
    text = [
        "## Operators of other systems",
        "",
        OPERATORS,
        "| file | lines | characters | the original | its characters |",
        "|---|---|---|---|---|",
    ]
    for line in (HERE / "operators.tsv").read_text().splitlines()[1:]:
        file, original, characters = line.split("\t")
        source = (OPS / file).read_text()
        text.append(
            f"| [`{file}`](../examples/ops/{file}) | {source.count(chr(10))} | {len(source):,} | {original} | {int(characters):,} |"
        )
    return [*text, ""]


@dataclass(frozen=True)
class PopxlOp:
    """An op of PopXL: our ops that compute it, or a `note` on the replacement, if any."""

    name: str
    ours: tuple[str, ...]
    note: str


def popxl_ops() -> list[PopxlOp]:
    """Reads `popxl_ops.tsv`. Source: the functions of `popxl.ops`."""
    lines = (HERE / "popxl_ops.tsv").read_text().splitlines()[1:]
    return [PopxlOp(name, tuple(ours.split()), note) for name, ours, note in (line.split("\t") for line in lines)]


def popxl_page() -> str:
    """Renders docs/popxl-ops.md."""
    rows = popxl_ops()
    one, several = (sum(test(len(r.ours)) for r in rows) for test in ((1).__eq__, (1).__lt__))
    text = [
        "# PopXL's ops and ours",
        "",
        "`test/helpers/seeds_page.py` writes this page from `test/seeds/popxl_ops.tsv`. `populus.popxl.ops` has",
        "PopXL's ops by its names, but for those that [popxl-compatibility.md](popxl-compatibility.md) names, and every other built-in op.",
        "",
        f"by one op: {one}, by several: {several}, by no op: {len(rows) - one - several}; {len(rows)} in all.",
        "",
        "| `popxl.ops` | ours | |",
        "|---|---|---|",
        *(f"| {r.name} | {' '.join(f'`{o}`' for o in r.ours)} | {r.note} |" for r in rows),
    ]
    return "\n".join([*text, ""])


if __name__ == "__main__":
    PAGE.write_text(page())
    POPXL.write_text(popxl_page())
