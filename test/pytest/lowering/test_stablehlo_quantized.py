"""Programs with quantized types give what the specification's formulas give; mixtures that it lacks are refused."""

from __future__ import annotations

import numpy as np
import pytest

import populus
from populus.dialects.table import context
from populus.lowering.stablehlo.importer import read_text
from populus.lowering.stablehlo.quantized_types import readable

X = np.array([[-3.3, -0.5, 0.25, 0.75], [1.25, 2.5, 9.0, -20.0]], np.float32)
Q = "!quant.uniform<i8:f32, 5.0e-01:-3>"


def generic(lines: str, inputs: str, results: str) -> str:
    """Makes a program in the generic form, which xDSL reads alone."""
    arguments = ", ".join(f"%{chr(97 + i)}: {t}" for i, t in enumerate(inputs.split("; ")))
    types = ", ".join(inputs.split("; "))
    return (
        f'"builtin.module"() ({{\n"func.func"() <{{function_type = ({types}) -> ({results}), sym_name = "main"}}> ({{\n'
        f"^bb0({arguments}):\n{lines}\n}}) : () -> ()\n}}) : () -> ()\n"
    )


def run(text: str, tmp_path, *arrays):
    path = tmp_path / "program.mlir"
    path.write_text(text)
    compiled = populus.compile(path, engine="strict", cache=False, tiles=4)
    return list(compiled.run(dict(zip(compiled.signature.inputs, arrays))).values())


def quantized(x, scale, zero, low=-128, high=127):
    return np.clip(np.rint(x / np.float32(scale)) + zero, low, high)


def quantize(type: str, shape: str = "2x4") -> str:
    lines = (
        f'%0 = "stablehlo.uniform_quantize"(%a) : (tensor<{shape}xf32>) -> tensor<{shape}x{type}>\n'
        f'"func.return"(%0) : (tensor<{shape}x{type}>) -> ()'
    )
    return generic(lines, f"tensor<{shape}xf32>", f"tensor<{shape}x{type}>")


@pytest.mark.parametrize(
    ("type", "dtype", "scale", "zero", "low", "high"),
    [
        ("!quant.uniform<i8:f32, 5.0e-01:-3>", np.int8, 0.5, -3, -128, 127),
        ("!quant.uniform<u8:f32, 1.0e-01:7>", np.uint8, 0.1, 7, 0, 255),
        ("!quant.uniform<i8<-4:5>:f32, 5.0e-01>", np.int8, 0.5, 0, -4, 5),
        ("!quant.uniform<i16:f32, 1.0e-02:9>", np.int16, 0.01, 9, -(2**15), 2**15 - 1),
        ("!quant.uniform<i32:f32, 1.0e-03>", np.int32, 0.001, 0, -(2**31), 2**31 - 1),
    ],
)
def test_a_quantized_result_is_the_integers_that_are_stored(type, dtype, scale, zero, low, high, tmp_path):
    (found,) = run(quantize(type), tmp_path, X)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, quantized(X, scale, zero, low, high).astype(dtype))


def test_each_index_of_an_axis_has_a_scale(tmp_path):
    (found,) = run(quantize("!quant.uniform<i8:f32:0, {0.1:-30,0.5:-20}>"), tmp_path, X)
    np.testing.assert_array_equal(found, quantized(X, np.array([[0.1], [0.5]], np.float32), np.array([[-30], [-20]])))


def test_an_op_on_quantized_elements_is_the_op_on_what_they_stand_for(tmp_path):
    out = "!quant.uniform<i8:f32, 2.0e+00:5>"
    lines = (
        f'%0 = "stablehlo.uniform_quantize"(%a) : (tensor<2x4xf32>) -> tensor<2x4x{Q}>\n'
        f'%1 = "stablehlo.add"(%0, %b) : (tensor<2x4x{Q}>, tensor<2x4x{Q}>) -> tensor<2x4x{out}>\n'
        f'%2 = "stablehlo.transpose"(%1) <{{permutation = array<i64: 1, 0>}}> : (tensor<2x4x{out}>) -> tensor<4x2x{out}>\n'
        f'%3 = "stablehlo.uniform_dequantize"(%2) : (tensor<4x2x{out}>) -> tensor<4x2xf32>\n'
        '"func.return"(%3) : (tensor<4x2xf32>) -> ()'
    )
    b = np.arange(-4, 4, dtype=np.int8).reshape(2, 4)
    (found,) = run(generic(lines, f"tensor<2x4xf32>; tensor<2x4x{Q}>", "tensor<4x2xf32>"), tmp_path, X, b)
    total = (quantized(X, 0.5, -3) + 3) * 0.5 + (b.astype(np.float32) + 3) * 0.5
    np.testing.assert_array_equal(found, ((quantized(total, 2, 5) - 5) * 2).T.astype(np.float32))


