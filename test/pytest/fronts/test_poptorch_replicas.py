"""Replicas of `poptorch` models: the bits of one replica that accumulates, and of ranks; how data and results are dealt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.ranks import mpiexec, needs_mpi

torch = pytest.importorskip("torch", reason="needs torch, which is optional")
poptorch = pytest.importorskip("populus.poptorch", reason="needs onnxscript, as torch.onnx does", exc_type=ImportError)
torch_replicas = pytest.importorskip("helpers.torch_replicas", exc_type=ImportError)
BATCH, data, digest, net, trained = (getattr(torch_replicas, n) for n in ("BATCH", "data", "digest", "net", "trained"))

PROGRAM = Path(__file__).parents[2] / "helpers/torch_replicas.py"


@pytest.mark.parametrize("kind", ["Mean", "Sum"])
@pytest.mark.parametrize(("replicas", "parts"), [(2, 1), (4, 1), (2, 3)])
def test_replicas_learn_to_the_bits_of_one_that_accumulates_their_batches(replicas, parts, kind):
    if parts > 1:  # each replica adds its own batches first, so the sums have another order
        many, one = trained(replicas, parts, kind=kind), trained(1, parts * replicas, kind=kind)
        torch.testing.assert_close(many[0], one[0], rtol=1e-5, atol=1e-6)
        return
    assert digest(*trained(replicas, kind=kind)) == digest(*trained(1, replicas, kind=kind))


def test_a_mean_of_two_replicas_is_a_step_of_torch_on_all_their_samples():
    losses, tensors = trained(2, iterations=3)
    module = net()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    x, labels = data(24 * BATCH)
    for k in range(0, len(x), 2 * BATCH):
        parts = [module(x[j : j + BATCH], labels[j : j + BATCH])[1] for j in (k, k + BATCH)]
        torch.testing.assert_close(losses[k // BATCH : k // BATCH + 2], torch.stack(parts), rtol=1e-5, atol=1e-6)
        optimizer.zero_grad()
        (sum(parts) / 2).backward()
        optimizer.step()
    torch.testing.assert_close(tensors, module.state_dict(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("mode", "rows"), [("All", [0, 1, 2, 3, 4, 5, 6, 7]), ("Final", [6, 7]), ("Sum", None)])
def test_results_have_a_row_for_each_replica(mode, rows):
    module, options = net().eval(), poptorch.Options().deviceIterations(4).replicationFactor(2)
    options.outputMode(getattr(poptorch.OutputMode, mode))
    x, labels = data(8 * BATCH)
    y, loss = poptorch.inferenceModel(module, options)(x, labels)
    each = [module(x[k * BATCH : (k + 1) * BATCH], labels[k * BATCH : (k + 1) * BATCH]) for k in range(8)]
    wanted = [[e[i] for e in each] for i in (0, 1)]
    if rows is None:
        wanted = [[sum(of[0::2]), sum(of[1::2])] for of in wanted]
    else:
        wanted = [[of[k] for k in rows] for of in wanted]
    torch.testing.assert_close(y, torch.cat(wanted[0]), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(loss, torch.stack(wanted[1]), rtol=1e-5, atol=1e-5)


def test_the_statistics_of_a_batch_norm_are_those_of_the_first_replica():
    _, tensors = trained(2, calls=1, norm=True)
    x, _ = data(2 * BATCH)
    mean = net(norm=True).first(x[:BATCH]).mean(0)
    torch.testing.assert_close(tensors["norm.running_mean"], 0.1 * mean.detach(), rtol=1e-5, atol=1e-6)


def test_replicas_draw_numbers_of_their_own():
    options = poptorch.Options().replicationFactor(2).randomSeed(3).outputMode(poptorch.OutputMode.All)
    model = poptorch.trainingModel(torch.nn.Sequential(Kept()), options, torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1))
    y, _ = model(torch.ones(2 * 64))
    assert set(y.tolist()) == {0.0, 2.0}
    assert not torch.equal(y[:64], y[64:])


class Kept(torch.nn.Module):
    """A dropout of its input, and a loss."""

    def forward(self, x):
        y = torch.nn.functional.dropout(x, 0.5)
        return y, poptorch.identity_loss(y, reduction="sum")


def test_a_loader_reads_the_samples_of_all_replicas():
    options = poptorch.Options().deviceIterations(2).replicationFactor(4)
    loader = poptorch.DataLoader(options, torch.utils.data.TensorDataset(*data(96)), batch_size=3)
    assert loader.combinedBatchSize == 24
    assert [len(x) for x, _ in loader] == [24] * 4


@needs_mpi
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_have_the_bits_of_one_process(ranks):
    options = [
        {"replicas": 4, "optimizer": "adam", "iterations": 2, "norm": True},
        {"replicas": 4, "parts": 2, "dropout": 0.25, "mode": "Final"},
        {"replicas": 4, "clip": 0.05, "kind": "Sum"},
    ]
    found = mpiexec(ranks, PROGRAM, *map(json.dumps, options))
    assert found.stdout.split() == [digest(*trained(**o)) for o in options], found.stderr
