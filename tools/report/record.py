"""`profile.json`: the data of `Program.profile()` and the IR of every level, of the types of `record_types`."""

from __future__ import annotations

import json
import os
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import fields
from hashlib import file_digest, sha256
from importlib import metadata
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from populus.dialects.poplar import CallOp, FuncOp, GraphOp, StorageOp
from populus.dialects.support.call_places import names_in
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import size_in_bytes
from populus.dialects.support.errors import printable
from populus.lowering.driver.content_hash import content_hash
from populus.lowering.driver.files import decode, read_bytes
from populus.runtime.bounds import bound_of
from populus.runtime.memory import Bytes, Tenant, label_of, layout, tenants
from populus.tools.report.ir import ir_by_place
from populus.tools.report.record_types import SCHEMA, VERSION, Category, Live, Node, Op, Record, Step, TileBytes, Variable
from populus.tools.report.record_types import Memory as MemoryRecord

if TYPE_CHECKING:
    from populus.program.program import Program
    from populus.runtime.profile import Profile, ProfiledStep

LARGEST_FILE = 1 << 30  # largest number of bytes of a profile to read


def record(program: Program, title: str) -> Record:
    """Records the profile of a compiled program. Raises PopulusError for a program that is not at the poplar level."""
    profile = program.profile()
    graph = graph_of(program.module("poplar"))
    found, steps = tenants(graph)
    machine: dict[str, Any] = {f.name: getattr(profile.target, f.name) for f in fields(profile.target)}
    memory = memory_record(found, len(steps), profile)
    ir, shared = ir_by_place(program)
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "made_by": f"populus {version()}",
        "title": printable(title),
        "model_hash": model_hash(program),
        "pipeline": str(program.pipeline).splitlines(),
        "target": {name: value for name, value in machine.items() if isinstance(value, int | float | str)},
        "summary": profile.summary,
        "ops": _ops(profile.steps),
        "steps": _steps(profile.steps, steps, memory["curve"]),
        "memory": memory,
        "balance": {"compute": runs(profile.tile_cycles), "received": runs(profile.tile_received)},
        "variables": [_variable(t, graph.machine.tiles) for t in found],
        "tree": _tree(graph, profile.steps),
        "ir": ir,
        "shared": shared,
    }


def version() -> str:
    """Gives the installed version, or `unknown` if Populus runs without being installed."""
    try:
        return metadata.version("populus-tiles")
    except metadata.PackageNotFoundError:
        return "unknown"


def model_hash(program: Program) -> str:
    """Computes the SHA-256 of the model's file, or of the content of a model that is no file."""
    model = program.source.model
    if isinstance(model, ModuleOp):
        return content_hash(model)
    if isinstance(model, str | os.PathLike):
        with Path(model).open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    return sha256(model.SerializeToString(deterministic=True)).hexdigest()


def graph_of(module: ModuleOp) -> GraphOp:
    """Gives the graph of a tile program."""
    (graph,) = (op for op in module.body.block.ops if isinstance(op, GraphOp))
    return graph


def text_of(data: Mapping[str, object] | Sequence[Mapping[str, object]]) -> str:
    """Formats a record, or several, as the text of a profile.json."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False) + "\n"


def read(path: str | os.PathLike[str]) -> Record:
    """Reads a profile.json. Raises PopulusError for other files and other schema versions."""
    name = os.fspath(path)
    if Path(path).exists() and Path(path).stat().st_size > LARGEST_FILE:
        raise PopulusError(f"{name}: {Path(path).stat().st_size} bytes; a profile has at most {LARGEST_FILE}")
    try:
        found: object = json.loads(decode(read_bytes(path), name))
    except (ValueError, RecursionError) as error:  # also a number of too many digits
        raise PopulusError(f"{name}: not a profile: {error}; `populus profile MODEL --json FILE` writes one") from error
    data = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if data.get("schema") != SCHEMA:
        raise PopulusError(f"{name}: JSON, but not a profile; `populus profile MODEL --json FILE` writes one")
    if data.get("version") != VERSION:
        raise PopulusError(f"{name}: a profile of schema version {data.get('version')}, this is version {VERSION}; profile the model again")
    if missing := [key for key in ("title", "summary", "ops", "steps", "memory", "target") if key not in data]:
        raise PopulusError(f"{name}: a profile without '{missing[0]}'; the file is damaged, profile the model again")
    return cast("Record", data)


def memory_record(found: Sequence[Tenant], steps: int, profile: Profile) -> MemoryRecord:
    """Records bytes of tile memory: per tile at its own peak and at the program's peak, and step by step. O(tenants x tiles)."""
    tiles = profile.target.tiles
    coming: list[list[Tenant]] = [[] for _ in range(steps + 1)]
    going: list[list[Tenant]] = [[] for _ in range(steps + 1)]
    for tenant in found:
        for first, last in tenant.spans:
            coming[first].append(tenant)
            going[min(last + 1, steps)].append(tenant)
    now = {category: np.zeros(tiles, np.int64) for category in CATEGORIES}
    highest = np.zeros(tiles, np.int64)
    curve: list[Live] = []
    peak: dict[str, Bytes] = {}
    for i in range(max(steps, 1)):
        for tenant in going[i]:
            tenant.add_to(now[category_of(tenant)], -1)
        for tenant in coming[i]:
            tenant.add_to(now[category_of(tenant)])
        total = sum(now.values(), np.zeros(tiles, np.int64))
        highest = np.maximum(highest, total)
        curve.append(cast("Live", {"fullest": int(total.max()), **{name: int(bytes.sum()) for name, bytes in now.items()}}))
        if i == profile.memory.step:
            peak = {category: bytes.copy() for category, bytes in now.items()}
    return {
        "limit": profile.target.room,
        "peak": profile.memory.peak_bytes,
        "tile": profile.memory.tile,
        "step": profile.memory.step,
        "label": profile.memory.label,
        "largest": [{"label": label, "bytes": bytes} for label, bytes in profile.memory.largest],
        "tiles": cast("TileBytes", {"highest": runs(highest), **{category: runs(bytes) for category, bytes in peak.items()}}),
        "curve": curve,
    }


