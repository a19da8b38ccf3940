"""Mutated files: `make fuzz FUZZERS=files`. Models, arrays, weights, checkpoints, cached programs, profiles and pipelines.

A file either is refused in one line, or it is read. A model and a cached program that are read then run on guarded memory.
"""

from __future__ import annotations

import io
import json
import random
import tempfile
import zipfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import Message
from onnx import helper, numpy_helper

import populus
from fuzz import command_files
from fuzz.children import Outcome
from fuzz.file_mutations import INTEGERS, bytes_changed, text_changed
from fuzz.graphs import graph
from populus.dialects.data import TABLE, blobs_of, load_blobs, save_blobs
from populus.dialects.support.disk_cache import DiskCache, hash_of
from populus.dialects.support.tensor_file import write_tensors
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text, text_of
from populus.lowering.driver.passes import PASSES
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.driver.program_cache import MAGIC, ProgramCache, signature_module, size_and_header
from populus.runtime.session import Session
from populus.tools.arrays import read_arrays
from populus.tools.report import record
from populus.training import checkpoint

GRAPHS = 200
KEY = "0" * 64

# -- mutations of the fields of a message


def fields_changed(message: Message, rng: random.Random) -> None:
    """Changes one field of a message, or of one inside it."""
    inside = _messages(message)
    chosen: Any = rng.choice(inside)
    fields = [f for f, _ in chosen.ListFields()] if rng.random() < 0.8 else list(chosen.DESCRIPTOR.fields)
    if not fields:
        return
    field = rng.choice(fields)
    if rng.random() < 0.1:
        chosen.ClearField(field.name)
        return
    value: Any = getattr(chosen, field.name)
    if hasattr(value, "append") or hasattr(value, "add"):
        match rng.randrange(4):
            case 0 if len(value):
                del value[rng.randrange(len(value))]
            case 1 if len(value):
                value.append(value[rng.randrange(len(value))])
            case 2 if len(value) > 1:
                kept = list(value)
                rng.shuffle(kept)
                del value[:]
                value.extend(kept)
            case _ if field.type != field.TYPE_MESSAGE:
                if len(value) and rng.random() < 0.7:
                    value[rng.randrange(len(value))] = _scalar(field, value[0], rng, inside)
                else:
                    value.append(_scalar(field, None, rng, inside))
            case _:
                value.add()
    elif field.type == field.TYPE_MESSAGE:
        others = [m for m in inside if m.DESCRIPTOR is value.DESCRIPTOR]
        kept = type(value)()  # another may contain this one, and be written while it is read
        kept.CopyFrom(rng.choice(others)) if others else None
        value.CopyFrom(kept)
        value.SetInParent()
    else:
        setattr(chosen, field.name, _scalar(field, value, rng, inside))


def _messages(message: Message) -> list[Message]:
    found = [message]
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in value if hasattr(value, "add") else [value]:
                found += _messages(part)
    return found


def _scalar(field: Any, old: Any, rng: random.Random, inside: list[Message]) -> Any:
    """Draws a value that fits a field."""
    if field.type == field.TYPE_STRING:
        names = [v for m in inside for f, v in m.ListFields() if f.type == f.TYPE_STRING and isinstance(v, str)]
        return rng.choice(["", "x", "\0", "../x", "a" * 300, *names, *names])
    if field.type == field.TYPE_BYTES:
        return bytes_changed(old or b"1234", rng)
    if field.type == field.TYPE_ENUM:
        return rng.choice([v.number for v in field.enum_type.values])
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return rng.choice([0.0, -1.0, float("nan"), float("inf"), 1e38, 1e-45])
    return _fitting(field, rng)


def _fitting(field: Any, rng: random.Random) -> int:
    bits = 31 if field.type in (field.TYPE_INT32, field.TYPE_SINT32) else 63
    if field.type == field.TYPE_UINT64:
        return rng.choice([0, 1, 1 << 40, (1 << 64) - 1])
    least, most = -(1 << bits), (1 << bits) - 1
    return rng.choice([n for n in (*INTEGERS, 3, 4, 5, 9, 10, 11, 16, 17, 18) if least <= n <= most])


# -- files: each gives the content of a seed, and reads it


