"""Compares the public names of PopART and their signatures with ours: `python benchmarks/popart_api.py CHECKOUT`.

CHECKOUT is a copy of Graphcore's public PopART repository, which is read, not run: the bindings of its Python module in C++, and its
Python files. Prints tables of Markdown. A name is `same` if ours takes the parameters that it states, by their names and in their order,
in each of its overloads; `other` if not; `absent` if we have none.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BINDINGS = ("popart_core/popart.cpp", *(f"popart_opset{n}/popart_opset{n}.gen.cpp" for n in range(6, 12)))
FOLDER = "python/popart"
# Classes that the Python files extend, and those that are only part of another.
PARENTS = {"_BuilderCore": "Builder", "_InferenceSessionCore": "InferenceSession", "_TrainingSessionCore": "TrainingSession"}
OPSETS = re.compile(r"Ai(Onnx|Graphcore)Opset(\d+)$")
_CONTEXT = "the contexts of a builder have no class of their own name here"
_STREAMER = "there is no debug information of Poplar"
_DEBUG = "a name is a text here; it takes the place of a debug context"
_EXECUTABLE = "an executable is not a file here; `compile(cache=..)` keeps programs"
_EXTERNAL = "weights lie in the model, not in a file beside it"
REASONS = {
    "AttributeContextManager": _CONTEXT,
    "Builder.saveInitializersExternally": _EXTERNAL,
    "DebugContext": _DEBUG,
    "DebugInfo": _DEBUG,
    "GraphTransformer": "a session prepares the model itself; rewriting ONNX files is not there",
    "KeyValueContextManager": _CONTEXT,
    "NameContextManager": _CONTEXT,
    "SourceLocation": _DEBUG,
    "TensorLocationSettings.__init__": "it takes a `TensorLocation`",
    "TrainingSession.connectStreamToCallback": "`PyStepIOCallback` is the way to data by callbacks",
    "closePoplarDebugInfo": _STREAMER,
    "constant": "the op of opset 11 is a method of ours with this signature, beside the table",
    "getIr": "`_serializeIr` gives the graphs; `session.program.module(level)` gives each level",
    "getReport": "there is no report of libpva; `session.program.profile()` is ours",
    "initializePoplarDebugInfo": _STREAMER,
    "loadExecutable": _EXECUTABLE,
    "saveExecutable": _EXECUTABLE,
    "saveVariables": _EXECUTABLE,
    "updateExternallySavedTensorLocations": _EXTERNAL,
}

Overloads = list[list[str] | None]


@dataclass
class Public:
    """The public names: functions and members of classes with their overloads (None: no names are stated), enumerations and others."""

    functions: dict[str, Overloads] = field(default_factory=dict[str, Overloads])
    members: dict[str, dict[str, Overloads]] = field(default_factory=dict[str, dict[str, Overloads]])
    enums: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    others: set[str] = field(default_factory=set[str])


def without_comments(text: str) -> str:
    """Gives C++ without its comments."""
    return re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', lambda m: m.group(1) or " ", text, flags=re.DOTALL)


def closing(text: str, at: int) -> int:
    """Finds the bracket that closes the one at a place; brackets in texts do not count."""
    depth = 0
    for m in re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])'|[()]").finditer(text, at):
        if m.group() in "()":
            depth += 1 if m.group() == "(" else -1
            if depth == 0:
                return m.start()
    raise ValueError(f"no bracket closes the one at {at}")


def read_bindings(text: str, public: Public) -> None:
    """Adds the names of a file of bindings."""
    text = without_comments(text)
    names: dict[str, str] = {"m": ""}
    last = ""
    token = re.compile(
        r"py::(?P<kind>class_|enum_|exception)\s*<[^;(]*?>\s*(?P<var>\w*)\s*\(\s*m\s*,\s*\"(?P<name>[\w:]+)\""
        r"|(?P<on>\w*)\s*\.\s*(?P<call>def\w*|value|attr)\s*\(\s*(?P<first>\"\w+\"|py::init)"
    )
    for m in token.finditer(text):
        if m["kind"]:
            last = m["name"]
            names[m["var"]] = last
            if m["kind"] == "class_":
                public.members.setdefault(last, {})
            if m["kind"] == "enum_":
                public.enums.setdefault(last, [])
            if m["kind"] == "exception":
                public.others.add(last)
            continue
        on = names.get(m["on"], last) if m["on"] else last
        begin = text.index("(", m.end("call"))
        stated = re.findall(r"py::arg\(\s*\"(\w+)\"", text[begin : closing(text, begin)])
        name = "__init__" if m["first"] == "py::init" else m["first"].strip('"')
        if m["call"] == "value":
            public.enums[on].append(name)
        elif m["call"] == "attr":
            public.others |= set() if name.startswith("_") else {name}
        elif name.startswith("_") and name != "__init__":
            continue  # private
        elif not on:
            public.functions.setdefault(name, []).append(stated or None)
        else:
            public.members[on].setdefault(name, []).append(stated or None)


def read_python(path: Path, public: Public) -> None:
    """Adds the classes of a Python file, which replace those that they extend."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            members = public.members.setdefault(node.name, {})
            for f in node.body:
                if isinstance(f, ast.FunctionDef) and (f.name == "__init__" or not f.name.startswith("_")):
                    simple = f.args.vararg is None and not any("property" in ast.unparse(d) for d in f.decorator_list)
                    members[f.name] = [[a.arg for a in f.args.args[1:]] if simple else None]


