"""One program for all sizes up to a bound, compared with programs of exact sizes. The padded part holds NaN, infinities, large integers."""

from __future__ import annotations

import pytest
from onnx import ModelProto, parser

from helpers.bounded_runs import compare

HEAD = '<ir_version: 8, opset_import: ["":17]>\n'
DIMS = {"b": (1, 3), "s": (1, 6)}
EVERY = [{"b": 2, "s": 4}, {"b": 3, "s": 6}, {"b": 1, "s": 1}]


def model(text: str) -> ModelProto:
    return parser.parse_model(HEAD + text)


BODIES = {
    "mean": "y = ReduceMean<axes=[1], keepdims=0>(x)",
    "mean of all": "y = ReduceMean(x)",
    "max": "y = ReduceMax<axes=[0, 1]>(x)",
    "min": "y = ReduceMin<axes=[1]>(x)",
    "product": "y = ReduceProd<axes=[1]>(x)",
    "norm": "y = ReduceL2<axes=[1]>(x)",
    "log sum exp": "y = ReduceLogSumExp<axes=[1]>(x)",
    "softmax": "y = Softmax<axis=1>(x)",
    "log softmax": "y = LogSoftmax<axis=1>(x)",
    "softmax of merged axes": "f = Flatten<axis=2>(x)\n y = Softmax<axis=0>(f)",
    "layer norm": "m = ReduceMean<axes=[1, 2]>(x)\n d = Sub(x, m)\n q = Mul(d, d)\n v = ReduceMean<axes=[1, 2]>(q)\n y = Div(d, v)",
    "product over the axis": "t = Transpose<perm=[0, 2, 1]>(x)\n y = MatMul(t, x)",
    "product of rows": "t = Transpose<perm=[0, 2, 1]>(x)\n y = MatMul(x, t)",
    "arg max": "y = ArgMax<axis=1>(x)",
    "arg min, the last": "y = ArgMin<axis=1, select_last_index=1>(x)",
    "hardmax": "y = Hardmax<axis=1>(x)",
    "flatten": "y = Flatten<axis=2>(x)",
    "instance norm": "t = Transpose<perm=[0, 2, 1]>(x)\n y = InstanceNormalization(t, one, zero)",
    "log of zeros": "r = Relu(x)\n l = Log(r)\n y = ReduceMax<axes=[1]>(l)",
}


@pytest.mark.parametrize("name", BODIES)
def test_an_op_is_right_on_the_valid_part(name: str):
    constants = "<float[4] one = {1, 2, 3, 4}, float[4] zero = {0, 1, 0, 1}>"
    rank = {"arg max": "int64", "arg min, the last": "int64"}.get(name, "float")
    compare(model(f"g (float[b, s, 4] x) => ({rank}[] y) {constants} {{\n {BODIES[name]}\n}}"), DIMS, EVERY, engine="numpy")
