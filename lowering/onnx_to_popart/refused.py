"""Why ops have no conversion, where there is more to say than that."""

from __future__ import annotations

from collections.abc import Mapping

NO_STRINGS = "strings are not supported on tiles yet"

REFUSED: Mapping[str, str] = {
    "Gradient": "gradients are taken by populus.vjp, not by a node of the model",
    "ImageDecoder": "images are not decoded on tiles",
    "RegexFullMatch": NO_STRINGS,
    "StringConcat": NO_STRINGS,
    "StringNormalizer": NO_STRINGS,
    "StringSplit": NO_STRINGS,
}
