"""Training steps compared with torch eager, one thread each: forward, backward and SGD. The third table of docs/performance-native.md.

If torch cannot be imported, the table has only our times.
"""

# pyright: basic
from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from benchmarks.models import conv_net, mlp, transformer
from populus.training.session import TrainingSession

Step = Callable[[], object]
HEAD = "| training step | ours ms | torch ms | **ratio** |\n|---|---|---|---|"


def _torch_model(name: str, torch: Any) -> Any:
    nn = torch.nn
    if name == "mlp":
        return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    if name == "conv_net":
        layers: list[Any] = []
        for inputs, outputs, pool in ((3, 32, False), (32, 32, True), (32, 64, True)):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), *([nn.MaxPool2d(2)] if pool else [])]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 64, 128), nn.ReLU(), nn.Linear(128, 10))
    return nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, activation="gelu", batch_first=True)


def _theirs(name: str, x: Any, labels: Any, classes: bool) -> Step:
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)
    model: Any = _torch_model(name, torch)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    given, wanted = torch.from_numpy(x), torch.from_numpy(labels.astype(np.int64) if classes else labels)
    loss_of: Any = torch.nn.functional.cross_entropy if classes else torch.nn.functional.mse_loss

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss_of(model(given), wanted).backward()
        optimizer.step()

    return step


def _row(name: str, model: onnx.ModelProto, rounds: int) -> str:
    rng = np.random.default_rng(0)
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    out = [d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim]
    x, classes = rng.standard_normal(shape).astype(np.float32), not name.startswith("bert")
    labels = rng.integers(0, 10, shape[0], np.int32) if classes else rng.standard_normal(out).astype(np.float32)
    loss = "cross_entropy" if classes else "mean_squared_error"
    session = TrainingSession(model, loss=loss, optimizer="sgd", hyper={"lr": 1e-3}, engine="native")
    steps: list[Step] = [lambda: session.step({"x": x}, labels)]
    if importlib.util.find_spec("torch") is not None:
        steps.append(_theirs(name, x, labels, classes))
    best = [float("inf")] * len(steps)
    for _ in range(rounds):
        for i, step in enumerate(steps):
            began = time.perf_counter()
            step()
            best[i] = min(best[i], time.perf_counter() - began)
    theirs, ratio = (f"{best[1] * 1e3:.1f}", f"**{best[0] / best[1]:.2f}**") if len(steps) > 1 else ("no torch here", "")
    return f"| {name} | {best[0] * 1e3:.1f} | {theirs} | {ratio} |"


def rows(rounds: int) -> list[str]:
    """Measures the lines of the table. POPULUS_THREADS must be 1."""
    models = {"mlp": mlp, "conv_net": conv_net, "bert_layer": transformer, "bert_layer batch 8": lambda: transformer(batch=8)}
    return [HEAD, *(_row(name, make(), rounds) for name, make in models.items())]
