"""Compiled loop that walks a program, a table of steps with jumps, and the worker threads that share its launches.

This is the only scheduler: a process, a library in C and a module of WebAssembly run this code.

The words of a step are in `built/steps.py`.

One thread walks. A launch of some microseconds is a job that it publishes: the kernel, its arguments, and its units in chunks, of which
`chunks` says the number for as many threads as share the state. The simulation (`sharing.py`) asks the same function.
The walker takes the first chunk that is left, and workers the last, by one atomic exchange, which fails if the job has
changed. So of two threads each has the same chunks in each turn of a loop, and what they read stays in its own caches.
The walker continues when all chunks are done. So a worker that is late, absent or suspended delays others only while it holds a chunk.
Waiting threads spin with pauses, and yield after some turns; a worker of WebAssembly sleeps until the next job.
The result of a unit does not depend on the thread that computes it, so results do not depend on threads.
"""

from __future__ import annotations

from populus.runtime.built.steps import (
    ARGS,
    CHUNKS,
    DONE,
    FAILED,
    KERNEL,
    PART,
    PARTS,
    SHARED,
    THREADS,
    TICKET,
    UNITS,
    WORDS,
    YIELD,
    Step,
    Why,
)
from populus.runtime.engine.native.codegen.cpu import ATOMICS, Machine
from populus.runtime.engine.native.codegen.jit import Kernel
from populus.runtime.engine.native.codegen.llvm_builder import Function

TAKEN = 10  # bits of NEXT for each of the two counts: a launch has at most 1,000 chunks
OPEN = 1 << 2 * TAKEN  # the unit of NEXT's job number; below it all bits are set while a job changes

SPINS = 3000  # pauses before the first yield, about 50 us
CHUNK = 64  # large shares begin at multiples of this many units, so that threads seldom write to the same cache line

LEFT = f"""\
  %p1 = getelementptr i64, ptr %state, i64 {CHUNKS}
  %chunks = load atomic i64, ptr %p1 monotonic, align 8
  %front = and i64 %next, {(1 << TAKEN) - 1}
  %counts = lshr i64 %next, {TAKEN}
  %back = and i64 %counts, {(1 << TAKEN) - 1}
  %taken = add i64 %front, %back
  %some = icmp ult i64 %taken, %chunks
"""
"""Tells by %next, the word of chunks that were taken from the front and from the back, whether there are %some left."""


def _pause(machine: Machine) -> tuple[str, str, str]:
    """Returns the call and the declaration of the CPU's pause instruction, for waiting threads, and the features of code with it."""
    architecture = machine.triple.split("-")[0]
    if architecture in ("x86_64", "i386", "i686", "AMD64"):
        return "call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()", ""
    if architecture in ("aarch64", "arm64"):
        return "call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)", ""
    if architecture == "riscv64":  # a hint, which CPUs without the feature pass over: the object does not ask for it
        features = f'noinline "target-features"="{machine.features},+zihintpause" '
        return "call void @llvm.riscv.pause()", "declare void @llvm.riscv.pause()", features
    return "fence seq_cst", "", ""


# long: each function below is one piece of LLVM text, which reads best whole


