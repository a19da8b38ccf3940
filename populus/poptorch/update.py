"""`Update`: new weights and optimizer states, as a program of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from populus.popart.optimizers import Optimizer
from populus.popart.reserved import GRADIENT, STEP
from populus.popart.updates import NEW, hyperparameters, states_of, update_model
from populus.program.compile import compile
from populus.torch_backend.step import Machine

if TYPE_CHECKING:
    from populus.program.source import Arrays


class Update:
    """A program of new weights and optimizer states, and these states."""

    def __init__(self, optimizer: Optimizer, weights: Arrays, machine: Machine):
        self.kind = _kind(optimizer)
        self.weights = tuple(weights)
        prefixes, _ = states_of(optimizer)
        self.state: Arrays = {
            prefix + name: np.zeros(() if prefix == STEP else array.shape, np.float32)
            for name, array in weights.items()
            for prefix in prefixes
        }
        model = update_model(optimizer, weights)
        self.program = compile(model, target=machine.target, tiles=machine.tiles, engine=machine.engine)

    def fits(self, optimizer: Optimizer) -> bool:
        """Tells whether another optimizer differs in numbers alone."""
        return _kind(optimizer) == self.kind

    def run(self, optimizer: Optimizer, weights: Arrays, gradients: Arrays, changes: Mapping[str, float]) -> Arrays:
        """Gives the new weights. `changes`: hyperparameters of this update alone, the same for all weights."""
        scalars = hyperparameters(optimizer, list(self.weights))
        for name, value in changes.items():
            scalars.update({f"{name}/{w}": np.array(value, np.float32) for w in self.weights if f"{name}/{w}" in scalars})
        given = {**{w: weights[w] for w in self.weights}, **{GRADIENT + w: gradients[w] for w in self.weights}}
        found = self.program.run({**given, **self.state, **scalars})
        self.state = {s: found[NEW + s] for s in self.state}
        return {w: found[NEW + w] for w in self.weights}


def _kind(optimizer: Optimizer) -> tuple[Any, ...]:
    return (type(optimizer), *(getattr(optimizer, n, None) for n in ("mode", "decay", "inside", "clips")), states_of(optimizer)[0])
