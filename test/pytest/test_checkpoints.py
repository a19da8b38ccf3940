"""Checkpoints: a file that is not what was written is never taken for one."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.tensor_file import TYPES, write_tensors
from populus.training import checkpoint as checkpoints


def a_checkpoint() -> checkpoints.Checkpoint:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    return checkpoints.Checkpoint(3, {"weight:W": x, "state:W:m": x.astype(np.float16), "losses": np.ones(3)}, {"batch": 3}, [], {"lr": 1})


def test_a_checkpoint_with_another_byte_or_with_fewer_is_none(tmp_path):
    path = checkpoints.write(tmp_path, a_checkpoint())
    content = path.read_bytes()
    for i in range(len(content)):
        if i % 3 and i < len(content) - 120:  # tensors are the end of the file: each of their bytes
            continue
        path.write_bytes(content[:i] + bytes([content[i] ^ (1, 2, 32, 255)[i // 3 % 4]]) + content[i + 1 :])
        with pytest.raises(PopulusError, match="step-000000003.safetensors: a damaged checkpoint: |: not a checkpoint of populus train"):
            checkpoints.read(path)
        path.write_bytes(content[:i])
        with pytest.raises(PopulusError, match="step-000000003.safetensors: a damaged checkpoint: "):
            checkpoints.read(path)
    weight = content[:-1] + bytes([content[-1] ^ 128])
    path.write_bytes(weight)
    with pytest.raises(PopulusError, match="a damaged checkpoint: tensor '.*' differs from what was written"):
        checkpoints.read(path)


def test_a_checkpoint_from_before_there_were_checksums_is_read(tmp_path):
    saved, path = a_checkpoint(), tmp_path / "step-000000003.safetensors"
    about = {"step": 3, "settings": saved.settings, "validations": [], "progress": saved.progress}
    save_file(saved.tensors, path, {"populus": "1", "training": json.dumps(about)})
    found = checkpoints.read(path)
    assert (found.step, found.settings, found.progress) == (3, saved.settings, saved.progress)
    assert {name: a.tobytes() for name, a in found.tensors.items()} == {name: a.tobytes() for name, a in saved.tensors.items()}


def test_tensors_of_every_type_are_read_by_the_library_with_their_bytes(tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "all.safetensors"
    of = {name: dtype_named(name) for name in TYPES if name != "bool"}
    tensors = {name: rng.integers(0, 256, (3, 5 * dtype.itemsize), np.uint8).view(dtype) for name, dtype in of.items()}
    tensors |= {"bool": rng.random((2, 3)) > 0.5, "scalar ü": np.array(2.5), "none": np.empty((0, 4), np.int16)}
    tensors["turned"] = np.eye(3)[::-1].T
    for metadata in (None, {"populus": "é"}):
        with path.open("wb") as file:
            write_tensors(file, tensors, metadata)
        with safe_open(path, "numpy") as found:
            assert found.metadata() == metadata
            assert set(found.keys()) == set(tensors)
        content = path.read_bytes()
        entries = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        for name, array in tensors.items():
            begin, end = (8 + int.from_bytes(content[:8], "little") + at for at in entries[name]["data_offsets"])
            assert begin % array.itemsize == 0
            assert content[begin:end] == array.tobytes(), name
            assert entries[name]["shape"] == list(array.shape)
    plain = {name: array for name, array in tensors.items() if "float8" not in name and name != "bfloat16"}
    with path.open("wb") as file:
        write_tensors(file, plain)
    for name, array in load_file(path).items():
        assert (array.dtype, array.shape, array.tobytes()) == (plain[name].dtype, plain[name].shape, plain[name].tobytes())


def dtype_named(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, None) or name)
