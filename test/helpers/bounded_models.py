"""Small models with random weights and open sizes, after the patterns of exports: an encoder, a decoder, images, lines of text."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, helper, numpy_helper, parser


def built(signature: str, constants: str, body: str, weights: dict[str, tuple[int, ...]], outputs: int) -> ModelProto:
    """Builds a model; its outputs are y, and the values `p0`, `p1`, .. that the body defines."""
    names = ["y", *(f"p{i}" for i in range(outputs - 1))]
    text = f"g ({signature}) => ({', '.join(f'float[] {n}' for n in names)}) <{constants}> {{\n{body}\n}}"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["":17]>\n{text}')
    for output in model.graph.output:
        output.ClearField("type")
    rng = np.random.default_rng(1)
    for name, shape in weights.items():
        array = (rng.standard_normal(shape) / 2).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


SHAPES = """
  int64 c0 = {0}, int64 c1 = {1}, int64 c2 = {2}, int64[1] n0 = {0}, int64[1] n1 = {1}, int64[1] n2 = {2}, int64[1] n3 = {3},
  int64[1] m1 = {-1}, int64[1] e2 = {2}, int64[1] e4 = {4}, int64[1] e8 = {8}, int64[2] rows8 = {-1, 8}, int64[2] ax12 = {1, 2},
  float one = {1.0}, float low = {-10000.0}, float scale = {0.5}
"""


def encoder() -> ModelProto:
    """Builds one layer of an encoder after torch's export of BERT: [batch, seq] tokens and mask."""
    body = """
      s = Shape(ids)
      b0 = Gather(s, c0)
      q0 = Gather(s, c1)
      b = Unsqueeze(b0, n0)
      q = Unsqueeze(q0, n0)
      pos = Slice(positions, n0, q, n1)
      we = Gather(words, ids)
      pe = Gather(places, pos)
      x0 = Add(we, pe)
      x = LayerNormalization<axis=-1>(x0, g, h)
      mu = Unsqueeze(mask, ax12)
      mf = Cast<to=1>(mu)
      mi = Sub(one, mf)
      mm = Mul(mi, low)
      qx = MatMul(x, wq)
      kx = MatMul(x, wk)
      vx = MatMul(x, wv)
      heads = Concat<axis=0>(b, q, e2, e4)
      qr = Reshape(qx, heads)
      kr = Reshape(kx, heads)
      vr = Reshape(vx, heads)
      qt = Transpose<perm=[0, 2, 1, 3]>(qr)
      kt = Transpose<perm=[0, 2, 3, 1]>(kr)
      vt = Transpose<perm=[0, 2, 1, 3]>(vr)
      sc = MatMul(qt, kt)
      ss = Mul(sc, scale)
      sm = Add(ss, mm)
      p = Softmax<axis=-1>(sm)
      o = MatMul(p, vt)
      ot = Transpose<perm=[0, 2, 1, 3]>(o)
      flat = Concat<axis=0>(b, q, e8)
      oo = Reshape(ot, flat)
      r = Add(oo, x)
      rr = Reshape(r, rows8)
      f = Gemm(rr, w1)
      e = Erf(f)
      ff = Gemm(e, w2)
      back = Reshape(ff, flat)
      y = Add(back, r)
      first = Gather<axis=1>(y, c0)
      p0 = Tanh(first)
    """
    constants = SHAPES + ", int64[1, 16] positions = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}"
    weights = {"words": (3, 8), "places": (16, 8), "g": (8,), "h": (8,), "w1": (8, 16), "w2": (16, 8)}
    weights |= dict.fromkeys(("wq", "wk", "wv"), (8, 8))
    return built("int64[batch, seq] ids, int64[batch, seq] mask", constants, body, weights, 2)


def decoder() -> ModelProto:
    """Builds one layer of a decoder with a key-value cache after torch's export of GPT-2."""
    body = """
      s = Shape(ids)
      b0 = Gather(s, c0)
      q0 = Gather(s, c1)
      b = Unsqueeze(b0, n0)
      q = Unsqueeze(q0, n0)
      ps = Shape(past_key)
      l0 = Gather(ps, c2)
      total = Add(l0, q0)
      pos = Range(l0, total, c1)
      we = Gather(words, ids)
      pe = Gather(places, pos)
      x = Add(we, pe)
      qx = MatMul(x, wq)
      kx = MatMul(x, wk)
      vx = MatMul(x, wv)
      heads = Concat<axis=0>(b, q, e2, e4)
      qr = Reshape(qx, heads)
      kr = Reshape(kx, heads)
      vr = Reshape(vx, heads)
      qt = Transpose<perm=[0, 2, 1, 3]>(qr)
      kh = Transpose<perm=[0, 2, 1, 3]>(kr)
      vt = Transpose<perm=[0, 2, 1, 3]>(vr)
      p0 = Concat<axis=2>(past_key, kh)
      p1 = Concat<axis=2>(past_value, vt)
      kt = Transpose<perm=[0, 1, 3, 2]>(p0)
      sc = MatMul(qt, kt)
      ss = Mul(sc, scale)
      ks = Shape(p0)
      n = Gather(ks, c2)
      at = Sub(n, q0)
      au = Unsqueeze(at, n0)
      nu = Unsqueeze(n, n0)
      rows = Slice(causal, au, nu, n2)
      seen = Slice(rows, n0, nu, n3)
      sw = Where(seen, ss, low)
      mu = Unsqueeze(mask, ax12)
      mf = Cast<to=1>(mu)
      mi = Sub(one, mf)
      mm = Mul(mi, low)
      sm = Add(sw, mm)
      p = Softmax<axis=-1>(sm)
      o = MatMul(p, p1)
      ot = Transpose<perm=[0, 2, 1, 3]>(o)
      flat = Concat<axis=0>(b, q, e8)
      oo = Reshape(ot, flat)
      r = Add(oo, x)
      y = MatMul(r, head)
    """
    weights = {"words": (3, 8), "places": (16, 8), "head": (8, 5), **dict.fromkeys(("wq", "wk", "wv"), (8, 8))}
    cache = "float[batch, 2, past, 4]"
    signature = f'int64[batch, cur] ids, {cache} past_key, {cache} past_value, int64[batch, "past + cur"] mask'
    model = built(signature.replace('"past + cur"', "total"), SHAPES, body, weights, 3)
    model.graph.input[3].type.tensor_type.shape.dim[1].dim_param = "past + cur"
    causal = np.tril(np.ones((16, 16), np.bool_)).reshape(1, 1, 16, 16)
    model.graph.initializer.append(numpy_helper.from_array(causal, "causal"))
    return model


