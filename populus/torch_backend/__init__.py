"""`torch.compile(model, backend="populus")`: PyTorch's graphs on a machine of tiles, with gradients.

    model = torch.compile(model, backend="populus", options={"target": "gc200", "tiles": 64})
    loss = model(x).square().mean()
    loss.backward()

Options: `target` (default `host`), `tiles`, `engine`; `fallback` True lets PyTorch run a graph that cannot be compiled, with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from populus.torch_backend.torch_package import need_torch


def backend(
    graph: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """Gives the function that runs a graph of PyTorch's compiler. It compiles at the first call, and again for other shapes.

    Raises PopulusError for an unknown option, and at the call for a graph that cannot be compiled.
    """
    need_torch("the backend of torch.compile")
    from populus.torch_backend.compiled import Compiled

    return Compiled(graph, dict(options or {}))
