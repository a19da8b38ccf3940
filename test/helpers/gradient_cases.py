"""The gradients of ONNX's differentiable ops, each on ONNX's own node tests in f64 against central differences.

python test/helpers/gradient_cases.py     writes docs/gradients.md
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, defs, helper, numpy_helper

import populus
from populus.dialects.support.diagnostics import PopulusError
from populus.tools.gradient_page import PAGE

Array = NDArray[Any]
DIFFERENTIABLE = defs.OpSchema.DifferentiationCategory.Differentiable
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one node test. `problem` is empty if the gradients agree."""

    op: str
    case: str
    problem: str


def differentiable_ops() -> dict[str, defs.OpSchema]:
    """Lists the ops whose newest schema tags an input and an output as differentiable, by name."""
    return {
        s.name: s
        for s in sorted(defs.get_all_schemas(), key=lambda s: s.name)
        if s.domain == "" and not s.deprecated and any(i.differentiation_category == DIFFERENTIABLE for i in s.inputs)
    }


def node_tests() -> Iterator[tuple[str, str, onnx.ModelProto, list[Array | None]]]:
    """Yields (op, case, model of one node in f64, inputs) for each node test of a differentiable op on plain floats."""
    ops = differentiable_ops()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        tests = [*collect_testcases(None), *_own_tests()]  # pyright: ignore[reportArgumentType], the first list is ONNX's own
    for test in tests:
        nodes = test.model.graph.node
        if len(nodes) != 1 or nodes[0].domain != "" or nodes[0].op_type not in ops or not test.data_sets:
            continue
        values = list(test.data_sets[0][0])
        values = [_to_array(v) if isinstance(v, onnx.TensorProto) else v for v in values]
        if all(isinstance(v, np.ndarray | np.generic) for v in values):
            yield nodes[0].op_type, test.name.removeprefix("test_"), test.model, [np.asarray(v) for v in values]


def _to_array(tensor: onnx.TensorProto) -> Array | None:
    return numpy_helper.to_array(tensor) if tensor.data_type in FLOATS else None


@dataclass
class _Test:
    name: str
    model: onnx.ModelProto
    data_sets: list[tuple[list[Array], list[Array]]]


def _own_tests() -> list[Any]:
    """Makes node tests for ops without any in ONNX."""
    x = np.random.default_rng(5).standard_normal((2, 3, 4, 5)).astype(np.float32)
    info = helper.make_tensor_value_info
    tests: list[Any] = []
    rois = np.array([[0, 0, 0, 3, 3], [1, 1, 1, 4, 3]], np.float32)
    rows: list[tuple[str, list[Array], list[int], dict[str, Any]]] = [
        ("GlobalLpPool", [x], [2, 3, 1, 1], {"p": 2}),
        ("MaxRoiPool", [x, rois], [2, 3, 2, 2], {"pooled_shape": [2, 2]}),
        ("Trilu", [x], [2, 3, 4, 5], {"upper": 0}),
        ("Trilu", [x], [2, 3, 4, 5], {"upper": 1}),
    ]
    for op, inputs, shape, attributes in rows:
        names = [f"x{i}" for i in range(len(inputs))]
        graph = helper.make_graph(
            [helper.make_node(op, names, ["y"], **attributes)],
            op,
            [info(n, TensorProto.FLOAT, v.shape) for n, v in zip(names, inputs)],
            [info("y", TensorProto.FLOAT, shape)],
        )
        tests.append(_Test(f"test_{op.lower()}", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)]), [(inputs, [])]))
    return tests


def typed(
    op: str, model: onnx.ModelProto, values: Sequence[Array | None], type: int
) -> tuple[onnx.ModelProto, dict[str, Array], list[str]]:
    """Converts floats of the model to `type`; gives it with its tagged float inputs and the names of its tagged float outputs.

    Other inputs become initializers, because indices, shapes and scales decide the node's semantics.
    """
    schema = differentiable_ops()[op]
    dtype = helper.tensor_dtype_to_np_dtype(type)
    made = onnx.ModelProto.FromString(model.SerializeToString())
    node, graph = made.graph.node[0], made.graph
    jitter = np.random.default_rng(11)
    inputs: dict[str, Array] = {}
    kept: list[onnx.ValueInfoProto] = []
    given = dict(zip((i.name for i in graph.input), values))
    tagged = {name: _formal(schema.inputs, i) for i, name in enumerate(node.input)}
    generic = {f.type_str for f in tagged.values() if f.differentiation_category == DIFFERENTIABLE}
    for info in graph.input:
        value, formal = given[info.name], tagged.get(info.name)
        assert value is not None
        if formal is None:  # the node does not read it
            continue
        here = info.type.tensor_type
        if here.elem_type in FLOATS and (formal.type_str in generic or formal.type_str[0] == "T" or formal.type_str == "U"):
            here.elem_type = type
            value = value.astype(dtype)
        if formal.differentiation_category == DIFFERENTIABLE and here.elem_type == type:
            # Avoids ties and kinks, which are at whole numbers, and stays inside intervals that end at 1.
            sign = -1 if op in ("Acos", "Asin", "Atanh") else 1
            inputs[info.name] = np.asarray(value + sign * jitter.uniform(0.02, 0.09, value.shape)).astype(dtype)
            kept.append(info)
        else:
            graph.initializer.append(numpy_helper.from_array(value, info.name))
    del graph.input[:]
    graph.input.extend(kept)
    outputs: list[str] = []
    for info in graph.output:
        if info.type.tensor_type.elem_type in FLOATS:
            info.type.tensor_type.elem_type = type
            if _formal(schema.outputs, list(node.output).index(info.name)).differentiation_category == DIFFERENTIABLE:
                outputs.append(info.name)
    for attribute in node.attribute:
        if attribute.name in ("to", "dtype", "stash_type") and attribute.i in FLOATS:
            attribute.i = type
    return made, inputs, outputs