def images() -> ModelProto:
    """Builds a convolutional net with a skip connection over a Resize, after torch's export: any height and width."""
    body = """
      a = Conv<pads=[1, 1, 1, 1]>(x, k1)
      ar = Relu(a)
      d = Conv<pads=[1, 1, 1, 1], strides=[2, 2]>(ar, k2)
      dr = Relu(d)
      m = MaxPool<kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]>(dr)
      v = AveragePool<kernel_shape=[2, 2], strides=[1, 1], pads=[0, 0, 1, 1]>(m)
      u = Resize<mode="linear">(v, , up)
      us = Shape(dr)
      hw = Slice(us, n2, four, n0)
      bc = Slice(us, n0, n2, n0)
      to = Concat<axis=0>(bc, hw)
      c = Conv(u, k3)
      cc = Slice(c, zeros, hw, axes)
      j = Concat<axis=1>(cc, dr)
      t = ConvTranspose<strides=[2, 2], kernel_shape=[2, 2]>(j, k4)
      i = InstanceNormalization(t, gain, shift)
      s = Sigmoid(i)
      gp = GlobalAveragePool(s)
      fl = Flatten(gp)
      y = Gemm<transB=1>(fl, w)
      p0 = ReduceMax<axes=[2, 3], keepdims=0>(t)
    """
    constants = SHAPES + ", float[4] up = {1, 1, 2, 2}, int64[2] axes = {2, 3}, int64[2] zeros = {0, 0}, int64[1] four = {4}"
    weights = {"k1": (4, 3, 3, 3), "k2": (4, 4, 3, 3), "k3": (4, 4, 1, 1), "k4": (8, 3, 2, 2), "gain": (3,), "shift": (3,), "w": (2, 3)}
    return built("float[batch, 3, h, w] x", constants, body, weights, 2)


def text_lines() -> ModelProto:
    """Builds a recogniser of text lines: convolutions, an LSTM over the width, a softmax for each position."""
    body = """
      a = Conv<pads=[1, 1, 1, 1]>(x, k1)
      ar = Relu(a)
      m = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(ar)
      c = Conv<pads=[1, 1, 1, 1]>(m, k2)
      p = MaxPool<kernel_shape=[4, 2], strides=[4, 1], pads=[0, 0, 0, 1]>(c)
      q = Squeeze(p, n2)
      t = Transpose<perm=[2, 0, 1]>(q)
      r, rh, rc = LSTM<hidden_size=3, direction="bidirectional">(t, W, R)
      u = Transpose<perm=[0, 2, 1, 3]>(r)
      us = Shape(u)
      o0 = Gather(us, c0)
      o1 = Gather(us, c1)
      ou = Unsqueeze(o0, n0)
      ov = Unsqueeze(o1, n0)
      six = Concat<axis=0>(ou, ov, m1)
      f = Reshape(u, six)
      l = MatMul(f, w)
      y = Softmax<axis=-1>(l)
      p0 = ArgMax<axis=-1, keepdims=0>(y)
    """
    weights = {"k1": (4, 1, 3, 3), "k2": (5, 4, 3, 3), "W": (2, 12, 5), "R": (2, 12, 3), "w": (6, 7)}
    return built("float[batch, 1, 8, width] x", SHAPES, body, weights, 2)


def contrib(op: str, inputs: dict[str, tuple[int, list[str | int]]], order: list[str], outputs: int, **attributes: int) -> ModelProto:
    """Builds a model of one com.microsoft node. `inputs`: element type and shape; other names of `order` are weights `NAME:8x4`."""
    rng = np.random.default_rng(0)
    names = [name.partition(":")[0] for name in order]
    results = ["y", *(f"p{i}" for i in range(outputs - 1))]
    node = helper.make_node(op, names, results, domain="com.microsoft", **attributes)
    weights = [name.split(":") for name in order if ":" in name]
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(name, type, shape) for name, (type, shape) in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in results],
        [numpy_helper.from_array(rng.standard_normal([int(n) for n in s.split("x")]).astype(np.float32), name) for name, s in weights],
    )
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=8)
