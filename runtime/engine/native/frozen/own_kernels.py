"""Kernels that a frozen program needs beside its own where this process runs it: the walk, moves of arrays, the sums of a file."""

from __future__ import annotations

from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel
from populus.runtime.engine.native.run.step_loop import WALK, WORKER


def _move(into: bool) -> Kernel:
    """Makes the kernel that moves a caller's array `into` the program, or out: its arguments are slot, place and bytes."""

    def build(name: str, machine: Machine) -> str:
        to, source = ("%place", "%array") if into else ("%array", "%place")
        return f"""declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define i64 @{name}(ptr %args, i64 %first, i64 %end) {{
  %slot = load ptr, ptr %args
  %array = load ptr, ptr %slot
  %p1 = getelementptr i64, ptr %args, i64 1
  %place = load ptr, ptr %p1
  %p2 = getelementptr i64, ptr %args, i64 2
  %bytes = load i64, ptr %p2
  call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 %bytes, i1 false)
  ret i64 0
}}
"""

    return Kernel(f"move {'in' if into else 'out'}", build, vectors=True)


def _sums(name: str, machine: Machine) -> str:
    """Emits the sums of `form.checksum`: rows of 8 words are added to 8 sums, and these to 8 others, which the third argument has."""
    return f"""define i64 @{name}(ptr %args, i64 %first, i64 %end) {{
entry:
  %data = load ptr, ptr %args
  %p1 = getelementptr i64, ptr %args, i64 1
  %rows = load i64, ptr %p1
  %p2 = getelementptr i64, ptr %args, i64 2
  %out = load ptr, ptr %p2
  %out2 = getelementptr i64, ptr %out, i64 8
  %words0 = load <8 x i64>, ptr %out, align 8
  %sums0 = load <8 x i64>, ptr %out2, align 8
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %words = phi <8 x i64> [ %words0, %entry ], [ %words1, %body ]
  %sums = phi <8 x i64> [ %sums0, %entry ], [ %sums1, %body ]
  %more = icmp ult i64 %i, %rows
  br i1 %more, label %body, label %done
body:
  %at = mul i64 %i, 8
  %p = getelementptr i64, ptr %data, i64 %at
  %row = load <8 x i64>, ptr %p, align 8
  %words1 = add <8 x i64> %words, %row
  %sums1 = add <8 x i64> %sums, %words1
  %next = add i64 %i, 1
  br label %head
done:
  store <8 x i64> %words, ptr %out, align 8
  store <8 x i64> %sums, ptr %out2, align 8
  ret i64 0
}}
"""


# By the names under which `built/kept.py` asks for them.
OWN = {
    "walk": WALK,
    "worker": WORKER,
    "in": _move(into=True),
    "out": _move(into=False),
    "sums": Kernel("sums of a file", _sums, vectors=True),
}
