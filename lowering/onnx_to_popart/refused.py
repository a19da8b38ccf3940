"""Why ops have no conversion, where there is more to say than that."""

from __future__ import annotations

from collections.abc import Mapping

NO_STRINGS = "strings are not supported on tiles yet"
_BY_DATA = "the size of its result depends on the data, and tiles need static shapes"

REFUSED: Mapping[str, str] = {
    "Gradient": "gradients are taken by populus.vjp, not by a node of the model",
    "ImageDecoder": "images are not decoded on tiles",
    "NonMaxSuppression": _BY_DATA,
    "NonZero": _BY_DATA,
    "RegexFullMatch": NO_STRINGS,
    "StringConcat": NO_STRINGS,
    "StringNormalizer": NO_STRINGS,
    "StringSplit": NO_STRINGS,
    "Unique": _BY_DATA,
}
