# pyright: basic
"""Figures of the sources as a house: lines, circles of imports, rooms, floors and arrows; CSE on many constants; bodies of commits.

python -m benchmarks.structure             # of this checkout
python -m benchmarks.structure 8dc7ec0     # of a commit
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Container, Generator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEW = (  # what 8dc7ec0 had nothing of
    "populus.proof", "populus.exploration", "populus.jax", "populus.dialects.stablehlo", "populus.lowering.stablehlo",
    "populus.runtime.cycles.mesh", "populus.dialects.poplar.machines.n150", "populus.dialects.poplar.machines.p150",
    "populus.runtime.engine.native.frozen.web", "populus.runtime.engine.native.frozen.wasm_",
)  # fmt: skip
PARTS = ("dialects", "lowering", "runtime", "tools")  # packages of populus that lie beside it
COUNT = """
import sys

def counted(call):
    count = 0
    def seen(frame, event, argument):
        nonlocal count
        count += event == "call"
    sys.setprofile(seen)
    call()
    sys.setprofile(None)
    return count
"""
CONSTANTS = (500, 1000, 2000, 4000, 8000)
CSE = """
import numpy as np
from xdsl.dialects.builtin import ModuleOp
from populus.dialects.data import constant
from populus.dialects.table import context
from populus.lowering.popart.cse import PopartCsePass
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

def calls(n):
    ops = [constant(np.arange(i, 1024 + i, dtype=np.float32)) for i in range(n)]
    body = Block([*ops, ReturnOp(*(op.results[0] for op in ops))])
    module = ModuleOp([FuncOp("main", ([], [op.results[0].type for op in ops]), Region(body))])
    return counted(lambda: PopartCsePass().apply(context(), module))

calls(1)
print(*(round(calls(int(n)) / int(n)) for n in sys.argv[1:]))
"""
CHAINS = (500, 2000, 8000, 20000)
CHAIN = """
import populus
from onnx import TensorProto, helper

