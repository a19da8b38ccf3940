"""Kernel of codelets written in Python: the function that `dialects/poplar/tile_mlir.py` writes, for a whole family.

A unit is a block of the outermost lane; each has scratch vectors and a report of its own, so threads share the units.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from math import prod
from typing import Any, NoReturn

import numpy as np

from populus.dialects.poplar.tile_functions import FLOATS
from populus.dialects.poplar.tile_mlir import Function, Operand, function_of
from populus.dialects.poplar.tile_program import Apply, For, Statement, TileCode, blocks, own_values, statements
from populus.dialects.support.element_types import element_of
from populus.runtime.codelets.task import Array, Task
from populus.runtime.codelets.tile_failures import CodeletError
from populus.runtime.cycles.tile_code import tile_code_cycles
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library, c_functions
from populus.runtime.engine.native.codegen.llvm_builder import Function as Builder
from populus.runtime.engine.native.codegen.touched import Arguments, Elements, Touched
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.native_support import HALVES, of_numpy

BLOCKS = 16  # units that threads share
SCRATCH_BYTES = 1 << 24  # of all units together
TYPES = {"float32": "float", "float64": "double"}


def tile_code(code: TileCode, library: Library, task: Task) -> list[Launch] | None:
    """Runs the codelet as machine code. Returns None for element types, strides or C functions that it has no code for."""
    arrays = {v: task[v] for v in code.axes}
    scalars = {n: task.number(n) for n in code.scalars}
    sizes = {axis: arrays[v].shape[d] for v, axes in code.axes.items() for d, axis in enumerate(axes)}
    if any(sizes[a] == 0 for a in code.lanes):
        return []
    wide = any(a.dtype == np.float64 for a in arrays.values())
    if not all(_held(a, wide) for a in arrays.values()):
        return None
    if any(np.may_share_memory(arrays[v], a) for v in code.outputs for w, a in arrays.items() if v != w):
        return None
    operands = {v: _operand(a) for v, a in arrays.items()}
    lane = _outermost(code, code.body)
    function = function_of(code, operands, scalars, lane)
    if not c_functions(_called(code, wide), library.host):
        return None
    scratch = {v: _item(code, v, wide).itemsize * prod(shape) for v, shape in function.scratch.items()}
    shared = bool(lane) and not function.tracked and sum(scratch.values()) * BLOCKS <= SCRATCH_BYTES
    units = min(sizes[lane], BLOCKS) if shared else 1
    report = task.own((units, 2 + len(code.lanes)), np.int64)
    args: list[int | Array | Kernel] = list(arrays.values())
    args += [task.own((units * -(-bytes // 64) * 64,), np.uint8) for bytes in scratch.values()]
    args += [task.own(arrays[v].shape, np.uint8) for v in function.tracked]
    args += [_bits(scalars[n], kind, wide) for n, kind in code.scalars.items()]
    args += [report, sizes[lane] if lane else 0, units]
    steps = tuple(-(-bytes // 64) * 64 for bytes in scratch.values())
    kernel = Kernel(f"codelet {code.name} {function.key} {steps}", partial(_text, function, code, steps, wide), partial(_touches, code))
    work = int(
        np.min([tile_code_cycles(code, sizes, {n: int(v) for n, v in scalars.items() if code.scalars[n] == "int"}, 1) // 2, 1 << 40])
    )
    return [Launch(library, kernel, args, units, work, partial(_refuse, code, function, operands, report))]


def _touches(code: TileCode, args: Arguments, units: int) -> Touched:
    """States what a launch touches: at most its vectors."""
    own = dict(zip(code.axes, args))
    return Touched([Elements.of(a) for a in own.values()], [Elements.of(own[v]) for v in code.outputs], again=True)


def _held(array: Array, wide: bool) -> bool:
    """Tells whether there is code for elements of a type, at these strides."""
    dtype = array.dtype
    plain = dtype.kind in "biu" and of_numpy(dtype)
    floats = dtype.name in TYPES or (dtype.name in HALVES and not wide)
    return (plain or floats) and all(s % array.itemsize == 0 for s in array.strides)


def _operand(array: Array) -> Operand:
    strides = tuple(
        s // array.itemsize if n > 1 else prod(array.shape[d + 1 :]) for d, (s, n) in enumerate(zip(array.strides, array.shape))
    )
    return Operand(array.shape, element_of(array.dtype), strides, halves=array.dtype.name in HALVES)


def _outermost(code: TileCode, body: tuple[Statement, ...]) -> str:
    """Finds the lane of the first loop over one; empty if there is none."""
    for s in body:
        if isinstance(s, For) and s.var in code.loops:
            return code.loops[s.var]
        for block in blocks(s):
            if found := _outermost(code, block):
                return found
    return ""


def _item(code: TileCode, vector: str, wide: bool) -> np.dtype[Any]:
    """Gives the element type of a scratch vector in memory."""
    kind = next(s.kind for s in code.scratch() if s.vector == vector)
    return np.dtype({"float": np.float64 if wide else np.float32, "int": np.int64, "bool": np.bool_}[kind])


def _called(code: TileCode, wide: bool) -> list[str]:
    """Lists the functions of C's library that the codelet calls."""
    values = (v for s in statements(code.body) for v in own_values(s))
    used = {v.function for v in values if isinstance(v, Apply) and v.args[0].kind == "float"}
    used |= {"fmod"} if used & {"mod", "floordiv"} else set()
    inline = {"sqrt"} if wide else {"sqrt", "erf", "exp", "log", "tanh"}
    return [f.c if wide else f"{f.c}f" for name, f in FLOATS.items() if name in used - inline]


