"""Places in scratch memory, which the chunks of a launch take in turn: there are as many as threads, not as chunks.

A word has a bit for each place. A chunk takes the first that is free, and leaves it at its end. A thread runs one chunk at a time, so
there is a place for each thread. Of more threads than places, some wait for a chunk to end.
"""

from __future__ import annotations

import numpy as np

from populus.runtime.codelets.task import Array, Task

MOST = 63  # bits of a positive word


def places_of(task: Task, chunks: int) -> tuple[Array, int]:
    """Gives the word of a program's places, and how many a launch of so many chunks needs; one for each chunk if there is no word."""
    busy = task.workspace.busy
    return (np.zeros(0, np.int64), chunks) if busy is None else (busy, min(chunks, task.workspace.places, MOST))


def place_functions(name: str) -> str:
    """Emits `i64 NAME_take(busy, places, chunks, chunk)`, which gives a place, and `void NAME_leave(busy, places, chunks, place)`."""
    return f"""declare i64 @llvm.cttz.i64(i64, i1)
define internal i64 @{name}_take(ptr %busy, i64 %places, i64 %chunks, i64 %chunk) {{
  %enough = icmp sge i64 %places, %chunks
  br i1 %enough, label %own, label %begin
own:
  ret i64 %chunk
begin:
  %above = shl i64 1, %places
  %all = sub i64 %above, 1
  br label %look
look:
  %old = load atomic i64, ptr %busy monotonic, align 8
  %taken = and i64 %old, %all
  %free = xor i64 %taken, %all
  %none = icmp eq i64 %free, 0
  br i1 %none, label %look, label %claim
claim:
  %place = call i64 @llvm.cttz.i64(i64 %free, i1 true)
  %bit = shl i64 1, %place
  %new = or i64 %old, %bit
  %pair = cmpxchg ptr %busy, i64 %old, i64 %new acquire monotonic
  %mine = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %mine, label %found, label %look
found:
  ret i64 %place
}}

define internal void @{name}_leave(ptr %busy, i64 %places, i64 %chunks, i64 %place) {{
  %enough = icmp sge i64 %places, %chunks
  br i1 %enough, label %out, label %give
give:
  %bit = shl i64 1, %place
  %others = xor i64 %bit, -1
  %ignored = atomicrmw and ptr %busy, i64 %others release
  br label %out
out:
  ret void
}}
"""
