"""write a file with an op of your own, and its test: `populus new-op SmoothStep` makes smooth_step.py and test_smooth_step.py.

`populus new-op --from OP.cpp` drafts a file for each op that a file of C++ registers with PopART.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.errors import printable
from populus.dialects.support.output_files import replacing_all
from populus.tools.command import UsageError
from populus.write.drafts import draft, stem_of
from populus.write.registrations import registered

OP = '''"""{title}: an operator of your own. Try it with `populus check-op {stem}.py`, use it with `populus run MODEL --load {stem}.py`."""

from typing import ClassVar

from xdsl.dialects.builtin import f16, f32, f64
from xdsl.irdl import irdl_op_definition, operand_def, result_def

from populus.write.builder import function_of
from populus.dialects.support.constraints import number, tensors
from populus.dialects.expr import Expr
from populus.dialects.popart.base import UnaryOp


@irdl_op_definition
class {title}Op(UnaryOp):
    """`y = scale x`. Source: {domain} {title}-1."""

    name = "{dialect}.{stem}"
    ONNX: ClassVar = ("{domain}", "{title}", 1)
    T: ClassVar = tensors("T", f16, f32, f64)
    x = operand_def(T)
    y = result_def(T)
    scale: float = number(1.0, low=-8, high=8)

    def forward(self, x: Expr) -> Expr:
        return self.scale * x


{stem} = function_of({title}Op)
'''

TEST = '''"""{title} keeps the contract of an op, and computes its formula."""

from pathlib import Path

import numpy as np

import populus
from populus.tools.main import main

FILE = Path(__file__).with_name("{stem}.py")


def test_the_contract_holds() -> None:
    assert main(["check-op", str(FILE)]) == 0


def test_the_values_are_those_of_the_formula() -> None:
    {stem} = populus.load(FILE).module.{stem}
    with populus.Builder() as b:
        b.output("y", {stem}(b.input("x", (3,)), scale=2.0))
    outputs = populus.compile(b.module()).run({{"x": np.array([-1, 0, 2], np.float32)}})
    assert outputs["y"].tolist() == [-2, 0, 4]
'''


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus new-op`."""
    add = parser.add_argument
    add("name", metavar="NAME", nargs="?", help="its name, such as SmoothStep or smooth_step")
    add("--from", dest="source", metavar="OP.cpp", help="draft the ops that a file of C++ registers, or the one of this name")
    add("--domain", default="com.example", metavar="D", help="its ONNX domain (com.example); the last part is its dialect")
    add("--folder", default=".", metavar="DIR", help="where to write the files (here)")


def execute(args: argparse.Namespace) -> int:
    """Runs the command."""
    folder = Path(args.folder)
    if not folder.is_dir():
        raise PopulusError(f"{folder}: no such folder")
    files = _drafts(Path(args.source), args.name, folder) if args.source is not None else _new(args.name, args.domain, folder)
    if taken := [path for path in files if path.exists()]:
        raise PopulusError(f"{taken[0]}: already exists; choose another name or folder")
    with replacing_all(list(files)) as partials:
        for partial, text in zip(partials, files.values()):
            partial.write_text(text)
    print(*(printable(str(file)) for file in files), sep="\n")
    return 0


def _new(name: str | None, domain: str, folder: Path) -> dict[Path, str]:
    """Gives the texts of an op and its test. Raises PopulusError for no name or domain of an op."""
    if name is None:
        raise UsageError("the following arguments are required: NAME, or --from OP.cpp (--help lists the options)")
    stem, dialect = stem_of(name), domain.rpartition(".")[2]
    if not re.fullmatch(r"([a-z][a-z0-9_]*\.)*[a-z][a-z0-9_]*", domain) or domain.startswith("ai.onnx"):
        raise PopulusError(f"'{domain}' is not a valid domain; expected one such as com.example")
    words = {"stem": stem, "title": "".join(part.capitalize() for part in stem.split("_")), "domain": domain, "dialect": dialect}
    return {folder / f"{stem}.py": OP.format(**words), folder / f"test_{stem}.py": TEST.format(**words)}


def _drafts(source: Path, name: str | None, folder: Path) -> dict[Path, str]:
    """Gives the texts of the ops that a file of C++ registers. Raises PopulusError if it registers none, or none of this name."""
    if not (found := registered(source)):
        raise PopulusError(f"{source}: registers no op for models; a file with a popart::OpCreator is expected")
    chosen = [op for op in found if name in (None, op.name)]
    if not chosen:
        raise PopulusError(f"{source}: registers no op '{name}'{did_you_mean(str(name), [op.name for op in found])}")
    return {folder / f"{stem_of(op.name)}.py": draft(op, source.name) for op in chosen}
