"""Each kernel against NumPy written out, and against itself on the same family cut into other boxes; on NumPy and as native code."""

import itertools
import random

import numpy as np
import pytest

import populus.runtime.engine.engine as plain_engine
import populus.runtime.engine.native.run.program as native_engine
from populus.dialects.poplar.codelets import CODELETS
from populus.dialects.support.diagnostics import PopulusError, verify
from populus.dialects.support.element_types import element_of
from populus.dialects.support.parser import LocatingParser
from populus.dialects.table import context
from populus.runtime.session import Session


def tensor(shape, dtype):
    return f"!poplar.tensor<{''.join(f'{n}x' for n in shape)}{element_of(np.dtype(dtype))}>"


def family_program(codelet, params, domain, fields, arrays, out):
    """A program of one family: `fields` maps a name to its access, `arrays` are its inputs, `out` is (shape, dtype)."""
    storage, connections, last = [], [], ("", "")
    for name, access in fields.items():
        output = name not in arrays
        shape, dtype = out if output else (arrays[name].shape, arrays[name].dtype)
        type = tensor(shape, dtype)
        storage.append(f'%{name} = poplar.var "{name}" : {type}')
        if not output:
            storage.append(f'poplar.stream_in "{name}" to %{name} : {type}')
        connections.append(f"{'out' if output else 'in'} {name} = %{name}[{access}] : {type}")
        last = name, type
    text = (
        "poplar.graph @main target <host, tiles = 4096> {\n" + "\n".join(storage)
        + f'\npoplar.execute "step" {{ poplar.family @{codelet} {params} for ({domain}) on ({on(domain)})\n'
        + "\n".join(connections) + f'\n}}\npoplar.stream_out %{last[0]} to "{last[0]}" : {last[1]}\n}}'
    )  # fmt: skip
    module = LocatingParser(context(), text).parse_module()
    verify(module)
    return module


def on(domain):
    return ", ".join(part.split("=")[0].strip() for part in domain.split(","))


ENGINE = "numpy"


@pytest.fixture(params=["numpy", "native"], autouse=True)
def engine(request, monkeypatch):
    """Everything here holds for both."""
    monkeypatch.setitem(globals(), "ENGINE", request.param)


def run(module, arrays, monkeypatch=None):
    """The output of the engine; with `monkeypatch`, in the boxes of the family as they are stated."""
    if monkeypatch is None:
        [y] = Session(module, ENGINE).run(arrays).values()
        return y
    with monkeypatch.context() as patched:
        for where in (plain_engine, native_engine):
            patched.setattr(where, "collapsed", lambda family: family.space)
        [y] = Session(module, ENGINE).run(arrays).values()
    return y


