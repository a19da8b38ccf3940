"""The PopXL programs in `examples/popxl`, run as they are on all tiles of a GC200; the encoder layer against torch."""

from __future__ import annotations

import math
import re
import runpy
from pathlib import Path

import numpy as np
import pytest

import populus.popxl as popxl
from populus.aliases import installed

FOLDER = Path(__file__).parents[3] / "examples/popxl"


def losses(populus, program: str, page: Path, *options: str) -> list[float]:
    """Runs an example; gives the losses that it prints. Its page must be of 1,472 tiles."""
    done = populus("run-program", str(FOLDER / program), *options, "--profile", str(page))
    assert done.status == 0, done.err
    assert '"target":{"name":"gc200","tiles":1472,' in page.read_text()
    return [float(x) for x in re.findall(r"loss ([\d.]+)", done.out)]


def test_the_trainer_of_digits_learns(populus, tmp_path: Path):
    found = losses(populus, "mnist.py", tmp_path / "page.html", "--epochs", "2")
    assert found[1] < 0.6 < found[0]


def test_the_encoder_layer_learns(populus, tmp_path: Path):
    found = losses(populus, "bert.py", tmp_path / "page.html", "--steps", "30")
    assert len(found) == 3
    assert found[-1] < 2.0 < 3.0 < found[0]


def test_the_encoder_layer_trains_as_in_torch():
    torch = pytest.importorskip("torch", reason="torch is not among the packages of the tests")
    torch.set_num_threads(1)
    F = torch.nn.functional
    with installed():
        example = runpy.run_path(str(FOLDER / "bert.py"))
    c = example["Config"](dropout=0.0)
    ir, streams, out = example["program"](c)
    net = example["Bert"](c)
    tokens = popxl.TensorSpec((c.tokens,), popxl.int32)
    popxl.Ir().create_graph(net, tokens, popxl.TensorSpec((2,), popxl.uint32))
    W = {t.name: torch.tensor(a, requires_grad=True) for t, a in net.weights.arrays.items()}

    def linear(name: str, x):
        return x @ W[f"{name}_w"] + W[f"{name}_b"]

    def norm(name: str, x):
        return F.layer_norm(x, (c.hidden,), W[f"{name}_gain"], W[f"{name}_bias"])

    def heads(name: str, x):
        return linear(name, x).reshape(c.batch, c.sequence, c.heads, -1).permute(0, 2, 1, 3)

    def loss(rows: np.ndarray, labels: np.ndarray):
        x = W["embedding"][torch.tensor(rows).long()].reshape(c.batch, c.sequence, c.hidden) + W["positions"]
        x = norm("embedded", x.reshape(c.tokens, c.hidden))
        q, k, v = (heads(name, x) for name in ("query", "key", "value"))
        shares = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(c.hidden // c.heads), -1)
        x = norm("attended", x + linear("heads", (shares @ v).permute(0, 2, 1, 3).reshape(c.tokens, c.hidden)))
        x = norm("fed", x + linear("outer", F.gelu(linear("inner", x), approximate="tanh")))
        return F.cross_entropy(x @ W["embedding"].T, torch.tensor(labels).long(), ignore_index=-1)

    optimizer = torch.optim.Adam(W.values(), lr=c.rate, betas=(0.9, 0.99), eps=1e-8)
    rng, ours, theirs = np.random.default_rng(0), [], []
    with popxl.Session(ir, "cpu", tiles=1) as session:
        for _ in range(100):
            rows, labels = example["samples"](c, rng)
            ours.append(float(session.run(dict(zip(streams.values(), (rows, labels, np.zeros(2, np.uint32)))))[out]))
            optimizer.zero_grad()
            value = loss(rows, labels)
            value.backward()
            optimizer.step()
            theirs.append(value.item())
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
