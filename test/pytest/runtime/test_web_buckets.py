"""Programs for wasm32 of models with open dimensions: one for each bucket, in one module, with the bits of the native engine."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import helper

import populus
from helpers import web
from helpers.built_nets import cache, compiled, model, net, normal
from helpers.web import Run, needs_node
from populus.dialects.support.diagnostics import PopulusError
from populus.program.building import frozen_program
from populus.runtime.engine.native.codegen.cpu import machine
from populus.tools.main import main


def products(rows="n"):
    """Two products with a matrix each, of any number of rows."""
    nodes = [
        helper.make_node("MatMul", ["x", "up"], ["h"], name="up"),
        helper.make_node("Softmax", ["h"], ["s"], name="shares"),
        helper.make_node("MatMul", ["s", "down"], ["y"], name="down"),
    ]
    weights = {"up": normal(96, 200), "down": normal(200, 64)}
    return model(nodes, [("x", [rows, 96])], [("y", [rows, 64])], weights)


def images():
    """Convolutions of 3x3 on images of any size, whose weights loading transforms."""
    weights = {"w": normal(32, 32, 3, 3), "v": 2 * normal(32, 32, 3, 3), "b": normal(32)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c", "v"], ["d"], name="second", pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["d"], ["y"], name="mean"),
    ]
    return model(nodes, [("x", [1, 32, "h", "h"])], [("y", [1, 32, 1, 1])], weights)


def same(run, expected, bits):
    """Outputs of a run against the native engine's: bit for bit where both fuse products, or neither does."""
    assert "error" not in run, run
    for name, e in expected.items():
        if (bits == "native") == machine().fused:
            assert run["outputs"][name] == e.tobytes(), name
        else:
            np.testing.assert_allclose(np.frombuffer(run["outputs"][name], e.dtype), e.ravel(), rtol=0, atol=2e-6 * np.abs(e).max())


def shaped(array):
    return {"x": (array, list(array.shape))}


@needs_node
@pytest.mark.parametrize(
    ("make", "buckets", "given"),
    [
        (products, [1, 4, 16], [normal(n, 96) for n in (3, 1, 16, 2, 4, 5)]),
        (lambda: products("batch-size"), [2, 4], [normal(n, 96) for n in (3, 1)]),
        (images, [12, 24], [normal(1, 32, n, n) for n in (7, 24, 12, 3, 13)]),
    ],
)
def test_each_size_takes_its_bucket_and_has_the_bits_of_the_native_engine(make, buckets, given, tmp_path):
    program = compiled(make(), buckets=buckets)
    populus.build(program, tmp_path, cpu="wasm32", relaxed=True)
    assert program.compilations == len(buckets)
    (came,) = web.ran([Run(tmp_path, [shaped(x) for x in given])])
    for x, run in zip(given, came["runs"], strict=True):
        same(run, program.run({"x": x}), came["bits"])


def test_weights_of_a_form_that_buckets_share_are_in_the_file_once():
    for make, buckets in ((products, [8, 16, 32]), (images, [24, 48])):
        one, all = (frozen_program(compiled(make(), buckets=b), "wasm32", {}).form for b in (buckets[-1:], buckets))
        weights = [sum(c.nbytes for c in form.constants if c.nbytes > 20_000) for form in (one, all)]
        assert weights[0] == weights[1] > 0
        assert all.packed == one.packed
        assert all.memory < 1.1 * one.memory, "one bucket runs at a time, in the same memory"


def test_kernels_that_buckets_share_are_in_the_module_once():
    one, all = (frozen_program(compiled(products(), buckets=b), "wasm32", {}) for b in ([32], [16, 24, 32]))
    assert all.form.steps > 2 * one.form.steps
    assert len(all.kernels) < 2 * len(one.kernels)


@needs_node
def test_a_cache_moves_from_bucket_to_bucket(tmp_path):
    pairs, buckets = {"past": "present"}, [1, 8, 32]
    program = compiled(cache(), dims={"batch": 2}, buckets=buckets)
    populus.build(program, tmp_path, cpu="wasm32", relaxed=True, states=pairs)
    counts, ranges = (5, 1, 1, 8, 1, 16), ((8, 8), (1, 8), (1, 8), (8, 32), (1, 32), (32, 32))  # of `cur`: its bucket; that of `past`
    rows = [normal(2, n, 16) for n in counts]
    (came,) = web.ran([Run(tmp_path, [shaped(x) for x in (*rows, normal(2, 1, 16))], states=["past"])])
    past = np.zeros((2, 0, 16), np.float32)
    for x, (cur, held), run in zip(rows, ranges, came["runs"], strict=False):
        least = {1: 1, 8: 2, 32: 9}[cur]
        sizes = {"batch": 2, "cur": cur if cur == least else (least, cur), "past": (0, held)}
        expected = compiled(cache(), dims=sizes).run({"x": x, "past": past})
        past = expected.pop("present")
        same(run, expected, came["bits"])
    assert came["runs"][-1]["error"] == "Error: 'past' would have 33 elements along 'past + 1', which is bounded by 32"
    found = np.frombuffer(came["states"]["past"], np.float32)
    np.testing.assert_allclose(found, past.ravel(), rtol=0, atol=1e-6)


