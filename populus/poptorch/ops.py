"""PopTorch's functions for use inside of a model, and its annotations of where layers run."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import torch

from populus.dialects.support.diagnostics import PopulusError
from populus.poptorch.enums import MatMulSerializationMode, OverlapMode
from populus.poptorch.notes import ignored
from populus.torch_backend.rules import Rules

# -- functions --------------------------------------------------------------------------------------------------------

_REDUCTIONS: dict[Any, Callable[[Any], Any]] = {"sum": torch.sum, 0: torch.sum, "mean": torch.mean, 1: torch.mean}


def identity_loss(x: Any, reduction: str) -> Any:
    """Marks a tensor as the loss: its sum, its mean, or (`none`) as it is. Raises PopulusError for another reduction."""
    if reduction in ("none", 2):
        found = x * 1
    elif reduction in _REDUCTIONS:
        found = _REDUCTIONS[reduction](x)
    else:
        raise PopulusError(f"identity_loss takes the reduction sum, mean or none, not {reduction!r}")
    Rules.note("identity_loss", found)
    return found


def custom_op(
    inputs: Sequence[Any],
    name: str,
    domain: str,
    domain_version: int,
    example_outputs: Sequence[Any],
    attributes: Mapping[str, Any] | None = None,
) -> list[Any]:
    """Calls an op of your own; gives tensors with the shapes and types of `example_outputs`.

    The op is the one of this domain and name in a file of Python, which `populus.load` or `populus run-program --load` has read.
    """
    found = torch.onnx.ops.symbolic_multi_out(
        f"{domain}::{name}",
        tuple(inputs),
        dict(attributes or {}),
        dtypes=[t.dtype for t in example_outputs],
        shapes=[tuple(t.shape) for t in example_outputs],
        version=domain_version,
    )
    return list(found)


def nop(tensor: Any) -> Any:
    """Gives the tensor."""
    return tensor * 1


def ipu_print_tensor(
    tensor: Any,
    title: str = "",
    print_gradient: bool = True,
    summarise_threshold: int = 1000,
    edge_items: int = 3,
    max_line_width: int = 80,
    digits: int = 4,
    float_format: str = "auto",
    separator: str = ", ",
    open_bracket: str = "(",
    close_bracket: str = ")",
) -> Any:
    """Gives the tensor; nothing is printed. A model's outputs show a tensor's value."""
    ignored("ipu_print_tensor")
    return tensor


def for_loop(count: int, body: Callable[..., Any], inputs: Sequence[Any]) -> list[Any]:
    """Calls a function `count` times on its own results; the trace has the body once for each call."""
    values = list(inputs)
    for _ in range(count):
        found = body(*values)
        values = list(found) if isinstance(found, list | tuple) else [found]
    return values


def cond(
    condition: Any, then_body: Callable[..., Any], then_inps: Sequence[Any], else_body: Callable[..., Any], else_inps: Sequence[Any]
) -> list[Any]:
    """Gives the results of one of two functions. Both are computed, and the condition selects: neither changes anything else."""
    sides = [body(*given) for body, given in ((then_body, then_inps), (else_body, else_inps))]
    first, second = [list(s) if isinstance(s, list | tuple) else [s] for s in sides]
    if len(first) != len(second):
        raise PopulusError(f"the branches of cond give {len(first)} and {len(second)} tensors; as many are expected")
    return [torch.where(condition.reshape(()), a, b) for a, b in zip(first, second)]


def dynamic_slice(tensor: Any, dim: int, start: Any, size: int, step: int) -> Any:
    """Gives `size` elements of a dimension, from an index that a tensor holds, each `step`-th of them."""
    index = start.reshape(()).long() + torch.arange(0, size, step)
    return torch.index_select(tensor, dim, index)


def dynamic_update(input: Any, src: Any, dim: int, start: Any, size: int) -> Any:
    """Gives the input with `size` elements of a dimension replaced, from an index that a tensor holds."""
    index = start.reshape(()).long() + torch.arange(size)
    return torch.index_copy(input, dim, index, src)


def recomputationCheckpoint(*tensors: Any) -> Any:
    """Gives the tensors: what is kept for gradients is not chosen by hand here."""
    ignored("recomputationCheckpoint")
    return tensors[0] if len(tensors) == 1 else tensors


def serializedMatMul(lhs: Any, rhs: Any, mode: MatMulSerializationMode, factor: int = 0, keep_precision: bool = False) -> Any:
    """Computes a matrix product; the planner cuts it as memory needs."""
    ignored("serializedMatMul's mode and factor")
    return torch.matmul(lhs, rhs)


def set_available_memory(tensor: Any, available_memory_proportion: float) -> Any:
    """Gives the tensor: the planner decides how much memory an op takes."""
    ignored("set_available_memory")
    return tensor


def set_overlap_for_input(input_tensors: Any, mode: OverlapMode) -> Any:
    """Gives the tensors: there are no transfers that could overlap."""
    ignored("set_overlap_for_input")
    return input_tensors


def set_overlap_for_output(output_tensors: Any, mode: OverlapMode) -> Any:
    """Gives the tensors, as `set_overlap_for_input`."""
    ignored("set_overlap_for_output")
    return output_tensors


def ctc_beam_search_decoder(probs: Any, lengths: Any, blank: int = 0, beam_width: int = 100, top_paths: int = 1) -> Any:
    """Raises PopulusError: the decoder is not there."""
    raise PopulusError("poptorch.ctc_beam_search_decoder is not there; decode on the host, from the model's outputs")


def fps(src: Any, ptr: Sequence[int], ratio: float = 0.5, random_start: bool = False) -> Any:
    """Raises PopulusError: the sampling of farthest points is not there."""
    raise PopulusError("poptorch.fps is not there; choose the points on the host, and give their numbers to the model")


def nearest(x: Any, y: Any, batch_x: Any = None, batch_y: Any = None) -> Any:
    """Gives for each row of x the number of the nearest row of y, among those of the same batch."""
    distances = (x[:, None] - y[None]).square().sum(-1)
    if batch_x is not None and batch_y is not None:
        first, second = torch.as_tensor(batch_x), torch.as_tensor(batch_y)
        distances = distances.masked_fill(first[:, None] != second[None, :], float("inf"))
    return torch.argmin(distances, dim=1)


# -- where layers run: on one machine, nowhere else ---------------------------------------------------------------------


class Block(torch.nn.Module):
    """A `with` around layers that names a stage of a pipeline. There is one machine, so results are the same with and without."""

    def __init__(self, user_id: str | None = None, ipu_id: int | None = None):
        super().__init__()
        self._note(ipu_id)

    @staticmethod
    def _note(ipu_id: int | None) -> None:
        if ipu_id:
            ignored("Block's ipu_id")

    @staticmethod
    def useAutoId() -> None:
        """Does nothing: names of blocks have no meaning here."""

    @staticmethod
    def start(user_id: str | None = None, ipu_id: int | None = None) -> None:
        """Begins a block; the next one ends it."""
        Block._note(ipu_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Ends the block."""


