"""Every notebook runs from its first cell to its last, in an empty folder, and prints what the site shows."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from populus import aliases

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def runner():
    spec = spec_from_file_location("site_notebooks", ROOT / "docs" / "site" / "notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def names(monkeypatch):
    """Takes away the names that a notebook gets by `populus.compat`, which other tests must not find."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    yield
    aliases.uninstall()
    sys.modules.pop("populus.compat", None)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs_and_prints(path, runner, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = list(runner.executed(path))
    assert sum(cell.kind == "code" for cell in cells) > 2
    assert any(cell.printed for cell in cells)
    assert f"```python\n{next(c.source for c in cells if c.kind == 'code')}" in runner.markdown(iter(cells))
