"""Documents lead where they say: links, anchors, tables of passes, examples, and the walk through the levels."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
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


def test_the_first_page_lists_every_page_of_docs():
    there = {f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")}
    assert there <= set(links(text_of(Path("README.md"))))


def test_the_page_of_the_op_interface_names_files_and_passes_that_exist():
    table = text_of(Path("docs/op-interface.md"))
    for row in re.findall(r"^\| `\w+` \|.*\| (.*) \|$", table, re.MULTILINE):
        for place in filter(None, row.split(", ")):
            assert place.strip("`") in PASSES or (ROOT / "populus" / place).is_file(), f"docs/op-interface.md: {place}"


LOCATION = re.compile(r' loc\((?:unknown|"[^"]*"|fused\[[^\]]*\])\)')


def shown(text: str) -> dict[str, str]:
    """Gives the blocks that a remark in front names, by that name."""
    return dict(re.findall(r"^<!-- ([\w-]+) -->\n```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


def assert_shows(block: str, printed: str) -> None:
    """Asserts that the block's lines are lines of `printed`, in this order; `...` stands for any text within a line."""
    lines = iter(printed.splitlines())
    for wanted in filter(None, map(str.strip, block.splitlines())):
        pattern = ".*".join(map(re.escape, wanted.split("...")))
        assert any(re.fullmatch(pattern, line.strip()) for line in lines), f"not printed, or not here: {wanted}\n\n{printed}"


def test_the_walk_through_the_levels_shows_what_is_printed(tmp_path, monkeypatch, populus, populus_opt):
    text = text_of(Path("docs/architecture.md"))
    monkeypatch.chdir(tmp_path)
    exec(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0], {})
    commands = [line.partition("#")[0].split() for line in re.findall(r"^populus.*$", text, re.MULTILINE)]
    assert [c[0] for c in commands] == ["populus-opt", "populus", "populus"]
    printed: list[str] = []
    for tool, *arguments in commands:
        outcome = (populus_opt if tool == "populus-opt" else populus)(*arguments)
        assert outcome.status == 0, outcome.err
        printed.append(outcome.out)
    blocks = shown(text)
    assert len(blocks) == 13
    assert_shows(blocks.pop("profile"), printed[1])
    assert_shows(blocks.pop("check-levels"), printed[2])
    for name, block in blocks.items():
        assert_shows(block, LOCATION.sub("", (tmp_path / "steps" / f"{name}.mlir").read_text()))


def test_the_ten_passes_print_what_the_course_shows(tmp_path, monkeypatch, capsys, populus, populus_opt):
    text = text_of(Path("docs/ten-passes.md"))
    monkeypatch.chdir(tmp_path)
    exec(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0], {})
    typed = [shlex.split(line) for line in re.findall(r"^(populus.*)$", text, re.MULTILINE)]
    assert len(typed) == 13
    for tool, *arguments in typed:
        outcome = (populus_opt if tool == "populus-opt" else populus)(*arguments)
        assert outcome.status == 0, outcome.err
    blocks = shown(text)
    assert list(blocks) == [str(n) for n in range(1, 11)]
    for name, block in blocks.items():
        assert_shows(block, LOCATION.sub("", (tmp_path / f"{name}.mlir").read_text()))


def commands(text: str) -> list[tuple[list[str], str]]:
    """Gives the commands of blocks `console`, each with the lines after it."""
    blocks = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    typed = [part.splitlines() for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [(shlex.split(command), "\n".join(lines)) for command, *lines in typed]


def test_the_tutorial_runs_as_it_is_written(tmp_path, monkeypatch, populus, populus_opt):
    text = text_of(Path("docs/tutorial.md"))
    subprocess.run([sys.executable, ROOT / "examples/digits/make.py", tmp_path], check=True, capture_output=True)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```(python|console)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 10
    for kind, block in blocks:
        if block.startswith("# "):
            Path(block.split()[1]).write_text(block)
        elif kind == "python":
            exec(block, {})
        else:
            for (tool, *arguments), lines in commands(f"```console\n{block}```"):
                outcome = populus(*arguments) if tool == "populus" else populus_opt(*arguments)
                assert outcome.status == 0, f"{arguments}: {outcome.out} {outcome.err}"
                assert_shows("\n".join(line for line in lines.splitlines() if line != "..."), outcome.out + "\n" + outcome.err)


def test_the_page_of_debugging_shows_what_its_commands_print(tmp_path, monkeypatch, capsys, populus, populus_opt):
    text = text_of(Path("docs/debugging.md"))
    model, wrong = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(re.findall(r"```python\n(.*?)```", text_of(Path("docs/architecture.md")), re.DOTALL)[0], {})
    exec(model, {})
    Path("wrong.py").write_text(wrong)
    Path("half.mlir").write_text(re.findall(r"^```mlir\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[-1])
    shown = commands(text)
    assert len(shown) > 15
    for (tool, *arguments), lines in shown:
        if tool == "python":
            exec(arguments[1], {})
            assert_shows(lines, capsys.readouterr().out)
            continue
        outcome = {"populus": populus, "populus-opt": populus_opt}[tool](*arguments)
        assert outcome.status == ("populus: " in lines), f"{arguments}: {outcome.err}"
        assert_shows(lines, outcome.out + "\n" + outcome.err)


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
            taken = {f.name for f in fields(PASSES[name]())} - {"target", "tiles"}  # set by whoever compiles
            assert stated == taken, f"docs/pipelines.md: {name}"
