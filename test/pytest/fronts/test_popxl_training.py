"""PopXL's autodiff and optimizers against torch: the losses of 100 steps, from the same start on the same samples."""

from __future__ import annotations

import csv
import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from populus import popxl
from populus.popxl import ops
from populus.popxl.ops import var_updates

FOLDER = Path(__file__).parents[3] / "examples/digits"  # its losses.csv is what torch gives: export.py there
STEPS, BATCH = 100, 32

Update = Callable[[popxl.Tensor, popxl.Tensor], object]


def zeros(w: popxl.Tensor, name: str) -> popxl.Variable:
    return popxl.variable(np.zeros(w.shape, np.float32), name=name)


def momentum(rate: float, nesterov: bool = False) -> Update:
    def update(w: popxl.Tensor, g: popxl.Tensor) -> None:
        v = zeros(w, "velocity")
        var_updates.accumulator_scale_(v, 0.9)
        var_updates.accumulate_(v, g)
        ops.scaled_add_(w, g + 0.9 * v if nesterov else v, b=-rate)

    return update


def adam(rate: float = 1e-3, decay: float | None = None, scale: float = 1.0) -> Update:
    """Gives Adam, whose gradients are scaled as the loss is."""

    def update(w: popxl.Tensor, g: popxl.Tensor) -> None:
        m, v, step = zeros(w, "m"), zeros(w, "v"), popxl.variable(0.0, name="step")
        g = g * (1 / scale)
        var_updates.accumulate_moving_average_(m, g, 0.9)
        var_updates.accumulate_moving_average_square_(v, g, 0.999)
        ops.scaled_add_(w, var_updates.adam_updater(m, v, w, step, decay, 0.9, 0.999, 1e-8), b=-rate)

    return update


def adamax(w: popxl.Tensor, g: popxl.Tensor) -> None:
    m, v, step = zeros(w, "m"), zeros(w, "v"), popxl.variable(0.0, name="step")
    var_updates.accumulate_moving_average_(m, g, 0.9)
    var_updates.copy_var_update_(v, ops.maximum(v * 0.999, ops.abs(g)))
    ops.scaled_add_(w, var_updates.adamax_updater(m, v, w, step, beta1=0.9, epsilon=1e-8), b=-2e-3)


def rmsprop(w: popxl.Tensor, g: popxl.Tensor) -> None:
    v = zeros(w, "v")
    var_updates.accumulate_moving_average_square_(v, g, 0.99)
    ops.scaled_add_(w, g / (ops.sqrt(v) + 1e-8), b=-1e-3)


OPTIMIZERS: dict[str, tuple[str, Update, float]] = {  # the column of losses.csv, the update, and the scale of the loss
    "sgd": ("sgd", lambda w, g: ops.scaled_add_(w, g, b=-1e-2), 1.0),
    "momentum": ("momentum", momentum(1e-2), 1.0),
    "nesterov": ("nesterov", momentum(1e-2, nesterov=True), 1.0),
    "adam with a scaled loss": ("adam", adam(scale=1024.0), 1024.0),
    "adamw": ("adamw", adam(decay=1e-2), 1.0),
    "adamax": ("adamax", adamax, 1.0),
    "rmsprop": ("rmsprop", rmsprop, 1.0),
}


def net(x: popxl.Tensor, w0: popxl.Tensor, b0: popxl.Tensor, w1: popxl.Tensor, b1: popxl.Tensor, w2: popxl.Tensor, b2: popxl.Tensor):
    x = ops.swish(ops.conv(x, w0, padding=(1, 1, 1, 1)) + b0.reshape((1, -1, 1, 1)))
    x = ops.swish(ops.conv(x, w1, padding=(1, 1, 1, 1)) + b1.reshape((1, -1, 1, 1)))
    x = ops.average_pool(x, (2, 2), (2, 2))
    return x.reshape((BATCH, -1)) @ w2.T + b2


def trainer(update: Update, scale: float) -> tuple[popxl.Session, list[popxl.HostToDeviceStream], popxl.DeviceToHostStream]:
    ir = popxl.Ir()
    with ir.main_graph:
        streams = [popxl.h2d_stream((BATCH, 1, 8, 8), popxl.float32, "x"), popxl.h2d_stream((BATCH,), popxl.int32, "labels")]
        x, labels = (ops.host_load(s) for s in streams)
        arrays = [numpy_helper.to_array(a) for a in onnx.load(FOLDER / "digits.onnx").graph.initializer if a.data_type == 1]
        weights = [popxl.variable(a, name=f"w{k}") for k, a in enumerate(arrays)]
        graph = ir.create_graph(net, x, *weights)
        site = ops.call_with_info(graph, x, *weights)
        probabilities = ops.softmax(site.outputs[0], -1)
        loss, seed = ops.nll_loss_with_softmax_grad(probabilities, labels, scale)
        gradient = popxl.transforms.autodiff(graph, grads_required=graph.inputs[1:])
        found = ops.call_with_info(gradient.graph, seed, inputs_dict=gradient.inputs_dict(site))
        for w, g in gradient.fwd_parent_ins_to_grad_parent_outs(site, found).items():
            update(w, g)
        out = popxl.d2h_stream((), popxl.float32, "loss")
        ops.host_store(out, loss)
    return popxl.Session(ir, "cpu", tiles=1, engine="native"), streams, out


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_losses_of_100_steps_are_those_of_torch(name: str):
    column, update, scale = OPTIMIZERS[name]
    data, _ = runpy.run_path(str(FOLDER / "make.py"))["digits"]()
    session, (x, labels), out = trainer(update, scale)
    found: list[float] = []
    with session:
        for step in range(STEPS):
            epoch, i = divmod(step, len(data["x"]) // BATCH)
            rows = np.random.default_rng([0, epoch]).permutation(len(data["x"]))[i * BATCH : (i + 1) * BATCH]
            found.append(float(session.run({x: data["x"][rows], labels: data["labels"][rows].astype(np.int32)})[out]))
    with (FOLDER / "losses.csv").open() as file:
        expected = [float(row[f"{column} f32"]) for row in csv.DictReader(file)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert found[-1] < found[0]
