"""Products, convolutions and activations that the optimizer fuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.importer.contrib.call import Body, Call, number, same, text

WINDOW = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
# The parameters of each activation, in the order of a node's; those of Clip are two inputs in ONNX.
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "": (),
    "Clip": ("min", "max"),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Selu": ("alpha", "gamma"),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": ("alpha",),
}


def activation(c: Call, kind: str, parameters: Sequence[float], a: str, b: str) -> str:
    """Writes `b`, the activation of `a`. Raises PopulusError for an unknown one, or too few parameters."""
    if kind not in _PARAMETERS:
        *first, last = sorted(_PARAMETERS)[1:]
        raise PopulusError(f"{c.op_type} with the activation {kind} is not supported; {', '.join(first)} and {last} are")
    names = _PARAMETERS[kind]
    if len(parameters) < len(names):
        raise PopulusError(f"{c.op_type} has {len(parameters)} parameters for {kind}; {len(names)} are expected")
    if kind == "Clip":
        return f"{number(parameters[0], 'low', a)}{number(parameters[1], 'high', a)}{b} = Clip ({a}, low, high)\n"
    settings = ", ".join(f"{name} = {text(float(p))}" for name, p in zip(names, parameters))
    return f"{b} = {kind or 'Identity'} {f'<{settings}>' if settings else ''} ({a})\n"


def _fused_conv(c: Call) -> str:
    """Writes FusedConv: `activation(Conv(X, W, B) + Z)`."""
    lines = f"p = Conv {c.listed(*WINDOW)} ({c.arguments(last=3)})\ns = {'Add (p, x3)' if c.has(3) else 'Identity (p)'}\n"
    return lines + activation(c, c.get("activation", ""), c.get("activation_params", []), "s", "y0")


def _fused_gemm(c: Call) -> str:
    """Writes FusedGemm: `activation(alpha A B + beta C)`."""
    given = [c.get(f"activation_{name}", None) for name in ("alpha", "beta", "gamma")]
    product = f"p = Gemm {c.listed('alpha', 'beta', 'transA', 'transB')} ({c.arguments()})\n"
    return product + activation(c, c.get("activation", ""), [p for p in given if p is not None], "p", "y0")


def _operand(i: int, transposed: bool, first: bool) -> str:
    """Writes `v0`, operand 0 as a stack of matrices.

    `first`: the rows are the first dimension, before those of the stack. `transposed`: the matrices are.
    Any rank of at least 2 is three dimensions, with one for the stack.
    """
    n, k = ("0, end = 1", f"1, end = -1> (x{i})") if first else ("-2, end = -1", f"0, end = -2> (x{i})")
    flat = f"n{i}, any{i}, k{i}" if first else f"any{i}, n{i}, k{i}"
    rows, columns = (0 if first else 1), 2
    perm = [1 if first else 0, *((columns, rows) if transposed else (rows, columns))]
    back = f"k{i}, n{i}" if transposed else f"n{i}, k{i}"
    return f"""n{i} = Shape <start = {n}> (x{i})
stack{i} = Shape <start = {k}
k{i} = Shape <start = -1> (x{i})
any{i} = Constant <value = int64[1] {{-1}}> ()
flat{i} = Concat <axis = 0> ({flat})
r{i} = Reshape (x{i}, flat{i})
t{i} = Transpose <perm = {perm}> (r{i})
back{i} = Concat <axis = 0> (stack{i}, {back})
v{i} = Reshape (t{i}, back{i})
"""


def _fused_matmul(c: Call) -> str:
    """Writes FusedMatMul: `alpha A B`, of operands whose matrices or stacks may be transposed."""
    lines, names = "", ["x0", "x1"]
    for i, letter in enumerate("AB"):
        transposed, first = bool(c.get(f"trans{letter}", 0)), bool(c.get(f"transBatch{letter}", 0))
        if transposed or first:
            lines += _operand(i, transposed, first)
            names[i] = f"v{i}"
    return lines + f"p = MatMul ({names[0]}, {names[1]})\n{number(float(c.get('alpha', 1.0)))}y0 = Mul (p, k)\n"


def _gelu(approximate: str) -> Body:
    """Makes the function of a Gelu with an optional bias."""

    def body(c: Call) -> str:
        biased = "b = Add (x0, x1)\n" if c.has(1) else "b = Identity (x0)\n"
        return f'{biased}y0 = Gelu <approximate = "{approximate}"> (b)\n'

    return body


def _quick_gelu(c: Call) -> str:
    """Writes QuickGelu: `x sigmoid(alpha x)`."""
    return f"{number(float(c.get('alpha', 1.702)))}a = Mul (x0, k)\ns = Sigmoid (a)\ny0 = Mul (x0, s)\n"


def _split_gelu(c: Call) -> str:
    """Writes BiasSplitGelu: `l gelu(r)`, where `l` and `r` are the halves of x + bias."""
    return "s = Add (x0, x1)\nl, r = Split <axis = -1, num_outputs = 2> (s)\ng = Gelu (r)\ny0 = Mul (l, g)\n"


def _bias_softmax(c: Call) -> str:
    """Writes BiasSoftmax: softmax of x + bias over all dimensions from `axis` on."""
    axis = f"<axis = {c.get('axis', 1)}>"
    return f"s = Add (x0, x1)\nf = Flatten {axis} (s)\np = Softmax <axis = -1> (f)\nsh = Shape (s)\ny0 = Reshape (p, sh)\n"


FUNCTIONS: Mapping[str, Body] = {
    "BiasGelu": _gelu("none"),
    "BiasSoftmax": _bias_softmax,
    "BiasSplitGelu": _split_gelu,
    "FastGelu": _gelu("tanh"),
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
    "Gelu": same("Gelu"),
    "QuickGelu": _quick_gelu,
}
