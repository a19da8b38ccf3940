"""The front door: `compile` a model, `run` the program, look at any level of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from zlib import crc32

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute

from populus.dialects.poplar.target import Spec
from populus.dialects.signature import input_names, output_names, state_names
from populus.dialects.signature.map_outputs import Map, maps
from populus.dialects.signature.required_values import Required, required
from populus.dialects.signature.string_table import NO_TEXTS, Texts, texts
from populus.dialects.signature.valid_lengths import Bounded, bounded, trimmed
from populus.dialects.support.budget import check_budget
from populus.dialects.support.diagnostics import PopulusError, did_you_mean, where
from populus.dialects.support.element_types import dtype_of, element_of, tensor
from populus.dialects.support.guard import Guard
from populus.dialects.table import context
from populus.lowering.driver import extensions
from populus.lowering.driver.files import in_file, read_module
from populus.lowering.driver.passes import PASSES
from populus.lowering.driver.phases import LEVELS
from populus.lowering.driver.pipeline import Pipeline, Timing, no_garbage_collection
from populus.lowering.driver.program_cache import ProgramCache, key_of, signature_module
from populus.lowering.popart.select_kernels import PopartSelectKernelsPass, report

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

    from populus.runtime.host.strings import Strings
    from populus.runtime.profile import Profile
    from populus.runtime.session import Session

    Model: TypeAlias = str | os.PathLike[str] | onnx.ModelProto | ModuleOp
    Arrays: TypeAlias = dict[str, NDArray[Any]]

ENGINES = ("numpy", "strict", "native")
CHOICES = ("auto", *ENGINES)


def compile(
    model: Model,
    *,
    target: str = "host",
    tiles: int | None = None,
    dims: Mapping[str, int] | None = None,
    pipeline: str | os.PathLike[str] | Pipeline = "inference",
    engine: str = "auto",
    level: str = "poplar",
    load: Sequence[str | os.PathLike[str]] = (),
    sample: int | None = None,
    narrow: bool = False,
    force_kernels: Sequence[str] = (),
    threads: int | None = None,
    host: bool = True,
    cache: bool | str | os.PathLike[str] = False,
    progress: Callable[[int, str], None] | None = None,
) -> Program:
    """A program for `model`: a path (`.onnx`, or `.mlir` at any level), an `onnx.ModelProto`, or a module, which is left as it is.

    `target` and `tiles`: the machine. `dims`: sizes of symbolic dimensions. `pipeline`: a name, a file, or a Pipeline.
    `engine`: `native`, machine code; `numpy`; `strict`, which checks every vertex; `auto`: native, but numpy for small programs.
    `level`: how far down to go before running (`popart`, `popops`, `poplar`).
    `load`: Python files with ops of your own. `sample`: how many vertices of a family `strict` looks at; all without it.
    `narrow`: compute in floats what the target cannot hold as doubles, and so on, checking that nothing overflows.
    `threads`: how many the native engine runs on; without it POPULUS_THREADS, else as many as there are CPUs for this process.
    A model with open dimensions that `dims` does not name becomes a program for each size that its inputs come in.
    `host`: whether the host may compute: strings, images; False refuses a model that needs it.
    `force_kernels`: `op:kernel`, which kernel computes an op, whatever it costs.
    `cache`: keep the program on disk, and take it from there if equal content was compiled before; True for the folder of
    POPULUS_CACHE. A program from there has the names and places of nodes of the model that it was compiled from.
    `progress`: told the number and name of each pass as it begins.
    Raises PopulusError.
    """
    if engine not in CHOICES:
        raise PopulusError(f"no engine '{engine}'{did_you_mean(engine, CHOICES)}")
    if level not in LEVELS:
        raise PopulusError(f"no level '{level}'{did_you_mean(level, LEVELS)}")
    if tiles is not None and tiles < 1:
        raise PopulusError(f"tiles = {tiles}; a machine has at least 1")
    if sample is not None and sample < 1:
        raise PopulusError(f"sample = {sample}; a family has at least 1 vertex to look at")
    loaded = list({e.module.__name__: e for e in (*extensions.known(), *map(extensions.load, load))}.values())
    Spec.of(target, tiles)  # which a file may have brought in
    passes = dict(PASSES)
    for extension in loaded:
        passes.update(extension.passes)
    chosen = pipeline if isinstance(pipeline, Pipeline) else Pipeline.read(pipeline, passes)
    if narrow:
        chosen = chosen.insert_before("poplin-to-poplar", PASSES["popops-narrow"]()())
    if force_kernels:
        chosen = chosen.replace("popart-select-kernels", PopartSelectKernelsPass(force=tuple(force_kernels)))
    chosen.check()
    source = Source(model, dict(dims or {}), tuple(loaded))
    if sample is not None and engine == "native":
        raise PopulusError(f"sample = {sample} with engine native, which runs whole families; engine strict looks at a sample of vertices")
    if threads is not None and (threads < 1 or engine not in ("auto", "native")):
        raise PopulusError(f"threads = {threads} with engine {engine}; the native engine runs on 1 thread or more, the others on one")
    final = chosen.with_defaults(target=target, tiles=tiles)
    kept = None if cache is False else ProgramCache.default() if cache is True else ProgramCache(Path(cache))

    def specialised(sizes: Mapping[str, int]) -> Program:
        made = Program(Source(model, {**source.dims, **sizes}, source.extensions), final, engine, level, sample, threads)
        made.cache = kept
        return _built(made, host, progress)

    from populus.open_program import OpenProgram, open_dimensions

    if names := open_dimensions(source):
        return _built(OpenProgram(source, final, engine, level, names, specialised), True, progress)
    return specialised({})


def _built(program: Program, host: bool, progress: Callable[[int, str], None] | None) -> Program:
    """The program, compiled. Raises PopulusError, also where it needs the host and may not."""
    with no_garbage_collection():
        program.build(progress)
    if not host and (needs := program.host_calls):
        more = f" and {len(needs) - 3} more" if len(needs) > 3 else ""
        raise PopulusError(f"the model needs the host, which is not to compute: {', '.join(needs[:3])}{more}")
    return program


@dataclass(frozen=True)
class Source:
    """Where modules come from: each call of `module` gives a new one."""

    model: Model
    dims: dict[str, int]
    extensions: tuple[extensions.Extension, ...] = ()

    def context(self) -> Context:
        """A context that knows what was loaded."""
        ctx = context()
        for extension in self.extensions:
            extension.register(ctx)
        return ctx

    def module(self, ctx: Context) -> ModuleOp:
        """The model as a module at its own level. Raises PopulusError if it cannot be read."""
        if isinstance(self.model, ModuleOp):
            self._refuse_dims("a module")
            return self.model.clone()
        if isinstance(self.model, str | os.PathLike):
            path = Path(self.model)
            if not path.exists():
                raise PopulusError(f"{path}: no such file")
            if path.suffix == ".mlir":
                self._refuse_dims(str(path))
                return read_module(ctx, path)
            if path.suffix != ".onnx":
                raise PopulusError(f"{path}: neither .onnx nor .mlir")
        from populus.lowering.onnx.custom_ops import custom_ops
        from populus.lowering.onnx.importer import import_onnx

        return import_onnx(self.model, dims=self.dims, customs=custom_ops(ctx))

    def _refuse_dims(self, what: str) -> None:
        if self.dims:
            raise PopulusError(f"{what} has no symbolic dimensions; dims are for ONNX models")


@dataclass(frozen=True)
class Signature:
    """The names and types of a program's inputs and outputs, in order."""

    inputs: dict[str, TensorType[Attribute]]
    outputs: dict[str, TensorType[Attribute]]
    required: tuple[Required, ...] = ()
    bounded: tuple[Bounded, ...] = ()
    texts: Texts = NO_TEXTS
    maps: tuple[Map, ...] = ()

    @staticmethod
    def of(module: ModuleOp) -> Signature:
        """That of `@main`: by its `input_names` and `output_names`; else arguments by their names and results as `output_0`, ...

        Raises PopulusError if there is no `@main`, or an input is no tensor of static shape.
        """
        op = _main(module)
        arguments = list(op.body.block.args)
        last = op.body.block.last_op
        results = [o.type for o in last.operands] if isinstance(last, ReturnOp) else []
        inputs, outputs = input_names(op), output_names(op)
        if len(inputs) != len(arguments) or len(outputs) != len(results):
            raise PopulusError(f"@main names {len(inputs)} inputs and {len(outputs)} outputs, and has {len(arguments)} and {len(results)}")
        strings = texts(op)
        return Signature(
            {name: _static(name, a.type, strings.inputs) for name, a in zip(inputs, arguments, strict=True)},
            {name: _static(name, t, strings.outputs) for name, t in zip(outputs, results, strict=True)},
            tuple(required(op)),
            tuple(bounded(op)),
            strings,
            tuple(maps(op)),
        )

    def state(self, module: ModuleOp) -> None:
        """Writes the names onto `@main`, for the levels below, whose streams have them."""
        state_names(_main(module), inputs=self.inputs, outputs=self.outputs)

    def checked(self, inputs: Mapping[str, Any]) -> Arrays:
        """The arrays for the inputs, in order.

        Raises PopulusError for a name, shape or dtype that is not the model's, for one that is missing, and for a value
        from which another shape follows than the model states.
        """
        import numpy as np

        for name in inputs:
            if name not in self.inputs:
                raise PopulusError(f"the model has no input '{name}'{did_you_mean(name, self.inputs)}")
        if missing := [name for name in self.inputs if name not in inputs]:
            given = f"; given are {', '.join(inputs)}" if inputs else ""
            raise PopulusError(f"input '{missing[0]}' is missing ({self.inputs[missing[0]]}){given}")
        arrays: Arrays = {}
        for name, type in self.inputs.items():
            if name in self.texts.inputs:
                array = _strings(name, inputs[name])
                if array.shape != type.get_shape():
                    raise PopulusError(f"input '{name}' has shape {_shape(array.shape)}, expected {_shape(type.get_shape())}")
                arrays[name] = array
                continue
            array, dtype = np.asarray(inputs[name]), dtype_of(type.element_type)
            if array.dtype.type is np.void and array.dtype.itemsize == dtype.itemsize:
                array = array.view(dtype)  # NumPy's files forget ml_dtypes' types but keep the bits
            if array.dtype != dtype:
                raise PopulusError(f"input '{name}' is {array.dtype}, expected {dtype}; array.astype('{dtype}') converts it")
            if array.shape != type.get_shape():
                raise PopulusError(f"input '{name}' has shape {_shape(array.shape)}, expected {_shape(type.get_shape())}")
            arrays[name] = array
        for entry in self.required:
            name = list(self.inputs)[entry.input]
            entry.check(name, arrays[name])
        return arrays

    @contextmanager
    def handled(self, arrays: Arrays) -> Generator[tuple[Strings, Arrays], None, None]:
        """The table of strings for a run inside, and the inputs with handles where they are strings."""
        from populus.runtime.host.strings import Strings, using

        if self.texts.table:
            with using(self.texts.table) as strings:
                yield strings, {name: strings.encode(a) if name in self.texts.inputs else a for name, a in arrays.items()}
        else:
            yield Strings(()), arrays

    def random(self, seed: int = 0) -> Arrays:
        """Inputs drawn by dtype: floats normal, booleans even, 8 and 16-bit integers of their whole range, wider ones 0 or 1.

        Wider integers are mostly indices, and 0 and 1 are valid in most places. An input's values depend on seed, name and type alone.
        """
        return {name: _draw(type, seed, name, self.texts.table) for name, type in self.inputs.items()}


