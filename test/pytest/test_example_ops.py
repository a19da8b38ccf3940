"""The operators of other systems in `examples/ops`, against their formulas in NumPy; `make check-ops` checks their contracts too."""

from __future__ import annotations

import math

import numpy as np
import pytest

import populus
from helpers.built_in_checks import EXAMPLES, failures_of_file
from populus.dialects.base.tensor_op import INPLACE

OPS = EXAMPLES
G = np.random.default_rng(1)


@pytest.fixture
def own():
    """Loads an example by its name."""
    return lambda name: populus.load(OPS / f"{name}.py").module


def run(call, inputs, constants=(), **options):
    """Runs a model of a call, on 4 tiles; gives its results in order."""
    with populus.Builder() as b:
        values = {n: b.constant(a) if n in constants else b.input(n, a.shape, a.dtype) for n, a in inputs.items()}
        found = call(*values.values())
        for i, v in enumerate(found if isinstance(found, tuple) else (found,)):
            b.output(f"y{i}", v)
    program = populus.compile(b.module(), tiles=4, **options)
    return [*program.run({n: a for n, a in inputs.items() if n not in constants}).values()]


def floats(*shape):
    return G.normal(size=shape).astype(np.float32)


def test_every_example_is_here():
    tested = {name for name in globals() if name.startswith("test_")}
    assert [p.stem for p in OPS.glob("*.py") if f"test_{p.stem}" not in tested] == []


@pytest.mark.parametrize("name", ["concat", "optional", "in_place", "scan"])
def test_an_example_keeps_the_contract(name):
    assert list(failures_of_file(OPS / f"{name}.py")) == []


def test_attributes(own):
    x, module = floats(2, 3), own("attributes")
    (y,) = run(module.attributes, {"x": x})
    assert np.allclose(y, x * (32.5 + 9.75) + 7 + 14 + 30 + 4, rtol=1e-6)
    given = {"bool_attr": np.bool_(False), "int_vec": np.arange(3), "float_vec": (), "str_vec": [], "table": np.eye(2)}
    (y,) = run(lambda x: module.attributes(x, **given), {"x": x})
    assert np.allclose(y, x * -32.5 + 7 + 3 + 2, rtol=1e-6)


def test_optional(own):
    x, y, add = floats(2, 3), floats(2, 3), own("optional").optional_add
    assert run(add, {"x": x})[0].tolist() == (x + x).tolist()
    assert run(add, {"x": x, "y": y})[0].tolist() == (x + y).tolist()
    assert run(lambda x, y: add(x, None, y), {"x": x, "y": y})[0].tolist() == (x + x + y).tolist()


def test_in_place(own):
    two_sums, inputs = own("in_place").two_sums, {n: floats(3, 3) for n in "xyab"}
    with populus.Builder() as b:
        v = {n: b.op("neg", b.input(n, (3, 3)))[0] for n in inputs}
        for i, r in enumerate(two_sums(**v)):
            b.output(f"y{i}", r)
    program = populus.compile(b.module(), tiles=4)
    from populus.lowering.popart.inplace import PopartInplacePass

    module = b.module()
    PopartInplacePass().apply(None, module)
    (op,) = [op for op in module.walk() if op.name == "paddle.two_sums"]
    assert list(op.attributes[INPLACE].get_values()) == [0, 2]
    got = program.run(inputs)
    assert got["y0"].tolist() == (-inputs["x"] - inputs["y"]).tolist()
    assert got["y1"].tolist() == (-inputs["a"] - inputs["b"]).tolist()


@pytest.mark.parametrize("axis", [0, -1])
def test_concat(axis, own):
    concat, a = own("concat").concat, floats(2, 2)
    (y,) = run(concat, {"axis": np.array([axis]), "a": a, "c": a + 1}, ["axis"])
    assert y.tolist() == np.concatenate([a, a + 1], axis).tolist()
    with pytest.raises(populus.PopulusError, match=r"the axis is 2; xs have 2 dimensions"):
        run(concat, {"axis": np.array([2]), "a": a}, ["axis"])


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


def test_lltm(own):
    x, w, bias, h, c = floats(2, 3), floats(12, 7), floats(12), floats(2, 4), floats(2, 4)
    got = run(own("lltm").lltm, {"x": x, "w": w, "bias": bias, "h": h, "c": c})
    i, o, k = np.split(np.concatenate([h, x], 1) @ w.T + bias, 3, 1)
    new_c = c + np.where(k > 0, k, np.exp(k) - 1) * sigmoid(i)
    assert np.allclose(got[0], np.tanh(new_c) * sigmoid(o), atol=1e-5)
    assert np.allclose(got[1], new_c, atol=1e-5)


def test_remapped(own):
    x, ops = floats(3, 4), own("remapped")
    for found, expected in ((ops.remap_ce, x), (ops.copy_tensor, x), (ops.cube, x**3)):
        (got,) = run(found, {"x": x})
        assert np.allclose(got, expected, atol=1e-6)


