"""The reference values of an ONNX model's nodes, by `onnx.reference`: an oracle for comparisons, which no program runs.

`onnx.reference` has errors, which are corrected here:

- It treats some nodes of old opsets as new ones: BatchNormalization below opset 14; Softmax, LogSoftmax and Hardmax
  below 13. These are evaluated by their own formulas, and so is LRN.
- It takes a missing condition of a Loop for false; it is true.
- It joins the rows of what a Loop's iterations give; each is a row of the result.
- It takes GlobalMaxPool over two axes that are right for images alone.
- It ignores the sequence lengths of a recurrent op; each sequence is run separately.
- It computes LogSoftmax as the logarithm of a softmax, which underflows.

Its other known errors (`_WRONG`) are treated as nodes that it cannot run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from populus.dialects.support.diagnostics import PopulusError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto, NodeProto

    Array = NDArray[Any]


def model_of(model: str | os.PathLike[str] | ModelProto) -> ModelProto:
    """Reads a model's file; gives a model as it is."""
    import onnx

    return model if isinstance(model, onnx.ModelProto) else _load(model)


def run_node(model: ModelProto, node: NodeProto, values: Mapping[str, Array]) -> list[Array]:
    """Evaluates a node of a model on these values of its inputs. Returns its outputs that are arrays."""
    return [np.asarray(value) for value in _evaluate(node, values, model, _opsets(model)) if hasattr(value, "dtype")]


def _opsets(model: ModelProto) -> dict[str, int]:
    return {"" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import}


