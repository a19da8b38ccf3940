"""Options of PopTorch without a meaning here: accepted, with one warning by name."""

from __future__ import annotations

from functools import partial

from populus.popart import quiet

ignored = partial(quiet.ignored, front="poptorch")
