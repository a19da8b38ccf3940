"""Gradients of models that torch exported, by both of its exporters, agree with torch's own in f64."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.torch_gradients import FOLDER, problems

MODELS = sorted(FOLDER.glob("*.onnx"))


def test_the_models_are_there():
    assert len(MODELS) >= 90


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_every_gradient_is_that_of_torch(path: Path):
    """What the older exporter wrote, on tiles; what the newer one wrote, by the library calls, to spare CI the time."""
    assert problems(path, level="poplar" if "-script-" in path.stem else "popops", engine="numpy") == []