def run_reference(model: str | os.PathLike[str] | ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Evaluates a model, and returns its inputs, initializers and all outputs of its nodes by name. Sequences are left
    out.

    Raises PopulusError, which names the node, if the reference cannot run it.
    """
    from onnx import numpy_helper

    proto = model_of(model)
    values: dict[str, Any] = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    values.update(inputs)
    opsets = _opsets(proto)
    for node in proto.graph.node:
        try:
            results = _evaluate(node, values, proto, opsets)
        except Exception as error:
            name = node.name or next(iter(node.output), node.op_type)
            raise PopulusError(f"'{name}': {node.op_type}: ONNX's reference cannot run it: {type(error).__name__}: {error}") from error
        values.update({name: value for name, value in zip(node.output, results) if name})
    return {name: np.asarray(value) for name, value in values.items() if hasattr(value, "dtype")}


def _load(path: str | os.PathLike[str]) -> ModelProto:
    import onnx

    return cast("Any", onnx).load(os.fspath(path))


def _evaluate(node: NodeProto, values: Mapping[str, Any], model: ModelProto, opsets: Mapping[str, int]) -> Sequence[Any]:
    """Evaluates one node, whose subgraphs may read any of `values`; returns its outputs in order."""
    if node.domain not in ("", "ai.onnx"):
        return _reference(node, values, model, opsets)
    special = _SPECIAL.get(node.op_type)
    if special is not None and opsets.get("", 1) < special[0]:
        return special[1](node, [values[i] if i else None for i in node.input])
    if node.op_type == "LogSoftmax":
        return [_log_softmax_along(node, values[node.input[0]])]
    for applies, feature in _WRONG.get(node.op_type, ()):
        if applies(node):
            raise NotImplementedError(f"it is wrong about {feature}")
    if node.op_type in ("GRU", "LSTM", "RNN") and len(node.input) > LENGTHS and node.input[LENGTHS]:
        return _sequences(node, values, model, opsets)
    return _reference(node, values, model, opsets)


def _reference(node: NodeProto, values: Mapping[str, Any], model: ModelProto | None, opsets: Mapping[str, int]) -> Sequence[Any]:
    """Runs `onnx.reference` on a graph of this node alone."""
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    node, values = _with_conditions(node), {**values, TRUE: np.array(True)}
    reads = dict.fromkeys([*(i for i in node.input if i), *_captured(node)])
    names = [name for name in reads if name in values]
    graph = helper.make_graph(
        [node],
        "node",
        [helper.make_empty_tensor_value_info(name) for name in names],
        [helper.make_empty_tensor_value_info(name) for name in node.output if name],
    )
    functions = [] if model is None else list(model.functions)
    single = helper.make_model(graph, opset_imports=[helper.make_opsetid(d, v) for d, v in opsets.items()], functions=functions)
    evaluator: Any = ReferenceEvaluator(single, new_ops=[_loop()])
    outputs = iter(evaluator.run(None, {name: values[name] for name in names}))
    return [next(outputs) if name else None for name in node.output]


@cache
def _loop() -> type[Any]:
    """Makes the reference's Loop with results that have a row for each iteration."""
    from onnx.reference.ops.op_loop import Loop as Joining

    class Loop(Joining):
        op_domain = ""
        once: Callable[..., Sequence[Array]]  # the body

        def _run(self, *inputs: Any, **context: Any) -> tuple[Array, ...]:
            count, shapes = 0, list[tuple[int, ...]]()

            def once(*inputs: Any, **context: Any) -> Sequence[Array]:
                nonlocal count, shapes
                results = self.once(*inputs, **context)
                count, shapes = count + 1, [result.shape for result in results[1 + self.N :]]
                return results

            if "once" not in vars(self):
                self.once = self._run_body
            self._run_body = once
            results: tuple[Array, ...] = cast("Any", super())._run(*inputs, **context)
            rows = [joined.reshape(count, *shape) for joined, shape in zip(results[self.N :], shapes)]
            return (*results[: self.N], *rows)

    return Loop


LENGTHS = 4  # the input of a recurrent op with the length of each sequence


def _sequences(node: NodeProto, values: Mapping[str, Any], model: ModelProto, opsets: Mapping[str, int]) -> Sequence[Any]:
    """Runs a recurrent op on each sequence separately, up to its length; the result after its end is zero.

    Source: ONNX LSTM-14.
    """
    from onnx import NodeProto

    batch_first = bool(_attribute(node, "layout", 0))
    x, lengths = values[node.input[0]], values[node.input[LENGTHS]]
    time, batch = (1, 0) if batch_first else (0, 1)
    single = NodeProto()
    single.CopyFrom(node)
    single.input[LENGTHS] = ""
    states = [i for i in node.input[LENGTHS + 1 : LENGTHS + 3] if i]  # initial_h, initial_c, which have a batch dimension
    parts: list[list[Any]] = []
    for i, length in enumerate(int(n) for n in lengths):
        if not 0 < length <= x.shape[time]:
            raise NotImplementedError(f"a sequence of length {length} among {x.shape[time]} steps")
        own = x.take([i], batch).take(range(length), time)
        initial = {name: values[name].take([i], 0 if batch_first else 1) for name in states}
        y, *last = _reference(single, {**values, **initial, node.input[0]: own}, model, opsets)
        if y is not None:
            y = np.concatenate([y, np.zeros_like(y, shape=_with(y.shape, time, x.shape[time] - length))], time)
        parts.append([y, *last])
    # Y is [time, directions, batch, hidden], a state [directions, batch, hidden]; or with the batch first.
    axes = [0] * len(parts[0]) if batch_first else [2] + [1] * (len(parts[0]) - 1)
    return [None if rows[0] is None else np.concatenate(rows, axis) for rows, axis in zip(zip(*parts), axes)]


def _with(shape: Sequence[int], axis: int, size: int) -> tuple[int, ...]:
    return tuple(size if d == axis else n for d, n in enumerate(shape))


TRUE = "populus.true"  # a name that no model uses


def _with_conditions(node: NodeProto) -> NodeProto:
    """Copies a node and gives each Loop without a condition, also in its subgraphs, the condition true."""
    from onnx import NodeProto

    new = NodeProto()
    new.CopyFrom(node)
    waiting = [new]
    for inner in waiting:
        waiting += [n for attribute in inner.attribute for n in attribute.g.node]
        if inner.op_type == "Loop" and (len(inner.input) < 2 or not inner.input[1]):
            inner.input[:] = [*inner.input[:1], TRUE, *inner.input[2:]]
    return new


def _captured(node: NodeProto) -> list[str]:
    """Lists the names that a node's subgraphs read, including names that they define."""
    names: list[str] = []
    for attribute in node.attribute:
        for inner in attribute.g.node:
            names += [*inner.input, *_captured(inner)]
        names += [o.name for o in attribute.g.output]
    return names


def _attribute(node: NodeProto, name: str, default: Any) -> Any:
    from onnx import helper

    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def _batch_norm(node: NodeProto, inputs: Sequence[Array]) -> Array:
    """Computes BatchNormalization in the input's type. Source: ONNX BatchNormalization-15, -7 for `spatial`."""
    x, scale, bias, mean, variance = inputs
    if _attribute(node, "spatial", 1):
        scale, bias, mean, variance = (v.reshape(-1, *(1,) * (x.ndim - 2)) for v in (scale, bias, mean, variance))
    epsilon = _attribute(node, "epsilon", 1e-5)
    return (scale * (x - mean) / np.sqrt(variance + epsilon) + bias).astype(x.dtype)


def _flattened(compute: Callable[[Array], Array]) -> Callable[[NodeProto, Sequence[Array]], Array]:
    """Wraps a function of rows as Softmax and its kin below opset 13: a row has all dimensions from `axis` on."""

    def evaluate(node: NodeProto, inputs: Sequence[Array]) -> Array:
        (x,) = inputs
        axis = _attribute(node, "axis", 1)
        rows = x.reshape(int(np.prod(x.shape[:axis], dtype=np.int64)), -1)
        return compute(rows).astype(x.dtype).reshape(x.shape)

    return evaluate


def _softmax(rows: Array) -> Array:
    e = np.exp(rows - rows.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _log_softmax(rows: Array) -> Array:
    shifted = rows - rows.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def _log_softmax_along(node: NodeProto, x: Array) -> Array:
    """Computes LogSoftmax-13 without underflow."""
    axis = _attribute(node, "axis", -1) % x.ndim
    rows = np.moveaxis(x, axis, -1)
    return np.moveaxis(_log_softmax(rows.reshape(-1, x.shape[axis])).reshape(rows.shape), -1, axis).astype(x.dtype)


def _hardmax(rows: Array) -> Array:
    ones = np.zeros_like(rows)
    ones[range(len(rows)), rows.argmax(1)] = 1
    return ones


def _lrn(node: NodeProto, inputs: Sequence[Array]) -> Array:
    """Computes `x / (bias + alpha / size * sum of squares of neighbouring channels)^beta`. Source: ONNX LRN-13."""
    (x,) = inputs
    size = _attribute(node, "size", 0)
    alpha, beta, bias = _attribute(node, "alpha", 1e-4), _attribute(node, "beta", 0.75), _attribute(node, "bias", 1.0)
    squares = np.zeros_like(x)
    for c in range(x.shape[1]):
        first, last = max(0, c - (size - 1) // 2), min(x.shape[1], c + size // 2 + 1)
        squares[:, c] = (x[:, first:last] ** 2).sum(1)
    return (x / (bias + alpha / size * squares) ** beta).astype(x.dtype)


def _dropout(node: NodeProto, inputs: Sequence[Array]) -> list[Array]:
    """Gives x, and a mask of False: before opset 12 ONNX does not say what the mask of an inference is, and onnxruntime's is False."""
    return [inputs[0], np.zeros(inputs[0].shape, np.bool_)][: len(node.output)]


def _global_max(node: NodeProto, inputs: Sequence[Array]) -> Array:
    """Computes the largest element of each channel. Source: ONNX GlobalMaxPool-1."""
    (x,) = inputs
    return x.max(tuple(range(2, x.ndim)), keepdims=True)


Evaluate: TypeAlias = "Callable[[NodeProto, Sequence[Any]], list[Array]]"


def _single(evaluate: Callable[[NodeProto, Sequence[Any]], Array]) -> Evaluate:
    """Makes an evaluator of one that gives one output, and refuses a node that has more."""

    def evaluated(node: NodeProto, inputs: Sequence[Any]) -> list[Array]:
        if len(node.output) > 1:
            raise NotImplementedError("it is wrong about further outputs")
        return [evaluate(node, inputs)]

    return evaluated


# op type -> (opset below which the reference is wrong, the correct function)
_SPECIAL: dict[str, tuple[int, Evaluate]] = {
    "BatchNormalization": (14, _single(_batch_norm)),
    "Dropout": (12, _dropout),
    "GlobalMaxPool": (1 << 30, _single(_global_max)),
    "Hardmax": (13, _single(_flattened(_hardmax))),
    "LRN": (1 << 30, _single(_lrn)),
    "LogSoftmax": (13, _single(_flattened(_log_softmax))),
    "Softmax": (13, _single(_flattened(_softmax))),
}


def _has(*names: str) -> Callable[[NodeProto], bool]:
    return lambda node: any(_attribute(node, name, None) for name in names)


def _strides_over(node: NodeProto) -> bool:
    """Tells if a node with automatic padding has a stride larger than its window."""
    kernel, strides = _attribute(node, "kernel_shape", ()), _attribute(node, "strides", ())
    return _attribute(node, "auto_pad", b"").startswith(b"SAME") and any(s > k for s, k in zip(strides, kernel))


def _placed(node: NodeProto) -> bool:
    return _attribute(node, "auto_pad", b"NOTSET") != b"NOTSET" or bool(_attribute(node, "output_shape", None))


def _grouped(node: NodeProto) -> bool:
    return _attribute(node, "group", 1) > 1


def _indexed(node: NodeProto) -> bool:
    return len(node.output) > 1


def _dilated(node: NodeProto) -> bool:
    return any(d > 1 for d in _attribute(node, "dilations", ()))


def _torch_pixels(node: NodeProto) -> bool:
    """Tells an interpolation between torch's half pixels, of which the reference places a single one at -0.5 and not at 0."""
    return _attribute(node, "mode", b"") != b"nearest" and _attribute(node, "coordinate_transformation_mode", b"") == b"pytorch_half_pixel"


def _activated(node: NodeProto) -> bool:
    """Tells if a recurrent op has other activations than the default."""
    default = {"GRU": [b"Sigmoid", b"Tanh"], "LSTM": [b"Sigmoid", b"Tanh", b"Tanh"], "RNN": [b"Tanh"]}[node.op_type]
    activations = [f.capitalize() for f in _attribute(node, "activations", ())]
    return bool(activations) and activations != default * (len(activations) // len(default))


_WINDOWS = [(_strides_over, "windows that it places itself with strides beyond them")]
_RECURRENT = [(_activated, "activations"), (_has("clip", "input_forget"), "clip and input_forget")]
# op type -> (condition on the node under which the reference gives a wrong result, the feature that it lacks)
_WRONG: dict[str, list[tuple[Callable[[NodeProto], bool], str]]] = {
    "AveragePool": [*_WINDOWS, (_has("ceil_mode"), "windows that lie beyond the end")],
    "Conv": _WINDOWS,
    "ConvTranspose": [(_grouped, "groups"), (_placed, "a result of stated shape"), (_has("output_padding"), "output_padding")],
    "GRU": _RECURRENT,
    "LSTM": _RECURRENT,
    "LpPool": [*_WINDOWS, (_has("ceil_mode"), "windows that lie beyond the end")],
    "MaxPool": [*_WINDOWS, (_indexed, "indices of largest elements"), (_dilated, "windows with gaps")],
    "RNN": _RECURRENT,
    "Resize": [(_torch_pixels, "interpolation between torch's half pixels")],
}
