"""`Module`: a class whose `build` makes a graph, and which remembers the inputs that it asked for."""

from __future__ import annotations

from typing import Any


class Module:
    """An object that `ir.create_graph` takes for a function: calling it calls its `build`. A subclass may have a metaclass."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.build(*args, **kwargs)

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Gives the tensors that the graph gives; inputs beside the arguments come from `popxl.graph_input`. A subclass has it."""
        raise NotImplementedError(f"{type(self).__name__} has no `build`; a popxl.Module gives its graph's tensors there")
