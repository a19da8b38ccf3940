"""Ops of quantized tensors whose channels are the last dimension, as those with channels first between two transpositions."""

from __future__ import annotations

from collections.abc import Mapping

from populus.lowering.onnx.importer.contrib.call import Body, Call, integers
from populus.lowering.onnx.importer.contrib.fused import WINDOW


def channels_first(name: str, source: str) -> str:
    """Writes `name`: `source` of any rank with its last dimension second."""
    n = name
    return f"""{n}_n = Shape <end = 1> ({source})
{n}_d = Shape <start = 1, end = -1> ({source})
{n}_c = Shape <start = -1> ({source})
{integers(f"{n}_any", -1)}{n}_flat = Concat <axis = 0> ({n}_n, {n}_any, {n}_c)
{n}_3 = Reshape ({source}, {n}_flat)
{n}_t = Transpose <perm = [0, 2, 1]> ({n}_3)
{n}_back = Concat <axis = 0> ({n}_n, {n}_c, {n}_d)
{n} = Reshape ({n}_t, {n}_back)
"""


def channels_last(name: str, source: str) -> str:
    """Writes `name`: `source` of any rank with its second dimension last."""
    n = name
    return f"""{n}_n = Shape <end = 1> ({source})
{n}_c = Shape <start = 1, end = 2> ({source})
{n}_d = Shape <start = 2> ({source})
{integers(f"{n}_any", -1)}{n}_flat = Concat <axis = 0> ({n}_n, {n}_c, {n}_any)
{n}_3 = Reshape ({source}, {n}_flat)
{n}_t = Transpose <perm = [0, 2, 1]> ({n}_3)
{n}_back = Concat <axis = 0> ({n}_n, {n}_d, {n}_c)
{n} = Reshape ({n}_t, {n}_back)
"""


def _convolution(c: Call) -> str:
    """Writes QLinearConv; the weights have their channels second in either order."""
    if not c.get("channels_last", 0):
        return f"y0 = QLinearConv {c.listed(*WINDOW)} ({c.arguments()})\n"
    return f"{channels_first('x', 'x0')}p = QLinearConv {c.listed(*WINDOW)} (x, {c.arguments(1)})\n{channels_last('y0', 'p')}"


def _largest(c: Call) -> str:
    """Writes NhwcMaxPool."""
    listed = c.listed("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")
    return f"{channels_first('x', 'x0')}p = MaxPool {listed} (x)\n{channels_last('y0', 'p')}"


FUNCTIONS: Mapping[str, Body] = {"NhwcMaxPool": _largest, "QLinearConv": _convolution}
