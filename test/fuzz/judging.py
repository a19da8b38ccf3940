"""A model's outputs from onnxruntime and from us, and whether they agree."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, NodeProto, helper, numpy_helper, shape_inference

import populus
from fuzz.children import asking
from fuzz.differences import known
from fuzz.drawing import Array
from fuzz.gradients import doubled
from fuzz.graphs import graph, inputs, used
from populus.dialects.support.diagnostics import PopulusError, PopulusWarning

CONFIGURATIONS = (
    ("numpy", "host", 1),
    ("native", "host", 3),
    ("strict", "host", 3),
    ("numpy", "host", 1472),
    ("native", "host", 16),
    ("strict", "host", 16),
    ("numpy", "host", 16),
    ("native", "host", 1),
)
"""Engine, target, tiles: a seed has the one at its number."""

RTOL = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 2e-5, np.dtype(np.float16): 4e-3}
"""Of a tensor's largest element."""


@dataclass(frozen=True)
class Verdict:
    """How a seed ended: `agrees`, `known`, `no oracle`, `refused`, `wrong`, `failed`; and why."""

    seed: int
    engine: str
    outcome: str
    reason: str = ""

    @property
    def found(self) -> bool:
        """Whether this is something to look into."""
        return self.outcome in ("refused", "wrong", "failed")


class NoOracle(Exception):
    """onnxruntime does not run this model."""


