"""Writes digits.onnx, a small convolutional net that torch exports, and losses.csv, torch's losses of the first 100 steps.

python examples/digits/export.py      needs torch and scikit-learn; both files are in the repository
"""

from __future__ import annotations

import copy
import csv
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from make import digits

HERE = Path(__file__).parent
STEPS, BATCH = 100, 32
OPTIMIZERS = {  # the defaults of `populus train`, except a tenth of RMSprop's rate, which is unstable
    "adadelta": torch.optim.Adadelta,
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
    "adamax": torch.optim.Adamax,
    "adamw": torch.optim.AdamW,
    "momentum": lambda weights: torch.optim.SGD(weights, lr=1e-2, momentum=0.9),
    "nesterov": lambda weights: torch.optim.SGD(weights, lr=1e-2, momentum=0.9, nesterov=True),
    "rmsprop": lambda weights: torch.optim.RMSprop(weights, lr=1e-3),
    "sgd": lambda weights: torch.optim.SGD(weights, lr=1e-2),
}


def net() -> nn.Module:
    """Builds a net without rectifiers or maxima: a value that crosses a kink in f32 makes losses of any two programs differ by 1e-4."""
    torch.manual_seed(0)
    convs = [nn.Conv2d(1, 16, 3, padding=1), nn.SiLU(), nn.Conv2d(16, 32, 3, padding=1), nn.SiLU(), nn.AvgPool2d(2)]
    return nn.Sequential(*convs, nn.Flatten(), nn.Linear(512, 10))


def losses(model: nn.Module, optimizer: str, dtype: torch.dtype) -> list[float]:
    """Trains the first steps in torch, on the same samples as `populus train` with seed 0; gives the losses."""
    data, _ = digits()
    model = copy.deepcopy(model).to(dtype)
    made = OPTIMIZERS[optimizer](model.parameters())
    found: list[float] = []
    for step in range(STEPS):
        epoch, i = divmod(step, len(data["x"]) // BATCH)
        rows = np.random.default_rng([0, epoch]).permutation(len(data["x"]))[i * BATCH : (i + 1) * BATCH]
        loss = nn.functional.cross_entropy(model(torch.tensor(data["x"][rows]).to(dtype)), torch.tensor(data["labels"][rows]))
        made.zero_grad()
        loss.backward()
        made.step()
        found.append(loss.item())
    return found


def main() -> None:
    model = net()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, (torch.zeros(1, 1, 8, 8),), str(HERE / "digits.onnx"), input_names=["x"], output_names=["logits"],
            dynamic_axes={"x": {0: "n"}, "logits": {0: "n"}}, opset_version=17, dynamo=False,
        )  # fmt: skip
    columns = {f"{o} f{b}": losses(model, o, t) for o in OPTIMIZERS for b, t in ((32, torch.float32), (64, torch.float64))}
    with (HERE / "losses.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["step", *columns])
        writer.writerows([step, *(f"{c[step - 1]:.9g}" for c in columns.values())] for step in range(1, STEPS + 1))


if __name__ == "__main__":
    main()