def _onnx(rng: random.Random) -> bytes:
    model = graph(rng.randrange(GRAPHS))
    if rng.random() < 0.3:
        return bytes_changed(model.SerializeToString(), rng)
    for _ in range(rng.choice([1, 1, 2, 3])):
        fields_changed(model, rng)
    return model.SerializeToString()


def _read_onnx(path: Path) -> None:
    program = populus.compile(path, tiles=4)
    program.run(program.signature.random(0))


@lru_cache(None)
def _arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    made = {"x": rng.standard_normal((3, 4)).astype(np.float32), "n": np.arange(7), "b": np.array(True), "s": np.array(["a", "bc"])}
    return {**made, "e": np.zeros((0, 3), np.float16), "f": np.asfortranarray(rng.standard_normal((5, 2)))}


def _npy(array: Any, rng: random.Random) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    content = stream.getvalue()
    match rng.randrange(4):
        case 0:
            return content
        case 1:
            return bytes_changed(content, rng)
        case _:
            return content[:10] + text_changed(content[10:], rng)


def _npz(rng: random.Random) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for name, array in _arrays().items():
            if rng.random() < 0.5 or name == "x":
                archive.writestr(rng.choice([f"{name}.npy", f"{name}.npy", name, "../x.npy"]), _npy(array, rng))
    return bytes_changed(stream.getvalue(), rng) if rng.random() < 0.4 else stream.getvalue()


@lru_cache(None)
def _identity() -> populus.Program:
    info = helper.make_tensor_value_info
    proto = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [info("x", 1, [3, 4])], [info("y", 1, [3, 4])])
    return populus.compile(helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)]), tiles=1, engine="numpy")


def _read_arrays(path: Path) -> None:
    _identity().run(read_arrays([str(path)], ["x"]))


def _pb(rng: random.Random) -> bytes:
    tensor = numpy_helper.from_array(rng.choice(list(_arrays().values())), "x")
    if rng.random() < 0.5:
        return bytes_changed(tensor.SerializeToString(), rng)
    fields_changed(tensor, rng)
    return tensor.SerializeToString()


def _safe(content: bytes, rng: random.Random) -> bytes:
    """Changes a file of safetensors: any bytes, or its header, whose length then fits."""
    if rng.random() < 0.3:
        return bytes_changed(content, rng)
    length = int.from_bytes(content[:8], "little")
    header = text_changed(content[8 : 8 + length], rng)
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


@lru_cache(None)
def _program(number: int = 3) -> tuple[str, bytes, str]:
    """Gives a tile program, its weights, and the text of its signature."""
    w = np.random.default_rng(number).standard_normal((16, 16)).astype(np.float32)
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    proto = helper.make_graph(nodes, "g", [info("x", 1, [4, 16])], [info("y", 1, [4, 16])], [numpy_helper.from_array(w, "w")])
    program = populus.compile(helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)]), tiles=4)
    module = program.module("poplar")
    with tempfile.TemporaryDirectory() as folder:
        save_blobs(blobs_of(module), Path(folder) / "w.safetensors")
        weights = (Path(folder) / "w.safetensors").read_bytes()
    return text_of(module, locations=True), weights, text_of(signature_module(program.module("popart")), locations=True)


def _weights(rng: random.Random) -> bytes:
    return _safe(_program()[1], rng)


def _read_weights(path: Path) -> None:
    blobs = load_blobs(path)
    session = Session(parse_text(context(), _program()[0], "program.mlir"), "numpy")
    session.run({"x": np.ones((4, 16), np.float32)})
    assert all(TABLE.key(handle) for handle in blobs)


@lru_cache(None)
def _checkpoint() -> bytes:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    made = checkpoint.Checkpoint(3, {"weight:W": x, "state:W:m": x.astype(np.float16), "losses": np.ones(3)}, {"batch": 3}, [], {"lr": 1})
    with tempfile.TemporaryDirectory() as folder:
        return checkpoint.write(folder, made).read_bytes()


def _read_checkpoint(path: Path) -> None:
    found = checkpoint.read(path)
    assert found.tensors["weight:W"].tobytes() == np.arange(12, dtype=np.float32).tobytes(), "a damaged tensor is taken for a whole one"


