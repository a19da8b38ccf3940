"""PopDist's options of PopTorch's models, for one instance."""

from __future__ import annotations

from populus import poptorch
from populus.dialects.support.diagnostics import PopulusError
from populus.popdist import replicas_of_one


class Options(poptorch.Options):
    """The options of a model, with its replicas. Raises PopulusError for several chips of a replica, and for several instances."""

    def __init__(self, ipus_per_replica: int = 1) -> None:
        if ipus_per_replica != 1:
            raise PopulusError(f"ipus_per_replica = {ipus_per_replica}; a model runs on one machine")
        super().__init__()
        self.replicationFactor(replicas_of_one("PopTorch"))
