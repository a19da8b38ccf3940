"""Conversion of Einsum: diagonals and sums of each operand, then products of two operands at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rules, shape


@dataclass
class Operand:
    """An operand and the label of each of its dimensions."""

    value: SSAValue
    labels: list[str]


def einsum(c: Conversion) -> Output:
    """Converts Einsum. Raises PopulusError if the equation does not fit the operands. Source: ONNX Einsum-12, NumPy."""
    terms, result = _parsed(c, c.get("equation").replace(" ", ""), [v for v in c.inputs if v is not None])
    terms = [_diagonal(c, t) for t in terms]
    first, *rest = terms
    while rest:
        second, *rest = rest
        needed = {*result, *(label for t in rest for label in t.labels)}
        first = _product(c, first, second, needed)
    first = _summed(c, first, set(result))
    return c.transpose(first.value, [first.labels.index(label) for label in result])


def _parsed(c: Conversion, equation: str, values: Sequence[SSAValue]) -> tuple[list[Operand], list[str]]:
    """Parses the equation: the operands with their labels, and the labels of the result.

    The dimensions of `...` are labelled `.0`, `.1`, .. from the right.
    """
    _, arrow, right = equation.partition("->")
    terms = [Operand(v, labels) for v, labels in zip(values, labels_of(equation, values))]
    dots = sorted({label for t in terms for label in t.labels if label[0] == "."}, key=lambda label: -int(label[1:]))
    if arrow:
        result = [label for part in right.replace("...", ".") for label in (dots if part == "." else [part])]
    else:
        letters = [label for t in terms for label in t.labels if label[0] != "."]
        result = dots + sorted(label for label in set(letters) if letters.count(label) == 1)
    if unknown := set(result) - {label for t in terms for label in t.labels}:
        raise PopulusError(f"the equation '{equation}' gives '{min(unknown)}', which no operand has")
    return terms, result


def labels_of(equation: str, values: Sequence[SSAValue]) -> list[list[str]]:
    """Gives the label of each dimension of each operand. Raises PopulusError if their number or rank does not fit."""
    parts = equation.partition("->")[0].split(",")
    if len(parts) != len(values):
        raise PopulusError(f"the equation '{equation}' has {len(parts)} operands, the node {len(values)}")
    return [_labels(equation, part, len(shape(v))) for part, v in zip(parts, values)]


def _labels(equation: str, part: str, rank: int) -> list[str]:
    """Gives the label of each dimension of an operand. Raises PopulusError if the rank does not fit."""
    letters = part.replace("...", ".")
    more = rank - (len(letters) - letters.count("."))
    if more < 0 or (more and "." not in letters):
        raise PopulusError(f"the equation '{equation}' has '{part}' for an operand of {rank} dimensions")
    return [label for letter in letters for label in ([f".{i}" for i in reversed(range(more))] if letter == "." else [letter])]


def _diagonal(c: Conversion, t: Operand) -> Operand:
    """Takes the diagonal of dimensions with equal labels: other elements become 0, and one dimension is summed."""
    import numpy as np

    while repeated := [label for label in t.labels if t.labels.count(label) > 1]:
        i, j = [d for d, label in enumerate(t.labels) if label == repeated[0]][:2]
        n = shape(t.value)[i]
        eye = np.eye(n, dtype=np.bool_).reshape([n if d in (i, j) else 1 for d in range(len(t.labels))])
        diagonal = c.insert(popart.WhereOp(c.constant(eye), t.value, c.scalar(0, t.value)))
        t = Operand(c.insert(popart.ReduceSumOp(diagonal, axes=(j,), keep=False)), [label for d, label in enumerate(t.labels) if d != j])
    return t


def _summed(c: Conversion, t: Operand, needed: set[str]) -> Operand:
    """Sums over the dimensions whose labels nothing needs."""
    axes = tuple(d for d, label in enumerate(t.labels) if label not in needed)
    if not axes:
        return t
    return Operand(c.insert(popart.ReduceSumOp(t.value, axes=axes, keep=False)), [label for label in t.labels if label in needed])


def _product(c: Conversion, a: Operand, b: Operand, needed: set[str]) -> Operand:
    """Multiplies two operands as one grouped matrix product."""
    a, b = _summed(c, a, needed | set(b.labels)), _summed(c, b, needed | set(a.labels))
    a, b = _unstretched(c, a, b), _unstretched(c, b, a)
    both = [label for label in a.labels if label in b.labels]
    batch = [label for label in both if label in needed]
    inner = [label for label in both if label not in needed]
    rows = [label for label in a.labels if label not in both]
    columns = [label for label in b.labels if label not in both]
    size = {label: n for t in (a, b) for label, n in zip(t.labels, shape(t.value))}

    def matrices(t: Operand, *groups: list[str]) -> SSAValue:
        ordered = c.transpose(t.value, [t.labels.index(label) for group in groups for label in group])
        return c.reshape(ordered, [math.prod(size[label] for label in group) for group in groups])

    product = c.insert(popart.MatMulOp(matrices(a, batch, rows, inner), matrices(b, batch, inner, columns)))
    labels = batch + rows + columns
    return Operand(c.reshape(product, [size[label] for label in labels]), labels)


def _unstretched(c: Conversion, t: Operand, other: Operand) -> Operand:
    """Drops dimensions of 1 that broadcast against a larger dimension of the other operand."""
    sizes = dict(zip(other.labels, shape(other.value)))
    remaining = [(label, n) for label, n in zip(t.labels, shape(t.value)) if not (n == 1 and sizes.get(label, 1) > 1)]
    return Operand(c.reshape(t.value, [n for _, n in remaining]), [label for label, _ in remaining])


RULES: Rules = {"Einsum": einsum}
