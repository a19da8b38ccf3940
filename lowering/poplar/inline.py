"""Functions whose arguments a machine's tiles cannot hold at once are inlined: constants then wait outside, in slices."""

from __future__ import annotations

import math
from collections.abc import Mapping

from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects.data import block_format
from populus.dialects.poplar.target import Target
from populus.dialects.support.block_floats import bytes_an_element
from populus.dialects.support.call_places import places_of, renamed, set_names
from populus.dialects.support.element_types import element_type_of, shape_of, size_in_bytes

SHARE = 0.6  # of the tiles' memory that arguments and results may take; what the function computes needs the rest


def inline_large(main: FuncOp, functions: Mapping[str, FuncOp], machine: Target) -> None:
    """Replaces calls of functions whose arguments and results exceed SHARE of all tiles by the ops of the functions.

    A call copies all arguments to the tiles before its first step, so such a program cannot fit. O(ops that are inlined).
    """
    room = SHARE * machine.tiles * machine.room
    large = {name for name, f in functions.items() if f is not main and _interface(f) > room}
    left = [op for f in (main, *functions.values()) for op in f.walk() if isinstance(op, CallOp)] if large else []
    while left:
        call = left.pop()
        name = call.callee.root_reference.data
        if name in large and call.parent is not None:
            left += _inlined(call, functions[name])


def _interface(function: FuncOp) -> float:
    type = function.function_type
    return sum(_bytes(t) for t in (*type.inputs.data, *type.outputs.data))


def _bytes(type: Attribute) -> float:
    size = bytes_an_element(block) if (block := block_format(type)) else size_in_bytes(element_type_of(type))
    return math.prod(shape_of(type)) * size


def _inlined(call: CallOp, function: FuncOp) -> list[CallOp]:
    """Replaces a call by the ops of its function, which have the locations of the call's own. Returns the calls among them."""
    body, names = function.body.clone().block, places_of(call)
    calls: list[CallOp] = []
    for op in body.walk():
        op.location = renamed(op.location, names)
        if isinstance(op, CallOp):
            set_names(op, {inside: names.get(own, own) for inside, own in places_of(op).items()})
            calls.append(op)
    last = body.last_op
    assert isinstance(last, ReturnOp), last
    Rewriter.inline_block(body, InsertPoint.before(call), list(call.operands))
    for old, new in zip(call.results, last.operands, strict=True):
        new.name_hint = old.name_hint or new.name_hint
        old.replace_all_uses_with(new)
    for op in (last, call):
        Rewriter.erase_op(op)
    return calls
