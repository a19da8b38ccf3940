"""Plans as text: what is written gives the same program, what is edited gives right results, and what cannot be is one line."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import populus
from populus.dialects.poplar import FamilyOp
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.poplar.plan.stated import as_option, of_option, parse
from populus.tools.main import main
from populus.write.nets import model_path


def product(rows=8, inner=64, columns=48, weights=True):
    """Makes a product `a @ b`, of which `b` is a constant or an input."""
    b = np.random.default_rng(0).standard_normal((inner, columns)).astype(np.float32)
    inputs = [helper.make_tensor_value_info("a", TensorProto.FLOAT, [rows, inner])]
    inputs += [] if weights else [helper.make_tensor_value_info("b", TensorProto.FLOAT, [inner, columns])]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, columns])
    node = helper.make_node("MatMul", ["a", "b"], ["y"], name="layer 1/dense")
    graph = helper.make_graph([node], "g", inputs, [y], [numpy_helper.from_array(b, "b")] if weights else [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), b


@pytest.fixture
def given(tmp_path):
    """Gives a function that compiles with plans of a text."""

    def compiled(model, text, **options):
        path = tmp_path / "stated.plan"
        path.write_text(text)
        return populus.compile(model, plan=path, cache=False, **{"target": "gc200", **options})

    return compiled


OPTIONS = [{}, {"optimise": "cycles"}, {"optimise": "memory"}, {"target": "n150"}, {"target": "gc200, tiles=64"}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_plans_that_were_written_give_the_same_program(given, options):
    net = model_path("squeezenet")
    chosen = populus.compile(net, cache=False, **{"target": "gc200", **options})
    text = chosen.plans()
    again = given(net, text, **options)
    assert str(again.module("poplar")) == str(chosen.module("poplar"))
    assert again.plans() == text
    assert len([line for line in text.splitlines() if not line.startswith("#")]) == 26


@pytest.mark.parametrize("tiles", [3, 5])
def test_the_steps_that_were_written_are_made_again(given, tiles):
    model, _ = product(4096, 256, 256)
    options = {"target": f"gc200, tiles={tiles}, tile_bytes=600000"}
    chosen = populus.compile(model, level="popops", cache=False, **options)
    text = chosen.plans()
    assert "steps=" in text
    assert given(model, text, level="popops", **options).plans() == text


def parts(program):
    (family,) = (f for f in program.module("poplar").walk() if isinstance(f, FamilyOp) and f.codelet.data == "matmul")
    return {name: split.parts for name, split in family.domain.data.axes}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("layer%201/dense: windows=4 out=3 in=2", {"m": 4, "n": 3, "k": 2}),
        ("layer*: windows=8 resident=yes", {"m": 8, "n": 1, "k": 1}),
        ("# nothing\n*dense: swapped=yes  # loads the rows\n", {"m": 1, "n": 1, "k": 1}),
        ("nothing*: out=9\nlayer*: in=3\n".partition("\n")[2], {"m": 1, "n": 1, "k": 3}),
    ],
)
@pytest.mark.parametrize("engine", ["strict", "native"])
def test_an_edited_plan_is_what_runs(given, text, expected, engine):
    model, b = product()
    program = given(model, text, engine=engine)
    found = {name: n for name, n in parts(program).items() if name in expected}
    assert found == expected
    a = np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32)
    (y,) = program.run({"a": a}).values()
    np.testing.assert_allclose(y, a @ b, rtol=1e-5, atol=1e-5)


def test_steps_and_a_step_of_its_own_give_the_product(given):
    model, b = product(weights=False)
    program = given(model, "layer%201/dense@1.2: out=3\nlayer%201/dense: windows=4 steps=rows:2\n", engine="strict")
    cut = [f.domain.data for f in program.module("poplar").walk() if isinstance(f, FamilyOp) and f.codelet.data == "matmul"]
    assert [{n: s.parts for n, s in domain.axes if s.parts > 1} for domain in cut] == [{"m": 4}, {"n": 3}]
    a = np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32)
    np.testing.assert_allclose(program.run({"a": a, "b": b})["y"], a @ b, rtol=1e-5, atol=1e-5)


def test_stated_plans_leave_the_others_as_they_are(given):
    chosen = populus.compile(model_path("digits"), target="gc200", cache=False).plans().splitlines()
    edited = given(model_path("digits"), "conv1: windows=4x2\n").plans().splitlines()
    assert "conv1: windows=4x2" in edited
    assert [line for line in edited if "conv1" not in line] == [line for line in chosen if "conv1" not in line]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dense: out=2", "plan of 'dense': no product or convolution has this name"),
        ("layer*: out=4", "plan of 'layer 1/dense': out=4; 48 in grains of 16 are at most 3 parts"),
        ("layer*: windows=9", "plan of 'layer 1/dense': windows=9; 8 are at most 8 parts"),
        ("layer*: windows=2x2", "windows=2x2 for 1 axes; state the parts of each"),
        ("layer*: windows=8 in=8 out=3", "192 parts in all, and gc200 has 64 tiles"),
        ("layer*: steps=rows:9", "steps=rows:9; it has fewer rows"),
        ("layer*: tiled=yes", "tiled is for convolutions"),
        ("layer*: kernel=2", "kernel=2; 1 are at most 1 part"),
        ("layer*: width=2", "stated.plan:1: no field 'width=2'"),
        ("\nlayer*: out=-1", "stated.plan:2: out=-1; expected a number of parts from 1 on"),
        ("layer*: windows=8x", "stated.plan:1: windows=; expected a number of parts from 1 on, of each axis"),
        ("layer*: out=99999999999", "out=99999999999; expected a number of parts"),
        ("layer*: resident=maybe", "resident=maybe; expected yes or no"),
        ("layer*: steps=groups:2", "steps=groups:2; expected rows:N or channels:N"),
        ("layer*: out=2 out=3", "out is there twice"),
        ("layer* out=2", "'layer*'; expected NAME: and fields"),
        ("layer*: out=2\nlayer*: out=3", "stated.plan:2: 'layer*' has a plan already"),
    ],
)
def test_a_plan_that_cannot_be_is_one_line(given, text, message):
    with pytest.raises(PopulusError) as error:
        given(product()[0], text, target="gc200, tiles=64")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_plan_beyond_a_tile_is_refused_with_its_bytes(given):
    with pytest.raises(PopulusError, match=r"a tile needs 4,\d{3},\d{3} bytes for operands and .*, and has 6\d\d,\d{3}; cut more"):
        given(product(1024, 1024, 16)[0], "layer*: in=1")
    with pytest.raises(PopulusError, match="resident weights would take 1,048,576 bytes of a tile up to here"):
        given(product(16, 2048, 2048)[0], "layer*: in=16 resident=yes", target="gc200, tile_bytes=1300000, tiles=16")
    with pytest.raises(PopulusError, match="resident is for constants"):
        given(product(weights=False)[0], "layer*: resident=yes")
    with pytest.raises(PopulusError, match="swapped is for products on machines whose units are loaded"):
        given(model_path("digits"), "conv2: swapped=yes")


def test_plans_are_the_same_as_an_option_of_the_pass():
    plans = parse("a%20b: out=2 windows=3x4 resident=yes\nc*: steps=channels:3 swapped=yes tiled=yes kernel=2 groups=3 batch=4 in=5\n")
    assert of_option(as_option(plans)) == plans


def test_the_command_writes_plans_and_takes_them_back(tmp_path, capsys):
    plan = tmp_path / "digits.plan"
    assert main(["run", "digits", "--target", "gc200", "--plan-to", str(plan)]) == 0
    shapes = "1x1x8x8xf32 x 8x1x3x3xf32"
    assert plan.read_text().startswith(f"# digits.onnx on gc200\n# convolution of {shapes}\nconv1: windows=8x8 resident=yes\n")
    assert main(["profile", "digits", "--target", "gc200", "--plan", str(plan), "--json", str(tmp_path / "p.json")]) == 0
    plan.write_text("conv2: windows=1x4\n")
    assert main(["explore", "digits", "--machine", "gc200", "--vary", "tiles=2,16", "--plan", str(plan)]) == 0
    assert "plan of 'conv2': 4 parts in all, and gc200 has 2 tiles" in capsys.readouterr().out
    assert main(["profile", "digits", "--plan", str(tmp_path / "none.plan")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