CATEGORIES: tuple[Category, ...] = ("constants", "variables", "exchanged")


def category_of(tenant: Tenant) -> Category:
    """Classifies a tenant: constant, variable, or copy received from other tiles."""
    if not isinstance(tenant.op, StorageOp):
        return "exchanged"
    return "constants" if tenant.is_constant else "variables"


def runs(bytes: Bytes) -> list[list[int]]:
    """Compresses values to runs: [value, count] for each run of equal values."""
    if not len(bytes):
        return []
    starts = np.concatenate([[0], np.nonzero(np.diff(bytes))[0] + 1])
    lengths = np.diff(np.concatenate([starts, [len(bytes)]]))
    return [[int(bytes[start]), int(n)] for start, n in zip(starts, lengths)]


def _ops(steps: Sequence[ProfiledStep]) -> list[Op]:
    """Sums the steps of each op of the model, the most expensive first."""
    ops: dict[str, dict[str, Any]] = {}
    for number, step in enumerate(steps):
        zero: dict[str, Any] = {"name": step.place, "places": names_in(step.location), "steps": [], **dict.fromkeys(SUMS, 0)}
        entry = ops.setdefault(step.place, zero)
        entry["steps"].append(number)
        for name in SUMS:
            entry[name] += getattr(step, name) * step.count
        if step.hidden:
            entry["hidden"] = entry.get("hidden", 0) + step.hidden * step.count
    return cast("list[Op]", sorted(ops.values(), key=lambda entry: -entry["cycles"]))


SUMS = ("cycles", "compute", "exchange", "sync", "bytes", "host_bytes", "flops", "vertices")


def _steps(steps: Sequence[ProfiledStep], live: Sequence[Operation], curve: Sequence[Live]) -> list[Step]:
    """Lists the steps in execution order. `live`: the op of each entry of the memory curve."""
    at: dict[Operation, deque[int]] = {}
    for i, op in enumerate(live):
        at.setdefault(op, deque()).append(i)
    records: list[Step] = []
    for step in steps:
        entry: dict[str, Any] = {name: getattr(step, name) for name in ("label", "place", "kind", "count", "call", *SUMS)}
        entry["codelets"] = list(step.codelets)
        if step.hidden:
            entry["hidden"] = step.hidden
        if step.kind == "execute":
            entry["bound"], least = bound_of(step)
            entry["bound_cycles"] = round(least)
        if step.kind == "collective":
            entry["waits"] = step.waits
        if step.guessed:
            entry["guessed"] = True
        places = at.get(step.op)
        entry["live"] = places.popleft() if places else None
        entry["tile_bytes"] = curve[entry["live"]]["fullest"] if entry["live"] is not None else None
        records.append(cast("Step", entry))
    return records


def _variable(tenant: Tenant, tiles: int) -> Variable:
    entry: Variable = {
        "label": tenant.label,
        "place": where(tenant.op),
        "category": category_of(tenant),
        "largest": tenant.largest,
        "bytes": int(tenant.bytes.sum()),
        "spans": [list(span) for span in tenant.spans],
    }
    if isinstance(tenant.op, StorageOp):
        grid = layout(tenant.op)
        copies = [-d for d in grid.order if d < 0]  # each is shown as an additional dimension
        numbers = count(len(grid.splits))
        entry["type"] = f"{'x'.join(map(str, tenant.op.type.shape)) or 'scalar'} {tenant.op.type.element}"
        entry["address"] = None if tenant.op.address is None else tenant.op.address.value.data
        entry["layout"] = {
            "text": str(grid),
            "splits": [*([s.n, s.parts, s.grain] for s in grid.splits), *([n, n, 1] for n in copies)],
            "order": [d if d >= 0 else next(numbers) for d in grid.order],
            "start": grid.start % tiles,
            "element_bytes": size_in_bytes(tenant.op.type.element),
        }
    return entry


def _tree(graph: GraphOp, steps: Sequence[ProfiledStep]) -> list[Node]:
    """Builds the control tree: blocks of steps, each step by its number. Variables and views are left out."""
    calls = Counter(op.callee.data for op in graph.walk() if isinstance(op, CallOp))
    at: dict[Operation, int] = {}
    for i, step in enumerate(steps):
        at.setdefault(step.op, i)

    def node(op: Operation) -> Node | None:
        if op in at:
            return {"op": op.name, "step": at[op]}
        if not op.regions:
            return None
        entry: Node = {"op": op.name, "label": label_of(op), "place": where(op)}
        if isinstance(op, FuncOp):
            times = calls[op.sym_name.data]
            entry["label"] = f"@{op.sym_name.data}, called {times} times; of the first call:" if times != 1 else f"@{op.sym_name.data}"
        entry["blocks"] = [[child for inner in region.block.ops if (child := node(inner))] for region in op.regions]
        return entry

    return [entry for op in graph.body.block.ops if (entry := node(op))]
