"""The types of `profile.json`, and the JSON Schema that is made of them: `python -m populus.tools.report.record_types`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypedDict, Union, get_args, get_origin, get_type_hints, is_typeddict

SCHEMA, VERSION = "populus-profile", 1
FILE = Path(__file__).with_name("profile.schema.json")

PAIR: Mapping[str, int] = {"minItems": 2, "maxItems": 2}
SOME: Mapping[str, int] = {"minItems": 1}

Runs = list[Annotated[list[int], PAIR]]
Category = Literal["constants", "variables", "exchanged"]


Bound: TypeAlias = Literal["matrix", "vector", "load", "exchange", "sync", "imbalance"]


class Costs(TypedDict):
    """Predicted costs: cycles, bytes and operations."""

    cycles: int
    compute: int
    exchange: int
    sync: int
    bytes: Annotated[int, "received from other tiles"]
    host_bytes: Annotated[int, "to and from the host, and memory outside the tiles"]
    flops: int
    vertices: int
    hidden: NotRequired[Annotated[int, "of exchange: cycles under the computing, which the cycles leave out"]]


class Op(Costs):
    """The steps of one op of the model added up. Ops that were fused are one."""

    name: str
    places: Annotated[list[str], "the names of ONNX nodes"]
    steps: Annotated[list[int], "numbers of its steps"]


class Step(Costs):
    """A step, with the costs of one run. A function's steps are there once for each call, under the names of the call."""

    label: str
    place: str
    kind: Literal["execute", "copy", "call", "stream_in", "stream_out", "host_call", "collective"]
    count: Annotated[int, "how often it runs"]
    call: Annotated[str, "the function that it belongs to, or empty"]
    codelets: list[str]
    live: Annotated[int | None, "the step's entry in memory.curve"]
    tile_bytes: Annotated[int | None, "bytes of the fullest tile meanwhile"]
    bound: NotRequired[Annotated[Bound, "the unit, or the cause, that takes most of a compute set's cycles"]]
    bound_cycles: NotRequired[Annotated[int, "cycles of one run if that alone mattered, with all tiles alike"]]
    guessed: NotRequired[Annotated[bool, "count rests on a guess: the step is inside a while without a bound"]]
    waits: NotRequired[Annotated[int, "cycles of a collective that no step before the first reader of its result can hide"]]


class Named(TypedDict):
    """A tenant of a tile and its bytes there."""

    label: str
    bytes: int


class TileBytes(TypedDict):
    """Bytes of each tile as run lengths: [bytes, how many tiles]. highest: the most at any step; the others at the peak's step."""

    highest: Runs
    constants: NotRequired[Runs]
    variables: NotRequired[Runs]
    exchanged: NotRequired[Runs]


class Live(TypedDict):
    """Bytes that are alive during a step."""

    fullest: Annotated[int, "on the fullest tile"]
    constants: Annotated[int, "on all tiles"]
    variables: Annotated[int, "on all tiles"]
    exchanged: Annotated[int, "on all tiles"]


class Memory(TypedDict):
    """Tile memory at the peak, and step by step."""

    limit: Annotated[int, "bytes that a tile has for variables"]
    peak: Annotated[int, "of the fullest tile at its fullest step"]
    tile: int
    step: int
    label: str
    largest: Annotated[list[Named], "on that tile then"]
    tiles: TileBytes
    curve: Annotated[list[Live], "step by step: calls expanded, loops once"]


class Balance(TypedDict):
    """The load of each tile over the whole run, as run lengths: [value, how many tiles]."""

    compute: Annotated[Runs, "cycles of its vertices"]
    received: Annotated[Runs, "bytes from other tiles, and of results for them"]


class Layout(TypedDict):
    """The tiles of a variable: start + mixed radix of part numbers in order, last fastest; modulo the number of tiles."""

    text: str
    splits: Annotated[list[Annotated[list[int], {"minItems": 3, "maxItems": 3}]], "[elements, parts, grain] of each dimension"]
    order: list[int]
    start: int
    element_bytes: float


