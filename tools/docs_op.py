"""print the documentation page of a built-in or user op, the list of all ops, or the attributes that an op's class can have"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import cast

from populus.dialects.popart import POPART
from populus.dialects.popart.base import ElementwiseOp, PopartOp
from populus.dialects.popart.definition import Definition, built_in, definition_of
from populus.dialects.popart.examples import Input
from populus.dialects.popart.train import TRAIN
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.package_hash import FOLDERS
from populus.lowering.driver import extensions
from populus.lowering.driver.files import decode, read_bytes
from populus.write.op_page import page

CONSTANTS = {  # attributes of a class, as opposed to methods
    "ONNX": "(domain, op type, version) of the ONNX node",
    "OVERRIDES": "it replaces an op of ONNX's own domain",
    "INTERNAL": "only passes create it; a model with it is refused",
    "NOT_HASHED": "names of attributes that do not affect the results",
    "TARGETS": "machines that have the op; any if there are none",
    "CONSTANTS": "names of operands that have to be constants; `value_of` gives their values",
    "SEED": "index of the operand that seeds its random numbers",
    "OUTLINE_VALUE": "benefit of sharing its code in an outlined function",
    "OUTLINE_IGNORES": "names of attributes that may differ between ops outlined together",
    "EXAMPLES": "operand shapes and attributes for `populus check-op`",
}
XDSLS = ("parse", "print", "verify_")
"""Methods that xDSL asks of an op."""
_STATED = [n for n, of in vars(PopartOp).items() if inspect.isfunction(of) and not n.startswith("_") and n not in XDSLS]
METHODS: dict[str, type[PopartOp]] = {
    **dict.fromkeys(("infer", "aliases", *_STATED), PopartOp),
    **dict.fromkeys(("formula", "derivatives"), ElementwiseOp),
}
SUBJECTS = {"PopartOp", "ElementwiseOp", "TensorOp", "Definition", "NOT_HASHED"}  # a file without any of these reads no attribute of an op


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `populus docs-op`."""
    add = parser.add_argument
    add("name", metavar="NAME", nargs="?", help="an op, such as relu, or one of a --load file; without it, all ops are listed")
    add("--load", action="append", default=[], metavar="FILE.py", help="a Python file that defines ops")
    add("--tests", action="append", default=[], metavar="FILE.py", help="append the op's examples, and the tests in this file as sentences")
    add("--interface", action="store_true", help="print the attributes that an op's class can have, and their readers")


def execute(args: argparse.Namespace) -> int:
    """Runs the command."""
    if args.interface:
        print(interface(), end="")
        return 0
    loaded = [d for path in args.load for d in extensions.read(path).definitions()]
    if args.name is None:
        print("".join(f"{_form(d)}\n" for d in loaded) if args.load else families(), end="")
        return 0
    own = {n: d for d in loaded for n in (d.name, d.op.name)}
    name = args.name.removeprefix("popart.")
    if name not in own and args.load:
        try:
            built_in(name)
        except PopulusError:
            raise PopulusError(f"there is no op '{args.name}' in {', '.join(args.load)}{did_you_mean(args.name, own)}") from None
    definition = own[name] if name in own else definition_of(built_in(name))
    print(page(definition), end="")
    if args.tests:
        print("\n".join(["", *examples(definition), *tests(args.tests), ""]), end="")
    return 0


def examples(d: Definition) -> list[str]:
    """Renders the examples of an op as a table: its operands and attributes."""
    text = ["## Examples", "", "| operands | attributes |", "|---|---|"]
    for operands, attributes in d.op.EXAMPLES:
        said = [f"{o.name}: {_operand(v)}" for o, v in zip(d.taken(len(operands)), operands)]
        text.append(f"| {', '.join(said)} | {', '.join(f'{n} = {v!r}' for n, v in attributes.items())} |")
    return [*text, ""] if d.op.EXAMPLES else []


def _operand(stated: object) -> str:
    if not isinstance(stated, Input):
        return "left out" if stated is None else str(list(cast("Sequence[int]", stated)))
    parts = [str(list(stated.sizes)), stated.dtype or "", "" if stated.low is None else f"{stated.low} .. {stated.high}"]
    return " ".join(p for p in parts if p)


