"""Programs built for wasm32: without a compiler, with the native engine's bits in Node, and refused if they do not fit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import populus
from benchmarks.models import LIGHT, randomised
from fuzz import graphs
from helpers import web
from helpers.built_nets import cache, compiled, gather, model, net, normal, recurrent
from helpers.node_models import node_models
from helpers.web import Run, alike, close, needs_node
from populus.dialects.support.diagnostics import PopulusError
from populus.program.building import frozen_program
from populus.runtime.engine.native.codegen.cpu import described
from populus.runtime.engine.native.codegen.jit import file_object
from populus.runtime.engine.native.frozen.wasm_link import linked
from populus.runtime.engine.native.frozen.wasm_object import Section, read
from populus.runtime.engine.native.kernels.blocks import block_kernel
from populus.tools.main import main

CASES = (
    *("conv_with_autopad_same", "convtranspose_pads", "maxpool_2d_dilations", "averagepool_2d_pads_count_include_pad"),
    *(
        "gemm_all_attributes",
        "matmul_4d",
        "lstm_with_peepholes",
        "gru_defaults",
        "softmax_axis_1",
        "layer_normalization_4d_axis1",
        "erf",
        "exp",
        "log",
        "pow",
    ),
    *(
        "mod_mixed_sign_float32",
        "mod_mixed_sign_int64",
        "argmax_default_axis_random",
        "where_example",
        "gather_1",
        "scatter_elements_with_axis",
        "einsum_sum",
    ),
    *("globalaveragepool", "depthtospace_example", "cast_FLOAT_to_FLOAT16", "cast_FLOAT16_to_FLOAT"),
    *(
        "qlinearmatmul_2D_uint8_float32",
        "qlinearconv",
        "convinteger_with_padding",
        "matmulinteger",
        "dequantizelinear",
        "attention_4d",
        "instancenorm_example",
        "tril",
    ),
)


def lstm():
    """A counted loop, whose counter is a word of the program."""
    weights = {"w": normal(1, 64, 8), "r": normal(1, 64, 16)}
    nodes = [helper.make_node("LSTM", ["x", "w", "r"], ["y"], name="lstm", hidden_size=16)]
    return model(nodes, [("x", [6, 1, 8])], [("y", [6, 1, 1, 16])], weights)


def squeezenet():
    return randomised(LIGHT / "light_squeezenet.onnx", logits=True)


def built(program, folder, **options):
    populus.build(program, folder, cpu="wasm32", relaxed=True, **options)
    return folder


@needs_node
@pytest.mark.parametrize("make", [net, lstm, gather, squeezenet])
def test_both_modules_give_the_results_of_the_native_engine(make, tmp_path):
    program = compiled(make())
    folder, inputs = built(program, tmp_path), program.signature.random()
    expected = program.run(inputs)
    relaxed, plain = web.ran([Run(folder, [inputs]), Run(folder, [inputs], {"relaxed": False})])
    alike(relaxed, expected)
    alike(plain, expected, relaxed=False)
    assert plain["bits"] == "unfused"


@needs_node
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="compares with x86-64-v2, whose products are rounded twice too")
def test_the_module_without_relaxed_vectors_has_the_bits_of_a_cpu_without_fused_products(tmp_path, monkeypatch):
    built(compiled(net()), tmp_path)
    monkeypatch.setenv("POPULUS_NATIVE_CPU", "x86-64-v2")
    program = compiled(net())
    inputs = program.signature.random()
    ((run,),) = [came["runs"] for came in web.ran([Run(tmp_path, [inputs], {"relaxed": False})])]
    assert run["outputs"] == {name: y.tobytes() for name, y in program.run(inputs).items()}


@needs_node
def test_cases_of_onnx_give_the_results_of_the_native_engine(tmp_path):
    agreed([(name, node_models()[f"test_{name}"], None) for name in CASES], tmp_path)


@needs_node
def test_random_graphs_give_the_results_of_the_native_engine(tmp_path):
    seeds = range(16)
    assert agreed([(str(s), g := graphs.graph(s), graphs.inputs(g, s)) for s in seeds], tmp_path) >= 8


def agreed(cases, folder):
    """Builds and runs cases, those that build refuses aside; the number of the others."""
    made = []
    for name, proto, inputs in cases:
        program = compiled(proto)
        given = program.signature.random() if inputs is None else inputs
        try:
            run = Run(built(program, folder / name), [given])
        except PopulusError:
            if inputs is None:
                raise
            continue
        made.append((run, program.run(given), name))
    for came, (_, expected, name) in zip(web.ran([run for run, _, _ in made]), made):
        try:
            alike(came, expected)
        except AssertionError as error:
            raise AssertionError(f"case {name}: {error}") from error
    return len(made)


def test_no_compiler_no_linker_and_no_node_are_needed(tmp_path):
    onnx.save(net(), tmp_path / "net.onnx")
    words = [sys.executable, "-m", "populus.tools.main", "build", "net.onnx", "--cpu", "wasm32", "--relaxed", "-o", "out"]
    environment = {name: value for name, value in os.environ.items() if name != "CC"} | {"PATH": str(tmp_path)}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    files = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert files == ["index.html", "net.bin", "net.relaxed.wasm", "net.wasm", "populus.d.mts", "populus.mjs"]


def test_masked_accesses_are_functions_that_all_kernels_share():
    """WebAssembly has no masked loads: written out at each place, they were a third of the code of nets with pools."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("AveragePool", ["p"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    ]
    frozen = frozen_program(compiled(model(nodes, [("x", [1, 2, 9, 9])], [("y", [1, 2, 5, 5])])), "wasm32", {})
    kernels = [k for k in frozen.kernels if k.key.startswith("down")]
    objects = [file_object(kernel, frozen.plan) for kernel in kernels]
    counts = [len(read(content).parts[Section.CODE]) for content in objects]
    assert counts == [3, 3]  # the kernel, masked loads, masked stores
    joined = linked(objects, [kernel.name for kernel in kernels], {}, bytes(32))
    assert len(read(joined).parts[Section.CODE]) == 4