def oracle(model: ModelProto, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """What onnxruntime computes, without any optimisation of the graph. Raises NoOracle where it does not."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        with asking():  # an integer division by zero ends its process
            found = session.run(None, dict(arrays))
    except Exception as error:
        raise NoOracle(" ".join(str(error).split())) from error
    return {o.name: np.asarray(a) for o, a in zip(model.graph.output, found)}


def differ(found: Array, expected: Array, doubt: float) -> str | None:
    """How two results differ; None if they do not. `doubt`: how far rounding can move floats, whatever computes them."""
    if found.shape != expected.shape or (found.dtype != expected.dtype and found.dtype.itemsize != expected.dtype.itemsize):
        return f"{found.dtype}{list(found.shape)}, expected {expected.dtype}{list(expected.shape)}"
    if found.dtype not in RTOL:
        wrong = np.asarray(found != expected)
    else:
        a, b = found.astype(np.float64), expected.view(found.dtype).astype(np.float64)
        size = float(np.abs(b[np.isfinite(b)]).max(initial=0))
        with np.errstate(invalid="ignore"):
            wrong = np.asarray(~((a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= RTOL[found.dtype] * size + doubt)))
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.unravel_index(int(wrong.argmax()), wrong.shape))
    return f"{int(wrong.sum())} of {wrong.size} elements differ; at {list(at)}: {found[at]}, expected {expected[at]}"


def exact(model: ModelProto, arrays: Mapping[str, Array], name: str, found: Array) -> bool:
    """Whether a float result is what onnxruntime computes in doubles. It is not, where onnxruntime does not run the model in doubles."""
    if found.dtype not in RTOL:
        return False
    try:
        expected = oracle(doubled(alone(model, name)), {n: a.astype(np.float64) if a.dtype.kind in "fV" else a for n, a in arrays.items()})
    except NoOracle:
        return False
    with np.errstate(over="ignore"):
        return differ(found, expected[name].astype(found.dtype), 0.0) is None


def alone(model: ModelProto, name: str) -> ModelProto:
    """The model with one of its outputs, and the nodes that this needs: onnxruntime lacks some ops in doubles."""
    copy = ModelProto()
    copy.CopyFrom(model)
    needed, nodes = {name}, list[NodeProto]()
    for node in reversed(model.graph.node):
        if needed & {*node.output}:
            nodes.append(node)
            needed |= {*used([node])}
    del copy.graph.node[:], copy.graph.output[:]
    copy.graph.node.extend(reversed(nodes))
    copy.graph.output.extend(o for o in model.graph.output if o.name == name)
    return copy


def doubts(model: ModelProto, arrays: Mapping[str, Array], expected: Mapping[str, Array]) -> dict[str, float]:
    """How far each output moves when every value that rounding may have moved does, by 4 units in the last place."""
    moved = dict.fromkeys(expected, 0.0)
    for turn in range(3):
        try:
            other = oracle(nudged(model, np.random.default_rng(turn)), arrays)
        except NoOracle:
            return moved
        for name, e in expected.items():
            if e.dtype.kind == "f" and e.size:
                with np.errstate(invalid="ignore"):
                    distance = np.abs(other[name].astype(np.float64) - e.astype(np.float64))
                moved[name] = max(moved[name], float(np.nan_to_num(distance).max()))
    return moved


def nudged(model: ModelProto, rng: np.random.Generator) -> ModelProto:
    """The model with what it says is rounded multiplied, element by element, by 1 and 4 units in the last place more or less."""
    rounded: dict[str, list[int]] = json.loads(next(p.value for p in model.metadata_props if p.key == "rounded"))
    types = {v.name: v.type.tensor_type.elem_type for v in shape_inference.infer_shapes(model).graph.value_info}
    types |= {v.name: v.type.tensor_type.elem_type for v in model.graph.output}
    copy = ModelProto()
    copy.CopyFrom(model)
    del copy.graph.node[:]
    for node in model.graph.node:
        made = copy.graph.node.add()
        made.CopyFrom(node)
        for i, name in enumerate(node.output):
            if name in rounded and name in types:
                dtype = helper.tensor_dtype_to_np_dtype(types[name])
                factors = (1 + rng.choice([-4, 4], rounded[name]) * float(np.finfo(dtype).eps)).astype(dtype)
                copy.graph.initializer.append(numpy_helper.from_array(factors, f"{name}.factors"))
                made.output[i] = f"{name}.as made"
                copy.graph.node.append(helper.make_node("Mul", [f"{name}.as made", f"{name}.factors"], [name]))
    return copy


def judge_native(seed: int) -> Verdict:
    """The verdict on one seed on the native engine by name; of every second the graph is wide, and native is the default too."""
    return judged(graph(seed, wide=seed % 2 == 0), seed, "native", "host", 1)


def judge(seed: int, configuration: tuple[str, str, int] | None = None) -> Verdict:
    """The verdict on one seed. An error that is neither ours to report nor onnxruntime's is `failed`."""
    engine, target, tiles = configuration or CONFIGURATIONS[seed % len(CONFIGURATIONS)]
    return judged(graph(seed), seed, engine, target, tiles)


def judged(model: ModelProto, seed: int, engine: str, target: str, tiles: int) -> Verdict:
    """The verdict on a model."""
    label = f"{engine}/{tiles}"
    arrays = inputs(model, seed)
    try:
        expected = oracle(model, arrays)
    except NoOracle as error:
        return Verdict(seed, label, "no oracle", str(error))
    if reason := known(model):
        return Verdict(seed, label, "known", reason)
    before = {n: a.copy() for n, a in arrays.items()}
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", PopulusWarning)
            found = populus.compile(model, target=target, tiles=tiles, engine=engine).run(arrays)
    except PopulusError as error:
        return Verdict(seed, label, "refused", str(error))
    except Exception as error:
        return Verdict(seed, label, "failed", f"{type(error).__name__}: {' '.join(str(error).split())}")
    if said := [str(w.message) for w in warned if issubclass(w.category, PopulusWarning)]:
        return Verdict(seed, label, "wrong", f"a valid model is warned of: {said[0]}")
    if any(not np.array_equal(before[n], a) for n, a in arrays.items()):
        return Verdict(seed, label, "wrong", "an input was overwritten")
    wrong = {n: said for n, e in expected.items() if (said := differ(found[n], e, 0.0))}
    if wrong:
        doubt = doubts(model, arrays, expected)
        wrong = {n: said for n in wrong if (said := differ(found[n], expected[n], 4 * doubt[n]))}
    if wrong:  # a sum of 64,000 floats in a row rounds: onnxruntime's mean of an old opset does
        wrong = {n: said for n, said in wrong.items() if not exact(model, arrays, n, found[n])}
    if wrong:
        name, said = next(iter(wrong.items()))
        return Verdict(seed, label, "wrong", f"'{name}': {said}")
    return Verdict(seed, label, "agrees")
