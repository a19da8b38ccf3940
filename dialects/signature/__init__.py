"""The signature of `@main`: the names of its arguments and results, and the constants that were a model's weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, NameLoc, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue

from populus.dialects.data import ConstantOp
from populus.dialects.support.diagnostics import PopulusError, did_you_mean, named, where


def expose(function: FuncOp, names: Sequence[str]) -> None:
    """Makes the constants of these names arguments of `function`, after those that it has.

    Raises PopulusError for a name that is neither an input's nor a constant's.
    """
    inputs, constants = input_names(function), weights_of(function)
    wanted = [name for name in dict.fromkeys(names) if name not in inputs]
    if strange := [name for name in wanted if name not in constants]:
        raise PopulusError(f"there is no input or weight '{strange[0]}'{did_you_mean(strange[0], [*inputs, *constants])}")
    block = function.body.block
    for name in wanted:
        op = constants[name]
        argument = block.insert_arg(op.result.type, len(block.args))
        argument.location, argument.name_hint = op.location, op.result.name_hint
        op.result.replace_all_uses_with(argument)
        op.detach()
        op.erase()
    state_names(function, inputs=[*inputs, *wanted])
    dims = function.attributes.get("dim_names")
    if isinstance(dims, ArrayAttr):  # weights have no symbolic dimensions
        known = cast("ArrayAttr[Attribute]", dims)
        function.attributes["dim_names"] = ArrayAttr([*known, *(ArrayAttr[Attribute]([]) for _ in wanted)])
    function.update_function_type()


def weights_of(function: FuncOp) -> dict[str, ConstantOp]:
    """Collects the constants of a function by their original name; the first of each name."""
    found: dict[str, ConstantOp] = {}
    for op in function.body.block.ops:
        if isinstance(op, ConstantOp) and isinstance(op.location, NameLoc):
            found.setdefault(op.location.desc.data, op)
    return found


def main_of(module: ModuleOp) -> FuncOp:
    """Returns `@main`. Raises PopulusError if there is none."""
    for op in module.body.block.ops:
        if isinstance(op, FuncOp) and op.sym_name.data == "main" and op.body.blocks:
            return op
    raise PopulusError("the module has no func.func @main")


def input_names(function: FuncOp) -> list[str]:
    """Gives the names of a function's arguments: those of `input_names`, else the names in its text, else `input_0`, ..."""
    return _stated(function, "input_names") or [a.name_hint or f"input_{i}" for i, a in enumerate(function.body.block.args)]


def output_names(function: FuncOp) -> list[str]:
    """Gives the names of a function's results: those of `output_names`, else `output_0`, ..."""
    if stated := _stated(function, "output_names"):
        return stated
    last = function.body.block.last_op
    return [f"output_{i}" for i in range(len(last.operands) if isinstance(last, ReturnOp) else 0)]


def state_names(function: FuncOp, *, inputs: Iterable[str] | None = None, outputs: Iterable[str] | None = None) -> None:
    """Writes the names of the arguments, of the results, or of both onto a function."""
    for attribute, names in (("input_names", inputs), ("output_names", outputs)):
        if names is not None:
            function.attributes[attribute] = ArrayAttr([StringAttr(name) for name in names])


def _stated(function: FuncOp, attribute: str) -> list[str]:
    found = function.attributes.get(attribute)
    entries = cast("ArrayAttr[Attribute]", found) if isinstance(found, ArrayAttr) else ()
    names = [name.data for name in entries if isinstance(name, StringAttr)]
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise PopulusError(f"{where(function)}: {attribute} of @{function.sym_name.data} has '{twice}' twice")
    return names


def return_of(function: FuncOp) -> ReturnOp:
    """Returns the terminator of a function."""
    last: Operation | None = function.body.block.last_op
    assert isinstance(last, ReturnOp), last
    return last


def add_argument(function: FuncOp, name: str, type: Attribute, hint: str) -> SSAValue:
    """Adds an argument named `name`. `hint`: its SSA name in texts."""
    block = function.body.block
    inputs = input_names(function)
    argument = block.insert_arg(type, len(block.args))
    argument.location, argument.name_hint = named(name), hint
    state_names(function, inputs=[*inputs, name])
    function.update_function_type()
    return argument


def add_results(function: FuncOp, results: Mapping[str, SSAValue]) -> None:
    """Adds results by name."""
    replace_results(function, {**dict(zip(output_names(function), return_of(function).operands)), **results})


def replace_results(function: FuncOp, results: Mapping[str, SSAValue]) -> None:
    """Makes these the results, by name."""
    old = return_of(function)
    new = ReturnOp(*results.values())
    new.location = old.location
    function.body.block.insert_op_before(new, old)
    old.detach()
    old.erase()
    state_names(function, outputs=list(results))
    function.update_function_type()
