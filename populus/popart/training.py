"""`TrainingSession`: a model, its loss and an optimizer; gradients of any tensor are anchors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.popart.accumulate import PopartAccumulatePass
from populus.lowering.popart.autodiff import PopartAutodiffPass
from populus.lowering.popart.training_names import accumulated_name, gradient_name
from populus.popart.dataflow import DataFlow, InputShapeInfo
from populus.popart.devices import DeviceInfo
from populus.popart.host_weights import arrays_of
from populus.popart.limits import check_rewrites
from populus.popart.optimizers import Optimizer
from populus.popart.reserved import GRADIENT
from populus.popart.session import InferenceSession
from populus.popart.settings import Patterns, SessionOptions
from populus.popart.translation import Known, Translation, reads
from populus.popart.updates import Update, begun, same_states, update_pipeline
from populus.program.program import Program
from populus.program.replicas import Replicas
from populus.program.stepper import Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import NodeProto
    from xdsl.passes import ModulePass

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
        self._update: Update | None = None
        for anchor in dataFlow.kinds:
            if anchor.startswith(GRADIENT) and anchor.removeprefix(GRADIENT) not in reached:
                missing = f"no gradient flows from the loss '{loss}' to '{anchor.removeprefix(GRADIENT)}'"
                raise PopulusError(f"Anchor tensor `{anchor}' not in Ir Tensors. Here {missing}")
        self._asked = {a.removeprefix(GRADIENT): a for a in dataFlow.kinds if a.startswith(GRADIENT)}
        moved = reached & led_by(self._model.graph.node, {*self._weights, *self._asked})
        check_rewrites(self._model.graph.node, moved, self._patterns.isPatternEnabled)
        self._inside = self._split([n for n in self._asked if n not in self._weights])
        self._given = {n for n in self._asked if n not in self._inside and n in read}
        self._state = begun(optimizer, self._weights)
        self._host.update({n: a.copy() for n, a in self._state.items()})

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

    # -- compiling ----------------------------------------------------------------------------------------------------

    def _wrt(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self._weights, *(ZERO + n for n in self._inside), *sorted(self._given - set(self._weights))]))

    def _more_inputs(self) -> Mapping[str, Known]:
        return {ZERO + n: k for n, k in self._inside.items()}

    def _compiled(self) -> Program:
        anchors = [a for a in self.dataFlow.kinds if not a.startswith(GRADIENT)]
        outputs = list(dict.fromkeys([*anchors, *self._translation.assigned.values(), self._loss]))
        wrt = self._wrt()
        passes: list[ModulePass] = [PopartAutodiffPass(wrt, outputs=(self._loss,))] if wrt else []
        parts, weights = self._options.accumulation, tuple(self._weights)
        if weights and parts > 1:
            kept = tuple(w for w in weights if w in self._asked)
            passes.append(PopartAccumulatePass(parts, "add", wide=False, weights=weights, kept=kept))
        program = self._build(outputs, list(self._model.graph.initializer), passes)
        if weights:
            mean = self._options.accumulationAndReplicationReductionType.name == "Mean"
            each, copies = parts * self._copies if mean else 1, self._copies
            self._update = Update(self._optimizer, self._weights, lambda m: self._compile(m, update_pipeline()), copies, each)
            self._updates = Replicas(self._update.program, self._copies).programs
        return program

    # -- running ------------------------------------------------------------------------------------------------------

    def _schedule(self) -> Schedule:
        made = super()._schedule()
        gradient = gradient_name if made.parts == 1 else accumulated_name
        sums = {gradient_name(w): gradient(w) for w in self._weights}
        changes = {**made.changes, **({} if self._update is None else self._update.changes)}
        fetched = {name for a in self.dataFlow.kinds if (name := self._result(a)) is not None}
        return replace(made, changes=changes, sums=sums, fetched=fetched)

    def _scalars(self, batch: int) -> Arrays:
        import numpy as np

        loss = self._known(self._loss)
        found = {ZERO + n: np.zeros(k.shape, k.dtype) for n, k in self._inside.items()}
        if self._wrt():
            found[gradient_name(self._loss)] = np.full(loss.shape, self._optimizer.getLossScalingVal(), loss.dtype)
        return found if self._update is None else {**found, **self._update.scalars(self._optimizer)}

    def _result(self, anchor: str) -> str | None:
        """Names the program's result that an anchor is; None for a gradient that is zeros, as nothing leads to it."""
        name = anchor.removeprefix(GRADIENT)
        if not anchor.startswith(GRADIENT):
            return self._fetched.get(anchor, anchor)
        if name in self._weights or name in self._inside or name in self._given:
            return gradient_name(ZERO + name if name in self._inside else name)
        return None

    def _anchor(self, anchor: str, found: Arrays) -> NDArray[Any]:
        """Gives a tensor, or a gradient, from a program's results."""
        import numpy as np

        known = self._anchor_type(anchor)
        return np.zeros(known.shape, known.dtype) if (name := self._result(anchor)) is None else found[name]

    def updateOptimizerFromHost(self, optimizer: Optimizer) -> None:
        """Takes other hyperparameters. Raises PopulusError for another kind of optimizer."""
        if not same_states(optimizer, self._optimizer):
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
