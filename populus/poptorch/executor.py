"""`PoplarExecutor`: a module of PyTorch that runs, and trains, on a machine."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import torch
from torch.utils import _pytree as pytree

from populus.dialects.support.diagnostics import did_you_mean
from populus.popart.reserved import GRADIENT
from populus.poptorch import optim
from populus.poptorch.absent import Absent, Error
from populus.poptorch.enums import ConnectionType, OutputMode
from populus.poptorch.exceptions import watched
from populus.poptorch.options import Options
from populus.poptorch.results import UPDATED, chosen, names_of, narrow_tensor, shapes_text
from populus.poptorch.running import Running
from populus.torch_backend.export import PREFIX, Exported, exported
from populus.torch_backend.step import Machine, Step, initial, rows

if TYPE_CHECKING:
    from populus.popart.updates import Update
    from populus.program.source import Arrays

_HOOKS: dict[str, dict[int, Callable[[], None]]] = {"before": {}, "after": {}}
_TRACING: list[object] = []


def is_tracing() -> bool:
    """Tells whether a model is being traced for the machine."""
    return bool(_TRACING)


class PoplarExecutor(Absent):
    """A module on a machine; `inferenceModel` and `trainingModel` make it. A call compiles at first, then runs.

    A call takes `deviceIterations` times `gradientAccumulation` times `replicationFactor` micro batches, one after the other along the
    first dimension of each input. Outputs of int64 are int32, and of f64 are f32, as the machine has no wider types. In training, the
    module's parameters have their new values after each call.
    Raises PopulusError for a module that cannot be traced or compiled, and for inputs of other shapes.
    """

    MACHINE: ClassVar[Machine] = Machine(narrow=True)

    def __init__(self, model: Any, options: Options | None, training: bool, optimizer: Any = None):
        if not isinstance(cast("object", options), Options | None):
            raise Error(f"Invalid type: 'options' is of type {type(options)} (Expected poptorch.Options)")
        self._options = (options or Options()).clone()
        if options is not None:
            options._freeze()  # pyright: ignore[reportPrivateUsage], which is for models
        self._user_model, self._model, self._training = model, copy.copy(model), training
        if self._options.defaultOutputMode():
            self._options.outputMode(OutputMode.Final if training else OutputMode.All)
        if not training and self._options.Training.gradient_accumulation != 1:
            raise Error(
                "You must set poptorch.Options().Training.gradientAccumulation to 1 or leave it as its default value (1) "
                "when running a poptorch.inferenceModel()."
            )
        self._options._freeze()  # pyright: ignore[reportPrivateUsage], which is for models
        self._exported: Exported | None = None
        self._step: Step | None = None
        self._running: Running | None = None
        self._versions: dict[str, int] = {}
        self._shapes: list[tuple[Any, ...]] = []
        self._anchors: dict[str, Any] = {}
        self._attached, self._calls = False, 0
        self._seed = int(torch.initial_seed() if self._options.random_seed is None else self._options.random_seed) & (2**63 - 1)
        self._optimizer: Any = None
        if training:
            self.setOptimizer(optimizer if optimizer is not None else optim.SGD(model.parameters(), lr=0.01))

    # -- compiling

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Traces and compiles the module for arguments of these shapes, and does not run it."""
        if self._step is None:
            self._compile(args, kwargs)

    def _tensors(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], Any, list[Any]]:
        """Gives all leaves of the arguments, their structure, and the tensors among them as the machine takes them."""
        leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
        tensors = [t.detach() for t in leaves if isinstance(t, torch.Tensor)]
        return leaves, spec, [t.float() if t.dtype == torch.float64 else t for t in tensors]

    def _compile(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        leaves, spec, tensors = self._tensors(args, kwargs)
        count = self._count
        first = [torch.from_numpy(np.ascontiguousarray(a)) for a in rows([t.numpy() for t in tensors], count)[0]] if count > 1 else tensors

        def call(model: Any, given: Sequence[Any]) -> Any:
            rest = iter(given)
            inner, named = pytree.tree_unflatten([next(rest) if isinstance(x, torch.Tensor) else x for x in leaves], spec)
            return model(*inner, **named)

        for hook in list(_HOOKS["before"].values()):
            hook()
        _TRACING.append(self)
        try:
            found = exported(self._model, call, first)
        finally:
            _TRACING.pop()
            for hook in list(_HOOKS["after"].values()):
                hook()
        self._shapes = [(tuple(t.shape), t.dtype) for t in tensors]
        self._build(found)

    def _build(self, found: Exported) -> None:
        """Compiles the programs of a traced module."""
        names = [n for n in found.tensors if n in found.changed]
        trained: list[str] = []
        loss = self._loss(found) if self._training else None
        if self._training:
            ids = {id(p) for g in self._optimizer.param_groups for p in g["params"] if p.requires_grad}
            trained = [n for n, t in found.tensors.items() if id(t) in ids and n not in found.changed]
        elif self._step is not None:  # weights have changed since, and may change again
            names = list(found.tensors)
        anchored = [long for long, _, _ in self._options.anchored_tensors.values()]
        known = names_of(found, trained)
        if strange := [n for n in anchored if n not in known]:
            raise Error(f"there is no tensor '{strange[0]}' to anchor{did_you_mean(strange[0], known)}")
        losses = [] if loss is None else [loss]
        inside = [n for n in anchored if not n.startswith((GRADIENT, UPDATED))]
        outputs = dict.fromkeys([*found.outputs, *losses, *found.changed.values(), *inside])
        shown = [n for n in trained if GRADIENT + n.removeprefix(PREFIX) in anchored]
        if self._options.Precision.floating_point_exceptions:
            outputs |= dict.fromkeys(watched(found.model.graph))
            shown = trained
        parts, variables = self._options.Training.gradient_accumulation, [*names, *trained]
        step = Step(found, list(outputs), self.MACHINE, variables, trained, losses, parts, kept=shown, changed=found.changed)
        self._exported, self._step = found, step
        self._running = Running(found, step, self._options, self.MACHINE, shown)
        self._seen()
        if self._training:
            self._made = optim.converted(self._optimizer, {id(t): n for n, t in found.tensors.items()})
            if step.wrt:
                self._running.train(self._made, step.wrt)
            self._connect()
        self._attached = True

    def _loss(self, found: Exported) -> str:
        """Gives the loss's output. Raises PopulusError unless there is exactly one."""
        if len(found.losses) != 1:
            said = ", ".join(loss.function for loss in found.losses)
            raise Error(
                f"the model computes several losses, {said}; poptorch.identity_loss of their sum makes them one"
                if found.losses
                else "the model computes no loss; use one of torch.nn, or mark a tensor by poptorch.identity_loss"
            )
        return found.losses[0].output

    @property
    def _count(self) -> int:
        options = self._options
        return options.device_iterations * options.Training.gradient_accumulation * options.replication_factor

    # -- running

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the module, and takes a step of the optimizer in training; gives its results in its own structure."""
        if self._options.connection_type == ConnectionType.Never:
            raise Error(
                "Trying to run a model on an offline device (ConnectionType.Never): use model.compile(inputs) instead of model(inputs)"
            )
        self.compile(*args, **kwargs)
        assert self._step is not None
        if not self._attached:
            self.attachToDevice()
        _, _, tensors = self._tensors(args, kwargs)
        if (shapes := [(tuple(t.shape), t.dtype) for t in tensors]) != self._shapes:
            raise Error(
                f"the inputs are {shapes_text(shapes)}, and the model is compiled for {shapes_text(self._shapes)}; "
                "pass inputs of equal shapes (a DataLoader with drop_last=True does), or make another model"
            )
        if not self._training:
            self._follow_weights()
        return self._run([t.numpy() for t in tensors])

    def _run(self, inputs: Sequence[Any]) -> Any:
        assert self._running is not None
        found: list[Arrays] = []
        for each in self._running.run(inputs, self._seed, self._calls, self._made if self._training else None):
            self._calls += len(each)
            found += each
        if self._training:
            if self._running.update is not None:
                self._optimizer._opt_called = True  # torch's schedulers of rates ask for it
            self._give_weights()
        return self._results(found)

    def _results(self, found: Sequence[Arrays]) -> Any:
        exported, options = self._exported, self._options
        assert exported is not None
        mode, period, parts = options.output_mode, options.output_return_period, options.Training.gradient_accumulation
        copies = options.replication_factor
        values = [chosen([f[name] for f in found], mode, period, parts, copies) for name in exported.outputs]
        for short, (long, own, every) in options.anchored_tensors.items():
            way = (mode, period) if own is None else (own, every)
            self._anchors[short] = narrow_tensor(chosen([f[long] for f in found], *way, parts, copies))
        return exported.rebuild([narrow_tensor(v) for v in values])

    # -- weights

    def _seen(self) -> None:
        """Notes the versions of the module's tensors, which tell whether they change."""
        assert self._exported is not None
        self._versions = {n: t._version for n, t in self._exported.tensors.items()}

    def _give_weights(self) -> None:
        """Gives the module's parameters and buffers the values that they have on the machine."""
        assert self._running is not None
        self._running.give()
        self._seen()

    def _follow_weights(self) -> None:
        """Takes the module's parameters if they were changed, as by training."""
        assert self._exported is not None
        if any(t._version != self._versions[n] for n, t in self._exported.tensors.items()):
            self.copyWeightsToDevice()

    def copyWeightsToHost(self) -> None:
        """Gives the module's parameters and buffers the values that they have on the machine; each call in training does so."""
        self._compiled()
        self._give_weights()

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Tells that the module's parameters are up to date."""
        return False

    def copyWeightsToDevice(self) -> None:
        """Gives the machine the values that the module's parameters have."""
        self._compiled()
        assert self._exported is not None
        assert self._step is not None
        if not self._training and len(self._step.variables) < len(initial(self._step.model, self._exported.tensors)):
            self._build(self._exported)  # the weights were constants so far
        assert self._running is not None
        self._running.take()
        self._seen()

    def copyNamedBuffersToDevice(self) -> None:
        """Gives the machine the buffers that `Options.updatableNamedBuffers` names. Raises PopulusError if it names none."""
        self._compiled()
        named = self._options.toDict().get("updatable_buffers")
        if not named:
            raise Error("No named buffers marked as updatable via updatableNamedBuffers option")
        assert self._running is not None
        if not {PREFIX + n for n in named} <= set(self._running.held):
            self.copyWeightsToDevice()
        self._running.take([full for n in named if (full := PREFIX + n) in self._running.held])

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
        """Gives the module other parameters, on the machine too."""
        found = self._user_model.load_state_dict(state_dict, strict)
        if self._step is not None:
            self.copyWeightsToDevice()
        return found

    # -- the optimizer

    def setOptimizer(self, optimizer: Any) -> None:
        """Takes an optimizer, or its present hyperparameters; states stay, unless it is of another kind."""
        names = {} if self._exported is None else {id(t): n for n, t in self._exported.tensors.items()}
        made = optim.converted(optimizer, names)
        other = optimizer is not self._optimizer
        self._optimizer, self._made = optimizer, made
        running = self._running
        if running is not None and running.update is not None and not running.update.fits(made):
            running.train(made, running.update.weights)
        if other:
            self._connect()

    def _connect(self) -> None:
        """Lets an optimizer of poptorch read and write the states on the machine."""
        if isinstance(self._optimizer, optim.Optimizer) and self._running is not None and self._running.update is not None:
            kept = self._optimizer._ipu
            self._optimizer.connection = (self._read_states, self._write_states)
            if kept["ipu_state"] is not None:
                self._write_states(kept)

    def _updated(self) -> tuple[Running, Update]:
        assert self._running is not None
        assert self._running.update is not None
        return self._running, self._running.update

    def _read_states(self) -> dict[str, Any]:
        running, update = self._updated()
        state = {n: torch.from_numpy(np.array(a)) for n, a in update.state.items()}
        return {"ipu_state": state, "ipu_param": {"steps": running.steps}}

    def _write_states(self, found: Mapping[str, Any]) -> None:
        """Takes states. Raises PopulusError for those of other weights or another optimizer."""
        running, update = self._updated()
        state = {n: np.array(t.numpy()) for n, t in found["ipu_state"].items()}
        if {n: a.shape for n, a in state.items()} != {n: a.shape for n, a in update.state.items()}:
            raise Error("the optimizer's state is of another model or another optimizer")
        update.state, running.steps = state, int(found["ipu_param"]["steps"])

    # -- the device

    def _compiled(self) -> None:
        if self._step is None:
            raise Error("Model has not been compiled or has been destroyed.")

    def isCompiled(self) -> bool:
        """Tells whether there is a program."""
        return self._step is not None

    def isAttachedToDevice(self) -> bool:
        """Tells whether the model has its device."""
        return self._attached

    def attachToDevice(self) -> None:
        """Takes the device, with the module's parameters. Raises PopulusError without a program, or with the device."""
        self._compiled()
        if self._attached:
            raise Error("Device is already attached")
        self._attached = True
        self.copyWeightsToDevice()

    def detachFromDevice(self) -> None:
        """Gives the device back. Raises PopulusError without it."""
        if not self._attached:
            raise Error("Device is not attached")
        self._attached = False

    def destroy(self) -> None:
        """Forgets the program; the next call compiles again."""
        self._exported = self._step = self._running = None
        self._attached = False

    # -- what else there is to know

    @property
    def model(self) -> Any:
        """The module."""
        return self._user_model

    @property
    def options(self) -> Options:
        """The options."""
        return self._options

    @property
    def program(self) -> Any:
        """The compiled program of a micro batch: its levels, its profile. Raises PopulusError before it is compiled."""
        self._compiled()
        assert self._step is not None
        return self._step.program

    @property
    def rng_state(self) -> list[int]:
        """The seed, and how many times random numbers were drawn."""
        self._compiled()
        return [self._seed, self._calls]

    @rng_state.setter
    def rng_state(self, state: Sequence[int]) -> None:
        self._compiled()
        self._seed, self._calls = int(state[0]), int(state[1]) if len(state) > 1 else 0

    def getTensorNames(self) -> list[str]:
        """Lists the names of tensors that `Options.anchorTensor` takes."""
        self._compiled()
        assert self._exported is not None
        assert self._step is not None
        return names_of(self._exported, self._step.wrt)

    def getAnchoredTensor(self, short_name: str) -> Any:
        """Gives a tensor that `Options.anchorTensor` names, of the last call. Raises PopulusError for another name."""
        if short_name not in self._anchors:
            raise Error(f"No tensor with name {short_name} found{did_you_mean(short_name, self._anchors)}")
        return self._anchors[short_name]

    def cycleCount(self) -> int:
        """Estimates the cycles of a call, from the model of the machine."""
        self._compiled()
        assert self._running is not None
        return self._running.cycles

    def compilationTime(self) -> timedelta:
        """Gives the time that the passes of the program took."""
        return timedelta(seconds=sum(t.seconds for t in self.program.timings))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_user_model" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._user_model, name)

    def __repr__(self) -> str:
        return repr(self._user_model)
