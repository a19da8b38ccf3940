"""Products of 8-bit integers: exact on every engine and every form of machine code, and onnxruntime's bits."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper

import populus
from helpers import cpus, cut_vectors
from helpers.quantized_models import convolution, on_engines, one_node, product, unoptimised
from populus.dialects.poplar.compute import FamilyOp
from populus.dialects.poplar.program import GraphOp
from populus.runtime.engine.native.codegen import byte_dots
from populus.runtime.engine.native.codegen.cpu import CPUS, Machine, machine
from populus.runtime.engine.native.codegen.jit import Library, library
from populus.runtime.engine.native.frozen.freeze import FreezingProgram
from populus.runtime.engine.native.kernels import byte_contraction, byte_tile_blocks, byte_winograd
from populus.runtime.engine.native.kernels.byte_contraction import ByteProduct, Bytes
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.panels import offsets
from populus.runtime.engine.native.run.program import NativeProgram
from populus.runtime.session import Session

ZEROS = [("us", (0, 0)), ("us", (113, 0)), ("uu", (113, 128)), ("uu", (3, 77)), ("ss", (-5, 0)), ("ss", (9, 3))]


def same(model, inputs, expected=None, **how):
    """Compares the engines with each other, and with what is expected, onnxruntime's bits unless it is given."""
    found = on_engines(model, inputs, **how)
    if expected is None:
        pytest.importorskip("onnxruntime")
        expected = unoptimised(model, inputs)
    for engine, y in found.items():
        np.testing.assert_array_equal(y, expected, err_msg=engine)


@pytest.mark.parametrize(("kinds", "zeros"), ZEROS)
def test_products_of_all_signs_and_zero_points_are_exact(kinds, zeros):
    same(*product(kinds, zeros, (5, 7, 3)))
    same(*product(kinds, zeros, (5, 7, 3), constant=False, batch=(2,)))


@pytest.mark.parametrize(("kinds", "zeros"), ZEROS)
def test_convolutions_of_all_signs_and_zero_points_are_onnxruntimes(kinds, zeros):
    same(*convolution(kinds, zeros, (2, 5, 7, 6), channels=zeros[1] == 0))


CONVOLUTIONS = [
    {"size": (2, 8, 12, 9), "stride": 2, "group": 4, "channels": True},
    {"size": (1, 8, 8, 9), "group": 8, "channels": True},
    {"size": (2, 80, 80, 7), "group": 80, "channels": True, "stride": 2},
    {"size": (1, 32, 32, 6), "group": 32, "kernel": 2},
    {"size": (1, 16, 20, 9), "largest": True},
    {"size": (1, 8, 70, 7), "kernel": 1},
]


@pytest.mark.parametrize("settings", CONVOLUTIONS)
def test_convolutions_of_other_shapes_are_onnxruntimes(settings):
    same(*convolution("us", (7, 0), **settings))


def test_padding_is_zero_to_the_last_byte():
    same(*convolution("us", (0, 0), (1, 4, 6, 3)))  # the image with its padding is no multiple of 8 bytes


def test_sums_of_single_channels_are_stored_where_no_formula_follows():
    rng = np.random.default_rng(3)
    x, w = rng.integers(0, 256, (2, 80, 7, 7), np.uint8), rng.integers(-128, 128, (80, 1, 3, 3), np.int8)
    same(one_node("ConvInteger", {"1": x}, {"2": w}, np.int32, pads=[1] * 4, group=80), {"1": x})


WINOGRAD = [  # channels are whole panels of the widest vectors
    ("us", {"size": (2, 32, 64, 9), "channels": True}),
    ("ss", {"size": (1, 32, 32, 13), "channels": True}),
    ("us", {"size": (1, 32, 32, 6), "largest": True}),
]


def launched(program: NativeProgram) -> list[str]:
    """Keys of the kernels that a program launches."""
    return [run.kernel.key for run, _ in program.body.calls() if isinstance(run, Launch)]


