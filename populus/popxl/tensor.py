"""Tensors of a graph: values with names, of which some are views of others, and their operators.

A tensor that an op changes in place keeps its identity and gets another value of the graph; a view reads its value from the tensors
that it is of, and what changes the view changes them. So everything below this front end is free of side effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np
from xdsl.ir import Attribute, SSAValue

from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of
from populus.popart.logger import getLogger
from populus.popxl import dtypes
from populus.popxl.context import get_current_graph, placement
from populus.popxl.dealing import Dealing, check_rows
from populus.popxl.errors import UndefinedValue, WrongType, WrongValue
from populus.popxl.internals.views import TensorView
from populus.popxl.operators import Operators
from populus.popxl.replica_grouping import ReplicaGrouping, Retrieval
from populus.popxl.tensorlocation import TensorLocation
from populus.popxl.utils import to_numpy
from populus.popxl.values import State, TensorSpec, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from populus.popxl.graph import Graph
    from populus.popxl.internals.op import Op
    from populus.popxl.ir import Ir


class Tensor(Operators):
    """A value of a graph. Made by ops, `variable`, `constant` and `graph_input`; equal only to itself."""

    __array_ufunc__: ClassVar[None] = None  # so that NumPy leaves operators to this class

    def __init__(self, ssa: SSAValue | None, graph: Graph, id: str, view: View | None = None, state: State | None = None):
        self._value, self.graph, self._id, self._view, self.state = ssa, graph, id, view, state
        self._seen: tuple[SSAValue, ...] = ()
        self.type_without_value: Attribute | None = None  # of an op's output while it has none
        self.producer: Op | None = None  # the op that made it
        self._ipu: int | None
        self._tile_set: Literal["compute", "io"]
        self._ipu, self._tile_set = placement()

    @property
    def _pb_tensor(self) -> TensorView:
        return TensorView(self)

    @classmethod
    def _from_pb_tensor(cls, view: TensorView) -> Tensor:
        return view.tensor

    def _ensure_tensor(self, value: Any, dtype: dtypes.dtype | None = None) -> Tensor:
        return self.operand(value, dtype)

    pb_type: ClassVar[str] = "ActGrad"
    meta_shape: tuple[int, ...] = ()  # of a shard: the shape of the whole

    @property
    def view_of(self) -> tuple[Tensor, ...]:
        """The tensors that this one is a view of."""
        return () if self._view is None else self._view.of

    def of(self, value: SSAValue) -> Tensor:
        """Gives another value of the same graph."""
        return self.graph.tensor(value)

    @property
    def ssa(self) -> SSAValue:
        """The value as it is now."""
        if self._view is not None:
            bases = tuple(t.ssa for t in self._view.of)
            if self._value is None or bases != self._seen:
                self._value, self._seen = self._view.read(bases), bases
        if self._value is None:
            raise UndefinedValue(f"{self.id} has no value: the op that makes it was taken out, or comes later")
        return self._value

    @property
    def type(self) -> Attribute:
        """The type of the value."""
        return self.type_without_value if self.type_without_value is not None and self._value is None else self.ssa.type

    def become(self, other: Tensor, made: bool) -> None:
        """Takes the place of another tensor that its op has just made, or is the same as one that was there before."""
        if other is self:
            return
        same = View((other,), lambda of: of[0], lambda of, new: (new,))
        self._value, self._view, self._seen = (other._value, other._view, other._seen) if made else (None, same, ())
        self.type_without_value = None
        if made:
            self.graph.forget([other])
        self.graph.named(self)

    def lose_value(self) -> None:
        """Keeps a type and no value from now on."""
        if self._value is not None:
            self.type_without_value = self._value.type
        self._value, self._view = None, None

    def forget_view(self) -> None:
        """Reads its value anew from the tensors that it is a view of."""
        for t in self.view_of:
            t.forget_view()
        if self._view is not None:
            self._value = None

    def assign(self, value: SSAValue) -> None:
        """Gives the tensor, and its base, another value. Raises ValueError for another type, PopulusError for a slot of a called graph."""
        if value.type != self.type:
            raise WrongValue(f"{self._id} is {self.ssa.type}; what is to take its place is {value.type}")
        if self.graph.op_within is not None:
            self.graph.op_within.changed.append(self)
        if self._view is None:
            self.graph.check_open(self)
            self.graph.undone_by(partial(setattr, self, "_value", self._value))
            self._value = value
            return
        for base, new in zip(self._view.of, self._view.write(self._seen, value), strict=True):
            base.assign(new)
        self._value, self._seen = value, tuple(t.ssa for t in self._view.of)

    @property
    def id(self) -> str:
        """The name with that of its graph before it; of the main graph's, the name."""
        return self._id if self.graph is self.graph.ir.main_graph else f"{self.graph.name}/{self._id}"

    @property
    def name(self) -> str:
        """The name, which no other tensor of the graph has."""
        return self._id

    @property
    def scope(self) -> str:
        """The graph's name; nothing for the main graph."""
        return "" if self.graph is self.graph.ir.main_graph else self.graph.name

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.type)

    @property
    def dtype(self) -> dtypes.dtype:
        return dtypes.dtype.as_dtype(dtype_of(element_type_of(self.type)))

    @property
    def spec(self) -> TensorSpec:
        """The shape and element type."""
        return TensorSpec(self.shape, self.dtype, self.meta_shape)

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def nelms(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def ir(self) -> Ir:
        return self.graph.ir

    @property
    def ipu(self) -> int:
        """The number of the chip that `popxl.ipu` named where an op made the tensor. Raises UndefinedValue for one that no op made."""
        if self.producer is None or self._ipu is None:
            raise UndefinedValue(f"{self.id} is on no chip yet; the ops that take it say where it is")
        return self._ipu

    def lie_as(self, other: Tensor) -> None:
        """Puts the tensor where another one lies, if that is known."""
        self._ipu, self._tile_set = (self._ipu, self._tile_set) if other.producer is None else (other._ipu, other._tile_set)

    @property
    def tile_set(self) -> Literal["compute", "io"]:
        """`io` for what an op made inside `popxl.io_tiles`, else `compute`. Raises UndefinedValue for a tensor that no op made."""
        if self.producer is None:
            raise UndefinedValue(f"{self.id} is on no set of tiles yet; the ops that take it say where it is")
        return self._tile_set

    @property
    def location_info(self) -> TensorLocation:
        """Where the tensor lies: on the chip."""
        return TensorLocation()

    @property
    def in_sync_with_ipu(self) -> bool:
        """True for a variable whose value on the host is that on the device. Raises UndefinedValue for other tensors."""
        if self.state is None:
            raise UndefinedValue(f"{self.id} is no variable, so the host has no value of it")
        return self.state.in_sync

    def strides(self, shape: Sequence[int] | None = None) -> tuple[int, ...]:
        """Counts bytes apart neighbours of each dimension are, in an array of this element type."""
        sizes = self.shape if shape is None else tuple(shape)
        return tuple(self.dtype.as_numpy().itemsize * int(np.prod(sizes[d + 1 :], dtype=np.int64)) for d in range(len(sizes)))

    @staticmethod
    def made_constant(data: Any, dtype: dtypes.dtype | None = None) -> Tensor:
        """Makes data a constant of the current graph."""
        return constant(data, dtype)

    def operand(self, value: Any, dtype: dtypes.dtype | None = None) -> Tensor:
        """Gives a tensor as it is, and data as a constant of this tensor's element type. Raises ValueError for none at all."""
        if isinstance(value, Tensor):
            return value
        made = self.made_constant(value, self.dtype if dtype is None else dtype)
        made.graph.keep(made)
        if not made.nelms:
            raise WrongValue(f"{value!r} has no elements; make a tensor of it by popxl.constant if that is meant")
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{self.id} {self.dtype!r} {self.shape}]"

    def __len__(self) -> int:
        if not self.shape:
            raise WrongValue(f"{self.id} is of no dimension, so it has no length")
        return self.shape[0]

    def __bool__(self) -> bool:
        return True  # as any object's; a graph's values are not known while it is built

    __iter__: ClassVar[Any] = None
    __contains__: ClassVar[Any] = None


