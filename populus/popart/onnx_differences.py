"""Where PopART's ops of ai.onnx differ from ONNX's own: its meaning wins for its programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from populus.dialects.support.diagnostics import PopulusError
from populus.popart.graphcore_nn import dropout
from populus.popart.stated import StatedError, listed
from populus.popart.tensor_info import SPELLING
from populus.popart.translation import Body, Rule, Translation, rule

if TYPE_CHECKING:
    from onnx import NodeProto


def arg_index(b: Body, x: str, *, op: str) -> str:
    """Computes the position, of int32."""
    return b.cast(b(op, x, axis=b.attr("axis", 0), keepdims=b.attr("keepdims", 1)), "int32")


def expand(b: Body, x: str, shape: str) -> str:
    """Computes x broadcast; its shape may be of int32 too."""
    import numpy as np

    value = b.value(1)
    if value is None:
        raise PopulusError("its shape is no constant")
    return b("Expand", x, b.ints([int(n) for n in np.reshape(value, -1)]))


def widened(b: Body, *inputs: str, op: str) -> str:
    """Computes an op of an early opset, of every element type that later ones have.

    Raises PopulusError if the inputs differ in theirs."""
    if len({b.dtype(i) for i in range(len(inputs))}) > 1:
        raise PopulusError(f"its inputs are of {', '.join(str(b.dtype(i)) for i in range(len(inputs)))}; one type is expected")
    return b(op, *inputs)


def cumsum(b: Body, x: str, axis: str) -> str:
    """Computes the sums up to each element. Raises PopulusError for an axis that is no constant, or that there is not."""
    import numpy as np

    value = b.value(1)
    if value is None:
        raise PopulusError("its axis is no constant")
    rank, at = len(b.shape()), int(np.reshape(value, -1)[0])
    if not -rank <= at < rank:
        raise PopulusError(f"axis {at} is out of range for rank {rank}")
    wide = b.cast(x, np.float32) if b.dtype() == np.float16 else x
    y = b("CumSum", wide, b.const(at, np.int64), exclusive=b.attr("exclusive", 0), reverse=b.attr("reverse", 0))
    return b.cast(y, b.dtype())


def mixed(b: Body, x: str, y: str, *, op: str) -> str:
    """Computes an op of two floats; a scalar of f32 beside f16 becomes f16. Raises PopulusError for other mixtures."""
    import numpy as np

    kinds = [b.dtype(0), b.dtype(1)]
    if kinds[0] == kinds[1]:
        return b(op, x, y)
    if {*kinds} != {np.dtype(np.float16), np.dtype(np.float32)}:
        raise PopulusError(f"its inputs are of {kinds[0]} and {kinds[1]}; one type is expected")
    for i, (value, other) in enumerate(((x, y), (y, x))):
        if kinds[i] == np.float32 and np.prod(b.shape(i), dtype=int) == 1:
            half = b.cast(value, np.float16)
            return b(op, half, other) if i == 0 else b(op, other, half)
    names = [SPELLING[b.known(i).number] for i in range(2)]
    raise PopulusError(
        f"its inputs have incompatible types {names[0]} and {names[1]} (shapes {listed(b.shape(0))} and {listed(b.shape(1))})"
    )


def one_hot(b: Body, indices: str, depth: str, values: str) -> str:
    """Computes ONNX's OneHot with a depth and indices of any whole numbers. Raises PopulusError for a depth that is no constant."""
    import numpy as np

    value = b.value(1)
    if value is None:
        raise PopulusError("its depth is no constant")
    number = b.const(int(np.reshape(value, -1)[0]), np.int64)
    return b("OneHot", b.cast(indices, np.int64), number, values, axis=b.attr("axis", -1))


def top_k(b: Body, x: str, k: str | None = None) -> Sequence[str]:
    """Computes ONNX's TopK of every element type. Positions are of int32. Raises PopulusError for a number that is no constant."""
    import numpy as np

    value = b.value(1) if k is not None else np.array(b.attr("k"))
    if value is None:
        raise PopulusError("its number of elements is no constant")
    count, axis = int(np.reshape(value, -1)[0]), b.attr("axis", -1)
    values, at = b("TopK", x, b.ints([count]), axis=axis, largest=b.attr("largest", 1), sorted=b.attr("sorted", 1), outputs=2)
    return [values, b.cast(at, np.int32)]


def constant_of_shape(b: Body, shape: str) -> str:
    """Computes a tensor of one value; of f64, of which PopART has none, it is of f32.

    Raises PopulusError for a shape that is no constant.
    """
    import numpy as np
    from onnx import numpy_helper

    wanted = b.value(0)
    if wanted is None:
        raise PopulusError("its shape is no constant")
    given = next((numpy_helper.to_array(a.t) for a in b.node.attribute if a.name == "value"), np.zeros(1, np.float32))
    array = given.astype(np.float32) if given.dtype == np.float64 else given
    return b("Expand", b.const(array.reshape(())), b.ints([int(n) for n in wanted]))


