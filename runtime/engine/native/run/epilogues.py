"""Triples of steps: a product, perhaps the sum of its slices, and the formula that reads the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import f16, f32
from xdsl.ir import Operation, SSAValue

from populus.dialects.poplar.compute import ExecuteOp, FamilyOp
from populus.dialects.poplar.memory import ConstOp, StorageOp, VarOp, storage_of, type_of, view_of
from populus.dialects.poplar.overlap import disjoint, same_elements
from populus.dialects.support.element_types import is_byte
from populus.runtime.codelets.task import Array, seen_as
from populus.runtime.engine.native.kernels.endings import Formula
from populus.runtime.engine.native.run.partials import PartialSums, captures, touches


@dataclass(frozen=True)
class Epilogue:
    """The `map` that first reads the sums of a product, which are the elements of the view `sums`.

    `pair`: of the product's slices and their sum, if it is cut. `steps`: those of the product and the map. `late`: the two
    run where the map is, else where the product is.
    """

    product: FamilyOp
    map: FamilyOp
    sums: SSAValue
    pair: PartialSums | None
    steps: tuple[Operation, Operation]
    late: bool


def epilogues(
    steps: Sequence[Operation], pairs: Sequence[PartialSums], users: Callable[[StorageOp], set[Operation]], halves: bool = False
) -> list[Epilogue]:
    """Finds the formulas of a block's steps on products of 8-bit integers or of f32; with `halves`, also of f16.

    The formula alone reads the sums' variable, or takes the place of each sum in memory before any other step touches it.
    Of several products that a formula reads, the last one takes it. No step in between touches the formula's other
    operands, but constants; or else none writes what the product reads.
    """
    order = [(step, family) for step in steps for family in (step.families() if isinstance(step, ExecuteOp) else [step])]
    number = {family: i for i, (_, family) in enumerate(order)}
    summed = {pair.product: pair for pair in pairs}
    found: dict[FamilyOp, Epilogue] = {}
    for i, (step, product) in enumerate(order):
        if not isinstance(product, FamilyOp) or not _sums(product, halves):
            continue
        pair = summed.get(product)
        if pair is not None and type_of(product.operands[0]).element == f16:
            continue
        total = product if pair is None else pair.sum
        if pair is None and product.space.cut & product.contracted:
            continue
        ((_, written),) = total.written()
        sums = storage_of(written)
        readers = users(sums) - {total}
        reader = next((op for _, op in order[number[total] + 1 :] if op in readers or op.regions or captures(op, sums)), None)
        if isinstance(sums, ConstOp) or not isinstance(reader, FamilyOp) or reader.codelet.data != "map":
            continue
        inside = any(shows(v, written) for _, v in reader.written())
        if not inside and (readers != {reader} or not isinstance(sums, VarOp)):
            continue
        others = [v for v in reader.operands if not shows(v, written) and not isinstance(storage_of(v), ConstOp)]
        if any(storage_of(v) is sums and not disjoint(view_of(v), view_of(written)) for v in others):
            continue  # it reads some of the sums in another place
        between = [op for _, op in order[i + 1 : number[reader]] if op is not total]
        late = any(touches(op, v) for op in between for v in others)
        if late and any(touches(op, v) and not _only_reads(op, v) for op in between for v in _read(product)):
            continue
        found[reader] = Epilogue(product, reader, written, pair, (step, order[number[reader]][0]), late)
    return list(found.values())


def shows(value: SSAValue, written: SSAValue) -> bool:
    """Tells whether a view shows just the elements of another one, in any order."""
    return storage_of(value) is storage_of(written) and same_elements(view_of(value), view_of(written))


def _sums(family: FamilyOp, halves: bool) -> bool:
    """Tells whether a family is a product of 8-bit integers or of f32; with `halves`, also of f16."""
    if not (family.declaration.is_product or family.codelet.data in ("winograd", "winograd_output")) or "partials" in family.params.data:
        return False
    elements = {type_of(v).element for _, v in family.connections()}
    inputs = {type_of(v).element for f, v in family.connections() if f.kind == "in"}
    return all(is_byte(e) for e in inputs) or elements == {f32} or (halves and elements == {f16} and family.declaration.is_product)


def _read(family: FamilyOp) -> list[SSAValue]:
    """Lists the variables' views that a family reads."""
    return [v for f, v in family.connections() if f.kind == "in" and not isinstance(storage_of(v), ConstOp)]


def _only_reads(op: Operation, view: SSAValue) -> bool:
    """Tells whether a step reads the memory of a view and does not write it."""
    return isinstance(op, FamilyOp) and all(storage_of(v) is not storage_of(view) for _, v in op.written())


def in_dimensions_of(sums: Array, seen: Array, formula: Formula) -> Formula | None:
    """Gives a formula in the dimensions of a product's output `sums`; in its own, the same memory is `seen`.

    Returns None if the two views are not all of one contiguous array, or if strides do not allow it.
    """
    order, own = (sorted(range(a.ndim), key=lambda d: -a.strides[d]) for a in (sums, seen))
    there, here = sums.transpose(order), seen.transpose(own)
    if not (there.flags.c_contiguous and here.flags.c_contiguous and there.size == here.size):
        return None
    if there.ctypes.data != here.ctypes.data:
        return None
    back = [int(d) for d in np.argsort(order)]

    def turned(x: Array) -> Array | None:
        flat = seen_as(np.broadcast_to(x, seen.shape).transpose(own), there.shape)
        return None if flat is None else flat.transpose(back)

    inputs = [None if x is None else turned(x) for x in formula.inputs]
    # Broadcasting makes a view that cannot be written; the output has the shape already.
    flat = seen_as(formula.out.transpose(own), there.shape)
    if flat is None or any(a is None and x is not None for a, x in zip(inputs, formula.inputs)):
        return None
    return Formula(formula.expr, inputs, flat.transpose(back))