def _unsummed(rng: random.Random) -> bytes:
    """A checkpoint of the format without checksums, so that what it says is believed."""
    about = {"step": 3, "settings": {"batch": 3}, "validations": [], "progress": {}}
    file = io.BytesIO()  # not safetensors' own `save`, which orders the metadata anew in each call
    write_tensors(file, {"weight:W": np.ones((3, 4), np.float32)}, {"populus": "1", "training": json.dumps(about)})
    return _safe(file.getvalue(), rng)


def _read_unsummed(path: Path) -> None:
    checkpoint.read(path)


def _cached(rng: random.Random) -> bytes:
    """A cached program of which the text is changed, and then the hash is right; or any bytes are."""
    program, weights, signature = _program()
    with tempfile.NamedTemporaryFile() as file:
        file.write(weights)
        file.flush()
        stated = size_and_header(Path(file.name))
    text = f"{stated}\n{signature}// -----\n{program}".encode()
    if rng.random() < 0.7:
        at = rng.randrange(max(len(text) - 4000, 1))
        text = text[:at] + text_changed(text[at:], rng)
    whole = MAGIC + hash_of(f"{KEY}.program", text) + text
    return bytes_changed(whole, rng) if rng.random() < 0.4 else whole


def _read_cached(path: Path) -> None:
    path.parent.chmod(0o700)
    path.rename(path.with_name(f"{KEY}.program"))
    (path.parent / f"{KEY}.safetensors").write_bytes(_program()[1])
    found = ProgramCache(path.parent).get(context(), KEY)
    if found is not None:
        session = Session(found[0], "native")
        session.run({name: np.ones(shape, dtype) for name, (shape, dtype) in session.inputs.items()})


def _damaged(rng: random.Random) -> bytes:
    content = rng.randbytes(200)
    return bytes_changed(MAGIC + hash_of("mutated.object", content) + content, rng)


def _read_damaged(path: Path) -> None:
    path.parent.chmod(0o700)
    found = DiskCache(path.parent, MAGIC, 1 << 20).read(path.name)
    assert found is None or MAGIC + hash_of(path.name, found) + found == path.read_bytes(), "a damaged file is taken for a whole one"


@lru_cache(None)
def _profile() -> bytes:
    return json.dumps(record.record(_identity(), "neg")).encode()


def _json(rng: random.Random) -> bytes:
    return bytes_changed(_profile(), rng) if rng.random() < 0.3 else text_changed(_profile(), rng)


def _read_json(path: Path) -> None:
    record.read(path)


def _pipeline(rng: random.Random) -> bytes:
    text = str(Pipeline.named("inference")).encode()
    return bytes_changed(text, rng) if rng.random() < 0.3 else text_changed(text, rng)


def _read_pipeline(path: Path) -> None:
    str(Pipeline.read(str(path), PASSES))


KINDS: tuple[tuple[int, str, Callable[[random.Random], bytes], Callable[[Path], None]], ...] = (
    (8, ".onnx", _onnx, _read_onnx),
    (4, ".npz", _npz, _read_arrays),
    (2, ".pb", _pb, _read_arrays),
    (2, ".safetensors", _weights, _read_weights),
    (1, ".checkpoint", lambda rng: _safe(_checkpoint(), rng), _read_checkpoint),
    (1, ".checkpoint-1", _unsummed, _read_unsummed),
    (2, ".program", _cached, _read_cached),
    (1, ".object", _damaged, _read_damaged),
    (1, ".json", _json, _read_json),
    (1, ".txt", _pipeline, _read_pipeline),
    *command_files.KINDS,
)
"""Weight, suffix, the function that makes a content, the function that reads it."""


def case(seed: int) -> tuple[str, bytes, Callable[[Path], None]]:
    """Gives the suffix and content of a seed's file, and the function that reads it."""
    rng = random.Random(f"file {seed}")
    _, suffix, make, read = rng.choices(KINDS, [k[0] for k in KINDS])[0]
    return suffix, make(rng), read


def mutated(seed: int) -> bytes:
    """Gives the content of a seed's file."""
    return case(seed)[1]


def judge(seed: int) -> Outcome:
    """Reads the file of a seed. Raises PopulusError for one that is refused."""
    suffix, content, read = case(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"mutated{suffix}"
        path.write_bytes(content)
        try:
            read(path)
        except MemoryError:
            if suffix == ".onnx":
                raise  # a program may have inputs of any size within the limits
            return "failed", f"{suffix}: memory was taken for what a header says"
    return "read", suffix