def positive_axis(translation: Translation, node: NodeProto) -> None:
    """Counts a node's axis from the front, since ONNX's early opsets refuse one that counts from the end."""
    from onnx import NodeProto

    made = NodeProto()
    made.CopyFrom(node)
    for a in made.attribute:
        if a.name == "axis" and a.i < 0:
            a.i += len(translation.type_of(node.input[0]).shape)
        if a.name == "axes" and any(v < 0 for v in a.ints):
            rank = len(translation.type_of(node.input[0]).shape) + (len(a.ints) if node.op_type == "Unsqueeze" else 0)
            a.ints[:] = [v % rank for v in a.ints]
    translation.nodes.append(made)


def recurrent(translation: Translation, node: NodeProto) -> None:
    """States the `hidden_size` of a recurrent op, which follows from its weights."""
    from onnx import NodeProto, helper

    made = NodeProto()
    made.CopyFrom(node)
    hidden = translation.type_of(node.input[2]).shape[2]
    if not any(a.name == "hidden_size" for a in node.attribute):
        made.attribute.append(helper.make_attribute("hidden_size", hidden))
    if node.op_type == "LSTM" and len(node.input) > 3 and node.input[3]:
        made.input[3] = _one_bias(translation, node.input[3], 4 * hidden)
    translation.nodes.append(made)


def _one_bias(translation: Translation, bias: str, size: int) -> str:
    """Adds the two biases of each gate, as PopART does before the first step: both LSTMs then agree to the bit."""
    import numpy as np
    from onnx import helper, numpy_helper

    mark = f"{bias}/{next(translation.numbers)}"
    first, second, total, none, both = (f"{mark}/{n}" for n in ("W", "R", "sum", "none", "both"))
    shape = (translation.type_of(bias).shape[0], size)
    dtype = translation.type_of(bias).dtype
    translation.feed(helper.make_node("Split", [bias], [first, second], axis=1, split=[size, size]))
    translation.feed(helper.make_node("Add", [first, second], [total]))
    translation.nodes.append(helper.make_node("Constant", [], [none], value=numpy_helper.from_array(np.zeros(shape, dtype))))
    translation.feed(helper.make_node("Concat", [total, none], [both], axis=1))
    return both


def reduction(translation: Translation, node: NodeProto) -> None:
    """Translates a reduction; over an explicit empty list of axes it reduces nothing.

    Raises PopulusError for an axis that there is not."""
    from onnx import NodeProto

    axes = next((list(a.ints) for a in node.attribute if a.name == "axes"), None)
    rank = len(translation.type_of(node.input[0]).shape)
    for axis in axes or ():
        if not -rank <= axis < rank:
            raise StatedError(f"Axis {axis} is out of acceptable range [{-rank}, {rank - 1}]")
    if axes != []:
        made = NodeProto()
        made.CopyFrom(node)
        for a in made.attribute:
            if a.name == "axes":
                a.ints[:] = [v % max(rank, 1) for v in axes or ()]
        translation.nodes.append(made)
        return
    body = Body(translation, node)
    body.finish([_UNREDUCED[node.op_type](body, "x0")])


_UNREDUCED: Mapping[str, Callable[[Body, str], str]] = {
    **{f"Reduce{n}": lambda b, x: b("Identity", x) for n in ("Max", "Mean", "Min", "Prod", "Sum", "LogSumExp")},
    **{f"Reduce{n}": lambda b, x: b("Abs", x) for n in ("L1", "L2")},
    "ReduceLogSum": lambda b, x: b("Log", x),
    "ReduceSumSquare": lambda b, x: b("Mul", x, x),
}

FUNCTIONS: Mapping[str, Callable[..., str | Sequence[str]]] = {
    "ArgMax": partial(arg_index, op="ArgMax"),
    "ArgMin": partial(arg_index, op="ArgMin"),
    "ConstantOfShape": constant_of_shape,
    "CumSum": cumsum,
    "Dropout": dropout,
    "Equal": partial(widened, op="Equal"),
    "Expand": expand,
    "OneHot": one_hot,
    "TopK": top_k,
}


def arithmetic(translation: Translation, node: NodeProto) -> None:
    """Translates an op of two operands: as it is where they are of one type, else by `mixed`."""
    kinds = {translation.type_of(i).dtype for i in node.input}
    old = any(a.name == "broadcast" for a in node.attribute)
    if len(kinds) == 1 or old:
        translation.nodes.append(node)
    else:
        rule(partial(mixed, op=node.op_type))(translation, node)


RULES: Mapping[tuple[str, str], Rule] = {
    **{("", op): recurrent for op in ("LSTM", "GRU", "RNN")},
    **{("", op): arithmetic for op in ("Add", "Div", "Mul", "Pow", "Sub")},
    **{("", op): positive_axis for op in ("Concat", "Flatten", "Gather", "LogSoftmax", "Softmax", "Split", "Squeeze", "Unsqueeze")},
    **{("", op): reduction for op in _UNREDUCED},
}