class Program:
    """A compiled model. `run` it, look at its `module` at any level, ask its `profile`."""

    def __init__(self, source: Source, pipeline: Pipeline, engine: str, level: str, sample: int | None = None, threads: int | None = None):
        self.source = source
        self.pipeline = pipeline
        self.engine = engine
        self.level = level
        self.sample = sample
        self.threads = threads
        self.timings: list[Timing] = []
        self._modules: dict[str, ModuleOp] = {}
        self._signature: Signature | None = None
        self._top = level
        self.cache: ProgramCache | None = None
        self._session: Session | None = None
        self._making = Guard()  # a level, the signature, the session: each is made by one thread

    def build(self, progress: Callable[[int, str], None] | None = None) -> None:
        """Compiles down to the program's level, or takes from the cache what was. Raises PopulusError."""
        self.timings.clear()
        if self.cache is not None and self.level == "poplar" and self._cached(self.cache, progress):
            return
        self._modules[self.level] = self._compiled(self.level, self.timings, progress)

    def _cached(self, cache: ProgramCache, progress: Callable[[int, str], None] | None) -> bool:
        """Takes the program from the cache, or compiles it and keeps it there. False for a model that is a tile program already."""
        ctx = self.source.context()
        with in_file(self.source.model if isinstance(self.source.model, str | os.PathLike) else None):
            module = self.source.module(ctx)
            if level_of(module) == "poplar":
                return False
            key = key_of(module, self.pipeline, (extensions.digest(e) for e in self.source.extensions))
            found = cache.get(ctx, key)
            if found is not None:
                self._top = level_of(module)
                self._modules["poplar"], self._signature = found[0], Signature.of(found[1])
                return True
            self._modules["poplar"] = self._lowered(ctx, module, "poplar", self.timings, progress, cache=(cache, key))
        return True

    def run(self, inputs: Mapping[str, Any]) -> Arrays:
        """The outputs by name, as arrays that are the caller's own. Raises PopulusError for inputs that are not the model's.

        Any number of threads may run one program: on an engine they wait for each other, above it they do not. Programs of their own
        run at the same time. Inputs are read until this returns, and not afterwards.
        """
        return self.run_at(self.level, inputs)

    def spread(self, inputs: Mapping[str, Any], orders: int = 20) -> dict[str, float]:
        """How far each output could be if sums were made in other orders: the largest difference, relative to its largest element.

        The program itself has one order, and gives the same bits whatever the machine does first.
        """
        from populus.runtime.sum_order_spread import results_in_orders, spread

        arrays = self.signature.checked(inputs)
        return spread(list(results_in_orders(self.module("popops"), arrays, list(self.signature.outputs), range(orders))))

    def run_at(self, level: str, inputs: Mapping[str, Any]) -> Arrays:
        """The outputs as another level computes them. At `onnx` that is ONNX's own reference, an oracle to compare with.

        Raises PopulusError for inputs that are not the model's, and for a level above that of the model.
        """
        if level not in self.levels:
            raise PopulusError(f"the model does not go through the level '{level}', only through {', '.join(self.levels)}")
        arrays = self.signature.checked(inputs)
        if level == "onnx":
            return run_level(self, level, arrays)
        with self.signature.handled(arrays) as (strings, given):
            found = trimmed(run_level(self, level, given), self.signature.bounded)
            outputs = {name: strings.decode(a) if name in self.signature.texts.outputs else a for name, a in found.items()}
        for entry in self.signature.maps:
            outputs[entry.output] = cast("Any", entry.rows(outputs[entry.output]))  # what ONNX calls a sequence of maps
        return outputs

    @property
    def host_calls(self) -> list[str]:
        """What the host computes or keeps: `text.split of 'node'` for each call, and the inputs and outputs that are strings."""
        calls = [op for op in self.module(self.level).walk() if op.name in ("host.call", "poplar.host_call")]
        found = [f"{_text(op.properties['function'])} of {where(op)}" for op in calls if _text(op.properties["function"]) != "check.close"]
        strings = self.signature.texts
        found += [f"strings of input '{name}'" for name in strings.inputs]
        return found + [f"strings of output '{name}'" for name in strings.outputs]

    @property
    def levels(self) -> list[str]:
        """The levels from that of the model down to that of the program."""
        order = list(LEVELS)
        return order[order.index(self._top) : order.index(self.level) + 1]

    def module(self, level: str) -> ModuleOp:
        """The module as it is at `level`, before any pass below it; compiled down to there when first asked for."""
        if level not in LEVELS:
            raise PopulusError(f"no level '{level}'{did_you_mean(level, LEVELS)}")
        if level not in self._modules:
            with self._making.lock:
                if level not in self._modules:
                    self._modules[level] = self._compiled(level)
        return self._modules[level]

    def kernels(self) -> list[str]:
        """Which kernels were chosen and why, and the reorders between them, a line for each; none where no op has several."""
        if not any(extension.kernels for extension in self.source.extensions):
            return []
        return report(self.module("popart"))

    def profile(self) -> Profile:
        """Tiles, bytes and cycles of the program, by the machine's cost model. Raises PopulusError above the poplar level."""
        return self.session.profile()

    @property
    def signature(self) -> Signature:
        """The names and types of inputs and outputs."""
        if self._signature is None:  # a module that came as a tile program, with no function above it
            self._signature = Signature(_types(self.session.inputs), _types(self.session.outputs))
        return self._signature

    @property
    def session(self) -> Session:
        """The engine with the program loaded into it, when it is first asked for."""
        from populus.runtime.session import Session

        if self._session is None:
            with self._making.lock:
                if self._session is None:
                    self._session = Session(self.module("poplar"), engine=self.engine, sample=self.sample or 0, threads=self.threads)
        return self._session

    def _compiled(self, level: str, timings: list[Timing] | None = None, progress: Callable[[int, str], None] | None = None) -> ModuleOp:
        ctx = self.source.context()
        with in_file(self.source.model if isinstance(self.source.model, str | os.PathLike) else None):
            return self._lowered(ctx, self.source.module(ctx), level, timings, progress)

    def _lowered(
        self,
        ctx: Context,
        module: ModuleOp,
        level: str,
        timings: list[Timing] | None,
        progress: Callable[[int, str], None] | None,
        cache: tuple[ProgramCache, str] | None = None,
    ) -> ModuleOp:
        self._top = found = level_of(module)
        if list(LEVELS).index(found) > list(LEVELS).index(level):
            raise PopulusError(f"the module is at the level {found}, below {level}")
        passes = self.pipeline.from_level(found).down_to(level)
        above = passes.down_to("popart")  # where the types are still the model's
        above.run(ctx, module, timings=timings, progress=progress)
        if self._signature is None and found != "poplar":
            self._signature = Signature.of(module)
            self._signature.state(module)
        check_budget(module)
        signature = signature_module(module) if cache is not None else None
        rest = Pipeline(passes.passes[len(above) :])
        rest.run(ctx, module, timings=timings, progress=progress and (lambda i, name: progress(i + len(above), name)))
        if cache is not None and signature is not None:
            cache[0].put(cache[1], module, signature)
        return module


