"""Functions of ONNX ops for `com.microsoft` ops, which onnxruntime's quantizer and optimizer write.

    QLinearAdd(A, a, az, B, b, bz, c, cz)
      = QuantizeLinear(DequantizeLinear(A, a, az) + DequantizeLinear(B, b, bz), c, cz)

A function is written for one node, so its inputs and attributes are known. Source: onnxruntime, ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from populus.dialects.support.diagnostics import PopulusError

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, NodeProto

DOMAIN = "com.microsoft"
OPSET = 23  # RMSNormalization's
EVERYWHERE = frozenset(("SimplifiedLayerNormalization",))  # in onnxruntime, ops of ONNX's own domain at any opset
HOST = frozenset(("Tokenizer",))  # ops of the domain that run on the host


def contrib(node: NodeProto, attributes: Mapping[str, AttributeProto]) -> FunctionProto | None:
    """Gives the function of a `com.microsoft` node; None if unknown. Raises PopulusError for unsupported attributes."""
    body = _FUNCTIONS.get(node.op_type)
    if body is None:
        return None
    from onnx import helper

    values: dict[str, Any] = {name: helper.get_attribute_value(a) for name, a in attributes.items()}
    call = Call(node.op_type, len(node.input), [bool(name) for name in node.input], max(len(node.output), 1), values)
    return _parsed(body(call), node.op_type, len(node.input), len(node.output))


@cache
def _parsed(body: str, op_type: str, inputs: int, outputs: int) -> FunctionProto:
    """Parses the body of a function with inputs x0, x1, .. and outputs y0, y1, .."""
    from onnx import parser

    names = ", ".join(f"x{i}" for i in range(inputs))
    results = ", ".join(f"y{i}" for i in range(outputs))
    return parser.parse_function(f'<opset_import: ["": {OPSET}], domain: "{DOMAIN}"> {op_type} ({names}) => ({results}) {{\n{body}\n}}')


class Call:
    """A node for which a function is written: its inputs are `x0`, `x1`, .., its outputs `y0`, `y1`, .."""

    def __init__(self, op_type: str, inputs: int, present: list[bool], outputs: int, attributes: Mapping[str, Any]):
        self.op_type, self.inputs, self.present, self.outputs, self.attributes = op_type, inputs, present, outputs, attributes

    def has(self, i: int) -> bool:
        """Tells whether input `i` is present."""
        return i < self.inputs and self.present[i]

    def get(self, name: str, default: Any) -> Any:
        """Gives an attribute, text as str, or `default`."""
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def optional(self, i: int) -> str:
        """Writes `, x3` if input 3 is present, else nothing."""
        return f", x{i}" if self.has(i) else ""

    def listed(self, *names: str) -> str:
        """Writes the named attributes that the node has: `<pads = [1, 1], ceil_mode = 0>`."""
        texts = [f"{name} = {_text(self.attributes[name])}" for name in names if name in self.attributes]
        return f"<{', '.join(texts)}>" if texts else ""

    def refuse_channels_last(self) -> None:
        """Raises PopulusError if the attribute channels_last is set."""
        if self.get("channels_last", 0):
            raise PopulusError(f"{self.op_type} with channels_last is not supported; only channels first are")


def _text(value: Any) -> str:
    """Writes an attribute's value."""
    match value:
        case bytes():
            return f'"{value.decode()}"'
        case float():
            return repr(value) if "." in repr(value) or "e" in repr(value) else f"{value}.0"
        case list():
            return f"[{', '.join(map(_text, cast('list[Any]', value)))}]"
        case _:
            return str(value)


def _number(value: float, name: str = "k") -> str:
    """Writes a constant of the element type of x0."""
    return f"{name}_f = Constant <value = float {{{value!r}}}> ()\n{name} = CastLike ({name}_f, x0)\n"