@pytest.mark.parametrize("left_out", [(), ("beta",), ("bias",), ("beta", "bias")])
def test_skip_layer_norm(left_out, own):
    inputs = {"x": floats(2, 3, 4), "skip": floats(2, 3, 4), "gamma": floats(4), "beta": floats(4), "bias": floats(4)}
    given = {n: a for n, a in inputs.items() if n not in left_out}
    op = own("skip_layer_norm").skip_layer_norm
    got = run(lambda *v: op(**dict(zip(given, v))), given)
    s = given["x"] + given["skip"] + given.get("bias", 0)
    mean, deviation = s.mean(-1, keepdims=True), 1 / np.sqrt(s.var(-1, keepdims=True) + 1e-5)
    expected = [(s - mean) * deviation * given["gamma"] + given.get("beta", 0), mean, deviation, s]
    assert [np.allclose(a, e, atol=1e-4) for a, e in zip(got, expected)] == [True] * 4


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_embedding(interleaved, own):
    x, angles, at = floats(2, 3, 4, 6), floats(8, 3), G.integers(0, 8, (2, 4))
    inputs = {"x": x, "positions": at, "cosines": np.cos(angles), "sines": np.sin(angles)}
    rotary = own("rotary_embedding").rotary_embedding
    (y,) = run(lambda *v: rotary(*v, interleaved=interleaved), inputs)
    pairs = x.reshape(2, 3, 4, 3, 2) if interleaved else np.moveaxis(x.reshape(2, 3, 4, 2, 3), 3, 4)
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angles[at][:, None])
    expected = np.stack([turned.real, turned.imag], -1)
    expected = expected.reshape(x.shape) if interleaved else np.moveaxis(expected, 4, 3).reshape(x.shape)
    assert np.allclose(y, expected, atol=1e-5)


def test_nms(own):
    corner = G.uniform(0, 4, (12, 2))
    boxes, scores = np.concatenate([corner, corner + G.uniform(1, 3, (12, 2))], 1).astype(np.float32), floats(12)
    kept, count = run(own("nms").nms, {"boxes": boxes, "scores": scores})
    expected: list[int] = []
    for a in np.argsort(-scores, kind="stable"):
        ends = [(np.maximum(boxes[a, :2], boxes[k, :2]), np.minimum(boxes[a, 2:], boxes[k, 2:])) for k in expected]
        both = [np.prod(np.maximum(high - low, 0)) for low, high in ends]
        areas = [np.prod(boxes[a, 2:] - boxes[a, :2]) + np.prod(boxes[k, 2:] - boxes[k, :2]) for k in expected]
        if all(i / (area - i) <= 0.5 for i, area in zip(both, areas)):
            expected.append(int(a))
    assert 1 < len(expected) < 12
    assert kept[: count[0]].tolist() == expected
    assert set(kept[count[0] :].tolist()) == {-1}


def test_deform_conv(own):
    x, w, offset, bias = floats(1, 2, 5, 4), floats(3, 2, 2, 3), floats(1, 12, 3, 1), floats(3)
    conv = own("deform_conv").deform_conv
    (y,) = run(
        lambda x, w, offset, bias: conv(x, w, offset, bias, stride=2, pad=1),
        {"x": x, "w": w, "offset": offset[:, :, :, [0, 0]], "bias": bias},
    )
    expected = np.zeros((1, 3, 3, 2))
    for i, j, k in np.ndindex(3, 2, 6):
        v, u = i * 2 - 1 + k // 3 + offset[0, 2 * k, i, 0], j * 2 - 1 + k % 3 + offset[0, 2 * k + 1, i, 0]
        for a, e in np.ndindex(2, 2):
            p, q = math.floor(v) + a, math.floor(u) + e
            if 0 <= p < 5 and 0 <= q < 4:
                expected[0, :, i, j] += (1 - abs(v - p)) * (1 - abs(u - q)) * (w[:, :, k // 3, k % 3] @ x[0, :, p, q])
    assert np.allclose(y, expected + bias[:, None, None], atol=1e-4)


def test_rms_norm(own):
    x, gamma = floats(3, 5), floats(5)
    y, r = run(own("rms_norm").rms_norm, {"x": x, "gamma": gamma})
    root = 1 / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
    assert np.allclose(r, root, rtol=1e-5)
    assert np.allclose(y, x * root * gamma, rtol=1e-4, atol=1e-6)


def test_dropout(own):
    x, seed, dropout = np.ones((40, 50), np.float32), np.array([1, 2], np.uint32), own("dropout").dropout
    (one,) = run(lambda x, seed: dropout(x, seed, ratio=0.25), {"x": x, "seed": seed})
    (two,) = run(lambda x, seed: dropout(x, seed, ratio=0.25), {"x": x, "seed": seed + 1})
    assert set(np.unique(one)) == {0, np.float32(1 / 0.75)}
    assert 0.2 < (one == 0).mean() < 0.3
    assert (one != two).any()
    with populus.Builder() as b:
        b.output("y", dropout(b.input("x", x.shape), b.input("seed", (2,), "uint32"), ratio=0.25))
    _, slopes = populus.vjp(b.module(), ["x"]).run({"x": x, "seed": seed}, {"y": x})
    assert slopes["x"].tolist() == one.tolist()  # the mask of the gradient is that of the value


@pytest.mark.parametrize("engine", ["numpy", "strict", "native"])
def test_scan(engine, own):
    a, u = G.uniform(-0.9, 0.9, (2, 6, 3)).astype(np.float32), floats(2, 6, 3)
    (h,) = run(own("scan").scan, {"a": a, "u": u}, engine=engine)
    expected = np.zeros_like(u)
    for t in range(6):
        expected[:, t] = u[:, t] + (a[:, t] * expected[:, t - 1] if t else 0)
    assert np.allclose(h, expected, atol=1e-5)


def test_sparse_embedding(own):
    table, at, embedding = floats(5, 3), np.array([4, 1, 4, 2]), own("sparse_embedding").sparse_embedding
    with populus.Builder() as b:
        b.output("y", embedding(b.input("table", (5, 3)), b.input("at", (4,), "int64"), padding=2))
    g = floats(4, 3)
    got, slopes = populus.vjp(b.module(), ["table"]).run({"table": table, "at": at}, {"y": g})
    assert got["y"].tolist() == np.where((at == 2)[:, None], 0, table[at]).tolist()
    expected = np.zeros_like(table)
    np.add.at(expected, at[at != 2], g[at != 2])
    assert np.allclose(slopes["table"], expected, rtol=1e-6)
