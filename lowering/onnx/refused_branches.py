"""Branches of an If that cannot be compiled for the sizes at hand: they stay, and refuse the run that takes them.

    popart.if %is_16_kHz { .. } else { host.call "run.refuse"() params {why = "'gate': If: this run takes else_branch, .."} }

Real models choose by an input among branches of which only one fits the sizes of the others.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation
from xdsl.utils.exceptions import VerifyException

from populus.dialects.host import REFUSE, CallOp
from populus.dialects.signature.bounded_dimensions import bounds
from populus.dialects.support.diagnostics import PopulusError, PopulusWarning, where

BRANCHES = ("then_branch", "else_branch")

T = TypeVar("T")
Failed = PopulusError | VerifyException


def either(compiled: Callable[[str], T], ranges: bool) -> tuple[dict[str, T], dict[str, Failed]]:
    """Compiles both branches: the results of those that can be, and the errors of the others, by name.

    `ranges`: the program is for ranges of sizes. Then no branch may fail, as a program for one size may have both.
    Raises PopulusError or VerifyException if neither branch can be compiled.
    """
    done: dict[str, T] = {}
    failed: dict[str, Failed] = {}
    for name in BRANCHES:
        try:
            done[name] = compiled(name)
        except (PopulusError, VerifyException) as error:
            failed[name] = error
    if failed and (ranges or not done):
        raise next(iter(failed.values()))
    return done, failed


def emptied(block: Block) -> None:
    """Erases the ops of a block whose compilation failed, and what they left: ops that were made and never inserted."""
    read = {v for op in block.walk() for v in op.operands}
    for op in reversed(list(block.ops)):
        op.detach()
        op.erase(safe_erase=False)
    for value in read:
        for use in list(value.uses):
            if _top(use.operation).parent is None and not isinstance(_top(use.operation), ModuleOp | FuncOp):
                use.operation.drop_all_references()


def _top(op: Operation) -> Operation:
    """Gives the outermost op around an op."""
    while (outer := op.parent_op()) is not None:
        op = outer
    return op


def has_ranges(op: Operation) -> bool:
    """Tells whether the function around an op has bounded dimensions."""
    around: Operation | None = op
    while around is not None and not isinstance(around, FuncOp):
        around = around.parent_op()
    return around is not None and bool(bounds(around))


def refusal(op: Operation, failed: Mapping[str, Failed], types: Sequence[Attribute]) -> CallOp:
    """Makes the call that ends the run in place of the branch that failed, with results of these types. Warns of it."""
    ((name, error),) = failed.items()
    why = f"cannot be compiled for these sizes: {' '.join(str(error).split())}"
    warnings.warn(f"{where(op)}: If: its {name} {why}; a run that takes it is refused", PopulusWarning, 2)
    call = CallOp(REFUSE, [], types, {"why": StringAttr(f"If: the run takes its {name}, which {why}")})
    call.location = op.location
    return call


def is_refusal(owner: Operation | Block) -> bool:
    """Tells whether the owner of a value is such a call."""
    return isinstance(owner, CallOp) and owner.function.data == REFUSE
