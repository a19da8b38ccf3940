"""Builder of products of packed panels from `matmul` and `conv`."""

from __future__ import annotations

import math

import numpy as np

from populus.dialects.support.shapes import reach
from populus.runtime.codelets.task import Array, Task, seen_as
from populus.runtime.endings import TYPES
from populus.runtime.engine.native.codegen.jit import Library
from populus.runtime.engine.native.kernels import byte_products, half_products, positions
from populus.runtime.engine.native.kernels.blocks import SUMMED
from populus.runtime.engine.native.kernels.contraction import Product
from populus.runtime.engine.native.kernels.copies import SQUARE, bordered, copy, pad
from populus.runtime.engine.native.kernels.endings import Formula
from populus.runtime.engine.native.kernels.f16 import through_f32
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.panels import Slices, Table, offsets
from populus.runtime.engine.native.kernels.pool_kernels import depthwise

Launches = list[Launch]
MANY = 64  # output channels from which elements that are apart are copied together first
FAR, OFTEN = 3 << 16, 512  # bytes of a left side whose rows lie across its lines, and columns, from which it is copied first


def matmul(library: Library, task: Task, slices: Slices | None = None, formula: Formula | None = None) -> Launches | None:
    """Computes `c[g, m, n] = sum over k of a[g, m, k] b[g, k, n]` in floats and in integers of 8, 32 and 64 bits, or a formula of it."""
    made = half_products.matmul(library, task, formula) if slices is None else None
    return _matmul(library, task, slices, formula) if made is None else made


@through_f32
def _matmul(library: Library, task: Task, slices: Slices | None, formula: Formula | None) -> Launches | None:
    """Computes such a product in floats and integers of 32 and 64 bits."""
    if byte_products.is_product(task):
        return byte_products.matmul(library, task, formula)
    left, right, c = task.fields["a"], task.fields["b"], task.fields["c"].without_parts()
    a, b = left.array, right.array
    if formula is not None and formula.out.dtype != c.dtype:
        return None  # panels are as wide as the elements that are stored
    if "partials" in task.params or c.dtype.name not in SUMMED or not a.dtype == b.dtype == c.dtype or c.size == 0 or a.size == 0:
        return None
    constant_a, constant_b = left.constant, right.constant
    if (constant_a and not constant_b) or (constant_a == constant_b and c.shape[2] < c.shape[1] and c.shape[2] == 1):
        # The transposed product puts a constant on the right, where it is packed once, and vectors on the longer side.
        a, b, c = (x.transpose(0, 2, 1) for x in (b, a, c))
        formula = formula and formula.transposed(0, 2, 1)
        constant_a, constant_b = constant_b, constant_a
    shared = b.shape[0] == 1 or b.strides[0] == 0
    launches: Launches = []
    if shared and c.shape[0] > 1:
        rows = seen_as(c, (1, c.shape[0] * c.shape[1], c.shape[2]))
        flat = None if formula is None or rows is None else formula.seen(rows.shape)
        if rows is not None and (formula is None or flat is not None):
            places = offsets(a.shape[:2], a.strides[:2])
            return product(library, task, places, a, b[0], constant_b, rows[0], launches, slices, flat and flat.at(0))
    for g in range(c.shape[0]):
        left_g = a[min(g, a.shape[0] - 1)]
        used = task.used
        places, right_g = offsets(left_g.shape[:1], left_g.strides[:1]), b[min(g, b.shape[0] - 1)]
        if product(library, task, places, left_g, right_g, constant_b, c[g], launches, slices, formula and formula.at(g)) is None:
            return None
        task.used = used
    return launches