def _dequantized(i: int, name: str, c: Call) -> str:
    """Writes the dequantized input `i`, with its scale and zero point."""
    return f"{name} = DequantizeLinear (x{i}, x{i + 1}{c.optional(i + 2)})\n"


def _quantized(name: str, i: int, c: Call) -> str:
    """Writes y0, quantized with the scale at input `i` and its zero point."""
    return f"y0 = QuantizeLinear ({name}, x{i}{c.optional(i + 1)})\n"


def _binary(op: str) -> Callable[[Call], str]:
    """Makes the function of a quantized binary op."""
    return lambda c: f"{_dequantized(0, 'a', c)}{_dequantized(3, 'b', c)}s = {op} (a, b)\n{_quantized('s', 6, c)}"


def _unary(op: str, *attributes: str) -> Callable[[Call], str]:
    """Makes the function of a quantized unary op with these attributes."""

    def body(c: Call) -> str:
        c.refuse_channels_last()
        return f"{_dequantized(0, 'a', c)}s = {op} {c.listed(*attributes)} (a)\n{_quantized('s', 3, c)}"

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
    lines += (
        f"p = Gemm <transA = {c.get('transA', 0)}, transB = {c.get('transB', 0)}, alpha = {_text(float(c.get('alpha', 1.0)))}> (a, b)\n"
    )
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


def _fused_matmul(c: Call) -> str:
    """Writes FusedMatMul. Raises PopulusError for transposed batches."""
    if c.get("transBatchA", 0) or c.get("transBatchB", 0):
        raise PopulusError("FusedMatMul that transposes batches is not supported")
    lines = ""
    names = ["x0", "x1"]
    for i, key in enumerate(("transA", "transB")):
        if c.get(key, 0):
            # Swaps the last two dimensions at any rank, as those of [-1, n, m].
            lines += f"""sh{i} = Shape (x{i})
head{i} = Shape <end = -2> (x{i})
n{i} = Shape <start = -2, end = -1> (x{i})
m{i} = Shape <start = -1> (x{i})
any{i} = Constant <value = int64[1] {{-1}}> ()
flat{i} = Concat <axis = 0> (any{i}, n{i}, m{i})
r{i} = Reshape (x{i}, flat{i})
t{i} = Transpose <perm = [0, 2, 1]> (r{i})
back{i} = Concat <axis = 0> (head{i}, m{i}, n{i})
v{i} = Reshape (t{i}, back{i})
"""
            names[i] = f"v{i}"
    return lines + f"p = MatMul ({names[0]}, {names[1]})\n{_number(float(c.get('alpha', 1.0)))}y0 = Mul (p, k)\n"


def _gelu(approximate: str) -> Callable[[Call], str]:
    """Makes the function of a Gelu with an optional bias."""

    def body(c: Call) -> str:
        biased = "b = Add (x0, x1)\n" if c.has(1) else "b = Identity (x0)\n"
        return f'{biased}y0 = Gelu <approximate = "{approximate}"> (b)\n'

    return body


def _quick_gelu(c: Call) -> str:
    """Writes QuickGelu: `x sigmoid(alpha x)`."""
    return f"{_number(float(c.get('alpha', 1.702)))}a = Mul (x0, k)\ns = Sigmoid (a)\ny0 = Mul (x0, s)\n"


def _skip_norm(simple: bool) -> Callable[[Call], str]:
    """Makes LayerNormalization (RMSNormalization if `simple`) of input + skip + bias; y3 is the sum."""

    def body(c: Call) -> str:
        gamma, bias = 2, 3 if simple else 4
        lines = "sum0 = Add (x0, x1)\n" + (f"total = Add (sum0, x{bias})\n" if c.has(bias) else "total = Identity (sum0)\n")
        epsilon = _text(float(c.get("epsilon", 1e-12 if not simple else 1e-5)))
        if simple:
            square = (
                f"q = Mul (total, total)\nax = Constant <value = int64[1] {{-1}}> ()\nmean = ReduceMean (q, ax)\n{_number(float(epsilon))}"
            )
            lines += f"{square}me = Add (mean, k)\nroot = Sqrt (me)\nw = Div (total, root)\ny0 = Mul (w, x{gamma})\n"
        else:
            lines += f"y0 = LayerNormalization <axis = -1, epsilon = {epsilon}> (total, x{gamma}{c.optional(3)})\n"
        lines += "".join(f"y{i} = Identity (total)\n" for i in range(1, c.outputs))
        return lines

    return body


