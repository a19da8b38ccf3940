"""The tensors and the ops that a graph shows: those that its program made, by name and in order."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from xdsl.ir import Operation

from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.names import Names
from populus.popxl.context import PopxlBuilder
from populus.popxl.dtypes import dtype
from populus.popxl.tensor import Constant, Handle, Tensor, Variable

if TYPE_CHECKING:
    from populus.popxl.internals.op import Op

Kind = TypeVar("Kind", bound=Tensor)


class Listed(PopxlBuilder):
    """A graph's lists."""

    def __init__(self, name: str):
        super().__init__(name)
        self.recorded: list[Op] = []  # the ops that a program called, in order
        self.op_within: Op | None = None  # the op whose call has begun
        self.op_hooks: list[Callable[[Op], Any]] = []
        self._hook_numbers: dict[int, Callable[[Op], Any]] = {}
        self._names = Names()
        self._tensors: dict[str, Tensor] = {}

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors that were made in the graph, in order."""
        return tuple(self._tensors.values())

    @property
    def variables(self) -> tuple[Variable, ...]:
        return tuple(t for t in self._tensors.values() if isinstance(t, Variable))

    @property
    def constants(self) -> tuple[Constant, ...]:
        return tuple(t for t in self._tensors.values() if isinstance(t, Constant))

    def get_tensor(self, tensor_id: str) -> Tensor:
        """Gives the tensor of a name, with that of the graph before it or without. Raises ValueError if there is none."""
        found = self._tensors.get(tensor_id) or next((t for t in self._tensors.values() if t.id == tensor_id), None)
        if found is None:
            raise PopulusError(f"graph '{self.name}' has no tensor '{tensor_id}'")
        return found

    def register_op_created_hook(self, fn: Callable[[Op], Any]) -> int:
        """Calls a function with each op that a program makes from now on; the number given removes it."""
        self.op_hooks.append(fn)
        self._hook_numbers[number := len(self._hook_numbers)] = fn
        return number

    def remove_op_created_hook(self, handle: int) -> None:
        """Removes a hook by its number."""
        self.op_hooks.remove(self._hook_numbers[handle])

    @property
    def last_op(self) -> Operation | None:
        """The op of the popart level that was inserted last."""
        return self._block.last_op

    def ops_after(self, op: Operation | None) -> list[Operation]:
        """Gives the ops of the popart level that were inserted after one, or all."""
        found, at = list[Operation](), self._block.first_op if op is None else op.next_op
        while at is not None:
            found.append(at)
            at = at.next_op
        return found

    def forget(self, tensors: Iterable[Tensor]) -> None:
        """Takes tensors out of the graph's list; their values stay."""
        for t in tensors:
            self._tensors.pop(t.name, None)

    def named(self, t: Kind) -> Kind:
        """Puts a tensor that another one's value is given to into the graph's list, under its name."""
        self._tensors[t.name] = t
        return t

    def undone_by(self, undo: Callable[[], object]) -> None:
        """Keeps what takes back a change that the op makes whose call has begun."""
        if self.op_within is not None:
            self.op_within.undo.append(undo)

    @contextmanager
    def inside(self, op: Op | None) -> Generator[None]:
        """Makes what happens in the context part of an op that was called before, unless another call has begun."""
        outer = self.op_within
        self.op_within = op if outer is None else outer
        try:
            yield
        finally:
            self.op_within = outer

    def keep(self, t: Tensor) -> None:
        """Leaves a tensor that the op of a call makes in the graph's list; not one of a call inside another."""
        if self.op_within is not None and not self.op_within.depth:
            self.op_within.kept.append(t)

    def handle(self, name: str, shape: tuple[int, ...], dtype: dtype) -> Handle:
        """Gives the place that a load fills: a tensor without a value."""
        return self._kept(Handle(cast("Any", self), self._names.free(name), shape, dtype, "ActGrad"))

    def stream_handle(self, name: str, shape: tuple[int, ...], dtype: dtype) -> None:
        """Puts a stream among the graph's tensors, under its name, which others may have too."""
        self._tensors[f"stream {name}"] = Handle(cast("Any", self), name, shape, dtype, "Stream")

    def _kept(self, tensor: Kind) -> Kind:
        self._tensors[tensor.name] = tensor
        if self.op_within is not None:
            self.op_within.made.append(tensor)
        return tensor