class Variable(TypedDict):
    """A tenant of tile memory: a constant, a variable, or the elements that a step receives from other tiles."""

    label: str
    place: str
    category: Category
    largest: Annotated[int, "bytes on the tile that has most"]
    bytes: Annotated[int, "on all tiles"]
    spans: Annotated[
        list[Annotated[list[int], PAIR]], SOME, "first and last step of each time that it holds something; in a function, for each call"
    ]
    type: NotRequired[str]
    address: NotRequired[int | None]
    layout: NotRequired[Layout]


class Node(TypedDict):
    """A node of the control tree: a step by its number, or blocks of nodes."""

    op: str
    step: NotRequired[int]
    label: NotRequired[str]
    place: NotRequired[str]
    blocks: NotRequired[list[list[Node]]]


class Shared(TypedDict):
    """The functions that an op of the model is in, and the op whose text in `ir` stands for it there."""

    functions: list[str]
    like: str


class Record(TypedDict):
    """The predicted cost of a tile program. Cycles are of the machine model, sizes in bytes; steps are counted from 0."""

    schema: Literal["populus-profile"]
    version: Literal[1]
    made_by: Annotated[str, "the version that made it"]
    title: Annotated[str, "the model's file"]
    model_hash: Annotated[str, "SHA-256 of the model's file, or of its content if there was no file"]
    pipeline: Annotated[list[str], "the passes, with their options"]
    target: Annotated[dict[str, int | float | str | bool], "the machine's fields: tiles, tile_bytes, clock_hz, ..."]
    summary: Annotated[dict[str, int | float | bool], "totals by name"]
    ops: Annotated[list[Op], "the most expensive first"]
    steps: Annotated[list[Step], "in order"]
    memory: Memory
    balance: Balance
    variables: list[Variable]
    tree: Annotated[list[Node], "the control tree"]
    ir: Annotated[dict[str, dict[str, list[str]]], "for each ONNX node, the text of its ops at each level"]
    shared: Annotated[dict[str, Shared], "ops of the model that functions compute"]


REQUIRED = {  # fields of open tables that every profile has
    "target": "name tiles tile_bytes reserved_bytes clock_hz",
    "summary": "poplar_ops compute_sets exchange_bytes peak_tile_bytes cycles compute_cycles exchange_cycles sync_cycles flops "
    "utilisation fits",
}
PLAIN: dict[Any, dict[str, Any]] = {
    int: {"type": "integer", "minimum": 0},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    str: {"type": "string"},
    type(None): {"type": "null"},
}


def schema() -> dict[str, Any]:
    """Makes the JSON Schema of `Record`."""
    definitions: dict[str, Any] = {}
    found = _table(Record, definitions)
    for name, fields in REQUIRED.items():
        found["properties"][name]["required"] = fields.split()
    title = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"{SCHEMA}, version {VERSION}"}
    return {**title, **found, "$defs": definitions}


def _table(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {
        "description": " ".join((kind.__doc__ or "").split()),
        "type": "object",
        "additionalProperties": False,
        "required": [name for name, hint in hints.items() if get_origin(hint) is not NotRequired],
        "properties": {name: _field(hint, definitions) for name, hint in hints.items()},
    }


def _field(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Makes the schema of a type."""
    origin, args = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and hint in PLAIN:
        return dict(PLAIN[hint])
    if origin is NotRequired:
        return _field(args[0], definitions)
    if origin is Annotated:
        found = _field(args[0], definitions)
        for more in args[1:]:
            found |= {"description": more} if isinstance(more, str) else more
        return found
    if origin is Literal:
        return {"const": args[0]} if len(args) == 1 else {"enum": list(args)}
    if origin is list:
        return {"type": "array", "items": _field(args[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _field(args[1], definitions)}
    if is_typeddict(hint):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}  # a type may have itself as a field
            definitions[hint.__name__] |= _table(hint, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    assert origin is Union or args, hint
    return {"anyOf": [_field(a, definitions) for a in args]}


def schema_text() -> str:
    """Formats the schema as the file has it."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(schema_text(), encoding="utf-8")
