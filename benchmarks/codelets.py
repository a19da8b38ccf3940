"""Codelets in Python beside C loops of the same algorithms: the table of docs/performance-native.md.

    python -m benchmarks.codelets

C is compiled with `cc -O2`, and both run in one thread on the same arrays. A time is that of the kernel, the best of many.
*unchecked*: the ratio on one tile if no index is checked, which shows the cost of checks.
"""

# pyright: basic
from __future__ import annotations

import ctypes
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from math import erf, floor, sqrt
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from xdsl.builder import Builder
from xdsl.rewriter import InsertPoint

import populus
from benchmarks.launches import launches
from populus.dialects.popart import calls
from populus.dialects.poplar.tile_code import IntVector, Vector, codelet, ints
from populus.dialects.poplar.tile_mlir_ops import OpWriter
from populus.dialects.support.element_types import element_of

TILES = (1, 16, 1472)


@codelet(axes={"x": "n", "y": "n"})
def prefix_sum(x: Vector, y: Vector) -> None:
    total = 0.0
    for i in range(len(x)):
        total += x[i]
        y[i] = total


@codelet(axes={"x": "n", "count": "bins"})
def histogram(x: IntVector, count: IntVector) -> None:
    for i in range(len(count)):
        count[i] = 0
    for i in range(len(x)):
        count[x[i]] += 1


@codelet(axes={"x": "n", "at": "n"})
def argsort(x: Vector, at: IntVector) -> None:
    other = ints(len(x))
    for i in range(len(x)):
        at[i] = i
    width = 1
    while width < len(x):
        low = 0
        while low < len(x):
            middle = min(low + width, len(x))
            high = min(low + 2 * width, len(x))
            i = low
            j = middle
            for k in range(low, high):
                if i < middle and (j >= high or x[at[i]] <= x[at[j]]):
                    other[k] = at[i]
                    i += 1
                else:
                    other[k] = at[j]
                    j += 1
            low = high
        for k in range(len(x)):
            at[k] = other[k]
        width *= 2


@codelet(axes={"a": "n", "b": "m", "y": "one"})
def levenshtein(a: IntVector, b: IntVector, y: IntVector) -> None:
    table = ints(2, len(b) + 1)
    for j in range(len(b) + 1):
        table[0, j] = j
    for i in range(len(a)):
        old, new = i % 2, (i + 1) % 2
        table[new, 0] = i + 1
        for j in range(len(b)):
            differs = 0 if a[i] == b[j] else 1
            table[new, j + 1] = min(table[old, j] + differs, table[old, j + 1] + 1, table[new, j] + 1)
    y[0] = table[len(a) % 2, len(b)]


@codelet(axes={"x": "n", "value": "n", "count": "n", "runs": "one"})
def run_lengths(x: IntVector, value: IntVector, count: IntVector, runs: IntVector) -> None:
    for i in range(len(x)):
        value[i] = 0
        count[i] = 0
    last = -1
    for i in range(len(x)):
        if last >= 0 and value[last] == x[i]:
            count[last] += 1
        else:
            last += 1
            value[last] = x[i]
            count[last] = 1
    for i in range(len(runs)):
        runs[i] = last + 1


@codelet(axes={"x": "row n", "value": "row two", "at": "row two"})
def top_two(x: Vector, value: Vector, at: IntVector) -> None:
    for r in range(x.shape[0]):
        a, b = -1e30, -1e30
        i, j = 0, 0
        for k in range(x.shape[1]):
            v = x[r, k]
            if v > a:
                b, j = a, i
                a, i = v, k
            elif v > b:
                b, j = v, k
        value[r, 0], value[r, 1] = a, b
        at[r, 0], at[r, 1] = i, j


@codelet(axes={"box": "n four", "keep": "n"})
def nms(box: Vector, keep: IntVector, limit: float) -> None:
    for i in range(len(keep)):
        keep[i] = 1
    for i in range(len(keep)):
        if keep[i] == 0:
            continue
        area = (box[i, 2] - box[i, 0]) * (box[i, 3] - box[i, 1])
        for j in range(i + 1, len(keep)):
            if keep[j] == 0:
                continue
            w = min(box[i, 2], box[j, 2]) - max(box[i, 0], box[j, 0])
            h = min(box[i, 3], box[j, 3]) - max(box[i, 1], box[j, 1])
            if w > 0 and h > 0:
                other = (box[j, 2] - box[j, 0]) * (box[j, 3] - box[j, 1])
                if w * h > limit * (area + other - w * h):
                    keep[j] = 0


