"""Custom ops in C++: what a file registers, the Python that is drafted from it, and a program that loads the compiled library."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from populus.write.registrations import Attribute, registered

OPS = r"""
#include "names.hpp"
// OpCreator<GoneOp> gone(OpDefinitions({{GoneId, goneDef}}));   a comment registers nothing
static popart::OpDefinition::DataTypes Floats = {popart::DataType::FLOAT16, popart::DataType::FLOAT};
static popart::OpDefinition::DataTypes Whole = {popart::DataType::INT32};

class SoftClampOp : public popart::Op {
public:
  void setup() final { outInfo(0) = inInfo(0); }
};
static popart::OpDefinition softClampDef({popart::OpDefinition::Inputs({{"data", Floats}}),
    popart::OpDefinition::Outputs({{"out", Floats}}), popart::OpDefinition::Attributes({{"limit", {"*"}}})});
static popart::OpCreator<SoftClampOp> softClamp(popart::OpDefinitions({{Ids::SoftClamp, softClampDef}}),
    [](const popart::OpCreatorInfo &info) {
      float limit = info.attributes.getAttribute<popart::Attributes::Float>("limit", 1.5e0f);
      return std::make_unique<SoftClampOp>(info.opid, limit, info.settings);
    }, true);

class BestRowOp : public popart::Op { public: void setup() final; };
void BestRowOp::setup() { outInfo(1) = inInfo(0); outInfo(0) = popart::TensorInfo(popart::DataType::INT32, {1}); }
static popart::OpDefinition bestRowDef({popart::OpDefinition::Inputs({{"rows", Floats}, {"lambda", Whole}}),
    popart::OpDefinition::Outputs({{"at", Whole}, {"rows", Floats}}),
    popart::OpDefinition::Attributes({{"axis", {"*"}}, {"mode", {"*"}}, {"least", {"*"}}, {"other", {"*"}}})});
static popart::OpCreator<BestRowOp> bestRow(popart::OpDefinitions({{BestRow, bestRowDef}}), [](const popart::OpCreatorInfo &info) {
      int axis = info.attributes.getAttribute<popart::Attributes::Int>("axis", -1);
      auto mode = info.attributes.getAttribute<popart::Attributes::String>("mode", "first");
      auto least = info.attributes.getAttribute<popart::Attributes::Float>("least", -std::numeric_limits<float>::max());
    }, true);
