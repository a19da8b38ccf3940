"""The table of ONNX operators at every version: how each is computed, and its element types that tiles do not support."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, cast

from onnx.defs import OpSchema, get_all_schemas_with_history

from populus.dialects.onnx.types import element_numbered
from populus.dialects.support.element_types import is_known
from populus.lowering.onnx.host_ops import FUNCTIONS, MOVING
from populus.lowering.onnx.structure import RULES as RESOLVED
from populus.lowering.onnx.to_popart import RULES

# Operators that no table has, because they depend on the model or its shapes.
FOLDED = ("Constant", "Shape", "Size")
MAPS = ("ai.onnx.ml.CastMap", "ai.onnx.ml.DictVectorizer")  # that the host makes rows of


def operators() -> str:
    """Renders the table, a row for each operator."""
    found: dict[str, list[OpSchema]] = defaultdict(list)
    for schema in get_all_schemas_with_history():
        found[f"{schema.domain}.{schema.name}".removeprefix(".")].append(schema)
    rows = [_row(name, sorted(found[name], key=lambda s: s.since_version)) for name in sorted(found, key=str.lower)]
    return "\n".join(rows)


def _row(name: str, schemas: list[OpSchema]) -> str:
    versions = ", ".join(str(s.since_version) for s in schemas)
    return f"| {name} | {versions} | {_how(name, schemas)} | {', '.join(_not_held(name, schemas[-1]))} |"


def _how(name: str, schemas: list[OpSchema]) -> str:
    any_schemas = cast("list[Any]", schemas)  # onnx's type stub lacks these two
    functions = [s.since_version for s in any_schemas if s.has_function or s.has_context_dependent_function]
    if name in FUNCTIONS:
        return f"host: `{FUNCTIONS[name]}`"
    if name in FOLDED:
        return "known when compiling"
    if name in RULES and name in RESOLVED:
        return "tiles; at compile time if its structure is known"
    if name in RULES:
        return "tiles"
    if name in RESOLVED and functions:
        return "tiles, by ONNX's function; its graphs are expanded at compile time"
    if name in RESOLVED:
        return "at compile time; the rest on tiles"
    if functions:
        return "tiles, by ONNX's function"
    assert name in MAPS, name
    return "host: the row of an input that is a map"


def _not_held(name: str, schema: OpSchema) -> list[str]:
    """Lists the element types of the newest version that tiles do not support, spelled as in ONNX."""
    types = {t for c in schema.type_constraints for t in c.allowed_type_strs} | {p.type_str for p in (*schema.inputs, *schema.outputs)}
    found: set[str] = set()
    handled = {*MOVING, *FUNCTIONS, *RESOLVED, "Cast", "CastLike"}
    for text in types:
        inner = text.rpartition("tensor(")[2].rstrip(")")
        if inner == "string" and (name in handled or name.removeprefix("ai.onnx.ml.") in MOVING or name.endswith("Classifier")):
            continue  # on tiles as handles
        if (number := _NUMBERS.get(inner)) is not None and not _held(number):
            found.add(inner)
    return sorted(found)


def _held(number: int) -> bool:
    element = element_numbered(number)
    return element is not None and is_known(element)


_NUMBERS = {"complex64": 14, "complex128": 15, "float6e2m3": 27, "float6e3m2": 28, "string": 8}
