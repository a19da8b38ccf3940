"""Random graphs and the same with one edit: `make fuzz FUZZERS=edits`. Where two are proved to be one and runs differ, the prover is wrong.

An edit changes an element of a constant, an attribute, the order of a node's inputs, its op, or the value that it reads.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from random import Random

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, numpy_helper

import populus
from fuzz.children import Outcome
from fuzz.drawing import Array
from fuzz.graphs import graph, inputs
from populus.dialects.support.diagnostics import PopulusError
from populus.program.program import Program
from populus.proof.equivalence import compare
from populus.proof.programs import execute
from populus.proof.report import PROVED, Invalid, Undecided
from populus.proof.terms import Terms

ALIKE = (
    ("Add", "Sub", "Mul", "Div", "Max", "Min"),
    ("Relu", "Abs", "Neg", "Exp", "Tanh", "Sigmoid", "Softsign", "Softplus", "Sqrt", "Floor", "Ceil", "Round", "Sign", "Erf", "Sin", "Cos"),
    ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"),
    ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"),
    ("And", "Or", "Xor"),
    ("MaxPool", "AveragePool"),
    ("Softmax", "LogSoftmax"),
    ("ArgMax", "ArgMin"),
)
"""Ops of the same inputs and attributes."""
EDITS = 6  # that are drawn for a graph
NEAR = 1e-3  # a relative difference of runs that is rounding


def judge(seed: int) -> Outcome:
    """Judges a seed: `proved`, where runs of all that are proved agree, `undecided`, `told apart`, `refused`, or `disagree`."""
    model, rng, kinds = graph(seed), Random(f"edit {seed}"), list[str]()
    try:
        program = _compiled(model)
        terms, given = Terms(), inputs(model, seed)
        want, meant = execute(terms, program.module("popops")), program.run(given)
    except PopulusError as error:
        return "refused", str(error)
    except (Undecided, Invalid) as why:
        return "undecided", str(why)
    for _ in range(EDITS):
        found = edited(model, rng)
        if found is None:
            continue
        other, what = found
        try:
            onnx.checker.check_model(other)
            program = _compiled(other)
            have, made = execute(terms, program.module("popops")), program.run(given)
        except (PopulusError, onnx.checker.ValidationError, Undecided, Invalid):
            continue
        kinds.append(compare(terms, want, have).verdict)
        if kinds[-1] == PROVED and (name := differs(meant, made)):
            return "disagree", f"{what} is proved to change nothing, but '{name}' is another"
    return ("undecided", "no edit compiles") if not kinds else ("proved" if PROVED in kinds else "told apart", ", ".join(kinds))


def _compiled(model: ModelProto) -> Program:
    return populus.compile(copy.deepcopy(model), tiles=4, engine="numpy", cache=False)


def differs(meant: Mapping[str, Array], made: Mapping[str, Array]) -> str:
    """Names an output of which two runs differ by more than rounding; empty if there is none."""
    for name, x in meant.items():
        y = made[name]
        if x.shape != y.shape or x.dtype != y.dtype:
            return name
        if x.dtype.kind in "biu":
            near = x == y
        else:
            x, y = x.astype(np.float64), y.astype(np.float64)
            largest = np.abs(x[np.isfinite(x)]).max(initial=0)
            with np.errstate(invalid="ignore"):
                near = (x == y) | (np.isnan(x) & np.isnan(y)) | (np.abs(x - y) <= NEAR * (np.abs(x) + 0.01 * largest) + 1e-6)
        if not near.all():
            return name
    return ""


# -- edits


def edited(model: ModelProto, rng: Random) -> tuple[ModelProto, str] | None:
    """Gives a model with one edit, and what that is; None if none was found."""
    other = copy.deepcopy(model)
    for _ in range(20):
        if what := rng.choice([_constant, _constant, _attribute, _order, _op, _reader])(other, rng):
            return other, what
    return None


def nodes(of: GraphProto) -> Iterator[tuple[GraphProto, NodeProto]]:
    """Yields the nodes of a graph and of the graphs in them, each with its own."""
    for node in of.node:
        yield of, node
        for a in node.attribute:
            if a.type == AttributeProto.GRAPH:
                yield from nodes(a.g)


def _constant(model: ModelProto, rng: Random) -> str:
    if not model.graph.initializer:
        return ""
    tensor = rng.choice(model.graph.initializer)
    array = numpy_helper.to_array(tensor).copy()
    if not array.size or array.dtype.kind not in "fiub":
        return ""
    flat, at, other = array.reshape(-1), rng.randrange(array.size), rng.randrange(array.size)
    old = flat[at]
    changed = [~old] if array.dtype.kind == "b" else [old + old, old + array.dtype.type(1)]
    flat[at] = rng.choice([flat[other], *changed])
    if flat[at] == old:
        return ""
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return f"{flat[at]} for {old} in '{tensor.name}'"


def _attribute(model: ModelProto, rng: Random) -> str:
    _, node = rng.choice(list(nodes(model.graph)))
    kinds = (AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT)
    own = [a for a in node.attribute if a.type in kinds and a.name not in ("to", "dtype")]
    if not own:
        return ""
    a = rng.choice(own)
    if a.type == AttributeProto.FLOAT:
        a.f = 1.25 * a.f + 0.01
    elif a.type == AttributeProto.INT:
        a.i += rng.choice([1, -1])
    elif a.ints:
        a.ints[rng.randrange(len(a.ints))] += rng.choice([1, -1])
    return f"{a.name} of {node.op_type}"


def _order(model: ModelProto, rng: Random) -> str:
    _, node = rng.choice(list(nodes(model.graph)))
    if len(set(node.input)) < 2:
        return ""
    i, j = rng.sample(range(len(node.input)), 2)
    node.input[i], node.input[j] = node.input[j], node.input[i]
    return f"inputs {i} and {j} of {node.op_type}"


def _op(model: ModelProto, rng: Random) -> str:
    _, node = rng.choice(list(nodes(model.graph)))
    others = [name for names in ALIKE if node.op_type in names for name in names if name != node.op_type]
    if not others:
        return ""
    old, node.op_type = node.op_type, rng.choice(others)
    return f"{node.op_type} for {old}"


def _reader(model: ModelProto, rng: Random) -> str:
    own, node = rng.choice(list(nodes(model.graph)))
    if not node.input:
        return ""
    names = [name for n in own.node for name in n.output] + [v.name for v in (*own.input, *own.initializer)]
    at, new = rng.randrange(len(node.input)), rng.choice(names)
    if new in (*node.output, node.input[at]):
        return ""
    old, node.input[at] = node.input[at], new
    return f"'{new}' for '{old}' of {node.op_type}"
