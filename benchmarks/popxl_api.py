"""Compares the names and signatures of PopXL's public functions and classes with ours: `python benchmarks/popxl_api.py CHECKOUT`.

CHECKOUT is a copy of Graphcore's public PopART repository, which is read, not run. Prints a table of Markdown: a name is `same` if its
parameters have the same names in the same order, `other` with both lists if not, `absent` if we have none.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "python/popxl/python_files"
MODULES = {
    "popxl.ops": ("ops/*.py", "populus.popxl.ops"),
    "popxl.ops.var_updates": ("ops/var_updates/*.py", "populus.popxl.ops.var_updates"),
    "popxl.ops.collectives": ("ops/collectives/*.py", "populus.popxl.ops.collectives"),
    "popxl.transforms": ("transforms/*.py", "populus.popxl.transforms"),
    "popxl": ("*.py", "populus.popxl"),
}


def public(checkout: Path, pattern: str, wanted: set[str]) -> Iterator[tuple[str, list[str] | None]]:
    """Gives the functions with their parameters, and the classes with None, of files of the package that are public there."""
    for path in sorted((checkout / PACKAGE).glob(pattern)):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name in wanted:
                args = node.args
                yield node.name, [a.arg for a in (*args.args, *([args.vararg] if args.vararg else []), *args.kwonlyargs)]
            elif isinstance(node, ast.ClassDef) and node.name in wanted:
                yield node.name, None


def exported(checkout: Path, pattern: str) -> set[str]:
    """Gives the names that a package's `__init__` imports."""
    folder = checkout / PACKAGE / Path(pattern).parent
    start = folder / "__init__.py"
    text = (start if start.exists() else checkout / "python/popxl/__init__.py.in").read_text()
    found = {alias.asname or alias.name for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom) for alias in n.names}
    return {name for name in found if not name.startswith("_")}


def row(module: str, name: str, theirs: list[str] | None) -> tuple[str, str]:
    """Gives how a name compares, and in which way."""
    package, _, last = module.rpartition(".")
    ours = getattr(getattr(importlib.import_module(package), last, None), name, None)
    if ours is None or theirs is None:
        return ("absent" if ours is None else "same"), ""
    mine = [p.name for p in inspect.signature(ours).parameters.values()]
    return ("same", "") if mine == theirs else ("other", f"({', '.join(mine)}) for ({', '.join(theirs)})")


def main() -> None:
    """Prints the table."""
    checkout = Path(sys.argv[1])
    for title, (pattern, module) in MODULES.items():
        rows: dict[str, list[str]] = {"same": [], "other": [], "absent": []}
        names = exported(checkout, pattern)
        for name, theirs in sorted(dict(public(checkout, pattern, names)).items()):
            kind, how = row(module, name, theirs)
            rows[kind].append(f"`{name}`{how}")
        for kind, found in rows.items():
            if found:
                print(f"| `{title}` | {kind} | {len(found)} | {', '.join(found) if kind != 'same' else ''} |")


if __name__ == "__main__":
    main()
