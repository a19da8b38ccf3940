"""populus-gui: xDSL's text interface with our dialects and passes; skipped without textual, as its own line says."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec

import pytest

from populus.lowering.driver.passes import PASSES
from populus.tools import gui

MODULE = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %y = popart.neg %x : tensor<4xf32>\n  return %y : tensor<4xf32>\n}\n"
THERE = find_spec("textual") is not None and find_spec("pyclip") is not None


@pytest.fixture
def module(tmp_path):
    (tmp_path / "x.mlir").write_text(MODULE)
    return tmp_path / "x.mlir"


@pytest.mark.skipif(THERE, reason="xDSL's text interface is installed")
def test_without_the_interface_a_line_says_what_to_install(module, capsys):
    assert gui.main([str(module)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "populus-gui needs xDSL's text interface: pip install 'xdsl[gui]'" in error


@pytest.mark.skipif(not THERE, reason="xDSL's text interface, of the extra gui, is not installed")
def test_the_interface_has_our_passes_and_applies_them(module):
    app = gui.app_of([str(module), "-p", "popart-to-popops"])
    assert set(PASSES) <= {name for name, _ in app.all_passes}

    async def opened() -> str:
        async with app.run_test() as pilot:
            await pilot.pause()
            return app.output_text_area.text

    assert "popops.map <neg(_1)>" in asyncio.run(opened())
    app = gui.app_of(["squeezenet"])

    async def imported() -> str:
        async with app.run_test() as pilot:
            await pilot.pause()
            return app.input_text_area.text

    assert "onnx.Conv" in asyncio.run(imported())


def test_mistakes_are_one_line(capsys):
    for args, status in ((["-q"], 2), (["--dim"], 2)):
        assert gui.main(args) == status
        assert capsys.readouterr().err.count("\n") == 1
