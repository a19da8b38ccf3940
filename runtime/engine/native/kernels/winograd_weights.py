"""Kernel that transforms the weights of `winograd` and packs them into panels of output channels."""

from __future__ import annotations

from functools import partial

from populus.runtime.codelets.winograd import kernel_rows
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel
from populus.runtime.engine.native.codegen.llvm_builder import Function, number
from populus.runtime.engine.native.codegen.touched import Arguments, Elements, Touched
from populus.runtime.engine.native.kernels.contraction import count_of, start_of


def weights_kernel(m: int) -> Kernel:
    """Names the kernel for tiles of m by m outputs."""
    return Kernel(f"winograd weights {m}", partial(_packer, m), partial(_touches, m), vectors=True)


def _touches(m: int, args: Arguments, units: int) -> Touched:
    """States what a launch touches."""
    w, u, ic, oc_step, ic_step, row_step, column_step, plane, tall, high = args
    oc = count_of(tall, high, units)
    read = Elements.at(w, 4, (oc, oc_step), (ic, ic_step), (3, row_step), (3, column_step))
    return Touched([read], [Elements.at(u, 4, ((m + 2) ** 2, plane), (oc * ic, 4))])


def _packer(m: int, name: str, machine: Machine) -> str:
    """Emits u = G w G', in f64 and rounded once. Units are panels of output channels."""
    f = Function(name)
    w, u, ic, oc_step, ic_step, row_step, column_step, plane, tall, high = f.args("ppiiiiiiii")

    def sums(parts: list[str]) -> list[str]:
        found: list[str] = []
        for row in kernel_rows(m):
            terms = [parts[j] if factor == 1.0 else f.let(f"fmul double {number(factor, 'double')}, {parts[j]}") for factor, j in row]
            total = terms[0]
            for term in terms[1:]:
                total = f.let(f"fadd double {total}, {term}")
            found.append(total)
        return found

    def panel(i: str) -> None:
        row = start_of(f, i, tall, high)
        width = f.sub(high, f.let(f"zext i1 {f.let(f'icmp sge i64 {i}, {tall}')} to i64"))
        into = f.at(u, f.mul(row, ic), "float")

        def channel(c: str) -> None:
            def one(r: str) -> None:
                at = f.beyond(f.beyond(w, f.mul(f.add(row, r), oc_step)), f.mul(c, ic_step))
                taken = [
                    [f.load("float", f.beyond(at, f.add(f.mul(row_step, i), f.mul(column_step, j)))) for j in range(3)] for i in range(3)
                ]
                wide = [[f.let(f"fpext float {v} to double") for v in line] for line in taken]
                halves = [sums([wide[i][j] for i in range(3)]) for j in range(3)]
                target = f.at(into, f.add(f.mul(c, width), r), "float")
                for p in range(m + 2):
                    for q, value in enumerate(sums([halves[j][p] for j in range(3)])):
                        rounded = f.let(f"fptrunc double {value} to float")
                        f.store("float", rounded, f.beyond(target, f.mul(plane, p * (m + 2) + q)))

            f.loop(0, width, one)

        f.loop(0, ic, channel)

    f.loop("%first", "%end", panel)
    return f.done()
