"""Compares names and signatures of PopTorch's public functions, classes and methods with ours:

    python benchmarks/poptorch_api.py CHECKOUT

CHECKOUT is a copy of Graphcore's public PopTorch repository, which is read, not run; torch must be installed for ours. Prints a table
of Markdown: a name is `same` if its parameters have the same names in the same order, `other` with both lists if not, `absent` if we
have none.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Files of the package whose names it gives, with the module of ours that has them.
FILES = {
    "poptorch": ("__init__", "ops", "options", "enums", "_poplar_executor"),
    "poptorch.optim": ("optim",),
    "poptorch.profiling": ("profiling",),
}
INTERNAL = {"poptorchAtExit", "importPoptorchMetadataFromFile", "LegacyBeginBlockFn", "registerGeometricCustomArgParsers", "logger"}
GROUPS = {"_JitOptions": "Jit", "_PrecisionOptions": "Precision", "_TrainingOptions": "Training", "_PopartOptions": "_Popart",
          "_DistributedOptions": "Distributed", "_TensorLocationOptions": "TensorLocations"}  # fmt: skip


def parameters(node: ast.FunctionDef) -> list[str]:
    """Gives the names of a function's parameters, without self."""
    args = node.args
    found = [
        *args.posonlyargs,
        *args.args,
        *([args.vararg] if args.vararg else []),
        *args.kwonlyargs,
        *([args.kwarg] if args.kwarg else []),
    ]
    return [a.arg for a in found if a.arg != "self"]


def public(file: Path) -> Iterator[tuple[str, list[str] | None]]:
    """Gives functions and methods with their parameters, and classes without a constructor with None, by dotted name."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name, parameters(node)
        elif isinstance(node, ast.ClassDef) and (not node.name.startswith("_") or node.name in GROUPS):
            methods = [m for m in node.body if isinstance(m, ast.FunctionDef)]
            starts = [m for m in methods if m.name == "__init__"]
            if node.name not in GROUPS:
                hidden = node.name in ("PoplarExecutor", "DataLoader")  # made by functions, or compared by keyword
                yield node.name, parameters(starts[0]) if starts and not hidden else None
            for m in methods:
                if not m.name.startswith("_"):
                    of_value = any(ast.unparse(d) in ("property", "rng_state.setter") for d in m.decorator_list)
                    yield f"{node.name}.{m.name}", None if of_value else parameters(m)


def found(package: str, name: str) -> Any:
    """Gives our object of a dotted name; None if there is none."""
    from importlib import import_module

    from populus import poptorch

    first, _, rest = name.partition(".")
    if first in GROUPS:
        return getattr(getattr(poptorch.Options(), GROUPS[first]), rest, None)
    value: Any = import_module(f"populus.{package}")
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def row(package: str, name: str, theirs: list[str] | None) -> tuple[str, str]:
    """Gives how a name compares, and in which way."""
    ours = found(package, name)
    if ours is None or theirs is None or not callable(ours):
        return ("absent" if ours is None else "same"), ""
    mine = [p.name for p in inspect.signature(ours).parameters.values() if p.name != "self"]
    return ("same", "") if mine == theirs else ("other", f"({', '.join(mine)}) for ({', '.join(theirs)})")


def main() -> None:
    """Prints the table."""
    folder = Path(sys.argv[1]) / "python"
    for package, files in FILES.items():
        rows: dict[str, list[str]] = {"same": [], "other": [], "absent": []}
        names = dict(entry for file in files for entry in public(folder / f"{file}.py"))
        for name, theirs in sorted(names.items()):
            if name.split(".")[0] in INTERNAL:
                continue
            kind, how = row(package, name, theirs)
            shown = name.replace(first, GROUPS[first]) if (first := name.split(".")[0]) in GROUPS else name
            rows[kind].append(f"`{shown}`{how}")
        for kind, which in rows.items():
            if which:
                print(f"| `{package}` | {kind} | {len(which)} | {', '.join(which) if kind != 'same' else ''} |")


if __name__ == "__main__":
    main()
