"""Checkpoints: a file that is not what was written is never taken for one."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from populus import checkpoint as checkpoints
from populus.dialects.support.diagnostics import PopulusError


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
