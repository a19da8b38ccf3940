"""`Compiled`: a graph of PyTorch's compiler as programs, one for each combination of shapes."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from populus.dialects.support.diagnostics import PopulusError, PopulusWarning, did_you_mean
from populus.torch_backend.export import Exported, exported
from populus.torch_backend.step import Machine, Step, initial

MOST_SHAPES = 32  # a program each, with its memory; others are compiled again
OPTIONS = ("target", "tiles", "engine", "fallback")


class Compiled:
    """A function of tensors and numbers that runs a graph. It keeps the programs of the `MOST_SHAPES` shapes that were used last.

    If gradients are wanted, `backward` runs a second program, which computes the graph again and its gradients.
    """

    def __init__(self, graph: Any, options: Mapping[str, Any]):
        if strange := [o for o in options if o not in OPTIONS]:
            raise PopulusError(f"the backend populus has no option '{strange[0]}'{did_you_mean(strange[0], OPTIONS)}")
        given: dict[str, Any] = {"target": "host", **{n: v for n, v in options.items() if n != "fallback"}}
        self._graph, self._machine, self._fallback = graph, Machine(**given), bool(options.get("fallback"))
        self._made: dict[tuple[Any, ...], _Sized | None] = {}  # the one used last is at the end
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> Any:
        key = tuple((tuple(a.shape), a.dtype) if isinstance(a, torch.Tensor) else a for a in args)
        with self._lock:
            known, sized = key in self._made, self._made.pop(key, None)
        if not known:
            sized = self._sized(args)
        with self._lock:
            self._made.pop(key, None)
            self._made[key] = sized
            if len(self._made) > MOST_SHAPES:
                del self._made[next(iter(self._made))]
        return self._graph(*args) if sized is None else sized(*args)

    def _sized(self, args: Sequence[Any]) -> _Sized | None:
        """Compiles for these shapes; None if PyTorch shall run the graph. Raises PopulusError."""
        try:
            return _Sized(self._graph, args, self._machine)
        except PopulusError as error:
            if not self._fallback:
                raise
            warnings.warn(f"PyTorch runs a graph that populus cannot compile: {error}", PopulusWarning, stacklevel=3)
            return None


class _Sized:
    """The programs of a graph for inputs of given shapes."""

    def __init__(self, graph: Any, args: Sequence[Any], machine: Machine):
        self.machine = machine
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        if other := next((t for t in tensors if t.device.type != "cpu"), None):
            raise PopulusError(f"an input is on {other.device}; tensors of the backend populus are on cpu")

        def call(model: Any, given: Sequence[Any]) -> Any:
            rest = iter(given)
            return model(*(next(rest) if isinstance(a, torch.Tensor) else a for a in args))

        with torch.compiler.set_stance("force_eager"):
            self.exported = exported(graph, call, [t.detach() for t in tensors])
        found = self.exported
        self.results = list(dict.fromkeys([*found.outputs, *found.written.values(), *found.changed.values()]))
        self.forward = Step(found, self.results, machine, list(found.tensors))
        self.backward: dict[tuple[str, ...], Step] = {}
        self.calls = 0

    def weights(self) -> dict[str, Any]:
        """Gives the values of the tensors that the graph itself holds."""
        tensors = self.exported.tensors
        return {n: tensors[n].detach().numpy() for n in initial(self.forward.model, tensors)}

    def __call__(self, *args: Any) -> Any:
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        outputs = _Function.apply(self, *tensors)
        found = self.exported
        values = dict(zip(self.results, outputs))
        with torch.no_grad():
            for i, name in found.written.items():
                tensors[i].copy_(values[name])
            for name, output in found.changed.items():
                found.tensors[name].copy_(values[output])
        return found.rebuild([values[n] for n in found.outputs])

    def differentiated(self, names: Sequence[str]) -> Step:
        """Gives the program of gradients of these inputs, compiled if needed."""
        key = tuple(names)
        if key not in self.backward:
            floats = [n for n in self.exported.outputs if n in _floats(self.exported, self.results)]
            unique = list(dict.fromkeys(floats))
            self.backward[key] = Step(self.exported, unique, self.machine, list(self.exported.tensors), names, unique)
        return self.backward[key]


def _floats(found: Exported, outputs: Sequence[str]) -> set[str]:
    """Gives the outputs of floats."""
    from onnx import TensorProto

    kinds = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)
    return {o.name for o in found.model.graph.output if o.name in outputs and o.type.tensor_type.elem_type in kinds}


class _Function(torch.autograd.Function):
    """Runs a program forward; `backward` runs that of gradients, with the same random numbers."""

    @staticmethod
    def forward(ctx: Any, sized: _Sized, *tensors: Any) -> tuple[Any, ...]:
        sized.calls += 1
        ctx.sized, ctx.seed = sized, (int(torch.initial_seed()) & (2**63 - 1), sized.calls)
        ctx.inputs, ctx.weights = [t.detach().numpy().copy() for t in tensors], {n: a.copy() for n, a in sized.weights().items()}
        values, _ = sized.forward.run(ctx.inputs, ctx.weights, ctx.seed)
        outputs = [torch.from_numpy(np.array(values[n])) for n in sized.results]
        ctx.mark_non_differentiable(*(o for o in outputs if not o.is_floating_point()))
        return tuple(outputs)

    @staticmethod
    @torch.autograd.function.once_differentiable  # pyright: ignore[reportUntypedFunctionDecorator], of torch
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        sized: _Sized = ctx.sized
        names = [n for n, needed in zip(sized.exported.inputs, ctx.needs_input_grad[1:]) if needed]
        step = sized.differentiated(names)
        cotangents = {n: g.detach().numpy() for n, g in zip(sized.results, grads) if g is not None and n in step.differentiated}
        _, found = step.run(ctx.inputs, ctx.weights, ctx.seed, cotangents)
        return (None, *(torch.from_numpy(np.array(found[n])) if n in found else None for n in sized.exported.inputs))
