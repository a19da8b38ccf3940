"""`Program`: a compiled model."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from copy import copy
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from xdsl.context import Context
from xdsl.dialects.builtin import DYNAMIC_INDEX, ModuleOp, StringAttr, TensorType
from xdsl.ir import Attribute

from populus.dialects.host import REFUSE, CallOp
from populus.dialects.poplar.outside import HostCallOp
from populus.dialects.support.budget import check_budget
from populus.dialects.support.diagnostics import PopulusError, did_you_mean, where
from populus.dialects.support.element_types import element_of, tensor
from populus.dialects.support.garbage import no_garbage_collection
from populus.dialects.support.guard import Guard
from populus.dialects.support.output_files import replacing
from populus.lowering.driver import extensions
from populus.lowering.driver.files import in_file
from populus.lowering.driver.phases import LEVELS
from populus.lowering.driver.pipeline import Pipeline, Timing
from populus.lowering.driver.program_cache import ProgramCache, key_of, signature_module
from populus.lowering.poplar.plan.stated import recording
from populus.program.options import CompileOptions
from populus.program.signature import Signature, computed
from populus.program.source import Source, level_of
from populus.program.watch import watch
from populus.runtime.built.given import Inputs, by_name

if TYPE_CHECKING:
    import numpy as np

    from populus.program.source import Arrays
    from populus.program.state import Stateful
    from populus.runtime.profile import Profile
    from populus.runtime.session import Session


class Program:
    """A compiled model: `run` computes, `module` gives a level's IR, `profile` estimates costs."""

    def __init__(self, source: Source, pipeline: Pipeline, options: CompileOptions, cache: ProgramCache | None = None):
        self.source = source
        self.pipeline = pipeline
        self.options = options
        self.cache = cache
        self.timings: list[Timing] = []
        self._modules: dict[str, ModuleOp] = {}
        self._signature: Signature | None = None
        self._top = options.level
        self._session: Session | None = None
        self._making = Guard()  # one thread at a time makes a level, the signature or the session

    def __repr__(self) -> str:
        try:
            signature = str(self.signature)
        except PopulusError:
            signature = "no signature"
        at = f"{self.options.target}" + (f", {self.options.tiles} tiles" if self.options.tiles else "")
        return f"<{type(self).__name__} {signature} on {at}, engine {self.engine}, level {self.level}>"

    def _repr_html_(self) -> str:
        """Gives the HTML that a notebook shows: the signature, and the costs at the poplar level."""
        from html import escape  # whose table of entities no other process needs

        parts = [f"<p><code>{escape(str(self.signature))}</code></p>"]
        if self.level == "poplar" and not self.signature.dimensions:
            parts.append(self.profile().summary_html())
        return "".join(parts)

    def page(self, title: str = "") -> str:
        """Renders the page of `populus profile` as HTML. `title`: its heading. Raises PopulusError above the poplar level."""
        report = import_module("populus.tools.report.page")  # of a higher layer, for this call only
        record = import_module("populus.tools.report.record").record
        model = self.source.model
        name = os.path.basename(model) if isinstance(model, str | os.PathLike) else "program"
        return str(report.html(record(self, title or name)))

    def show(self, path: str | os.PathLike[str] | None = None) -> str:
        """Writes the page of its profile to a file, by default a new one in the folder for temporary files, and opens it in a browser.

        Returns the path. Raises PopulusError above the poplar level, and if the file cannot be written.
        """
        import tempfile
        import webbrowser

        text = self.page()
        to = os.fspath(path) if path is not None else os.path.join(tempfile.mkdtemp(prefix="populus-"), "profile.html")
        with replacing(to) as partial:
            partial.write_text(text, encoding="utf-8")
        webbrowser.open(f"file://{os.path.abspath(to)}")
        return to

    def replica(self) -> Program:
        """Gives the same program with memory of its own."""
        made = copy(self)
        made._session, made._making = None, Guard()
        return made

    @property
    def engine(self) -> str:
        """The requested engine, which may be `auto`."""
        return self.options.engine

    @property
    def level(self) -> str:
        """The level that runs."""
        return self.options.level

    def build(self, progress: Callable[[int, str], None] | None = None) -> None:
        """Compiles to the program's level, or loads the program from the cache. Raises PopulusError."""
        self.timings.clear()
        if self.cache is not None and self.level == "poplar" and self._cached(self.cache, progress):
            return
        self._modules[self.level] = self._compiled(self.level, self.timings, progress)

    def _cached(self, cache: ProgramCache, progress: Callable[[int, str], None] | None) -> bool:
        """Loads the program from the cache, or compiles and stores it. Gives False if the model is already a tile program."""
        ctx = self.source.context()
        with self._reading():
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

    def run(self, inputs: Inputs) -> Arrays:
        """Runs the program and gives the outputs by name, as new arrays.

        `inputs`: arrays by name, with the shapes and types of `signature`, or the array of the only input; tensors of PyTorch
        are arrays, too. `program(inputs)` is the same. Raises PopulusError for inputs that do not match the model.
        Several threads may run one program: on the poplar level they take turns, above it they run in parallel.
        Different programs run in parallel. Inputs are read only until this returns.
        """
        return self.run_at(self.level, by_name(inputs, self._taken, PopulusError))

    __call__ = run

    @property
    def _taken(self) -> Collection[str]:
        """The names of the inputs."""
        return self.signature.inputs

    def spread(self, inputs: Mapping[str, Any], orders: int = 20) -> dict[str, float]:
        """Measures how far each output moves under other orders of sums: the largest difference, relative to its largest element.

        `orders`: number of random orders. The program itself has one order, and gives the same bits on every run.
        """
        from populus.runtime.sum_order_spread import results_in_orders, spread

        arrays, padding = self.signature.checked(inputs), self.signature.padding
        at = {} if padding is None else padding.sizes(arrays)
        given = arrays if padding is None else padding.padded(arrays, at)
        found = results_in_orders(self.module("popops"), given, list(self.signature.outputs), range(orders))
        return spread([result if padding is None else padding.trimmed(result, at) for result in found])

    def run_at(self, level: str, inputs: Mapping[str, Any]) -> Arrays:
        """Computes the outputs at another level. The level `onnx` runs ONNX's reference evaluator, for comparison.

        Raises PopulusError for inputs that do not match the model, and for levels above the model's own.
        """
        if level not in self.levels:
            raise PopulusError(f"the model does not go through the level '{level}', only through {', '.join(self.levels)}")
        inputs = self.source.without_constants(inputs)
        if level == "onnx":
            return run_level(self, level, self.signature.checked(inputs))

        def run(given: Arrays) -> Arrays:
            if (watching := watch()) is not None and level == "poplar":
                watching.count(self)
            return run_level(self, level, given)

        return computed(self.signature, inputs, run)

    @property
    def names(self) -> Mapping[str, Mapping[int, str]]:
        """The dimensions of each input that have several sizes, by position; none in a program of one size."""
        if (padding := self.signature.padding) is None:
            return {}
        said = {name: [size and (size.dimension or str(size)) for size in axes] for name, axes in padding.inputs.items()}
        return {name: {d: text for d, text in enumerate(axes) if text} for name, axes in said.items()}

    @property
    def several(self) -> Mapping[str, Mapping[int, str]]:
        """The dimensions of each input that have several sizes, open and bounded ones, by position."""
        return self.names

    def most(self, name: str) -> tuple[int | None, ...]:
        """Gives the greatest size of an input along each axis, None where it is open."""
        return self.signature.inputs[name].get_shape()

    def program_for(self, inputs: Mapping[str, Any], room: Mapping[str, int] = MappingProxyType({})) -> Program:
        """Gives the program that `run` uses for these inputs: itself."""
        return self

    def sized_for(self, inputs: Mapping[str, Any]) -> Program:
        """Gives the program for exactly the sizes of these inputs: itself."""
        return self

    def stated_types(self) -> tuple[dict[str, TensorType[Attribute]], dict[str, Attribute]]:
        """Gives the types of inputs and outputs by name, as far as they are known; open dimensions are -1."""
        padding = self.signature.padding
        if padding is None:
            return self.signature.inputs, dict(self.signature.outputs)
        sizes = {**padding.inputs, **padding.outputs}

        def opened(name: str, type: TensorType[Attribute]) -> TensorType[Attribute]:
            axes = sizes.get(name) or (None,) * len(type.get_shape())
            return tensor([n if axis is None else DYNAMIC_INDEX for n, axis in zip(type.get_shape(), axes)], type.element_type)

        inputs, outputs = ({n: opened(n, t) for n, t in types.items()} for types in (self.signature.inputs, self.signature.outputs))
        return inputs, dict(outputs)

    def stateful(self, pairs: Mapping[str, str]) -> Stateful:
        """Gives a program that keeps inputs from run to run: each is replaced by an output, `{"past": "present"}`.

        Raises PopulusError for unknown names, and for a pair of unlike types.
        """
        from populus.program.state import Stateful

        return Stateful(self, pairs)

    @property
    def host_calls(self) -> list[str]:
        """Lists the work of the host: `text.split of 'node'` for each call, and the inputs and outputs that are strings.

        Checks and refused branches, which only end a run, do not count.
        """
        calls = [op for op in self.module(self.level).walk() if isinstance(op, CallOp | HostCallOp)]
        named = [(_text(op.properties["function"]), op) for op in calls]
        found = [f"{name} of {where(op)}" for name, op in named if name not in ("check.close", REFUSE)]
        strings = self.signature.texts
        found += [f"strings of input '{name}'" for name in strings.inputs]
        return found + [f"strings of output '{name}'" for name in strings.outputs]

    @property
    def levels(self) -> list[str]:
        """Lists the levels, from the model's to the program's."""
        order = list(LEVELS)
        return order[order.index(self._top) : order.index(self.level) + 1]

    def module(self, level: str) -> ModuleOp:
        """Gives the module at `level`, before any pass below it. Compiles to that level on first use."""
        if level not in LEVELS:
            raise PopulusError(f"no level '{level}'{did_you_mean(level, LEVELS)}")
        if level not in self._modules:
            with self._making.lock:
                if level not in self._modules:
                    self._modules[level] = self._compiled(level)
        return self._modules[level]

    def profile(self) -> Profile:
        """Estimates tiles, bytes and cycles by the machine's cost model. Raises PopulusError above the poplar level."""
        from populus.runtime.profile import profile
        from populus.runtime.session import graph_of

        found = profile(graph_of(self.module("poplar")))
        found.page = self.page
        return found

    def plans(self) -> str:
        """Formats the plans of products and convolutions as text, which `compile(plan=FILE)` takes back (docs/plans.md).

        Raises PopulusError for a model that is a tile program already.
        """
        if "popops" not in self.levels:
            raise PopulusError("plans are made on the way from the level popops down to poplar, which this program does not go")
        with no_garbage_collection(), recording() as found:
            below = Pipeline(self.pipeline.passes[len(self.pipeline.down_to("popops")) :])
            below.until("poplin-to-poplar").run(self.source.context(), self.module("popops").clone())
        return found.text()

    @property
    def signature(self) -> Signature:
        """The names and types of inputs and outputs."""
        if self._signature is None:  # the model is a tile program, without the function of a higher level
            self._signature = Signature(_types(self.session.inputs), _types(self.session.outputs))
        return self._signature

    def rest(self) -> None:
        """Gives memory that only runs need back to the system, until the next run."""
        if self._session is not None:
            self._session.rest()

    @property
    def session(self) -> Session:
        """The engine with the program loaded, created on first use."""
        from populus.runtime.session import Session

        if self._session is None:
            with self._making.lock:
                if self._session is None:
                    o, module = self.options, self.module("poplar")
                    with no_garbage_collection():
                        self._session = Session(module, engine=o.engine, sample=o.sample or 0, threads=o.threads)
        return self._session

    def _compiled(self, level: str, timings: list[Timing] | None = None, progress: Callable[[int, str], None] | None = None) -> ModuleOp:
        ctx = self.source.context()
        with self._reading():
            return self._lowered(ctx, self.source.module(ctx), level, timings, progress)

    @contextmanager
    def _reading(self) -> Generator[None, None, None]:
        """Names the file in errors, and shares constants with other programs of the model."""
        with in_file(self.source.model if isinstance(self.source.model, str | os.PathLike) else None), self.source.sharing():
            yield

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
        above = passes.down_to("popart")  # this level still has the model's types
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
    """Runs the program at `level` with that level's evaluator. The level `onnx` uses ONNX's reference evaluator, for comparison."""
    if level == "poplar":
        return program.session.run(inputs)
    if level == "onnx":
        model = program.source.model
        if isinstance(model, ModuleOp) or str(model).endswith(".mlir"):
            raise PopulusError("the level onnx is run by ONNX's reference, which needs the .onnx model, not a module")
        from populus.runtime.onnx_reference import run_reference

        values = run_reference(model, {**program.source.values, **inputs})
        return {name: values[name] for name in program.signature.outputs if name in values}
    import numpy as np

    from populus.runtime.interpreter import run_function

    found = run_function(program.module(level), inputs)
    return {name: np.array(array) for name, array in found.items()}  # inputs or constants


def _types(streams: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> dict[str, TensorType[Attribute]]:
    return {name: tensor(shape, element_of(dtype)) for name, (shape, dtype) in streams.items()}


def _text(attribute: Attribute) -> str:
    assert isinstance(attribute, StringAttr), attribute
    return attribute.data
