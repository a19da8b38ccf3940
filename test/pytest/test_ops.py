"""What every `popart` op has to do, for each row of the table in `op_cases.py`."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.builder import Builder
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.rewriter import InsertPoint

from helpers.op_cases import Case, cases, is_float
from populus.dialects.base.control_flow import Control, Yield
from populus.dialects.data import ConstantOp
from populus.dialects.popart import POPART, PopartOp
from populus.dialects.support.diagnostics import verify, where
from populus.dialects.table import context
from populus.lowering.popart.to_popops import PopartToPopopsPass
from populus.runtime.interpreter import run_function

CASES = list(cases())
FLOATS = [c for c in CASES if any(is_float(a) for a in c.inputs.values())]


def by_id(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda c: c.id)


def lowered(module: ModuleOp) -> ModuleOp:
    copy = module.clone()
    PopartToPopopsPass().apply(context(), copy)
    verify(copy)
    return copy


def close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    if is_float(found):
        found, expected = found.astype(np.float64), expected.astype(np.float64)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(found, expected)


def test_every_op_has_a_row():
    assert {op for op in POPART.operations if not issubclass(op, Control | Yield)} == {c.op for c in CASES}
    assert len({c.id for c in CASES}) == len(CASES)


def test_every_op_can_be_made_and_says_its_source():
    for op in (op for op in POPART.operations if not issubclass(op, Yield)):
        assert not op.__abstractmethods__
        assert any(f"Source: {of}" in (op.__doc__ or "") for of in ("ONNX", "PopART", "onnxruntime")), op


@by_id(CASES)
def test_a_result_has_the_inferred_type_at_both_levels(case):
    module = case.module()
    verify(module)
    expected = run_function(module, case.inputs)["y"]
    function = module.body.block.first_op
    assert isinstance(function, FuncOp)
    type = function.function_type.outputs.data[0]
    assert isinstance(type, TensorType)
    assert expected.shape == type.get_shape()
    library = lowered(module)
    for op in library.walk():
        assert not op.name.startswith("popart.")
        if not isinstance(op, ModuleOp | FuncOp | ReturnOp):
            assert where(op) == f"'{case.id}'"
    close(run_function(library, case.inputs)["y"], expected, case.tolerance)


@by_id(CASES)
def test_its_text_reads_back(case):
    from xdsl.parser import Parser

    text = str(case.module())
    assert str(Parser(context(), text).parse_module()) == text


@by_id([c for c in CASES if c.onnx is not None])
def test_it_agrees_with_onnx(case):
    import onnx
    import onnx.reference
    import onnxruntime

    name, attributes = case.onnx
    inputs = [*case.inputs.values(), *case.more]
    names = [f"x{i}" for i in range(len(inputs))]
    node = onnx.helper.make_node(name, names, ["y"], **attributes)
    given = [onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in zip(names, inputs)]
    graph = onnx.helper.make_graph([node], "g", given, [onnx.helper.make_empty_tensor_value_info("y")])
    model = onnx.helper.make_model(
        graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 24 if case.oracle == "onnx.reference" else 21)]
    )
    with np.errstate(all="ignore"):
        if case.oracle == "onnx.reference":
            (expected,) = onnx.reference.ReferenceEvaluator(model).run(None, dict(zip(names, inputs)))
        else:
            (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, dict(zip(names, inputs)))
    close(run_function(case.module(), case.inputs)["y"], np.asarray(expected), case.tolerance)


@by_id([c for c in FLOATS if c.gradient])
def test_its_gradient_is_the_slope(case):
    """Against central differences of a random linear function of the result, all in f64."""
    double = np.dtype(np.float64)
    module = case.module(double)
    inputs = {n: a.astype(double) if is_float(a) else a for n, a in case.inputs.items()}
    y = run_function(module, inputs)["y"]
    if not is_float(y):
        pytest.skip("the result is no float")
    g = np.random.default_rng(3).uniform(0.5, 1.5, y.shape)
    found = gradients(module, inputs, g)
    h = 1e-6
    for name, array in inputs.items():
        if not is_float(array):
            assert found[name] is None
            continue
        slope = np.zeros_like(array)
        for i in range(array.size):
            values = []
            for step in (h, -h):
                moved = array.copy()
                moved.reshape(-1)[i] += step
                values.append((run_function(module, {**inputs, name: moved})["y"].astype(double) * g).sum())
            slope.reshape(-1)[i] = (values[0] - values[1]) / (2 * h)
        gradient = found[name]
        assert gradient is not None
        np.testing.assert_allclose(gradient, slope, rtol=1e-5, atol=1e-5 * max(1.0, float(np.abs(slope).max(initial=0))))


def gradients(module: ModuleOp, inputs: dict[str, np.ndarray], g: np.ndarray) -> dict[str, np.ndarray | None]:
    """What the op's `gradient` gives for each input, by lowering and running what it inserts."""
    module = module.clone()
    function = module.body.block.first_op
    assert isinstance(function, FuncOp)
    block = function.body.block
    op, end = block.first_op, block.last_op
    assert isinstance(op, PopartOp)
    assert end is not None
    given = block.insert_arg(op.results[0].type, len(block.args))
    values = op.gradient(Builder(InsertPoint.before(end)), [given])
    assert len(values) == len(op.operands)
    end.operands = [v for v in values if v is not None]
    for operand, value in zip(op.operands, values):
        assert value is None or value.type == operand.type
    function.update_function_type()
    function.attributes.clear()
    verify(module)
    arguments = {f"input_{i}": a for i, a in enumerate([*inputs.values(), g])}
    results = iter(run_function(module, arguments).values())
    library = iter(run_function(lowered(module), arguments).values())
    found = {name: None if v is None else next(results) for name, v in zip(inputs, values)}
    for array in found.values():
        if array is not None:
            np.testing.assert_allclose(array, next(library), rtol=1e-9, atol=1e-9)
    assert not any(isinstance(o, ConstantOp) and not o.result.uses for o in lowered(module).walk())
    return found
