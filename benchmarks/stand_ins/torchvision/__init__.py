"""Drawn digits in place of torchvision's data sets, for programs that want the names: no other part of torchvision is here.

An image is a digit of 3 x 5 squares, of the set's size, with noise. `DRAWN` in the environment is the number of images to train on.
"""

import os
import sys
from types import ModuleType
from typing import Any

import torch

SHAPES = "75557 26227 71747 71317 55711 74717 74757 71222 75757 75717".split()  # noqa: SIM905, rows of three squares as bits


class Digits(torch.utils.data.Dataset):
    """Images [channels, size, size] with their digits."""

    channels, size = 1, 28

    def __init__(self, root: Any = None, train: bool = True, transform: Any = None, download: bool = False, **_: Any):
        count = int(os.environ.get("DRAWN", "1920")) if train else 320
        generator = torch.Generator().manual_seed(1 if train else 2)
        self.targets = torch.randint(0, 10, (count,), generator=generator)
        self.data = 0.2 * torch.randn(count, self.channels, self.size, self.size, generator=generator)
        top, left = (self.size - 20) // 2, (self.size - 12) // 2
        for image, label in zip(self.data, self.targets.tolist()):
            squares = torch.tensor([[float(int(row) >> k & 1) for k in (2, 1, 0)] for row in SHAPES[label]])
            image[:, top : top + 20, left : left + 12] += 2 * squares.repeat_interleave(4, 0).repeat_interleave(4, 1)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.data[index], int(self.targets[index])


class Colours(Digits):
    """The same in three channels."""

    channels, size = 3, 32


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _module(name: str, **members: Any) -> ModuleType:
    made = sys.modules[f"{__name__}.{name}"] = ModuleType(f"{__name__}.{name}")
    made.__dict__.update(members)
    return made


datasets = _module("datasets", MNIST=Digits, FashionMNIST=Digits, CIFAR10=Colours)
transforms = _module("transforms", Compose=_nothing, ToTensor=_nothing, Normalize=_nothing, Resize=_nothing, ConvertImageDtype=_nothing)
