"""Conversions of branches, calls, tuples and tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from xdsl.builder import Builder
from xdsl.dialects.builtin import DictionaryAttr, i32
from xdsl.dialects.func import CallOp
from xdsl.ir import Block, Region, SSAValue
from xdsl.rewriter import InsertPoint

from populus.dialects import popart
from populus.dialects.popart.definition import plain
from populus.dialects.support.diagnostics import PopulusError, option
from populus.lowering.stablehlo.to_popart import chlo, linear_algebra
from populus.lowering.stablehlo.to_popart.conversion import Conversion, Rule, Rules, Value, leaves, rebuilt

PASSED = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement", "LayoutConstraint")
"""Targets of calls that say where data lies, and change no value."""


def branch(c: Conversion, condition: SSAValue, compute: Sequence[Callable[[Conversion], list[Value]]]) -> list[Value]:
    """Builds `popart.if`; `compute` builds the values of either branch."""
    made: list[tuple[Region, list[Value]]] = []
    for build in compute:
        block = Block()
        values = build(c.at(Builder(InsertPoint.at_end(block))))
        block.add_op(popart.YieldOp(*leaves(values)))
        made.append((Region(block), values))
    op = popart.IfOp(condition, made[0][0], made[1][0])
    op.location = c.any.location
    c.builder.insert(op)
    return rebuilt(made[0][1], iter(op.results))


def if_(c: Conversion) -> list[Value]:
    """Converts if."""
    return branch(c, c.reshape(c.input(0), ()), [lambda inner: inner.region(0, []), lambda inner: inner.region(1, [])])


def case(c: Conversion) -> list[Value]:
    """Converts case to nested branches; an index that is out of range takes the last one."""
    index, count = c.cast(c.reshape(c.input(0), ()), i32), len(c.op.regions)

    def taken(inner: Conversion, number: int) -> list[Value]:
        if number == count - 1:
            return inner.region(number, [])
        condition = inner(popart.EqualOp, index, inner.scalar(number, index))
        return branch(inner, condition, [lambda i: i.region(number, []), lambda i: taken(i, number + 1)])

    return taken(c, 0)


def call(c: Conversion) -> list[Value]:
    """Converts func.call: the function is written out."""
    assert isinstance(c.any, CallOp)
    return c.regions.call(c.any.callee.string_value(), c.inputs, c.builder, c.lifted)


def composite(c: Conversion) -> list[Value]:
    """Converts composite by its decomposition."""
    return c.regions.call(c.get("decomposition"), c.inputs, c.builder, c.lifted)


def custom_call(c: Conversion) -> Value | list[Value]:
    """Converts custom_call: a loaded op that claims the target, an op of chlo, a factorisation, or a mark of where data lies.

    Entries of a `backend_config` that is a dictionary are the loaded op's attributes. Raises PopulusError for another target.
    """
    target = c.get("call_target_name")
    if (claiming := c.regions.claimed.get(target)) is not None:
        stated = c.op.stated("backend_config")
        given = {name: plain(value) for name, value in stated.data.items()} if isinstance(stated, DictionaryAttr) else {}
        operands = [c.input(i) for i in range(len(c.inputs))]
        made = claiming(*operands, **cast("dict[str, Any]", given))
        c.insert(made)
        return list(made.results)
    if (known := chlo.CALLED.get(target) or linear_algebra.CALLED.get(target)) is not None:
        return known(c)
    if target in PASSED:
        return list(c.inputs)
    how = option("--load FILE.py", "load='FILE.py'")
    raise PopulusError(f"custom_call @{target} has no conversion; an op of {how} that states STABLEHLO = '{target}' would compute it")


def passed(c: Conversion) -> list[Value]:
    """Gives the operands as they are."""
    return list(c.inputs)


def tuple_(c: Conversion) -> Value:
    """Converts tuple."""
    return tuple(c.inputs)


def element_of_tuple(c: Conversion) -> Value:
    """Converts get_tuple_element."""
    found = c.inputs[0]
    assert isinstance(found, tuple), found
    return found[c.get("index")]


def token(c: Conversion) -> Value:
    """Converts create_token and after_all: effects have an order already."""
    return ()


def only(number: int) -> Rule:
    """Makes the rule of replica_id or partition_id, of a program for one."""

    def rule(c: Conversion) -> Value:
        import numpy as np

        return c.constant(np.array(number, np.uint32))

    return rule


def alone(c: Conversion) -> list[Value]:
    """Converts a collective of a program for one replica, which gives its own operands. Raises PopulusError for groups of more."""
    groups = c.op.stated("replica_groups")
    members = c.get("replica_groups") if groups is not None else ()
    if len(set(members) - {-1}) > 1:
        raise PopulusError(f"{c.op.name} is among {len(set(members))} replicas; a program of one is converted")
    return list(c.inputs)


RULES: Rules = {
    "after_all": token,
    "all_gather": alone,
    "all_reduce": alone,
    "all_to_all": alone,
    "case": case,
    "collective_broadcast": alone,
    "composite": composite,
    "create_token": token,
    "cross-replica-sum": alone,
    "custom_call": custom_call,
    "get_tuple_element": element_of_tuple,
    "if": if_,
    "optimization_barrier": passed,
    "partition_id": only(0),
    "reduce_scatter": alone,
    "replica_id": only(0),
    "tuple": tuple_,
}