def upstream(checkout: Path) -> Public:
    """Gives the public names of a checkout."""
    public = Public()
    for name in BINDINGS:
        read_bindings((checkout / FOLDER / name).read_text(), public)
    cores = {core: public.members.pop(core) for core in PARENTS}
    cores["_BuilderCore"].pop("__init__")
    for name in ("session", "tensorinfo"):
        read_python(checkout / FOLDER / "python_files" / f"{name}.py", public)
    scratch = Public()
    read_python(checkout / FOLDER / "python_files/builder.py", scratch)
    public.members["Builder"] = scratch.members["Builder"]
    for core, name in PARENTS.items():
        public.members[name] = {**{n: o for n, o in cores[core].items() if n != "__init__"}, **public.members[name]}
    return public


def fits(ours: Any, overloads: Overloads) -> str:
    """Tells how a function of ours differs; an empty text if it does not."""
    stated: Sequence[Sequence[str]] | None = getattr(ours, "overloads", None)
    if stated is None and inspect.isclass(ours):
        stated = getattr(ours, "LISTS", None) or ([list(getattr(ours, "DEFAULTS", ()))] if issubclass(ours, settings().Settings) else None)
    if stated is None:
        try:
            parameters = inspect.signature(ours).parameters.values()
        except (TypeError, ValueError):
            return "" if overloads == [None] else "no signature"
        stated = [[p.name for p in parameters if p.name != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]]
    for wanted in overloads:
        if wanted is not None and not any(list(s)[: len(wanted)] == wanted for s in stated):
            return f"({', '.join(stated[0])}) for ({', '.join(wanted)})"
    return ""


def settings() -> Any:
    """Gives our module of settings."""
    from populus.popart import settings as module

    return module


def opset_signatures(name: str) -> Mapping[str, Any] | None:
    """Gives our ops of an opset, by the names of their methods."""
    from populus.popart.graphcore_signatures import SIGNATURES
    from populus.popart.opsets import signatures

    m = OPSETS.match(name)
    return None if m is None else SIGNATURES if m[1] == "Graphcore" else signatures(int(m[2]))


def row_of_op(ours: Any, overloads: Overloads) -> str:
    """Tells how an op's parameters differ; an empty text if they do not."""
    order = [*(["args"] if ours.inputs else []), *(["num_outputs"] if ours.counted else []), *ours.attributes, ours.debug, *ours.after]
    wanted = overloads[0] or []
    return "" if order == wanted else f"({', '.join(order)}) for ({', '.join(wanted)})"