def axis(rng, name, n, cut=True):
    """`name = n in parts by grain`, parts drawn at random."""
    grain = rng.choice([1, 1, 2, 3])
    parts = rng.randint(1, max(1, min(4, -(-n // grain)))) if cut else 1
    return f"{name} = {n} in {parts} by {grain}", parts


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def normal(seed, shape, dtype="f4"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# -- convolutions ------------------------------------------------------------------------------------------------------


def convolution(x, w, strides, dilations, pads, groups):
    """By its definition, in float64. x: [b, g ic, size..], w: [g oc, ic, k..]."""
    n = x.ndim - 2
    x = np.pad(x.astype("f8"), [(0, 0), (0, 0), *pads])
    out = [(x.shape[2 + d] - dilations[d] * (w.shape[2 + d] - 1) - 1) // strides[d] + 1 for d in range(n)]
    b, ic, oc = x.shape[0], w.shape[1], w.shape[0] // groups
    y = np.zeros((b, groups, oc, *out))
    for k in np.ndindex(*w.shape[2:]):
        window = x[
            (
                slice(None),
                slice(None),
                *(slice(k[d] * dilations[d], k[d] * dilations[d] + (out[d] - 1) * strides[d] + 1, strides[d]) for d in range(n)),
            )
        ]
        window = window.reshape(b, groups, ic, *out)
        weight = w[(slice(None), slice(None), *k)].reshape(groups, oc, ic).astype("f8")
        y += np.einsum("bgi...,goi->bgo...", window, weight)
    return y.reshape(b, groups * oc, *out)


def conv_case(seed, depthwise=False):
    rng = random.Random(seed)
    n = rng.choice([1, 2, 2, 2, 3])
    groups = rng.choice([1, 1, 1, 2, 5])
    b, ic, oc = rng.choice([1, 2, 3]), rng.choice([1, 1, 3, 5]), rng.choice([1, 1, 4, 6])
    if depthwise:
        groups, ic, oc = 5, 1, 1
    kernel = [rng.choice([1, 1, 2, 3]) for _ in range(n)]
    strides = [rng.choice([1, 1, 2, 3]) for _ in range(n)]
    dilations = [rng.choice([1, 1, 2]) for _ in range(n)]
    pads = [(rng.choice([0, 0, 1, 2]), rng.choice([0, 0, 1, 2])) for _ in range(n)]
    size = [dilations[d] * (kernel[d] - 1) + 1 + rng.randint(0, 7) for d in range(n)]
    x, w = normal(seed, (b, groups * ic, *size)), normal(seed + 1, (groups * oc, ic, *kernel))
    expected = convolution(x, w, strides, dilations, pads, groups)
    grouped = groups > 1
    g = [groups] if grouped else []
    x, w = x.reshape(b, *g, ic, *size), w.reshape(*g, oc, ic, *kernel)
    out = expected.shape[2:]
    axes, contracted = [axis(rng, "b", b)[0]], []
    axes += [axis(rng, "g", groups)[0]] if grouped else []
    axes.append(axis(rng, "oc", oc)[0])
    text, parts = axis(rng, "ic", ic, rng.random() < 0.4)
    axes.append(text)
    contracted += [("ic", parts)] if parts > 1 else []
    axes += [axis(rng, f"o{d}", out[d])[0] for d in range(n)]
    for d in range(n):
        text, parts = axis(rng, f"k{d}", kernel[d], rng.random() < 0.4)
        axes.append(text)
        contracted += [(f"k{d}", parts)] if parts > 1 else []
    rng.shuffle(contracted)
    middle = ["g"] if grouped else []
    reach = [f"o{d} * {strides[d]} + k{d} * {dilations[d]} - {pads[d][0]}" for d in range(n)]
    fields = {
        "x": ", ".join(["b", *middle, "ic", *reach]),
        "w": ", ".join([*middle, "oc", "ic", *(f"k{d}" for d in range(n))]),
        "y": ", ".join([*(f"at {a}" for a, _ in contracted), "b", *middle, "oc", *(f"o{d}" for d in range(n))]),
    }
    shape = (*(p for _, p in contracted), b, *g, oc, *out)
    return ", ".join(axes), fields, {"x": x, "w": w}, shape, expected, len(contracted)


@pytest.mark.parametrize("seed", range(120))
def test_conv_is_its_definition_however_it_is_cut(seed, monkeypatch):
    domain, fields, arrays, shape, expected, parts = conv_case(seed)
    module = family_program("conv", "", domain, fields, arrays, (shape, "f4"))
    whole, cut = run(module, arrays), run(module, arrays, monkeypatch)
    scale = max(1.0, np.abs(expected).max())
    total = whole.astype("f8").sum(tuple(range(parts))).reshape(expected.shape)
    assert np.abs(total - expected).max() <= 1e-5 * scale
    assert np.abs(whole - cut).max() <= 1e-6 * scale


@pytest.mark.parametrize("seed", range(300, 340))
def test_depthwise_conv_is_its_definition_however_it_is_cut(seed, monkeypatch):
    domain, fields, arrays, shape, expected, parts = conv_case(seed, depthwise=True)
    for dtype, tolerance in (("f4", 1e-6), ("f2", 1e-2)):
        given = {name: a.astype(dtype) for name, a in arrays.items()}
        module = family_program("conv", "", domain, fields, given, (shape, dtype))
        whole, cut = run(module, given), run(module, given, monkeypatch)
        total = whole.astype("f8").sum(tuple(range(parts))).reshape(expected.shape)
        assert np.abs(total - expected).max() <= 5 * tolerance * max(1.0, np.abs(expected).max())
        assert np.abs(whole - cut).max() <= tolerance * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("seed", range(200, 220))
def test_conv_of_halves_sums_in_floats(seed):
    domain, fields, arrays, shape, _, _ = conv_case(seed)
    halves = {name: a.astype("f2") for name, a in arrays.items()}
    floats = {name: a.astype("f4") for name, a in halves.items()}
    expected = run(family_program("conv", "", domain, fields, floats, (shape, "f4")), floats)
    partials = run(family_program("conv", "", domain, fields, halves, (shape, "f4")), halves)
    rounded = run(family_program("conv", "", domain, fields, halves, (shape, "f2")), halves)
    assert np.abs(partials - expected).max() <= 1e-6 * max(1, np.abs(expected).max())
    assert same_bits(rounded, partials.astype("f2"))


def test_conv_of_a_large_image_unfolds_some_rows_at_a_time(monkeypatch):
    import populus.runtime.codelets.contraction as contraction

    domain, fields, arrays, shape, expected, _ = conv_case(2)
    module = family_program("conv", "", domain, fields, arrays, (shape, "f4"))
    whole = run(module, arrays)
    for bytes in (1, 300, 1000):
        monkeypatch.setattr(contraction, "COLUMN_BYTES", bytes)
        monkeypatch.setattr(contraction, "TAP_BYTES", bytes)
        assert np.abs(run(module, arrays) - whole).max() <= 1e-6 * np.abs(expected).max()


def test_conv_without_input_channels_is_zero():
    arrays = {"x": np.zeros((1, 0, 4), "f4"), "w": np.zeros((3, 0, 2), "f4")}
    fields = {"x": "b, ic, o0 * 1 + k0", "w": "oc, ic, k0", "y": "b, oc, o0"}
    module = family_program("conv", "", "b = 1, oc = 3, ic = 0, o0 = 3, k0 = 2", fields, arrays, ((1, 3, 3), "f4"))
    assert same_bits(run(module, arrays), np.zeros((1, 3, 3), "f4"))


# -- matrix products ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "out"), [("f4", "f4"), ("f2", "f4"), ("f2", "f2"), ("i1", "i4"), ("i4", "i4"), ("f8", "f8"), ("u8", "u8")]
)
def test_matmul_is_a_product_per_group(dtype, out, monkeypatch):
    rng = np.random.default_rng(0)
    draw = rng.standard_normal if np.dtype(dtype).kind == "f" else lambda shape: rng.integers(0, 100, shape)
    arrays = {"a": draw((3, 5, 7)).astype(dtype), "b": draw((3, 7, 4)).astype(dtype)}
    fields = {"a": "g, m, k", "b": "g, k, n", "c": "at k, g, m, n"}
    domain = "g = 3 in 2, m = 5 in 2 by 2, n = 4 in 2, k = 7 in 3"
    module = family_program("matmul", "", domain, fields, arrays, ((3, 3, 5, 4), out))
    expected = np.stack(
        [arrays["a"][:, :, s].astype("f8") @ arrays["b"][:, s].astype("f8") for s in (slice(0, 3), slice(3, 5), slice(5, 7))]
    )
    whole, cut = run(module, arrays), run(module, arrays, monkeypatch)
    tolerance = {"f2": 2e-3, "f4": 1e-6, "f8": 1e-14}.get(out, 0)
    assert np.abs(whole - expected).max() <= tolerance * np.abs(expected).max()
    assert np.abs(whole.astype("f8") - cut.astype("f8")).max() <= tolerance * np.abs(expected).max()


def test_matmul_of_integers_wraps_around():
    arrays = {"a": np.full((1, 1, 2), 2**31 - 1, "i4"), "b": np.full((1, 2, 1), 2, "i4")}
    module = family_program(
        "matmul", "", "g = 1, m = 1, n = 1, k = 2", {"a": "g, m, k", "b": "g, k, n", "c": "g, m, n"}, arrays, ((1, 1, 1), "i4")
    )
    assert run(module, arrays).item() == -4


@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_matmul_shares_a_right_hand_side_between_groups(dtype):
    arrays = {"a": normal(0, (4, 3, 5), dtype), "b": normal(1, (1, 5, 6), dtype)}
    fields = {"a": "g, m, k", "b": "0, k, n", "c": "g, m, n"}
    parsed = family_program("matmul", "", "g = 4, m = 3, n = 6, k = 5", fields, arrays, ((4, 3, 6), "f4"))
    expected = arrays["a"].astype("f8") @ arrays["b"].astype("f8")
    np.testing.assert_allclose(run(parsed, arrays), expected, atol=1e-5)
    wide = tensor((4, 5, 6), dtype)
    stretched = str(parsed).replace("%b[0, k, n] : " + tensor((1, 5, 6), dtype), f"%wide[g, k, n] : {wide}")
    view = f"%wide = poplar.broadcast %b : {tensor((1, 5, 6), dtype)} -> {wide}"
    stretched = stretched.replace("  poplar.execute", f"  {view}\n  poplar.execute")
    assert "%wide[g" in stretched
    np.testing.assert_allclose(run(LocatingParser(context(), stretched).parse_module(), arrays), expected, atol=1e-5)


# -- reductions --------------------------------------------------------------------------------------------------------

REDUCTIONS = {
    "add": np.add.reduce, "mul": np.multiply.reduce, "min": np.minimum.reduce, "max": np.maximum.reduce,
    "square_add": lambda x, axis: np.add.reduce(x * x, axis=axis),
}  # fmt: skip


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("axes", ["r0 d0 d1", "d0 r0 d1", "d0 d1 r0", "r0 d0 r1", "d0 r0 d1 r1 r2", "r0 r1 d0 d1", "r0 r1", "d1 r0 d0"])
@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_reduce_gives_the_same_bits_however_it_is_cut(op, axes, dtype, monkeypatch):
    rng = random.Random(f"{op} {axes}")
    names = axes.split()
    sizes = {name: rng.choice([1, 5, 13, 70, 130]) if name[0] == "r" else rng.choice([1, 6, 11]) for name in names}
    x = normal(3, [sizes[n] for n in names], dtype)
    kept, reduced = sorted(n for n in names if n[0] == "d"), [n for n in names if n[0] == "r"]
    expected = REDUCTIONS[op](x.astype("f8"), axis=tuple(i for i, n in enumerate(names) if n[0] == "r"))
    if kept == ["d0", "d1"] and names.index("d1") < names.index("d0"):
        expected = expected.T
    for cut_reduced in (False, True):
        declared = {n: axis(rng, n, sizes[n], n in kept or (cut_reduced and n == reduced[0])) for n in names}
        parts = declared[reduced[0]][1]
        lead = [f"at {reduced[0]}"] if parts > 1 else []
        shape = ([parts] if parts > 1 else []) + [sizes[n] for n in kept]
        fields = {"x": ", ".join(names), "y": ", ".join([*lead, *kept])}
        module = family_program(
            "reduce", f'{{op = "{op}"}}', ", ".join(t for t, _ in declared.values()), fields, {"x": x}, (shape, "f4" if lead else dtype)
        )
        whole, cut = run(module, {"x": x}), run(module, {"x": x}, monkeypatch)
        assert same_bits(whole, cut)
        total = (REDUCTIONS["add" if op == "square_add" else op](whole.astype("f8"), axis=0) if lead else whole).astype("f8")
        limit = max(np.abs(expected).max(), np.sqrt(x.size))
        assert np.abs(total - expected).max() <= (1e-5 if dtype == "f4" or lead else 2e-3) * limit


def test_reduce_of_nothing_is_the_identity():
    for op, value in {"add": 0, "mul": 1, "min": np.inf, "max": -np.inf}.items():
        x = np.zeros((3, 0), "f4")
        module = family_program("reduce", f'{{op = "{op}"}}', "d0 = 3, r0 = 0", {"x": "d0, r0", "y": "d0"}, {"x": x}, ((3,), "f4"))
        assert (run(module, {"x": x}) == value).all()


def test_reduce_of_one_element_reads_it_each_time():
    x = np.array(3.0, "f4")
    module = family_program("reduce", '{op = "add"}', "", {"x": "", "y": ""}, {"x": x}, ((), "f4"))
    session = Session(module, "numpy")
    assert [float(session.run({"x": np.array(v, "f4")})["y"]) for v in (2.0, 5.0)] == [2.0, 5.0]


def test_reduce_of_booleans():
    x = np.array([[True, True], [True, False], [False, False]])
    for op, expected in {"and": x.all(1), "or": x.any(1)}.items():
        module = family_program("reduce", f'{{op = "{op}"}}', "d0 = 3 in 2, r0 = 2", {"x": "d0, r0", "y": "d0"}, {"x": x}, ((3,), "bool"))
        assert same_bits(run(module, {"x": x}), expected)


def test_reduce_of_small_integers_wraps_around():
    x = np.full((2, 3), 100, "i1")
    module = family_program("reduce", '{op = "add"}', "d0 = 2, r0 = 3", {"x": "d0, r0", "y": "d0"}, {"x": x}, ((2,), "i1"))
    assert run(module, {"x": x}).tolist() == [44, 44]


# -- pools -------------------------------------------------------------------------------------------------------------


def pooled(x, kind, kernel, strides, dilations, pads, out, count_padding):
    y = np.zeros((*x.shape[:2], *out))
    for o in np.ndindex(*out):
        values, count = [], 0
        for k in np.ndindex(*kernel):
            at = [o[d] * strides[d] + k[d] * dilations[d] - pads[d][0] for d in range(len(out))]
            inside = all(0 <= a < n for a, n in zip(at, x.shape[2:]))
            padded = all(-p <= a < n + q for a, n, (p, q) in zip(at, x.shape[2:], pads))
            count += padded if count_padding else inside
            if inside:
                values.append(x[(slice(None), slice(None), *at)])
        match kind:
            case "max":
                y[(slice(None), slice(None), *o)] = np.max(values, axis=0) if values else -np.inf
            case "sum":
                y[(slice(None), slice(None), *o)] = np.sum(values, axis=0)
            case "square_sum":
                y[(slice(None), slice(None), *o)] = np.sum(np.square(values), axis=0)
            case _:
                y[(slice(None), slice(None), *o)] = np.sum(values, axis=0) / count
    return y


@pytest.mark.parametrize("seed", range(80))
def test_pool_is_its_definition_and_the_same_bits_however_it_is_cut(seed, monkeypatch):
    rng = random.Random(seed)
    n = rng.choice([1, 2, 2, 3])
    kernel = [rng.choice([1, 2, 3]) for _ in range(n)]
    strides, dilations = [rng.choice([1, 2, 3]) for _ in range(n)], [rng.choice([1, 1, 2]) for _ in range(n)]
    pads = [(rng.randint(0, k - 1), rng.randint(0, k - 1)) for k in kernel]
    size = [dilations[d] * (kernel[d] - 1) + 1 + rng.randint(0, 5) for d in range(n)]
    out = []
    for d in range(n):
        room = size[d] + sum(pads[d]) - dilations[d] * (kernel[d] - 1) - 1
        count = room // strides[d] + 1
        if rng.random() < 0.5 and (count * strides[d]) < size[d] + pads[d][0]:  # ONNX's ceil_mode
            count = max(count, min(-(-room // strides[d]) + 1, count + 1))
        out.append(count)
    kind, count_padding = rng.choice(["max", "average", "sum"] if seed < 60 else ["square_sum"]), rng.random() < 0.5
    x = normal(seed, (2, 3, *size), "f4")
    expected = pooled(x, kind, kernel, strides, dilations, pads, out, count_padding)
    axes = [axis(rng, "n", 2)[0], axis(rng, "c", 3)[0]]
    axes += [axis(rng, f"o{d}", out[d])[0] for d in range(n)] + [f"k{d} = {kernel[d]}" for d in range(n)]
    reach = [f"o{d} * {strides[d]} + k{d} * {dilations[d]} - {pads[d][0]}" for d in range(n)]
    fields = {"x": ", ".join(["n", "c", *reach]), "y": ", ".join(["n", "c", *(f"o{d}" for d in range(n))])}

    def ints(values):
        return f"array<i64: {', '.join(map(str, values))}>"

    params = f'{{kind = "{kind}", after = {ints([q for _, q in pads])}, count_padding = {str(count_padding).lower()}}}'
    for dtype in ("f4", "f2"):
        arrays = {"x": x.astype(dtype)}
        module = family_program("pool", params, ", ".join(axes), fields, arrays, ((2, 3, *out), dtype))
        whole = run(module, arrays)
        assert same_bits(whole, run(module, arrays, monkeypatch))
        np.testing.assert_allclose(whole.astype("f8"), expected, rtol=1e-5 if dtype == "f4" else 1e-2, atol=1e-5 if dtype == "f4" else 1e-2)


def test_pool_lets_nan_through_a_max():
    x = np.array([[[1, np.nan, 3, 4]]], "f4")
    params = '{kind = "max", after = array<i64: 0>, count_padding = false}'
    module = family_program(
        "pool", params, "n = 1, c = 1, o0 = 2, k0 = 2", {"x": "n, c, o0 * 2 + k0", "y": "n, c, o0"}, {"x": x}, ((1, 1, 2), "f4")
    )
    y = run(module, {"x": x})
    assert np.isnan(y[0, 0, 0])
    assert y[0, 0, 1] == 4


# -- rows --------------------------------------------------------------------------------------------------------------


def softmax(x, log):
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.log(e / e.sum(-1, keepdims=True)) if log else e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("dtype", ["f4", "f2"])
@pytest.mark.parametrize("codelet", ["softmax", "log_softmax", "whiten"])
@pytest.mark.parametrize("shape", [(7,), (5, 33), (2, 300, 260), (1, 3, 5, 8)])
def test_rows_are_their_formula_and_the_same_bits_however_they_are_cut(dtype, codelet, shape, monkeypatch):
    x = (normal(1, shape) * 3 + 20).astype(dtype)
    rng, wide = random.Random(1), x.astype("f8")
    if codelet == "whiten":
        name, params = "whiten", "{epsilon = 1.0e-05 : f32}"
        expected = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    else:
        name, params = "softmax", f"{{log = {'true' if 'log' in codelet else 'false'}}}"
        expected = softmax(wide, "log" in codelet)
    axes = [f"d{i}" for i in range(len(shape) - 1)]
    domain = ", ".join([*(axis(rng, a, n)[0] for a, n in zip(axes, shape)), f"r = {shape[-1]}"])
    access = ", ".join([*axes, "r"])
    module = family_program(name, params, domain, {"x": access, "y": access}, {"x": x}, (shape, dtype))
    whole = run(module, {"x": x})
    assert same_bits(whole, run(module, {"x": x}, monkeypatch))
    np.testing.assert_allclose(
        whole.astype("f8"), expected, rtol=0, atol=(2e-5 if dtype == "f4" else 2e-2) * max(1, np.abs(expected).max())
    )


# -- slices, fills, random numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_multi_slice_takes_along_a_dimension(dim, monkeypatch):
    arrays = {"table": normal(0, (4, 5, 6)), "indices": np.array([[3, 0, 1], [2, 2, 3]], "i4")}
    kept = [f"t{d}" if d != dim else "*" for d in range(3)]
    fields = {"table": ", ".join(kept), "indices": "i0, i1", "y": ", ".join([*kept[:dim], "i0", "i1", *kept[dim + 1 :]])}
    expected = np.take(arrays["table"], arrays["indices"], dim)
    sizes = {f"t{d}": n for d, n in enumerate((4, 5, 6)) if d != dim}
    domain = ", ".join([*(f"{t} = {n} in 2" for t, n in sizes.items()), "i0 = 2 in 2", "i1 = 3 in 2"])
    module = family_program("multi_slice", "", domain, fields, arrays, (expected.shape, "f4"))
    assert same_bits(run(module, arrays), expected)
    assert same_bits(run(module, arrays, monkeypatch), expected)


@pytest.mark.parametrize("index", [-1, 5])
def test_multi_slice_refuses_an_index_outside_the_table(index):
    arrays = {"table": normal(0, (5, 2)), "indices": np.array([0, index], "i8")}
    fields = {"table": "*, t1", "indices": "i0", "y": "i0, t1"}
    module = family_program("multi_slice", "", "t1 = 2, i0 = 2", fields, arrays, ((2, 2), "f4"))
    with pytest.raises(PopulusError, match=rf"index {index} is outside 0\.\.5 in execute 'step'"):
        run(module, arrays)


UPDATES = {"table": "d0, d1", "indices": "*", "updates": "*, d1", "y": "d0, d1"}


@pytest.mark.parametrize(
    ("op", "combine"), [("set", None), ("add", np.add), ("mul", np.multiply), ("min", np.minimum), ("max", np.maximum)]
)
@pytest.mark.parametrize("dtype", ["f4", "f2", "i8"])
def test_multi_update_combines_rows_in_order(op, combine, dtype, monkeypatch):
    arrays = {
        "table": (8 * normal(0, (6, 3))).astype(dtype),
        "indices": np.array([4, 0, 4, 5]),
        "updates": (8 * normal(1, (4, 3))).astype(dtype),
    }
    expected = arrays["table"].copy()
    for row, update in zip(arrays["indices"], arrays["updates"]):
        expected[row] = update if combine is None else combine(expected[row].astype("f4" if dtype == "f2" else dtype), update)
    fields = {"op": f'{{op = "{op}"}}', "domain": "d0 = 6 in 4, d1 = 3 in 2"}
    module = family_program("multi_update", fields["op"], fields["domain"], UPDATES, arrays, ((6, 3), dtype))
    assert same_bits(run(module, arrays, monkeypatch), run(module, arrays))
    np.testing.assert_allclose(run(module, arrays).astype("f8"), expected.astype("f8"), rtol=2e-3)


@pytest.mark.parametrize("index", [-1, 6])
def test_multi_update_refuses_an_index_outside_the_table(index):
    arrays = {"table": normal(0, (6, 3)), "indices": np.array([0, index]), "updates": normal(1, (2, 3))}
    module = family_program("multi_update", '{op = "add"}', "d0 = 6 in 2, d1 = 3", UPDATES, arrays, ((6, 3), "f4"))
    with pytest.raises(PopulusError, match=rf"index {index} is outside 0\.\.6 in execute 'step'"):
        run(module, arrays)


def test_top_k_keeps_the_order_of_equal_elements(monkeypatch):
    arrays = {"x": np.array([[1, 3, 2, 3], [2, 2, 2, 2], [0, np.nan, np.inf, 4]], "f4")}
    fields = {"x": "d0, *", "y": "d0, k"}
    for largest, expected in ((True, [[1, 3, 2], [0, 1, 2], [1, 2, 3]]), (False, [[0, 2, 1], [0, 1, 2], [0, 3, 2]])):
        module = family_program("top_k", f"{{largest = {str(largest).lower()}}}", "d0 = 3 in 2, k = 3", fields, arrays, ((3, 3), "i4"))
        assert run(module, arrays, monkeypatch).tolist() == expected


def test_a_parameter_may_be_what_the_library_call_allows():
    from populus.dialects.popnn import POOLINGS
    from populus.dialects.popops import REDUCTIONS
    from populus.dialects.popops.indexed import UPDATES
    from populus.dialects.poprand import DISTRIBUTIONS

    kinds = {name: c.params for name, c in CODELETS.items()}
    assert set(kinds["pool"]["kind"]) == set(POOLINGS)
    assert set(kinds["reduce"]["op"]) == set(REDUCTIONS)
    assert set(kinds["multi_update"]["op"]) == set(UPDATES)
    assert set(kinds["random"]["distribution"]) == set(DISTRIBUTIONS)


def test_fill_and_iota_know_their_type(monkeypatch):
    module = family_program("fill", "{value = -1 : i64}", "d0 = 5 in 2", {"y": "d0"}, {}, ((5,), "u1"))
    assert run(module, {}).tolist() == [255] * 5
    module = family_program("fill", "{value = 0.1 : f32}", "d0 = 3, d1 = 2", {"y": "d0, d1"}, {}, ((3, 2), "f2"))
    assert same_bits(run(module, {}), np.full((3, 2), 0.1, "f2"))
    module = family_program("iota", "{start = 3 : i64, step = -2 : i64}", "d0 = 7 in 3", {"y": "d0"}, {}, ((7,), "i4"))
    assert run(module, {}, monkeypatch).tolist() == list(range(3, -11, -2))


@pytest.mark.parametrize("distribution", ["uniform", "normal", "bernoulli"])
def test_random_numbers_do_not_depend_on_the_cut(distribution, monkeypatch):
    seed = {"seed": np.array([7, 9], "u4")}
    params = f'{{distribution = "{distribution}", a = 0.25 : f32, b = 2.0 : f32, stream = 3 : i64}}'
    fields = {"seed": "*", "y": "d0, d1, d2"}
    drawn = []
    for domain in ("d0 = 6, d1 = 5, d2 = 7", "d0 = 6 in 4, d1 = 5, d2 = 7", "d0 = 6 in 2, d1 = 5 in 3, d2 = 7 in 2 by 2"):
        module = family_program("random", params, domain, fields, seed, ((6, 5, 7), "f4"))
        drawn += [run(module, seed), run(module, seed, monkeypatch)]
    assert all(same_bits(drawn[0], other) for other in drawn)


# -- maps --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expression", ["add(mul(_1, _2), _3)", "tanh(add(_1, _2))", "exp(sub(_1, _3))", "select(_1, _2, gt(_1, _3))"])
def test_map_stretches_small_operands_and_gives_the_same_bits_however_it_is_cut(expression, monkeypatch):
    arrays = {"x1": normal(0, (5, 37, 9)), "x2": normal(1, (1, 37, 1)), "x3": normal(2, (1, 1, 9))}
    fields = {"x1": "d0, d1, d2", "x2": "0, d1, 0", "x3": "0, 0, d2", "y": "d0, d1, d2"}
    module = family_program(
        "map", f"{{expr = #expr.fn<{expression}>}}", "d0 = 5 in 3, d1 = 37 in 5, d2 = 9 in 2", fields, arrays, ((5, 37, 9), "f4")
    )
    assert same_bits(run(module, arrays), run(module, arrays, monkeypatch))


def test_kernels_leave_their_inputs_alone():
    for seed in itertools.chain(range(8)):
        domain, fields, arrays, shape, _, _ = conv_case(seed)
        before = {name: a.copy() for name, a in arrays.items()}
        run(family_program("conv", "", domain, fields, arrays, (shape, "f4")), arrays)
        assert all(same_bits(before[name], arrays[name]) for name in arrays)
