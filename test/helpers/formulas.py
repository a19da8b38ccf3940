"""Expressions of vectors, run as tile programs; and numbers that are special to them."""

from __future__ import annotations

import numpy as np

from populus.dialects.support.diagnostics import LocatingParser, verify
from populus.dialects.support.element_types import element_of
from populus.dialects.table import context
from populus.runtime.engine.native.run.program import NativeProgram
from populus.runtime.session import Session


def mapped(expression, *arrays, engine="native", out="f32", cpu=None):
    """An expression of vectors, as a program."""
    n = arrays[0].size
    lines, fields = [], []
    for i, a in enumerate(arrays, 1):
        type = f"!poplar.tensor<{n}x{element_of(a.dtype)}>"
        lines += [f'%x{i} = poplar.var "x{i}" : {type}', f'poplar.stream_in "x{i}" to %x{i} : {type}']
        fields.append(f"in x{i} = %x{i}[d0] : {type}")
    type = f"!poplar.tensor<{n}x{out}>"
    lines.append(f'%y = poplar.var "y" : {type}')
    family = f"poplar.family @map {{expr = #expr.fn<{expression}>}} for (d0 = {n}) on (d0)\n" + "\n".join(fields)
    text = "\n".join(lines) + f'\npoplar.execute "map" {{ {family}\nout y = %y[d0] : {type}\n}}\npoplar.stream_out %y to "y" : {type}\n'
    parsed = LocatingParser(context(), f"poplar.graph @main target <host, tiles = 4> {{\n{text}}}", "map.mlir").parse_module()
    verify(parsed)
    inputs = {f"x{i}": a for i, a in enumerate(arrays, 1)}
    if cpu is None:
        session = Session(parsed, engine)
        assert not session.fallbacks, expression
        return session.run(inputs)["y"]
    program = NativeProgram(parsed.body.block.first_op, cpu=cpu)
    assert not program.fallbacks, expression
    return program.run(inputs)["y"]


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3.4e38, -3.4e38, 0.5, -2.5, 1.5, 88.8, -104.1], "f4")
PAIRS = [a.ravel() for a in np.meshgrid(SPECIAL, SPECIAL)]


def same_bits(expression, *arrays, out):
    """Asserts that the native engine gives the bits of the numpy engine. The bits of a NaN do not count, but for types of a byte."""
    found, expected = mapped(expression, *arrays, out=out), mapped(expression, *arrays, out=out, engine="numpy")
    bits = f"u{found.itemsize}"
    apart = found.view(bits) != expected.view(bits)
    if found.itemsize > 1 and found.dtype.kind not in "iu":
        with np.errstate(invalid="ignore"):  # of signalling NaNs
            apart &= ~(np.isnan(found.astype("f8")) & np.isnan(expected.astype("f8")))
    at = np.flatnonzero(apart)[:4]
    assert not at.size, (expression, [a[at] for a in arrays], found[at], expected[at])
