"""`TrainingSession`: a model, its loss and an optimizer; gradients of any tensor are anchors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.popart.autodiff import PopartAutodiffPass
from populus.lowering.popart.training_names import gradient_name
from populus.popart.dataflow import DataFlow, InputShapeInfo
from populus.popart.devices import DeviceInfo
from populus.popart.host_weights import arrays_of
from populus.popart.limits import check_rewrites
from populus.popart.optimizers import Optimizer
from populus.popart.reserved import GRADIENT, STEP
from populus.popart.session import InferenceSession
from populus.popart.settings import Patterns, SessionOptions
from populus.popart.translation import Known, Translation, reads
from populus.popart.updates import NEW, hyperparameters, states_of, update_model
from populus.program.program import Program
from populus.runtime.gcl import reduced

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import NodeProto

    from populus.program.source import Arrays

ZERO = "zero/"  # what is added to a tensor inside, so that its gradient can be asked for


class TrainingSession(InferenceSession):
    """A model that learns: each batch gives gradients of `loss`, and `optimizer` makes new weights of them.

    An anchor `Gradient___x` is the gradient of a tensor x, times the optimizer's loss scaling. Raises PopulusError.
    """

    TRAINS = True

    def __init__(
        self,
        fnModel: bytes | str,
        dataFlow: DataFlow,
        loss: str,
        optimizer: Optimizer,
        deviceInfo: DeviceInfo,
        inputShapeInfo: InputShapeInfo | None = None,
        patterns: Patterns | None = None,
        userOptions: SessionOptions | None = None,
        name: str = "",
    ):
        self._loss, self._optimizer = loss, optimizer
        super().__init__(fnModel, dataFlow, deviceInfo, inputShapeInfo, patterns, userOptions, name)
        if self._known(loss).dtype.kind != "f":
            raise PopulusError(f"the loss '{loss}' is {self._known(loss).dtype}; floats are expected")
        if math.prod(self._known(loss).shape) != 1:
            raise PopulusError(f"the loss '{loss}' is {list(self._known(loss).shape)}; it must be a scalar tensor")
        read = {i for n in self._translation.nodes for i in reads(n)}
        reached = reaching(self._translation, loss)
        self._weights = {n: a for n, a in arrays_of(self._model).items() if n in reached and n not in self._variables}
        self._sums: list[Arrays] = [{} for _ in range(self._copies)]  # of each replica
        self._update: Program | None = None
        for anchor in dataFlow.kinds:
            if anchor.startswith(GRADIENT) and anchor.removeprefix(GRADIENT) not in reached:
                missing = f"no gradient flows from the loss '{loss}' to '{anchor.removeprefix(GRADIENT)}'"
                raise PopulusError(f"Anchor tensor `{anchor}' not in Ir Tensors. Here {missing}")
        self._asked = {a.removeprefix(GRADIENT): a for a in dataFlow.kinds if a.startswith(GRADIENT)}
        moved = reached & led_by(self._model.graph.node, {*self._weights, *self._asked})
        check_rewrites(self._model.graph.node, moved, self._patterns.isPatternEnabled)
        self._inside = self._split([n for n in self._asked if n not in self._weights])
        self._given = {n for n in self._asked if n not in self._inside and n in read}
        self._prepare_state()

    def _check_anchor(self, anchor: str) -> None:
        known = self._known(anchor.removeprefix(GRADIENT))
        if anchor.startswith(GRADIENT) and known.dtype.kind != "f":
            raise PopulusError(f"Anchor tensor `{anchor}' not in Ir Tensors. Only floats have gradients")

    def _split(self, names: list[str]) -> dict[str, Known]:
        """Adds zeros to what nodes give, each an input; the types of these inputs by the tensors' names."""
        from onnx import helper

        found: dict[str, Known] = {}
        for node in list(self._translation.nodes):
            for i, output in enumerate(node.output):
                if output in names and output not in found:
                    found[output] = self._known(output)
                    node.output[i] = f"{output}/before"
                    nodes = self._translation.nodes
                    added = helper.make_node("Add", [node.output[i], ZERO + output], [output])
                    nodes.insert(next(k for k, n in enumerate(nodes) if n is node) + 1, added)
        return found

    def _prepare_state(self) -> None:
        import numpy as np

        prefixes, _ = states_of(self._optimizer)
        for w, array in self._weights.items():
            for prefix in prefixes:
                dtype = np.float16 if prefix in self._optimizer.state_types else np.float32
                self._state[prefix + w] = np.zeros(() if prefix == STEP else array.shape, dtype)
        self._host.update({n: a.copy() for n, a in self._state.items()})

    # -- compiling ----------------------------------------------------------------------------------------------------

    def _wrt(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self._weights, *(ZERO + n for n in self._inside), *sorted(self._given - set(self._weights))]))

    def _more_inputs(self) -> Mapping[str, Known]:
        return {ZERO + n: k for n, k in self._inside.items()}

    def _compiled(self) -> Program:
        anchors = [a for a in self.dataFlow.kinds if not a.startswith(GRADIENT)]
        outputs = list(dict.fromkeys([*anchors, *self._translation.assigned.values(), self._loss]))
        wrt = self._wrt()
        passes = [PopartAutodiffPass(wrt, outputs=(self._loss,))] if wrt else []
        program = self._build(outputs, list(self._model.graph.initializer), passes)
        if self._weights:
            model = update_model(self._optimizer, self._weights)
            self._update = self._compile(model, Pipeline.named("inference"))
        return program

    # -- running ------------------------------------------------------------------------------------------------------

    def _batch(self, each: Sequence[Arrays]) -> list[Arrays]:
        import numpy as np

        loss = self._known(self._loss)
        scale = self._optimizer.getLossScalingVal()
        same = {**self._weights, **self._variables, **{ZERO + n: np.zeros(k.shape, k.dtype) for n, k in self._inside.items()}}
        if self._wrt():
            same[gradient_name(self._loss)] = np.full(loss.shape, scale, loss.dtype)
        results = self._run_replicas([{**inputs, **same} for inputs in each])
        for sums, found in zip(self._sums, results, strict=True):
            for w in self._weights:
                gradient = found[gradient_name(w)]
                sums[w] = gradient if w not in sums else sums[w] + gradient
        return [{a: self._anchor(a, found) for a in self.dataFlow.kinds} for found in results]

    def _anchor(self, anchor: str, found: Arrays) -> NDArray[Any]:
        """Gives a tensor, or a gradient, from a program's results."""
        import numpy as np

        name = anchor.removeprefix(GRADIENT)
        if not anchor.startswith(GRADIENT):
            return found[self._fetched.get(anchor, anchor)]
        if name in self._weights or name in self._inside or name in self._given:
            return found[gradient_name(ZERO + name if name in self._inside else name)]
        return np.zeros(self._known(name).shape, self._known(name).dtype)

    def _updated(self) -> None:
        if self._update is None:
            return
        share = 1.0
        if self._options.accumulationAndReplicationReductionType.name == "Mean":
            share = 1.0 / (self._options.accumulation * self._copies)
        summed = {w: reduced("add", [sums[w] for sums in self._sums]) for w in self._sums[0]}  # as an all-reduce of the replicas
        gradients = {GRADIENT + w: (g * share).astype(g.dtype) for w, g in summed.items()}
        scalars = hyperparameters(self._optimizer, list(self._weights))
        found = self._update.run({**self._weights, **gradients, **self._state, **scalars})
        self._weights = {w: found[NEW + w] for w in self._weights}
        self._state = {s: found[NEW + s] for s in self._state}
        self._sums = [{} for _ in range(self._copies)]

    def updateOptimizerFromHost(self, optimizer: Optimizer) -> None:
        """Takes other hyperparameters. Raises PopulusError for another kind of optimizer."""
        if states_of(optimizer) != states_of(self._optimizer):
            kinds = [type(o).__name__ for o in (self._optimizer, optimizer)]
            raise PopulusError(f"the session was made with {kinds[0]}, and its states do not fit {kinds[1]} as given")
        self._optimizer = optimizer

    def getTensorIds(self) -> list[str]:
        """Lists the tensors of the model, and the gradients that are anchors."""
        return [*self.getAllTensorIds(), *self._asked.values()]

    def broadcastWeights(self, rootRank: int = 0) -> None:
        """Gives all processes the weights of one; there is one process."""

    def updateEngineCache(self) -> None:
        """Accepts that a cached executable takes new callbacks; none is cached with callbacks."""


def led_by(nodes: Iterable[NodeProto], names: set[str]) -> set[str]:
    """Finds the tensors that follow from these, and these."""
    found = set(names)
    for node in nodes:
        if found.intersection(reads(node)):
            found.update(o for o in node.output if o)
    return found


def reaching(translation: Translation, loss: str) -> set[str]:
    """Finds the tensors of floats on which the loss depends by a path that gradients can take."""
    producers = {o: n for n in translation.nodes for o in n.output}
    found: set[str] = set()
    open_ = [loss]
    while open_:
        name = open_.pop()
        if name in found or not translation.has(name) or translation.type_of(name).dtype.kind != "f":
            continue
        found.add(name)
        node = producers.get(name)
        if node is not None and node.op_type != "Detach":
            open_.extend(reads(node))
    return found
