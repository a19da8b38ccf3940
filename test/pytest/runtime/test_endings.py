"""Formulas in the stores of products: no pass of their own, the same bits, on every form of product and width of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from xdsl.dialects.builtin import ModuleOp, bf16, f16

import populus
from populus.dialects.poplar.program import GraphOp
from populus.dialects.poplar.task import TaskOp
from populus.dialects.support.diagnostics import PopulusError, verify
from populus.dialects.support.element_types import dtype_of
from populus.runtime.engine.native.codegen.cpu import CPUS, Machine, machine
from populus.runtime.engine.native.codegen.jit import Kernel, library
from populus.runtime.engine.native.codegen.llvm_builder import Function
from populus.runtime.engine.native.kernels import contraction, endings
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.run.program import NativeProgram
from populus.runtime.tasks import with_tasks

Array = NDArray[Any]
Node = tuple[str, list[str], str, dict[str, Any]]
F = np.float32


def draw(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(F)


def bits(y: Array) -> Array:
    """Its bits, every NaN being one."""
    return np.where(np.isnan(y), F(np.nan), y).view(np.int32)


def model(nodes: list[Node], inputs: dict[str, Array], constants: dict[str, Array]) -> onnx.ModelProto:
    """A model of nodes (kind, operands, result, attributes); the last result is its output."""
    graph = helper.make_graph(
        [helper.make_node(kind, operands, [result], name=result, **attributes) for kind, operands, result, attributes in nodes],
        "endings",
        [helper.make_tensor_value_info(n, 1, a.shape) for n, a in inputs.items()],
        [helper.make_empty_tensor_value_info(nodes[-1][2])],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def product(kind: str, x: tuple[int, ...], w: tuple[int, ...], ending: str, **attributes: Any) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one product and the formula of `ending` on it."""
    inputs, constants = {"x": draw(*x)}, {"w": draw(*w)}
    nodes: list[Node] = [(kind, ["x", "w"], "p", attributes)]
    bias = (w[0], 1, 1) if kind == "Conv" else (w[1],)
    constants |= {"bias": draw(*bias), "low": np.array(-1, F), "high": np.array(1.5, F)}
    shape = onnx.shape_inference.infer_shapes(model(nodes, inputs, constants), data_prop=True).graph.output[0]
    dims = [d.dim_value for d in shape.type.tensor_type.shape.dim]
    match ending:
        case "relu":
            nodes.append(("Relu", ["p"], "y", {}))
        case "bias":
            nodes.append(("Add", ["p", "bias"], "y", {}))
        case "clip":
            nodes += [("Add", ["p", "bias"], "q", {}), ("Clip", ["q", "low", "high"], "y", {})]
        case _:
            inputs["r"] = draw(*dims)
            inputs["r"].reshape(-1)[:5] = 0.0, -0.0, np.inf, np.nan, 1e-40
            last = "Tanh" if ending == "tanh" else "Relu"
            nodes += [("Add", ["p", "bias"], "q", {}), ("Add", ["r", "q"], "s", {}), (last, ["s"], "y", {})]
    return model(nodes, inputs, constants), inputs


def graph_of(made: onnx.ModelProto, **how: Any) -> GraphOp:
    module = populus.compile(made, **{"target": "host", "tiles": 16, **how}).module("poplar")
    (graph,) = (op for op in module.walk() if isinstance(op, GraphOp))
    return graph


def kernels(native: NativeProgram) -> list[str]:
    """The kinds of the launches of a program, in order."""
    return [native.table.launches[n].kernel.key.split()[0] for n in sorted(native.table.launches)]


def run(graph: GraphOp, inputs: dict[str, Array], **how: Any) -> tuple[Array, NativeProgram]:
    native = NativeProgram(graph, **how)
    (y,) = native.run(inputs).values()
    return y, native


def apart(graph: GraphOp, inputs: dict[str, Array], monkeypatch: pytest.MonkeyPatch, **how: Any) -> tuple[Array, NativeProgram]:
    """Runs a program whose formulas are passes of their own."""
    joined = NativeProgram.joined
    with monkeypatch.context() as patch:
        patch.setattr(NativeProgram, "joined", lambda self, chain: None if chain.ending is not None else joined(self, chain))
        return run(graph, inputs, **how)


def cpus() -> list[str | None]:
    """The CPU at hand, and one of each width of vectors."""
    found: dict[int, str] = {}
    for name in CPUS.get(machine().architecture, {}):
        try:
            found[machine(name).vector_bytes] = name
        except PopulusError:
            continue
    return [None, *found.values()]