def calls(n):
    nodes = [helper.make_node(("Sin", "Tanh", "Abs", "Neg")[i % 4], [f"v{i}"], [f"v{i + 1}"]) for i in range(n)]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])] for name in ("v0", f"v{n}")]
    model = helper.make_model(helper.make_graph(nodes, "chain", *ends), opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return counted(lambda: populus.compile(model, engine="numpy", cache=False).module("poplar"))

calls(4)
print(*(round(calls(int(n)) / int(n)) for n in sys.argv[1:]))
"""


def modules(root: Path) -> dict[str, Path]:
    """Gives the files of the package by the names of their modules."""
    found: dict[str, Path] = {}
    for folder in ("populus", *PARTS):
        for path in (root / folder).rglob("*.py"):
            parts = (*(() if folder == "populus" else ("populus",)), *path.relative_to(root).with_suffix("").parts)
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imports(text: str, known: Container[str], types: bool = False) -> set[str]:
    """Lists the known modules that a file imports, at its top and inside of functions. `types`: also those for types alone."""
    found: set[str] = set()
    todo: list[ast.AST] = [ast.parse(text)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) and not types:
            todo += node.orelse
            continue
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {name if (name := f"{node.module}.{a.name}") in known else str(node.module) for a in node.names}
        todo += (c for c in ast.iter_child_nodes(node) if isinstance(c, ast.stmt | ast.excepthandler | ast.match_case))
    return {name for name in found if name in known}


def graph(root: Path, types: bool = False) -> dict[str, set[str]]:
    """Gives the modules that each module imports."""
    known = modules(root)
    return {name: imports(path.read_text(), known, types) - {name} for name, path in known.items()}


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Lists the largest sets of modules each of which leads to every other."""
    backward: dict[str, set[str]] = {name: set() for name in graph}
    left = {name: set(others) for name, others in graph.items()}
    for name, others in graph.items():
        for other in others:
            backward[other].add(name)
    ends = [name for name in graph if not left[name] or not backward[name]]
    while ends:  # what leads nowhere, or is reached from nowhere, is in no circle
        name = ends.pop()
        if name not in left:
            continue
        for others in (backward, left):
            for other in list(others[name]):
                (left if others is backward else backward)[other].discard(name)
                if not left[other] or not backward[other]:
                    ends.append(other)
        del left[name], backward[name]
    found: list[set[str]] = []
    while left:
        one = next(iter(left))
        circle = reached(one, left) & reached(one, backward)
        for name in circle:
            for others in (left, backward):
                for other in others:
                    others[other].discard(name)
        for name in circle:
            del left[name], backward[name]
        if len(circle) > 1:
            found.append(circle)
    return found


def reached(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    """Lists what a module leads to, and itself."""
    seen, todo = {start}, [start]
    while todo:
        new = edges[todo.pop()] - seen
        seen |= new
        todo += new
    return seen


def rooms(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Gives the members of populus, files and folders, and which others each imports."""
    found: dict[str, set[str]] = {}
    for name, others in graph.items():
        if name != "populus":
            room = name.split(".")[1]
            found.setdefault(room, set()).update(o.split(".")[1] for o in others if o != "populus" and o.split(".")[1] != room)
    return found


def floors(rooms: Mapping[str, set[str]]) -> int:
    """Counts the rooms of the longest way down; those of a circle are on one floor."""
    of = {room: frozenset(c) for c in circles(rooms) for room in c}
    group = {room: of.get(room, frozenset([room])) for room in rooms}
    below = {g: {group[o] for r in g for o in rooms[r]} - {g} for g in set(group.values())}
    depth: dict[frozenset[str], int] = {}

    def down(g: frozenset[str]) -> int:
        if g not in depth:
            depth[g] = 1 + max((down(b) for b in below[g]), default=0)
        return depth[g]

    return max(map(down, below))


def calls_each(script: str, sizes: Sequence[int], root: Path, folder: Path) -> str:
    """Counts the calls of Python functions that a script makes in a tree, for each of some numbers of constants or ops."""
    view = folder / "view" / "populus"
    if not view.exists():
        view.mkdir(parents=True)
        for path in (*(p for p in (root / "populus").iterdir() if p.name not in PARTS), *(root / part for part in PARTS)):
            (view / path.name).symlink_to(path)
    command = [sys.executable, "-c", COUNT + script, *map(str, sizes)]
    ran = subprocess.run(command, cwd=view, env={"PYTHONPATH": str(view.parent)}, capture_output=True, text=True, check=False)
    return ran.stdout.strip() or ran.stderr.strip().splitlines()[-1]


def listed(sizes: Sequence[int]) -> str:
    return ", ".join(f"{n:,}" for n in sizes)


def figures(root: Path, folder: Path) -> dict[str, str]:
    """Counts all figures of a tree."""
    running, all_ = graph(root), graph(root, types=True)
    of = rooms(all_)
    lines = {n: len(p.read_text().splitlines()) for n, p in modules(root).items() if not n.startswith("populus.tools")}
    return {
        "lines of dialects, lowering, runtime and populus": f"{sum(lines.values()):,}",
        "of these, of proofs, StableHLO, exploration, meshes and the web": f"{sum(n for m, n in lines.items() if m.startswith(NEW)):,}",
        "circles of imports that run": str(len(circles(running))),
        "circles, types counted": f"{len(found := circles(all_))} of {sum(map(len, found))} files",
        "rooms, floors, arrows of populus": f"{len(of)}, {floors(of)}, {sum(map(len, of.values()))}",
        f"calls of popart-cse for each of {listed(CONSTANTS)} constants": calls_each(CSE, CONSTANTS, root, folder),
        f"calls of compile for each op of chains of {listed(CHAINS)}": calls_each(CHAIN, CHAINS, root, folder),
    }


def commits(range: str) -> str:
    """Counts commits whose subject is longer than 72 characters, or that have no body."""
    text = subprocess.run(["git", "log", "--format=%s%x00%b%x01", range], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    pairs = [entry.strip("\n").split("\0") for entry in text.split("\1") if "\0" in entry]
    bad = sum(len(subject) > 72 or not body.strip() for subject, body in pairs)
    return f"{bad} of {len(pairs)}"


@contextmanager
def unpacked(commit: str | None) -> Generator[Path, None, None]:
    """Yields the folder of a commit's files, or that of this checkout."""
    if commit is None:
        yield ROOT
        return
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as name, tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(name, filter="data")
        yield Path(name)


def main(arguments: list[str]) -> None:
    commit = arguments[0] if arguments else None
    range = commit or "8dc7ec0..HEAD"
    with unpacked(commit) as root, tempfile.TemporaryDirectory() as folder:
        found = {**figures(root, Path(folder)), f"subjects over 72 or without a body, {range}": commits(range)}
    print(*(f"| {what} | {count} |" for what, count in found.items()), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
