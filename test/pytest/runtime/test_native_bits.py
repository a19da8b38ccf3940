"""The native engine's bits: the same on every CPU that has fused multiply-add, and on every one that has not."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from xdsl.dialects.builtin import ModuleOp

import populus
from helpers.random_programs import Programs
from populus.dialects.poplar import FamilyOp
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.driver.pipeline import Pipeline
from populus.runtime.engine.native.codegen.cpu import CPUS, VARIABLE, machine
from populus.runtime.engine.native.run.program import NativeProgram

Array = NDArray[Any]
F, H = np.float32, np.float16
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3.4e38, -3.4e38, 88.8, -104.1], F)


@cache
def cpus() -> list[str | None]:
    """The CPU at hand, and of each width of vectors, fused or not, one of the table whose features it has."""
    found: dict[tuple[bool, int], str] = {}
    for name in CPUS.get(machine().triple.partition("-")[0], {}):
        try:
            other = machine(name)
        except PopulusError:
            continue
        found[other.fused, other.vector_bytes] = name
    return [None, *found.values()]


def draw(*shape: int, dtype: Any = F) -> Array:
    """Normal numbers; of vectors, special ones as well."""
    x = np.random.default_rng(len(shape)).standard_normal(shape)
    if len(shape) == 1:
        x[: len(SPECIAL)] = SPECIAL
    with np.errstate(over="ignore"):
        return x.astype(dtype)


def one_op(kind: str, arrays: list[Array], constants: tuple[Array, ...] = (), **attributes: Any) -> tuple[ModuleOp, dict[str, Array]]:
    """The tile program of one op on 64 tiles, and its inputs."""
    inputs = [helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for i, a in enumerate(arrays)]
    node = helper.make_node(kind, [i.name for i in inputs] + [f"c{i}" for i in range(len(constants))], ["y"], **attributes)
    initializers = [numpy_helper.from_array(a, f"c{i}") for i, a in enumerate(constants)]
    graph = helper.make_graph([node], "one", inputs, [helper.make_empty_tensor_value_info("y")], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    # A gc200 states sums over k in slices; it has no f64, and no bf16.
    target = "gc200" if kind in ("MatMul", "Conv") and arrays[0].dtype != np.float64 else "host"
    return populus.compile(model, target=target, tiles=64).module("poplar"), {f"x{i}": a for i, a in enumerate(arrays)}


def drawn(seed: int) -> tuple[ModuleOp, dict[str, Array]]:
    """A program of some twenty ops drawn at random."""
    module = Programs(seed).module()
    inputs = populus.compile(module).signature.random(seed)
    Pipeline.named("inference").from_level("popops").with_defaults(target="gc200", tiles=16).run(context(), module)
    return module, inputs


WIDE = {"pads": [1, 1, 1, 1], "strides": [2, 1]}
PRODUCTS = {  # longer than a block of sums in every direction, and no multiple of it
    "matmul": ("MatMul", [draw(37, 531), draw(531, 101)], (), {}),
    "matmul by a constant": ("MatMul", [draw(13, 531)], (draw(531, 101),), {}),
    "matmul of one row": ("MatMul", [draw(1, 531)], (draw(531, 101),), {}),
    "matmul of f64": ("MatMul", [draw(2, 19, 137, dtype=np.float64), draw(2, 137, 53, dtype=np.float64)], (), {}),
    "matmul of f16": ("MatMul", [draw(19, 137, dtype=H), draw(137, 53, dtype=H)], (), {}),
    "conv": ("Conv", [draw(2, 19, 15, 17)], (draw(37, 19, 3, 3),), WIDE),
    "conv in groups": ("Conv", [draw(1, 12, 15, 17), draw(34, 6, 3, 3)], (), {"group": 2, **WIDE}),
    "conv of volumes": ("Conv", [draw(1, 5, 6, 7, 9), draw(7, 5, 2, 2, 3)], (), {}),
}
ROWS = {
    "conv, depthwise": ("Conv", [draw(1, 12, 15, 37)], (draw(12, 1, 3, 3),), {"group": 12, **WIDE}),
    "softmax": ("Softmax", [30 * draw(9, 531)], (), {}),
    "log softmax": ("LogSoftmax", [30 * draw(9, 531)], (), {}),
    "whiten": ("LayerNormalization", [draw(9, 531)], (draw(531, 1)[:, 0],), {}),
    "whiten of f64": ("LayerNormalization", [draw(9, 131, dtype=np.float64)], (draw(131, 1, dtype=np.float64)[:, 0],), {}),
    "mean": ("AveragePool", [draw(1, 5, 15, 37)], (), {"kernel_shape": [3, 3], **WIDE}),
    **{
        f"{kind} of {dtype.__name__}, dimension {d}": (kind, [draw(37, 5, 71, dtype=dtype)], (np.array([d]),), {})
        for kind in ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceSumSquare")
        for d in (0, 2)
        for dtype in (F, np.float64, H)
    },
}
FORMULAS = {
    kind: (kind, [draw(1031)], (), {})
    for kind in ("Exp", "Log", "Tanh", "Sigmoid", "Erf", "Gelu", "Sqrt", "Reciprocal", "Round", "HardSwish")
} | {
    "Div": ("Div", [draw(1031), draw(1031, 1)[:, 0]], (), {}),
    "Cast to f16": ("Cast", [draw(1031)], (), {"to": 10}),
    "Cast to bf16": ("Cast", [draw(1031)], (), {"to": 16}),
    "Cast of u32": ("Cast", [np.random.default_rng(0).integers(0, 2**32, 1031, np.uint32)], (), {"to": 1}),
    "Cast of i64": ("Cast", [np.random.default_rng(0).integers(-(2**62), 2**62, 1031)], (), {"to": 1}),
    "Exp of f16": ("Exp", [draw(1031, dtype=H)], (), {}),
}


def bits(outputs: dict[str, Array]) -> dict[str, bytes]:
    """Their bytes, every NaN being one."""
    return {n: np.where(np.isnan(a), np.array(np.nan, a.dtype), a).tobytes() for n, a in outputs.items()}


def agree_by_class(module: ModuleOp, inputs: dict[str, Array]) -> None:
    """On CPUs with and without fused multiply-add; on all of them where no product is summed."""
    products = {op.codelet.data for op in module.walk() if isinstance(op, FamilyOp)} & {"matmul", "conv"}
    first: dict[bool, tuple[str | None, dict[str, bytes]]] = {}
    for cpu in cpus():
        program = NativeProgram(module.body.block.first_op, cpu=cpu)
        assert not program.fallbacks
        found = bits(program.run(inputs))
        fused = bool(products) and program.library.host.fused
        other, expected = first.setdefault(fused, (cpu, found))
        assert found == expected, (cpu, other)


def test_a_cpu_is_one_of_the_table_whose_features_are_there(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(CPUS, machine().triple.partition("-")[0], {"earlier": "", "later": "+another"})
    assert (machine("earlier").fused, machine("earlier").vector_bytes) == (False, 16)
    monkeypatch.setenv(VARIABLE, "latter")
    with pytest.raises(PopulusError, match=f"{VARIABLE} = latter is no CPU that code is made for here; did you mean 'later'"):
        machine()
    monkeypatch.setenv(VARIABLE, "later")
    with pytest.raises(PopulusError, match=f"{VARIABLE} = later; this CPU, .*, lacks another"):
        machine()


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_the_same_bits_on_all_cpus_that_round_them_alike(name: str):
    kind, arrays, constants, attributes = PRODUCTS[name]
    agree_by_class(*one_op(kind, arrays, constants, **attributes))


@pytest.mark.parametrize("name", [*ROWS, *FORMULAS])
def test_rows_windows_and_formulas_are_the_same_bits_on_all_cpus(name: str):
    kind, arrays, constants, attributes = (ROWS | FORMULAS)[name]
    agree_by_class(*one_op(kind, arrays, constants, **attributes))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_programs_are_the_same_bits_on_all_cpus_that_round_products_alike(seed: int):
    agree_by_class(*drawn(seed))
