"""`InferenceSession`: a model on a device, run in steps of batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from populus.api import compile
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.onnx.expose_weights import OnnxExposeWeightsPass
from populus.lowering.onnx.importer.read import read_model
from populus.lowering.popart.seed import PopartSeedPass
from populus.lowering.popart.training_names import SEED
from populus.popart.dataflow import DataFlow, PyStepIO, PyStepIOCallback, PyWeightsIO
from populus.popart.devices import DeviceInfo
from populus.popart.limits import check_rewrites
from populus.popart.reserved import GRADIENT
from populus.popart.serialized import as_json, check_format
from populus.popart.settings import Patterns, SessionOptions
from populus.popart.tensor_info import TensorInfo
from populus.popart.translation import Known, Translation
from populus.program import Program

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto, TensorProto
    from xdsl.passes import ModulePass

    from populus.source import Arrays

# Before the first of these, the IR has all ops of a model, and none that a machine needs.
_LATER = ("popart-select-kernels", "popart-outline", "popart-to-popops")


class InferenceSession:
    """A model on a device. `fnModel`: bytes of `getModelProto`, or a file. Ops of yours are known once `populus.load` has read their file.

    Raises PopulusError for an anchor that there is not, and for what cannot be compiled.
    """

    TRAINS = False

    def __init__(
        self,
        fnModel: bytes | str,
        dataFlow: DataFlow,
        deviceInfo: DeviceInfo,
        inputShapeInfo: object = None,
        patterns: Patterns | None = None,
        userOptions: SessionOptions | None = None,
        name: str = "",
    ):
        self._model = self._read(fnModel)
        self.dataFlow, self._device, self._options = dataFlow, deviceInfo, userOptions or SessionOptions()
        self._options.check()
        self._translation = Translation.of(self._model, training=self.TRAINS)
        self._translation.infer()
        self._weights: Arrays = {}
        self._variables: Arrays = {n: a for n, a in self._initial().items() if n in self._translation.assigned}
        self._seed, self._runs = 0, 0
        self.fetched_bytes = 0
        """The bytes that the host has fetched, in all steps: fewer where anchors are fetched less often."""
        self._program: Program | None = None
        self._patterns = patterns or Patterns()
        for anchor in dataFlow.anchors:
            self._check_anchor(anchor)
        if not self.TRAINS:
            check_rewrites(self._model.graph.node, None, self._patterns.isPatternEnabled)

    def _read(self, given: bytes | str) -> ModelProto:
        from onnx import ModelProto

        return ModelProto.FromString(given) if isinstance(given, bytes) else read_model(given)

    def _initial(self) -> Arrays:
        """Gives the weights of the model."""
        from onnx import numpy_helper

        return {t.name: numpy_helper.to_array(t).copy() for t in self._model.graph.initializer}

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

    def prepareDevice(self, loadEngine: bool = True, err: object = None) -> None:
        """Compiles the model."""
        self._program = self._compiled()

    def compileAndExport(self, filename: str) -> None:
        """Compiles the model. Raises PopulusError: it writes no executable."""
        raise PopulusError(f"{filename}: an executable is not written; compile(cache=..) keeps programs")

    def _compiled(self) -> Program:
        weights = list(self._model.graph.initializer)
        return self._build([*self.dataFlow.anchors, *self._translation.assigned.values()], weights, [])

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
        return compile(model, target=self._device.target, tiles=self._device.tiles, pipeline=self._with(pipeline))

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
        types = {a: self._anchor_type(a) for a in self.dataFlow.anchors}
        shapes = {a: of.shape(types[a].shape, self.dataFlow.batches, parts) for a, of in self.dataFlow.anchors.items()}
        return {a: np.zeros(shapes[a], types[a].dtype) for a in self.dataFlow.anchors}

    def setRandomSeed(self, seedValue: int) -> None:
        """Sets the seed from which random numbers follow from now on."""
        self._seed, self._runs = int(seedValue), 0

    def getRandomSeed(self) -> int:
        """Gives the seed."""
        return self._seed

    def run(self, stepio: PyStepIO | PyStepIOCallback, debugName: str = "") -> None:
        """Runs one step: reads the inputs, fills the outputs. Raises PopulusError for inputs that are not of as many batches."""
        batches, parts = self.dataFlow.batches, self._options.accumulation
        if isinstance(stepio, PyStepIOCallback):
            self._run_callback(stepio)
            return
        inputs = {name: self._batched(name, given) for name, given in stepio.inputs.items()}
        sums: Arrays = {}
        for batch in range(batches):
            for part in range(parts):
                outputs = self._part({n: a[batch * parts + part] for n, a in inputs.items()}, part == parts - 1)
                self._fill(stepio.outputs, outputs, sums, batch, part)

    def _part(self, inputs: Arrays, last: bool) -> Arrays:
        """Runs a part of a batch, after the last of which weights are updated; gives its anchors, weights as they are then."""
        outputs = self._batch(inputs)
        if last:
            self._updated()
        return {a: self._weights[a] if a in self._weights else self._variables.get(a, found) for a, found in outputs.items()}

    def _run_callback(self, stepio: PyStepIOCallback) -> None:
        import numpy as np

        names = [i.name for i in self._model.graph.input]
        for batch in range(self.dataFlow.batches):
            for part in range(self._options.accumulation):
                last = part == self._options.accumulation - 1
                outputs = self._part({n: np.asarray(stepio.input_callback(n, False)) for n in names}, last)
                for n in names:
                    stepio.input_complete_callback(n)
                for anchor, of in self.dataFlow.anchors.items():
                    if of.fetches(batch, self.dataFlow.batches):
                        np.copyto(stepio.output_callback(anchor), outputs[anchor])
                        stepio.output_complete_callback(anchor)

    def _batched(self, name: str, given: Any) -> NDArray[Any]:
        """Reshapes an input to one row for each batch and part of it."""
        import numpy as np

        array, shape = np.asarray(given), self._known(name).shape
        count = self.dataFlow.batches * self._options.accumulation
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

    def _fill(self, arrays: Mapping[str, NDArray[Any]], outputs: Arrays, sums: Arrays, batch: int, part: int) -> None:
        import numpy as np

        batches, parts = self.dataFlow.batches, self._options.accumulation
        for name, array in arrays.items():
            of, found = self.dataFlow.anchors[name], outputs[name]
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

    def _batch(self, inputs: Arrays) -> Arrays:
        """Runs one batch, or a part of one; gives its anchors."""
        found = self.program.run(self._seeded({**inputs, **self._variables}))
        self._assign(found)
        return {a: found[self._fetched.get(a, a)] for a in self.dataFlow.anchors}

    def _assign(self, found: Arrays) -> None:
        """Takes what a batch leaves in variables."""
        for variable, value in self._translation.assigned.items():
            self._variables[variable] = found[self._fetched.get(value, value)]

    def _seeded(self, inputs: Arrays) -> Arrays:
        import numpy as np

        self._runs += 1
        if SEED not in self.program.signature.inputs:
            return inputs
        return {**inputs, SEED: np.random.SeedSequence([self._seed, self._runs]).generate_state(2, np.uint32)}

    def _updated(self) -> None:
        """Does what comes after the last part of a batch: nothing when inferring."""

    # -- weights ------------------------------------------------------------------------------------------------------

    def weightsFromHost(self) -> None:
        """Takes the host's weights to the device; both are one here."""

    def weightsToHost(self) -> None:
        """Takes the device's weights to the host; both are one here."""

    def _weight(self, name: str) -> NDArray[Any]:
        from onnx import numpy_helper

        for held in (self._weights, self._variables):
            if name in held:
                return held[name]
        for tensor in self._model.graph.initializer:
            if tensor.name == name:
                return numpy_helper.to_array(tensor)
        raise PopulusError(f"there is no weight '{name}'{did_you_mean(name, [t.name for t in self._model.graph.initializer])}")

    def readWeights(self, weightsIo: PyWeightsIO) -> None:
        """Fills arrays with weights, by their names. Raises PopulusError for one that there is not."""
        import numpy as np

        for name, array in weightsIo.weights.items():
            np.copyto(array, self._weight(name))

    def getInfo(self, id: str) -> TensorInfo:
        """Gives the type of a tensor. Raises PopulusError if there is none of this name."""
        known = self._anchor_type(id)
        return TensorInfo(known.dtype, known.shape)

    def modelToHost(self, filename: str) -> None:
        """Writes the model with the weights that it has now."""
        import onnx

        onnx.save(self._with_weights(), filename)  # pyright: ignore[reportUnknownMemberType]

    def _with_weights(self) -> ModelProto:
        from onnx import ModelProto, numpy_helper

        model = ModelProto()
        model.CopyFrom(self._model)
        for tensor in model.graph.initializer:
            for held in (self._weights, self._variables):
                if tensor.name in held:
                    tensor.CopyFrom(numpy_helper.from_array(held[tensor.name], tensor.name))
        return model

    def _serializeIr(self, format: object) -> str:
        """Gives the graphs of the session as text. Raises PopulusError for another format than JSON."""
        check_format(format)
        return as_json(self._translation)

    def replicationFactor(self) -> int:
        """Counts the replicas that run: one."""
        return 1

    def accumulationFactor(self) -> int:
        """Counts the parts of a batch."""
        return self._options.accumulation
