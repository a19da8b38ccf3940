"""What Graphcore's package popxl_addons asks of PopXL: its ops in C++, names, and habits. The package itself is not needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from hashlib import sha256
from textwrap import dedent

import numpy as np
import pytest

from populus import popxl
from populus.dialects.support.diagnostics import PopulusError
from populus.popxl import ops
from populus.popxl.addons import bindings, collectives, layers
from populus.popxl.addons.bindings import BINDINGS, binding, binding_of_text
from populus.popxl.transforms import autodiff

G = np.random.default_rng(5)
Build = Callable[..., popxl.Tensor]


def normal(*shape: int) -> np.ndarray:
    return G.normal(size=shape).astype(np.float32)


def value(build: Build, *arrays: np.ndarray) -> np.ndarray:
    """Gives what a program makes of variables."""
    ir = popxl.Ir()
    with ir.main_graph:
        made = build(*(popxl.variable(a) for a in arrays))
        out = popxl.d2h_stream(made.shape, made.dtype)
        ops.host_store(out, made)
    with popxl.Session(ir, "cpu", engine="numpy") as session:
        return session.run()[out]


def on_replicas(build: Build, given: Sequence[np.ndarray], gradient: np.ndarray | None = None) -> list[np.ndarray]:
    """Gives the result of each replica, and with a cotangent, which is the same on all, the gradient of the first array."""
    ir = popxl.Ir(replication=len(given[0]))
    with ir.main_graph:
        streams = [popxl.h2d_stream(a.shape[1:], popxl.dtypes.dtype.as_dtype(a.dtype)) for a in given]
        inputs = [ops.host_load(s) for s in streams]
        graph = ir.create_graph(build, *inputs)
        site = ops.call_with_info(graph, *inputs)
        results = list(site.outputs)
        if gradient is not None:
            info = autodiff(graph, grads_required=graph.inputs[:1])
            results += ops.call(info.graph, popxl.constant(gradient), inputs_dict=info.inputs_dict(site))
        outs = [popxl.d2h_stream(t.shape, t.dtype) for t in results]
        for out, t in zip(outs, results, strict=True):
            ops.host_store(out, t)
    with popxl.Session(ir, "ipu_hw", engine="numpy", tiles=2) as session:
        found = session.run(dict(zip(streams, given, strict=True)))
    return [found[out] for out in outs]


def test_the_modules_in_c_are_ours_and_need_no_compiler(tmp_path):
    folder = tmp_path / "popxl_addons" / "ops" / "rotary_pos_embed"
    folder.mkdir(parents=True)
    for place in (folder, folder.parent, folder.parents[1]):
        (place / "__init__.py").write_text("")
    (tmp_path / "train.py").write_text(
        dedent("""
        import cppimport.import_hook
        from popxl_addons.ops.rotary_pos_embed import rotary_pos_embed_binding
        print(sorted(n for n in vars(rotary_pos_embed_binding) if n.endswith("Op")))
        try:
            import popxl_addons.ops.other_binding
        except ModuleNotFoundError as error:
            print(error)
        """)
    )
    command = [sys.executable, "-m", "populus", "run-program", "train.py"]
    got = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (got.stdout, got.stderr) == ("['RotaryPosEmbedOp']\nNo module named 'popxl_addons.ops.other_binding'\n", "")


def test_the_package_that_compiles_keeps_its_other_modules(tmp_path):
    folder = tmp_path / "cppimport"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "find.py").write_text("FOUND = 'its own'")
    (folder / "import_hook.py").write_text("raise RuntimeError('compiles C++')")
    (tmp_path / "train.py").write_text("import cppimport.import_hook\nfrom cppimport.find import FOUND\nprint(FOUND)")
    command = [sys.executable, "-m", "populus", "run-program", "train.py"]
    got = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (got.stdout, got.stderr) == ("its own\n", "")


def test_an_op_is_made_by_the_names_of_its_tensors():
    module = binding("linear_layout.linear_layout_impl")
    ir = popxl.Ir()
    with ir.main_graph as main:
        t = popxl.variable(normal(3))
        op = module.LinearLayoutOp.create_op_in_graph(
            graph=main._pb_graph, inputs={0: t.id}, outputs={0: "y"}, params=module.LinearLayoutParams(1), settings="linear_layout"
        )
        assert op.opType() == "LinearLayout"
        assert op.outTensor(0).tensor.shape == (3,)
    assert len(BINDINGS) == 13


def test_rotary_embeddings_turn_neighbours():
    t, angle = normal(2, 3, 2, 6), normal(1, 3, 2)
    found = value(lambda *a: layers.rotary_pos_embed(*a, 4), t, np.sin(angle), np.cos(angle))
    turned = (t[..., 0:4:2] + 1j * t[..., 1:4:2]) * np.exp(1j * angle)[:, :, None]
    expected = np.concatenate([np.stack([turned.real, turned.imag], -1).reshape(2, 3, 2, 4), t[..., 4:]], -1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_rotary_embeddings_of_public_programs_turn_halves():
    t, angle = normal(2, 3, 2, 6), normal(1, 3, 2)
    found = value(lambda *a: layers.rotary_halves(*a, 4), t, np.sin(angle), np.cos(angle))
    turned = (t[..., 0:2] + 1j * t[..., 2:4]) * np.exp(1j * angle)[:, :, None]
    np.testing.assert_allclose(found, np.concatenate([turned.real, turned.imag, t[..., 4:]], -1), rtol=1e-5, atol=1e-6)


def test_a_programs_own_cpp_is_known_by_its_text_alone(tmp_path, monkeypatch):
    text = "// cppimport\nint turned();\n"
    (tmp_path / "rotary_pos_embed_binding.cpp").write_text(text)
    with pytest.raises(PopulusError, match="layers.rotary_pos_embed_binding is compiled C.., which does not run here; write what rotary"):
        binding_of_text("layers.rotary_pos_embed_binding", tmp_path)
    known = {"RotaryPosEmbedOp": object()}
    monkeypatch.setitem(bindings.BY_TEXT, sha256(text.encode()).hexdigest(), known)
    made = binding_of_text("layers.rotary_pos_embed_binding", tmp_path)
    assert made is not None and made.RotaryPosEmbedOp is known["RotaryPosEmbedOp"]
    (tmp_path / "rotary_pos_embed_binding.cpp").write_text("// for a build of its own")
    assert binding_of_text("layers.rotary_pos_embed_binding", tmp_path) is None


def test_a_program_that_compiles_its_ops_is_refused_in_one_line(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").write_text("")
    (tmp_path / "own" / "cube_binding.cpp").write_text("// cppimport")
    (tmp_path / "train.py").write_text("import cppimport.import_hook\nfrom own import cube_binding")
    command = [sys.executable, "-m", "populus", "run-program", "train.py"]
    got = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    said = "own.cube_binding is compiled C++, which does not run here; write what cube_binding.cpp computes with functions of popxl.ops"
    assert (got.returncode, got.stderr) == (1, f"populus: train.py:2: {said}\n")


def test_words_hold_four_numbers():
    numbers = G.integers(0, 16, (2, 3, 2, 4))
    words = (numbers << np.array([12, 8, 4, 0])).sum(-1).astype(np.uint16)
    scale, bias = (normal(2, 3, 1).astype(np.float16) for _ in range(2))
    found = value(layers.group_quantize_decompress, words, scale, bias)
    np.testing.assert_allclose(found, (numbers.reshape(2, 3, 8) * scale + bias).reshape(2, 24), rtol=5e-3, atol=5e-3)


def test_a_sparse_product_and_squares():
    dense = np.array([[0, 2, 0], [1, 0, 3]], np.float32)
    params = layers.DenseSparseMatMulParams(np.float32([2, 1, 3]), np.uint32([1, 0, 2]), np.uint32([0, 1, 3]), 3)
    x = normal(4, 2)
    np.testing.assert_allclose(value(lambda t: layers.dense_sparse_matmul(t, params), x), x @ dense, rtol=1e-6)
    large = np.full(100, 60, np.float16)  # its squares do not fit f16
    assert value(layers.grad_reduce_square_add, large, np.float32(0.5)) == 180_000


def test_an_8_bit_float_s_scale_is_the_middle_of_the_best():
    params = layers.Fp8ScalingBiasParams(85, 2.0**-40, 18)
    # exponent 5 is bin 131, within the range of the biases 29 to 46
    assert value(lambda t: layers.fp8_scale(t, params), np.full(7, 48, np.float32)) == -(29 + 9 - 31)


SAME = [(False, False), (True, False), (False, True)]


@pytest.mark.parametrize(("inputs", "gradients"), SAME)
def test_sums_of_what_is_the_same_on_all_replicas(inputs, gradients):
    x, g = normal(4, 3), normal(3)
    found, dx = on_replicas(lambda t: collectives.all_reduce_strided(t, "add", 2, 2, inputs, gradients), [x], g)
    groups = x[[0, 1]] + x[[2, 3]]
    np.testing.assert_allclose(found, x if inputs else groups[[0, 1, 0, 1]], rtol=1e-6)
    np.testing.assert_allclose(dx, np.broadcast_to(g if gradients else 2 * g, x.shape), rtol=1e-6)
    with pytest.raises(PopulusError, match="is there, not by 'max'"):
        on_replicas(lambda t: collectives.all_reduce_strided(t, "max", 2, 2, inputs, gradients), [x])


def test_a_cross_entropy_over_replicas_is_that_of_all_classes():
    logits, labels, g = normal(2, 3, 4) * 5, np.array([0, 6, 3], np.int32), normal(3)
    own = np.stack([labels, labels - 4])
    group = popxl.Ir(replication=2).replica_grouping()
    found, dx = on_replicas(lambda t, y: collectives.cross_entropy_sharded(t, y, group), [logits, own], g)
    whole = np.concatenate(list(logits), 1).astype(np.float64)
    p = np.exp(whole) / np.exp(whole).sum(1, keepdims=True)
    each = -np.log(p[np.arange(3), labels])
    np.testing.assert_allclose(found, np.stack([each, each]), rtol=1e-5)
    expected = (p - np.eye(8)[labels]) * g[:, None]
    np.testing.assert_allclose(np.concatenate(list(dx), 1), expected, rtol=1e-4, atol=1e-6)


def test_a_layer_norm_over_replicas_is_that_of_all_features():
    x, w, b = normal(2, 3, 4) + 5, normal(2, 4), normal(2, 4)
    group = popxl.Ir(replication=2).replica_grouping()
    (found,) = on_replicas(lambda t, w, b: collectives.layer_norm_distributed(t, w, b, 1e-5, group), [x, w, b])
    whole = np.concatenate(list(x), 1)
    normed = (whole - whole.mean(1, keepdims=True)) / np.sqrt(whole.var(1, keepdims=True) + 1e-5)
    expected = normed * np.concatenate(list(w)) + np.concatenate(list(b))
    np.testing.assert_allclose(np.concatenate(list(found), 1), expected, rtol=1e-4, atol=1e-5)


def test_shards_are_gathered_and_scattered():
    x = normal(2, 5)
    (gathered,) = on_replicas(lambda t: collectives.all_gather_strided(t, 1, 2), [x])
    np.testing.assert_array_equal(gathered, np.stack([x.reshape(-1)] * 2))
    for op, expected in (("add", x.sum(0)), ("mean", x.mean(0))):
        (parts,) = on_replicas(lambda t, op=op: collectives.reduce_scatter_strided(t, op, 1, 2, True), [x])
        np.testing.assert_allclose(parts.reshape(-1), [*expected, 0], rtol=1e-6)


def test_a_remote_buffer_grows_after_a_graph_uses_it():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(np.float32([1, 2]))
        buffer = popxl.remote_buffer((2,), popxl.float32, entries=1)
        ops.call(ir.create_graph(lambda t: ops.remote_store(buffer, 0, t), x), x)
        buffer.entries = 3
        ops.remote_store(buffer, 2, x * 10)
        out = popxl.d2h_stream((2,), popxl.float32)
        ops.host_store(out, ops.remote_load(buffer, 0) + ops.remote_load(buffer, 2))
    with popxl.Session(ir, "cpu", engine="numpy") as session:
        assert session.run()[out].tolist() == [11, 22]


def test_outputs_are_taken_away_by_the_positions_that_they_had():
    ir = popxl.Ir()
    with ir.main_graph:
        graph = ir.create_graph(lambda x: (x, x * 2, x * 3), popxl.variable(1.0))
    for position in (1, 2):
        graph._pb_graph.removeOutput(position)
    assert len(graph.outputs) == 1


def test_sizes_may_be_integers_of_numpy():
    with popxl.Ir().create_empty_graph("sizes"):
        assert popxl.graph_input(np.array([2, 3]), popxl.float32, "t").shape == (2, 3)


def test_shards_and_sums_are_named_after_their_tensors():
    ir = popxl.Ir(replication=2)
    with ir.main_graph:
        t = popxl.variable(normal(4), name="weight")
        collective = ops.collectives
        made = [collective.replica_sharded_slice(t), collective.replicated_reduce_scatter(t), collective.replicated_all_reduce(t)]
    assert [m.name for m in made] == ["weight_sharded_slice", "weight_reduce_scattered", "weight_all_reduce"]
