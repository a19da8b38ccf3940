"""`print_tensor`: printed values and gradients, in the program's order, from graphs, loops and branches."""

from __future__ import annotations

import numpy as np
import pytest

from populus import popxl
from populus.popxl import ops
from populus.popxl.printing import PrintFormat

X = np.array([1.0, -2.5], np.float32)


def run(ir: popxl.Ir, times: int = 1) -> None:
    with popxl.Session(ir, "cpu", tiles=2, engine="numpy") as session:
        for _ in range(times):
            session.run()


def test_values_are_printed_in_the_program_s_order(capsys: pytest.CaptureFixture[str]):
    def step(x: popxl.Tensor) -> popxl.Tensor:
        x = ops.print_tensor(x, "before", digits=2)
        return ops.print_tensor(x * 2, "after", digits=2)

    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(1.0, name="x")
        ops.print_tensor(x, digits=1)
        graph = ir.create_graph(step, x)
        ops.repeat(graph, 2, x)
        ops.print_tensor(popxl.constant(7, popxl.int32), "last")
    run(ir, times=2)
    lines = ["print_x: 1.", "before: 1.0", "after: 2.0", "before: 2.0", "after: 4.0", "last: 7"]
    assert capsys.readouterr().err.splitlines() == lines * 2


def test_the_branch_that_is_taken_prints(capsys: pytest.CaptureFixture[str]):
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(X)
        branches = [ir.create_graph(lambda x, k=k: ops.print_tensor(x + k, f"branch {k}", digits=0), x) for k in (1, 2)]
        for condition in (False, True):
            ops.conditional(popxl.constant(condition), *branches, [x], [x])
    run(ir)
    assert capsys.readouterr().err.splitlines() == ["branch 2: [ 3.  -0.5]", "branch 1: [ 2.  -1.5]"]


def test_a_gradient_is_printed_where_it_is_computed_and_the_forward_pass_once(capsys: pytest.CaptureFixture[str]):
    def square(x: popxl.Tensor) -> popxl.Tensor:
        x = ops.print_tensor(x, "x", print_gradient=True, digits=3)
        return x * x

    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(X)
        graph = ir.create_graph(square, x)
        gradient = popxl.transforms.autodiff(graph)
        site = ops.call_with_info(graph, x)
        ops.call(gradient.graph, popxl.constant(X), inputs_dict=gradient.inputs_dict(site))
    run(ir)
    assert capsys.readouterr().err.splitlines() == ["x: [ 1.00 -2.50]", "x_gradient: [ 2.0 12.5]"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "[1.0000000 2.5000000]"),
        ({"digits": 3, "separator": ",", "open_bracket": "(", "close_bracket": ")"}, "(1.00,2.50)"),
        ({"float_format": "scientific", "digits": 3}, "[1.00e+00 2.50e+00]"),
        ({"float_format": "none"}, "[1.  2.5]"),
    ],
)
def test_options_of_the_text(options: dict, text: str):
    assert PrintFormat(**options).text(np.array([1, 2.5], np.float32)) == text


def test_long_tensors_show_their_edges():
    assert PrintFormat(summarise_threshold=5, edge_items=2).text(np.arange(9)) == "[0 1 ... 7 8]"
    assert PrintFormat(summarise_threshold=0, max_line_width=0).text(np.arange(2000)).count("\n") == 0


def test_wrong_options_are_refused():
    with popxl.Ir().main_graph:
        x = popxl.variable(X)
        with pytest.raises(ValueError, match="separator is one character, not ', '"):
            ops.print_tensor(x, separator=", ")
        with pytest.raises(KeyError, match="float_format is one of auto, fixed, scientific, none, not 'hex'"):
            ops.print_tensor(x, float_format="hex")