def run_level(program: Program, level: str, inputs: Arrays) -> Arrays:
    """The outputs of the program as it is at `level`, by that level's evaluator; at `onnx` that is ONNX's reference, for comparing."""
    if level == "poplar":
        return program.session.run(inputs)
    if level == "onnx":
        model = program.source.model
        if isinstance(model, ModuleOp) or str(model).endswith(".mlir"):
            raise PopulusError("the level onnx is run by ONNX's reference, which needs the .onnx model, not a module")
        from populus.runtime.onnx_reference import run_reference

        values = run_reference(model, inputs)
        return {name: values[name] for name in program.signature.outputs if name in values}
    import numpy as np

    from populus.runtime.interpreter import run_function

    found = run_function(program.module(level), inputs)
    return {name: np.array(array) for name, array in found.items()}  # which may be inputs or constants


def level_of(module: ModuleOp) -> str:
    """The highest level of which the module has an op; `popart` if it has none of any (constants and functions are at every level)."""
    dialects = {op.name.partition(".")[0] for op in module.walk()}
    return next((level for level, names in LEVELS.items() if dialects & set(names)), "popart")


def _main(module: ModuleOp) -> FuncOp:
    for op in module.body.block.ops:
        if isinstance(op, FuncOp) and op.sym_name.data == "main":
            return op
    raise PopulusError("the module has no func.func @main to run")