def _common(name: str, machine: Machine) -> str:
    """Emits the functions that the walker and the workers share: `rest`, `bound` and `take`."""
    call, declaration, features = _pause(machine)
    return f"""{declaration}
define internal void @{name}_rest(ptr %state, i64 %turn) {features}{{
  %early = icmp ult i64 %turn, {SPINS}
  br i1 %early, label %pause, label %late
late:
  %p = getelementptr i64, ptr %state, i64 {YIELD}
  %yield = load ptr, ptr %p
  %none = icmp eq ptr %yield, null
  br i1 %none, label %pause, label %give
give:
  %ignored = call i32 %yield()
  ret void
pause:
  {call}
  ret void
}}

define internal i64 @{name}_bound(i64 %units, i64 %part, i64 %n) {{
  %product = mul i64 %units, %part
  %even = udiv i64 %product, %n
  %many = icmp uge i64 %units, {64 * CHUNK}
  %rounded = and i64 %even, {-CHUNK}
  %chosen = select i1 %many, i64 %rounded, i64 %even
  %last = icmp eq i64 %part, %n
  %bound = select i1 %last, i64 %units, i64 %chosen
  ret i64 %bound
}}

; Takes a chunk and runs it: 0; 1: there is none to take, 2: someone else was faster. %late: the last that is left, not the first.
define internal i64 @{name}_take(ptr %state, i1 %late) {{
  %next = load atomic i64, ptr %state acquire, align 8
{LEFT}  br i1 %some, label %read, label %none
none:
  ret i64 1
read:
  %p2 = getelementptr i64, ptr %state, i64 {KERNEL}
  %address = load atomic i64, ptr %p2 monotonic, align 8
  %p3 = getelementptr i64, ptr %state, i64 {ARGS}
  %words = load atomic i64, ptr %p3 monotonic, align 8
  %p4 = getelementptr i64, ptr %state, i64 {UNITS}
  %units = load atomic i64, ptr %p4 monotonic, align 8
  %one = select i1 %late, i64 {1 << TAKEN}, i64 1
  %after = add i64 %next, %one
  ; What was read belongs to the job of %next if this succeeds: a job's number changes before its words do.
  %pair = cmpxchg ptr %state, i64 %next, i64 %after acq_rel acquire
  %mine = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %mine, label %run, label %lost
lost:
  ret i64 2
run:
  %behind = add i64 %back, 1
  %last = sub i64 %chunks, %behind
  %chunk = select i1 %late, i64 %last, i64 %front
  %low = call i64 @{name}_bound(i64 %units, i64 %chunk, i64 %chunks)
  %following = add i64 %chunk, 1
  %high = call i64 @{name}_bound(i64 %units, i64 %following, i64 %chunks)
  %kernel = inttoptr i64 %address to ptr
  %args = inttoptr i64 %words to ptr
  %status = call i64 %kernel(ptr %args, i64 %low, i64 %high)
  %bad = icmp ne i64 %status, 0
  br i1 %bad, label %fail, label %finish
fail:
  %p5 = getelementptr i64, ptr %state, i64 {FAILED}
  store atomic i64 1, ptr %p5 monotonic, align 8
  br label %finish
finish:
  %p6 = getelementptr i64, ptr %state, i64 {DONE}
  %count = atomicrmw add ptr %p6, i64 1 acq_rel
  ret i64 0
}}
"""


def _sleep(name: str) -> str:
    """Emits `sleep`, in which a worker of WebAssembly rests: after some turns until the job has another number, or chunks to take."""
    return f"""
declare i32 @llvm.wasm.memory.atomic.wait64(ptr, i64, i64)
define internal void @{name}_sleep(ptr %state, i64 %turn) {{
  %early = icmp ult i64 %turn, {SPINS}
  br i1 %early, label %pause, label %look
pause:
  fence seq_cst
  ret void
look:
  %next = load atomic i64, ptr %state seq_cst, align 8
{LEFT}  br i1 %some, label %out, label %wait
wait:
  %ignored = call i32 @llvm.wasm.memory.atomic.wait64(ptr %state, i64 %next, i64 -1)
  br label %out
out:
  ret void
}}
"""


def _worker(name: str, machine: Machine) -> str:
    """Emits `void worker(state, ticket)`, which takes chunks until the walk with this ticket is over."""
    sleeps = machine.has(ATOMICS)
    return f"""{_common(name, machine)}{_sleep(name) if sleeps else ""}
define void @{name}(ptr %state, i64 %ticket) {{
entry:
  %p = getelementptr i64, ptr %state, i64 {TICKET}
  br label %look
look:
  %turn = phi i64 [ 0, %entry ], [ 0, %look2 ], [ %later, %wait ]
  %open = load atomic i64, ptr %p acquire, align 8
  %mine = icmp eq i64 %open, %ticket
  br i1 %mine, label %try, label %out
try:
  %took = call i64 @{name}_take(ptr %state, i1 true)
  %nothing = icmp eq i64 %took, 1
  br i1 %nothing, label %wait, label %look2
look2:
  br label %look
wait:
  call void @{name}_{"sleep" if sleeps else "rest"}(ptr %state, i64 %turn)
  %later = add i64 %turn, 1
  br label %look
out:
  ret void
}}
"""