def _simplified_norm(c: Call) -> str:
    """Writes RMSNormalization; y1 is the reciprocal of the root in f32, as in onnxruntime."""
    axis, epsilon = int(c.get("axis", -1)), _text(float(c.get("epsilon", 1e-5)))
    root = ""
    if c.outputs > 1:
        root = f"""f = Cast <to = 1> (x0)
q = Mul (f, f)
sh = Shape (x0)
rank = Shape (sh)
ax = Constant <value = int64[1] {{{axis}}}> ()
zero = Constant <value = int64[1] {{0}}> ()
first = {"Add (ax, rank)" if axis < 0 else "Identity (ax)"}
s = Squeeze (first, zero)
end = Squeeze (rank, zero)
step = Constant <value = int64 {{1}}> ()
axes = Range (s, end, step)
mean = ReduceMean (q, axes)
e = Constant <value = float {{{epsilon}}}> ()
me = Add (mean, e)
sq = Sqrt (me)
y1 = Reciprocal (sq)
"""
    return f"{root}y0 = RMSNormalization <axis = {axis}, epsilon = {epsilon}> (x0, x1)\n"


def _fused_activation(op: str, *attributes: str) -> Callable[[Call], str]:
    """Makes the function of an op followed by an activation. Raises PopulusError for an unknown one."""

    def body(c: Call) -> str:
        kind = c.get("activation", "")
        arguments = ", ".join(f"x{i}" for i in range(c.inputs))
        if kind not in ("", "Relu", "Tanh", "Sigmoid"):
            raise PopulusError(f"{c.op_type} with the activation {kind} is not supported; Relu, Tanh and Sigmoid are")
        return f"a = {op} {c.listed(*attributes)} ({arguments})\ny0 = {kind or 'Identity'} (a)\n"

    return body


def _same(op: str, *attributes: str) -> Callable[[Call], str]:
    """Makes the function of an op that ONNX has under the name `op`."""
    return lambda c: f"y0 = {op} {c.listed(*attributes)} ({', '.join(f'x{i}' for i in range(c.inputs))})\n"


_WINDOW = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")

_FUNCTIONS: Mapping[str, Callable[[Call], str]] = {
    "BiasGelu": _gelu("none"),
    "DequantizeLinear": _same("DequantizeLinear", "axis"),
    "DynamicQuantizeMatMul": _dynamic_product,
    "FastGelu": _gelu("tanh"),
    "FusedConv": _fused_activation("Conv", *_WINDOW),
    "FusedGemm": _fused_activation("Gemm", "alpha", "beta", "transA", "transB"),
    "FusedMatMul": _fused_matmul,
    "Gelu": _gelu("none"),
    "MatMulIntegerToFloat": _integer_to_float,
    "QGemm": _gemm,
    "QLinearAdd": _binary("Add"),
    "QLinearAveragePool": _unary("AveragePool", "auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides"),
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _unary("GlobalAveragePool"),
    "QLinearLeakyRelu": _unary("LeakyRelu", "alpha"),
    "QLinearMul": _binary("Mul"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearSoftmax": _unary("Softmax", "axis"),
    "QLinearWhere": _where,
    "QuantizeLinear": _same("QuantizeLinear", "axis"),
    "QuickGelu": _quick_gelu,
    "SimplifiedLayerNormalization": _simplified_norm,
    "SkipLayerNormalization": _skip_norm(False),
    "SkipSimplifiedLayerNormalization": _skip_norm(True),
}
