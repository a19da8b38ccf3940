"""`Module`: a class whose `build` makes a graph, and which remembers the inputs that it asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Module(ABC):
    """An object that `ir.create_graph` takes for a function: calling it calls its `build`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.build(*args, **kwargs)

    @abstractmethod
    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Gives the tensors that the graph gives; inputs beside the arguments come from `popxl.graph_input`."""