def _bits(value: float, kind: str, wide: bool) -> int:
    """Gives a scalar as a machine word."""
    if kind != "float":
        return int(value)
    return int(np.float64(value).view(np.int64)) if wide else int(np.float32(value).view(np.int32))


def _text(function: Function, code: TileCode, scratch: tuple[int, ...], wide: bool, name: str, machine: Machine) -> str:
    """Compiles the codelet's function to LLVM text, and adds the kernel that calls it for units."""
    from xdsl.backend.llvm.convert import convert_module
    from xdsl.context import Context

    from populus.runtime.engine.native.codegen.to_llvm import lower
    from populus.runtime.engine.native.kernels.formula_calls import expand

    module = function.module()
    expand(module)
    lower(Context(), module)
    text = str(convert_module(module, fallback_target_triple=machine.triple))
    text = text.replace("\ndefine ", "\ndefine internal ")
    return text + _caller(function, code, scratch, wide, name)


def _caller(function: Function, code: TileCode, scratch: tuple[int, ...], wide: bool, name: str) -> str:
    """Emits the kernel: for each unit a call with its scratch vectors, its report and its range of the lane."""
    f, places = Builder(name), count()

    def word(type: str = "ptr") -> str:
        return f.arg(next(places), type)

    def scalar(kind: str) -> str:
        value = word("i64")
        if kind == "float" and wide:
            return f"double {f.let(f'bitcast i64 {value} to double')}"
        if kind == "float":
            low = f.let(f"trunc i64 {value} to i32")
            return f"float {f.let(f'bitcast i32 {low} to float')}"
        return f"i1 {f.let(f'trunc i64 {value} to i1')}" if kind == "bool" else f"i64 {value}"

    pointers = [word() for _ in code.axes]
    rooms = [(word(), bytes) for bytes in scratch]
    tracked = [word() for _ in function.tracked]
    scalars = [scalar(kind) for kind in code.scalars.values()]
    report, size, units = word(), word("i64"), word("i64")

    def unit(u: str, bad: str) -> list[str]:
        own = [f.beyond(base, f.mul(u, bytes)) for base, bytes in rooms]
        reports = [f.beyond(report, f.mul(u, 8 * (2 + len(code.lanes))))] if function.reports else []
        ends = [f.let(f"udiv i64 {f.mul(size, part)}, {units}") for part in (u, f.add(u, 1))] if function.lane else []
        operands = [f"ptr {p}" for p in (*pointers, *own, *tracked)] + scalars + [f"ptr {p}" for p in reports] + [f"i64 {n}" for n in ends]
        call = f"@{function.name}({', '.join(operands)})"
        if function.reports:
            return [f.let(f"or i64 {bad}, {f.let(f'call i64 {call}')}")]
        f.line(f"call void {call}")
        return [bad]

    (bad,) = f.loop("%first", "%end", unit, [("i64", "0")])
    return "\n" + f.done(f"i64 {bad}")


def _refuse(code: TileCode, function: Function, operands: dict[str, Operand], report: Array) -> NoReturn:
    """Raises the error that the first unit with one has reported."""
    row: list[int] = report[np.flatnonzero(report[:, 0])[0]].tolist()
    report[...] = 0
    site = function.sites[row[0] - 1]
    shape = operands[site.vector].shape if site.vector in operands else function.scratch.get(site.vector, (0,))
    raise CodeletError(code, site, row[1], shape[site.dim], {a: i for a, i in zip(code.lanes, row[2:]) if i >= 0})
