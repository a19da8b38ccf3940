"""Freezes tile programs: binds them as the native engine does, and gives their image, constants and kernels as a `Form`.

Nothing runs but the packing of constants, so a program may be for a CPU that this one is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from populus.dialects.poplar.program import GraphOp
from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.built.form import MACHINES
from populus.runtime.built.writer import Form, Tensor
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel
from populus.runtime.engine.native.frozen.binding import FreezingProgram, Pool, Types
from populus.runtime.engine.native.frozen.layout import Begin, Layout
from populus.runtime.tasks import with_tasks


@dataclass(frozen=True)
class Frozen:
    """A form and the kernels that its words name, by number.

    `in_constants`: the constant that a word is in, by the word's number. `checks`: of files that stay mapped, before each run.
    `begins`: of each program in it the numbers of the first step, input, output and state.
    """

    form: Form
    kernels: tuple[Kernel, ...]
    plan: Machine
    in_constants: Mapping[int, int]
    checks: Sequence[Callable[[], None]]
    begins: Sequence[Begin] = ((0, 0, 0, 0),)


def write_weights(frozen: Frozen, folder: Path, name: str) -> bytes:
    """Writes `<name>.bin`. Returns the identity of the build, which the code beside it has too."""
    identity = frozen.form.identity(kernel.key.encode() for kernel in frozen.kernels)
    frozen.form.write(folder / f"{name}.bin", identity)
    return identity


@dataclass(frozen=True)
class Part:
    """A tile program, with the (shape, dtype) of its inputs and outputs by name, in order, the states among them."""

    graph: GraphOp
    inputs: Types
    outputs: Types


def freeze(
    parts: Sequence[Part], plan: Machine, states: Mapping[str, str], threads: int | None = None, here: bool = False
) -> Frozen:
    """Freezes tile programs for a CPU: those of a model's sizes, of which one runs at a time.

    Constants that several of them have are in the file once. `threads`: the number that work is cut for
    where memory depends on it; any number may run a program, with the same results. `here`: as for `FreezingProgram`.
    Raises PopulusError for a CPU that programs are not built for, and for a step that only Python runs; the error names its node.
    """
    if plan.architecture not in MACHINES:
        raise PopulusError(f"programs are built for {' and '.join(MACHINES)}, not for {plan.architecture}")
    packed: Pool | None = {} if len(parts) > 1 else None
    programs: list[FreezingProgram] = []
    inputs, outputs = list[Tensor](), list[Tensor]()
    for part in parts:
        given = [name for name in part.inputs if name not in states]
        taken = [name for name in part.outputs if name not in states.values()]
        programs.append(FreezingProgram(with_tasks(part.graph), plan, given, taken, states, threads, packed, here))
        inputs += [Tensor(name, part.inputs[name][1].name, part.inputs[name][0]) for name in given]
        outputs += [Tensor(name, part.outputs[name][1].name, part.outputs[name][0]) for name in taken]
    layout = Layout(programs)
    form, kernels, in_constants = layout.form(inputs, outputs, [part.inputs for part in parts])
    checks = [program.unchanged for program in programs]
    return Frozen(form, kernels, plan, in_constants, [check for found in checks for check in found], layout.begins)