def tests(paths: Sequence[str]) -> list[str]:
    """Renders the tests of some files as a list of sentences: their names, and their docstrings. Raises PopulusError if there are none."""
    text = ["## Tests", ""]
    for path in paths:
        try:
            tree = ast.parse(decode(read_bytes(Path(path)), path))
        except SyntaxError as error:
            raise PopulusError(f"{path}:{error.lineno}: {error.msg}") from None
        found = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")]
        if not found:
            raise PopulusError(f"{path}: has no test; one is a function test_..")
        for node in sorted(found, key=lambda n: n.lineno):
            doc = " ".join((ast.get_docstring(node) or "").split())
            text.append(
                f"- {node.name.removeprefix('test_').replace('_', ' ')}{f': {doc}' if doc else ''} (`{Path(path).name}:{node.lineno}`)"
            )
    return text


def families() -> str:
    """Renders the built-in ops by family, the file of `dialects/popart` that defines them: operands, then attributes."""
    ops: dict[str, list[str]] = {}
    for op in (*POPART.operations, *TRAIN.operations):
        if issubclass(op, PopartOp) and not op.INTERNAL:
            ops.setdefault(op.__module__.rpartition(".")[2], []).append(f"`{_form(definition_of(op))}`")
    text = ["| family | ops |", "|---|---|"]
    text += [f"| `{family}` | {', '.join(sorted(forms))} |" for family, forms in sorted(ops.items())]
    return "\n".join([*text, ""])


def _form(d: Definition) -> str:
    """Renders `gemm(a, b, c?){alpha, beta, trans_a, trans_b}`; `...` marks any number of operands."""
    marks = {"one": "", "optional": "?", "variadic": "..."}
    operands = ", ".join(o.name + marks[o.kind] for o in d.operands)
    return f"{d.name}({operands})" + (f"{{{', '.join(d.properties)}}}" if d.properties else "")


def interface() -> str:
    """Renders the page of an op class's attributes, from the base classes' docstrings and the files that read them."""
    text = ["# Attributes of an op's class", "", "`populus docs-op --interface` generates this page.", ""]
    text += ["| attribute | meaning | readers |", "|---|---|---|"]
    for name, meaning in CONSTANTS.items():
        text.append(f"| `{name}` | {meaning} | {', '.join(readers(name))} |")
    for name, of in METHODS.items():
        doc = inspect.cleandoc(getattr(of, name).__doc__ or "").partition("\n\n")[0].partition("\n")[0].replace("|", "\\|")
        text.append(f"| `{name}` | {doc} | {', '.join(readers(name))} |")
    return "\n".join([*text, ""])


def readers(name: str) -> list[str]:
    """Lists the passes and other files that read the attribute `name` of an op."""
    return sorted({place for found, place in _asked() if found == name})


@cache
def _asked() -> tuple[tuple[str, str], ...]:
    return tuple(_questions())


def _questions() -> Iterator[tuple[str, str]]:
    for root in map(Path, FOLDERS):
        for path in sorted(root.rglob("*.py")):
            source, file = path.read_text(), path.relative_to(root.parent).as_posix().removeprefix("populus/")
            if (file.startswith("dialects/") and path.name != "tensor_op.py") or SUBJECTS.isdisjoint(re.findall(r"\w+", source)):
                continue
            made = re.search(r'^    name = "([a-z-]+)"$', source, re.MULTILINE) if "(ModulePass)" in source else None
            place = f"`{made[1]}`" if made else file
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Attribute) and node.attr in CONSTANTS:
                    yield node.attr, place
                elif isinstance(node, ast.Constant) and node.value in CONSTANTS and path.name != "docs_op.py":
                    yield str(node.value), place
                elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
                    # `text.lower()` is of a string, `expr.infer(..)` of an expression
                    module = isinstance(node.func.value, ast.Name) and node.func.value.id in ("expr", "calls")
                    if not module and (node.args or node.func.attr != "lower"):
                        yield node.func.attr, place
