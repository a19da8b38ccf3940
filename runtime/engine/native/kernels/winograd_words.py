"""The words of Winograd's launches, and what a launch touches, from them."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from populus.runtime.engine.native.codegen.touched import Arguments, Elements, Table, Touched, address_of, met
from populus.runtime.engine.native.kernels.endings import Ending, plane_reads

Words: TypeAlias = "dict[str, Any]"
ITEM = 4  # bytes of a float
WORDS = (
    "x", "u", "y", "tall_broad", "tall_narrow", "short_broad", "short_narrow", "xs", "ys", "depth", "ic", "oc", "x_channel",
    "x_row", "high", "wide", "top", "left", "y_channel", "y_row", "out_high", "out_wide", "across", "down", "rows", "blocks",
    "tiles", "v_plane", "m_plane", "u_plane", "parts", "wide_parts", "broad", "oc_parts", "oc_tall", "oc_high", "scratch",
    "each_scratch", "lanes", "transform", "multiply", "back", "total", "points", "number",
    "ends", "busy", "places",
)  # fmt: skip


def touches(ending: Ending | None, args: Arguments, units: int) -> Touched:
    """States what a launch of `_all` touches, but its places in scratch memory."""
    w: Words = dict(zip(WORDS, args))
    read, written = _of_x(w, w["xs"], 0, w["down"]), _of_y(w, w["ys"], 0, w["down"])
    return Touched([read, _of_u(w), *_of_ending(w, args, ending)], [written])


def touches_of_part(part: str, ending: Ending | None, args: Arguments, units: int) -> Touched:
    """States what a launch of a part of one block touches."""
    w: Words = dict(zip(WORDS, args))
    image, first = divmod(w["number"], w["blocks"])
    row0 = first * w["rows"]
    count = min(w["rows"], w["down"] - row0)
    v = address_of(w["scratch"])
    m = v + w["v_plane"] * w["points"]
    exact = not w["lanes"]  # else vectors are filled beyond the last tile
    tiles = (count * w["across"] if exact else w["tiles"], ITEM)
    v_tiles, m_tiles = (
        Elements.at(at, ITEM, (w["points"], w[plane]), (n, w["tiles"] * ITEM), tiles)
        for at, plane, n in ((v, "v_plane", w["ic"] or units), (m, "m_plane", w["oc"] or units))
    )
    own = slice(image, image + 1)
    if part == "transform":
        return Touched([_of_x({**w, "ic": units}, w["xs"][own], row0, count)], [v_tiles])
    if part == "multiply":
        return Touched([v_tiles, _of_u(w)], [m_tiles])
    return Touched([m_tiles, *_of_ending(w, args, ending)], [_of_y({**w, "oc": units}, w["ys"][own], row0, count)])


def _of_x(w: Words, images: Table, row0: int, count: int) -> Elements:
    """Lists the elements of x of some rows of tiles."""
    side = math.isqrt(w["points"])
    rows = met((row0, row0 + count), side - 2, side, w["top"], w["high"])
    columns = met((0, w["across"]), side - 2, side, w["left"], w["wide"])
    return Elements.at(w["x"], ITEM, images, (w["ic"], w["x_channel"]), rows * w["x_row"], columns * ITEM)


def _of_y(w: Words, images: Table, row0: int, count: int) -> Elements:
    """Lists the elements of y of some rows of tiles."""
    m = math.isqrt(w["points"]) - 2
    rows = np.arange(row0 * m, min(w["out_high"], (row0 + count) * m), dtype=np.int64) * w["y_row"]
    return Elements.at(w["y"], ITEM, images, (w["oc"], w["y_channel"]), rows, (min(w["out_wide"], w["across"] * m), ITEM))


def _of_u(w: Words) -> Elements:
    return Elements.at(w["u"], ITEM, (w["points"], w["u_plane"]), (w["oc"] * w["ic"], ITEM))


def _of_ending(w: Words, args: Arguments, ending: Ending | None) -> list[Elements]:
    return plane_reads(ending, args[len(WORDS) :], (w["out_high"], w["out_wide"]), w["oc"])