FORMS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "product": ("MatMul", (2, 21, 37), (37, 53), {}),
    "product of one row": ("MatMul", (1, 37), (37, 53), {}),
    "windows": ("Conv", (1, 5, 11, 9), (19, 5, 3, 3), {"strides": [2, 1]}),
    "windows in slices, two images": ("Conv", (2, 70, 7, 7), (21, 70, 3, 3), {"pads": [1, 1, 1, 1]}),
    "windows in groups": ("Conv", (1, 6, 7, 7), (18, 3, 3, 3), {"group": 2}),
    "lines": ("Conv", (2, 5, 23), (19, 5, 3), {}),
    "positions": ("Conv", (2, 12, 13, 16), (11, 12, 1, 1), {}),
    "positions that fill no vector": ("Conv", (2, 12, 13, 19), (11, 12, 1, 1), {}),
    "positions in groups": ("Conv", (1, 12, 16, 16), (10, 6, 1, 1), {"group": 2}),
    "winograd": ("Conv", (2, 16, 28, 27), (20, 16, 3, 3), {"pads": [1, 1, 1, 1]}),
    "depthwise": ("Conv", (2, 6, 13, 19), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1]}),
}
KERNELS = {n: "positions" for n in FORMS if n.startswith("positions")} | {"winograd": "winograd", "depthwise": "down"}


@pytest.mark.parametrize(
    ("name", "ending"),
    [
        *((n, "relu" if n == "lines" else "residual") for n in FORMS),
        *(("windows", "clip"), ("winograd", "clip"), ("product", "bias"), ("product", "tanh")),
    ],
)
def test_a_formula_is_applied_where_sums_are_stored(name: str, ending: str, monkeypatch: pytest.MonkeyPatch):
    kind, x, w, attributes = FORMS[name]
    made, inputs = product(kind, x, w, ending, **attributes)
    graph = graph_of(made)
    expected, before = apart(graph, inputs, monkeypatch)
    y, after = run(graph, inputs)
    assert kernels(before).count("map") == 1
    assert "map" not in kernels(after)
    if name in KERNELS and machine().vector_bytes >= 32:
        assert set(kernels(after)) == {KERNELS[name]}
    np.testing.assert_array_equal(bits(y), bits(expected))
    np.testing.assert_array_equal(bits(run(graph, inputs, threads=3)[0]), bits(y))


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize(
    ("name", "ending"), [*((n, "residual") for n in ("windows", "positions", "winograd", "depthwise")), ("windows", "tanh")]
)
def test_every_width_of_vectors_gives_the_bits_of_a_pass(name: str, ending: str, cpu: str | None, monkeypatch: pytest.MonkeyPatch):
    kind, x, w, attributes = FORMS[name]
    made, inputs = product(kind, x, w, ending, **attributes)
    graph = graph_of(made)
    expected, _ = apart(graph, inputs, monkeypatch, cpu=cpu)
    y, after = run(graph, inputs, cpu=cpu)
    np.testing.assert_array_equal(bits(y), bits(expected))
    assert "map" not in kernels(after)


