"""Inputs of an ONNX model that decide shapes.

Tiles need static shapes, so that a program is specialised for the values of these inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import IntegerType
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from populus.dialects.onnx.types import as_tensor
from populus.dialects.support.budget import elements
from populus.dialects.support.diagnostics import option, place

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

FEW = 16  # elements of an input that a user gives as numbers

# Op type -> the inputs that decide the shape of a result or an axis. -1: all.
DECIDING: Mapping[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "Compress": (1,),
    "ConstantOfShape": (0,),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Dropout": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "ImageDecoder": (0,),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (-1,),
    "NonMaxSuppression": (2,),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (-1,),
    "ReduceL1": (1,),
    "ReduceL2": (1,),
    "ReduceLogSum": (1,),
    "ReduceLogSumExp": (1,),
    "ReduceMax": (1,),
    "ReduceMean": (1,),
    "ReduceMin": (1,),
    "ReduceProd": (1,),
    "ReduceSum": (1,),
    "ReduceSumSquare": (1,),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "StringSplit": (0,),
    "Tile": (1, 2),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}

# The same, for ops that may also decide at run time if the types of all alternatives agree.
STRUCTURAL: Mapping[str, tuple[int, ...]] = {
    "If": (0,),
    "Loop": (0, 1),
    "SequenceAt": (1,),
    "SequenceErase": (1,),
    "SequenceInsert": (2,),
    "StringNormalizer": (0,),
    "Tokenizer": (0,),
}

# Ops whose result depends on the shape of the input only.
SHAPES_ONLY = frozenset(("Shape", "Size", "SequenceLength", "OptionalHasElement"))


def deciding_inputs(model: ModelProto, structural: bool = False) -> list[str]:
    """Lists the graph inputs on which shapes depend, by name.

    `structural`: also those that decide branches, loops and positions in sequences.
    """
    tables = (DECIDING, STRUCTURAL) if structural else (DECIDING,)
    wanted: set[str] = set()
    producers: dict[str, NodeProto] = {}
    for node in _nodes(model.graph):
        for name in node.output:
            producers[name] = node
        for table in tables:
            positions = table.get(node.op_type, ())
            wanted.update(name for i, name in enumerate(node.input) if name and (i in positions or -1 in positions))
    waiting = list(wanted)
    while waiting:
        node = producers.get(waiting.pop())
        if node is None or node.op_type in SHAPES_ONLY:
            continue
        for name in (*node.input, *(n for g in _graphs(node) for inner in _nodes(g) for n in inner.input)):
            if name and name not in wanted:
                wanted.add(name)
                waiting.append(name)
    return [i.name for i in model.graph.input if i.name in wanted]


def deciding(op_type: str, inputs: Sequence[SSAValue | None]) -> list[SSAValue]:
    """Lists those of an op's inputs that decide the shape of a result; all, if the op is not in the table."""
    positions = DECIDING.get(op_type, (-1,))
    return [v for i, v in enumerate(inputs) if v is not None and (i in positions or -1 in positions)]


def asked_for(values: Iterable[SSAValue]) -> str:
    """Asks for the values of the inputs on which `values` depend, if these are a few integers or booleans; else nothing."""
    waiting, seen, names = list(values), set[SSAValue](), list[str]()
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value.owner, Operation):
            waiting += value.owner.operands
        elif isinstance(value, BlockArgument) and isinstance(value.owner.parent_op(), FuncOp):
            type = as_tensor(value.type)
            if type is None or not isinstance(type.element_type, IntegerType) or elements(type.get_shape()) > FEW:
                return ""
            names.append((place(value.location) or value.name_hint or "").strip("'"))
    if not names:
        return ""
    options = " ".join(f"--value {name}=V" for name in sorted(names))
    stated = option(options, f"values={{{', '.join(f'{name!r}: V' for name in sorted(names))}}}")
    return f"; it follows from {', '.join(sorted(names))}, to which {stated} gives a value"


def _nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """Gives the nodes of a graph and of its subgraphs."""
    for node in graph.node:
        yield node
        for inner in _graphs(node):
            yield from _nodes(inner)


def _graphs(node: NodeProto) -> Iterator[GraphProto]:
    """Gives the subgraphs of a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs
