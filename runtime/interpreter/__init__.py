"""The interpreter of modules at the `popart` and `popops` levels, or a mixture, op by op on whole arrays.

It is a loop over the ops with a dictionary from class to function. xDSL's `Interpreter` copies scopes and looks names
up for each op (about 10 us). It also needs every op registered, whereas a custom op here runs through its own formula
or lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.builder import Builder
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint

from populus.dialects.base.control_flow import Control, Yield, read_by
from populus.dialects.check import CloseOp
from populus.dialects.data import ConstantOp
from populus.dialects.host import CallOp
from populus.dialects.popart.base import ElementwiseOp, PopartOp
from populus.dialects.signature import input_names, output_names
from populus.dialects.support import user_op_errors
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of
from populus.runtime import poprand
from populus.runtime.expr import evaluate
from populus.runtime.host import call as host_call
from populus.runtime.interpreter import gcl, popart, poplin, popnn, popops
from populus.runtime.interpreter.check import check_close
from populus.runtime.interpreter.control_flow import run_control
from populus.runtime.views import params_of

Array = NDArray[Any]
Observe = Callable[[Operation, list[Array]], None]


@cache
def functions() -> dict[type[Operation], Callable[..., list[Array]]]:
    """Gives the function that computes each class of op: from the op and its operands' arrays to its results' arrays."""
    return {
        ConstantOp: _constant,
        CallOp: _host,
        **popops.FUNCTIONS,
        **poplin.FUNCTIONS,
        **popnn.FUNCTIONS,
        **poprand.FUNCTIONS,
        **gcl.FUNCTIONS,
        **popart.FUNCTIONS,
    }


def _constant(op: ConstantOp) -> list[Array]:
    return [op.array()]


def _host(op: CallOp, *arrays: Array) -> list[Array]:
    types = [(shape_of(r.type), dtype_of(element_type_of(r.type))) for r in op.results]
    try:
        return host_call(op.function.data, {} if op.params is None else params_of(op.params), types, arrays)
    except PopulusError as error:
        raise PopulusError(f"{where(op)}: {error}") from None


def evaluate_op(op: Operation, arrays: Sequence[Array]) -> list[Array]:
    """Computes the results of one op.

    An op without a row in `functions` runs its formula, its own `evaluate`, or else its lowering (`lower`).
    Raises PopulusError for an op of another level.
    """
    if (function := functions().get(type(op))) is not None:
        return function(op, *arrays)
    if isinstance(op, ElementwiseOp):
        return [evaluate(op.formula(), arrays)]
    if isinstance(op, PopartOp) and type(op).evaluate is not PopartOp.evaluate:
        return _by_author(op, arrays)
    if isinstance(op, PopartOp):
        return _through_lowering(op, arrays)
    raise PopulusError(f"{where(op)}: {op.name} has no value at this level; run the module after the passes that lower it, or before")


def _by_author(op: PopartOp, arrays: Sequence[Array]) -> list[Array]:
    """Calls the op's `evaluate`. Raises PopulusError, with file and line, if it fails or gives something else than `infer` says."""

    def title() -> str:
        return f"{where(op)}: {op.name}"

    with user_op_errors.asked(op, "evaluate", title):
        found = op.evaluate(*arrays)
    if user_op_errors.is_ours(type(op)):
        return list(found)
    return user_op_errors.arrays(op, found, [(shape_of(r.type), dtype_of(element_type_of(r.type))) for r in op.results], title)


def _through_lowering(op: PopartOp, arrays: Sequence[Array]) -> list[Array]:
    block = Block(arg_types=[o.type for o in op.operands])
    # A constant operand stays a constant, because a lowering may depend on its value.
    operands: list[SSAValue] = []
    for argument, o in zip(block.args, op.operands):
        constant = o.owner.clone() if isinstance(o.owner, ConstantOp) else None
        if constant is not None:
            block.add_op(constant)
        operands.append(argument if constant is None else constant.result)
    copy = op.clone(dict(zip(op.operands, operands)))
    copy.location = op.location
    block.add_op(copy)
    results = copy.lower(Builder(InsertPoint.before(copy)))
    values: dict[SSAValue, Array] = dict(zip(block.args, arrays))
    for inner in block.ops:
        if inner is copy:
            break
        values.update(zip(inner.results, evaluate_op(inner, [values[o] for o in inner.operands])))
    return [values[r] for r in results]


