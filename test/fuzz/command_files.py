"""Mutated files of newer commands: plans, technologies, logs of explorations, reproducers, programs that are kept. A part of `files`."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
from onnx import ModelProto, helper, numpy_helper

import populus
from fuzz.file_mutations import bytes_changed, text_changed
from populus.dialects.table import context
from populus.exploration.log import Log
from populus.exploration.technology import FILE, technology
from populus.lowering.driver.files import parse_text
from populus.lowering.driver.pipeline import Pipeline
from populus.program import ready
from populus.tools.reproducer import pipeline_of, without_resource, write_reproducer

KEY, HEAD = "fuzz", {"explore": 1, "key": "fuzz"}


def _either(content: bytes, rng: random.Random) -> bytes:
    return bytes_changed(content, rng) if rng.random() < 0.3 else text_changed(content, rng)


@lru_cache(None)
def _model() -> ModelProto:
    g, info = np.random.default_rng(0), helper.make_tensor_value_info
    held = [numpy_helper.from_array(g.standard_normal(shape).astype(np.float32), n) for n, shape in (("k", (8, 4, 3, 3)), ("w", (8, 8)))]
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], name="conv1"),
        helper.make_node("GlobalMaxPool", ["c"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["y"], name="fc1"),
    ]
    graph = helper.make_graph(nodes, "g", [info("x", 1, [1, 4, 8, 8])], [info("y", 1, [1, 8])], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@lru_cache(None)
def _plans() -> bytes:
    return populus.compile(_model(), target="gc200", tiles=4, engine="numpy").plans().encode()


def _read_plan(path: Path) -> None:
    program = populus.compile(_model(), target="gc200", tiles=4, engine="numpy", plan=path)
    inputs = program.signature.random(0)
    got, right = program.run(inputs)["y"], populus.compile(_model(), tiles=1, engine="numpy").run(inputs)["y"]
    assert np.allclose(got, right, atol=1e-4), "a plan changes what is computed"


@lru_cache(None)
def _technology() -> bytes:
    return json.dumps({"mine": json.loads(FILE.read_text())["7nm"]}).encode()


def _changed_technology(rng: random.Random) -> bytes:
    """Changes a place anywhere in the file, not at its beginning alone."""
    content = _technology()
    at = rng.randrange(len(content))
    return content[:at] + _either(content[at:], rng)


def _read_technology(path: Path) -> None:
    found = technology(path.rename(path.with_suffix(".json")))
    for bound in (found, found.bounded(True), found.bounded(False)):
        assert bound.sram_byte(1 << 19) > 0 and json.dumps(bound.record())


@lru_cache(None)
def _log() -> bytes:
    points = ({"point": i, "measures": {"cycles": 100 * i}} for i in range(4))
    return "".join(json.dumps(line) + "\n" for line in (HEAD, *points)).encode()


def _read_log(path: Path) -> None:
    log = Log(path, KEY, True)
    log.add({"point": 9, "why": "it is large"})
    log.close()
    assert 9 in Log(path, KEY, True).found, "a log that was read cannot be read again"


@lru_cache(None)
def _reproducer() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.mlir"
        module = populus.compile(_model(), target="gc200", tiles=4, level="popart").module("popart")
        write_reproducer(module, Pipeline.from_text("popart-to-popops,popops-fuse"), str(path))
        return path.read_bytes()


def _changed_reproducer(rng: random.Random) -> bytes:
    content = _reproducer()
    at = rng.choice([0, content.rindex(b"{-#")])
    return content[:at] + _either(content[at:], rng)


def _read_reproducer(path: Path) -> None:
    path = path.rename(path.with_suffix(".mlir"))
    passes = Pipeline.from_text(pipeline_of(str(path)))
    module, ctx = parse_text(context(), without_resource(path.read_text(errors="replace")), path.name), context()
    for step in passes.passes:
        step.apply(ctx, module)


@lru_cache(None)
def _kept() -> dict[str, bytes]:
    """Gives the files of a kept program by their endings."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "m.onnx"
        _keep(model, Path(folder) / "cache")
        return {path.suffix: path.read_bytes() for path in (Path(folder) / "cache").iterdir() if path.is_file()}


def _keep(model: Path, cache: Path) -> None:
    onnx.save(_model(), model)
    with mock.patch.object(ready, "SETTLED", 0.0):  # a new file counts as old
        program = populus.compile(model, tiles=1, engine="native", threads=1, cache=cache)
        program.run(program.signature.random(0))
        ready.finish()


def _changed_kept(rng: random.Random) -> bytes:
    """Gives the ending of a file of a kept program, and the file changed."""
    suffix = rng.choice([s for s in _kept() if s in (".ready", ".code", ".bin")])
    return suffix.encode() + b"\n" + bytes_changed(_kept()[suffix], rng)


def _read_kept(path: Path) -> None:
    """Puts a changed file among those of a program that is kept: another process of this test then finds the program, or compiles."""
    suffix, _, content = path.read_bytes().partition(b"\n")
    model, cache = path.with_name("m.onnx"), path.with_name("cache")
    _keep(model, cache)
    [place] = [p for p in cache.iterdir() if p.suffix == suffix.decode()]
    whole = place.read_bytes()
    mode = place.stat().st_mode
    same = content == _kept()[suffix.decode()]
    place.write_bytes(whole if same else content)
    place.chmod(mode)
    program = populus.compile(model, tiles=1, engine="native", threads=1, cache=cache)
    inputs = program.signature.random(0)
    right = populus.compile(model, tiles=1, engine="native", threads=1, cache=False).run(inputs)["y"]
    assert program.run(inputs)["y"].tobytes() == right.tobytes(), "a damaged program is run"


KINDS: tuple[tuple[int, str, Callable[[random.Random], bytes], Callable[[Path], None]], ...] = (
    (1, ".plan", lambda rng: _either(_plans(), rng), _read_plan),
    (1, ".technology", _changed_technology, _read_technology),
    (1, ".log", lambda rng: _either(_log(), rng), _read_log),
    (1, ".reproducer", _changed_reproducer, _read_reproducer),
    (1, ".kept", _changed_kept, _read_kept),
)
"""Weight, suffix, the function that makes a content, the function that reads it."""
