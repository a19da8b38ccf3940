"""Writes data/torch_leaky_relu.onnx and .npz: what PyTorch exports of a module with an op of a custom domain, and what it computes.

Run with PyTorch installed, which the tests do not need: `python test/seeds/export_torch.py`.
"""

# pyright: basic, reportMissingImports=false

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

DATA = Path(__file__).with_name("data")
ALPHA = 0.1


class LeakyRelu(torch.autograd.Function):
    """As `examples/leaky_relu.py`; how it is written in ONNX is `symbolic`."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, alpha: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.alpha = alpha
        return torch.where(x >= 0, x, alpha * x)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        return torch.where(x >= 0, g, ctx.alpha * g), None

    @staticmethod
    def symbolic(g: Any, x: Any, alpha: float) -> Any:
        return g.op("com.acme::LeakyRelu", x, alpha_f=alpha).setType(x.type())


class Net(torch.nn.Module):
    """Two products with the op between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(LeakyRelu.apply(self.first(x), ALPHA))


def main() -> None:
    """Writes the files."""
    torch.manual_seed(0)
    net, x, labels = Net(), torch.randn(5, 4), torch.tensor([0, 1, 2, 1, 0])
    path = DATA / "torch_leaky_relu.onnx"
    torch.onnx.export(net, (x,), path, dynamo=False, input_names=["x"], output_names=["y"], opset_version=18, custom_opsets={"com.acme": 1})
    y = net(x)
    loss = torch.nn.functional.cross_entropy(y, labels)
    loss.backward()
    names = [i.name for i in onnx.load(path).graph.initializer]
    gradients = {f"gradient.{n}": p.grad.numpy() for n, p in net.named_parameters()}
    assert {n.removeprefix("gradient.") for n in gradients} <= set(names), names
    np.savez(
        DATA / "torch_leaky_relu.npz", x=x.numpy(), y=y.detach().numpy(), labels=labels.numpy(), loss=loss.detach().numpy(), **gradients
    )


if __name__ == "__main__":
    main()
