"""Kernel of `map`: one function per formula, element types and pattern of strides. Sizes and strides are its
arguments.

    func.func @f(%x1: memref<?xf32>, %y: memref<?xf32>, sizes.., strides.., %first: index, %end: index)

is a nest of `scf.for` around the formula of one element. `codelet-to-llvm` lowers it, and LLVM vectorises it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from populus.dialects.expr import Expr
from populus.runtime.codelets.task import Array, Task
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library, c_functions
from populus.runtime.engine.native.codegen.touched import Arguments, Elements, Touched
from populus.runtime.engine.native.kernels.copies import SQUARE, copied
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.lifting import lifted
from populus.runtime.engine.native.kernels.map_pattern import STRIDE, Pattern
from populus.runtime.engine.native.kernels.native_support import ROUNDED, has_form, long_work
from populus.runtime.engine.native.kernels.operands import Nest
from populus.runtime.tape import Tape, tape_of

OVERLAPS = 1000  # candidates after which interleaved views count as overlapping


def _text(pattern: Pattern, name: str, machine: Machine) -> str:
    from xdsl.backend.llvm.convert import convert_module
    from xdsl.context import Context

    from populus.runtime.engine.native.codegen.to_llvm import lower
    from populus.runtime.engine.native.kernels.map_codelet import module_of

    module = module_of(pattern, f"{name}_codelet", machine.converts_halves)
    lower(Context(), module)
    text = str(convert_module(module, fallback_target_triple=machine.triple))
    return text + caller(name, f"{name}_codelet", len(pattern.pointers) + 1, pattern.numbers)


def caller(name: str, callee: str, pointers: int, numbers: int) -> str:
    """Emits a kernel that calls a codelet's function with the pointers and numbers of its arguments, and its units."""
    lines: list[str] = []
    operands: list[str] = []
    for i in range(pointers + numbers):
        type = "ptr" if i < pointers else "i64"
        lines += [f"  %p{i} = getelementptr i64, ptr %args, i64 {i}", f"  %a{i} = load {type}, ptr %p{i}"]
        operands.append(f"{type} %a{i}")
    operands += ["i64 %first", "i64 %end"]
    body = "\n".join(lines)
    return (
        f"\ndefine i64 @{name}(ptr %args, i64 %first, i64 %end) {{\n{body}\n  call void @{callee}({', '.join(operands)})\n  ret i64 0\n}}\n"
    )


def map(library: Library, task: Task) -> list[Launch] | None:
    """Computes `y = expr(x1, x2, ...)` with inputs broadcast to y; an `inout` input is y."""
    expr = task.params["expr"]
    assert isinstance(expr, Expr), expr
    inputs = [piece for name, piece in task.fields.items() if name != "y"]
    out = task.fields["y"] if "y" in task.fields else next(p for p in inputs if p.array.flags.writeable)
    return mapped(library, expr, Nest.over(task, *inputs, out))


def formula(library: Library, expr: Expr, inputs: list[Array], out: Array) -> list[Launch] | None:
    """Builds launches of `out = expr(inputs)`, with inputs broadcast. Returns None if the kernels do not apply."""
    return mapped(library, expr, Nest.of(*inputs, out))


def mapped(library: Library, expr: Expr, nest: Nest) -> list[Launch] | None:
    """Builds such launches of the arrays of loops, the last of which is the output."""
    *inputs, out = nest.arrays
    if out.size == 0:
        return []
    tape, numbers = lifted(tape_of(expr, tuple(a.dtype for a in inputs)))
    if tape.result < len(tape.operands):
        return copied(library, nest.of_one(tape.result))
    if not has_code(tape, library.host):
        return None
    same = tuple(i for i in range(len(inputs)) if nest.is_written(i))
    bound: Any = OVERLAPS  # NumPy's stubs know no number
    if any(i not in same and np.may_share_memory(a, out, bound) for i, a in enumerate(inputs)):
        return None
    shape, strides = nest.loops()
    if any(s % a.itemsize for a, steps in zip(nest.arrays, strides) for s in steps):
        return None
    elements = [[s // a.itemsize for s in steps] for a, steps in zip(nest.arrays, strides)]
    shape, elements = _squared(shape, elements)
    *kinds, last = (STRIDE.get(s[-1], "any") for s in elements)
    pattern = Pattern(tape, len(shape), (*kinds, *["number"] * len(numbers), last), same)
    args: list[int | Array | Kernel] = [a for i, a in enumerate(inputs) if i not in same]
    args += [*numbers, out, *shape[1:]]
    for i, (steps, kind) in enumerate(zip(elements, (*kinds, last))):
        if i not in same:
            args += [*steps[:-1], *([steps[-1]] if kind == "any" else [])]
    return [Launch(library, formula_kernel(pattern), args, shape[0], _work(tape, out.size))]


def has_code(tape: Tape, host: Machine) -> bool:
    """Tells whether all steps of a tape have a native form. Remainders of floats are C's, and exact; it makes these known."""
    return has_form(tape) and (all(s.name != "rem" for s in tape.steps) or c_functions(("fmod", "fmodf"), host))


def formula_kernel(pattern: Pattern) -> Kernel:
    """Names the kernel of a pattern. Its arguments are addresses, then sizes of all loops but the first, then strides."""
    kernel: Callable[[str, Machine], str] = partial(_text, pattern)
    return Kernel(pattern.key, kernel, partial(_touches, pattern))


def _touches(pattern: Pattern, args: Arguments, units: int) -> Touched:
    """States what a launch of a formula touches."""
    tape, rank = pattern.tape, pattern.rank
    places = [*pattern.pointers, len(tape.operands)]
    sizes, words = [units, *args[len(places) :][: rank - 1]], iter(args[len(places) + rank - 1 :])
    found: list[Elements] = []
    for base, p in zip(args, places):
        kind, item = pattern.strides[p], (*tape.operands, tape.dtype)[p].itemsize
        if kind == "number":
            found.append(Elements.at(base, item))
            continue
        outer = [next(words) for _ in range(rank - 1)]
        inner = next(words) if kind == "any" else int(kind == "one")
        found.append(Elements.at(base, item, *((n, s * item) for n, s in zip(sizes, (*outer, inner)))))
    return Touched([*found[:-1], *([found[-1]] if pattern.same else [])], found[-1:])


def _squared(shape: list[int], elements: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """Cuts the loops of a formula so that an input transposed to the output is read by squares.

    `copies.copy` does the same.
    """
    last = len(shape) - 1
    if elements[-1][-1] != 1 or shape[-1] % SQUARE:
        return shape, elements
    side = next((d for e in elements[:-1] if e[-1] > 1 for d in range(last) if e[d] == 1), None)
    if side is None:
        return shape, elements
    order = [*(d for d in range(last) if d != side), last, side]
    sizes = [*shape[:-1], shape[-1] // SQUARE]
    return [*(sizes[d] for d in order), SQUARE], [[*(e[d] * SQUARE if d == last else e[d] for d in order), e[-1]] for e in elements]


def _work(tape: Tape, elements: int) -> int:
    """Estimates the ns of a formula from its bytes and steps; polynomials count more."""
    bytes = sum(d.itemsize for d in (*tape.operands, tape.dtype))
    plain = sum(s.name not in ROUNDED["float32"] for s in tape.steps)
    return int(elements * (bytes / 20 + plain / 20)) + long_work(tape, elements)
