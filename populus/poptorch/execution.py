"""Stages, phases and pipelines: accepted, as one machine runs all blocks of a model with the same results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from populus.poptorch.enums import AutoStage, Liveness


class Stage:
    """Blocks that run together."""

    def __init__(self, *block_ids: str):
        self._blocks, self._ipu = block_ids, 0

    @property
    def blocks(self) -> Sequence[str]:
        """The names of the blocks."""
        return self._blocks

    def ipu(self, ipu: int) -> Self:
        """Accepts the number of a chip."""
        self._ipu = ipu
        return self


class Phase:
    """Stages that run at the same time."""

    def __init__(self, *arg: Any):
        self._stages = [a if isinstance(a, Stage) else Stage(a) for a in arg]

    def stage(self, idx: int) -> Stage:
        """Gives a stage by its number."""
        return self._stages[idx]

    def ipus(self, *ipus: int) -> None:
        """Accepts the numbers of the stages' chips."""


class Strategy:
    """The stages of a model."""

    def __init__(self, *args: Any):
        self._args = args

    def stage(self, block_id: str) -> Stage:
        """Gives a stage of a block."""
        return Stage(block_id)


class PipelinedExecution(Strategy):
    """Stages on several chips, each with another micro batch."""


class ShardedExecution(PipelinedExecution):
    """Stages on several chips, one after the other."""


class ParallelPhasedExecution(Strategy):
    """Phases whose stages run at the same time."""

    def phase(self, phase: int) -> Phase:
        """Gives a phase by its number."""
        found = self._args[phase]
        return found if isinstance(found, Phase) else Phase(*found)

    def useSeparateBackwardPhase(self, use: bool = True) -> Self:
        """Accepts phases of their own for gradients."""
        return self

    def sendTensorsOffChipAfterFwd(self, off_chip: bool = True) -> Self:
        """Accepts where tensors wait for gradients."""
        return self


class SerialPhasedExecution(ParallelPhasedExecution):
    """Phases one after the other."""

    def setTensorsLiveness(self, liveness: Liveness) -> Self:
        """Accepts where tensors wait."""
        return self


__all__ = [
    "AutoStage", "ParallelPhasedExecution", "Phase", "PipelinedExecution", "SerialPhasedExecution", "ShardedExecution", "Stage", "Strategy",
]  # fmt: skip
