"""The example that trains: handwritten digits, a net from torch's exporter, and torch's losses from the same start."""

from __future__ import annotations

import csv
import runpy
from pathlib import Path

import numpy as np
import onnx
import pytest

import populus
from populus.training.epochs import train

FOLDER = Path(__file__).parents[2] / "examples/digits"
MODEL = FOLDER / "digits.onnx"
digits = runpy.run_path(str(FOLDER / "make.py"))["digits"]
with (FOLDER / "losses.csv").open() as file:
    LOSSES = list(csv.DictReader(file))
OPTIMIZERS = [name.removesuffix(" f32") for name in LOSSES[0] if name.endswith(" f32")]


def test_digits_are_learnt_to_98_percent(populus, tmp_path):
    runpy.run_path(str(FOLDER / "make.py"))["main"](tmp_path)
    where = [tmp_path / "digits.onnx", "--data", tmp_path / "train.npz", "--validate", tmp_path / "test.npz"]
    done = populus("train", *where, "--lr", 8e-3, "--schedule", "cosine", "--epochs", 10, "--plot", tmp_path / "curves.svg")
    assert (done.status, done.err) == (0, "")
    last = next(line for line in done.out.splitlines() if line.startswith("epoch 10/10"))
    assert float(last.rpartition("accuracy ")[2].rstrip("%")) >= 98
    assert "accuracy" in (tmp_path / "curves.svg").read_text()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_losses_of_100_steps_are_those_of_torch(optimizer):
    data, _ = digits()
    found = train(MODEL, data, optimizer=optimizer, batch=32, epochs=3, lr=1e-3 if optimizer == "rmsprop" else None).losses[:100]
    np.testing.assert_allclose(found, [float(row[f"{optimizer} f32"]) for row in LOSSES], atol=1e-5)


def test_the_net_of_the_package_recognises_98_percent_of_images_that_it_never_saw():
    _, test = digits()
    program = populus.compile(populus.net("digits"))
    shares = np.concatenate([program.run({"image": image[None]})["shares"] for image in test["x"]])
    assert (shares.argmax(1) == test["labels"]).mean() >= 0.98
    kept = np.load(populus.net("digits").with_name("images.npz"))
    images = (test["x"][:, 0] * 16).astype(np.uint8)
    assert kept["labels"].tolist() == list(range(10))
    assert all(any(np.array_equal(image, known) for known in images[test["labels"] == i]) for i, image in enumerate(kept["images"]))


def test_the_example_net_is_a_valid_model():
    onnx.checker.check_model(onnx.load(MODEL), full_check=True)
