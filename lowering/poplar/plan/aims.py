"""The aims of `--optimise`: cycles, memory, or a balance of both."""

from __future__ import annotations

from dataclasses import dataclass

from populus.dialects.poplar.target import Target
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.lowering.poplar.plan.contraction import MEMORY_SHARE


@dataclass(frozen=True)
class Aim:
    """Shares of a tile's memory for resident weights and for temporaries, and the cycles that a received byte costs.

    None: as the pass's own options say. `tiled`: 3x3 convolutions may be transforms and products of tiles of outputs, which take fewer
    cycles and move more bytes.
    """

    resident: float | None = None
    traffic: float | None = None
    temporaries: float = MEMORY_SHARE
    tiled: bool = False


# cycles: a byte costs its time alone. memory: each weight is on one tile, and
# a plan has temporaries of a twentieth of a tile if one does.
AIMS = {"balanced": Aim(), "cycles": Aim(None, 0.0, tiled=True), "memory": Aim(0.0, None, 0.05)}


def aim_of(name: str | None) -> Aim:
    """Finds an aim by its name; `balanced` if there is none. Raises PopulusError, with the nearest, for another name."""
    if name is not None and name not in AIMS:
        raise PopulusError(f"optimise = {name}; expected {', '.join(AIMS)}{did_you_mean(name, AIMS)}")
    return AIMS[name or "balanced"]


def price_of_byte(traffic: float, target: Target) -> float:
    """Computes the cycles that a received byte costs in addition to its time, from those that it costs at the rate of an IPU's exchange.

    A mesh's network has other rates: there it costs as many times its own time.
    """
    return traffic if target.mesh is None else traffic * Target.exchange_bytes / target.mesh.unicast_bytes