def _walk(name: str, machine: Machine) -> str:
    """Emits `i64 walk(table, state, first, budget)`, which walks from step `first` on.

    It returns (step << 2) + the reason. If `state` is null, no threads share launches. After about `budget` ns of
    launches it returns PAUSED, so that Python handles signals.
    """
    words = "\n".join(f"  %q{i} = getelementptr i64, ptr %p, i64 {i}\n  %{w} = load i64, ptr %q{i}" for i, w in enumerate("abcd", 1))
    before = {"entry": "start", "done": "pc1", "jump": "a", "set": "pc1", "loop": "looped", "unless": "decided", "case": "chosen",
              "call": "b", "return": "back"}  # fmt: skip
    left = {"entry": "budget", "done": "spent"}
    phis = "\n".join(
        f"  %{name} = phi i64 " + ", ".join(f"[ %{value}, %{block} ]" for block, value in values.items())
        for name, values in (("pc", before), ("left", {block: left.get(block, "left") for block in before}))
    )
    notify, woken = "@llvm.wasm.memory.atomic.notify(ptr", machine.has(ATOMICS)
    declared, wake = (f"declare i32 {notify}, i32)", f"%ignored = call i32 {notify} %state, i32 -1)") if woken else ("", "")
    cases = "\n".join(f"    i64 {step.value}, label %{step.name.lower()}" for step in Step if step is not Step.STOP)
    return f"""{_common(name, machine)}{_parts(name)}{declared}
define i64 @{name}(ptr %table, ptr %state, i64 %start, i64 %budget) {{
entry:
  %alone = icmp eq ptr %state, null
  br label %head
head:
{phis}
  %at = mul i64 %pc, {WORDS}
  %p = getelementptr i64, ptr %table, i64 %at
  %op = load i64, ptr %p
{words}
  %pa = inttoptr i64 %a to ptr
  %pc1 = add i64 %pc, 1
  switch i64 %op, label %stop [
{cases}
  ]
jump:
  br label %head
set:
  store i64 %b, ptr %pa
  br label %head
loop:
  %turns = load i64, ptr %pa
  %fewer = sub i64 %turns, 1
  store i64 %fewer, ptr %pa
  %again = icmp sgt i64 %fewer, 0
  %looped = select i1 %again, i64 %b, i64 %pc1
  br label %head
unless:
  %flag = load i8, ptr %pa
  %false = icmp eq i8 %flag, 0
  %decided = select i1 %false, i64 %b, i64 %pc1
  br label %head
case:
  %narrow = load i32, ptr %pa
  %wanted = trunc i64 %b to i32
  %equal = icmp eq i32 %narrow, %wanted
  %chosen = select i1 %equal, i64 %c, i64 %pc1
  br label %head
call:
  store i64 %pc1, ptr %pa
  br label %head
return:
  %back = load i64, ptr %pa
  br label %head
launch:
  %args = inttoptr i64 %b to ptr
  %spent = sub i64 %left, %d
  br i1 %alone, label %all, label %count
count:
  %p7 = getelementptr i64, ptr %state, i64 {THREADS}
  %threads = load i64, ptr %p7
  %e = call i64 @{name}_chunks(i64 %c, i64 %d, i64 %threads)
  %small = icmp ule i64 %e, 1
  br i1 %small, label %all, label %share
all:
  %status0 = call i64 %pa(ptr %args, i64 0, i64 %c)
  br label %ran
share:
  %old = load atomic i64, ptr %state monotonic, align 8
  %number = and i64 %old, {-OPEN}
  %new = add i64 %number, {OPEN}
  %closed = or i64 %new, {OPEN - 1}
  store atomic i64 %closed, ptr %state seq_cst, align 8
  fence seq_cst
  %p1 = getelementptr i64, ptr %state, i64 {KERNEL}
  store atomic i64 %a, ptr %p1 monotonic, align 8
  %p2 = getelementptr i64, ptr %state, i64 {ARGS}
  store atomic i64 %b, ptr %p2 monotonic, align 8
  %p3 = getelementptr i64, ptr %state, i64 {UNITS}
  store atomic i64 %c, ptr %p3 monotonic, align 8
  %p4 = getelementptr i64, ptr %state, i64 {CHUNKS}
  store atomic i64 %e, ptr %p4 monotonic, align 8
  %p5 = getelementptr i64, ptr %state, i64 {DONE}
  store atomic i64 0, ptr %p5 monotonic, align 8
  %p6 = getelementptr i64, ptr %state, i64 {FAILED}
  store atomic i64 0, ptr %p6 monotonic, align 8
  store atomic i64 %new, ptr %state release, align 8
  {wake}
  br label %mine
mine:
  %took = call i64 @{name}_take(ptr %state, i1 false)
  %nothing = icmp eq i64 %took, 1
  br i1 %nothing, label %gather, label %mine
gather:
  %turn = phi i64 [ 0, %mine ], [ %later, %wait ]
  %finished = load atomic i64, ptr %p5 acquire, align 8
  %complete = icmp sge i64 %finished, %e
  br i1 %complete, label %met, label %wait
wait:
  call void @{name}_rest(ptr %state, i64 %turn)
  %later = add i64 %turn, 1
  br label %gather
met:
  %status2 = load atomic i64, ptr %p6 acquire, align 8
  br label %ran
ran:
  %status = phi i64 [ %status0, %all ], [ %status2, %met ]
  %failed = icmp ne i64 %status, 0
  br i1 %failed, label %refused, label %time
time:
  %late = icmp slt i64 %spent, 0
  br i1 %late, label %paused, label %done
done:
  br label %head
refused:
  %r0 = shl i64 %pc, 2
  %r1 = or i64 %r0, {Why.REFUSED.value}
  ret i64 %r1
paused:
  %r2 = shl i64 %pc1, 2
  %r3 = or i64 %r2, {Why.PAUSED.value}
  ret i64 %r3
stop:
  %r4 = shl i64 %pc, 2
  ret i64 %r4
}}
"""


