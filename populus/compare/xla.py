"""Runs StableHLO by XLA on the CPU: the oracle of `--check-levels`, of tests and benchmarks. It is no part of what a program computes.

JAX is an extra: it is imported when a module is run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.driver.files import read_bytes
from populus.lowering.stablehlo.importer import is_stablehlo
from populus.lowering.stablehlo.jaxlib_reader import named_place, new_context, printed, read_by_jaxlib
from populus.lowering.stablehlo.refinement import Given, main_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from populus.program.source import Arrays, Source
    from populus.runtime.traces import Trace

CONTROL = frozenset(["stablehlo.while", "stablehlo.if", "stablehlo.case"])


def run(text: str, arrays: Sequence[Any]) -> list[NDArray[Any]]:
    """Compiles a module and runs it. Raises what XLA raises."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # XLA says on the terminal which CPU it found
    jax, client, ir = (import_module(name) for name in ("jax", "jaxlib.xla_client", "jaxlib.mlir.ir"))
    (device,) = jax.devices("cpu")[:1]
    module = printed(ir.Module.parse(text, new_context()))  # the pretty form of a dot without contracted dimensions is not read again
    devices = import_module("jaxlib._jax").DeviceList((device,))
    loaded = device.client.compile_and_load(module, devices, client.CompileOptions())
    with jax.enable_x64(True):
        given = [jax.device_put(a, device) for a in arrays]
        outputs = loaded.execute_sharded(given).disassemble_into_single_device_arrays()
        return [np.asarray(o[0]) for o in outputs]


def has_stablehlo(source: Source) -> bool:
    """Tells whether a program was read from a file of StableHLO."""
    model = source.model
    return isinstance(model, str | os.PathLike) and os.fspath(model).endswith(".mlir") and is_stablehlo(read_bytes(model))


def trace(source: Source, inputs: Mapping[str, NDArray[Any]], outputs: Sequence[str]) -> tuple[Arrays, Trace]:
    """Runs the file of a program; gives its outputs by name, and the results of those ops of @main and its functions that have names.

    Complex numbers are `[.., 2]`, as the program's own. Raises PopulusError if JAX is not installed, or XLA does not run the module.
    """
    path = os.fspath(cast("str", source.model))
    content = read_bytes(path)
    if b"quant.uniform" in content:
        raise PopulusError("XLA on the CPU does not run quantized types")
    if find_spec("jax") is None:
        raise PopulusError("XLA runs it, which comes with JAX: pip install jax")
    module = read_by_jaxlib(content, path, Given(source.dims, source.values))
    types = [str(a.type) for a in main_of(module).regions[0].blocks[0].arguments]
    places = _observed(module)
    arrays = [_as_complex(a) if "complex" in t else a for a, t in zip(inputs.values(), types, strict=True)]
    try:
        found = run(str(module), arrays)
    except (RuntimeError, TypeError, ValueError) as error:  # as XLA's own errors are
        raise PopulusError(f"XLA does not run it: {' '.join(str(error).split())[:200]}") from None
    values, observed = found[: len(outputs)], found[len(outputs) :]
    results: Trace = {}
    for place, array in zip(places, observed, strict=True):
        results.setdefault((place, 0), []).append(array)
    return {name: _as_parts(array) for name, array in zip(outputs, values, strict=True)}, results


def _observed(module: Any) -> list[str]:
    """Lets @main return the named results inside it, too, and gives their places in order. Calls are written out before.

    A name that an op of a loop or a branch has too is left out: which of its runs would be compared is not known.
    """
    ir = import_module("jaxlib.mlir.ir")
    main = main_of(module)
    block = main.regions[0].blocks[0]
    _write_out_calls(module, block, ir)
    *ops, end = block.operations
    hidden = {named_place(inner.location) for op in ops if op.operation.name in CONTROL for inner in _inside(module, op, ir)}
    results = [(place, v) for op in ops if (place := named_place(op.location)) and place not in hidden for v in op.results]
    named = [(place, v) for place, v in results if re.match("tensor<(?!.*complex)", str(v.type))]
    values = [*end.operands, *(v for _, v in named)]
    with module.context, ir.Location.unknown():
        ir.Operation.create("func.return", operands=values, ip=ir.InsertionPoint(end))
        end.operation.erase()
        inputs = [a.type for a in block.arguments]
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, [v.type for v in values]))
    for name in ("arg_attrs", "res_attrs"):
        if name in main.attributes:
            del main.attributes[name]
    return [place for place, _ in named]


def _write_out_calls(module: Any, block: Any, ir: Any) -> None:
    """Writes the functions that a block calls into it, until it calls none."""
    functions = _functions(module, ir)
    while calls := [op for op in block.operations if op.operation.name == "func.call"]:
        for call in calls:
            body = functions[_callee(call, ir)].regions[0].blocks[0]
            values = dict[Any, Any](zip(body.arguments, call.operands, strict=True))
            *ops, end = body.operations
            for op in ops:
                made = op.operation.clone(ir.InsertionPoint(call))
                made.walk(partial(_replace_operands, ir, values))
                values.update(zip(op.results, made.results, strict=True))
            for old, new in zip(call.results, end.operands, strict=True):
                old.replace_all_uses_with(values[new])
            call.operation.erase()


def _inside(module: Any, op: Any, ir: Any) -> list[Any]:
    """Lists the ops in an op's regions, and in the functions that these call."""
    functions, found, waiting = _functions(module, ir), list[Any](), [op]

    def look(inner: Any) -> Any:
        found.append(inner)
        if inner.name == "func.call" and (callee := functions.pop(_callee(inner, ir), None)) is not None:
            waiting.append(callee)
        return ir.WalkResult.ADVANCE

    for one in waiting:
        for inner in (i for region in one.regions for block in region.blocks for i in block.operations):
            inner.operation.walk(look)
    return found


def _functions(module: Any, ir: Any) -> dict[str, Any]:
    return {ir.StringAttr(f.attributes["sym_name"]).value: f for f in module.body.operations if f.operation.name == "func.func"}


def _callee(call: Any, ir: Any) -> str:
    return ir.FlatSymbolRefAttr(call.attributes["callee"]).value


def _replace_operands(ir: Any, values: Mapping[Any, Any], op: Any) -> Any:
    for i, operand in enumerate(op.operands):
        if operand in values:
            op.operands[i] = values[operand]
    return ir.WalkResult.ADVANCE


def _as_complex(array: NDArray[Any]) -> NDArray[Any]:
    """Makes complex numbers of their parts, `[.., 2]`."""
    return np.ascontiguousarray(array).view(f"c{2 * array.dtype.itemsize}")[..., 0]


def _as_parts(array: NDArray[Any]) -> NDArray[Any]:
    """Makes `[.., 2]` of complex numbers; gives other arrays as they are."""
    return np.stack([np.real(array), np.imag(array)], -1) if np.iscomplexobj(array) else array
