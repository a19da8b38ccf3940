"""Machine code of the loops of products, for CPUs that this one need not be: registers, memory, and masks, by counts."""

from __future__ import annotations

import re

import pytest

from populus.runtime.engine.native.codegen.cpu import Machine, described
from populus.runtime.engine.native.codegen.jit import Kernel, optimised
from populus.runtime.engine.native.kernels.blocks import block_kernel
from populus.runtime.engine.native.kernels.winograd import back_kernel, transform_kernel


def code(kernel: Kernel, host: Machine) -> list[str]:
    """Lines of assembly."""
    module, target = optimised(kernel.build(kernel.name, host), host, kernel.vectors)
    return [line.strip() for line in target.emit_assembly(module).splitlines()]


def inner_loop(kernel: Kernel, host: Machine) -> list[str]:
    """Instructions of the innermost loop with the most sums: from a label to the jump back to it."""
    lines = code(kernel, host)
    labels = {line[:-1]: i for i, line in enumerate(lines) if re.fullmatch(r"\.LBB\w+:", line)}
    loops = [
        lines[begin + 1 : i + 1] for i, line in enumerate(lines) if line.startswith("j") and (begin := labels.get(line.split()[-1], i)) < i
    ]
    inner = [loop for loop in loops if not any(line.endswith(":") for line in loop)]
    return max(inner, key=lambda loop: sum("vfmadd" in line for line in loop))


FORMS = "rows", "columns", "sliced rows", "swapped paced", "swapped whole", "swapped late", "swapped packed late"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
def test_the_largest_block_keeps_its_sums_in_registers(cpu: str, form: str):
    host = described(cpu)
    rows, vectors = host.block
    loop = inner_loop(block_kernel(rows, vectors, "float32", form), host)
    assert sum(line.startswith("vfmadd") for line in loop) == rows * vectors, loop
    assert not any("(%rsp" in line for line in loop), loop
    assert not any("maskmov" in line or "{%k" in line for line in loop), loop


@pytest.mark.parametrize(("cpu", "fetches"), [("x86-64-v3", 4), ("x86-64-v4", 0)])
def test_lines_of_one_row_are_fetched_ahead_where_a_vector_is_less_than_a_line(cpu: str, fetches: int):
    loop = inner_loop(block_kernel(1, 8, "float32", "rows"), described(cpu))
    assert sum(line.startswith("prefetch") for line in loop) == fetches, loop


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("kernel", "stores"), [("transform", 16), ("back", 4)])
def test_tiles_are_stored_whole_where_masks_cost_operations(kernel: str, stores: int, exact: bool):
    made = transform_kernel(2, exact) if kernel == "transform" else back_kernel(2, None, exact)
    for cpu, masked, vector in (("x86-64-v3", r"vmaskmovps\t%ymm", "%ymm"), ("x86-64-v4", r"vmovups\t%zmm.*{%k", "%zmm")):
        lines = code(made, described(cpu))
        whole = [line for line in lines if re.match(rf"vmovups\t{vector}\d+, (?!.*%rsp)(?!.*{{)", line)]
        assert len([line for line in lines if re.match(masked, line)]) == stores, lines
        assert len(whole) == (stores if cpu == "x86-64-v3" else 0), lines