def _parts(name: str) -> str:
    """Emits `chunks`: into how many a launch is cut. Each of the threads gets as many: they all take about as long."""
    f = Function(f"{name}_chunks", "i64 %units, i64 %work, i64 %threads", "internal i64")

    def end(of: str, a: str, b: str) -> str:
        return f.call("i64", f"llvm.{of}.i64", ("i64", a), ("i64", b))

    long_enough = end("umax", f.let(f"udiv i64 %work, {PART}"), "%threads")
    most = end("umin", end("umin", long_enough, f.mul("%threads", PARTS)), "%units")
    over = f.let(f"urem i64 {most}, %threads")
    less = f.let(f"select i1 {f.let(f'icmp ult i64 {most}, %units')}, i64 {over}, i64 0")
    even = f.sub(most, less)
    worth = f.let(f"icmp uge i64 %work, {SHARED}")
    return f.done(f"i64 {f.let(f'select i1 {worth}, i64 {even}, i64 1')}")


def _counted(name: str, machine: Machine) -> str:
    """Emits a kernel whose units are launches. Its arguments are the number of threads, the steps, and memory for the numbers of chunks."""
    f = Function(name)
    threads, steps, into = f.args("ipp")

    def one(i: str) -> None:
        step = f.at(steps, f.mul(i, WORDS), "i64")
        units, work = (f.load("i64", f.at(step, word, "i64")) for word in (3, 4))
        f.store("i64", f.let(f"call i64 @{name}_chunks(i64 {units}, i64 {work}, i64 {threads})"), f.at(into, i, "i64"))

    f.loop("%first", "%end", one)
    return _parts(name) + f.done()


WALK = Kernel("walk", _walk)
COUNTED = Kernel("counted chunks", _counted)
WORKER = Kernel("worker", _worker)