def product(
    library: Library,
    task: Task,
    rows: Table,
    a: Array,
    b: Array,
    constant: bool,
    c: Array,
    launches: Launches,
    slices: Slices | None,
    formula: Formula | None,
) -> Launches | None:
    """Adds the launches of c = a b, or of a formula of it. c: [m, n], b: [k, n]; row r of a begins at rows[r], with a's
    last stride between elements. Returns None if the formula has no code.
    """
    k, n = b.shape
    rows, a = _along(library, task, rows, a, n, launches)
    depth = offsets((k,), (a.strides[-1],))
    out, steps = _writable(task, c if formula is None else formula.out)
    if formula is not None and out is not formula.out:
        return None
    depth_b, columns = offsets((k,), (b.strides[0],)), offsets((n,), (b.strides[1],))
    if slices is not None:
        depth, depth_b = depth[slices.order], depth_b[slices.order]
    sums = Product(library, a, rows, depth, out, *steps, n, slices.ends if slices else None)
    if constant:
        panels = sums.packed(b, depth_b, columns, task.constants)
        task.packed.append(panels)
        packed = panels.room
    else:
        packed = task.scratch((k * sums.panels.columns,), c.dtype)
        launches.append(sums.pack(b, depth_b, columns, packed))
    made = sums.launch(packed, formula)
    if made is None:
        return None
    launches.append(made)
    if out is not c and formula is None:
        launches += _copied(library, out, c)
    return launches


def _along(library: Library, task: Task, rows: Table, a: Array, n: int, launches: Launches) -> tuple[Table, Array]:
    """Gives the rows and the left side of a product with n columns, or those of a copy whose rows are contiguous.

    Each panel of columns reads all of it. Where k lies across its lines, as in gradients of weights, a row of blocks needs a line,
    and often a page, for each element of k. The first cache and the table of pages hold too few of them.
    """
    item = a.itemsize
    across = a.ndim == 2 and a.strides[0] == item and a.strides[1] != item
    if not across or a.nbytes < FAR or n < OFTEN or a.shape[1] % SQUARE:
        return rows, a
    along = task.scratch(a.shape, a.dtype)
    launches += _copied(library, a, along)
    return offsets(a.shape[:1], along.strides[:1]), along


def _copied(library: Library, source: Array, target: Array) -> Launches:
    made = copy(library, source, target)
    assert made is not None, (source.strides, target.strides)
    return made


def _writable(task: Task, c: Array) -> tuple[Array, tuple[int, int]]:
    """Returns c: [m, n], or scratch memory for it, and its strides in bytes, one of which is an element."""
    (m, n), (row, column), item = c.shape, c.strides, c.itemsize
    if n == 1:
        return c, (row, item)
    if m == 1 and column != item:
        return c, (item, column)
    if item in (row, column):
        return c, (row, column)
    return task.scratch(c.shape, c.dtype), (n * item, item)


def conv(library: Library, task: Task, slices: Slices | None = None, formula: Formula | None = None) -> Launches | None:
    """Computes a convolution of up to three spatial dimensions, or a formula of it."""
    made = half_products.conv(library, task, formula) if slices is None else None
    return _conv(library, task, slices, formula) if made is None else made