@needs_node
def test_products_whose_vectors_are_positions_take_one_kernel_for_planes_of_any_size(tmp_path):
    """The last panel of a plane begins so that it ends with the plane: cut ones were half of the code of nets with such layers."""
    made = []
    for high, wide in ((2, 4), (3, 5), (7, 7), (8, 16)):
        nodes = [
            helper.make_node("Conv", ["x", "v", "b"], ["c"], group=2),
            helper.make_node("Relu", ["z"], ["r"]),
            helper.make_node("Add", ["c", "r"], ["s"]),
            helper.make_node("Relu", ["s"], ["t"]),
            helper.make_node("Conv", ["t", "w"], ["y"]),
        ]
        weights = {"v": normal(32, 100, 1, 1), "b": normal(32), "w": normal(4, 32, 1, 1)}
        inputs = [("x", [2, 200, high, wide]), ("z", [2, 32, high, wide])]
        program = compiled(model(nodes, inputs, [("y", [2, 4, high, wide])], weights))
        frozen = frozen_program(program, "wasm32", {})
        found = [k.key for k in frozen.kernels if k.key.startswith("block")]
        assert len(found) == 2 and all(" swapped " in key and " whole" in key for key in found), found
        made.append((Run(built(program, tmp_path / f"{high}"), [given := program.signature.random()]), program.run(given)))
    for came, (_, expected) in zip(web.ran([run for run, _ in made]), made):
        alike(came, expected)


def test_the_columns_of_a_block_are_stored_by_the_code_of_one():
    """Written out, they were 20 of the 33 kB of resnet50, which has a dozen such blocks."""
    sizes = {}
    for vectors in (1, 2):
        content = read(file_object(block_kernel(4, vectors, "float32", "columns"), described("wasm32"))).parts[Section.CODE]
        sizes[vectors] = sum(len(part.content) for part in content)
    assert sizes[2] < 640 and sizes[2] - sizes[1] < 240, sizes  # the second vector has its sums alone


def test_a_module_has_the_memory_of_one_thread_if_no_more_are_asked_for():
    """Each thread's tasks have memory of their own."""
    default, one, two = (frozen_program(compiled(squeezenet(), threads=n), "wasm32", {}).form.memory for n in (None, 1, 2))
    assert default == one < two