@codelet(axes={"values": "nz", "column": "nz", "start": "ends", "x": "n", "y": "row"})
def csr_product(values: Vector, column: IntVector, start: IntVector, x: Vector, y: Vector) -> None:
    for r in range(len(y)):
        total = 0.0
        for k in range(start[r], start[r + 1]):
            total += values[k] * x[column[k]]
        y[r] = total


@codelet(axes={"image": "h w", "at": "n two", "y": "n"})
def bilinear(image: Vector, at: Vector, y: Vector) -> None:
    for i in range(len(y)):
        v = min(max(at[i, 0], 0.0), float(image.shape[0] - 1))
        u = min(max(at[i, 1], 0.0), float(image.shape[1] - 1))
        r, c = floor(v), floor(u)
        s, t = min(r + 1, image.shape[0] - 1), min(c + 1, image.shape[1] - 1)
        f, g = v - r, u - c
        top = image[r, c] * (1.0 - g) + image[r, t] * g
        low = image[s, c] * (1.0 - g) + image[s, t] * g
        y[i] = top * (1.0 - f) + low * f


@codelet(axes={"x": "row n", "y": "row"})
def row_norm(x: Vector, y: Vector) -> None:
    for r in range(len(y)):
        total = 0.0
        for k in range(x.shape[1]):
            total += x[r, k] * x[r, k]
        y[r] = sqrt(total)


@codelet
def gelu(x: Vector, y: Vector) -> None:
    for i in range(len(y)):
        y[i] = 0.5 * x[i] * (1.0 + erf(x[i] * 0.70710678))


C = r"""
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
typedef int32_t I; typedef int64_t N; typedef float F;
#define R restrict
void prefix_sum(F *R x, F *R y, N n) { F t = 0; for (N i = 0; i < n; i++) { t += x[i]; y[i] = t; } }
void histogram(I *R x, I *R count, N n, N bins) {
  for (N i = 0; i < bins; i++) count[i] = 0;
  for (N i = 0; i < n; i++) count[x[i]]++;
}
void argsort(F *R x, I *R at, N n) {
  N *other = malloc(8 * n);
  for (N i = 0; i < n; i++) at[i] = i;
  for (N width = 1; width < n; width *= 2) {
    for (N low = 0; low < n; low += 2 * width) {
      N middle = low + width < n ? low + width : n, high = low + 2 * width < n ? low + 2 * width : n, i = low, j = middle;
      for (N k = low; k < high; k++)
        if (i < middle && (j >= high || x[at[i]] <= x[at[j]])) other[k] = at[i++]; else other[k] = at[j++];
    }
    for (N k = 0; k < n; k++) at[k] = other[k];
  }
  free(other);
}
void levenshtein(I *R a, I *R b, I *R y, N n, N m) {
  N *table = calloc(2 * (m + 1), 8);
  for (N j = 0; j <= m; j++) table[j] = j;
  for (N i = 0; i < n; i++) {
    N *old = table + i % 2 * (m + 1), *new = table + (i + 1) % 2 * (m + 1);
    new[0] = i + 1;
    for (N j = 0; j < m; j++) {
      N best = old[j] + (a[i] != b[j]);
      if (old[j + 1] + 1 < best) best = old[j + 1] + 1;
      if (new[j] + 1 < best) best = new[j] + 1;
      new[j + 1] = best;
    }
  }
  y[0] = table[n % 2 * (m + 1) + m];
  free(table);
}
void run_lengths(I *R x, I *R value, I *R count, I *R runs, N n) {
  for (N i = 0; i < n; i++) { value[i] = 0; count[i] = 0; }
  N last = -1;
  for (N i = 0; i < n; i++)
    if (last >= 0 && value[last] == x[i]) count[last]++;
    else { last++; value[last] = x[i]; count[last] = 1; }
  runs[0] = last + 1;
}
void top_two(F *R x, F *R value, I *R at, N rows, N n) {
  for (N r = 0; r < rows; r++) {
    F a = -1e30f, b = -1e30f; N i = 0, j = 0;
    for (N k = 0; k < n; k++) {
      F v = x[r * n + k];
      if (v > a) { b = a; j = i; a = v; i = k; } else if (v > b) { b = v; j = k; }
    }
    value[2 * r] = a; value[2 * r + 1] = b; at[2 * r] = i; at[2 * r + 1] = j;
  }
}
static F least(F a, F b) { return b < a ? b : a; }
static F most(F a, F b) { return b > a ? b : a; }
void nms(F *R box, I *R keep, N n) {
  for (N i = 0; i < n; i++) keep[i] = 1;
  for (N i = 0; i < n; i++) {
    if (!keep[i]) continue;
    F *a = box + 4 * i, area = (a[2] - a[0]) * (a[3] - a[1]);
    for (N j = i + 1; j < n; j++) {
      if (!keep[j]) continue;
      F *b = box + 4 * j, w = least(a[2], b[2]) - most(a[0], b[0]), h = least(a[3], b[3]) - most(a[1], b[1]);
      if (w > 0 && h > 0) {
        F other = (b[2] - b[0]) * (b[3] - b[1]);
        if (w * h > 0.5f * (area + other - w * h)) keep[j] = 0;
      }
    }
  }
}
void csr_product(F *R values, I *R column, I *R start, F *R x, F *R y, N rows) {
  for (N r = 0; r < rows; r++) {
    F t = 0;
    for (N k = start[r]; k < start[r + 1]; k++) t += values[k] * x[column[k]];
    y[r] = t;
  }
}
void bilinear(F *R image, F *R at, F *R y, N h, N w, N n) {
  for (N i = 0; i < n; i++) {
    F v = least(most(at[2 * i], 0.0f), h - 1), u = least(most(at[2 * i + 1], 0.0f), w - 1);
    N r = (N)floorf(v), c = (N)floorf(u), s = r + 1 < h ? r + 1 : h - 1, t = c + 1 < w ? c + 1 : w - 1;
    F f = v - r, g = u - c;
    F top = image[r * w + c] * (1 - g) + image[r * w + t] * g, low = image[s * w + c] * (1 - g) + image[s * w + t] * g;
    y[i] = top * (1 - f) + low * f;
  }
}
void row_norm(F *R x, F *R y, N rows, N n) {
  for (N r = 0; r < rows; r++) { F t = 0; for (N k = 0; k < n; k++) t += x[r * n + k] * x[r * n + k]; y[r] = sqrtf(t); }
}
void gelu(F *R x, F *R y, N n) { for (N i = 0; i < n; i++) y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f)); }
"""


