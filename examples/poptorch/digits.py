"""Trains a net on digits of 8 by 8 points, then tests it: a program of PopTorch.

    populus run-program examples/poptorch/digits.py --profile digits.html

The digits are drawn: a digit of 5 by 3 points somewhere in the image, with noise.
"""

import argparse

import poptorch
import torch

# The points of 0 to 9, row by row.
SHAPES = (
    "111101101101111", "010110010010111", "111001111100111", "111001011001111", "101101111001001",
    "111100111001111", "111100111101111", "111001010010010", "111101111101111", "111101111001111",
)  # fmt: skip


class Digits(torch.utils.data.Dataset):
    """Images of digits with noise; the same ones each time."""

    def __init__(self, count: int, seed: int):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 10, (count,), generator=g)
        self.images = 0.2 * torch.randn(count, 1, 8, 8, generator=g)
        places = torch.randint(0, 4, (count, 2), generator=g)
        for image, label, (row, column) in zip(self.images, self.labels.tolist(), places.tolist()):
            points = torch.tensor([float(c) for c in SHAPES[label]]).reshape(5, 3)
            image[0, row : row + 5, column : column + 3] += points

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.images[i], self.labels[i]


class Net(torch.nn.Module):
    """Two convolutions with a pool, and two layers; with labels it gives the loss too."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(1, 16, 3, padding=1)
        self.second = torch.nn.Conv2d(16, 32, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(32)
        self.hidden = torch.nn.Linear(32 * 4 * 4, 64)
        self.classes = torch.nn.Linear(64, 10)
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, images, labels=None):
        x = torch.relu(self.first(images))
        x = torch.max_pool2d(torch.relu(self.norm(self.second(x))), 2)
        x = self.classes(torch.relu(self.hidden(x.flatten(1))))
        return x if labels is None else (x, self.loss(x, labels))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--images", type=int, default=960)
    given = parser.parse_args()
    torch.manual_seed(0)
    net = Net().train()
    options = poptorch.Options().deviceIterations(2)
    options.Training.gradientAccumulation(2)
    optimizer = poptorch.optim.AdamW(net.parameters(), lr=5e-3)
    rates = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
    training = poptorch.trainingModel(net, options, optimizer)
    for epoch in range(1, given.epochs + 1):
        for images, labels in poptorch.DataLoader(options, Digits(given.images, 1), batch_size=16, shuffle=True):
            _, loss = training(images, labels)
        rates.step()
        training.setOptimizer(optimizer)
        print(f"epoch {epoch}  loss {loss.item():.4f}")
    testing = poptorch.inferenceModel(net.eval())
    right = 0
    loader = poptorch.DataLoader(poptorch.Options(), Digits(256, 2), batch_size=64)
    for images, labels in loader:
        right += int((testing(images).argmax(1) == labels).sum())
    print(f"right {right / 256:.1%}")


if __name__ == "__main__":
    main()
