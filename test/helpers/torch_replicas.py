"""A small net of PyTorch, trained by replicas of `poptorch`; also a program that `mpiexec` runs.

mpiexec -n 2 python test/helpers/torch_replicas.py '{"replicas": 4}' '{..}'
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from populus import poptorch
from populus.runtime.ranks import digest_of, world

poptorch.PoplarExecutor.MACHINE = replace(poptorch.PoplarExecutor.MACHINE, tiles=4, engine="numpy")
BATCH = 6


class Net(torch.nn.Module):
    """A layer, a batch norm if asked for, a dropout if asked for, a layer, and a loss."""

    def __init__(self, norm: bool = False, dropout: float = 0.0):
        super().__init__()
        self.first, self.last = torch.nn.Linear(5, 8), torch.nn.Linear(8, 3)
        self.norm = torch.nn.BatchNorm1d(8) if norm else torch.nn.Identity()
        self.drop = torch.nn.Dropout(dropout) if dropout else torch.nn.Identity()

    def forward(self, x, labels):
        y = self.last(self.drop(torch.tanh(self.norm(self.first(x)))))
        return y, torch.nn.functional.cross_entropy(y, labels)


OPTIMIZERS = {
    "momentum": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9),
    "adam": lambda m: torch.optim.Adam(m.parameters(), lr=0.01),
}


def data(count):
    """Gives samples and their classes."""
    g = torch.Generator().manual_seed(1)
    return torch.randn(count, 5, generator=g), torch.randint(0, 3, (count,), generator=g)


def net(norm=False, dropout=0.0):
    """Gives the same net each time."""
    torch.manual_seed(0)
    return Net(norm, dropout).train()


def trained(replicas=1, parts=1, iterations=1, calls=4, kind="Mean", optimizer="momentum", mode="All", norm=False, dropout=0.0, clip=None):
    """Trains for so many calls; gives all losses, and the module's tensors by name. `clip`: the largest norm of the gradients."""
    module = net(norm, dropout)
    options = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas).randomSeed(7)
    options.outputMode(getattr(poptorch.OutputMode, mode))
    options.Training.gradientAccumulation(parts)
    options.Training.accumulationAndReplicationReductionType(getattr(poptorch.ReductionType, kind))
    made = OPTIMIZERS[optimizer](module)
    if clip is not None:
        made = poptorch.optim.AdamW(module.parameters(), lr=0.01, max_grad_norm=clip)
    model, every = poptorch.trainingModel(module, options, made), BATCH * parts * iterations * replicas
    x, labels = data(every * calls)
    losses = [model(x[k : k + every], labels[k : k + every])[1].reshape(-1) for k in range(0, len(x), every)]
    return torch.cat(losses), module.state_dict()


def digest(losses, tensors):
    """Gives a text that is the same for the same bits."""
    return digest_of({"losses": losses.numpy(), **{name: tensor.numpy() for name, tensor in tensors.items()}})


if __name__ == "__main__":
    for text in sys.argv[1:]:
        found = digest(*trained(**json.loads(text)))
        if world().rank == 0:
            print(found, flush=True)
