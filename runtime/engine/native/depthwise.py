"""Convolutions with one channel in and out of each group: a multiplication and an addition for each element of the kernel."""

from __future__ import annotations

from functools import partial

import numpy as np

from populus.runtime.codelets.task import Array
from populus.runtime.engine.native.contraction import TYPES
from populus.runtime.engine.native.copies import coalesced
from populus.runtime.engine.native.jit import Kernel, Library
from populus.runtime.engine.native.launch import Launch
from populus.runtime.engine.native.machine import Machine
from populus.runtime.engine.native.text import Function


def _taps(type: str, stride: int, name: str, machine: Machine) -> str:
    """Units are planes, of one image; a row of outputs takes one element of the kernel after the other."""
    item = 4 if type == "float" else 8
    f = Function(name)
    x, w, y, taps = f.args("pppp")
    x_plane, x_row, w_plane, y_plane, y_row, rows, columns, count, step = (f.arg(4 + i) for i in range(9))

    def plane(p: str) -> None:
        xp, wp, yp = f.beyond(x, f.mul(p, x_plane)), f.beyond(w, f.mul(p, w_plane)), f.beyond(y, f.mul(p, y_plane))

        def row(r: str) -> None:
            source, target = f.beyond(xp, f.mul(r, x_row)), f.beyond(yp, f.mul(r, y_row))

            def tap(t: str) -> None:
                line = f.beyond(source, f.load("i64", f.at(taps, f.mul(t, 2), "i64")))
                weight = f.load(type, f.beyond(wp, f.load("i64", f.at(taps, f.add(f.mul(t, 2), 1), "i64"))))

                def element(i: str, first: bool) -> None:
                    at = f.at(line, f.mul(i, stride), type) if stride else f.beyond(line, f.mul(i, step))
                    value = f.let(f"fmul {type} {f.load(type, at)}, {weight}")
                    place = f.at(target, i, type)
                    if not first:
                        value = f.let(f"fadd {type} {f.load(type, place)}, {value}")
                    f.store(type, value, place)

                f.when(
                    f.let(f"icmp eq i64 {t}, 0"),
                    lambda: void(f.loop(0, columns, lambda i: element(i, True))),
                    lambda: void(f.loop(0, columns, lambda i: element(i, False))),
                )

            f.loop(0, count, tap)

        f.loop(0, rows, row)

    del item
    f.loop("%first", "%end", plane)
    return f.done().replace("ptr noalias %args", "ptr noalias %args")


def void(value: object) -> None:
    """Drops a value."""


def depthwise(library: Library, x: Array, w: Array, y: Array, strides: tuple[int, int], dilations: tuple[int, int]) -> list[Launch] | None:
    """x: [b, g, 1, h, w], its padding included; y: [b, g, 1, o0, o1]. None where the kernel cannot."""
    if y.shape[4] > 1 and y.strides[4] != y.itemsize:
        return None
    type = TYPES[y.dtype.name]
    stride = strides[1] if x.strides[4] == x.itemsize and strides[1] in (1, 2) else 0
    taps = np.array(
        [
            (i * dilations[0] * x.strides[3] + j * dilations[1] * x.strides[4], i * w.strides[3] + j * w.strides[4])
            for i, j in np.ndindex(*w.shape[3:])
        ],
        np.int64,
    )
    kernel = Kernel(f"depthwise {type} {stride}", partial(_taps, type, stride))
    return [
        Launch(
            library,
            kernel,
            [x[b], w, y[b], taps, x.strides[1], x.strides[3] * strides[0], w.strides[0], y.strides[1], y.strides[3],
             y.shape[3], y.shape[4], len(taps), x.strides[4] * strides[1]],
            y.shape[1],
        )
        for b in range(y.shape[0])
    ]  # fmt: skip


__all__ = ["coalesced", "depthwise"]
