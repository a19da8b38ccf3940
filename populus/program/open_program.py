"""Models with open dimensions: a program for each bucket of sizes, compiled on first use and kept."""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from xdsl.dialects.builtin import DYNAMIC_INDEX

from populus.dialects.onnx.dimensions import parts
from populus.dialects.onnx.types import as_tensor, dimension_name, from_proto, is_open
from populus.dialects.signature.map_inputs import as_rows
from populus.dialects.support.diagnostics import PopulusError, did_you_mean, option
from populus.dialects.support.element_types import tensor
from populus.dialects.support.garbage import give_back_memory
from populus.dialects.support.guard import Guard
from populus.lowering.poplar.allocate import TooLargeError
from populus.program.buckets import bucket
from populus.program.options import CompileOptions
from populus.program.padding import SEEN, Shapes, UnequalSizesError
from populus.program.program import Program
from populus.program.signature import Signature
from populus.runtime.built.given import array_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ValueInfoProto
    from xdsl.dialects.builtin import ModuleOp, TensorType
    from xdsl.ir import Attribute

    from populus.lowering.driver.pipeline import Pipeline
    from populus.program.source import Arrays, Source
    from populus.runtime.profile import Profile

KEPT = 32  # programs of a model; they share its weights
STALE = 4 * KEPT  # changes of size after which an unused program counts as out of use

Key: TypeAlias = tuple[tuple[str, int | tuple[int, int]], ...]  # (dimension, its size or range), by name


class _Place:
    """The program of one size, once it is compiled, and the lock of the thread that compiles it."""

    def __init__(self) -> None:
        self.compiling = Guard()
        self.program: Program | None = None
        self.used = 0  # number of changes of size until its last use


def _give_back_memory() -> None:
    """Collects the cycles of discarded IR, which compiling leaves, and gives freed memory to the system."""
    gc.collect(0)  # none was collected while compiling, so all are young
    give_back_memory()