def BeginBlock(layer_to_call: Any, user_id: str | None = None, ipu_id: int | None = None) -> Any:
    """Gives the layer. Raises PopulusError for an object that is no module."""
    if not isinstance(layer_to_call, torch.nn.Module):
        raise PopulusError(f"BeginBlock takes a torch.nn.Module, not {type(layer_to_call).__name__}")
    Block(user_id, ipu_id)
    return layer_to_call


def BlockFunction(user_id: str | None = None, ipu_id: int | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a decorator of functions whose calls are a block."""
    Block(user_id, ipu_id)
    return lambda function: function


def removeBlocks(module: Any) -> None:
    """Does nothing: a block leaves no mark on a module."""


@contextmanager
def Attribute(**kwargs: Any) -> Generator[None]:
    """Accepts attributes of ops inside a `with`; they are about placement and precision of the original's kernels."""
    for name in kwargs:
        ignored(f"Attribute({name})")
    yield


@contextmanager
def NameScope(name: str) -> Generator[None]:
    """Accepts a name for the ops inside a `with`."""
    yield


class CPU:
    """Raises PopulusError when it is called: a model has no functions of the host inside."""

    def __init__(self, layer_to_call: Callable[..., Any], ID: str):
        self._name = ID

    def __call__(self, *input: Any, **kwargs: Any) -> Any:
        raise PopulusError(f"poptorch.CPU('{self._name}') is not there; split the model in two, and call the function between them")


class MultiConv:
    """A `with` around convolutions that are planned together; here the planner decides, so each setting warns once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Ends the group."""

    def _set(self, name: str) -> Self:
        ignored(f"MultiConv.{name}")
        return self

    def availableMemoryProportions(self, value: Any) -> Self:
        """Accepts shares of memory."""
        return self._set("availableMemoryProportions")

    def partialsTypes(self, value: Any) -> Self:
        """Accepts types of partial sums."""
        return self._set("partialsTypes")

    def enableConvDithering(self, value: Any) -> Self:
        """Accepts whether convolutions begin on different tiles."""
        return self._set("enableConvDithering")

    def planType(self, value: Any) -> Self:
        """Accepts the kind of plan."""
        return self._set("planType")

    def perConvReservedTiles(self, value: int) -> Self:
        """Accepts a number of tiles."""
        return self._set("perConvReservedTiles")

    def cycleBackOff(self, value: float) -> Self:
        """Accepts a tolerance of the planner."""
        return self._set("cycleBackOff")
