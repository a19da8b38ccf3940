"""Where a tensor lies, under PopXL's names: on the chip or outside of it, whole or in shards of replicas."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from populus.popart.enums import ENUMS

TensorStorage = ENUMS["TensorStorage"]
TileSet = ENUMS["TileSet"]
ReplicatedTensorSharding = ENUMS["ReplicatedTensorSharding"]
_FRAGMENTS = ("AccumulateOuterFragment", "WeightsFromHostFragment", "WeightsToHostFragment", "OptimizerFromHostFragment")
ExecutionContext = Enum("ExecutionContext", ["Normal", *_FRAGMENTS, "Subgraph"], module=__name__)


@dataclass(frozen=True)
class TensorLocation:
    """A storage, and whether replicas have a shard each."""

    storage: Enum = TensorStorage.__members__["OnChip"]
    replicated_tensor_sharding: Enum = ReplicatedTensorSharding.__members__["Off"]
