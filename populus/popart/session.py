"""`InferenceSession`: a model on a device, run in steps of batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.onnx.expose_weights import OnnxExposeWeightsPass
from populus.lowering.onnx.importer.read import read_model
from populus.lowering.popart.seed import PopartSeedPass
from populus.popart.dataflow import DataFlow, InputShapeInfo, PyStepIO, PyStepIOCallback
from populus.popart.devices import DeviceInfo
from populus.popart.errors import OutOfMemoryError
from populus.popart.host_weights import HostWeights
from populus.popart.limits import check_rewrites
from populus.popart.overloads import overloaded
from populus.popart.reserved import GRADIENT
from populus.popart.rules import PopartTranslation
from populus.popart.serialized import as_json, check_format
from populus.popart.settings import Patterns, SessionOptions
from populus.popart.tensor_info import TensorInfo
from populus.popart.translation import Known
from populus.popart.variables import GROUPED
from populus.program.compile import compile
from populus.program.program import Program
from populus.program.replicas import Replicas
from populus.program.stepper import Schedule, Stepper

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from onnx import ModelProto, TensorProto
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.passes import ModulePass

    from populus.program.source import Arrays

# Before the first of these, the IR has all ops of a model, and none that a machine needs.
_LATER = ("popart-outline", "popart-to-popops")


class InferenceSession(HostWeights):
    """A model on a device. `fnModel`: bytes of `getModelProto`, or a file. Ops of yours are known once `populus.load` has read their file.

    Raises PopulusError for an anchor that there is not, and for what cannot be compiled.
    """

    TRAINS = False

    def __init__(
        self,
        fnModel: bytes | str,
        dataFlow: DataFlow,
        deviceInfo: DeviceInfo,
        inputShapeInfo: InputShapeInfo | None = None,
        patterns: Patterns | None = None,
        userOptions: SessionOptions | None = None,
        name: str = "",
    ):
        super().__init__(self._read(fnModel, inputShapeInfo or InputShapeInfo()))
        self._flow, self._device, self._options = dataFlow, deviceInfo, userOptions or SessionOptions()
        self._options.check()
        self._copies = self._options.getGlobalReplicationFactor()
        strided = self._options.groupNormStridedChannelGrouping
        self._translation = PopartTranslation.of(self._model, training=self.TRAINS, strided_groups=strided)
        self._translation.infer()
        self._variables = {n: a.copy() for n, a in self._host.items() if n in self._translation.assigned}
        if not (self.TRAINS or self._options.constantWeights):
            self._weights = {n: a.copy() for n, a in self._host.items() if n not in self._variables}
        self._refuse_replicas()
        self._seed, self._runs = 0, 0
        self.fetched_bytes = 0
        """The bytes that the host has fetched, in all steps: fewer where anchors are fetched less often."""
        self._program: Program | None = None
        self._updates: Sequence[Program] = ()
        self._patterns = patterns or Patterns()
        for anchor in dataFlow.kinds:
            self._check_anchor(anchor)
        if not self.TRAINS:
            check_rewrites(self._model.graph.node, None, self._patterns.isPatternEnabled)

    def _refuse_replicas(self) -> None:
        """Raises PopulusError for a model that several replicas cannot run: with weights of groups, or that the model assigns."""
        if self._copies == 1:
            return
        if self._variables:
            raise PopulusError(
                f"'{next(iter(self._variables))}' is assigned by the model; {self._copies} replicas would have several of it"
            )
        if grouped := next((t.name for t in self._model.graph.initializer if t.doc_string == GROUPED), None):
            raise PopulusError(f"'{grouped}' has VariableSettings; all {self._copies} replicas have one value of a weight here")

    def _read(self, given: bytes | str, shapes: InputShapeInfo) -> ModelProto:
        """Reads a model, with the types that are stated for its inputs."""
        from onnx import ModelProto, helper

        model = ModelProto.FromString(given) if isinstance(given, bytes) else read_model(given)
        for value in model.graph.input:
            if shapes.has(value.name):
                info = shapes.get(value.name)
                value.type.CopyFrom(helper.make_tensor_type_proto(info.type, info.shape()))
        return model

    @classmethod
    def fromIr(cls, ir: Any, deviceInfo: DeviceInfo, name: str = "fromIr") -> Any:
        """Gives a session of an Ir that PopXL built, given as its `_pb_ir`. The name is for messages of PopART."""
        return import_module("populus.popxl.popart_session").IrSession(ir, deviceInfo)  # of a higher layer, for this call only

    @property
    def dataFlow(self) -> DataFlow:
        """The batches of a step, and the tensors that are fetched."""
        return self._flow

    def _check_anchor(self, anchor: str) -> None:
        if anchor.startswith(GRADIENT):
            raise PopulusError(f"'{anchor}' is no tensor when inferring; a TrainingSession has gradients")
        self._known(anchor)

    def _known(self, name: str) -> Known:
        """Gives the type of a tensor of the model. Raises PopulusError if there is none of this name."""
        try:
            return self._translation.type_of(name)
        except PopulusError:
            outputs = [o.name for o in self._model.graph.output]
            raise PopulusError(f"'{name}' is no tensor of the model{did_you_mean(name, outputs)}") from None

    # -- compiling ----------------------------------------------------------------------------------------------------

    def prepareDevice(self, loadEngine: bool = True, err: OutOfMemoryError | None = None) -> None:
        """Compiles the model, unless `compileEngine` is off. `err`: takes the text of a program that does not fit, instead of an error."""
        if not self._options.compileEngine:
            return
        try:
            self._program = self._compiled()
            self._replicas = Replicas(self._program, self._copies)
        except PopulusError as error:
            if err is None or "does not fit" not in str(error):
                raise
            err.text = str(error)

    def compileAndExport(self, filename: str) -> None:
        """Compiles the model. Raises PopulusError: it writes no executable."""
        raise PopulusError(f"{filename}: an executable is not written; compile(cache=..) keeps programs")

    def _compiled(self) -> Program:
        weights = list(self._model.graph.initializer)
        return self._build([*self.dataFlow.kinds, *self._translation.assigned.values()], weights, [])

    def _build(self, outputs: Sequence[str], weights: Sequence[TensorProto], passes: Sequence[ModulePass]) -> Program:
        """Compiles a program of the translated nodes with these outputs."""
        from onnx import helper

        nodes = list(self._translation.nodes)
        made = {o for n in nodes for o in n.output}
        named: dict[str, str] = {}
        for name in outputs:
            if name not in made:  # an input or weight is no result of its own
                named[name] = f"{name}/fetched"
                nodes.append(helper.make_node("Identity", [name], [named[name]]))
        self._fetched = named
        graph = self._model.graph
        stated = [i for i in graph.input if i.name not in {w.name for w in weights}]
        inputs = [helper.make_tensor_value_info(i.name, self._known(i.name).number, self._known(i.name).shape) for i in stated]
        inputs += [helper.make_tensor_value_info(n, k.number, k.shape) for n, k in self._more_inputs().items()]
        infos = [helper.make_tensor_value_info(named.get(n, n), (k := self._known(n)).number, k.shape) for n in dict.fromkeys(outputs)]
        model = self._translation.assembled(nodes, inputs, infos, weights)
        pipeline = Pipeline.named("inference")
        first = next(p.name for p in pipeline.passes if p.name in _LATER)
        pipeline = pipeline.insert_before(first, PopartSeedPass(), *passes)
        return self._compile(model, self._with(pipeline))

    def _compile(self, model: ModelProto | ModuleOp, pipeline: Pipeline) -> Program:
        """Compiles as the options say: without outlining, or by a cache of programs."""
        if not self._options.enableOutlining:
            pipeline = pipeline.remove("popart-outline")
        kept = {"cache": self._options.cachePath} if self._options.enableEngineCaching else {}
        return compile(model, target=self._device.target, tiles=self._device.tiles, pipeline=pipeline, **kept)

    def _more_inputs(self) -> Mapping[str, Known]:
        return {}

    def _with(self, pipeline: Pipeline) -> Pipeline:
        names = (*self._weights, *self._variables)
        return Pipeline((OnnxExposeWeightsPass(names), *pipeline.passes)) if names else pipeline

    @property
    def program(self) -> Program:
        """The compiled model. Raises PopulusError before `prepareDevice`."""
        if self._program is None:
            raise PopulusError("the session has no program yet; call prepareDevice first")
        return self._program

    # -- running ------------------------------------------------------------------------------------------------------

    def _anchor_type(self, anchor: str) -> Known:
        return self._known(anchor.removeprefix(GRADIENT))

    def initAnchorArrays(self) -> dict[str, NDArray[Any]]:
        """Gives arrays for the anchors, which `run` fills."""
        import numpy as np

        parts = self._options.accumulation
        types = {a: self._anchor_type(a) for a in self.dataFlow.kinds}
        copies = (self._copies,) if self._copies > 1 else ()
        shapes = {a: of.shape((*copies, *types[a].shape), self.dataFlow.batches, parts) for a, of in self.dataFlow.kinds.items()}
        return {a: np.zeros(shapes[a], types[a].dtype) for a in self.dataFlow.kinds}

    def setRandomSeed(self, seedValue: int) -> None:
        """Sets the seed from which random numbers follow from now on."""
        self._seed, self._runs = int(seedValue), 0

    def getRandomSeed(self) -> int:
        """Gives the seed."""
        return self._seed

    def getRNGState(self) -> list[int]:
        """Gives the state from which the next random numbers follow: the seed, and the number of runs since it was set."""
        return [self._seed, self._runs]

    def setRNGState(self, rngValue: Sequence[int]) -> None:
        """Sets the state from which random numbers follow. Raises PopulusError for no state of `getRNGState`."""
        if len(rngValue) != 2:
            raise PopulusError(f"a state of {len(rngValue)} numbers; the two of getRNGState are expected")
        self._seed, self._runs = (int(v) for v in rngValue)

    @overloaded("stepio debugName", "programHandle stepio debugName")
    def run(self, given: Mapping[str, Any]) -> None:
        """Runs one step: reads the inputs, fills the outputs.

        Raises PopulusError for inputs that are not of as many batches, and for a program of another name.
        """
        if isinstance(handle := next(iter(given.values())), str):
            raise PopulusError(f"the session has no program '{handle}'; run(stepio) runs its model")
        stepio = next(v for v in given.values() if isinstance(v, PyStepIO | PyStepIOCallback))
        self._in_sync = False
        if isinstance(stepio, PyStepIOCallback):
            self._run_callback(stepio)
            return
        if self._options.syntheticDataMode.name != "Off":
            self._run_synthetic()
            return
        inputs = {name: self._batched(name, given) for name, given in stepio.inputs.items()}
        parts, sums = self._options.accumulation, dict[str, Any]()

        def feed(batch: int, part: int) -> list[Arrays]:
            first = (batch * parts + part) * self._copies
            return [{n: a[first + k] for n, a in inputs.items()} for k in range(self._copies)]

        for batch, part, outputs in self._steps(feed):
            self._fill(stepio.outputs, outputs, sums, batch, part)

    def _run_synthetic(self) -> None:
        """Runs a step with zeros or random numbers for its inputs; the host gets nothing."""
        import numpy as np

        generator = np.random.default_rng([self._seed, self._runs])
        names, kind = sorted({i.name for i in self._model.graph.input} - set(self._host)), self._options.syntheticDataMode.name

        def feed(batch: int, part: int) -> list[Arrays]:
            return [{n: synthetic(kind, self._known(n), generator) for n in names} for _ in range(self._copies)]

        for _ in self._steps(feed):
            pass

    def _run_callback(self, stepio: PyStepIOCallback) -> None:
        import numpy as np

        names = [i.name for i in self._model.graph.input]

        def feed(batch: int, part: int) -> list[Arrays]:
            return [{n: np.asarray(stepio.input_callback(n, False)) for n in names} for _ in range(self._copies)]

        for batch, _, outputs in self._steps(feed):
            for n in [*names] * self._copies:
                stepio.input_complete_callback(n)
            fetched = [a for a, of in self.dataFlow.kinds.items() if of.fetches(batch, self.dataFlow.batches)]
            for found in outputs:
                for anchor in fetched:
                    np.copyto(stepio.output_callback(anchor), found[anchor])
                    stepio.output_complete_callback(anchor)

    def _steps(self, feed: Callable[[int, int], list[Arrays]]) -> Iterator[tuple[int, int, list[Arrays]]]:
        """Takes a step on what `feed` gives all replicas; gives the batch, its part, and each replica's anchors, after each run."""
        drawn, copies, place = self._runs, self._copies, self._replicas.place
        stepper = Stepper(self._schedule(), place, self._replicas.programs, self._updates)
        held = {**self._weights, **self._variables, **self._state}

        def here(batch: int, part: int) -> list[Arrays]:
            return feed(batch, part)[place.here.start : place.here.stop]

        def seed(number: int, k: int) -> list[int]:
            return [self._seed, drawn + number * copies + k + 1]

        for ran in stepper.run(here, [held] * len(place.here), seed, self._scalars):
            self._runs += copies
            for own in self._held():
                own.update({n: ran.held[0][n] for n in own})
            weights = {**self._variables, **self._weights}
            anchors = self.dataFlow.kinds
            yield ran.iteration, ran.part, [{a: weights[a] if a in weights else self._anchor(a, of) for a in anchors} for of in ran.results]

    def _schedule(self) -> Schedule:
        """Gives the runs of a step, and what a batch leaves in variables."""
        changes = {name: self._fetched.get(value, value) for name, value in self._translation.assigned.items()}
        fetched = {self._fetched.get(a, a) for a in self.dataFlow.kinds}
        return Schedule(self.dataFlow.batches, self._options.accumulation, changes, fetched=fetched)

    def _scalars(self, batch: int) -> Arrays:
        """Gives inputs that are the same on all replicas."""
        return {}

    def _anchor(self, anchor: str, found: Arrays) -> NDArray[Any]:
        """Gives a tensor from a program's results."""
        return found[self._fetched.get(anchor, anchor)]

    def _batched(self, name: str, given: Any) -> NDArray[Any]:
        """Reshapes an input to one row for each batch and part of it."""
        import numpy as np

        array, shape = np.asarray(given), self._known(name).shape
        count = self.dataFlow.batches * self._options.accumulation * self._copies
        if count == 1 and array.shape != shape and array.size != np.prod(shape, dtype=int):
            raise PopulusError(f"input '{name}' has shape {list(array.shape)}, expected {list(shape)}")
        if array.size != count * int(np.prod(shape, dtype=int)):
            raise PopulusError(f"input '{name}' has shape {list(array.shape)}; {count} batches are expected as its first dimension")
        wanted = self._known(name).dtype
        if array.dtype != wanted and {array.dtype.kind, wanted.kind} <= {"i", "u"} and np.array_equal(array.astype(wanted), array):
            array = array.astype(wanted)
        if array.dtype != wanted:
            raise PopulusError(f"input '{name}' is {array.dtype}, expected {self._known(name).dtype}")
        return array.reshape(count, *shape)

    def _fill(self, arrays: Mapping[str, NDArray[Any]], outputs: Sequence[Arrays], sums: Arrays, batch: int, part: int) -> None:
        import numpy as np

        batches, parts = self.dataFlow.batches, self._options.accumulation
        for name, array in arrays.items():
            of, found = self.dataFlow.kinds[name], outputs[0][name]
            if self._copies > 1:
                found = np.stack([o[name] for o in outputs])
            if of.name == "Sum":
                found = sums[name] = found + sums[name] if name in sums else found
            if not of.fetches(batch, batches) or (of.name in ("Final", "Sum") and part != parts - 1):
                continue
            if of.name in ("Final", "Sum"):
                target = array
            else:
                target = array.reshape(batches // of.n, parts, *found.shape)[batch // of.n, part, ...]
            np.copyto(target, found.reshape(target.shape))
            self.fetched_bytes += found.nbytes

    # -- asking -------------------------------------------------------------------------------------------------------

    def getInfo(self, id: str) -> TensorInfo:
        """Gives the type of a tensor. Raises PopulusError if there is none of this name."""
        known = self._anchor_type(id)
        return TensorInfo(known.dtype, known.shape)

    def getAllTensorIds(self) -> list[str]:
        """Lists the tensors of the model: inputs, weights, and results of its nodes."""
        return self._translation.names()

    def getCycleCount(self, id: str = "") -> int:
        """Gives the cycles of one run, as the cost model predicts them."""
        return int(self.program.profile().summary["cycles"])

    def getSummaryReport(self, resetProfile: bool = True) -> str:
        """Describes the costs of the program, a line for each: predicted cycles, bytes, and memory."""
        return "\n".join(f"{name}: {value}" for name, value in self.program.profile().summary.items())

    def getSerializedGraph(self) -> bytes:
        """Gives the tile program, as MLIR text."""
        return str(self.program.module("poplar")).encode()

    def checkInplacingAmbiguity(self) -> bool:
        """Tells whether results depend on the order of ops in place: they never do here."""
        return False

    def loadEngineAndConnectStreams(self) -> None:
        """Loads the program onto its device; a virtual one has it from `prepareDevice` on."""
        assert self.program is not None

    def setEngineIsLoaded(self, isLoaded: bool) -> None:
        """Accepts whether another program has replaced this one on the device; a virtual one holds both."""

    def _serializeIr(self, format: object) -> str:
        """Gives the graphs of the session as text. Raises PopulusError for another format than JSON."""
        check_format(format)
        return as_json(self._translation)

    def replicationFactor(self) -> int:
        """Counts the replicas that run."""
        return self._copies

    def accumulationFactor(self) -> int:
        """Counts the parts of a batch."""
        return self._options.accumulation


def synthetic(mode: str, known: Known, generator: np.random.Generator) -> NDArray[Any]:
    """Makes an input: zeros, or for floats normal numbers, or numbers from 0 to 1."""
    import numpy as np

    if mode == "Zeros" or known.dtype.kind != "f":
        return np.zeros(known.shape, known.dtype)
    drawn = generator.normal(size=known.shape) if mode == "RandomNormal" else generator.random(known.shape)
    return np.asarray(drawn, known.dtype)
