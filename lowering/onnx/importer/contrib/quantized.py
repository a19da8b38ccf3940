"""Ops of quantized tensors: dequantize, compute, quantize; and products of integers."""

from __future__ import annotations

from collections.abc import Mapping

from populus.lowering.onnx.importer.contrib.call import Body, Call, same, text
from populus.lowering.onnx.importer.contrib.channels_last import channels_first, channels_last


def _dequantized(i: int, name: str, c: Call) -> str:
    """Writes the dequantized input `i`, with its scale and zero point."""
    return f"{name} = DequantizeLinear (x{i}, x{i + 1}{c.optional(i + 2)})\n"


def _quantized(name: str, i: int, c: Call) -> str:
    """Writes y0, quantized with the scale at input `i` and its zero point."""
    return f"y0 = QuantizeLinear ({name}, x{i}{c.optional(i + 1)})\n"


def _binary(op: str) -> Body:
    """Makes the function of a quantized binary op."""
    return lambda c: f"{_dequantized(0, 'a', c)}{_dequantized(3, 'b', c)}s = {op} (a, b)\n{_quantized('s', 6, c)}"


def _unary(op: str, *attributes: str) -> Body:
    """Makes the function of a quantized unary op with these attributes."""

    def body(c: Call) -> str:
        return f"{_dequantized(0, 'a', c)}s = {op} {c.listed(*attributes)} (a)\n{_quantized('s', 3, c)}"

    return body


def _pool(op: str, *attributes: str) -> Body:
    """Makes the function of a quantized pool with these attributes; its channels may be last."""

    def body(c: Call) -> str:
        if not c.get("channels_last", 0):
            return _unary(op, *attributes)(c)
        lines = f"{_dequantized(0, 'a', c)}{channels_first('f', 'a')}p = {op} {c.listed(*attributes)} (f)\n"
        return f"{lines}{channels_last('s', 'p')}{_quantized('s', 3, c)}"

    return body


def _concat(c: Call) -> str:
    """Writes QLinearConcat."""
    parts = [f"p{i}" for i in range(2, c.inputs, 3)]
    lines = "".join(_dequantized(i, f"p{i}", c) for i in range(2, c.inputs, 3))
    return f"{lines}s = Concat <axis = {c.get('axis', 0)}> ({', '.join(parts)})\n{_quantized('s', 0, c)}"


def _where(c: Call) -> str:
    """Writes QLinearWhere."""
    return f"{_dequantized(1, 'a', c)}{_dequantized(4, 'b', c)}s = Where (x0, a, b)\n{_quantized('s', 7, c)}"


def _gemm(c: Call) -> str:
    """Writes QGemm: `alpha a b (A - az) (B - bz) + alpha a b C`, quantized if there is a scale for it."""
    rows = f"<axis = {0 if c.get('transB', 0) else 1}>"  # one scale for each column of the product
    lines = _dequantized(0, "a", c) + f"b = DequantizeLinear {rows} (x3, x4{c.optional(5)})\n"
    lines += f"p = Gemm <transA = {c.get('transA', 0)}, transB = {c.get('transB', 0)}, alpha = {text(float(c.get('alpha', 1.0)))}> (a, b)\n"
    if c.has(6):
        alpha = f"al = Constant <value = float {{{float(c.get('alpha', 1.0))!r}}}> ()\n"
        lines += f"f = Cast <to = 1> (x6)\nab = Mul (x1, x4)\n{alpha}abl = Mul (ab, al)\nt = Mul (f, abl)\ns = Add (p, t)\n"
    else:
        lines += "s = Identity (p)\n"
    return lines + (_quantized("s", 7, c) if c.has(7) else "y0 = Identity (s)\n")


def _integer_product(a: str, az: str, scale: str, b: int, bz: int, bias: int, c: Call) -> str:
    """Writes a product of integers, scaled to f32, with an optional bias."""
    zero = f", {az}" if az else ", " if c.has(bz) else ""
    lines = f"m = MatMulInteger ({a}, x{b}{zero}{c.optional(bz)})\nf = Cast <to = 1> (m)\n{scale}p = Mul (f, s)\n"
    return lines + (f"y0 = Add (p, x{bias})\n" if c.has(bias) else "y0 = Identity (p)\n")


def _dynamic_product(c: Call) -> str:
    """Writes DynamicQuantizeMatMul."""
    quantised = "q, qs, qz = DynamicQuantizeLinear (x0)\n"
    return quantised + _integer_product("q", "qz", "s = Mul (qs, x2)\n", 1, 3, 4, c)


def _integer_to_float(c: Call) -> str:
    """Writes MatMulIntegerToFloat."""
    return _integer_product("x0", "x4" if c.has(4) else "", "s = Mul (x2, x3)\n", 1, 5, 6, c)


FUNCTIONS: Mapping[str, Body] = {
    "DequantizeLinear": same("DequantizeLinear", "axis"),
    "DynamicQuantizeMatMul": _dynamic_product,
    "MatMulIntegerToFloat": _integer_to_float,
    "QGemm": _gemm,
    "QLinearAdd": _binary("Add"),
    "QLinearAveragePool": _pool("AveragePool", "auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides"),
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _pool("GlobalAveragePool"),
    "QLinearLeakyRelu": _unary("LeakyRelu", "alpha"),
    "QLinearMul": _binary("Mul"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearSoftmax": _unary("Softmax", "axis"),
    "QLinearWhere": _where,
    "QuantizeLinear": same("QuantizeLinear", "axis"),
}