def test_the_pretty_form_has_a_product_of_quantized_matrices(tmp_path):
    pytest.importorskip("jaxlib", reason="it reads the pretty form")
    a, b, out = "!quant.uniform<i8:f32, 0.5:-3>", "!quant.uniform<i8:f32, 0.25>", "!quant.uniform<i32:f32, 0.125>"
    text = (
        f"func.func @main(%a: tensor<2x4xf32>, %b: tensor<4x3xf32>) -> tensor<2x3xi32> {{\n"
        f"%0 = stablehlo.uniform_quantize %a : (tensor<2x4xf32>) -> tensor<2x4x{a}>\n"
        f"%1 = stablehlo.uniform_quantize %b : (tensor<4x3xf32>) -> tensor<4x3x{b}>\n"
        "%2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0]"
        f" : (tensor<2x4x{a}>, tensor<4x3x{b}>) -> tensor<2x3x{out}>\n"
        f"%4 = stablehlo.uniform_quantize %2 : tensor<2x3x{out}>\n"
        f"%3 = stablehlo.bitcast_convert %4 : (tensor<2x3x{out}>) -> tensor<2x3xi32>\n"
        "return %3 : tensor<2x3xi32>\n}\n"
    )
    w = np.linspace(-2, 2, 12, dtype=np.float32).reshape(4, 3)
    (found,) = run(text, tmp_path, X, w)
    np.testing.assert_array_equal(found, (quantized(X, 0.5, -3) + 3) @ quantized(w, 0.25, 0))


def test_text_with_encodings_is_read_and_printed_the_same():
    text = readable(quantize(Q))
    assert '"quant.uniform<i8:f32, 5.0e-01:-3>"' in text and "!quant." not in text
    assert text.count("\n") == quantize(Q).count("\n")
    module = read_text(context(), text, "x.mlir")
    assert read_text(context(), str(module), "x.mlir").is_structurally_equivalent(module)


def test_an_axis_moves_with_its_dimension(tmp_path):
    rows, columns = "!quant.uniform<i8:f32:0, {0.1:-30,0.5:-20}>", "!quant.uniform<i8:f32:1, {0.1:-30,0.5:-20}>"
    lines = (
        f'%0 = "stablehlo.transpose"(%a) <{{permutation = array<i64: 1, 0>}}> : (tensor<2x4x{rows}>) -> tensor<4x2x{columns}>\n'
        f'"func.return"(%0) : (tensor<4x2x{columns}>) -> ()'
    )
    stored = np.arange(-4, 4, dtype=np.int8).reshape(2, 4)
    (found,) = run(generic(lines, f"tensor<2x4x{rows}>", f"tensor<4x2x{columns}>"), tmp_path, stored)
    np.testing.assert_array_equal(found, stored.T)


@pytest.mark.parametrize(
    ("type", "said"),
    [
        ("!quant.uniform<i8:f32:2, {0.1,0.5}>", "dimension 2 of [2, 4]"),
        ("!quant.uniform<i8:f32, -1.0>", "a scale is a positive f32"),
        ("!quant.uniform<i8:f32, 0.1:300>", "lie within [-128, 127]"),
        ("!quant.uniform<i4:f32, 0.1>", "integers of 8, 16 or 32 bits"),
        ("!quant.uniform<i8:f16, 0.1>", "stand for f32"),
        ("!quant.uniform<i8:f32, zero>", "is no number"),
    ],
)
def test_a_type_that_does_not_hold_is_refused_with_its_place(type, said, tmp_path):
    with pytest.raises(populus.PopulusError) as error:
        run(quantize(type), tmp_path, X)
    message = str(error.value)
    assert "program.mlir:4:" in message and said in message and "\n" not in message


def test_floats_and_quantized_elements_are_not_added(tmp_path):
    lines = (
        f'%0 = "stablehlo.add"(%a, %b) : (tensor<2x4xf32>, tensor<2x4x{Q}>) -> tensor<2x4x{Q}>\n"func.return"(%0) : (tensor<2x4x{Q}>) -> ()'
    )
    with pytest.raises(populus.PopulusError, match="quantized ones are expected"):
        run(generic(lines, f"tensor<2x4xf32>; tensor<2x4x{Q}>", f"tensor<2x4x{Q}>"), tmp_path, X, X.astype(np.int8))


def product(left: str, right: str, result: str) -> str:
    lines = (
        f'%0 = "stablehlo.dot_general"(%a, %b) <{{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], '
        f"rhs_contracting_dimensions = [0]>}}> : (tensor<2x4x{left}>, tensor<4x3x{right}>) -> tensor<2x3x{result}>\n"
        f'"func.return"(%0) : (tensor<2x3x{result}>) -> ()'
    )
    return generic(lines, f"tensor<2x4x{left}>; tensor<4x3x{right}>", f"tensor<2x3x{result}>")


def test_floats_are_multiplied_by_quantized_weights(tmp_path):
    w = np.arange(-6, 6, dtype=np.int8).reshape(4, 3)
    (found,) = run(product("f32", Q, "f32"), tmp_path, X, w)
    np.testing.assert_array_equal(found, X @ ((w.astype(np.float32) + 3) * 0.5))


def test_a_product_of_bytes_is_computed_on_integers(tmp_path):
    path = tmp_path / "program.mlir"
    path.write_text(product(Q, "!quant.uniform<i8:f32, 2.5e-01>", Q))
    names = [op.name for op in populus.compile(path, cache=False, tiles=4).module("popart").walk()]
    assert "popart.integer_matmul" in names and "popart.matmul" not in names