def test_weights_that_loading_transforms_are_shipped_as_the_model_has_them(tmp_path):
    """Winograd's transformed weights have 16 elements for 9, and so had the file; the page's memory holds them once and no others."""
    proto = squeezenet()
    model_bytes = sum(numpy_helper.to_array(i).nbytes for i in proto.graph.initializer)
    form = frozen_program(compiled(proto), "wasm32", {}).form
    held = form.constants[-form.raw :]
    weights, tables = ([c for c in held if (c.dtype == np.int64) == table] for table in (False, True))
    assert len(weights) == 8, "convolutions of 3x3"
    assert sum(c.nbytes for c in form.constants) < 1.05 * model_bytes
    raw = sum(c.nbytes for c in weights)
    assert 1.77 * raw < form.packed - sum(8 * np.prod(c[1::2]) for c in tables) < 1.8 * raw
    native = frozen_program(compiled(proto, threads=1), "x86-64-v2", {}).form
    assert form.at_raw + form.memory < 1.02 * (sum(c.nbytes for c in native.constants) + native.memory)


def test_memory_that_is_filled_with_a_number_ships_the_number():
    """The steps of an LSTM fill its output first; a page had all zeros of it in its file."""
    weights = {"w": normal(1, 128, 8), "r": normal(1, 128, 32)}
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=32)
    form = frozen_program(compiled(model([node], [("x", [256, 1, 8])], [("y", [256, 1, 1, 32])], weights)), "wasm32", {}).form
    assert sum(c.nbytes for c in form.constants) < 1.2 * sum(w.nbytes for w in weights.values())


def test_pools_that_divide_by_nothing_ship_no_divisors():
    """A normalisation over channels sums squares of windows as large as the plane."""
    node = helper.make_node("LRN", ["x"], ["y"], size=5)
    form = frozen_program(compiled(model([node], [("x", [1, 64, 40, 40])], [("y", [1, 64, 40, 40])])), "wasm32", {}).form
    assert max(c.nbytes for c in form.constants) < 64 * 40 * 40


