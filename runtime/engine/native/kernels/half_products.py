"""Builder of products of f16 in tile registers from `matmul` and `conv`, with the formula that rounds or reads their sums.

The left-hand side is cut into two bf16 first, with padding around it and its channels last; the right-hand side is a constant, and
stays f16 in its panels (`half_tiles.py`). All other products of f16 widen their operands (`f16.py`).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from xdsl.dialects.builtin import bf16, f16, f32

from populus.dialects.expr import Arg, cast
from populus.dialects.expr.analysis import substitute
from populus.dialects.support.element_types import dtype_of
from populus.runtime.codelets.task import Array, Task, seen_as
from populus.runtime.engine.native.codegen.byte_tiles import ROWS
from populus.runtime.engine.native.codegen.jit import Library
from populus.runtime.engine.native.kernels import half_tiles
from populus.runtime.engine.native.kernels.byte_products import Launches, epilogue
from populus.runtime.engine.native.kernels.byte_tile_blocks import Steps, steps_of
from populus.runtime.engine.native.kernels.copies import copy
from populus.runtime.engine.native.kernels.elementwise import formula as mapped
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.operands import Convolution, Formula, Matrix, OnMatrix, stored, walk_over, walks_of
from populus.runtime.engine.native.kernels.panels import Table, offsets

FEWEST_GROUPS = 6  # pairs of k in a step, from which the registers are faster than vectors
F16, F32 = np.dtype(np.float16), np.dtype(np.float32)
_WIDE, _HIGH = cast(Arg(1), f32), cast(Arg(1), bf16)
PARTS = _HIGH, cast(_WIDE - cast(_HIGH, f32), bf16)  # formulas of the two parts of an f16


def is_product(library: Library, task: Task) -> bool:
    """Tells whether a `matmul` or `conv` is one of f16 by a constant that these kernels may compute."""
    left, right = (task.fields["a"], task.fields["b"]) if "a" in task.fields else (task.fields["x"], task.fields["w"])
    out = task.fields["c" if "a" in task.fields else "y"].array
    typed = left.array.dtype == right.array.dtype == F16 and out.dtype in (F16, F32)
    return library.host.half_tiles and typed and right.constant and "partials" not in task.params and 0 not in (left.array.size, out.size)


def _cut(
    library: Library, task: Task, x: Array, shape: tuple[int, ...], inner: tuple[slice, ...]
) -> tuple[tuple[Array, Array], Launches] | None:
    """Cuts x into two arrays of a shape, of which it fills `inner`; the rest is 0. None without a kernel."""
    launches: Launches = []
    parts: list[Array] = []
    for _ in PARTS:
        room = task.scratch((-(-math.prod(shape) // 4) * 4,), np.int16)
        parts.append(room[: math.prod(shape)].view(dtype_of(bf16)).reshape(shape))
        if parts[0][inner].size != parts[0].size:
            launches += copy(library, np.zeros((), np.int64), room.view(np.int64)) or []
    made = _parts(library, x, parts[0][inner], parts[1][inner])
    return None if made is None else ((parts[0], parts[1]), launches + made)


def _parts(library: Library, x: Array, high: Array, low: Array) -> Launches | None:
    """Cuts x into two arrays of its shape, in one pass if elements are adjacent. None without a kernel."""
    made = half_tiles.cut(library, x, high, low)
    if made is not None:
        return made
    each = [mapped(library, expr, [x], into) for expr, into in zip(PARTS, (high, low))]
    return None if each[0] is None or each[1] is None else each[0] + each[1]


def _in_blocks(library: Library, task: Task, x: Array) -> tuple[tuple[Array, Array], Launches, Table, Steps] | None:
    """Cuts x [m, k] into two arrays as registers load them: [m / ROWS, step, ROWS, elements of the step]. None without a kernel."""
    m, k = x.shape
    if (steps := steps_of(library.host, offsets((m,), (2 * k,)), offsets((k // 2,), (4,)))) is None:
        return None
    width, number = 2 * steps.groups, len(steps.offsets)
    whole, line = m // ROWS * ROWS, 2 * width
    launches: Launches = []
    parts = [task.scratch((-(-m // ROWS), number, ROWS, width), np.int16).view(dtype_of(bf16)) for _ in PARTS]
    for rows, blocks, used in ((slice(whole), slice(m // ROWS), ROWS), (slice(whole, m), slice(m // ROWS, None), m % ROWS)):
        high, low = (part[blocks, :, :used].transpose(0, 2, 1, 3) for part in parts)
        if high.size:
            made = _parts(library, x[rows].reshape(*high.shape[:2], number, width), high, low)
            if made is None:
                return None
            launches += made
    rows = offsets((-(-m // ROWS), ROWS), (number * ROWS * line, line))[:m]
    return (parts[0], parts[1]), launches, rows, Steps(steps.groups, offsets((number,), (ROWS * line,)), line)


def _multiply(
    library: Library,
    task: Task,
    parts: tuple[Array, Array],
    rows: Table,
    steps: Steps,
    w: Array,
    b: Array,
    c: Matrix | OnMatrix,
) -> Launch | None:
    """Builds the launch of c = parts b, rounded to its type, or what a formula makes. b: [k, n], from the constant w."""
    n, key = b.shape[1], ("half tiles", w.shape, w.strides)
    panels = half_tiles.packed(b) if task.constants is None else task.constants.form(w.ctypes.data, key, lambda: half_tiles.packed(b))
    out = c.out
    if isinstance(c, OnMatrix):
        rounded = {i + 1: cast(Arg(i + 1), f16) for i, x in enumerate(c.inputs) if x is None}
        c = replace(c, expr=substitute(c.expr, rounded))
    elif out.array.dtype == F16:
        c = OnMatrix(cast(Arg(1), f16), [None], out)
    elif n > 1 and out.steps[1] != 4:
        return None
    last = epilogue(c, library.host, F32) if isinstance(c, OnMatrix) else None
    if isinstance(c, OnMatrix) and last is None:
        return None
    args, units = half_tiles.arguments(steps, parts, rows, panels, out.array, n, out.steps[0])
    work = len(rows) * n * len(steps.offsets) * steps.groups // 150
    return Launch(library, half_tiles.kernel(last is not None), [*args, *(last.arguments() if last else ())], units, work)


def matmul(library: Library, task: Task, formula: Formula | None = None) -> Launches | None:
    """Computes `c[g, m, n] = sum over k of a[g, m, k] b[g, k, n]` of f16 by a constant, rounded once, or a formula of it."""
    if not is_product(library, task):
        return None
    a, b, c = task.fields["a"].array, task.fields["b"].array, task.fields["c"].without_parts()
    groups, m, k = a.shape
    shared = groups == 1 or not walk_over(task, task.fields["b"]).bytes.get("g")
    whole = stored(c, formula, walks_of(task, "c"), ("g", "m"), ("n",)) if shared else None
    left = seen_as(a, (groups * m, k))
    if k % 2 or k // 2 > half_tiles.MOST_PAIRS or whole is None or left is None:
        return None
    if (cut := _in_blocks(library, task, left)) is None:
        return None
    parts, launches, rows, steps = cut
    made = _multiply(library, task, parts, rows, steps, b, b[0], whole)
    return None if made is None else [*launches, made]


def conv(library: Library, task: Task, formula: Formula | None = None) -> Launches | None:
    """Computes a convolution of f16 by a constant, rounded once, or a formula of it."""
    c = Convolution.of(task, formula) if is_product(library, task) and "g" not in task.box else None
    if c is None:
        return None
    x, w, area, oc, ic, into = c.x[:, 0], c.w[0], c.area, c.y.shape[2], c.x.shape[2], c.stored("b")
    if into is None:
        return None
    plain = seen_as(np.moveaxis(x, 1, -1), (area, ic)) if math.prod(c.kernel) == 1 and c.y.shape[3:] == x.shape[2:] else None
    if plain is not None and ic % 2 == 0 and not c.is_padded and ic // 2 <= half_tiles.MOST_PAIRS:
        if (made := _in_blocks(library, task, plain)) is None:
            return None
        launch = _multiply(library, task, made[0], *made[2:], w, w.reshape(oc, ic).T, into)
        return None if launch is None else [*made[1], launch]
    channels = ic + ic % 2
    shape = (len(x), *c.padded, channels)
    apart = [2 * math.prod(shape[d + 1 :]) for d in range(len(shape))]  # of memory with channels last
    along = c.along_x((apart[0], 0, 2, *apart[1:-1]))
    rows, depth = along.table("b", *c.outs), along.by("ic", 2, channels).table(*c.taps, "ic")
    steps = steps_of(library.host, rows, depth, FEWEST_GROUPS)
    if steps is None or len(depth) > half_tiles.MOST_PAIRS:
        return None
    weights = w.transpose(*range(2, w.ndim), 1, 0)
    if channels != ic:
        weights = np.concatenate([weights, np.zeros((*c.kernel, 1, oc), w.dtype)], axis=-2)
    cut = _cut(library, task, np.moveaxis(x, 1, -1), shape, (slice(None), *c.inner, slice(ic)))
    made = cut and _multiply(library, task, cut[0], rows, steps, w, weights.reshape(-1, oc), into)
    return [*cut[1], made] if cut and made else None
