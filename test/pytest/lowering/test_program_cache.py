"""Programs that are kept: another program is never taken for that of a model, whatever of its op's code was edited."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import populus
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.driver import extensions
from populus.lowering.driver.program_cache import ProgramCache

OP = '''
from typing import ClassVar

from xdsl.irdl import irdl_op_definition

from populus.dialects.expr import Expr
from populus.dialects.popart.base import UnaryOp
from populus.dialects.support.constraints import number
{imports}

@irdl_op_definition
class ScaledOp(UnaryOp):
    """`y = slope x`."""

    name = "acme.scaled"
    {members}

    def forward(self, x: Expr) -> Expr:
        {first}
        return slope * x
'''
# How the op's file comes by its slope, from `helper_of_op.py` or the module that this one imports.
IMPORTS = {
    "at the top": ("from helper_of_op import SLOPE as slope", "pass"),
    "where it is needed": ("", "from helper_of_op import SLOPE as slope"),
    "by a module of a package": ("import package_of_op.inner", "slope = package_of_op.inner.slope()"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that Python imports from, with an op's file in another."""
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)
    (tmp_path / "package_of_op").mkdir()
    (tmp_path / "package_of_op" / "__init__.py").write_text("")
    (tmp_path / "package_of_op" / "inner.py").write_text("from . import deeper\n\ndef slope():\n    return deeper.SLOPE\n")
    (tmp_path / "package_of_op" / "deeper.py").write_text("from helper_of_op import SLOPE\n")
    yield tmp_path
    for name in set(sys.modules) - known:
        if name.partition(".")[0] in ("helper_of_op", "package_of_op"):
            del sys.modules[name]


def written(folder: Path, imports: str = "", first: str = "slope = self.slope", members: str = "slope = number(2.0)") -> Path:
    path = folder / "op.py"
    path.write_text(OP.format(imports=imports, first=first, members=members))
    return path


def model(path: Path, **attributes: float):
    op = extensions.read(path).ops[0]
    with populus.Builder() as b:
        b.output("y", b.op(op, b.input("x", (2,)), **attributes)[0])
    return b.module()


def run(path: Path, folder: Path, **attributes: float) -> tuple[list[float], bool]:
    """The result, and whether a new program was kept."""
    cache = ProgramCache(folder / "programs")
    before = len(list(cache.folder.glob("*.program"))) if cache.folder.is_dir() else 0
    program = populus.compile(model(path, **attributes), load=[path], cache=cache.folder)
    return program.run({"x": np.ones(2, np.float32)})["y"].tolist(), len(list(cache.folder.glob("*.program"))) > before


@pytest.mark.parametrize("how", IMPORTS)
def test_an_edit_of_a_module_that_an_ops_file_imports_counts(how, folder):
    helper = folder / "helper_of_op.py"
    helper.write_text("SLOPE = 2.0\n")
    path = written(folder, *IMPORTS[how], members="pass")
    assert run(path, folder) == ([2, 2], True)
    assert run(path, folder) == ([2, 2], False)
    helper.write_text("SLOPE = 3.0\n")  # as long as before, and within the same second
    assert run(path, folder) == ([3, 3], True)
    helper.write_text("SLOPE = 2.0\n")
    assert run(path, folder) == ([2, 2], False)


def test_an_edit_counts_for_another_process(folder):
    (folder / "model.py").write_text(
        "import sys, numpy as np, populus\nfrom populus.lowering.driver import extensions\n"
        "with populus.Builder() as b:\n"
        "    b.output('y', b.op(extensions.read('op.py').ops[0], b.input('x', (2,)))[0])\n"
        "program = populus.compile(b.module(), load=['op.py'], cache='programs')\n"
        "print(program.run({'x': np.ones(2, np.float32)})['y'].tolist())\n"
    )
    written(folder, *IMPORTS["at the top"], members="pass")
    for slope in ("2.0", "3.0"):
        (folder / "helper_of_op.py").write_text(f"SLOPE = {slope}\n")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
        got = subprocess.run([sys.executable, "model.py"], cwd=folder, env=environment, capture_output=True, text=True, check=True)
        assert got.stdout == f"[{slope}, {slope}]\n"


def test_an_attribute_that_is_not_hashed_counts_for_the_program(folder):
    path = written(folder, members='slope = number(2.0)\n    NOT_HASHED: ClassVar = ("slope",)')
    assert populus.content_hash(model(path, slope=4.0)) == populus.content_hash(model(path))
    assert run(path, folder) == ([2, 2], True)
    assert run(path, folder, slope=4.0) == ([4, 4], True)


def test_a_file_that_stays_as_it_is_is_run_once(folder):
    (folder / "helper_of_op.py").write_text("SLOPE = 2.0\n")
    path = written(folder, *IMPORTS["where it is needed"], members="pass")
    first = extensions.read(path).ops[0]
    assert run(path, folder) == ([2, 2], True)  # imports the helper
    assert extensions.read(path).ops[0] is first


def test_a_file_by_a_relative_path_that_was_edited_is_run_again(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "helper_of_op.py").write_text("SLOPE = 2.0\n")
    first = extensions.read(written(folder, *IMPORTS["at the top"], members="pass").name).ops[0]
    (folder / "helper_of_op.py").write_text("SLOPE = 3.0\n")
    second = extensions.read("op.py").ops[0]
    assert second is not first
    written(folder, *IMPORTS["at the top"], members="pass  #")
    assert extensions.read("op.py").ops[0] is not second


def test_an_edit_that_fails_is_an_error_of_the_ops_file(folder):
    helper = folder / "helper_of_op.py"
    helper.write_text("SLOPE = 2.0\n")
    path = written(folder, *IMPORTS["at the top"], members="pass")
    assert run(path, folder) == ([2, 2], True)
    helper.write_text("SLOPE = \n")
    for _ in range(2):
        with pytest.raises(PopulusError, match="op.py:.*: SyntaxError: invalid syntax"):
            extensions.read(path)
    helper.write_text("SLOPE = 2.0\n")
    assert run(path, folder) == ([2, 2], False)
