"""`inferenceModel` and `trainingModel`, and functions about the machine."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from torch.utils import _pytree as pytree

from populus.poptorch.absent import Error
from populus.poptorch.executor import _HOOKS, PoplarExecutor, is_tracing
from populus.poptorch.options import Options


class RecoverableError(Error):
    """An error of hardware after which a program may go on; a machine that is not there has none."""


class UnrecoverableError(Error):
    """An error of hardware after which a program must end; a machine that is not there has none."""


def trainingModel(model: Any, options: Options | None = None, optimizer: Any = None) -> PoplarExecutor:
    """Gives a model whose calls train a module: `forward` computes the loss, by a function of torch.nn or `identity_loss`.

    The optimizer is one of `poptorch.optim` or of torch.optim: SGD (default, with lr 0.01), Adam, AdamW, RMSprop, LAMB.
    """
    module = model._user_model if isinstance(model, PoplarExecutor) else model  # pyright: ignore[reportPrivateUsage]
    return PoplarExecutor(module, options, training=True, optimizer=optimizer)


def inferenceModel(model: Any, options: Options | None = None) -> PoplarExecutor:
    """Gives a model whose calls run a module. It follows the module's parameters when training changes them."""
    module = model._user_model if isinstance(model, PoplarExecutor) else model  # pyright: ignore[reportPrivateUsage]
    return PoplarExecutor(module, options, training=False)


def load(filename: str, edit_opts_fn: Callable[[Options], None] | None = None) -> PoplarExecutor:
    """Raises PopulusError: executables are neither written nor read."""
    raise Error(f"{filename}: an executable is not read; make the model again, and load its weights by load_state_dict")


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """Tells whether the model of a machine stands for that many chips: for one, as `popart.DeviceManager` does."""
    return num_ipus == 1


def ipuHardwareVersion() -> int:
    """Gives the generation of the machine that is modelled: 2, a GC200."""
    return 2


def isRunningOnIpu() -> bool:
    """Tells whether a module is being traced for the machine."""
    return is_tracing()


logger = logging.getLogger("poptorch")
_LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERR": 40, "OFF": 100}


def setLogLevel(level: str | int) -> None:
    """Sets the level of the logger `poptorch`."""
    found = _LEVELS.get(level, logging.WARNING) if isinstance(level, str) else int(level) * 10
    logger.setLevel(found)


class _Hook:
    """A function that is called at each compilation until `remove`."""

    def __init__(self, kind: str, hook: Callable[[], None]):
        self._kind = kind
        _HOOKS[kind][id(self)] = hook

    def remove(self) -> None:
        """Ends the calls."""
        _HOOKS[self._kind].pop(id(self), None)


def registerPreCompileHook(hook: Callable[[], None]) -> _Hook:
    """Calls a function before each trace of a module."""
    return _Hook("before", hook)


def registerPostCompileHook(hook: Callable[[], None]) -> _Hook:
    """Calls a function after each trace of a module."""
    return _Hook("after", hook)


class ICustomArgParser(ABC):
    """Functions that find the tensors of an argument of a class of yours, and put others in their place."""

    @abstractmethod
    def yieldTensors(self, struct: Any) -> Iterable[Any]:
        """Gives the tensors of an argument, in order."""

    @abstractmethod
    def reconstruct(self, original_structure: Any, tensor_iterator: Any) -> Any:
        """Gives an argument like the original, with the tensors of an iterator."""


def registerCustomArgParser(arg_data_type: type, arg_parser: ICustomArgParser | None) -> None:
    """Lets arguments of a class be passed to models."""
    if arg_parser is None:
        raise Error("a parser cannot be taken away again; pass the tensors themselves")

    def flatten(value: Any) -> tuple[list[Any], Any]:
        return list(arg_parser.yieldTensors(value)), value

    def unflatten(tensors: Iterable[Any], value: Any) -> Any:
        return arg_parser.reconstruct(value, iter(tensors))

    pytree.register_pytree_node(arg_data_type, flatten, unflatten)
