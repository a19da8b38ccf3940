"""The example that trains: handwritten digits, where scikit-learn is installed; against torch's losses, where torch is."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from populus.training import train

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples/digits/make.py"))
digits, net = EXAMPLE["digits"], EXAMPLE["net"]


def test_digits_are_learnt_to_98_percent():
    pytest.importorskip("sklearn")
    data, held = digits()
    session = train(net(), data, lr=2e-3, batch=32, epochs=8, validate=held, schedule=lambda done: (1 + np.cos(np.pi * done)) / 2)
    assert session.validations[-1]["accuracy"] >= 0.98


def test_the_losses_of_100_steps_are_those_of_torch():
    torch = pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    f = torch.nn.functional
    data, _ = digits()
    made = net()
    w = {i.name: torch.tensor(numpy_helper.to_array(i).copy(), requires_grad=True) for i in made.graph.initializer}
    optimizer, expected = torch.optim.Adam(list(w.values()), lr=1e-3), []
    for step in range(100):
        epoch, i = divmod(step, len(data["x"]) // 32)
        rows = np.random.default_rng([0, epoch]).permutation(len(data["x"]))[i * 32 : (i + 1) * 32]
        h = f.relu(f.conv2d(torch.tensor(data["x"][rows]), w["conv1.weight"], w["conv1.bias"], padding=1))
        h = f.max_pool2d(f.relu(f.conv2d(h, w["conv2.weight"], w["conv2.bias"], padding=1)), 2).flatten(1)
        h = f.relu(h @ w["fc1.weight"].T + w["fc1.bias"]) @ w["fc2.weight"].T + w["fc2.bias"]
        loss = f.cross_entropy(h, torch.tensor(data["labels"][rows].astype(np.int64)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    found = train(made, data, lr=1e-3, batch=32, epochs=3).losses[:100]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_the_example_net_is_a_valid_model():
    onnx.checker.check_model(net(), full_check=True)
