"""Export of a `popart` module to an ONNX model.

    onnx.save(export_popart(module), "model.onnx")

Each op is one node of ONNX, or a few where ONNX has no op of the kind; constants are initializers. Collectives, random numbers,
control flow, calls and kernels have no form in ONNX that computes the same, and are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, SSAValue

from populus.dialects.data import ConstantOp
from populus.dialects.onnx.types import to_proto
from populus.dialects.popart.definition import plain
from populus.dialects.popart.graphcore import NllOp
from populus.dialects.signature import input_names, main_of, output_names
from populus.dialects.support.call_places import names_in
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of
from populus.dialects.support.names import Names

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

OPSET, IR_VERSION = 23, 10


class _Writer:
    """The nodes and initializers of a graph."""

    def __init__(self, taken: Sequence[str]):
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.names: dict[SSAValue, str] = {}
        self.free = Names(taken).free
        self.place = ""
        self.used = set[str]()

    def node(self, kind: str, inputs: Sequence[str], output: str | Sequence[str] | None = None, **attributes: Any) -> str:
        """Adds a node and gives the name of its first output. An attribute that is None is left out."""
        from onnx import helper

        outputs = [output or self.free("v")] if output is None or isinstance(output, str) else list(output)
        given = {k: v for k, v in attributes.items() if v is not None}
        name, i = self.place, 0
        while name in self.used and name:  # an op of several nodes; names of nodes differ
            i += 1
            name = f"{self.place}_{i}"
        self.used.add(name)
        self.nodes.append(helper.make_node(kind, list(inputs), outputs, name=name, **given))
        return outputs[0]

    def constant(self, array: Any, stem: str = "c") -> str:
        """Adds an initializer and gives its name."""
        from onnx import numpy_helper

        name = self.free(stem)
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name


# An op's nodes: from the op, the names of its operands (empty if absent) and its attributes, to the name of its result.
Rule = Callable[[_Writer, Operation, list[str], dict[str, Any]], str]


def _shape(op: Operation, i: int = 0) -> tuple[int, ...]:
    return shape_of(op.operands[i].type)


def _same(kind: str, *attributes: str, **renamed: str) -> Rule:
    """Makes the rule of an op that ONNX has: with these attributes, some under other names."""

    def rule(w: _Writer, op: Operation, x: list[str], a: dict[str, Any]) -> str:
        return w.node(kind, x, None, **{k: a[k] for k in attributes}, **{other: a[k] for other, k in renamed.items()})

    return rule


def _reduce(kind: str) -> Rule:
    def rule(w: _Writer, op: Operation, x: list[str], a: dict[str, Any]) -> str:
        if not a["axes"]:  # of each element alone, where ONNX reduces all or nothing
            return w.node(ALONE.get(kind, "Identity"), x * 2 if kind == "ReduceSumSquare" else x)
        return w.node(kind, [*x, w.constant(np.array(a["axes"], np.int64))], keepdims=int(a["keep"]))

    return rule


ALONE = {"ReduceL1": "Abs", "ReduceL2": "Abs", "ReduceLogSum": "Log", "ReduceSumSquare": "Mul"}


def _sized(kind: str, attribute: str | None = None) -> Rule:
    """Makes the rule of an op whose shape, or repeats, ONNX has as an input."""

    def rule(w: _Writer, op: Operation, x: list[str], a: dict[str, Any]) -> str:
        sizes = shape_of(op.results[0].type) if attribute is None else a[attribute]
        return w.node(kind, [*x, w.constant(np.array(sizes, np.int64))])

    return rule


def _window(kind: str, *more: str) -> Rule:
    def rule(w: _Writer, op: Operation, x: list[str], a: dict[str, Any]) -> str:
        kernel = a.get("kernel") or _shape(op, 1)[2:]
        lists = {k: list(a[k]) for k in ("strides", "pads", "dilations")} | {k: a[k] for k in more}
        pooled = {"ceil_mode": int(a["ceil"])} if "ceil" in a else {}
        if kind == "AveragePool":
            pooled["count_include_pad"] = int(a["count_padding"])
        return w.node(kind, x, None, kernel_shape=list(kernel), **lists, **pooled)

    return rule


def _normed(kind: str) -> Rule:
    """Makes the rule of a norm over the last dimensions, whose factors ONNX has in the shape of these dimensions."""

    def rule(w: _Writer, op: Operation, x: list[str], a: dict[str, Any]) -> str:
        rows, factors = _shape(op)[a["axis"] :], list[str]()
        for i, name in enumerate(x[1:], 1):
            own = _shape(op, i)
            if tuple(own) == rows:
                factors.append(name)
                continue
            if any(n != 1 for n in own[: max(len(own) - len(rows), 0)]):
                raise PopulusError(f"{where(op)}: {op.name}: a factor of shape {list(own)} varies between rows, and ONNX's does not")
            last = w.constant(np.array(own[max(len(own) - len(rows), 0) :], np.int64))
            reshaped = w.node("Reshape", [name, last])
            factors.append(w.node("Expand", [reshaped, w.constant(np.array(rows, np.int64))]))
        return w.node(kind, [x[0], *factors], axis=a["axis"], epsilon=a["epsilon"])

    return rule


def _slice(w: _Writer, op: Operation, x: list[str], a: dict[str, Any]) -> str:
    ends = [e if s > 0 or e >= 0 else -n - 1 for e, s, n in zip(a["ends"], a["steps"], _shape(op))]
    lists = [np.array(v, np.int64) for v in (a["begins"], ends, range(len(ends)), a["steps"])]
    return w.node("Slice", [*x, *map(w.constant, lists)])


def _pad(w: _Writer, op: Operation, x: list[str], a: dict[str, Any]) -> str:
    return w.node("Pad", [x[0], w.constant(np.array([*a["lower"], *a["upper"]], np.int64)), *x[1:]], mode=a["mode"])


def _scatter(w: _Writer, op: Operation, x: list[str], a: dict[str, Any]) -> str:
    rows = w.node("Unsqueeze", [x[1], w.constant(np.array([-1], np.int64))])
    if dtype_of(element_type_of(op.operands[1].type)) != np.int64:
        rows = w.node("Cast", [rows], to=7)
    return w.node("ScatterND", [x[0], rows, x[2]], reduction={"set": "none"}.get(a["reduction"], a["reduction"]))


def _attention(w: _Writer, op: Operation, x: list[str], a: dict[str, Any]) -> str:
    rank = len(_shape(op, 1))
    turned = w.node("Transpose", [x[1]], perm=[*range(rank - 2), rank - 1, rank - 2])
    of = dtype_of(element_type_of(op.results[0].type))
    scores = w.node("Mul", [w.node("MatMul", [x[0], turned]), w.constant(np.array(a["scale"], of))])
    scores = w.node("Add", [scores, x[3]]) if len(x) > 3 and x[3] else scores
    return w.node("MatMul", [w.node("Softmax", [scores], axis=-1), x[2]])


def _swish(w: _Writer, op: Operation, x: list[str], a: dict[str, Any]) -> str:
    of = dtype_of(element_type_of(op.operands[0].type))
    scaled = x[0] if a["alpha"] == 1 else w.node("Mul", [x[0], w.constant(np.array(a["alpha"], of))])
    return w.node("Mul", [x[0], w.node("Sigmoid", [scaled])])


def _cast(w: _Writer, op: Operation, x: list[str], a: dict[str, Any]) -> str:
    return w.node("Cast", x, to=to_proto(op.results[0].type).tensor_type.elem_type)


def _top_k(w: _Writer, op: Operation, x: list[str], a: dict[str, Any]) -> str:
    names = w.free("values"), w.free("indices")
    w.node("TopK", [*x, w.constant(np.array([a["k"]], np.int64))], names, axis=-1, largest=int(a["largest"]))
    return w.node("Cast", names[1:], to=to_proto(op.results[0].type).tensor_type.elem_type)


def _nll(w: _Writer, op: Operation, x: list[str], a: dict[str, Any]) -> str:
    assert isinstance(op, NllOp), op
    of, labels = (dtype_of(element_type_of(o.type)) for o in op.operands)
    last = w.constant(np.array([-1], np.int64))
    here = w.node("Equal", [w.node("Unsqueeze", [x[1], last]), w.constant(np.arange(_shape(op)[-1], dtype=labels))])
    picked = w.node("ReduceSum", [w.node("Where", [here, x[0], w.constant(np.array(0, of))]), last], keepdims=0)
    if not a["logarithms"]:
        picked = w.node("Log", [w.node("Max", [picked, w.constant(np.array(op.smallest, of))])])
    return w.node("Neg", [picked])


def _gelu(w: _Writer, op: Operation, x: list[str], a: dict[str, Any]) -> str:
    return w.node("Gelu", x, approximate="tanh" if a["tanh"] else "none")


def _bit_shift(w: _Writer, op: Operation, x: list[str], a: dict[str, Any]) -> str:
    return w.node("BitShift", x, direction="LEFT" if a["left"] else "RIGHT")


def _gemm(w: _Writer, op: Operation, x: list[str], a: dict[str, Any]) -> str:
    return w.node("Gemm", x, alpha=a["alpha"], beta=a["beta"], transA=int(a["trans_a"]), transB=int(a["trans_b"]))


def _is_inf(w: _Writer, op: Operation, x: list[str], a: dict[str, Any]) -> str:
    return w.node("IsInf", x, detect_negative=int(a["detect_negative"]), detect_positive=int(a["detect_positive"]))


ALIKE = (  # their attributes, if any, have ONNX's names
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Celu:alpha Cos Cosh Div Elu:alpha Equal "
    "Erf Exp Floor Greater GreaterOrEqual HardSigmoid:alpha,beta HardSwish LeakyRelu:alpha Less LessOrEqual Log LogSoftmax:axis Max Min "
    "Mish Mul Neg Not Or Pow PRelu Reciprocal Relu Round Selu:alpha,gamma Shrink:lambd,bias Sigmoid Sign Sin Sinh Softmax:axis Softplus "
    "Softsign Sqrt Sub Tan Tanh ThresholdedRelu:alpha Where Xor InstanceNormalization:epsilon BatchNormalization:epsilon Gather:axis MatMul"
)
SHORT = {"PRelu": "prelu", "InstanceNormalization": "instance_norm", "BatchNormalization": "batch_norm", "MatMul": "matmul"}


def _alike() -> dict[str, Rule]:
    found: dict[str, Rule] = {}
    for entry in ALIKE.split():
        kind, _, attributes = entry.partition(":")
        snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in kind).lstrip("_")
        found[SHORT.get(kind, snake)] = _same(kind, *filter(None, attributes.split(",")))
    return found


RULES: dict[str, Rule] = {
    **_alike(),
    **{f"reduce_{name}": _reduce(f"Reduce{kind}") for name, kind in {
        "l1": "L1", "l2": "L2", "log_sum": "LogSum", "log_sum_exp": "LogSumExp", "max": "Max", "mean": "Mean", "min": "Min",
        "prod": "Prod", "sum": "Sum", "sum_square": "SumSquare",
    }.items()},
    "attention": _attention,
    "average_pool": _window("AveragePool"),
    "bit_shift": _bit_shift,
    "cast": _cast,
    "concat": _same("Concat", "axis"),
    "conv": _window("Conv", "group"),
    "conv_transpose": _window("ConvTranspose", "group", "output_padding"),
    "detach": _same("Identity"),
    "expand": _sized("Expand"),
    "gelu": _gelu,
    "gemm": _gemm,
    "group_norm": _same("GroupNormalization", "epsilon", num_groups="groups"),
    "integer_conv": _window("ConvInteger", "group"),
    "integer_matmul": _same("MatMulInteger"),
    "is_inf": _is_inf,
    "is_nan": _same("IsNaN"),
    "layer_norm": _normed("LayerNormalization"),
    "lrn": _same("LRN", "size", "alpha", "beta", "bias"),
    "max_pool": _window("MaxPool"),
    "mod": _same("Mod", "fmod"),
    "nll": _nll,
    "pad": _pad,
    "reshape": _sized("Reshape"),
    "rms_norm": _normed("RMSNormalization"),
    "scatter": _scatter,
    "slice": _slice,
    "swish": _swish,
    "tile": _sized("Tile", "repeats"),
    "top_k": _top_k,
    "transpose": _same("Transpose", perm="permutation"),
}  # fmt: skip


def export_popart(module: ModuleOp) -> ModelProto:
    """Exports a module at the `popart` level. Raises PopulusError for an op that ONNX has no form of."""
    from onnx import helper

    function = main_of(module)
    block, inputs, outputs = function.body.block, input_names(function), output_names(function)
    last = block.last_op
    assert isinstance(last, ReturnOp), last
    w = _Writer([*inputs, *outputs])
    w.names = dict(zip(block.args, inputs))
    for op in block.ops:
        if op is last:
            break
        if isinstance(op, ConstantOp):
            w.names[op.result] = w.constant(op.array(), op.result.name_hint or "c")
            continue
        w.place = next(reversed(names_in(op.location)), "")
        w.names[op.results[0]] = _exported(w, op)
    w.place = ""
    for name, value in zip(outputs, last.operands):
        w.node("Identity", [w.names[value]], name)
    sides = ((inputs, block.args), (outputs, last.operands))
    infos = [[helper.make_value_info(name, to_proto(v.type)) for name, v in zip(*side)] for side in sides]
    graph = helper.make_graph(w.nodes, "main", *infos, initializer=w.initializers)
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="populus")


def _exported(w: _Writer, op: Operation) -> str:
    rule = RULES.get(op.name.removeprefix("popart.")) if op.name.startswith("popart.") else None
    if rule is None:
        raise PopulusError(f"{where(op)}: {op.name} has no form in ONNX that computes the same; export at the level onnx")
    given = {name: plain(value) for name, value in op.properties.items() if name not in ("inplace", "operandSegmentSizes", "to", "element")}
    attributes: dict[str, Any] = {**_defaults(op), **given}
    return rule(w, op, [w.names[o] for o in op.operands], {name: _given(v) for name, v in attributes.items()})


def _given(value: Any) -> Any:
    """Gives the value of an attribute as `make_node` takes it: booleans as integers, tuples as lists."""
    return int(value) if isinstance(value, bool) else list(value) if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _defaults(op: Operation) -> dict[str, Any]:
    from populus.dialects.popart.base import PopartOp
    from populus.dialects.popart.definition import definition_of

    assert isinstance(op, PopartOp), op
    return {name: p.plain_default for name, p in definition_of(type(op)).properties.items()}