@through_f32
def _conv(library: Library, task: Task, slices: Slices | None, formula: Formula | None) -> Launches | None:
    """Computes such a convolution in floats and integers of 32 and 64 bits.

    y[b, g, oc, o..] = sum over ic, k.. of x[b, g, ic, o stride + k dilation - pad ..] w[g, oc, ic, k..]
    """
    if byte_products.is_product(task):
        return byte_products.conv(library, task, formula)
    field_x, field_w, y = task.fields["x"], task.fields["w"], task.fields["y"].without_parts()
    x, w = field_x.array, field_w.array
    if formula is not None and formula.out.dtype != y.dtype:
        return None
    if "partials" in task.params or y.dtype.name not in SUMMED or not x.dtype == w.dtype == y.dtype or 0 in (x.size, w.size, y.size):
        return None
    if "g" not in task.box:
        x, w, y = x[:, None], w[None], y[:, None]
        formula = formula and formula.at(slice(None), None)
    spatial = x.ndim - 3
    if spatial not in (1, 2, 3):
        return None
    windows = field_x.windows("o", "k")
    strides, dilations = tuple(w.stride for w in windows), tuple(w.dilation for w in windows)
    pads = field_x.pads[len(field_x.pads) - spatial :]
    if spatial == 1:
        x, w, y = x[..., None, :], w[..., None, :], y[..., None, :]
        formula = formula and formula.at(..., None, slice(None))
        strides, dilations, pads = (1, *strides), (1, *dilations), ((0, 0), *pads)
    if formula is not None:
        y = formula.out
    extents = tuple(map(reach, y.shape[3:], strides, w.shape[3:], dilations))
    launches: Launches = []
    # The extent of the windows may end inside x: then there is no padding after x, and part of x is not read.
    after = tuple(max(0, r - before - n) for (before, _), n, r in zip(pads, x.shape[3:], extents))
    before = tuple(p for p, _ in pads)
    single = x.ndim == 5 and x.shape[2] == 1 == y.shape[2] and x.shape[1] > 1
    is_depthwise = single and slices is None and y.dtype.name in TYPES
    if is_depthwise and field_w.constant:
        w = np.ascontiguousarray(w)  # a constant of equal elements is one element of memory
    around = tuple(zip(before, after))
    steps = (strides[0], strides[1]), (dilations[0], dilations[1])
    if is_depthwise and (made := depthwise(library, x, w, y, *steps, around, formula)) is not None:
        return made
    if is_depthwise and formula is not None:
        return None
    if any(before) or any(after):
        padded = task.scratch((*x.shape[:3], *(b + n + e for b, n, e in zip(before, x.shape[3:], after))), x.dtype)
        made = pad(library, x, padded, (before[0], before[1]), (after[0], after[1])) if len(before) == 2 else None
        if made is None:
            made = bordered(library, x, padded, before)
        if made is None:
            return None
        launches += made
        x = padded
        if is_depthwise:
            made = depthwise(library, x, w, y, *steps, ((0, 0), (0, 0)))
            return None if made is None else launches + made
    if y.shape[2] >= MANY and w[0, 0, 0].size == 1 and x.shape[-1] > 1 and x.strides[-1] != x.itemsize and 1 == max(strides):
        # Every other element of a plane: many channels read them, each from lines of its own.
        dense = task.scratch(x.shape, x.dtype)
        if (made := copy(library, x, dense)) is not None:
            launches, x = launches + made, dense
    if positions.suits(library, x, w, y, strides):
        swapped = positions.convolution(library, task, x, w, y, field_w.constant, slices, formula)
        return None if swapped is None else launches + swapped
    return _windows(library, task, x, w, y, field_w.constant, strides, dilations, launches, slices, formula)


def _windows(
    library: Library,
    task: Task,
    x: Array,
    w: Array,
    y: Array,
    constant: bool,
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    launches: Launches,
    slices: Slices | None,
    formula: Formula | None,
) -> Launches | None:
    """Adds the launches of a product whose rows are windows of x: [b, g, ic, sides..] and whose columns are output
    channels. Returns None if the formula has no code.
    """
    item = y.itemsize
    oc, sides = y.shape[2], y.shape[3:]
    kernel = w.shape[2:]
    rows = offsets(sides, tuple(s * n for s, n in zip(x.strides[3:], strides)))
    depth = offsets(kernel, (x.strides[2], *(s * n for s, n in zip(x.strides[3:], dilations))))
    order = slice(None) if slices is None else slices.order
    ends = None if slices is None else slices.ends
    area = math.prod(sides)
    used = task.used
    for g in range(y.shape[1]):
        packed: Array | None = None
        for b in range(y.shape[0]):
            task.used = used
            sums, ending = seen_as(y[b, g], (oc, area)), None if formula is None else formula.at(b, g).seen((oc, area))
            if formula is not None and (sums is None or ending is None):
                return None
            pixels = (task.scratch((oc, area), y.dtype) if sums is None else sums).T
            out, steps = _writable(task, pixels)
            if formula is not None and out is not pixels:
                return None
            if oc == 1 and pixels.strides[0] == item:
                steps = item, area * item  # one channel, in vectors of pixels
            product = Product(library, x[b, g], rows, depth[order], out, *steps, oc, ends)
            if packed is None:
                depth_w, columns = offsets(kernel, w.strides[2:])[order], offsets((oc,), w.strides[1:2])
                if constant:
                    made = product.packed(w[g], depth_w, columns, task.constants)
                    task.packed.append(made)
                    packed = made.room
                else:
                    packed = task.scratch((len(depth) * product.panels.columns,), y.dtype)
                    used = task.used
                    launches.append(product.pack(w[g], depth_w, columns, packed))
            multiplied = product.launch(packed, ending and ending.transposed(1, 0))
            if multiplied is None:
                return None
            launches.append(multiplied)
            if sums is None or out is not pixels:
                launches += _copied(library, out.T.reshape(oc, *sides), y[b, g])
    return launches
