"""Trains two layers on images of digits, as a program of PopXL.

populus run-program examples/popxl/mnist.py [--data FOLDER] [--epochs 3] [--profile page.html]

FOLDER has MNIST's four files `train-images-idx3-ubyte` and so on. Without it, scikit-learn's 1,797 digits are enlarged to 28 by 28.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np
import popxl
from popxl import ops

BATCH, STEPS = 80, 4  # samples of a step, and steps of a run of the session
SIZES = (28 * 28, 64, 10)
RATE = 0.2


class Linear(popxl.Module):
    """A layer with its weights as inputs of its graph."""

    def build(self, x: popxl.Tensor, outputs: int) -> popxl.Tensor:
        """Computes `x W + b`."""
        self.w = popxl.graph_input((x.shape[-1], outputs), popxl.float32, "w")
        self.b = popxl.graph_input((outputs,), popxl.float32, "b")
        return x @ self.w + self.b


class Net(popxl.Module):
    """Two layers with `gelu` between them."""

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """Computes the logits of each class."""
        self.layers = [Linear(), Linear()]
        return self.layers[1](ops.gelu(self.layers[0](x, SIZES[1])), SIZES[2])


def weights() -> list[np.ndarray]:
    """Gives weights and biases of both layers."""
    rng = np.random.default_rng(0)
    shapes = [((n, m), n) for n, m in pairwise(SIZES)]
    return [a for shape, n in shapes for a in (rng.normal(0, n**-0.5, shape).astype(np.float32), np.zeros(shape[1], np.float32))]


def program() -> tuple[popxl.Ir, list[popxl.HostToDeviceStream], list[popxl.DeviceToHostStream], list[popxl.Variable]]:
    """Builds the program of a step of training: its streams of images and labels, those of losses and predictions, and its weights."""
    ir = popxl.Ir()
    ir.num_host_transfers = STEPS
    with ir.main_graph, popxl.in_sequence():
        images = popxl.h2d_stream((BATCH, SIZES[0]), popxl.float32, "images")
        labels = popxl.h2d_stream((BATCH,), popxl.int32, "labels")
        losses = popxl.d2h_stream((), popxl.float32, "losses")
        classes = popxl.d2h_stream((BATCH,), popxl.int32, "classes")
        net = Net()
        forward = ir.create_graph(net, popxl.TensorSpec((BATCH, SIZES[0]), popxl.float32))
        slots = [t for layer in net.layers for t in (layer.w, layer.b)]
        backward = popxl.transforms.autodiff(forward, grads_required=slots)
        variables = [popxl.variable(w, name=t.name) for t, w in zip(slots, weights())]

        def step() -> None:
            x, y = ops.host_load(images), ops.host_load(labels)
            called = ops.call_with_info(forward, x, inputs_dict=dict(zip(slots, variables)))
            (logits,) = called.outputs
            loss, gradient = ops.nll_loss_with_softmax_grad(ops.softmax(logits, axis=-1), y)
            found = ops.call_with_info(backward.graph, gradient, inputs_dict=backward.inputs_dict(called))
            for w, g in backward.fwd_parent_ins_to_grad_parent_outs(called, found).items():
                ops.scaled_add_(w, g, b=-RATE)
            ops.host_store(losses, loss)
            ops.host_store(classes, ops.argmax(logits, dim=1))

        for _ in range(STEPS):
            step()
    return ir, [images, labels], [losses, classes], variables


def digits(folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Loads images, one row of 784 pixels from 0 to 1 each, and their labels."""
    if folder is not None:
        pixels = np.fromfile(folder / "train-images-idx3-ubyte", np.uint8)[16:].reshape(-1, SIZES[0])
        return (pixels / 255).astype(np.float32), np.fromfile(folder / "train-labels-idx1-ubyte", np.uint8)[8:].astype(np.int32)
    from sklearn.datasets import load_digits

    found = load_digits()
    large = np.pad(np.kron(found.images / 16, np.ones((3, 3))), ((0, 0), (2, 2), (2, 2)))
    return large.reshape(-1, SIZES[0]).astype(np.float32), found.target.astype(np.int32)


def main() -> None:
    """Trains for some epochs, and prints the mean loss of each and the share of right classes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    x, y = digits(options.data)
    ir, (images, labels), (losses, classes), variables = program()
    with popxl.Session(ir, "ipu_model") as session:
        for epoch in range(options.epochs):
            order = np.random.default_rng(epoch).permutation(len(x))
            found: list[float] = []
            right: list[bool] = []
            for begin in range(0, len(x) - STEPS * BATCH + 1, STEPS * BATCH):
                rows = order[begin : begin + STEPS * BATCH].reshape(STEPS, BATCH)
                outputs = session.run({images: x[rows], labels: y[rows]})
                found += outputs[losses].tolist()
                right += (outputs[classes] == y[rows]).ravel().tolist()
            print(f"epoch {epoch + 1}: loss {np.mean(found):.4f}, {np.mean(right):.1%} right")
        norms = [float(np.linalg.norm(a)) for a in session.get_tensors_data(variables).values()]
    print("norms of the weights:", ", ".join(f"{n:.2f}" for n in norms))


if __name__ == "__main__":
    main()
