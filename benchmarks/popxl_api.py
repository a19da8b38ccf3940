"""Compares PopXL's public names and their signatures with ours: `python benchmarks/popxl_api.py CHECKOUT [--write docs/popxl-api.md]`.

CHECKOUT is a copy of Graphcore's public PopART repository, which is read, not run. Prints a page of Markdown: a function or a member of a
class is `same` if its parameters have the same names in the same order with the same defaults, `other` if not, `absent` if we have none.
Exits with 1 if a name that is not `same` has no reason in `REASONS`.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, cast

PACKAGE = "python/popxl/python_files"
MODULES = {
    "popxl": ("*.py", "populus.popxl"),
    "popxl.ops": ("ops/*.py", "populus.popxl.ops"),
    "popxl.ops.var_updates": ("ops/var_updates/*.py", "populus.popxl.ops.var_updates"),
    "popxl.ops.collectives": ("ops/collectives/*.py", "populus.popxl.ops.collectives"),
    "popxl.transforms": ("transforms/*.py", "populus.popxl.transforms"),
    "popxl.fp8_utils": ("fp8_utils.py", "populus.popxl.fp8_utils"),
}
# Beside what the packages export: the classes that their functions give, and what has no package of its own.
BESIDE = {
    "popxl": {"Constant", "Variable"},
    "popxl.ops": {"CallSiteInfo", "ConditionalSiteInfo"},
    "popxl.fp8_utils": {"host_fp8_mse_scale", "host_fp8_mse_scale_pb", "host_pow2scale_cast_from_fp8", "host_pow2scale_cast_to_fp8"},
}
REASONS = {
    "CallSiteInfo.__init__": "programs get one from `call_with_info`",
    "Session.__init__": "two more parameters, by keyword alone",
}
INTRODUCTION = """# PopXL's names and ours

`python benchmarks/popxl_api.py CHECKOUT --write docs/popxl-api.md` writes this page. It compares the names that PopXL exports, the public
members of its classes and their operators, parameter by parameter, with `populus.popxl`. `same` means the same names of parameters in the
same order, with the same defaults. [popxl-compatibility.md](popxl-compatibility.md) says where a meaning differs.
"""

Parameters = list[tuple[str, str | None]]  # each with the text of its default


def public(checkout: Path, pattern: str, wanted: set[str]) -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    """Gives the functions and classes of files of the package that are public there."""
    for path in sorted((checkout / PACKAGE).glob(pattern)):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in wanted:
                yield node.name, node


def exported(checkout: Path, pattern: str) -> set[str]:
    """Gives the names that a package's `__init__` imports."""
    if "*" not in pattern:
        return set()
    folder = checkout / PACKAGE / Path(pattern).parent
    start = folder / "__init__.py"
    text = (start if start.exists() else checkout / "python/popxl/__init__.py.in").read_text()
    found = {alias.asname or alias.name for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom) for alias in n.names}
    return {name for name in found if not name.startswith("_")}


