"""PopDist's options of PopTorch's models, for one replica."""

from __future__ import annotations

from populus import poptorch
from populus.dialects.support.diagnostics import PopulusError


class Options(poptorch.Options):
    """The options of a model of one replica. Raises PopulusError for several chips of a replica."""

    def __init__(self, ipus_per_replica: int = 1) -> None:
        if ipus_per_replica != 1:
            raise PopulusError(f"ipus_per_replica = {ipus_per_replica}; a model runs on one machine")
        super().__init__()
