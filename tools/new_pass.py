"""write a file with a pass of your own, its FileCheck test and lit.cfg: `populus new-pass drop-relu` makes drop_relu.py and .mlir"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.errors import printable
from populus.dialects.support.output_files import replacing_all
from populus.lowering.driver.passes import PASSES
from populus.tools.command import UsageError

PASS = '''"""{name}: a pass of your own. `populus-opt MODULE.mlir --load {stem}.py -p {name}` runs it, `lit {stem}.mlir` tests it."""

from populus.custom import Context, ModuleOp, ModulePass, Rewriter, dataclass, popart


@dataclass(frozen=True)
class {title}Pass(ModulePass):
    """Removes each relu of a relu: `max(max(x, 0), 0) = max(x, 0)`. Fields are options: `{name}{{most=1}}`. Bit for bit."""

    name = "{name}"
    most: int = 1000  # ops that are removed

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        found = [relu for relu in op.walk() if isinstance(relu, popart.ReluOp) and isinstance(relu.x.owner, popart.ReluOp)]
        for relu in found[: self.most]:
            Rewriter.replace_op(relu, [], [relu.x])
'''

TEST = """// RUN: populus-opt %s --load %S/{stem}.py -p {name} | filecheck %s
// RUN: populus-opt %s --load %S/{stem}.py -p "{name}{{most=0}}" | filecheck %s --check-prefix=KEPT

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %once = popart.relu %x : tensor<4xf32>
  %twice = popart.relu %once : tensor<4xf32>
  func.return %twice : tensor<4xf32>
}}

// CHECK: %once = popart.relu %x
// CHECK-NEXT: func.return %once
// KEPT: func.return %twice
"""

LIT = """import os
import sys

import lit.formats

config.name = "passes"
config.suffixes = [".mlir"]
config.test_format = lit.formats.ShTest()
config.environment["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus new-pass`."""
    parser.add_argument("name", metavar="NAME", help="its name, such as drop-relu")
    parser.add_argument("--folder", default=".", metavar="DIR", help="where to write the files (here)")


def execute(args: argparse.Namespace) -> int:
    """Runs the command. A lit.cfg that is there already stays as it is: one is enough for all passes of a folder."""
    name = args.name.replace("_", "-")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise UsageError(f"'{args.name}' is no name for a pass; expected letters and digits with hyphens, such as drop-relu")
    if name in PASSES:
        raise UsageError(f"'{name}' is a pass of ours; choose another name")
    folder = Path(args.folder)
    if not folder.is_dir():
        raise PopulusError(f"{folder}: no such folder")
    stem = name.replace("-", "_")
    words = {"name": name, "stem": stem, "title": "".join(part.capitalize() for part in name.split("-"))}
    files = {folder / f"{stem}.py": PASS.format(**words), folder / f"{stem}.mlir": TEST.format(**words)}
    if there := [path for path in files if path.exists()]:
        raise PopulusError(f"{there[0]}: already exists; choose another name or folder")
    if not (folder / "lit.cfg").exists():
        files[folder / "lit.cfg"] = LIT
    with replacing_all(list(files)) as partials:
        for partial, text in zip(partials, files.values()):
            partial.write_text(text)
    print(*(printable(str(file)) for file in files), sep="\n")
    return 0
