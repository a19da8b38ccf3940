"""write a file with an op of your own, and its test: `populus new-op SmoothStep` makes smooth_step.py and test_smooth_step.py."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.output_files import replacing_all

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
    add("name", metavar="NAME", help="its name, such as SmoothStep or smooth_step")
    add("--domain", default="com.example", metavar="D", help="its ONNX domain (com.example); the last part is its dialect")
    add("--folder", default=".", metavar="DIR", help="where to write the files (here)")


def execute(args: argparse.Namespace) -> int:
    """Runs the command."""
    stem = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", args.name).lower()
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", stem):
        raise PopulusError(f"'{args.name}' is not a name for an op; expected letters and digits, such as SmoothStep or smooth_step")
    dialect = args.domain.rpartition(".")[2]
    if not re.fullmatch(r"([a-z][a-z0-9_]*\.)*[a-z][a-z0-9_]*", args.domain) or args.domain.startswith("ai.onnx"):
        raise PopulusError(f"'{args.domain}' is not a valid domain; expected one such as com.example")
    folder = Path(args.folder)
    if not folder.is_dir():
        raise PopulusError(f"{folder}: no such folder")
    words = {"stem": stem, "title": "".join(part.capitalize() for part in stem.split("_")), "domain": args.domain, "dialect": dialect}
    files = {folder / f"{stem}.py": OP, folder / f"test_{stem}.py": TEST}
    if taken := [path for path in files if path.exists()]:
        raise PopulusError(f"{taken[0]}: already exists; choose another name or folder")
    with replacing_all(list(files)) as partials:
        for partial, text in zip(partials, files.values()):
            partial.write_text(text.format(**words))
    print(*files, sep="\n")
    return 0