def test_two_builds_are_equal_byte_for_byte(tmp_path):
    for name in "ab":
        built(compiled(net()), tmp_path / name)
    files = [{p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in "ab"]
    assert files[0] == files[1]


def test_what_is_not_for_wasm32_is_refused(tmp_path):
    program = compiled(net())
    with pytest.raises(PopulusError, match=r"embed puts weights into a library; for wasm32"):
        populus.build(program, tmp_path, cpu="wasm32", embed=True)
    with pytest.raises(PopulusError, match=r"relaxed is for wasm32"):
        populus.build(program, tmp_path, relaxed=True)
    with pytest.raises(PopulusError, match=r"single_file is for wasm32"):
        populus.build(program, tmp_path, single_file=True)


def test_a_module_may_have_the_name_of_a_systems_library(tmp_path):
    """`m.onnx` was refused as libm.so, which a build for wasm32 does not write."""
    onnx.save(net(), tmp_path / "m.onnx")
    assert main(["build", str(tmp_path / "m.onnx"), "--cpu", "wasm32", "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out/m.wasm").is_file()


@needs_node
def test_states_stay_from_run_to_run(tmp_path):
    program = compiled(recurrent())
    built(program, tmp_path, states={"h": "h_next"})
    kept, x = program.stateful({"h": "h_next"}), {"x": normal(1, 16)}
    (came,) = web.ran([Run(tmp_path, [x, x, x], states=["h"])])
    for run in came["runs"]:
        alike({**came, "runs": [run]}, kept.run(x))
    close(np.frombuffer(came["states"]["h"], np.float32), kept.get("h"))


RANGES = {"batch": (1, 3), "cur": (1, 8), "past": (0, 32), "past + cur": (1, 32)}
PAIRS = {"past": "present"}


@needs_node
def test_a_cache_of_open_size_grows_in_the_page_and_gives_the_results_of_the_native_engine(tmp_path):
    program = compiled(cache(), dims=RANGES)
    built(program, tmp_path, states=PAIRS)
    kept, rows = program.stateful(PAIRS), [normal(2, n, 16) for n in (5, 1, 8, 3)]
    (came,) = web.ran([Run(tmp_path, [{"x": (x, list(x.shape))} for x in rows], states=["past"])])
    for x, run in zip(rows, came["runs"], strict=True):
        alike({**came, "runs": [run]}, kept.run({"x": x}))
    close(np.frombuffer(came["states"]["past"], np.float32), kept.get("past"))


@needs_node
def test_open_sizes_that_do_not_fit_are_refused_and_leave_the_cache_as_it_was(tmp_path):
    populus.build(compiled(cache(), dims=RANGES), tmp_path, cpu="wasm32", states=PAIRS)
    shaped = lambda *shape: {"x": (normal(*shape), list(shape))}  # noqa: E731
    cases = [
        ("there is no input 'size.cur'; there are x", {**shaped(2, 8, 16), "size.cur": np.int32([8])}),
        ("", shaped(2, 8, 16)),
        ("input 'x': dimension 'cur' is 9; the program was built for 1 to 8", shaped(2, 9, 16)),
        ("input 'x' has shape [2,1,15]; the program has [batch,cur,16]", shaped(2, 1, 15)),
        ("input 'x' has 32 elements; the program has 48, [3,1,16]", {"x": (normal(2, 16), [3, 1, 16])}),
        ("dimension 'batch' is 3 in 'x' and 2 in 'past'", shaped(3, 1, 16)),
        ("input 'x' has 128 elements and no shape; give { data, shape }, the program has [batch,cur,16]", {"x": normal(8, 16)}),
        *[("", shaped(2, 8, 16))] * 3,
        ("'cur + past' is 40, above its bound 32", shaped(2, 8, 16)),
    ]
    (came,) = web.ran([Run(tmp_path, [given for _, given in cases], states=["past"])])
    assert [run.get("error", "") for run in came["runs"]] == [text and f"Error: {text}" for text, _ in cases]
    assert len(came["states"]["past"]) == 2 * 32 * 16 * 4


@needs_node
def test_a_plain_array_has_the_size_that_other_dimensions_leave(tmp_path):
    program = compiled(rows(), dims={"n": (1, 9), "m": 4})
    x = normal(5, 4)
    (came,) = web.ran([Run(built(program, tmp_path), [{"x": x}, {"x": x.ravel()[:7]}])])
    right, wrong = came["runs"]
    alike({**came, "runs": [right]}, program.run({"x": x}))
    assert wrong["error"] == "Error: input 'x' has 7 elements and no shape; give { data, shape }, the program has [n,4]"


def rows():
    """An output whose size is a sum with a division."""
    nodes = [helper.make_node("Slice", ["x", "first", "last", "axis", "step"], ["y"])]
    ends = {"first": np.array([1]), "last": np.array([2**31 - 1]), "axis": np.array([0]), "step": np.array([2])}
    return model(nodes, [("x", ["n", "m"])], [("y", [None, 4])], ends)


@needs_node
def test_inputs_that_do_not_fit_are_refused_in_one_sentence(tmp_path):
    built(compiled(net()), tmp_path / "net")
    built(compiled(gather()), tmp_path / "gather")
    x = normal(2, 3, 8, 8)
    wrong = {
        "input 'x' is missing": {},
        "there is no input 'z'; there are x": {"x": x, "z": x},
        "input 'x' is Float64Array; float32 needs Float32Array": {"x": x.astype(np.float64)},
        "input 'x' has 192 elements; the program has 384, [2,3,8,8]": {"x": x[0]},
        "input 'x' has shape [3,2,8,8]; the program has [2,3,8,8]": {"x": (x, [3, 2, 8, 8])},
    }
    beyond = {
        "'rows': an index outside of its table, for 'multi_slice'": {"i": np.array([0, 9, 1])},
        "input 'i' is Int32Array; int64 needs BigInt64Array": {"i": np.array([0, 1, 2], np.int32)},
    }
    right = ({"x": (x, [2, 3, 8, 8])}, {"i": np.array([4, 0, 2])})
    runs = [Run(tmp_path / "net", [*wrong.values(), right[0]]), Run(tmp_path / "gather", [*beyond.values(), right[1]])]
    for came, texts in zip(web.ran(runs), (wrong, beyond)):
        assert [run.get("error", "") for run in came["runs"]] == [*(f"Error: {text}" for text in texts), ""]


@needs_node
def test_changed_and_foreign_files_are_refused(tmp_path):
    for name, make in (("a", net), ("b", lstm)):
        built(compiled(make()), tmp_path / name)
    texts = (
        *("the module is cut or changed", "the weights are changed", "the weights have", "the weights are those of another module"),
        *("the weights are no file", "the program needs"),  # a header of more memory than there is
    )
    for way, more in (("digests", ()), ("sums", ()), ("forged", ("the module is not that of this populus.mjs",))):
        given = {"folder": str(tmp_path / "a"), "other": str(tmp_path / "b"), "seed": 1, "pairs": 2000, "way": way}
        found = json.loads(web.script(Path(web.__file__).parent / "changed_web.mjs", json.dumps(given)))
        assert found["crashed"] == []
        assert found["taken"] == 0
        assert found["refused"] == 2000
        for said in found["texts"]:
            assert any(said.startswith(text) for text in (*texts, *more)), said
        for text in more or texts:
            assert any(said.startswith(text) for said in found["texts"]), (text, found["texts"])
        assert found["right"] == "the results of the files as they were"


@needs_node
def test_options_that_a_build_cannot_meet_are_refused(tmp_path):
    populus.build(compiled(net()), tmp_path, cpu="wasm32")
    relaxed, bits = web.ran([Run(tmp_path, [], {"relaxed": True}), Run(tmp_path, [], {"bits": "native"})])
    assert relaxed["error"] == "Error: this build has no relaxed module; build it with --relaxed"
    assert bits["error"] == "Error: the program has unfused bits here, and native ones are asked for"
    (tmp_path / "model.bin").unlink()
    (came,) = web.ran([Run(tmp_path, [])])
    assert came["error"].startswith("Error: the weights cannot be read: ENOENT")


@needs_node
def test_types_that_were_narrowed_are_converted_and_checked(tmp_path):
    doubles = ("x", [3], TensorProto.DOUBLE), ("y", [3], TensorProto.DOUBLE)
    proto = model([helper.make_node("Add", ["x", "x"], ["y"])], doubles[:1], doubles[1:])
    built(populus.compile(proto, target="gc200", tiles=4, engine="native", narrow=True), tmp_path)
    x = np.array([1.5, -2.0, np.inf])
    right, wrong = web.ran([Run(tmp_path, [{"x": x}, {"x": np.array([1e300, 0, 0])}])])[0]["runs"]
    assert right["outputs"] == {"y": (x + x).tobytes()}
    assert wrong["error"] == "Error: input 'x' has a value that the program cannot hold; it was built for narrower types"


WITHOUT = """
import fs from "node:fs";
const { folder, fewest } = JSON.parse(fs.readFileSync(process.argv[2])), own = WebAssembly.validate;
WebAssembly.validate = (code) => code.length >= fewest && own(code); // 43 bytes ask for vectors, 36 for relaxed ones
const { load } = await import(`${folder}/populus.mjs`), said = [];
for (const options of [{ relaxed: true }, {}])
  try { said.push((await load(undefined, options)).relaxed); } catch (error) { said.push(error.message); }
console.log(JSON.stringify(said));
"""


@needs_node
def test_a_browser_without_vectors_is_refused_and_one_without_relaxed_ones_takes_the_plain_module(tmp_path):
    folder = built(compiled(gather()), tmp_path / "built")
    (tmp_path / "without.mjs").write_text(WITHOUT)
    relaxed, none = (
        json.loads(web.script(tmp_path / "without.mjs", json.dumps({"folder": folder.as_uri(), "fewest": fewest}))) for fewest in (42, 99)
    )
    assert relaxed == ["this browser has no relaxed SIMD; Chromium 114 and later have it", False]
    text = "this browser has no WebAssembly SIMD; Chromium 91, Firefox 89, Safari 16.4 and later have it"
    assert none == [text, text]
