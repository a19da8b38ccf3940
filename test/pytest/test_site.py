"""The site's menu, version and search, by its configuration and the pages that are staged; `make docs` builds it and tries ten searches."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFIGURATION = (ROOT / "docs/site/mkdocs.yml").read_text()


@pytest.fixture
def stage(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "docs/site"))
    for name in ("stage", "notebooks", "reference"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return import_module("stage").Stage(tmp_path)


def test_every_page_of_docs_is_in_the_menu_once():
    menu = re.findall(r"^ +- .*: (\S+\.md)$", CONFIGURATION, re.MULTILINE)
    pages = {p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").glob("*.md")}
    assert not pages - set(menu) - {"docs/README.md"}
    assert len(menu) == len(set(menu))
    assert all((ROOT / page).exists() or page.startswith("reference/") for page in menu)


def test_the_first_how_to_is_from_pytorch_and_titles_are_words_that_are_searched():
    assert re.search(r"- How to:\n      - From PyTorch: docs/pytorch.md\n", CONFIGURATION)
    for title in ("Glossary", "Performance", "Add an op", "Programs of PopART", "Build a library for C"):
        assert f"- {title}:" in CONFIGURATION
    assert "navigation.footer" in CONFIGURATION, "previous and next"


def test_the_header_has_the_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert CONFIGURATION.startswith(f"site_name: Populus {version} ")


def test_sources_are_not_searched_and_pages_of_use_count_more(stage, tmp_path):
    stage.document(ROOT / "docs/add-a-pass.md")
    stage.document(ROOT / "docs/seeds.md")
    stage.sources()
    sources = [p for p in tmp_path.rglob("*.md") if p.name not in ("add-a-pass.md", "seeds.md")]
    assert len(sources) > 3
    for page in sources:
        assert page.read_text().startswith("---\nsearch:\n  exclude: true\n---\n"), page
    staged = ((tmp_path / "docs" / f"{name}.md").read_text() for name in ("add-a-pass", "seeds"))
    weights = [float(weight) for text in staged for weight in re.findall(r"^  boost: (\S+)$", text, re.MULTILINE)[:1]]
    assert weights[0] > 1 > weights[1]


def test_copied_blocks_have_no_prompts_and_no_outputs():
    style = (ROOT / "docs/site/site.css").read_text()
    assert re.search(r"\[data-md-copying\] \.gp,\n\[data-md-copying\] \.go \{\n  display: none;", style)
    assert "extra_css: [site.css]" in CONFIGURATION
    for page in (ROOT / "docs").glob("*.md"):
        blocks = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        assert not [text for kind, text in blocks if re.search(r"^\$ ", text, re.MULTILINE) and kind != "console"], page


def test_a_bar_in_the_code_of_a_table_is_shown_without_its_backslash(stage, tmp_path):
    stage.document(ROOT / "docs/populus-opt.md")
    staged = (tmp_path / "docs/populus-opt.md").read_text()
    assert "`--pipeline NAME|FILE`" in staged
    assert "\\|" not in re.sub(r"```.*?```", "", staged, flags=re.DOTALL)
