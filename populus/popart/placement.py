"""Members of `Builder` about machines, stages, memory and speed: what they say changes no result on one machine, and is kept."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from populus.dialects.support.diagnostics import PopulusError
from populus.popart.overloads import overloaded
from populus.popart.quiet import ignored

# What is asked back of a tensor or of the contexts around: `virtualGraph(t, 1)`, then `getVirtualGraph(t)`.
_ASKED = {"virtualGraph": "VirtualGraph", "pipelineStage": "PipelineStage", "executionPhase": "ExecutionPhase"}


@contextmanager
def _nothing() -> Generator[None]:
    yield


class Placement:
    """Keeps the places that are said of tensors. `inside`: the contexts around, shared with builders of inner graphs."""

    def __init__(self, inside: list[tuple[str, Any]]):
        self._inside = inside
        self._said: dict[tuple[str, str], Any] = {}

    def _say(self, kind: str, names: Any, value: Any) -> None:
        ignored(f"Builder.{kind}", *(["partial sums are of f32"] if kind == "setPartialsType" else []))
        for name in [names] if isinstance(names, str) else cast("Sequence[str]", names):
            self._said[kind, name] = value

    @contextmanager
    def _around(self, kind: str, value: Any) -> Generator[None]:
        self._inside.append((kind, value))
        try:
            yield
        finally:
            self._inside.pop()

    def _place(self, kind: str, given: Mapping[str, Any]) -> Any:
        if "nodeOutputNames" in given:
            return self._say(kind, given["nodeOutputNames"], given.get("value", 0))
        ignored(f"Builder.{kind}")
        return self._around(kind, given.get("value", 0))

    @overloaded("value", "nodeOutputNames value")
    def virtualGraph(self, given: Mapping[str, Any]) -> Any:
        """Says on which machine a tensor is made, or, as a context, all inside; there is one machine."""
        return self._place("virtualGraph", given)

    @overloaded("value", "nodeOutputNames value")
    def pipelineStage(self, given: Mapping[str, Any]) -> Any:
        """Says in which stage of a pipeline a tensor is made, or, as a context, all inside; there are no stages."""
        return self._place("pipelineStage", given)

    @overloaded("value", "nodeOutputNames value")
    def executionPhase(self, given: Mapping[str, Any]) -> Any:
        """Says in which phase a tensor is made, or, as a context, all inside; there are no phases."""
        return self._place("executionPhase", given)

    def _asked(self, kind: str, names: Any) -> Any:
        if names is None:
            found = [value for k, value in self._inside if k == kind]
        else:
            listed = [names] if isinstance(names, str) else list(cast("Sequence[str]", names))
            found = [self._said[kind, n] for n in listed if (kind, n) in self._said]
        return found[-1] if found else None

    def _placed(self, kind: str, names: Any) -> Any:
        found = self._asked(kind, names)
        if found is None:
            raise PopulusError(f"'{names}' has no {_ASKED.get(kind, kind)}" if names else f"no context says a {_ASKED.get(kind, kind)}")
        return found

    def getVirtualGraph(self, nodeOutputNames: Any = None) -> int:
        """Gives the machine that was said for a tensor, or for what is added now. Raises PopulusError if none was."""
        return self._placed("virtualGraph", nodeOutputNames)

    def getPipelineStage(self, nodeOutputNames: Any = None) -> int:
        """Gives the stage that was said for a tensor, or for what is added now. Raises PopulusError if none was."""
        return self._placed("pipelineStage", nodeOutputNames)

    def getExecutionPhase(self, nodeOutputNames: Any = None) -> int:
        """Gives the phase that was said for a tensor, or for what is added now. Raises PopulusError if none was."""
        return self._placed("executionPhase", nodeOutputNames)

    def hasVirtualGraph(self, nodeOutputNames: Any = None) -> bool:
        """Tells whether a machine was said for a tensor, or for what is added now."""
        return self._asked("virtualGraph", nodeOutputNames) is not None

    def hasPipelineStage(self, nodeOutputNames: Any = None) -> bool:
        """Tells whether a stage was said for a tensor, or for what is added now."""
        return self._asked("pipelineStage", nodeOutputNames) is not None

    def hasExecutionPhase(self, nodeOutputNames: Any = None) -> bool:
        """Tells whether a phase was said for a tensor, or for what is added now."""
        return self._asked("executionPhase", nodeOutputNames) is not None

    def setPartialsType(self, nodeOutputName: Any, partialsType: Any) -> None:
        """Keeps the element type of a convolution's partial sums; they are of f32 here."""
        self._say("setPartialsType", nodeOutputName, partialsType)

    def getPartialsType(self, nodeOutputName: Any) -> str:
        """Gives the type that `setPartialsType` kept; FLOAT if there is none."""
        return self._asked("setPartialsType", nodeOutputName) or "FLOAT"

    @overloaded("nodeOutputName value", "nodeOutputNames value")
    def recomputeOutputInBackwardPass(self, given: Mapping[str, Any]) -> None:
        """Keeps that a tensor is computed again for gradients; this compiler decides that itself."""
        names = given.get("nodeOutputName", given.get("nodeOutputNames"))
        self._say("recomputeOutputInBackwardPass", names, getattr(given.get("value"), "name", "Recompute") == "Recompute")

    @overloaded("nodeOutputName", "nodeOutputNames")
    def getRecomputeOutputInBackwardPass(self, given: Mapping[str, Any]) -> bool:
        """Tells what `recomputeOutputInBackwardPass` kept."""
        return bool(self._asked("recomputeOutputInBackwardPass", next(iter(given.values()))))


def _inert(name: str, texts: Sequence[str]) -> Callable[..., Any]:
    def member(self: Placement, given: Mapping[str, Any]) -> Any:
        ignored(f"Builder.{name}")
        return _nothing()

    member.__name__, member.__doc__ = name, "Accepts what changes no result on one machine, with one warning; a context too."
    return overloaded(*texts)(member)


# Members that are not asked back, with their lists of parameters. Source: PopART's Python API.
_INERT = {
    "addOutputTensorLocation": ["nodeOutputNames value"],
    "checkpointOutput": ["nodeOutputNames"],
    "commGroup": ["type groupSize"],
    "embedReplicationFactor": ["replicationFactor"],
    "excludePatterns": ["nodeOutputName patternNames"],
    "outlineAttributes": ["attributes"],
    "outputTensorLocation": ["nodeOutputNames value", "value"],
    "recomputeOutput": ["nodeOutputNames value", "value"],
    "schedulePriority": ["value"],
    "setAvailableMemoryProportion": ["nodeOutputName availableMemoryProportion", "nodeOutputNames availableMemoryProportion"],
    "setEnableConvDithering": ["nodeOutputName enableConvDithering"],
    "setInplacePreferences": ["nodeOutputName prefs"],
    "setSerializeMatMul": ["nodeOutputName mode factor keep_precision"],
}
for _name, _texts in _INERT.items():
    setattr(Placement, _name, _inert(_name, _texts))