def rows(public: Public, module: Any) -> Iterator[tuple[str, str, str, str]]:
    """Gives each public name: its group, itself, `same`, `other` or `absent`, and how it differs."""

    def compared(group: str, name: str, ours: Any, differs: Callable[[Any], str]) -> tuple[str, str, str, str]:
        if ours is None:
            return group, name, "absent", ""
        how = differs(ours)
        return group, name, "other" if how else "same", how

    for name, overloads in sorted(public.functions.items()):
        yield compared("functions", name, getattr(module, name, None), lambda f, o=overloads: fits(f, o))
    for name in sorted(public.others):
        yield compared("constants, exceptions", name, getattr(module, name, None), lambda _: "")
    for name, members in sorted(public.enums.items()):
        ours = getattr(module, name, None)
        yield compared("enumerations", name, ours, lambda e, m=members: ", ".join(sorted(set(m) - set(e.__members__))))
    for name, members in sorted(public.members.items()):
        ops = opset_signatures(name)
        if ops is not None:
            for op, overloads in sorted(members.items()):
                if op != "__init__":
                    yield compared(name, op, ops.get(op), lambda s, o=overloads: row_of_op(s, o))
            continue
        ours = getattr(module, name.replace("::", ""), None)
        group = name if len(members) > 12 else "small classes"
        yield compared(group, name, ours, lambda _: "")
        for member, overloads in sorted(members.items()):
            full = f"{name}.{member}"
            if ours is None:
                yield group, full, "absent", ""
            elif member == "__init__":
                yield compared(group, full, ours, lambda c, o=overloads: fits(c, o))
            else:
                found = getattr(ours, member, None) or getattr(ours, "DEFAULTS", {}).get(member, None)
                known = found is not None or member in getattr(ours, "DEFAULTS", {}) or member in getattr(ours, "__annotations__", {})
                yield compared(group, full, True if known else None, lambda _, f=found, o=overloads: fits(f, o) if callable(f) else "")


def reason(name: str) -> str:
    """Gives the reason for a name that is not the same."""
    owner, _, member = name.partition(".")
    return REASONS.get(name) or REASONS.get(owner) or REASONS.get(member, "")


def options_table() -> str:
    """Gives the table of the members of `SessionOptions`, by what becomes of them."""
    options = settings().SessionOptions
    every = set(options.DEFAULTS)
    rows = {
        "does what it says": options.HONOURED,
        "is refused by name where it would change results": options.REFUSED,
        "is taken, with one warning that says what happens instead": set(options.INSTEAD),
    }
    rows["is taken, with one warning: it changes no result on one machine"] = every.difference(*rows.values())
    text = "| a member | |\n|---|---|\n"
    return text + "\n".join(f"| {kind} ({len(names)}) | {', '.join(f'`{n}`' for n in sorted(names))} |" for kind, names in rows.items())


PAGE = """# PopART's names here

Each public name of PopART's Python module, compared with `populus.popart` by

```
python benchmarks/popart_api.py CHECKOUT > docs/popart-api.md
```

for a checkout of the public repository `graphcore/popart` (measured at `d2f20d78`). The script reads its bindings, and runs nothing.
A name is *same* if ours takes the parameters that PopART states, by their names and in their order, in each of its overloads.
[PopART's programs](popart-compatibility.md) says what the names do."""


def main() -> None:
    """Prints the page."""
    import populus.popart

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    public = upstream(parser.parse_args().checkout)
    found = list(rows(public, populus.popart))
    kinds = ("same", "other", "absent")
    print(f"{PAGE}\n\n## `SessionOptions`\n\n{options_table()}\n\n## All names\n")
    print("| group | names | same | other | absent |\n|---|---|---|---|---|")
    groups = list(dict.fromkeys(g for g, *_ in found))
    for group in [*groups, "all"]:
        counts = [sum(1 for g, _, k, _ in found if (group in ("all", g)) and k == kind) for kind in kinds]
        print(f"| {group} | {sum(counts)} | {counts[0]} | {counts[1]} | {counts[2]} |")
    total = sum(1 for _, _, k, _ in found if k == "same")
    print(f"\n{100 * total / len(found):.1f} % are the same.\n\n| name | | difference or reason |\n|---|---|---|")
    for _, name, kind, how in found:
        if kind != "same":
            print(f"| `{name}` | {kind} | {'; '.join(t for t in (how, reason(name)) if t)} |")


if __name__ == "__main__":
    main()
