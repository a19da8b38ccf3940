"""Why ops have no conversion, where there is more to say than that."""

from __future__ import annotations

from collections.abc import Mapping

REFUSED: Mapping[str, str] = {
    "Gradient": "gradients are taken by populus.vjp, not by a node of the model",
}
