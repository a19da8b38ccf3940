"""Kernels of `winograd_input` and `winograd_output`: the transforms of tiles, where a program states them beside the products.

They are those of `winograd.py`, on variables of the program instead of a block's scratch memory: v and m end with their last tile.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from populus.runtime.codelets.task import Array, Task
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.kernels.endings import ending_of
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.operands import Formula, ending_words, on_matrix, walk_over, walks_of
from populus.runtime.engine.native.kernels.panels import Slices
from populus.runtime.engine.native.kernels.winograd import back_kernel, one_kernel, transform_kernel
from populus.runtime.engine.native.kernels.winograd_words import ITEM, WORDS

SIDE = 2  # outputs of a tile's side
RATE = 4  # floats of tiles that are read or written in a nanosecond


def winograd_input(library: Library, task: Task) -> list[Launch] | None:
    """Computes `v = B' x B` of f32. Returns None for other types, and for columns or tiles that are not adjacent."""
    field_x, v = task.fields["x"], task["v"]
    x = field_x.array
    if not _is_dense(v) or x.dtype != np.float32 or (x.shape[-1] > 1 and x.strides[-1] != ITEM) or 0 in (x.size, v.size):
        return None
    (top, _), (left, _) = field_x.pads[2:]
    ic, batch, down, across = v.shape[2:]
    along_x, along_v = walk_over(task, field_x), walk_over(task, task.fields["v"])
    words = {
        "x": x, "xs": along_x.table("b"), "x_channel": along_x.bytes["ic"], "x_row": along_x.bytes["k0"],
        "high": x.shape[2], "wide": x.shape[3], "top": top, "left": left, "transform": transform_kernel(SIDE, exact=True),
        "v_plane": along_v.bytes["k1"], "tiles": along_v.bytes["ic"] // ITEM,
    }  # fmt: skip
    return _launches(library, one_kernel("transform", None), words, [v[0, 0, 0, b] for b in range(batch)], (ic, down, across), [])


def winograd_output(library: Library, task: Task, slices: Slices | None = None, formula: Formula | None = None) -> list[Launch] | None:
    """Computes `y = A' m A` of f32, or a formula of it.

    Returns None for other types, for columns or tiles that are not adjacent, and for a formula without code.
    """
    products, y = task["m"], task["y"] if formula is None else formula.out
    along, along_m = walks_of(task, "y"), walk_over(task, task.fields["m"])
    on_plane = formula and on_matrix(formula, along, ("r0",), ("r1",))
    ending = on_plane and ending_of(on_plane.at(0, 0), 1)
    if slices is not None or (formula is not None and ending is None):
        return None
    if not _is_dense(products) or y.dtype != np.float32 or (y.shape[-1] > 1 and y.strides[-1] != ITEM) or y.size == 0:
        return None
    oc, batch, down, across = products.shape[2:]
    along_y = along(y)
    words = {
        "y": y, "ys": along_y.table("b"), "y_channel": along_y.bytes["oc"], "y_row": along_y.bytes["r0"],
        "out_high": y.shape[2], "out_wide": y.shape[3], "m_plane": along_m.bytes["k1"], "tiles": along_m.bytes["oc"] // ITEM,
        "back": back_kernel(SIDE, ending, exact=True),
    }  # fmt: skip
    images = [products[0, 0, 0, b] for b in range(batch)]
    return _launches(
        library, one_kernel("back", ending), words, images, (oc, down, across), ending_words(formula, along, ("b",), ("oc",), ("r0",))
    )


def _is_dense(tiles: Array) -> bool:
    """Tells whether tiles [4, 4, channels, b, down, across] of f32 are one block of memory, in that order."""
    return tiles.dtype == np.float32 and tiles.flags.c_contiguous and tiles.size > 0


def _launches(
    library: Library,
    kernel: Kernel,
    words: Mapping[str, int | Array | Kernel],
    images: list[Array],
    sizes: tuple[int, int, int],
    others: list[int | Array | Kernel],
) -> list[Launch]:
    """Builds a launch for each image, whose units are channels. `images`: the first tile of each in v or in m."""
    channels, down, across = sizes
    shared = {"across": across, "down": down, "rows": down, "blocks": 1, "points": (SIDE + 2) ** 2}
    launches: list[Launch] = []
    for number, first in enumerate(images):
        here: dict[str, int | Array | Kernel] = {**shared, **words, "scratch": first, "number": number}
        args: list[int | Array | Kernel] = [here.get(word, 0) for word in WORDS]
        work = channels * down * across * (SIDE + 2) ** 2 // RATE
        launches.append(Launch(library, kernel, [*args, *others], channels, work))
    return launches