"""
NAMES = """
namespace Ids { const popart::OperatorIdentifier SoftClamp = {"org.mine", "SoftClamp", 2}; }
const popart::OperatorIdentifier BestRow("ai.graphcore", "BestRow", 1);
"""
PROGRAM = """
import ctypes
ctypes.cdll.LoadLibrary("{library}")
import numpy as np, popart
b = popart.Builder()
x = b.addInputTensor(popart.TensorInfo("FLOAT", [3]))
(y,) = b.customOp(opName="SoftClamp", opVersion=2, domain="org.mine", inputs=[x], attributes={{"limit": 2.0}})
b.addOutputTensor(y)
flow, device = popart.DataFlow(1, [y]), popart.DeviceManager().createIpuModelDevice({{}})
session = popart.InferenceSession(b.getModelProto(), flow, device)
session.prepareDevice()
anchors = session.initAnchorArrays()
session.run(popart.PyStepIO({{x: np.array([-5, 1, 5], np.float32)}}, anchors))
print(anchors[y].tolist())
"""


@pytest.fixture
def source(tmp_path):
    (tmp_path / "ops.cpp").write_text(OPS)
    (tmp_path / "names.hpp").write_text(NAMES)
    return tmp_path / "ops.cpp"


def test_a_file_registers_names_operands_and_attributes(source):
    clamp, best = registered(source)
    assert (clamp.domain, clamp.name, clamp.version, clamp.kind) == ("org.mine", "SoftClamp", 2, "SoftClampOp")
    assert (clamp.inputs, clamp.outputs) == ({"data": ("FLOAT16", "FLOAT")}, {"out": ("FLOAT16", "FLOAT")})
    assert clamp.attributes == {"limit": Attribute("Float", "1.5e0f")} and clamp.copied == {0: 0}
    assert best.inputs["lambda"] == ("INT32",) and best.copied == {1: 0}
    assert best.attributes["axis"] == Attribute("Int", "-1") and best.attributes["other"] == Attribute("")
    assert best.attributes["least"] == Attribute("Float", "-std::numeric_limits<float>::max()")


def test_a_header_outside_of_the_folder_is_not_read(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "names.hpp").write_text(NAMES)
    (inner / "ops.cpp").write_text(OPS.replace('"names.hpp"', '"../names.hpp"'))
    assert registered(inner / "ops.cpp") == []


def test_text_of_c_plus_plus_stays_text(tmp_path):
    """A name with a backslash or a quote would end the string of Python that it is in."""
    (tmp_path / "names.hpp").write_text(NAMES.replace("org.mine", "org\\\\").replace('"BestRow"', '"Best\'Row"'))
    (tmp_path / "ops.cpp").write_text(OPS)
    assert registered(tmp_path / "ops.cpp") == []


def test_drafts_load_and_say_what_to_write(source, populus, tmp_path):
    got = populus("new-op", "--from", source, "--folder", tmp_path)
    assert (got.status, got.err) == (0, "")
    assert got.out.split() == [str(tmp_path / "soft_clamp.py"), str(tmp_path / "best_row.py")]
    clamp, best = ((tmp_path / f"{name}.py").read_text() for name in ("soft_clamp", "best_row"))
    assert "limit: float = number(1.5)" in clamp and "class SoftClampOp(UnaryOp)" in clamp
    assert "axis: int = whole(-1)" in best and 'mode: str = text("first")' in best
    assert "least: float = number()  # its default in C++ is -std::numeric_limits<float>::max()" in best
    assert "lambda_ = operand_def" in best and "rows_ = result_def" in best
    import populus as package
    from populus.lowering.driver import extensions

    with extensions.restored():
        (op,) = package.load(tmp_path / "best_row.py").ops
        assert [name for name, _ in op.get_irdl_definition().operands] == ["rows", "lambda_"]
    again = populus("new-op", "SoftClamp", "--from", source, "--folder", tmp_path)
    assert (again.status, again.err.count("\n")) == (1, 1) and "already exists" in again.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--from", "none.cpp"], "none.cpp: No such file or directory"),
        (["--from", "names.hpp"], "names.hpp: registers no op for models; a file with a popart::OpCreator is expected"),
        (["SoftClamps", "--from", "ops.cpp"], "ops.cpp: registers no op 'SoftClamps'; did you mean 'SoftClamp'?"),
        ([], "the following arguments are required: NAME, or --from OP.cpp"),
    ],
)
def test_what_cannot_be_drafted_is_one_line(args, message, source, populus, monkeypatch):
    monkeypatch.chdir(source.parent)
    got = populus("new-op", *args)
    assert got.status in (1, 2) and got.err.count("\n") == 1 and message in got.err


def test_a_program_that_loads_compiled_ops_is_led_to_files_of_python(source, populus, tmp_path):
    (tmp_path / "build").mkdir()
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(library=tmp_path / "build/custom_ops.so"))
    got = populus("run-program", program)
    assert (got.status, got.err.count("\n")) == (1, 1)
    assert "program.py:3: custom_ops.so: org.mine SoftClamp-2 is compiled C++, which does not run here" in got.err
    assert f"`populus new-op SoftClamp --from {source}` drafts soft_clamp.py, and `--load soft_clamp.py`" in got.err
    (tmp_path / "ops.cpp").write_text(OPS.partition("class BestRowOp")[0])
    assert populus("new-op", "SoftClamp", "--from", source, "--folder", tmp_path).status == 0
    draft = tmp_path / "soft_clamp.py"
    got = populus("run-program", program, "--load", draft)
    assert got.status == 1 and "soft_clamp.py: write here what SoftClampOpx::grow of ops.cpp computes" in got.err
    lines = draft.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if "raise PopulusError" in line)
    lines[at] = "        return clamp(x, -self.limit, self.limit)"
    draft.write_text("\n".join(lines).replace("    PopulusError,", "    clamp,") + "\n")
    got = populus("run-program", program, "--load", draft)
    assert (got.status, got.out) == (0, "[-2.0, 1.0, 2.0]\n"), got.err


def test_other_libraries_load_as_they_did(tmp_path):
    from populus import compiled_ops

    compiled_ops.install()
    try:
        assert ctypes.CDLL(None)._handle
        with pytest.raises(OSError, match="no_such_library"):
            ctypes.CDLL(str(Path(tmp_path / "no_such_library.so")))
        with pytest.raises(OSError, match="libnosuch"):
            ctypes.CDLL("libnosuch.so")
    finally:
        compiled_ops.uninstall()
