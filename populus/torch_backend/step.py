"""`Step`: a module's results for one batch, and their gradients, as one program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto, numpy_helper

from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.onnx.expose_weights import OnnxExposeWeightsPass
from populus.lowering.popart.accumulate import PopartAccumulatePass
from populus.lowering.popart.autodiff import PopartAutodiffPass
from populus.lowering.popart.seed import PopartSeedPass
from populus.lowering.popart.training_names import accumulated_name, gradient_name
from populus.program.compile import compile
from populus.program.options import EngineName
from populus.program.replicas import Place
from populus.program.stepper import Schedule, Stepper
from populus.torch_backend.export import Exported, reached, reads

if TYPE_CHECKING:
    from xdsl.passes import ModulePass

    from populus.program.source import Arrays

# Before the first of these, the IR has all ops of a model, and none that a machine needs.
_LATER = ("popart-outline", "popart-to-popops")


@dataclass(frozen=True)
class Machine:
    """The machine of a program. `narrow`: it computes f64 as f32 if it has no wider floats."""

    target: str = "gc200"
    tiles: int | None = None
    engine: EngineName = "auto"
    narrow: bool = False


def pruned(model: ModelProto, outputs: Sequence[str]) -> ModelProto:
    """Gives the model of these outputs alone, with the inputs that it has."""
    wanted = reached(model.graph, outputs)
    found = ModelProto()
    found.CopyFrom(model)
    graph = found.graph
    kept = [n for n in graph.node if any(o in wanted for o in n.output)]
    results = {o.name: o for o in (*model.graph.value_info, *model.graph.output)}
    read = {name for n in kept for name in reads(n)} | set(outputs)
    _keep(graph.node, kept)
    _keep(graph.initializer, [i for i in graph.initializer if i.name in read])
    _keep(graph.output, [results[o] for o in outputs])
    del graph.value_info[:], graph.metadata_props[:]
    return found


def _keep(field: Any, values: Sequence[Any]) -> None:
    """Replaces the messages of a field of a model."""
    copies = [type(v)() for v in values]
    for copy, value in zip(copies, values):
        copy.CopyFrom(value)
    del field[:]
    field.extend(copies)


class Step:
    """A program of one batch.

    `variables`: names of initializers that are inputs of the program, beside those of the model. `wrt`: those and inputs, whose
    gradients of `differentiated` (names of outputs) it gives; a name on which these do not depend has none. `parts`: of several, the
    program adds the gradients up, and gives those of one run for the names of `kept` alone. `changed`: variables, each with the output
    that replaces it for the next run.
    Raises PopulusError for what cannot be compiled.
    """

    def __init__(
        self,
        exported: Exported,
        outputs: Sequence[str],
        machine: Machine,
        variables: Iterable[str] = (),
        wrt: Iterable[str] = (),
        differentiated: Sequence[str] = (),
        parts: int = 1,
        kept: Iterable[str] = (),
        changed: Mapping[str, str] | None = None,
    ):
        self.model = pruned(exported.model, outputs)
        self.inputs, self.outputs, self.differentiated = exported.inputs, list(outputs), list(differentiated)
        read = {i.name for i in self.model.graph.initializer}
        self.variables = tuple(n for n in variables if n in read)
        before = reached(self.model.graph, self.differentiated)
        self.wrt = tuple(n for n in wrt if n in before)
        pipeline = Pipeline.named("inference")
        first = next(p.name for p in pipeline.passes if p.name in _LATER)
        passes: list[ModulePass] = [PopartAutodiffPass(self.wrt, outputs=tuple(self.differentiated))] if self.wrt else []
        if self.wrt and parts > 1:
            passes.append(PopartAccumulatePass(parts, "add", wide=False, weights=self.wrt, kept=tuple(n for n in kept if n in self.wrt)))
        sums = {gradient_name(n): (gradient_name if parts == 1 else accumulated_name)(n) for n in self.wrt}
        self.schedule = Schedule(parts=parts, sums=sums, changes=changed or {})
        pipeline = pipeline.insert_before(first, PopartSeedPass(), *passes)
        if self.variables:
            pipeline = Pipeline((OnnxExposeWeightsPass(self.variables), *pipeline.passes))
        self.program = compile(
            self.model, pipeline=pipeline, target=machine.target, tiles=machine.tiles, engine=machine.engine, narrow=machine.narrow
        )
        self._alone = Stepper(Schedule(), Place.alone(), [self.program])
        self._types = {n: (dtype_of(t.element_type), t.get_shape()) for n, t in self.program.signature.inputs.items()}

    def feed(self, inputs: Sequence[Any], cotangents: Mapping[str, Any] | None = None) -> Arrays:
        """Gives what a run takes. `cotangents`: arrays or numbers, by names of `differentiated`; zeros where there is none."""
        given = {n: a for n, a in zip(self.inputs, inputs) if n in self._types}
        if self.wrt:
            for name in self.differentiated:
                _, shape = self._types[gradient_name(name)]
                given[gradient_name(name)] = np.broadcast_to((cotangents or {}).get(name, 0.0), shape)
        return {n: np.asarray(a, self._types[n][0]) for n, a in given.items()}

    def held(self, weights: Arrays) -> Arrays:
        """Gives the variables, in the program's types."""
        return {n: np.asarray(weights[n], self._types[n][0]) for n in self.variables}

    def run(
        self, inputs: Sequence[Any], weights: Arrays, seed: Sequence[int], cotangents: Mapping[str, Any] | None = None
    ) -> tuple[Arrays, Arrays]:
        """Gives the outputs by name, and the gradients of `wrt` by name, of one batch."""
        feed = self.feed(inputs, cotangents)
        found = next(self._alone.run(lambda *_: [feed], [self.held(weights)], lambda *_: seed)).results[0]
        return {n: found[n] for n in self.outputs}, {n: found[gradient_name(n)] for n in self.wrt}


def initial(model: ModelProto, names: Iterable[str]) -> Arrays:
    """Gives the values of initializers."""
    wanted = set(names)
    return {i.name: numpy_helper.to_array(i) for i in model.graph.initializer if i.name in wanted}


def rows(arrays: Sequence[Any], count: int) -> list[list[Any]]:
    """Cuts arrays into `count` micro batches along their first dimension. Raises PopulusError if one cannot be cut so."""
    if count == 1:
        return [list(arrays)]
    for i, a in enumerate(arrays):
        if a.ndim == 0 or a.shape[0] % count:
            raise PopulusError(
                f"input {i} has shape {list(a.shape)}; device iterations times gradient accumulation is {count}, "
                "which must divide its first dimension"
            )
    return [[a[k * (n := a.shape[0] // count) : (k + 1) * n] for a in arrays] for k in range(count)]
