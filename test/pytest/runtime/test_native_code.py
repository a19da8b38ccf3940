"""Machine code of the loops of products, for CPUs that this one need not be: registers, memory, and masks, by counts."""

from __future__ import annotations

import re

import pytest

from populus.runtime.engine.native.codegen.cpu import Machine, described
from populus.runtime.engine.native.codegen.jit import Kernel, optimised
from populus.runtime.engine.native.kernels.blocks import block_kernel


def inner_loop(kernel: Kernel, host: Machine) -> list[str]:
    """Instructions of the innermost loop with the most sums: from a label to the jump back to it."""
    module, target = optimised(kernel.build(kernel.name, host), host, file=True)
    lines = [line.strip() for line in target.emit_assembly(module).splitlines()]
    labels = {line[:-1]: i for i, line in enumerate(lines) if re.fullmatch(r"\.LBB\w+:", line)}
    loops = [
        lines[begin + 1 : i + 1]
        for i, line in enumerate(lines)
        if line.startswith("j") and (begin := labels.get(line.split()[-1], i)) < i
    ]
    inner = [loop for loop in loops if not any(line.endswith(":") for line in loop)]
    return max(inner, key=lambda loop: sum("vfmadd" in line for line in loop))


@pytest.mark.parametrize("form", ["rows", "columns", "sliced rows", "swapped paced", "swapped whole", "swapped late"])
@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
def test_the_largest_block_keeps_its_sums_in_registers(cpu: str, form: str):
    host = described(cpu)
    rows, vectors = host.block
    loop = inner_loop(block_kernel(rows, vectors, "float32", form), host)
    assert sum(line.startswith("vfmadd") for line in loop) == rows * vectors, loop
    assert not any("(%rsp" in line for line in loop), loop
    assert not any("maskmov" in line or "{%k" in line for line in loop), loop
