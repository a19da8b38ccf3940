"""The generated dialect: classes, their verifier, and the stub that type checkers see."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest
from xdsl.dialects.builtin import TensorType, f32, f64, i64
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.test_value import create_ssa_value

import populus.dialects.onnx
from populus.dialects.onnx import ONNX, op_class
from populus.dialects.onnx.schema import all_classes
from populus.dialects.support.diagnostics import PopulusError
from populus.tools.onnx_stubs import stub


def value(element=f32, shape=(2,)):
    return create_ssa_value(TensorType(element, list(shape)))


def test_every_version_of_every_op_has_a_class_of_its_own_name():
    names = [op.name for op in ONNX.operations]
    assert len(names) == len(set(names)) > 600


def test_asking_for_a_class_twice_gives_the_same():
    assert op_class("", "Conv", 17) is op_class("ai.onnx", "Conv", 11)


def test_classes_are_importable_by_name():
    from populus.dialects.onnx.ops import Softmax_11, ai_onnx_ml_Scaler_1

    assert (Softmax_11.name, ai_onnx_ml_Scaler_1.name) == ("onnx.Softmax_11", "onnx.ai_onnx_ml_Scaler_1")
    with pytest.raises(ImportError, match="Softmax_12"):
        from populus.dialects.onnx.ops import Softmax_12  # noqa: F401  # pyright: ignore[reportUnusedImport]


def test_inputs_that_are_left_out_keep_their_position():
    x, high = value(), value(shape=())
    op = op_class("", "Clip", 13).make([x, None, high], [x.type])
    assert op.inputs == [x, None, high]
    assert op.min is None
    op.verify()


def test_defaults_are_the_schemas():
    op = op_class("", "Gemm", 13).make([value(shape=(2, 2)), value(shape=(2, 2))], [TensorType(f32, [2, 2])])
    assert (op.property("alpha"), op.property("transA")) == (1.0, 0)


def test_element_types_are_those_of_the_schema():
    op = op_class("", "Sigmoid", 13).make([value(i64)], [TensorType(i64, [2])])
    with pytest.raises(VerifyException, match=r"tensor\(int64\) is not one of tensor\(bfloat16\), tensor\(double\)"):
        op.verify()


def test_operands_of_one_type_variable_have_one_type():
    op = op_class("", "Add", 14).make([value(f32), value(f64)], [TensorType(f32, [2])])
    with pytest.raises(VerifyException, match=r"A is tensor\(float\), B is tensor\(double\); Add-14 wants one type T for both"):
        op.verify()


def test_too_many_inputs_are_refused():
    with pytest.raises(PopulusError, match="Relu-14 has 2 inputs; it takes 1 at most"):
        op_class("", "Relu", 14).make([value(), value()], [TensorType(f32, [2])])


def test_every_class_can_be_printed_in_the_stub():
    assert all(f"class {c.__name__}(OnnxOp):" in stub() for c in [op_class("", "Conv", 22), op_class("", "If", 28)])
    assert len(all_classes()) > 600


@pytest.mark.skipif(not importlib.metadata.version("onnx").startswith("1.23."), reason="the stub is that of onnx 1.23")
def test_the_stub_is_what_the_tool_writes():
    path = Path(populus.dialects.onnx.__file__).parent / "ops.pyi"
    assert path.read_text().split("\n", 1)[1] == stub().split("\n", 1)[1], "python -m populus.tools.onnx_stubs writes it"


def test_importing_the_dialect_does_not_import_onnx():
    code = "import sys, populus.dialects.onnx; assert 'onnx' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