def _formal(formals: Sequence[Any], i: int) -> Any:
    """Gives formal parameter i; a variadic last one stands for all after it."""
    return formals[min(i, len(formals) - 1)]


def check(op: str, case: str, model: onnx.ModelProto, values: Sequence[Array | None]) -> Outcome | None:
    """Compares the gradients along random directions; None if nothing is differentiable."""
    found = None
    for type in (TensorProto.DOUBLE, TensorProto.FLOAT):  # a few ops are not defined on doubles
        made, inputs, outputs = typed(op, model, values, type)
        if not inputs or not outputs or not any(v.size for v in inputs.values()):
            return None
        try:
            found = Outcome(op, case, _problem(made, inputs, outputs, *((1e-6, 1e-5) if type == TensorProto.DOUBLE else (2e-3, 2e-2))))
        except PopulusError as error:
            found = Outcome(op, case, str(error))
            if type == TensorProto.DOUBLE and re.search("(unsupported|inconsistent) type", str(error)):
                continue
        return found
    return found


def _problem(model: onnx.ModelProto, inputs: dict[str, Array], outputs: list[str], step: float, tolerance: float) -> str:
    g = np.random.default_rng(13)
    with np.errstate(all="ignore"):
        program = populus.vjp(model, list(inputs), level="popops")
        values = program.run(inputs, {})[0]
        finite = {name: np.isfinite(values[name].astype(np.float64)) for name in outputs}
        cotangents = {name: np.where(finite[name], g.standard_normal(values[name].shape), 0) for name in outputs}
        gradients = program.run(inputs, cotangents)[1]
        for name, x in inputs.items():
            direction = g.standard_normal(x.shape) * np.isfinite(x)
            up, down = (program.run({**inputs, name: np.asarray(x + s * direction).astype(x.dtype)}, {})[0] for s in (step, -step))
            difference = {o: np.where(finite[o], up[o].astype(np.float64) - down[o], 0) for o in outputs}
            expected = sum(float((d * cotangents[o]).sum()) for o, d in difference.items()) / (2 * step)
            along = np.where(direction == 0, 0, gradients[name] * direction)
            size = max(1.0, abs(expected), float(np.abs(along).sum()))
            if gradients[name].shape != x.shape or not abs(along.sum() - expected) <= tolerance * size:
                return f"the gradient of {name} along a direction is {along.sum():.6g}, by differences {expected:.6g}"
    return ""


def outcomes() -> list[Outcome]:
    """Runs every node test."""
    return [o for test in node_tests() if (o := check(*test)) is not None]


def page(found: Sequence[Outcome]) -> str:
    """Renders docs/gradients.md."""
    lines = [
        "# Gradients of ONNX's ops",
        "",
        "`python test/helpers/gradient_cases.py` writes this page. ONNX tags inputs and outputs of ops as differentiable.",
        "The node tests of each such op with floats run through `populus.vjp` in f64 (in f32 if the op is not defined on f64).",
        "Inputs are moved off whole numbers. Gradients are compared with central differences along random directions,",
        "relative to the sum of the terms' sizes: 1e-5 in f64, 2e-2 in f32. Values that are not finite are not compared.",
        "`test/pytest/test_gradient_points.py` tests the gradients at 0, at infinity, at kinks and at the ends of domains.",
        "",
        "| op | since | with respect to | node tests that agree | others |",
        "|---|---|---|---|---|",
    ]
    agreeing = 0
    for name, schema in differentiable_ops().items():
        mine = [o for o in found if o.op == name]
        good = [o for o in mine if not o.problem]
        agreeing += len(good) == len(mine) > 0
        wrt = ", ".join(i.name for i in schema.inputs if i.differentiation_category == DIFFERENTIABLE)
        reasons = dict.fromkeys(_reason(o) for o in mine if o.problem)
        lines.append(f"| {name} | {schema.since_version} | {wrt} | {len(good)} of {len(mine)} | {'; '.join(reasons)} |")
    lines[8:8] = [f"Of {len(differentiable_ops())} ops, {agreeing} agree in every node test.", ""]
    return "\n".join(lines) + "\n"


def _reason(o: Outcome) -> str:
    """Strips names of one test from a problem."""
    text = re.sub(r"^(\S+: )?'[^']*': (\w+(-\d+)?: )?|; the path to it is .*$", "", o.problem)
    return re.sub(r" \(in [a-z-]+\)$", "", text).replace("|", "/")


if __name__ == "__main__":
    PAGE.write_text(page(outcomes()))