def parameters(node: ast.FunctionDef) -> Parameters:
    """Gives the parameters that a function of theirs states."""
    args = node.args
    plain = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(plain) - len(args.defaults)) + [ast.unparse(d) for d in args.defaults]
    found: Parameters = [(a.arg, d) for a, d in zip(plain, defaults, strict=True)]
    found += [(a.arg, None) for a in (args.vararg,) if a is not None]
    found += [(a.arg, None if d is None else ast.unparse(d)) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    return [*found, *((a.arg, None) for a in (args.kwarg,) if a is not None)]


def same_default(theirs: str | None, ours: Any) -> bool:
    """Tells whether a default is the one that a text states; a name of theirs stands for what has its last part."""
    if theirs is None:
        return True  # ours may have one where theirs is always given
    if theirs.startswith("float("):
        return float(theirs[7:-2]) == ours
    try:
        return bool(ast.literal_eval(theirs) == ours)
    except ValueError:
        return theirs.rpartition(".")[2].strip("()").lower() in str(ours).lower()


def compared(theirs: Parameters, function: Any) -> tuple[str, str]:
    """Gives how a function of ours compares with one of theirs, and in which way."""
    mine = list(inspect.signature(function).parameters.values())
    if theirs and theirs[0][0] in ("self", "cls"):
        theirs = theirs[1:]
        mine = mine[1:] if mine and mine[0].name == "self" else mine
    if [p.name for p in mine] != [name for name, _ in theirs]:
        return "other", f"({', '.join(p.name for p in mine)}) for ({', '.join(name for name, _ in theirs)})"
    wrong = [f"{p.name} = {p.default!r} for {d}" for p, (_, d) in zip(mine, theirs) if not same_default(d, p.default)]
    return ("other", f"defaults: {', '.join(wrong)}") if wrong else ("same", "")


def is_property(node: ast.FunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id in ("property", "cached_property") for d in node.decorator_list)


def fields_of(ours: type) -> set[str]:
    """Gives the names that a class's objects have by assignment or declaration."""
    found: set[str] = set()
    for c in ours.__mro__:
        if c.__module__.startswith("populus") and not issubclass(c, Enum) and c.__doc__ and "TensorByRef" not in c.__name__:
            text = inspect.getsource(cast("type[object]", c))
            found |= set(re.findall(r"^    (\w+):", text, re.MULTILINE))
            found |= {
                name
                for targets in re.findall(r"^ +(self\.\w[^=()]*) = ", text, re.MULTILINE)
                for name in re.findall(r"self\.(\w+)", targets)
            }
    return found


def members(title: str, node: ast.ClassDef, ours: type) -> Iterator[tuple[str, str, str]]:
    """Gives the members of a class of theirs: name, how it compares, in which way."""
    seen, fields = set[str](), fields_of(ours)
    for inner in node.body:
        if not isinstance(inner, ast.FunctionDef) or inner.name in seen or (inner.name.startswith("_") and not inner.name.endswith("__")):
            continue
        seen.add(inner.name)
        name = f"{title}.{inner.name}"
        found = inspect.getattr_static(ours, inner.name, None)
        if inner.name == "__init__" and len(parameters(inner)) == 1:
            continue  # a function makes these objects
        if is_property(inner) and inner.name in fields:
            yield name, "same", ""
        elif found is None:
            yield name, "absent", ""
        elif is_property(inner) or not callable(getattr(ours, inner.name, None)):
            value = isinstance(found, property) or not callable(found)
            yield (name, "same", "") if value == is_property(inner) else (name, "other", "an attribute in one, a method in the other")
        elif inner.name.startswith("__") and inner.name != "__init__":
            yield name, "same", ""  # Python calls it, by position
        else:
            yield name, *compared(parameters(inner), getattr(ours, inner.name))


def rows(checkout: Path, title: str) -> Iterator[tuple[str, str, str]]:
    """Gives the names of a package with how they compare."""
    pattern, module = MODULES[title]
    ours = importlib.import_module(module) if importlib.util.find_spec(module) else None
    wanted = exported(checkout, pattern) | BESIDE.get(title, set())
    for name, node in sorted(dict(public(checkout, pattern, wanted)).items()):
        found = getattr(ours, name, None)
        if found is None:
            yield name, "absent", ""
        elif isinstance(node, ast.FunctionDef):
            yield name, *compared(parameters(node), found)
        else:
            yield name, "same", ""
            yield from members(name, node, found)


def page(checkout: Path) -> tuple[str, list[str]]:
    """Gives the page, and the names that are not the same and have no reason."""
    total: Counter[str] = Counter()
    tables: list[str] = []
    missing: list[str] = []
    for title in MODULES:
        lines = [f"\n## `{title}`\n", "| name | signature | |", "|---|---|---|"]
        for name, kind, how in rows(checkout, title):
            total[kind] += 1
            reason = REASONS.get(name, REASONS.get(name.rpartition(".")[2], "")) if kind != "same" else ""
            if kind != "same" and not reason:
                missing.append(f"{title}.{name}: {kind} {how}")
            lines.append(f"| `{name}` | {kind} | {': '.join(part for part in (reason, how) if part)} |")
        tables += lines
    count = total.total()
    share = (
        f"{total['same']} of {count} are the same, {100 * total['same'] / count:.1f} %; {total['other']} other; {total['absent']} absent.\n"
    )
    return "\n".join([INTRODUCTION, share, *tables, ""]).replace("\n\n\n", "\n\n"), missing


def main() -> int:
    """Prints or writes the page; gives the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    text, missing = page(args.checkout)
    if args.write is None:
        print(text)
    else:
        args.write.write_text(text)
    for name in missing:
        print(f"no reason for {name}", file=sys.stderr)
    return int(bool(missing))


if __name__ == "__main__":
    raise SystemExit(main())