@pytest.mark.skipif(machine().architecture != "x86_64", reason="the algorithm has code for x86-64 only")
@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "x86-64-v4"])
def test_winograds_algorithm_is_exact_in_integers(cpu, monkeypatch):
    """Odd and even planes, several images and chunks, both signs, the largest integers; numpy's engine sums directly."""
    cut_vectors.use(cpu, monkeypatch)
    for kinds, settings in WINOGRAD:
        model, given = convolution(kinds, (7 if kinds == "us" else -5, 0), **settings)
        program = populus.compile(model, target="host", tiles=4)
        expected = Session(program.module("poplar"), "numpy").run(given)["y"]
        for threads in (1, 2):
            session = Session(program.module("poplar"), "native", threads=threads)
            np.testing.assert_array_equal(session.run(given)["y"], expected, err_msg=f"{kinds} {settings} {threads}")
        keys = launched(NativeProgram(next(op for op in program.module("poplar").walk() if isinstance(op, GraphOp))))
        assert any(key.startswith("byte winograd") for key in keys), (settings, keys)


DIRECT, WINOGRADS, TILES = "byte blocks formula", "byte winograd False", "byte tiles True False"
PLANS = {  # CPU -> its form, that for few rows, the kernel of a 3x3 convolution of many channels, that of a product of many rows
    "x86-64": ("wide", "thin", WINOGRADS, DIRECT),
    "x86-64-v2": ("wide", "thin", WINOGRADS, DIRECT),
    "x86-64-v3": ("wide", "thin", WINOGRADS, DIRECT),
    "haswell": ("wide", "thin", WINOGRADS, DIRECT),
    "x86-64-v4": ("wide", "thin", WINOGRADS, DIRECT),
    "skylake-avx512": ("wide", "thin", WINOGRADS, DIRECT),
    "alderlake": ("vnni", "vnni", DIRECT, DIRECT),
    "cascadelake": ("vnni", "vnni", DIRECT, DIRECT),
    "knl": ("plain", "plain", DIRECT, DIRECT),
    "sapphirerapids": ("vnni", "vnni", TILES, TILES),
    "aarch64 generic": ("plain", "plain", DIRECT, DIRECT),
    "generic-rv64": ("plain", "plain", DIRECT, DIRECT),
    "wasm32 generic": ("wide", "thin", WINOGRADS, f"{DIRECT} few"),  # whose panels are always bytes
    "cortex-a76": ("sdot", "sdot", DIRECT, DIRECT),
    "neoverse-v1": ("usdot", "usdot", DIRECT, DIRECT),
}


def named(architecture: str, cpu: str) -> str:
    """The name of a CPU, with the architecture where several have the name."""
    return f"{architecture} {cpu}" if cpu == "generic" else cpu


@pytest.mark.parametrize("host", cpus.table(), ids=lambda host: named(host.architecture, host.cpu))
def test_a_cpu_gets_the_kernels_of_its_features(host: Machine):
    """Nothing of it runs, so the CPU at hand is no matter."""
    form, few, convolved, multiplied = PLANS[named(host.architecture, host.cpu)]
    assert (byte_dots.form_of(host), byte_dots.form_of(host, few=True)) == (form, few)
    models = convolution("us", (7, 0), (1, 64, 64, 9)), product("us", (3, 0), (256, 256, 512))
    for (model, _), kernel in zip(models, (convolved, multiplied)):
        module = populus.compile(model, target="host", tiles=1).module("poplar")
        keys = launched(FreezingProgram(next(op for op in module.walk() if isinstance(op, GraphOp)), host, ["1"], ["y"], {}, 1))
        assert [key for key in keys if key.startswith("byte ")] == [kernel]


def test_the_table_of_cpus_has_all_that_code_is_made_for():
    assert {named(host.architecture, host.cpu) for host in cpus.table()} == set(PLANS)
    assert {named(architecture, name) for architecture, names in CPUS.items() for name in names} <= set(PLANS)


