"""Documents lead where they say: links, anchors, tables of passes, examples, and the walk through the levels."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from populus.lowering.driver.passes import PASSES

ROOT = Path(__file__).parents[2]
OURS = ("docs", "dialects", "lowering", "runtime", "tools", "populus", "test", "examples", "benchmarks")
PAGES = sorted(
    p.relative_to(ROOT)
    for p in (*ROOT.glob("*.md"), *(p for folder in OURS for p in (ROOT / folder).rglob("*.md")))
    if not any(part in ("Output", "node_modules", "__pycache__") for part in p.parts)
)


def text_of(page: Path) -> str:
    return (ROOT / page).read_text()


def prose(text: str) -> str:
    """Gives the text without its blocks of code, in which nothing is a link or a heading."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """Gives the anchors of the headings, as GitHub makes them."""
    found: set[str] = set()
    for title in re.findall(r"^#+ +(.*?) *$", prose(text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        base = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        made, again = base, 0
        while made in found:
            again += 1
            made = f"{base}-{again}"
        found.add(made)
    return found


def links(text: str) -> list[str]:
    """Gives the targets of links that are not addresses; code in backquotes has none."""
    plain = re.sub(r"`[^`\n]*`", "", re.sub(r"\[`[^`\n]*`\]", "[code]", prose(text)))
    return [t for t in re.findall(r"\]\(([^)\s]+)\)", plain) if not re.match(r"[a-z]+:", t)]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_of_a_page_lead_to_files_and_headings_that_exist(page):
    text = text_of(page)
    for link in links(text):
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), f"{page}: {link} leads nowhere"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target.read_text()), f"{page}: {link}: no heading has this anchor"


@pytest.mark.parametrize("page", ["docs/pipelines.md"])
def test_a_table_of_passes_names_every_pass_once_and_in_the_order_of_the_way_down(page):
    (table,) = re.findall(r"^\| pass \|.*\n\|---.*\n((?:\|.*\n)+)", text_of(Path(page)), re.MULTILINE)
    assert re.findall(r"`([a-z-]+)`", "\n".join(row.split(" | ")[0] for row in table.splitlines())) == list(PASSES)


def test_the_index_of_docs_lists_every_page_and_every_room():
    there = {p.name for p in (ROOT / "docs").glob("*.md")} - {"README.md"}
    rooms = {f"../{p.parent.name}/README.md" for p in ROOT.glob("[a-z]*/README.md")} - {"../docs/README.md"}
    assert there | rooms <= set(links(text_of(Path("docs/README.md"))))


def test_the_first_page_leads_to_the_index_by_one_of_four_links():
    (row,) = (line for line in text_of(Path("README.md")).splitlines() if line.startswith("[Tutorial]"))
    assert (len(links(row)), links(row)[-1]) == (4, "docs/README.md")


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_a_block_of_commands_can_be_pasted_into_any_shell(page):
    """An interactive zsh takes no comments, and runs what stands in backquotes in them."""
    for block in re.findall(r"^```sh\n(.*?)^```", text_of(Path(page)), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            assert "`" not in line and not re.search(r"(^|\s)#", line), line


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_comment_stands_on_a_line_before_its_command(page):
    """Behind a command, zsh takes it for arguments."""
    for kind, block in re.findall(r"^```(sh|console|shell|bash)\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL):
        commands = [line for line in block.splitlines() if kind != "console" or line.startswith("$ ")]
        assert not [line for line in commands if re.search(r"\S\s+# ", line) or re.match(r"#.*`", line)]


MEASURED = {
    "coverage",
    "gradients",
    "machine-model",
    "mesh-measured",
    "performance-native",
    "performance-small-types",
    "performance-starting",
    "popart-api",
    "popxl-api",
    "proof-measured",
    "quality",
    "reliability",
    "seeds",
    "web-measured",
}
"""Pages of measurements and lists, which are read by their tables."""
LONGEST = 1500


def test_a_page_of_use_is_short():
    """Blocks of code do not count."""
    lengths = {p.stem: len(prose(text_of(p)).split()) for p in PAGES if p.parent.name == "docs" and p.stem not in MEASURED}
    assert not {stem: words for stem, words in lengths.items() if words > LONGEST}


def test_no_page_and_no_message_installs_what_no_index_has():
    files = [p for folder in OURS for kind in ("*.py", "*.md") for p in (ROOT / folder).rglob(kind) if p != Path(__file__)]
    assert not [p for p in [*files, ROOT / "README.md"] if re.search(r"populus-tiles\[", p.read_text())]


def test_the_page_of_the_op_interface_names_files_and_passes_that_exist():
    table = text_of(Path("docs/op-interface.md"))
    for row in re.findall(r"^\| `\w+` \|.*\| (.*) \|$", table, re.MULTILINE):
        for place in filter(None, row.split(", ")):
            there = place.strip("`") in PASSES or any((ROOT / top / place).is_file() for top in ("", "populus"))
            assert there, f"docs/op-interface.md: {place}"


def test_each_name_of_the_glossary_is_in_its_file():
    rows = re.findall(r"^\| .* \| \[`([\w.]+)`\]\(([^)]+)\) \|$", text_of(Path("docs/glossary.md")), re.MULTILINE)
    assert len(rows) > 50
    for name, path in rows:
        file = ROOT / "docs" / path
        words = r"\b" + re.escape(name) + r"\b"
        assert re.search(words, file.read_text()) or file.stem == name, f"docs/glossary.md: {path} has no {name}"


def test_the_table_of_passes_names_every_option_of_each_pass_and_no_other():
    (table,) = re.findall(r"^\| pass \|.*\n\|---.*\n((?:\|.*\n)+)", text_of(Path("docs/pipelines.md")), re.MULTILINE)
    for row in table.splitlines():
        _, passes, _, options, _ = re.split(r"(?<!\\)\|", row)
        stated = set(re.findall(r"`(\w+)=", options))
        for name in re.findall(r"`([a-z-]+)`", passes):
            taken = {f.name for f in fields(PASSES[name]())} - {"target", "tiles", "fidelity"}  # set by whoever compiles
            assert stated == taken, f"docs/pipelines.md: {name}"
