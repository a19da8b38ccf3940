"""Ops that a file of C++ registers with PopART: names, operands and attributes, read from its text. Nothing is compiled or run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from populus.dialects.support.diagnostics import PopulusError

LARGEST = 4_000_000  # bytes of a file of C++ that is read
KINDS = ("Float", "Int", "String", "Floats", "Ints", "Strings")  # of attributes


@dataclass(frozen=True)
class Attribute:
    """An attribute: its kind, one of `KINDS` (empty if the file does not say), and its default as C++ (None without one)."""

    kind: str
    default: str | None = None


@dataclass(frozen=True)
class Registered:
    """An op that models may name. `inputs`, `outputs`: names with the data types of PopART. `copied`: of outputs, the input of its type."""

    domain: str
    name: str
    version: int
    kind: str
    inputs: Mapping[str, tuple[str, ...]]
    outputs: Mapping[str, tuple[str, ...]]
    attributes: Mapping[str, Attribute]
    copied: Mapping[int, int]


def registered(path: Path) -> list[Registered]:
    """Lists the ops that a file registers for models, in its order. Raises PopulusError for a file that cannot be read."""
    text = _text(path)
    whole = "\n".join([*(_text(found) for name in _INCLUDE.findall(text) if (found := _beside(path, name)) is not None), text])
    identities = {found[1]: (found[2], found[3], int(found[4])) for found in _IDENTITY.finditer(whole)}
    types = {found[1]: tuple(re.findall(r"\bDataType::(\w+)", found[2])) for found in _TYPES.finditer(whole)}
    definitions = {found[1]: _inside(whole, found.end() - 1) for found in _DEFINITION.finditer(whole)}
    ops: list[Registered] = []
    for found in _CREATOR.finditer(whole):
        body, kind = _inside(whole, found.end() - 1), found[1].rpartition("::")[2]
        stated = {name: Attribute(k if k in KINDS else "", default) for name, k, default in _attributes(body)}
        for id, definition in _PAIR.findall(body):
            if (identity := identities.get(id.rpartition("::")[2])) is None:
                continue
            parts = definitions.get(definition.rpartition("::")[2], "")
            inputs, outputs = ({n: types.get(t, ()) for n, t in _ENTRY.findall(_part(parts, of))} for of in ("Inputs", "Outputs"))
            names = [n for n in _NAME.findall(_part(parts, "Attributes")) if n != "*"]
            attributes = {**{n: Attribute("") for n in names}, **stated}
            ops.append(Registered(*identity, kind, inputs, outputs, attributes, _copied(whole, kind, len(inputs), len(outputs))))
    return ops


_INCLUDE = re.compile(r'#\s*include\s*"([^"\n]+)"')
_IDENTITY = re.compile(r'OperatorIdentifier\s+(\w+)\s*=?\s*[{(]\s*"([\w.-]*)"\s*,\s*"(\w+)"\s*,\s*(\d+)\s*[})]')
_TYPES = re.compile(r"\bDataTypes\s+(\w+)\s*=\s*\{([^}]*)\}")
_DEFINITION = re.compile(r"\bOpDefinition\s+(\w+)\s*\(")
_CREATOR = re.compile(r"\bOpCreator\s*<\s*([\w:]+)\s*>\s*\w+\s*\(")
_PAIR = re.compile(r"\{\s*([A-Za-z_][\w:]*)\s*,\s*([A-Za-z_][\w:]*)\s*\}")
_ENTRY = re.compile(r'\{\s*"(\w+)"\s*,\s*(\w+)\s*\}')
_NAME = re.compile(r'\{\s*"(\w+)"\s*,')
_GET = re.compile(r'\bgetAttribute\s*<\s*(?:\w+::)*(\w+)\s*>\s*\(\s*"(\w+)"\s*')
_COPY = re.compile(r"\boutInfo\(\s*([\w()]+?)\s*\)\s*=\s*inInfo\(\s*([\w()]+?)\s*\)\s*;")


def _text(path: Path) -> str:
    """Reads a file of C++ without its comments."""
    try:
        if path.stat().st_size > LARGEST:
            raise PopulusError(f"{path}: {path.stat().st_size:,} bytes; a file of C++ has at most {LARGEST:,}")
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise PopulusError(f"{path}: {error.strerror}") from error
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)


def _beside(path: Path, name: str) -> Path | None:
    """Finds a header in the folder of a file, or below it."""
    folder = path.resolve().parent
    found = (folder / name).resolve()
    return found if found.is_relative_to(folder) and found.is_file() else None


def _inside(text: str, at: int) -> str:
    """Gives what stands between the bracket at a place and the one that closes it; strings count as they are."""
    depth = 0
    for found in re.compile(r'"(?:\\.|[^"\\])*"|[(){}]').finditer(text, at):
        depth += (found[0] in "({") - (found[0] in ")}")
        if not depth:
            return text[at + 1 : found.start()]
    return text[at + 1 :]


def _part(definition: str, name: str) -> str:
    """Gives the arguments of `OpDefinition::Inputs(..)` and its like."""
    found = re.search(rf"\b{name}\s*\(", definition)
    return "" if found is None else _inside(definition, found.end() - 1)


def _attributes(body: str) -> list[tuple[str, str, str | None]]:
    """Lists the attributes that a creator asks for: name, kind, default."""
    made: list[tuple[str, str, str | None]] = []
    for found in _GET.finditer(body):
        rest = _inside(body, body.index("(", found.start()))
        _, comma, default = rest.partition(",")
        made.append((found[2], found[1], " ".join(default.split()) if comma else None))
    return made


def _copied(text: str, kind: str, inputs: int, outputs: int) -> dict[int, int]:
    """Finds the outputs that `setup` gives the type of an input."""
    bodies = [_inside(text, found.end() - 1) for found in re.finditer(rf"\bclass\s+{kind}\b[^;{{]*\{{", text)]
    bodies += [_inside(text, found.end() - 1) for found in re.finditer(rf"\b{kind}::setup\s*\(\s*\)[^;{{]*\{{", text)]
    pairs = [pair for body in bodies for pair in _COPY.findall(body)]
    if inputs == outputs == len(pairs) == 1:
        return {0: 0}  # whatever functions give the numbers
    return {int(o): int(i) for o, i in pairs if o.isdecimal() and i.isdecimal()}
