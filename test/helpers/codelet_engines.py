"""A codelet in Python on arrays, by each of the ways that run it: plain Python, the interpreter, the engines, emitted LLVM."""

from __future__ import annotations

import ctypes
from functools import lru_cache

import numpy as np
from xdsl.backend.llvm.convert import convert_module
from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser
from xdsl.rewriter import InsertPoint

import populus
from populus.dialects.popart import calls
from populus.dialects.poplar.tile_functions import FLOATS
from populus.dialects.poplar.tile_mlir import Operand, function_of
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import element_of
from populus.dialects.table import context
from populus.runtime.codelets.plain_python import plain
from populus.runtime.codelets.tile_code import run
from populus.runtime.engine.native.codegen import jit
from populus.runtime.engine.native.codegen.cpu import binding, machine
from populus.runtime.engine.native.codegen.to_llvm import lower

KEPT = []  # compiled code


def zeros(outputs):
    """Makes arrays of outputs from (shape, dtype) by name."""
    return {v: np.zeros(shape, dtype) for v, (shape, dtype) in outputs.items()}


def by_plain_python(code, inputs, outputs, scalars):
    """Calls the function."""
    made = zeros(outputs)
    plain(code, {**inputs, **made}, scalars)
    return made


def by_interpreter(code, inputs, outputs, scalars):
    """Runs the statements with NumPy on whole arrays."""
    made = zeros(outputs)
    run(code, {**inputs, **made}, scalars)
    return made


def model(code, inputs, outputs, scalars, parts=None) -> ModuleOp:
    """Makes a module whose function calls the codelet."""
    with populus.Builder() as b:
        values = [b.input(v, inputs[v].shape, inputs[v].dtype) for v in code.inputs]
        for v in code.outputs:
            b.output(v, values[0])
    module = b.module()
    function = next(iter(module.ops))
    last = function.body.block.last_op
    types = [(shape, element_of(np.dtype(dtype))) for shape, dtype in (outputs[v] for v in code.outputs)]
    arguments = function.body.block.args
    ys = calls.codelets(Builder(InsertPoint.before(last)), code, *arguments, outputs=types, parts=parts, **scalars)
    last.operands = ys
    function.update_function_type()
    return module


def by_engine(code, inputs, outputs, scalars, engine, tiles=1, parts=None):
    """Compiles a model of one call, and runs it on an engine."""
    module = model(code, inputs, outputs, scalars, parts)
    program = populus.compile(module, target="host", tiles=tiles, engine=engine)
    found = program.run({v: inputs[v] for v in code.inputs})
    return {v: found[v] for v in code.outputs}


@lru_cache(1)
def _target():
    binding()
    return machine()


def by_emitted_llvm(code, inputs, outputs, scalars):
    """Lowers the text that `poplar-emit` writes for one vertex to LLVM, compiles it, and calls it.

    Raises PopulusError if it reports a mistake.
    """
    made = zeros(outputs)
    arrays = {v: {**inputs, **made}[v] for v in code.axes}
    arrays = {v: np.ascontiguousarray(a) if v in inputs else a for v, a in arrays.items()}
    function = function_of(code, {v: Operand(a.shape, element_of(a.dtype)) for v, a in arrays.items()}, scalars)
    module = Parser(context(), str(function.module())).parse_module()
    module.verify()
    lower(Context(), module)
    text = str(convert_module(module, fallback_target_triple=_target().triple))
    assert jit.c_functions((c for f in FLOATS.values() for c in (f.c, f"{f.c}f")), _target())
    llvm, engine = binding(), jit.empty_engine(_target())
    engine.add_object_file(llvm.ObjectFileRef.from_data(jit.object_code(text, _target())))
    engine.finalize_object()
    KEPT.append(engine)
    wide = any(a.dtype == np.float64 for a in arrays.values())
    kinds = {s.vector: s.kind for s in code.scratch()}
    sizes = {"float": 8 if wide else 4, "int": 8, "bool": 1}
    extra = [np.zeros(int(np.prod(shape)) * sizes[kinds[v]] + 8, np.uint8) for v, shape in function.scratch.items()]
    extra += [np.zeros(arrays[v].shape, np.uint8) for v in function.tracked]
    report = np.zeros(2 + len(code.lanes), np.int64)
    numbers = {"float": ctypes.c_double if wide else ctypes.c_float, "int": ctypes.c_int64, "bool": ctypes.c_bool}
    args = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays.values(), *extra)]
    args += [numbers[kind](scalars[n]) for n, kind in code.scalars.items()]
    args += [ctypes.c_void_p(report.ctypes.data)] if function.reports else []
    entry = ctypes.CFUNCTYPE(ctypes.c_int64 if function.reports else None, *(type(a) for a in args))
    status = entry(engine.get_function_address(code.name))(*args)
    if status:
        raise PopulusError(f"{code.name}: reported {report}")
    return made
