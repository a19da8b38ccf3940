"""Builder of products of packed panels from `matmul` and `conv`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from populus.runtime.codelets.task import Array, Task
from populus.runtime.endings import TYPES
from populus.runtime.engine.native.codegen.jit import Library
from populus.runtime.engine.native.kernels import byte_products, half_products, positions
from populus.runtime.engine.native.kernels.blocks import SUMMED
from populus.runtime.engine.native.kernels.contraction import Product
from populus.runtime.engine.native.kernels.copies import SQUARE, bordered, copy, pad
from populus.runtime.engine.native.kernels.f16 import through_f32
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.operands import Convolution, Formula, Matrix, OnMatrix, Walk, stored, walk_over, walks_of
from populus.runtime.engine.native.kernels.panels import Slices, Table
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
    left, right, c, (row, column) = task.fields["a"], task.fields["b"], task.fields["c"].without_parts(), "mn"
    if formula is not None and formula.out.dtype != c.dtype:
        return None  # panels are as wide as the elements that are stored
    dtypes, sizes = {left.array.dtype, right.array.dtype, c.dtype}, (left.array.size, c.size)
    if "partials" in task.params or c.dtype.name not in SUMMED or len(dtypes) > 1 or 0 in sizes:
        return None
    if (left.constant and not right.constant) or (left.constant == right.constant and c.shape[2] < c.shape[1] and c.shape[2] == 1):
        # The transposed product puts a constant on the right, where it is packed once, and vectors on the longer side.
        left, right, row, column = right, left, "n", "m"
    a, b = left.array, right.array if column == "n" else right.array.transpose(0, 2, 1)
    along_a, along_b, along_c = walk_over(task, left), walk_over(task, right), walks_of(task, "c")
    depth, depth_b, columns = along_a.table("k"), along_b.table("k"), along_b.table(column)
    launches: Launches = []
    whole = None if along_b.bytes.get("g") or len(c) == 1 else stored(c, formula, along_c, ("g", row), (column,))
    if whole is not None:
        shared = Right(b[0], depth_b, columns, right.constant)
        return launches if product(library, task, a, along_a.table("g", row), depth, shared, whole, launches, slices) else None
    each = stored(c, formula, along_c, (row,), (column,))
    if each is None:
        return None
    for g in range(len(c)):
        own, used = Right(b[min(g, len(b) - 1)], depth_b, columns, right.constant), task.used
        rows, depth_a, left_g = rows_along(library, task, along_a, row, a[min(g, len(a) - 1)], len(columns), launches)
        if not product(library, task, left_g, rows, depth_a, own, each.at(g), launches, slices):
            return None
        task.used = used
    return launches


@dataclass
class Right:
    """The right-hand side of products: element (k, n) is at depth[k] + columns[n]. `packed`: its panels, once they are made."""

    array: Array
    depth: Table
    columns: Table
    constant: bool
    packed: Array | None = None


def product(
    library: Library,
    task: Task,
    a: Array,
    rows: Table,
    depth: Table,
    b: Right,
    c: Matrix | OnMatrix,
    launches: Launches,
    slices: Slices | None,
) -> bool:
    """Adds the launches of c = a b, or of a formula of it. Element (m, k) of a is at rows[m] + depth[k].

    Returns False if the formula has no code.
    """
    out = _writable(task, c.out)
    if out.array is not c.out.array and isinstance(c, OnMatrix):
        return False
    order, ends = (slice(None), None) if slices is None else (slices.order, slices.ends)
    sums = Product(library, a, rows, depth[order], out.array, *out.steps, len(b.columns), ends)
    if b.packed is None and b.constant:
        panels = sums.packed(b.array, b.depth[order], b.columns, task.constants)
        task.packed.append(panels)
        b.packed = panels.room
    elif b.packed is None:
        b.packed = task.scratch((len(depth) * sums.panels.columns,), out.array.dtype)
        launches.append(sums.pack(b.array, b.depth[order], b.columns, b.packed))
    made = sums.launch(b.packed, c if isinstance(c, OnMatrix) else None)
    if made is None:
        return False
    launches.append(made)
    if out.array is not c.out.array:
        launches += _copied(library, out.array, c.out.seen)
    return True


def rows_along(library: Library, task: Task, along: Walk, row: str, a: Array, n: int, launches: Launches) -> tuple[Table, Table, Array]:
    """Gives the tables and the left side of a product with n columns, or those of a copy whose rows are contiguous.

    Each panel of columns reads all of it. Where k lies across its lines, as in gradients of weights, a row of blocks needs a line,
    and often a page, for each element of k. The first cache and the table of pages hold too few of them.
    """
    m, k, item = along.points[row], along.points["k"], a.itemsize
    if along.bytes[row] == item != along.bytes["k"] and m * k * item >= FAR and n >= OFTEN and k % SQUARE == 0:
        near = task.scratch((m, k), a.dtype)
        launches += _copied(library, a if row == "m" else a.T, near)
        a, along = near, Walk({row: m, "k": k}, {row: k * item, "k": item})
    return along.table(row), along.table("k"), a


def _copied(library: Library, source: Array, target: Array) -> Launches:
    made = copy(library, source, target)
    assert made is not None, (source.strides, target.strides)
    return made


def _writable(task: Task, c: Matrix) -> Matrix:
    """Gives c, or scratch memory for it, one of whose steps is an element."""
    (m, n), (row, column), item = c.shape, c.steps, c.array.itemsize
    if n == 1:  # of one channel, in vectors of rows
        return replace(c, steps=(row, column if row == item and column else item))
    if m == 1 and column != item:
        return replace(c, steps=(item, column))
    return c if item in (row, column) else Matrix.plain(task.scratch(c.shape, c.array.dtype))


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
    y, dtypes = task.fields["y"].array, {task[name].dtype for name in ("x", "w", "y")}
    if formula is not None and formula.out.dtype != y.dtype:
        return None
    sizes = (task["x"].size, task["w"].size, y.size)
    if "partials" in task.params or y.dtype.name not in SUMMED or len(dtypes) > 1 or 0 in sizes:
        return None
    c = Convolution.of(task, formula, sides=2)
    if c is None or len(c.windows) > 3:
        return None
    launches: Launches = []
    single = len(c.windows) == 2 and c.x.shape[2] == 1 == c.y.shape[2] and c.x.shape[1] > 1
    is_depthwise = single and slices is None and y.dtype.name in TYPES
    if is_depthwise and c.constant:
        c = replace(c, w=np.ascontiguousarray(c.w))  # a constant of equal elements is one element of memory
    if is_depthwise and (made := depthwise(library, c)) is not None:
        return made
    if is_depthwise and formula is not None:
        return None
    if c.is_padded:
        padded = task.scratch((*c.x.shape[:3], *c.padded), y.dtype)
        made = pad(library, c, padded)
        if made is None:
            made = bordered(library, c.x, padded, tuple(before for before, _ in c.pads))
        if made is None:
            return None
        launches += made
        c = c.reading(padded)
        if is_depthwise:
            made = depthwise(library, c)
            return None if made is None else launches + made
    x = c.x
    if c.y.shape[2] >= MANY and math.prod(c.kernel) == max(c.strides) == 1 and x.shape[-1] > 1 and x.strides[-1] != x.itemsize:
        # Every other element of a plane: many channels read them, each from lines of its own.
        dense = task.scratch(x.shape, x.dtype)
        if (made := copy(library, x, dense)) is not None:
            launches, c = launches + made, c.reading(dense)
    if positions.suits(library, c):
        swapped = positions.convolution(library, task, c, slices)
        return None if swapped is None else launches + swapped
    return _windows(library, task, c, launches, slices)


def _windows(library: Library, task: Task, c: Convolution, launches: Launches, slices: Slices | None) -> Launches | None:
    """Adds the launches of a product whose rows are windows of x and whose columns are output channels. None if its formula has no code."""
    (images, groups, oc), sides = c.target.shape[:3], c.target.shape[3:]
    rows, depth, stored = c.along_x().table(*c.outs), c.along_x().table("ic", *c.taps), c.stored()
    depth_w, columns = c.along_w.table("ic", *c.taps), c.along_w.table("oc")
    if stored is None and c.formula is not None:
        return None
    start = task.used
    for g in range(groups):
        right, used = Right(c.w[g], depth_w, columns, c.constant), start
        for b in range(images):
            task.used = used
            into = stored.at(b, g) if stored is not None else Matrix.plain(task.scratch((oc, math.prod(sides)), c.y.dtype).T)
            if not product(library, task, c.x[b, g], rows, depth, right, into, launches, slices):
                return None
            if not c.constant and used == start:
                used = task.used  # the panels stay
            if stored is None:
                launches += _copied(library, into.out.array.T.reshape(oc, *sides), c.y[b, g])
    return launches