def run_function(module: ModuleOp, inputs: Mapping[str, Array], observe: Observe | None = None, function: str = "main") -> dict[str, Array]:
    """Runs a function of the module on `inputs` and returns its results, both by name.

    The names are those of its attributes `input_names` and `output_names`. Without them, they are the names of the
    arguments (`input_0` ..) and `output_0` .. `observe` is called after each op with its results. `check.close` is
    checked. Raises PopulusError for inputs that are missing, unknown, or of another shape or element type, and as the
    ops do.
    """
    main = _function(module, function)
    names = input_names(main)
    if unknown := inputs.keys() - set(names):
        raise PopulusError(f"@{function} has no input '{min(unknown)}'; its inputs are {', '.join(names) or 'none'}")
    arrays: list[Array] = []
    for name, argument in zip(names, main.body.block.args):
        if name not in inputs:
            raise PopulusError(f"@{function}: the input '{name}' is missing; {argument.type} is expected")
        array = np.asarray(inputs[name])
        shape, dtype = shape_of(argument.type), dtype_of(element_type_of(argument.type))
        if array.shape != shape or array.dtype != dtype:
            raise PopulusError(f"@{function}: the input '{name}' is {list(array.shape)} of {array.dtype}; {argument.type} is expected")
        arrays.append(array)
    results = _call(module, main, arrays, observe)
    return dict(zip(output_names(main), results))


def _function(module: ModuleOp, name: str) -> func.FuncOp:
    for op in module.body.block.ops:
        if isinstance(op, func.FuncOp) and op.sym_name.data == name:
            return op
    raise PopulusError(f"the module has no function @{name}")


def _call(module: ModuleOp, function: func.FuncOp, arguments: Sequence[Array], observe: Observe | None) -> list[Array]:
    return _Scope(module, observe).run(function.body, arguments)


class _Scope:
    """The values of a running function, including those inside its branches and loops."""

    def __init__(self, module: ModuleOp, observe: Observe | None):
        self.module = module
        self.observe = observe
        self.values: dict[SSAValue, Array] = {}
        self.reads: dict[Block, dict[Operation, list[SSAValue]]] = {}

    def run(self, region: Region, arguments: Sequence[Array]) -> list[Array]:
        """Runs the ops of a region, and returns the operands of its terminator."""
        block, values = region.block, self.values
        if block not in self.reads:
            self.reads[block] = _last_reads(block)
        reads = self.reads[block]
        values.update(zip(block.args, arguments))
        for op in block.ops:
            arrays = [values[o] for o in op.operands]
            if isinstance(op, func.ReturnOp | Yield):
                return arrays
            results = self.evaluate(op, arrays)
            values.update(zip(op.results, results))
            if self.observe is not None:
                self.observe(op, results)
            for value in reads.get(op, ()):
                del values[value]
        raise AssertionError(f"the block of {block.parent_op()} does not return")

    def evaluate(self, op: Operation, arrays: list[Array]) -> list[Array]:
        if isinstance(op, Control):
            return run_control(op, arrays, self.run)
        if isinstance(op, CloseOp):
            check_close(op, arrays[0])
            return []
        if isinstance(op, func.CallOp):
            return _call(self.module, _function(self.module, op.callee.root_reference.data), arrays, self.observe)
        return evaluate_op(op, arrays)


def _last_reads(block: Block) -> dict[Operation, list[SSAValue]]:
    """Lists for each op the values of its block that no later op reads, so that their memory can be freed."""
    last: dict[SSAValue, Operation] = {}
    for op in block.ops:
        last.update((v, op) for v in read_by(op) if (v.owner if isinstance(v.owner, Block) else v.owner.parent) is block)
        last.update((r, op) for r in op.results)
    dying: dict[Operation, list[SSAValue]] = {}
    for value, op in last.items():
        dying.setdefault(op, []).append(value)
    return dying
