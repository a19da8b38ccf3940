"""Trains one encoder layer of BERT to fill in masked tokens, as a program of PopXL: attention, dropout, Adam.

populus run-program examples/popxl/bert.py [--steps 60] [--profile page.html]

A sequence has two tokens in turn, and a quarter of its tokens are masked; the layer learns to read them off the others.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

import numpy as np
import popxl
from popxl import ops


@dataclass(frozen=True)
class Config:
    """Sizes of the net, and options of training."""

    batch: int = 8
    sequence: int = 16
    hidden: int = 64
    heads: int = 4
    inner: int = 128
    vocabulary: int = 24  # the last token stands for a masked one
    dropout: float = 0.05
    rate: float = 5e-3

    @property
    def tokens(self) -> int:
        """The tokens of a batch."""
        return self.batch * self.sequence


class Weights:
    """Inputs of a graph with the arrays that they begin as."""

    def __init__(self, seed: int = 0):
        self._rng = np.random.default_rng(seed)
        self.arrays: dict[popxl.Tensor, np.ndarray] = {}

    def matrix(self, name: str, rows: int, columns: int, spread: float | None = None) -> popxl.Tensor:
        """Gives an input of random numbers."""
        return self._input(name, self._rng.normal(0, rows**-0.5 if spread is None else spread, (rows, columns)))

    def vector(self, name: str, size: int, value: float) -> popxl.Tensor:
        """Gives an input of equal numbers."""
        return self._input(name, np.full(size, value))

    def _input(self, name: str, array: np.ndarray) -> popxl.Tensor:
        made = popxl.graph_input(array.shape, popxl.float32, name)
        self.arrays[made] = array.astype(np.float32)
        return made


class Bert(popxl.Module):
    """Embeddings, one encoder layer, and the logits of each token by the transposed embeddings."""

    def __init__(self, config: Config):
        self.config, self.weights = config, Weights()

    def build(self, tokens: popxl.Tensor, seed: popxl.Tensor) -> popxl.Tensor:
        """Computes logits [tokens, vocabulary]."""
        c, seeds = self.config, ops.split_random_seed(seed, 3)
        table = self.weights.matrix("embedding", c.vocabulary, c.hidden, 0.1)
        places = self.weights.matrix("positions", c.sequence, c.hidden, 0.1)
        x = ops.gather(table, tokens).reshape((c.batch, c.sequence, c.hidden)) + places
        x = self.norm("embedded", ops.dropout(x.reshape((c.tokens, c.hidden)), seeds[0], c.dropout))
        x = self.norm("attended", x + ops.dropout(self.attention(x), seeds[1], c.dropout))
        inner = ops.gelu(self.linear("inner", x, c.inner))
        x = self.norm("fed", x + ops.dropout(self.linear("outer", inner, c.hidden), seeds[2], c.dropout))
        return x @ table.T

    def attention(self, x: popxl.Tensor) -> popxl.Tensor:
        """Computes `softmax(Q K^T / sqrt d) V` of each head, and a product of the heads."""
        c = self.config
        width = c.hidden // c.heads

        def heads(name: str) -> popxl.Tensor:
            return self.linear(name, x, c.hidden).reshape((c.batch, c.sequence, c.heads, width)).transpose((0, 2, 1, 3))

        queries, keys, values = heads("query"), heads("key"), heads("value")
        shares = ops.softmax(queries @ keys.transpose((0, 1, 3, 2)) * (1 / math.sqrt(width)), axis=-1)
        return self.linear("heads", (shares @ values).transpose((0, 2, 1, 3)).reshape((c.tokens, c.hidden)), c.hidden)

    def linear(self, name: str, x: popxl.Tensor, size: int) -> popxl.Tensor:
        """Computes `x W + b`."""
        return x @ self.weights.matrix(f"{name}_w", x.shape[-1], size) + self.weights.vector(f"{name}_b", size, 0)

    def norm(self, name: str, x: popxl.Tensor) -> popxl.Tensor:
        """Computes a layer norm."""
        size = x.shape[-1]
        return ops.layer_norm(x, self.weights.vector(f"{name}_gain", size, 1), self.weights.vector(f"{name}_bias", size, 0))


def adam(weight: popxl.Tensor, gradient: popxl.Tensor, step: popxl.Tensor, rate: float) -> None:
    """Updates a weight; `step` is the number of this step."""
    first, second = (popxl.variable(np.zeros(weight.shape, np.float32), name=f"{weight.name}_{n}") for n in ("m", "v"))
    ops.var_updates.accumulate_moving_average_(first, gradient, 0.9)
    ops.var_updates.accumulate_moving_average_square_(second, gradient, 0.99)
    update = ops.var_updates.adam_updater(first, second, time_step=step, beta1=0.9, beta2=0.99, epsilon=1e-8)
    ops.scaled_add_(weight, update, b=-rate)


def program(config: Config) -> tuple[popxl.Ir, dict[str, popxl.HostToDeviceStream], popxl.DeviceToHostStream]:
    """Builds a step of training: its streams of tokens, labels and seeds, and that of the loss."""
    ir, shape = popxl.Ir(), (config.tokens,)
    with ir.main_graph, popxl.in_sequence():
        streams = {name: popxl.h2d_stream(shape, popxl.int32, name) for name in ("tokens", "labels")}
        streams["seed"] = popxl.h2d_stream((2,), popxl.uint32, "seed")
        tokens, labels, seed = (ops.host_load(stream) for stream in streams.values())
        net = Bert(config)
        forward = ir.create_graph(net, tokens, seed)
        slots = net.weights.arrays
        backward = popxl.transforms.autodiff(forward, grads_required=slots)
        variables = {slot: popxl.variable(array, name=slot.name) for slot, array in slots.items()}
        called = ops.call_with_info(forward, tokens, seed, inputs_dict=variables)
        probabilities = ops.softmax(called.outputs[0], axis=-1)
        loss, gradient = ops.nll_loss_with_softmax_grad(probabilities, labels, ignore_index=-1)
        found = ops.call_with_info(backward.graph, gradient, inputs_dict=backward.inputs_dict(called))
        for weight, g in backward.fwd_parent_ins_to_grad_parent_outs(called, found).items():
            adam(weight, g, popxl.variable(0.0, name="step"), config.rate)
        out = popxl.d2h_stream(loss.shape, loss.dtype, "loss")
        ops.host_store(out, loss)
    return ir, streams, out


def samples(config: Config, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Gives tokens of which some are masked, and labels that are -1 for the others."""
    count = config.vocabulary - 1
    tokens = np.tile(rng.integers(0, count, (config.batch, 2)), config.sequence // 2)
    masked = rng.random(tokens.shape) < 0.25
    return np.where(masked, count, tokens).ravel().astype(np.int32), np.where(masked, tokens, -1).ravel().astype(np.int32)


def main() -> None:
    """Trains for some steps, and prints the mean losses of ten each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    config = Config()
    ir, streams, out = program(config)
    rng, losses = np.random.default_rng(0), list[float]()
    seeds = popxl.create_seeds(0, batches_per_step=options.steps)
    with popxl.Session(ir, "ipu_model") as session:
        for step in range(options.steps):
            tokens, labels = samples(config, rng)
            given = dict(zip(streams.values(), (tokens, labels, seeds[step])))
            losses.append(float(session.run(given)[out]))
            if len(losses) % 10 == 0:
                print(f"steps {len(losses) - 9} to {len(losses)}: loss {np.mean(losses[-10:]):.4f}")


if __name__ == "__main__":
    main()
