"""Expressions of vectors, single families and models of one op as programs, their comparison, and special numbers."""

from __future__ import annotations

import numpy as np
from onnx import helper, numpy_helper

from populus.dialects.support.diagnostics import verify
from populus.dialects.support.element_types import element_of
from populus.dialects.support.parser import LocatingParser
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


def program_of(family, inputs, out):
    """A program of one family; `X` and `Y` in its text stand for the types of the input and of the output `out`: sizes, then an element."""
    lines: list[str] = []
    text = family
    shapes = {name: (*a.shape, str(element_of(a.dtype))) for name, a in inputs.items()} | {"y": out}
    type = ""
    for name, shape in shapes.items():
        type = f"!poplar.tensor<{'x'.join(map(str, shape))}>"
        lines.append(f'%{name} = poplar.var "{name}" : {type}')
        if name in inputs:
            lines.append(f'poplar.stream_in "{name}" to %{name} : {type}')
        text = text.replace(f": {name.upper()}", f": {type}")
    lines += [f'poplar.execute "step" {{ poplar.family {text} }}', f'poplar.stream_out %y to "y" : {type}']
    body = "\n".join(lines)
    parsed = LocatingParser(context(), f"poplar.graph @main target <host, tiles = 4> {{\n{body}\n}}", "family.mlir").parse_module()
    verify(parsed)
    return parsed


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


def one_op(kind, arrays, constants=(), **attributes):
    """A model of one op on inputs x0, x1, ..; then come constants."""
    inputs = [helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for i, a in enumerate(arrays)]
    names = [i.name for i in inputs] + [f"c{i}" for i in range(len(constants))]
    node = helper.make_node(kind, names, ["y"], **attributes)
    initializers = [numpy_helper.from_array(a, f"c{i}") for i, a in enumerate(constants)]
    graph = helper.make_graph([node], "one", inputs, [helper.make_empty_tensor_value_info("y")], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def agrees(found, expected, tolerance=1e-5):
    assert found.keys() == expected.keys()
    for name, e in expected.items():
        assert (found[name].dtype, found[name].shape) == (e.dtype, e.shape), name
        if e.dtype.kind == "f":
            largest = float(np.abs(e[np.isfinite(e)]).max(initial=0))
            np.testing.assert_allclose(found[name], e, rtol=tolerance, atol=tolerance * largest, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], e)
