"""One program for all sizes up to a bound, compared with programs of exact sizes. The padded part holds NaN, infinities, large integers."""

from __future__ import annotations

import pytest
from onnx import parser

from helpers.bounded_cases import CASES, DIMS, SIZES, case, dims_of
from helpers.bounded_runs import BoundedRun, compare, compare_gradients
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.to_popart.open_sizes import ELEMENTWISE, RULES, UNIFORM

INTEGERS = (
    "argmax", "arg min, the last", "range from", "int div", "all true", "matmul integer", "qlinear matmul", "conv integer", "qlinear conv",
)  # fmt: skip
"""Cases whose results have no gradient."""
LONG = ("lstm", "lstm h", "gru softmax", "loop that carries a size")  # as gru and scan, but longer to compile


@pytest.mark.parametrize("name", CASES)
def test_an_op_is_right_on_the_valid_part(name: str):
    model = case(name)
    names = dims_of(model)
    compare(model, {n: DIMS[n] for n in names}, [{n: SIZES[n] for n in names}], level="popart")


@pytest.mark.parametrize(
    "name", [name for name in CASES if name not in (*INTEGERS, *LONG) and "x" in [i.name for i in case(name).graph.input]]
)
def test_gradients_agree_with_those_of_exact_programs(name: str):
    model = case(name)
    names = dims_of(model)
    compare_gradients(model, {n: DIMS[n] for n in names}, [{n: SIZES[n] for n in names}], ["x"], level="popart")


@pytest.mark.parametrize("name", ["concat softmax", "causal", "merge softmax", "conv2"])
@pytest.mark.parametrize("engine", ["strict", "native"])
def test_engines_agree_at_the_ends_of_the_bounds(name: str, engine: str):
    model = case(name)
    names = dims_of(model)
    ends = [{n: DIMS[n][0] for n in names}, {n: DIMS[n][1] for n in names}]
    compare(model, {n: DIMS[n] for n in names}, ends, engine=engine, tiles=16)


def refusal(body: str, signature: str = "float[b, s, 4] x") -> str:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["":18]>\ng ({signature}) => (float[] y) {{\n {body}\n}}')
    with pytest.raises(PopulusError) as found:
        BoundedRun(model, {"b": (1, 3), "s": (1, 6)})
    assert "\n" not in str(found.value)
    return str(found.value)


def test_an_op_without_a_rule_is_refused_by_name_and_dimension():
    assert "'y': Det-11: Det is not computed where the dimension 'b' and 's' is bounded" in refusal("y = Det(x)")


def test_sizes_that_cannot_be_equal_are_refused():
    text = refusal("c = Concat<axis=1>(x, x, x)\n d = Concat<axis=1>(c, x, x, x, x, x)\n y = Add(x, d)")
    assert "sizes s and 8 * s meet" in text


def test_different_dimensions_that_meet_have_to_be_equal_in_each_run():
    model = parser.parse_model('<ir_version: 8, opset_import: ["":18]>\ng (float[s, 4] x, float[t, 4] z) => (float[] y) { y = Add(x, z) }')
    run = compare(model, {"s": (1, 6), "t": (2, 4)}, [{"s": 3, "t": 3}], level="popart")
    assert run.equal == (("s", "t"),)


def test_each_op_that_is_converted_has_a_case():
    covered = {node.op_type for name in CASES for node in case(name).graph.node}
    missing = (set(RULES) | set(UNIFORM)) - set(ELEMENTWISE) - covered
    # Older forms of ScatterElements and Resize; CastLike is in the function of Attention.
    assert missing == {"CastLike", "Scatter", "Upsample"}, missing


def test_old_broadcasting_is_refused():
    model = parser.parse_model('<ir_version: 3, opset_import: ["":6]>\ng (float[s, 4] x) => (float[] y) { y = Add(x, x) }')
    with pytest.raises(PopulusError, match="before opset 7"):
        BoundedRun(model, {"s": (1, 6)})
