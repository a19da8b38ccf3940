"""Constants that are weights: those of one contraction, or of a parameter in all calls of its function, and their layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, UnrealizedConversionCastOp
from xdsl.ir import SSAValue

from populus.dialects.data import array_attribute
from populus.dialects.poplar import CallOp, ConstOp, GraphOp, GridAttr, ParamOp, StorageOp, ViewOp
from populus.dialects.poplar.partition import Grid
from populus.dialects.poplar.target import Target
from populus.dialects.poplin import ConvolutionOp, MatMulOp
from populus.lowering.poplar.plan.contraction import Contraction, Option, shape_of_contraction
from populus.lowering.poplar.tile_builder import TileBuilder

Arguments: TypeAlias = "Mapping[StorageOp, Sequence[SSAValue]]"
"""The arguments of each parameter that functions read, one for each call."""


def arguments_of(graph: GraphOp) -> Arguments:
    """Collects the arguments of each parameter that functions read."""
    found: dict[StorageOp, list[SSAValue]] = {}
    for op in graph.walk():
        if isinstance(op, CallOp):
            for parameter, value in op.bindings():
                found.setdefault(parameter, []).append(value)
    return found


def steps_of(weights: SSAValue) -> int:
    """Counts the contractions that read `weights`, if they differ in the number of rows or images alone; else returns 0.

    Those are the serial steps of one contraction over rows: a plan for one of them serves all.
    """
    shapes: set[Contraction] = set()
    for use in weights.uses:
        if not isinstance(use.operation, MatMulOp | ConvolutionOp) or use.index != 1:
            return 0
        shape = shape_of_contraction(use.operation)
        shapes.add(replace(shape, windows=(0,)) if isinstance(use.operation, MatMulOp) else replace(shape, batch=0))
    return sum(1 for _ in weights.uses) if len(shapes) == 1 and min(shapes, key=str).groups == 1 else 0


def constants_of(tensor: SSAValue, arguments: Arguments) -> tuple[ConstOp, ...]:
    """Returns the constants that an operand is in all calls of its function, if nothing else reads them; else none.

    The serial steps of one contraction count as one reader.
    """
    value = tensor
    while _has_one_reader(value) or (value is tensor and steps_of(value) > 1):
        owner = value.owner
        if isinstance(owner, ConstOp):
            return (owner,)
        if isinstance(owner, ParamOp):
            given = arguments.get(owner, ())
            constants = tuple(v.owner for v in given if isinstance(v.owner, ConstOp) and _has_one_reader(v))
            return constants if owner.kind.data == "in" and len(constants) == len(given) else ()
        if isinstance(owner, UnrealizedConversionCastOp):
            value = owner.inputs[0]
        elif isinstance(owner, ViewOp):
            value = owner.x
        else:
            break
    return ()


def _has_one_reader(value: SSAValue) -> bool:
    """Tells whether a value has one use, apart from casts that nothing reads."""
    readers = (u for u in value.uses if not isinstance(u.operation, UnrealizedConversionCastOp) or u.operation.outputs[0].uses)
    return sum(1 for _ in readers) == 1


def offered(options: Sequence[Option], constants: Sequence[ConstOp], target: Target, steps: int = 1) -> tuple[Option, ...]:
    """Returns what plans cost in all calls of a function, and the resident bytes of all its constants.

    The parameter takes as many bytes as one of them, which each call copies to it on its tile. `steps`: contractions of one
    call that read the same constant.
    """
    calls = len(constants)
    if calls == 1:
        return tuple(options if steps <= 1 else (replace(o, cycles=steps * o.cycles) for o in options))
    steps = max(steps, 1)
    return tuple(
        replace(o, cycles=calls * (steps * o.cycles + o.resident_bytes / target.copy_bytes), resident_bytes=(calls + 1) * o.resident_bytes)
        for o in options
    )


def replicate(weights: SSAValue, grid: Grid | None, arguments: Arguments) -> None:
    """Gives a constant, or a parameter and the constants that are its arguments, a layout with copies."""
    owner = weights.owner
    if grid is not None and isinstance(owner, ConstOp | ParamOp):
        for storage in (owner, *(value.owner for value in arguments.get(owner, ()))):
            assert isinstance(storage, ConstOp | ParamOp), storage
            storage.grid = GridAttr(grid)


def by_groups(t: TileBuilder, tensor: SSAValue, shape: Sequence[int], arguments: Arguments) -> SSAValue:
    """Returns weights as [groups, channels out, channels in, kernel..].

    A constant that nothing else reads becomes one of this shape, because no layout cuts channels within groups of a
    dimension that has both. So do the constants of a parameter, and the parameter.
    """
    w, constants = t.view(tensor), constants_of(tensor, arguments)
    if len(constants) != 1 or w is not constants[0].result:
        return t.reshape(w, shape)
    (constant,) = constants
    value = constant.value
    if isinstance(value, DenseIntOrFPElementsAttr):
        value = array_attribute(constant.array().reshape(shape))
    new = ConstOp(constant.label.data, value, constant.type.reshaped(shape))
    t.insert(new, constant)
    new.location = constant.location
    new.result.name_hint = constant.result.name_hint
    return new.result
