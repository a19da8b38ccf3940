"""Runs an Ir on a model of the machine; variables keep what a run makes of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from populus.dialects.support.guard import Guard
from populus.popart.devices import DeviceInfo
from populus.popart.logger import getLogger
from populus.popxl.dealing import Dealing
from populus.popxl.dot import FINAL, checkpoint
from populus.popxl.errors import Missing, NotAttached, WrongType, WrongValue
from populus.popxl.internals.ambiguity import check_ambiguity
from populus.popxl.ir import Ir
from populus.popxl.remote_buffer import RemoteVariable
from populus.popxl.streams import DeviceToHostStream, HostToDeviceStream, Stream, Watch
from populus.popxl.tensor import Constant, HostScalarTensor, State, Variable
from populus.popxl.utils import _to_device_info, held, seen  # pyright: ignore[reportPrivateUsage]
from populus.program.compile import compile
from populus.program.options import EngineName
from populus.program.program import Program
from populus.program.replicas import Replicas
from populus.program.stepper import Schedule, Stepper

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_LOG = getLogger("session")
h2dStreamBufferMaps = Mapping[HostToDeviceStream, HostScalarTensor]
d2hStreamBufferMaps = Mapping[DeviceToHostStream, np.ndarray[Any, Any]]
# Kinds of devices that a program of one kind runs on. Source: Graphcore, PopXL, `Session`.
RUNS_ON = {"Cpu": ("Cpu",), "IpuModel": ("IpuModel", "Sim", "Cpu"), "Sim": ("IpuModel", "Sim", "Cpu")}


class Session:
    """An Ir, compiled.

    `device_desc`: `ipu_model` and `ipu_hw`, a model of a GC200, or `cpu`, a machine without limits; or a `popart.DeviceInfo`. `tiles`: how
    many tiles of it. The device's variables begin as the Ir's, and keep what each run makes of them. The host has a copy, read and written
    by `get_tensor_data` and `write_variable_data`; `weights_to_host_on_exit` False leaves it as it is at the end of a `with`. The session
    options' `enableEngineCaching` keeps compiled programs in `cachePath`.
    Raises ValueError for another device, and PopulusError for what cannot be compiled.
    """

    def __init__(
        self,
        ir: Ir,
        device_desc: str | DeviceInfo = "cpu",
        weights_to_host_on_exit: bool = True,
        *,
        tiles: int | None = None,
        engine: EngineName = "auto",
    ):
        self.ir, self.weights_to_host_on_exit = ir, weights_to_host_on_exit
        machines = 1 if device_desc == "cpu" else ir.replication_factor
        self._compiled_for = device_desc if isinstance(device_desc, DeviceInfo) else _to_device_info(device_desc, machines)
        self._device_info = self._compiled_for
        checkpoint(ir, FINAL)
        if ir.session_options.enableInplaceAmbiguityChecking:
            check_ambiguity(ir)
        self._changed = set(ir.main_graph.finals())  # states that a run changes
        self.program = self._compile(tiles or self._compiled_for.tiles, engine)
        self._attached = 0  # by how many threads that are inside a `with`
        self._counting = Guard()
        tables = {state for pair in ir.tables().values() for state in pair}
        self._replicas = Replicas(self.program, ir.replication_factor)
        names = ir.main_graph.names_of_states
        changes = {names[state]: f"after {state.name}" for state in self._changed if state in names}
        schedule = Schedule(changes=changes, fetched=self.program.signature.outputs)
        self._stepper = Stepper(schedule, self._replicas.place, self._replicas.programs)
        self._host = {s: self._first(s) for s in ir.main_graph.states if s not in tables and s.data is not None}  # of each replica
        self._device = dict(self._host)
        self._stale = False  # whether the device's variables are newer than the host's

    def _first(self, state: State) -> list[NDArray[Any]]:
        """Gives what each replica's state is at first."""
        assert state.data is not None
        dealing = state.dealing or Dealing(self.ir.replica_grouping(), state.shape)
        each = [np.array(part) for part in dealing.dealt(state.data)]
        for row, (dealing, data) in state.rows.items():
            for array, part in zip(each, dealing.dealt(data), strict=True):
                array[row] = part.reshape(array[row].shape)
        return each

    def _compile(self, tiles: int | None, engine: EngineName) -> Program:
        """Compiles the Ir, or loads it from the folder that the session options name."""
        options, folder = self.ir.session_options, None
        if options.enableEngineCaching:
            key = sha256(json.dumps(sorted(options.engineOptions.items())).encode()).hexdigest()[:16]
            folder = Path(options.cachePath) / (key if options.engineOptions else "")
        made = compile(self.ir.module(), target=self._compiled_for.target, tiles=tiles, engine=engine, cache=folder or False)
        _LOG.debug("Starting compilation" if made.timings or folder is None else f"Loading serialized PopART executable from {folder}")
        return made

    @property
    def device(self) -> DeviceInfo:
        """The machine that the session attaches to."""
        return self._device_info

    @device.setter
    def device(self, device: DeviceInfo) -> None:
        self._device_info = device

    def _set_device(self, device: DeviceInfo) -> None:  # pyright: ignore[reportUnusedFunction]
        """Makes the session attach to another machine from its next `with` on."""
        self.device = device

    def _attach(self) -> None:
        """Attaches to the machine. Raises ValueError for one that the program was not compiled for."""
        compiled, found = self._compiled_for, self._device_info
        if found.numIpus != compiled.numIpus or found.type.name not in RUNS_ON.get(compiled.type.name, ("Ipu", "OfflineIpu")):
            wanted, given = (f"{d.numIpus} of {d.type.name}" for d in (compiled, found))
            raise WrongValue(f"the session was compiled for {wanted}; it cannot be attached to {given}")
        found.attach()

    @property
    def is_attached(self) -> bool:
        """True inside a `with` of the session, of any thread."""
        return self._attached > 0

    def __enter__(self) -> Self:
        with self._counting.lock:
            if not self._attached:
                self._attach()
                self._from_host()
            self._attached += 1
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._counting.lock:
            self._attached -= 1
            if not self._attached:
                if self.weights_to_host_on_exit and error is None:
                    self._to_host()
                self._device_info.detach()

    def expected_inputs(self) -> list[HostToDeviceStream]:
        """Gives the streams that a run wants arrays for."""
        return list(self.ir.main_graph.loads)

    def create_host_outputs(self) -> dict[DeviceToHostStream, NDArray[Any]]:
        """Gives an array for each stream to the host, for `run_with_outputs`; of several transfers, with their number before its shape."""
        return {s: np.empty((*self._extra(), *s.shape), s.dtype.as_numpy()) for s in self.ir.main_graph.stores}

    def _check_attached(self) -> None:
        if not self.is_attached:
            raise NotAttached("the session is not attached to its device; run it inside `with session:`")

    def run(
        self, inputs: Mapping[HostToDeviceStream, ArrayLike] | None = None, downcast_inputs: bool = True
    ) -> dict[DeviceToHostStream, NDArray[Any]]:
        """Gives the arrays of the streams to the host, for arrays (or Python numbers) of those from it.

        With `ir.num_host_transfers` above 1, each has that many rows; with several replicas, each row has one for each.
        Several threads may run one session that changes no variable.
        Raises PopulusError outside of a `with` of the session, and for inputs that are missing, unknown or of another shape.
        """
        self._check_attached()
        for stream in inputs or {}:
            if not isinstance(cast("object", stream), HostToDeviceStream):
                raise WrongType(f"inputs are by the streams that popxl.h2d_stream gave, and {stream!r} is a {type(stream).__qualname__}")
        streams = {stream: self._dealt(stream, data) for stream, data in (inputs or {}).items()}
        here, names = self._replicas.place.here, self.ir.main_graph.names_of_states
        own = self.ir.own_replicas
        each = [self._fed({s: parts[k - own.start] for s, parts in streams.items()}, downcast_inputs) for k in here]
        held = [{names[s]: arrays[k] for s, arrays in self._device.items() if s in names} for k in here]
        results = next(self._stepper.run(lambda _, part: each, held, lambda _, replica: ())).results
        for state in self._changed & self._device.keys():
            self._device[state] = [found[f"after {state.name}"] for found in results]
            self._stale, state.in_sync = True, False
        mine = results[own.start : own.stop]
        for found in mine:
            self._look(found)
        stores = self.ir.main_graph.stores
        return {stream: self._joined([self._stored(stream, events, found) for found in mine]) for stream, events in stores.items()}

    def _fed(self, inputs: Mapping[HostToDeviceStream, Any], downcast: bool) -> dict[str, NDArray[Any]]:
        """Gives a replica's inputs of the program, without its variables."""
        given: dict[str, NDArray[Any]] = {}
        for stream, data in inputs.items():
            self._feed(given, stream, data, downcast)
        names = self.ir.main_graph.names_of_states
        tables = self.ir.tables()
        for stream, rows in zip(tables, self.ir.rows()):
            for state in tables[stream]:
                shape = (rows, *stream.shape) if state is tables[stream][0] else (1,)
                if state in names and state not in self._device and names[state] not in given and not self._lacks(stream, inputs):
                    given[names[state]] = np.zeros(shape, state.dtype)
        return given

    def _dealt(self, stream: HostToDeviceStream, data: Any) -> list[Any]:
        """Gives each replica its part of a stream's data: of several, the dimension after that of transfers is the replica."""
        count, axis = self.ir.instance_replication_factor, len(self._transfers())
        if count == 1:
            return [data]
        array = np.asarray(data.detach().cpu().numpy() if hasattr(data, "detach") else data)
        sizes = ([n for n in shape if n != 1] for shape in (array.shape[axis + 1 :], stream.shape))
        if array.shape[axis : axis + 1] != (count,) or next(sizes) != next(sizes):
            expected = [*self._extra(), *stream.shape]
            raise WrongValue(f"input '{stream.name}' has shape {list(array.shape)}; {expected} is expected, for {count} replicas")
        return [array.take(k, axis) for k in range(count)]

    def _joined(self, arrays: list[NDArray[Any]]) -> NDArray[Any]:
        """Gives the host's array of each replica's."""
        return arrays[0] if len(arrays) == 1 else np.stack(arrays, len(self._transfers()))

    def run_with_outputs(
        self,
        inputs: Mapping[HostToDeviceStream, ArrayLike] | None = None,
        outputs: Mapping[DeviceToHostStream, NDArray[Any]] | None = None,
        downcast_inputs: bool = True,
    ) -> None:
        """Runs as `run` does, into arrays of `create_host_outputs`. Raises ValueError for other streams and shapes."""
        given = dict(outputs or {})
        expected = self.create_host_outputs()
        if given.keys() != expected.keys():
            names, stored = (", ".join(s.name for s in streams) or "nothing" for streams in (given, expected))
            raise WrongValue(f"outputs are of {names}; {stored} are stored")
        for stream, array in given.items():
            if array.shape != expected[stream].shape and array.size != 1:
                raise WrongValue(f"the array for '{stream.name}' is {list(array.shape)}; {list(expected[stream].shape)} is expected")
        for stream, array in self.run(inputs, downcast_inputs).items():
            given[stream][...] = array.reshape(given[stream].shape)

    # -- variables

    def weights_to_host(self) -> None:
        """Makes the host's copies of variables those of the device, if a run changed them; mapped files too.

        Raises ValueError outside of a `with` of the session, and for a file that is mapped to be read only; the other variables are on the
        host then.
        """
        self._check_attached()
        self._to_host()

    def _to_host(self) -> None:
        if not self._stale:
            return
        self._host, self._stale = {s: [np.array(a) for a in arrays] for s, arrays in self._device.items()}, False
        for variable in self.ir.main_graph.variables:
            self._map(variable)
        self._settle()
        _LOG.debug("Writing weights to host complete.")

    def weights_from_host(self) -> None:
        """Makes the device's variables the host's copies. Raises ValueError outside of a `with` of the session."""
        self._check_attached()
        self._from_host()

    def _from_host(self) -> None:
        self._device, self._stale = {s: [np.array(a) for a in arrays] for s, arrays in self._host.items()}, False
        self._settle()
        _LOG.debug(f"Writing weights from host, {len(self._device)} of them.")

    def _settle(self) -> None:
        for state in self._host:
            state.in_sync = True

    def _map(self, variable: Variable) -> None:
        """Writes the host's copy of a variable into the file that is mapped to it, if there is one."""
        if variable.mapped is not None:
            variable.mapped[...] = self._value(variable)
            variable.mapped.flush()

    def _value(self, variable: Variable) -> NDArray[Any]:
        """Gives the host's copy."""
        arrays, dealing = self._host[self._state(variable)], variable.dealing
        if isinstance(variable, RemoteVariable):
            arrays = [a[variable.row].reshape(dealing.shape_on_replica) for a in arrays]
        return seen(dealing.gathered(arrays))

    def get_tensor_data(self, tensor: Variable | Constant) -> NDArray[Any]:
        """Gives the value of a variable on the device, or on the host if the session is not attached, or of a constant.

        Of a variable that was made of a mapped file, it is the mapping itself.
        Raises TypeError for a tensor of another kind, and ValueError for a variable of another Ir.
        """
        if isinstance(tensor, Constant):
            return tensor.data
        self._state(tensor, "Constant or Variable")
        if self.is_attached:
            self._to_host()
        return self._value(tensor) if tensor.mapped is None else tensor.mapped

    def get_tensors_data(self, tensors: Iterable[Variable | Constant]) -> dict[Variable | Constant, NDArray[Any]]:
        """Calls `get_tensor_data` of several."""
        return {t: self.get_tensor_data(t) for t in tensors}

    def write_variable_data(self, tensor: Variable, data: Any) -> None:
        """Gives a variable another value, on the host and, if attached, on the device.

        Raises TypeError for what is no variable or of another element type, ValueError for another shape, and NotImplementedError for a
        variable that is read from all replicas.
        """
        self.write_variables_data({tensor: data})

    def write_variables_data(self, tensors: Mapping[Variable, Any]) -> None:
        """Calls `write_variable_data` of several; all are checked before any is written."""
        arrays: dict[Variable, NDArray[Any]] = {}
        for tensor, data in tensors.items():
            self._state(tensor)
            if tensor.retrieval_mode == "all_replicas":
                raise Missing(f"{tensor.id} is read as every replica has it, so it cannot be written; take one_per_group")
            array = np.asarray(data, tensor.dtype.as_numpy()) if isinstance(data, int | float) else np.asarray(data)
            if array.dtype != tensor.dtype.as_numpy():
                raise WrongType(f"{tensor.id} is {tensor.dtype}; the data is {array.dtype}")
            if array.shape != tensor.shape_on_host:
                raise WrongValue(f"{tensor.id} is {list(tensor.shape_on_host)}; the data is {list(array.shape)}")
            arrays[tensor] = held(array)
        if self.is_attached:
            self._to_host()
        for tensor, array in arrays.items():
            state, parts = self._state(tensor), tensor.dealing.dealt(array)
            if isinstance(tensor, RemoteVariable):
                for whole, part in zip(self._host[state], parts, strict=True):
                    whole[tensor.row] = part.reshape(whole[tensor.row].shape)
            else:
                self._host[state] = [np.array(part) for part in parts]
            self._map(tensor)
        if self.is_attached:
            self._from_host()

    def _state(self, tensor: Any, kinds: str = "Variable") -> State:
        if not isinstance(tensor, Variable) or tensor.state is None:
            raise WrongType(f"Tensor {getattr(tensor, 'id', tensor)} is not of type {kinds}; a session knows no other values")
        if tensor.ir is not self.ir:
            raise WrongValue(f"{tensor.id} is a variable of another Ir")
        # A buffer that no op reads has no place on the device; the host's copy is all there is.
        assert tensor.state.data is not None
        self._host.setdefault(tensor.state, self._first(tensor.state))
        return tensor.state

    # -- streams

    def _transfers(self) -> tuple[int, ...]:
        return (self.ir.num_host_transfers,) if self.ir.num_host_transfers > 1 else ()

    def _extra(self) -> tuple[int, ...]:
        """Gives the dimensions of an array of the host before those of a stream: transfers and replicas, of which there are several."""
        count = self.ir.instance_replication_factor
        return (*self._transfers(), *((count,) if count > 1 else ()))

    def _full_input_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:  # pyright: ignore[reportUnusedFunction], which programs call
        return (*self._extra(), *shape)

    def _lacks(self, stream: Stream, inputs: Any) -> bool:
        """Tells whether a run needs an array for a stream that it is not given."""
        return isinstance(stream, HostToDeviceStream) and stream not in (inputs or {})

    def _feed(self, given: dict[str, NDArray[Any]], stream: HostToDeviceStream, data: Any, downcast: bool) -> None:
        """Gives the inputs of the program for a stream's array."""
        graph, wanted = self.ir.main_graph, stream.dtype.as_numpy()
        array = np.asarray(data.detach().cpu().numpy() if hasattr(data, "detach") else data)
        # PopXL converts what NumPy makes of Python's numbers; a narrower type than the stream's never loses anything.
        array = array.astype(wanted) if downcast and not wanted.names and np.can_cast(array.dtype, wanted, "same_kind") else array
        if stream not in graph.loads:
            given[stream.name] = array  # the program says what is wrong with it
            return
        n, events = self.ir.num_host_transfers, graph.loads[stream]
        if n > 1:
            if array.shape[:1] == (n,) and [s for s in array.shape[1:] if s != 1] == [s for s in stream.shape if s != 1]:
                array = array.reshape(n, *stream.shape)  # dimensions of one element count for nothing, as for a number
            if array.shape[1:] != stream.shape or array.shape[0] < n:
                raise WrongValue(f"input '{stream.name}' has shape {list(array.shape)}; {n} rows of {list(stream.shape)} are expected")
        elif array.size == 1 and np.prod(stream.shape) == 1:
            array = array.reshape(stream.shape)  # a number is an array of one element, of however many dimensions
        array = held(array)
        total, table, at = sum(e if isinstance(e, int) else 1 for e in events), list[Any](), 0
        rows = [array[k % n] if n > 1 else array for k in range(total)]
        for event in events:
            if isinstance(event, str):
                given[event] = rows[at]
                at += 1
            else:
                table += rows[at : at + event]
                at += event
        if table:
            given[graph.names_of_states[self.ir.table(stream)[0]]] = np.stack(table)

    def _look(self, results: Mapping[str, NDArray[Any]]) -> None:
        """Calls the functions that watch tensors, in the order in which the program came to them."""
        found: list[tuple[int, Watch, NDArray[Any]]] = []
        for watch in self.ir.main_graph.watches:
            if watch.times is not None:
                (rows, row), (times, _) = self.ir.table(watch), self.ir.table(watch.times)
                count = int(results[f"after {row.name}"][0])
                moments = results[f"after {times.name}"][:count]
                found += [(int(m[0]), watch, array) for m, array in zip(moments, results[f"after {rows.name}"])]
        for _, watch, array in sorted(found, key=lambda f: f[0]):
            if watch.look is not None:
                watch.look(seen(array))

    def _stored(self, stream: DeviceToHostStream, events: list[str | int], results: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """Gives the array of a stream from the program's outputs; of more stores than transfers, the last ones."""
        found, at = list[Any](), 0
        for event in events:
            if isinstance(event, str):
                found.append(seen(results[event]))
            else:
                found += list(seen(results[f"after {self.ir.table(stream)[0].name}"][at : at + event]))
                at += event
        n = self.ir.num_host_transfers
        if n == 1:
            return found[-1]
        rows = np.zeros((n, *stream.shape), stream.dtype.as_numpy())
        for k, row in enumerate(found):
            rows[k % n] = row
        return rows