def bottleneck() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Two bottlenecks as in ResNet: 1x1, 3x3, 1x1, each with a bias, and a sum with the block's input."""
    inputs, constants = {"x": draw(1, 64, 14, 14)}, dict[str, Array]()
    nodes: list[Node] = []

    def conv(x: str, oc: int, ic: int, side: int, relu: bool) -> str:
        n = f"c{len(nodes)}"
        constants[f"{n}_w"], constants[f"{n}_b"] = draw(oc, ic, side, side) / 8, draw(oc)
        nodes.append(("Conv", [x, f"{n}_w", f"{n}_b"], n, {"pads": [side // 2] * 4}))
        if relu:
            nodes.append(("Relu", [n], f"{n}_r", {}))
        return f"{n}_r" if relu else n

    last = "x"
    for i in range(2):
        path = conv(conv(conv(last, 32, 64, 1, True), 32, 32, 3, True), 64, 32, 1, False)
        side = conv(last, 64, 64, 1, False) if i == 0 else last
        nodes += [("Add", [path, side], f"s{i}", {}), ("Relu", [f"s{i}"], f"b{i}", {})]
        last = f"b{i}"
    return model(nodes, inputs, constants), inputs


@pytest.mark.parametrize(("target", "tiles"), [("host", 16), ("gc200", 64)])
def test_no_formula_follows_a_convolution_of_a_residual_net(target: str, tiles: int, monkeypatch: pytest.MonkeyPatch):
    made, inputs = bottleneck()
    graph = with_tasks(graph_of(made, target=target, tiles=tiles))
    expected, before = apart(graph, inputs, monkeypatch)
    y, after = run(graph, inputs)
    assert kernels(before).count("map") >= 6
    assert kernels(after).count("map") == 0, kernels(after)
    np.testing.assert_array_equal(y, expected)
    numpy = populus.compile(made, target=target, tiles=tiles, engine="numpy").run(inputs)
    np.testing.assert_allclose(y, next(iter(numpy.values())), rtol=1e-4, atol=1e-4)


def test_a_program_of_another_machine_gets_its_tasks_in_a_copy_when_it_is_loaded():
    made, inputs = bottleneck()
    program = populus.compile(made, target="gc200", tiles=64, engine="native")
    given = program.module("poplar")
    before = str(given)
    found = program.run(inputs)
    assert "poplar.task" not in before
    assert str(given) == before
    ran = program.session._program  # pyright: ignore[reportPrivateUsage]
    assert sum(isinstance(op, TaskOp) for op in ran.graph.walk()) == 6
    verify(ModuleOp([ran.graph.clone()]))
    one_by_one, native = run(graph_of(made, target="gc200", tiles=64), inputs)
    assert kernels(native).count("map") >= 6
    np.testing.assert_array_equal(one_by_one, next(iter(found.values())))


def test_sums_that_another_step_reads_are_stored():
    nodes: list[Node] = [("MatMul", ["x", "w"], "p", {}), ("Relu", ["p"], "a", {}), ("Sin", ["p"], "b", {}), ("Sub", ["a", "b"], "y", {})]
    inputs = {"x": draw(19, 37)}
    made = model(nodes, inputs, {"w": draw(37, 53)})
    y, native = run(graph_of(made), inputs)
    p = inputs["x"].astype(np.float64) @ draw(37, 53)
    np.testing.assert_allclose(y, np.maximum(p, 0) - np.sin(p), rtol=1e-4, atol=1e-5)
    assert "map" in kernels(native)


def test_a_formula_waits_for_what_a_step_after_the_product_makes():
    nodes: list[Node] = [("MatMul", ["x", "w"], "p", {}), ("Softmax", ["z"], "e", {}), ("Add", ["p", "e"], "y", {})]
    inputs = {"x": draw(19, 37), "z": draw(19, 53)}
    y, _ = run(graph_of(model(nodes, inputs, {"w": draw(37, 53)})), inputs)
    e = np.exp(inputs["z"].astype(np.float64))
    np.testing.assert_allclose(y, inputs["x"].astype(np.float64) @ draw(37, 53) + e / e.sum(1, keepdims=True), rtol=1e-4, atol=1e-5)


COMPARED = ("MatMul", (6, 7), (7, 5)), ("Conv", (1, 3, 6, 6), (5, 3, 3, 3)), ("Conv", (1, 3, 6), (5, 3, 1))


@pytest.mark.parametrize(("kind", "x", "w"), COMPARED)
@pytest.mark.parametrize("constant", [True, False])
def test_a_formula_of_another_element_type_follows_the_sums(kind: str, x: tuple[int, ...], w: tuple[int, ...], constant: bool):
    inputs = {"x": draw(*x)} if constant else {"x": draw(*x), "w": draw(*w)}
    nodes: list[Node] = [(kind, ["x", "w"], "p", {}), ("Greater", ["p", "low"], "q", {}), ("Cast", ["q"], "y", {"to": 1})]
    constants = {"low": np.array(0, F)} | ({"w": draw(*w)} if constant else {})
    sums, _ = run(graph_of(model(nodes[:1], inputs, constants)), inputs)
    for last, dtype in ((2, np.bool_), (3, F)):
        y, _ = run(graph_of(model(nodes[:last], inputs, constants)), inputs)
        assert y.dtype == dtype and np.array_equal(y > 0, sums > 0)


@pytest.mark.parametrize("stage", [1, 4096])
@pytest.mark.parametrize("name", ["product", "windows in slices, two images", "positions", "winograd"])
def test_stages_of_k_change_no_bit(name: str, stage: int, monkeypatch: pytest.MonkeyPatch):
    kind, x, w, attributes = FORMS[name]
    made, inputs = product(kind, x, w, "residual", **attributes)
    graph = graph_of(made)
    expected, _ = run(graph, inputs)
    monkeypatch.setattr(contraction, "STAGE", stage)
    y, _ = run(graph, inputs, threads=2)
    np.testing.assert_array_equal(bits(y), bits(expected))


def test_more_blocks_than_a_group_go_through_the_stages_in_turn():
    inputs = {"x": draw(700, 501)}
    w = draw(501, 35)
    y, _ = run(graph_of(model([("MatMul", ["x", "w"], "y", {})], inputs, {"w": w})), inputs)
    np.testing.assert_allclose(y, inputs["x"].astype(np.float64) @ w, rtol=1e-4, atol=1e-4)


def test_stages_hold_whole_slices():
    ends = np.array([0, 10, 20, 30, 100, 110], np.int64)
    _, stages, count = contraction.Stages.words(110, ends, contraction.STAGE // 25)
    assert (list(stages), count) == ([0, 2, 3, 4, 5], 4)  # type: ignore[arg-type]
    ends, stages, count = contraction.Stages.words(100, None, contraction.STAGE // 40)
    assert (list(ends), list(stages), count) == ([0, 33, 66, 100], [0, 1, 2, 3], 3)  # type: ignore[arg-type]


def to_round() -> Array:
    """Numbers beside all that halves tell apart: the upper 16 bits of any f32 with four lower ones, f16s and what is between two."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(F)
    halves = np.sort(halves[np.isfinite(halves)])
    places = np.concatenate([halves, (halves[1:] + halves[:-1]) / F(2), F([65520, 2.0**-25, 1e-45])])
    near = [np.nextafter(places, F(side)) for side in (np.inf, -np.inf)]
    words = np.add.outer(np.array([0, 0x7FFF, 0x8000, 0x8001], np.uint32), np.arange(1 << 16, dtype=np.uint32) << 16)
    return np.resize(np.concatenate([places, *near, words.reshape(-1).view(F)]), 470_000)


@pytest.mark.parametrize("lanes", [16, 5, 0])
@pytest.mark.parametrize(("half", "converts"), [("float16", False), ("float16", True), ("bfloat16", False)])
def test_sums_are_rounded_to_halves_as_numpy_rounds(half: str, converts: bool, lanes: int):
    if converts and not machine().converts_halves:
        pytest.skip("the CPU has no instruction for it")

    def text(name: str, host: Machine) -> str:
        f = Function(name)
        x, y = f.args("pp")

        def some(i: str) -> None:
            at, vector = f.mul(i, max(lanes, 1)), f"<{lanes} x float>" if lanes else "float"
            value = endings.rounded(f, lanes, f.load(vector, f.at(x, at, "float"), 4), half, converts)
            f.store(vector, value, f.at(y, at, "float"), 4)

        f.loop("%first", "%end", some)
        return f.done()

    x = to_round()
    y = np.zeros_like(x)
    Launch(library(), Kernel(f"rounded {half} {converts} {lanes}", text), [x, y], x.size // max(lanes, 1))()
    with np.errstate(over="ignore", invalid="ignore"):
        expected = x.astype(dtype_of(f16 if half == "float16" else bf16)).astype(F)
    np.testing.assert_array_equal(bits(y), bits(expected))


@pytest.mark.parametrize("cpu", [None, "x86-64-v2"])
def test_sums_far_beyond_f16_are_infinite(cpu: str | None, monkeypatch: pytest.MonkeyPatch):
    if cpu is not None:
        if cpu not in CPUS.get(machine().architecture, {}):
            pytest.skip("another kind of CPU")
        monkeypatch.setenv("POPULUS_NATIVE_CPU", cpu)
    nodes: list[Node] = [("MatMul", ["x", "w"], "p", {}), ("Cast", ["p"], "h", {"to": 10}), ("Cast", ["h"], "y", {"to": 1})]
    x = np.array([[2.0**115, -3 * 2.0**114, 2.0**14, 2.0**127]], F).T
    program = populus.compile(model(nodes, {"x": x}, {"w": np.array([[1, 0.5, 2.0**-24]], F)}), engine="native")
    with np.errstate(over="ignore"):
        expected = (x * F([1, 0.5, 2.0**-24])).astype(np.float16).astype(F)
    np.testing.assert_array_equal(program.run({"x": x})["y"], expected)