def _types(streams: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> dict[str, TensorType[Attribute]]:
    return {name: tensor(shape, element_of(dtype)) for name, (shape, dtype) in streams.items()}


def _text(attribute: Attribute) -> str:
    assert isinstance(attribute, StringAttr), attribute
    return attribute.data


def _strings(name: str, value: Any) -> NDArray[Any]:
    from populus.runtime.host.strings import texts_of

    try:
        return texts_of(value)
    except PopulusError as error:
        raise PopulusError(f"input '{name}' {error}") from None


def _static(name: str, type: Attribute, strings: Sequence[str] = ()) -> TensorType[Attribute]:
    """The type of an input or output; of one that is among `strings` that of what its handles stand for."""
    if not isinstance(type, TensorType):
        raise PopulusError(f"'{name}' is {type}; only tensors go in and out of a program")
    if min(type.get_shape(), default=0) < 0:
        raise PopulusError(f"'{name}' is {type}; a program has static shapes, so give its dimensions a size (dims)")
    if name in strings:
        from populus.dialects.onnx.types import string

        return tensor(type.get_shape(), string)
    return cast("TensorType[Attribute]", type)


def _shape(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _draw(type: TensorType[Attribute], seed: int, name: str, words: Sequence[str] = ()) -> NDArray[Any]:
    """Random elements; strings are drawn among `words`."""
    import numpy as np

    if str(type.element_type) == "!onnx.string":
        chosen = np.random.default_rng([seed, crc32(name.encode())]).choice(np.array(words or ("",), object), type.get_shape())
        return np.asarray(chosen, object)
    dtype, shape = dtype_of(type.element_type), type.get_shape()
    rng = np.random.default_rng([seed, crc32(name.encode())])
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.kind in "iu":
        narrow = dtype.itemsize <= 2
        info = np.iinfo(dtype)
        return rng.integers(info.min if narrow else 0, info.max if narrow else 1, shape, dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype)