def test_winograds_algorithm_takes_whole_panels_of_both_channels():
    host = next(m for m in cpus.table() if byte_dots.form_of(m) == "wide")
    lanes = byte_dots.lanes_of(host)
    panel = byte_winograd.Plane(0, 0, 0, 0, lanes).columns
    whole = max(panel, -(-byte_winograd.FEWEST_OUTPUTS // panel) * panel)
    sizes = {(panel, whole): True, (panel, whole + lanes): False, (panel - lanes, whole): False, (panel - lanes, whole + lanes): False}
    assert {(ic, oc): byte_winograd.suits(host, byte_winograd.Plane(ic, oc, 28, 28, lanes)) for ic, oc in sizes} == sizes


@pytest.mark.skipif(machine().architecture != "x86_64", reason="the algorithm has code for x86-64 only")
def test_integers_that_winograds_transforms_make_fit_their_types():
    own = library("x86-64-v3")
    plane = byte_winograd.Plane(16, 32, 4, 4, byte_dots.lanes_of(own.host))
    w = np.random.default_rng(1).integers(-128, 128, (plane.oc, plane.ic, 3, 3)).astype(np.int8)
    w[:3] = -128
    u = np.empty((plane.oc // plane.columns, 16, plane.ic // 2, plane.columns, 2), np.int16)
    byte_winograd.packing(own, plane, w, u)()
    sides = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]])  # 2G
    points = np.einsum("pi,qj,ocij->ocpq", sides, sides, w.astype(int)).reshape(-1, plane.columns, plane.ic // 2, 2, 16)
    np.testing.assert_array_equal(u, points.transpose(0, 4, 2, 1, 3))
    assert int(np.abs(u).max()) == 9 * 128
    assert max(sides.sum(1).max() ** 2 * 128, 4 * 255) < 1 << 15
    assert 4 * 9 * byte_winograd.MOST_CHANNELS * 255 * 128 < 1 << 31


def test_sums_over_slices_on_many_tiles_are_the_same():
    same(*convolution("us", (7, 0), (1, 64, 32, 9), channels=True), target="gc200", tiles=64)
    same(*product("us", (3, 0), (4, 300, 8)), target="gc200", tiles=64)


def test_a_formula_that_broadcasts_the_sums_is_apart():
    info = helper.make_tensor_value_info
    types = [("a", TensorProto.INT8, [1, 1]), ("b", TensorProto.INT8, [1, 1]), ("c", TensorProto.INT32, [7, 1])]
    nodes = [helper.make_node("MatMulInteger", ["a", "b"], ["s"]), helper.make_node("Add", ["s", "c"], ["y"])]
    graph = helper.make_graph(nodes, "g", [info(*type) for type in types], [info("y", TensorProto.INT32, [7, 1])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    c = np.arange(7, dtype=np.int32)[:, None]
    same(model, {"a": np.array([[3]], np.int8), "b": np.array([[5]], np.int8), "c": c}, 15 + c)


def test_sums_do_not_saturate():
    model, inputs = product("us", (0, 0), (3, 300, 70), largest=True)
    same(model, inputs, np.full((3, 70), 300 * 255 * 127, np.int32))


def test_a_convolution_and_its_rounding_are_one_kernel_without_sums_in_memory():
    """The number of families and of kernels does not depend on sizes."""
    counts = []
    for side in (5, 40):
        module = populus.compile(convolution("us", (7, 0), (1, 64, 64, side))[0], tiles=4).module("poplar")
        kernels = launched(NativeProgram(next(op for op in module.walk() if isinstance(op, GraphOp))))
        assert sum(key.startswith(("byte blocks formula", "byte tiles True", "byte winograd")) for key in kernels) == 1, kernels
        assert not {"byte blocks", "byte tiles False False"} & set(kernels), kernels
        counts.append((len(kernels), sum(isinstance(op, FamilyOp) for op in module.walk())))
    assert counts[0] == counts[1]


def machines() -> list[Machine]:
    """The CPU at hand, also without tile registers, and all of the table whose features it has."""
    host = machine()
    found = [host, *([host.without_tiles()] if host.tiles else []), *(replace(m, triple=host.triple) for m in cpus.table())]
    return [m for m in found if m is host or (m.architecture == host.architecture and m.enabled <= cut_vectors.here().enabled)]


@pytest.mark.parametrize("host", machines(), ids=lambda m: f"{m.cpu}-{'tiles' if m.tiles else byte_dots.form_of(m)}")
def test_each_form_of_machine_code_is_exact(host, monkeypatch):
    monkeypatch.setattr(byte_contraction, "LARGE", 100)  # so that panels for few rows occur
    library = Library(host)
    for m, k, n, largest in ((37, 44, 75, False), (5, 3, 1, False), (1, 129, 130, True), (3, 45, 33, False)):
        for of in (np.uint8, np.int8):
            rng, most = np.random.default_rng(m), np.iinfo(of)
            a = np.zeros((m, -(-k // 4) * 4), of)
            a[:, :k] = most.max if largest else rng.integers(most.min, most.max + 1, (m, k))
            b = np.full((k, n), -128, np.int8) if largest else rng.integers(-128, 128, (k, n), np.int8)
            made = ByteProduct(library, n, k, of == np.int8, m)
            right = Bytes(np.empty(made.room, np.uint8), np.empty(made.panels.columns, np.int32))
            made.pack(b, offsets((k,), (n,)), offsets((n,), (1,)), right)()
            c = np.empty((m, n), np.int32)
            left = a.astype(byte_dots.left_type(host, a.dtype))
            made.launch(left, offsets((m,), left.strides[:1]), offsets((made.fours,), (4 * left.itemsize,)), right, c, 4 * n, None)()
            np.testing.assert_array_equal(c, a[:, :k].astype(np.int32) @ b.astype(np.int32))


@pytest.mark.skipif(not machine().tiles, reason="the CPU has no tile registers")
def test_tile_registers_read_rows_in_place_and_copied_rows():
    """Windows whose rows are unequally far apart, steps of k shorter than a register, a last block of few rows, i8."""
    library, rng = Library(machine()), np.random.default_rng(0)
    for of, channels, taps, n in ((np.uint8, 64, 1, 40), (np.uint8, 32, 3, 70), (np.int8, 128, 2, 16), (np.int8, 28, 1, 33)):
        most = np.iinfo(of)
        x = rng.integers(most.min, most.max + 1, (9, 11, channels), of)
        w = rng.integers(-128, 128, (taps, channels, n), np.int8)
        out = 11 - taps + 1
        rows, k = offsets((9, out), x.strides[:2]), taps * channels
        depth = offsets((taps, channels // 4), (channels, 4))
        steps = byte_tile_blocks.steps_of(machine(), rows, depth)
        assert steps is not None
        assert (steps.stride == 0) == (taps > 1)
        made = ByteProduct(library, n, k, of == np.int8, 9 * out)
        right = Bytes(np.empty(made.room, np.uint8), np.empty(made.panels.columns, np.int32))
        made.pack(w, offsets((k,), (n,)), offsets((n,), (1,)), right)()
        c = np.zeros((9 * out + 1, n), np.int32)
        made.launch(x, rows, depth, right, c, 4 * n, None)()
        windows = np.stack([x[:, t : t + out] for t in range(taps)], 2).reshape(9 * out, k)
        np.testing.assert_array_equal(c[:-1], windows.astype(np.int32) @ w.reshape(k, n).astype(np.int32))
        assert not c[-1].any()


EMIT = """
import llvmlite.binding as llvm
llvm.initialize_all_targets(); llvm.initialize_all_asmprinters()
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.kernels.byte_contraction import block_kernel, blocks_kernel, pack_kernel
for features in ("+neon", "+neon,+dotprod", "+neon,+dotprod,+i8mm"):
    host = Machine("aarch64-unknown-linux-gnu", "generic", features, "")
    target = llvm.Target.from_triple(host.triple).create_target_machine(cpu=host.cpu, features=features, opt=2)
    found = set()
    for kernel in (pack_kernel(), blocks_kernel(True), block_kernel(6, 4, False), block_kernel(6, 4, True)):
        module = llvm.parse_assembly(kernel.build("kernel", host))
        module.verify()
        text = target.emit_assembly(module)
        found |= {name for name in ("sdot", "usdot") if f"\\t{name}\\t" in text}
    print(sorted(found))
"""


def test_64_bit_arm_has_its_dot_products():
    # In another process with a limit: LLVM never ended on some forms of these kernels.
    done = subprocess.run([sys.executable, "-c", EMIT], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines() == ["[]", "['sdot']", "['sdot', 'usdot']"], done.stderr