SET = """
import fs from "node:fs";
const { folder } = JSON.parse(fs.readFileSync(process.argv[2])), { load } = await import(`${folder}/populus.mjs`), said = [];
const p = await load(), x = (n) => ({ x: { data: new Float32Array(32 * n).fill(0.5), shape: [2, n, 16] } });
const set = (n) => p.setState("past", { data: new Float32Array(32 * n).fill(1), shape: [2, n, 16] });
const rows = () => p.state("past").shape[1];
const tried = (what) => { try { what(); said.push(rows()); } catch (error) { said.push(error.message); } };
tried(() => p.run(x(1)));
tried(() => set(20)); // more than the bucket of the run before holds
said.push(p.state("past").every((v) => v === 1));
tried(() => p.run(x(4)));
tried(() => set(33));
tried(() => p.reset());
tried(() => p.run(x(2)));
console.log(JSON.stringify(said));
"""


@needs_node
def test_a_cache_that_is_set_goes_to_a_bucket_that_holds_it(tmp_path):
    program = compiled(cache(), dims={"batch": 2}, buckets=[1, 8, 32])
    populus.build(program, tmp_path / "built", cpu="wasm32", states={"past": "present"})
    (tmp_path / "set.mjs").write_text(SET)
    said = json.loads(web.script(tmp_path / "set.mjs", json.dumps({"folder": (tmp_path / "built").as_uri()})))
    assert said == [1, 20, True, 24, "state 'past': dimension 'past' is 33; the program was built for 0 to 32", 0, 2]


@needs_node
def test_sizes_that_no_bucket_serves_are_refused_and_leave_the_rest_as_it_was(tmp_path):
    program = compiled(products(), buckets=[2, 8])
    populus.build(program, tmp_path, cpu="wasm32", relaxed=True)
    x = normal(2, 96)
    cases = [
        ("input 'x': dimension 'n' is 9; the program was built for 1 to 8", shaped(normal(9, 96))),
        ("input 'x': dimension 'n' is 0; the program was built for 1 to 8", shaped(normal(0, 96))),
        ("input 'x' has shape [2,95]; the program has [n,96]", shaped(normal(2, 95))),
        ("", {"x": x}),
    ]
    (came,) = web.ran([Run(tmp_path, [given for _, given in cases])])
    assert [run.get("error", "") for run in came["runs"]] == [text and f"Error: {text}" for text, _ in cases]
    same(came["runs"][-1], program.run({"x": x}), came["bits"])


def test_open_dimensions_are_refused_without_buckets_with_too_many_and_for_libraries(tmp_path, capsys):
    with pytest.raises(PopulusError, match=r"dimension 'n' is open; give the buckets of sizes that the page serves \(buckets, --buckets"):
        populus.build(compiled(products()), tmp_path, cpu="wasm32")
    with pytest.raises(PopulusError, match=r"dimension 'n' is open; a built program has one size"):
        populus.build(compiled(products(), buckets=[4]), tmp_path)
    with pytest.raises(PopulusError, match=r"81 programs for the buckets of cur, past; at most 64 are built"):
        populus.build(compiled(cache(), dims={"batch": 1}, buckets=[*range(1, 10)]), tmp_path, cpu="wasm32", states={"past": "present"})
    (tmp_path / "net.onnx").write_bytes(net().SerializeToString())
    assert main(["build", str(tmp_path / "net.onnx"), "--cpu", "wasm32", "--buckets", "4,2", "-o", str(tmp_path / "out")]) == 1
    assert "ascending sizes of at least 1 are expected" in capsys.readouterr().err


@needs_node
def test_the_command_builds_buckets_and_a_second_build_is_equal(tmp_path):
    (tmp_path / "rows.onnx").write_bytes(products().SerializeToString())
    for name in "ab":
        words = ["build", str(tmp_path / "rows.onnx"), "--cpu", "wasm32", "--buckets", "2,8", "-o", str(tmp_path / name)]
        assert main(words) == 0
    files = [{p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in "ab"]
    assert files[0] == files[1]
    (came,) = web.ran([Run(tmp_path / "a", [shaped(normal(n, 96)) for n in (1, 7)])])
    assert [len(run["outputs"]["y"]) for run in came["runs"]] == [4 * 64, 4 * 64 * 7]