def cases() -> list[tuple[Any, str, dict[str, Any], dict[str, Any], dict[str, Any], list[int]]]:
    """Lists codelet, size in words, inputs, outputs, parameters, and the sizes that the C function takes."""
    g = np.random.default_rng(0)
    f, i = np.float32, np.int32
    n = 1 << 18
    corner = g.uniform(0, 900, (1000, 2)).astype(f)
    start = np.concatenate([[0], np.cumsum(g.integers(8, 25, 20000))]).astype(i)
    nz = int(start[-1])
    return [
        (prefix_sum, f"{n:,}", {"x": g.normal(size=n).astype(f)}, {"y": ((n,), f)}, {}, [n]),
        (histogram, f"{n:,}, 256 bins", {"x": g.integers(0, 256, n).astype(i)}, {"count": ((256,), i)}, {}, [n, 256]),
        (argsort, "20,000, by merging", {"x": g.normal(size=20000).astype(f)}, {"at": ((20000,), i)}, {}, [20000]),
        (levenshtein, "1,000 and 1,000", {"a": g.integers(0, 4, 1000).astype(i), "b": g.integers(0, 4, 1000).astype(i)},
         {"y": ((1,), i)}, {}, [1000, 1000]),
        (run_lengths, f"{n:,}", {"x": np.repeat(g.integers(0, 9, n // 4), 4).astype(i)},
         {"value": ((n,), i), "count": ((n,), i), "runs": ((1,), i)}, {}, [n]),
        (top_two, "4,096 rows of 256", {"x": g.normal(size=(4096, 256)).astype(f)},
         {"value": ((4096, 2), f), "at": ((4096, 2), i)}, {}, [4096, 256]),
        (nms, "1,000 boxes", {"box": np.concatenate([corner, corner + g.uniform(20, 100, (1000, 2)).astype(f)], 1)},
         {"keep": ((1000,), i)}, {"limit": 0.5}, [1000]),
        (csr_product, f"20,000 rows, {nz:,} entries", {"values": g.normal(size=nz).astype(f), "column": g.integers(0, 20000, nz).astype(i),
         "start": start, "x": g.normal(size=20000).astype(f)}, {"y": ((20000,), f)}, {}, [20000]),
        (bilinear, f"{n:,} points of 512 by 512", {"image": g.normal(size=(512, 512)).astype(f),
         "at": g.uniform(-9, 520, (n, 2)).astype(f)}, {"y": ((n,), f)}, {}, [512, 512, n]),
        (row_norm, "2,048 rows of 512", {"x": g.normal(size=(2048, 512)).astype(f)}, {"y": ((2048,), f)}, {}, [2048, 512]),
        (gelu, f"{n:,}", {"x": g.normal(size=n).astype(f)}, {"y": ((n,), f)}, {}, [n]),
    ]  # fmt: skip


def compiled(folder: Path) -> ctypes.CDLL:
    """Compiles the C functions. Raises OSError without a compiler."""
    source, library = folder / "loops.c", folder / "loops.so"
    source.write_text(C)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-lm"], check=True)
    return ctypes.CDLL(str(library))


def table_of(code: Any, inputs: dict[str, Any], outputs: dict[str, Any], scalars: dict[str, Any], tiles: int) -> tuple[Any, Any]:
    """Compiles a program of one call; returns it, and the run of its launches without the copies from and to the host."""
    with populus.Builder() as b:
        values = [b.input(v, inputs[v].shape, inputs[v].dtype) for v in code.inputs]
        for v in code.outputs:
            b.output(v, values[0])
    module = b.module()
    function: Any = next(iter(module.ops))
    last = function.body.block.last_op
    types = [(outputs[v][0], element_of(np.dtype(outputs[v][1]))) for v in code.outputs]
    last.operands = calls.codelets(Builder(InsertPoint.before(last)), code, *function.body.block.args, outputs=types, **scalars)
    function.update_function_type()
    program = populus.compile(module, target="host", tiles=tiles, engine="native", threads=1)
    return program.run(inputs), (launches(program), program)


def together(runs: list[Callable[[], object]], seconds: float = 0.8) -> list[float]:
    """Times functions in turns; the best of each."""
    best, end = [math.inf] * len(runs), time.perf_counter() + seconds
    while time.perf_counter() < end:
        for k, run in enumerate(runs):
            began = time.perf_counter()
            run()
            best[k] = min(best[k], time.perf_counter() - began)
    return best


def row(library: ctypes.CDLL, case: Any) -> tuple[str, float]:
    """Measures one codelet; returns the line of the table, and the largest ratio."""
    code, size, inputs, outputs, scalars, sizes = case
    made = {v: np.zeros(shape, dtype) for v, (shape, dtype) in outputs.items()}
    arguments = [ctypes.c_void_p({**inputs, **made}[v].ctypes.data) for v in code.axes] + [ctypes.c_int64(n) for n in sizes]
    function = getattr(library, code.name)
    keep: list[Any] = []
    runs: list[Callable[[], object]] = [lambda: function(*arguments)]
    for tiles in TILES:
        found, (run, program) = table_of(code, inputs, outputs, scalars, tiles)
        runs[0]()
        for v in outputs:
            assert np.allclose(found[v], made[v], rtol=1e-5, atol=1e-5), (code.name, v)
        runs.append(run)
        keep.append(program)
    with mock.patch.object(OpWriter, "inside", return_value=True):
        _, (run, program) = table_of(code, inputs, outputs, scalars, 1)
    c, *ours, unchecked = together([*runs, run])
    cells = " | ".join(f"{1e3 * t:.3f} | **{t / c:.2f}**" for t in ours)
    return f"| {code.name} | {size} | {1e3 * c:.3f} | {cells} | {unchecked / c:.2f} |", max(t / c for t in ours)


def main() -> int:
    """Prints the table."""
    head = " | ".join(f"{t:,} tile{'s' if t > 1 else ''} ms | ratio" for t in TILES)
    print(f"| codelet | elements | C ms | {head} | unchecked |")
    print(f"|---|---|---|{'---|' * (2 * len(TILES))}---|")
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(Path(folder))
        worst = [row(library, case) for case in cases()]
    for line, _ in worst:
        print(line)
    print(f"\nlargest ratio {max(r for _, r in worst):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