class OpenProgram(Program):
    """A compiled model with open dimensions: `run` takes inputs of any size that the model allows.

    `names`: the open dimensions of each input, in order, by position. `specialise` compiles for sizes by name; a pair is a range.
    A program serves all sizes of a bucket, unless the options say `exact` or the compiler refuses a range; `sizes` tells.
    Levels and profile are those of the program that ran last, or with sizes, as in `profile(batch=4)`, of exactly these.
    Threads that need the same new program wait for the one that compiles it. Programs that exist do not wait.
    """

    def __init__(
        self,
        source: Source,
        pipeline: Pipeline,
        options: CompileOptions,
        names: Mapping[str, Mapping[int, str]],
        specialise: Callable[[Mapping[str, int | tuple[int, int]]], Program],
    ):
        super().__init__(source, pipeline, options)
        self._names = names
        self.specialise = specialise
        self.compilations = 0  # so far
        self.ran: Key | None = None  # of the program that ran last
        self._refusal = "asked for" if options.exact else "" if source.open is None else "a program of StableHLO"
        self._refused: set[Key] = set()  # ranges that do not fit the machine
        self._seen: dict[Shapes, Key] = {}  # the program that runs of these shapes use
        self._kept: OrderedDict[Key, _Place] = OrderedDict()  # by last use
        self._changes = 0  # of size, so far
        self._keeping = Guard()

    def __repr__(self) -> str:
        named = ", ".join(dict.fromkeys(d for dimensions in self.names.values() for d in dimensions.values()))
        return f"<OpenProgram of {named}: {self.sizes}, {len(self._kept)} programs>"

    @property
    def names(self) -> Mapping[str, Mapping[int, str]]:
        return self._names

    @property
    def _taken(self) -> Collection[str]:
        return self._names

    @property
    def several(self) -> Mapping[str, Mapping[int, str]]:
        dims = self.source.dims
        return {i: {d: n for d, n in named.items() if not isinstance(dims.get(n), int)} for i, named in dimensions(self.source).items()}

    def most(self, name: str) -> tuple[int | None, ...]:
        named, (inputs, _) = self.several.get(name, {}), self.stated_types()
        ranges = [self.source.dims.get(named.get(d, "")) for d in range(inputs[name].get_num_dims())]
        return tuple(n if n >= 0 else r[1] if isinstance(r, tuple) else None for n, r in zip(inputs[name].get_shape(), ranges))

    @property
    def sizes(self) -> str:
        """Says what a program serves: `buckets`, or `exact: REASON` where ranges of sizes have no programs."""
        return f"exact: {self._refusal}" if self._refusal else "buckets"

    def build(self, progress: Callable[[int, str], None] | None = None) -> None:
        """Reads the model; compiling waits until sizes are known. Raises PopulusError."""
        if self.source.open is not None:  # its types were read
            return
        self.source.module(self.source.context())

    def sized(self, **sizes: int) -> Program:
        """Gives the program for exactly these sizes of dimensions, compiled if needed. Raises PopulusError."""
        return self.keyed(tuple(sorted(sizes.items())))

    def keyed(self, key: Key) -> Program:
        """Gives the program of a key, compiled if needed. Raises PopulusError."""
        with self._keeping.lock:
            if next(reversed(self._kept), None) != key:
                self._changes += 1
            place = self._kept.setdefault(key, _Place())
            place.used = self._changes
            self._kept.move_to_end(key)
        if place.program is None:
            with place.compiling.lock:
                if place.program is None:
                    place.program = self._compiled_at(key, place)
        return place.program

    def _compiled_at(self, key: Key, place: _Place) -> Program:
        """Compiles the program of a place. A program that fails to compile is not kept."""
        try:
            made = self.specialise(dict(key))
        except BaseException:
            with self._keeping.lock:
                if self._kept.get(key) is place:
                    del self._kept[key]
            raise
        with self._keeping.lock:
            self.compilations += 1
            while len(self._kept) > KEPT:
                del self._kept[self._dispensable(key)]
        _give_back_memory()
        return made

    def _dispensable(self, new: Key) -> Key:
        """Chooses the program to drop for a new one: the oldest if it is out of use, else the latest.

        If sizes recur in a cycle that is longer than KEPT, dropping the oldest each time would find none of them.
        """
        oldest = next(iter(self._kept))
        if self._changes - self._kept[oldest].used > STALE:
            return oldest
        return next(key for key in reversed(self._kept) if key != new)

    def sized_for(self, inputs: Mapping[str, Any]) -> Program:
        """Gives the program for exactly the sizes of these inputs.

        Raises PopulusError if an input is missing or sizes disagree.
        """
        return self.sized(**self._sizes(inputs))

    def program_for(self, inputs: Mapping[str, Any], room: Mapping[str, int] = MappingProxyType({})) -> Program:
        """Gives the program that `run` uses for these inputs: that of their bucket, if there may be one.

        `room`: dimensions that grow, with the size that their bucket has to hold. A program of theirs serves all smaller sizes too.
        Raises PopulusError if an input is missing or sizes disagree.
        """
        return self.key_and_program(inputs, room)[1]

    def key_and_program(self, inputs: Mapping[str, Any], room: Mapping[str, int] = MappingProxyType({})) -> tuple[Key, Program]:
        """Gives what `program_for` gives, after its key. Raises PopulusError as that does."""
        shapes = None if room else self._shapes(inputs)
        if shapes in self._seen:
            return self._seen[shapes], self.keyed(self._seen[shapes])
        key, program = self._serving(self._sizes(inputs), room)
        if shapes is not None:
            if len(self._seen) >= SEEN:
                self._seen.clear()
            self._seen[shapes] = key
        return key, program

    def serving(self, **sizes: int) -> Program:
        """Gives the program that `run` uses for inputs of these sizes of dimensions: that of their bucket, if there may be one.

        Raises PopulusError for what is wrong with the model at any size.
        """
        return self._serving(sizes, {})[1]

    def _serving(self, sizes: Mapping[str, int], room: Mapping[str, int]) -> tuple[Key, Program]:
        """Gives the key and the program for sizes."""
        key, exact = self._bucket(sizes, room), tuple(sorted(sizes.items()))
        if self._refusal or key in self._refused or key == exact:
            return exact, self.keyed(exact)
        try:
            return key, self.keyed(key)
        except PopulusError as error:
            program = self.keyed(exact)  # raises for what is wrong with the model at any size
            self._seen.clear()
            if isinstance(error, TooLargeError):
                self._refused.add(key)
            else:
                self._refusal = str(error)
            return exact, program

    def _shapes(self, inputs: Mapping[str, Any]) -> Shapes | None:
        """Gives the shapes of the inputs that have open dimensions; None where one is no array."""
        found: list[tuple[str, tuple[int, ...]]] = []
        for name in self.names:
            if not isinstance(array := inputs.get(name), np.ndarray):
                return None
            found.append((name, cast("NDArray[Any]", array).shape))
        return tuple(found)

    def run_at(self, level: str, inputs: Mapping[str, Any]) -> Arrays:
        """Runs one level and gives its outputs. Raises PopulusError for inputs that do not match the model, and sizes that disagree."""
        if self.source.opened is not None:
            inputs = as_rows(self.source.opened.maps, inputs)
        key, program = self.key_and_program(inputs)
        last = self._kept.get(self.ran) if self.ran not in (None, key) else None
        self.ran = key
        if last is not None and last.program is not None:
            last.program.rest()  # programs of other sizes would each keep the memory of their variables
        try:
            return program.run_at(level, inputs)
        except UnequalSizesError:
            return self.sized_for(inputs).run_at(level, inputs)

    def free(self, names: Collection[str]) -> list[str]:
        """Lists those of the dimensions that do not follow from others, as `past + cur` does."""
        known = {*names, *self.source.dims}
        return [name for name in names if not (others := parts(name)) or others == {name} or not others <= known]

    def _bucket(self, sizes: Mapping[str, int], room: Mapping[str, int]) -> Key:
        """Gives the key of a program for these sizes."""
        found: dict[str, int | tuple[int, int]] = {}
        for name in self.free(sizes):
            found[name] = bucket(sizes[name], self.options.buckets)
            if name in room:
                held = bucket(max(sizes[name], room[name]), self.options.buckets)
                found[name] = (0, held if isinstance(held, int) else held[1])
        return tuple(sorted(found.items()))

    def _sizes(self, inputs: Mapping[str, Any]) -> dict[str, int]:
        found: dict[str, tuple[int, str]] = {}
        for name, dimensions in self.names.items():
            if name not in inputs:
                raise PopulusError(f"input '{name}' is missing{did_you_mean(name, inputs)}")
            shape = array_of(name, inputs[name], PopulusError).shape
            for d, dimension in dimensions.items():
                if d >= len(shape):
                    raise PopulusError(f"input '{name}' has shape {list(shape)}; the model states a dimension '{dimension}' at {d}")
                size, first = found.setdefault(dimension, (shape[d], name))
                if size != shape[d]:
                    raise PopulusError(f"dimension '{dimension}' is {size} in input '{first}' and {shape[d]} in '{name}'")
        return {dimension: size for dimension, (size, _) in found.items()}

    def module(self, level: str, **sizes: int) -> ModuleOp:
        """Gives the IR of the program that ran last, or of that of exactly these sizes.

        Raises PopulusError without sizes if none has run, naming the dimension to bind.
        """
        return self._chosen(sizes).module(level)

    def profile(self, **sizes: int) -> Profile:
        """Gives the costs of the program that ran last, or of that of exactly these sizes. Raises PopulusError as `module` does."""
        return self._chosen(sizes).profile()

    def plans(self, **sizes: int) -> str:
        """Formats the plans of the program that ran last, or of that of exactly these sizes. Raises PopulusError as `module` does."""
        return self._chosen(sizes).plans()

    def page(self, title: str = "") -> str:
        return self._chosen({}).page(title)

    def _chosen(self, sizes: Mapping[str, int]) -> Program:
        if sizes:
            return self.sized(**sizes)
        return self._unbound() if self.ran is None else self.keyed(self.ran)

    @property
    def signature(self) -> Signature:
        """The signature with open sizes: `?` in types. `dimensions` of it has their names, by input and position.

        Raises PopulusError for an output that is no tensor, and for inputs whose rank is open.
        """
        inputs, results = self.stated_types()
        outputs = {name: t for name, found in results.items() if (t := as_tensor(found)) is not None}
        if strange := [name for name in results if name not in outputs]:
            open_names = sorted({name for sizes in self.names.values() for name in sizes.values()})
            given = " ".join(f"--dim {name}=1" for name in open_names) or "--dim NAME=N"
            hint = option(f"state the sizes, as {given}", "`sized` gives a program, whose signature has it")
            raise PopulusError(f"output '{strange[0]}' is no tensor of a known rank; {hint}")
        return Signature(inputs, outputs, dimensions=self._dimensions())

    def _dimensions(self) -> dict[str, dict[int, str]]:
        """Names the open sizes of inputs and outputs, by position."""
        found = {name: dict(open) for name, open in self.names.items() if open}
        if self.source.open is not None:
            return found
        assert self.source.opened is not None, self.source
        for o in self.source.opened.proto.graph.output:
            named = {d: dimension_name(dimension) for d, dimension in enumerate(o.type.tensor_type.shape.dim)}
            found[o.name] = {d: name for d, name in named.items() if name}
        return found

    def spread(self, inputs: Mapping[str, Any], orders: int = 20) -> dict[str, float]:
        return self.program_for(inputs).spread(inputs, orders)

    def stated_types(self) -> tuple[dict[str, TensorType[Attribute]], dict[str, Attribute]]:
        if (open := self.source.open) is not None:
            return {name: open.inputs[name] for name in self.names}, dict(open.results)
        assert self.source.opened is not None, self.source
        graph, dims, named = self.source.opened.proto.graph, self.source.dims, dimensions(self.source)

        def type_of(value: ValueInfoProto) -> Attribute:
            return from_proto(value.type, lambda name: n if isinstance(n := dims.get(name), int) else -1)

        def stated(i: ValueInfoProto) -> TensorType[Attribute] | None:
            if (type := as_tensor(type_of(i))) is None:
                return None
            sizes = [n if n >= 0 else dims.get(named[i.name].get(d, "")) for d, n in enumerate(type.get_shape())]
            return tensor([n if isinstance(n, int) else DYNAMIC_INDEX for n in sizes], type.element_type)

        inputs = {i.name: t for i in graph.input if i.name in self.names and (t := stated(i)) is not None}
        return inputs, {o.name: type_of(o) for o in graph.output}

    def _unbound(self) -> Program:
        """Compiles without sizes, which fails with the place and the name of the first missing one."""
        return self.specialise({})


def open_dimensions(source: Source) -> dict[str, dict[int, str]]:
    """Lists the dimensions of each input that are open by position; empty if no input has a dimension that is known to be open.

    `source`: a model that was read once; modules have no open dimensions. Inputs without a stated rank are left out.
    """
    found = {i: {d: name for d, name in named.items() if name not in source.dims} for i, named in dimensions(source).items()}
    return found if any(found.values()) else {}


def dimensions(source: Source) -> dict[str, dict[int, str]]:
    """Names the dimensions of each input that have no number in the model by position, as `open_dimensions` does."""
    if source.open is not None:
        return {name: dict(named) for name, named in source.open.dimensions.items() if name not in source.values}
    if source.opened is None:
        return {}
    proto = source.opened.proto
    initial = {i.name for i in proto.graph.initializer} | {i.values.name for i in proto.graph.sparse_initializer}
    found: dict[str, dict[int, str]] = {}
    for i in proto.graph.input:
        if i.name in initial or i.name in source.values or not i.type.HasField("tensor_type"):
            continue
        shape = enumerate(i.type.tensor_type.shape.dim)
        found[i.name] = {d: dimension_name(dimension) or f"{i.name}.{d}" for d, dimension in shape if is_open(dimension)}
    return found