TensorByRef = type("TensorByRef", (Tensor,), {"__doc__": "Annotates a function's tensor that calls change where they are given it."})


class Handle(Tensor):
    """A tensor that has a shape and no value of its own: the handle of a stream, or the place that a load fills."""

    def __init__(self, graph: Graph, id: str, shape: tuple[int, ...], dtype: dtypes.dtype, kind: str):
        super().__init__(None, graph, id)
        self._shape, self._dtype, self._kind = shape, dtype, kind

    @property
    def pb_type(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._kind

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def dtype(self) -> dtypes.dtype:
        return self._dtype


class Variable(Tensor):
    """A tensor of the main graph that keeps its value from run to run; a `Session` reads and writes it.

    `mapped`: the mapped file that it was made of.
    """

    mapped: np.memmap[Any, Any] | None = None

    pb_type: ClassVar[str] = "Variable"

    @property
    def _memmap_arr(self) -> np.memmap[Any, Any] | None:
        return self.mapped

    @property
    def data(self) -> NDArray[Any]:
        """The value at first."""
        assert self.state is not None
        assert self.state.data is not None
        return self.state.data

    def copy_to_ipu(self, dst: int, src: int | None = None) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Calls `ops.ipu_copy`; PopXL has other names of parameters here."""
        return super().copy_to_ipu(dst, src)

    @property
    def dealing(self) -> Dealing:
        """The way in which its array on the host is dealt to the replicas."""
        assert self.state is not None
        return self.state.dealing or Dealing(self.ir.replica_grouping(), self.state.shape)

    @property
    def shape_on_replica(self) -> tuple[int, ...]:
        """The shape on a replica."""
        return self.dealing.shape_on_replica

    @property
    def shape_on_host(self) -> tuple[int, ...]:
        """The shape of its array on the host: with the number of groups of replicas before it, if there are several."""
        return self.dealing.shape_on_host

    @property
    def replica_grouping(self) -> ReplicaGrouping:
        """The groups of replicas that have one value."""
        return self.dealing.grouping

    @property
    def retrieval_mode(self) -> Retrieval:
        """Whose values the host reads."""
        return self.dealing.retrieval


host_tensor_types = (np.ndarray, Iterable)  # data that become tensors; those of PyTorch are iterable too
HostTensor, HostScalarTensor = np.ndarray[Any, Any] | Iterable[Any], np.ndarray[Any, Any] | Iterable[Any] | float | bool


class Constant(Tensor):
    """A tensor whose values are known."""

    pb_type: ClassVar[str] = "Const"

    def __init__(self, ssa: SSAValue, graph: Graph, id: str, data: NDArray[Any]):
        super().__init__(ssa, graph, id)
        self.data = data

    def copy_to_ipu(self, dst: int, src: int | None = None) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Calls `ops.ipu_copy`; PopXL has other names of parameters here."""
        return super().copy_to_ipu(dst, src)


def variable(
    data: Any,
    dtype: dtypes.dtype | None = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    retrieval_mode: Retrieval | None = None,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Variable:
    """Gives a variable of the main graph, with its first value; numbers of 64 bits become those of 32, unless `downcast` is False.

    Data of an 8-bit float are multiplied by `2^log2_scale` before they are rounded, and what is too large becomes NaN unless
    `nan_on_overflow` is False. Raises ValueError outside of the main graph, and RuntimeError where these two are given for another type.
    Each group of a `replica_grouping` has a value of its own, a row of the data; by default all replicas have one. `retrieval_mode`:
    `all_replicas` reads every replica's value. Raises ValueError for data without a row for each group.
    """
    graph = get_current_graph()
    if graph is not graph.ir.main_graph:
        raise WrongValue(f"graph '{graph.name}' cannot have a variable; make it in the main graph and pass it in by popxl.graph_input")
    array = _checked(data, dtype, downcast, log2_scale, nan_on_overflow)
    made = graph.variable(array, name or "t", dealing_of(array, replica_grouping, retrieval_mode))
    made.mapped = mapped_file(data, replica_grouping, made)
    return made


def mapped_file(data: Any, groups: ReplicaGrouping | None, variable: Variable) -> np.memmap[Any, Any] | None:
    """Gives the mapped file that a variable is made of. Groups of no constant distance take copies of it, which a warning says."""
    if not isinstance(data, np.memmap):
        return None
    if groups is not None and not groups.is_const:
        why = "you have passed np.memmap data and a non-const replica grouping"
        getLogger().warn(f"{variable.id}: {why}; the variable is a copy of the file")
        return None
    return cast("np.memmap[Any, Any]", data)


def dealing_of(
    array: NDArray[Any], grouping: ReplicaGrouping | None, retrieval: Retrieval | None, shard_over: int | None = None
) -> Dealing | None:
    """Gives how data is dealt to replicas, None for the same to all. Raises ValueError for data without a row for each group."""
    if grouping is None and shard_over is None and retrieval in (None, "one_per_group"):
        return None
    groups = get_current_graph().ir.replica_grouping() if grouping is None else grouping
    check_rows(array, groups)
    shape = array.shape[1:] if groups.num_groups > 1 else array.shape
    return Dealing(groups, shape, retrieval or "one_per_group", shard_over)


def constant(
    data: Any,
    dtype: dtypes.dtype | None = None,
    name: str | None = None,
    downcast: bool = True,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Constant:
    """Makes data a tensor of the current graph; numbers of 64 bits become those of 32, unless `downcast` is False.

    The last two are of 8-bit floats, as in `variable`. Raises RuntimeError where they are given for another type.
    """
    return get_current_graph().constant_tensor(_checked(data, dtype, downcast, log2_scale, nan_on_overflow), name or "t")


def _checked(data: Any, dtype: dtypes.dtype | None, downcast: bool, log2_scale: int | None, nan_on_overflow: bool | None) -> NDArray[Any]:
    try:
        return to_numpy(data, dtype, downcast, True, log2_scale, nan_on_overflow)
    except (TypeError, ValueError) as error:
        if isinstance(error, WrongType | WrongValue):
            raise
        raise WrongType(f"{type(data).__name__} is no data of a tensor: {error}") from None


def graph_input(
    shape: Iterable[int], dtype: dtypes.dtype, name: str | None = None, by_ref: bool = False, meta_shape: Iterable[int] | None = None
) -> Tensor:
    """Gives a new input of the current graph. `by_ref`: a call changes the tensor that it is given where the graph changes this.

    Raises ValueError in the main graph, whose inputs are streams and variables.
    """
    graph = get_current_graph()
    if graph is graph.ir.main_graph:
        raise WrongValue("the main graph takes its inputs from streams and variables: use popxl.h2d_stream or popxl.variable")
    made = graph.input_tensor(tuple(map(index, shape)), dtype, name or "t", by_ref)  # sizes may be NumPy's integers
    made.meta_shape = tuple(map(index, meta_shape or ()))
    return made


def graph_output(t: Tensor) -> None:
    """Makes a tensor an output of the current graph. Raises ValueError in the main graph, and for a tensor of another."""
    graph = get_current_graph()
    if graph is graph.ir.main_graph:
        raise WrongValue("the main graph gives its outputs to streams: use ops.host_store")
    if t.graph is not graph:
        raise WrongValue(f"{t.id} is not a tensor of graph '{graph.name}'")
    graph.output_tensor(t)
