"""Steps of a program as words, and the words of a job that threads share.

A step is eight words; the first is its kind:

    LAUNCH kernel args units work            runs a kernel; `work`: estimated ns
    STOP                                     returns to Python, which runs a step without native code, or ends
    JUMP to · SET place value · LOOP place to (counts down, jumps while more than 0)
    UNLESS place to (a byte that is 0) · CASE place value to (an i32) · CALL place to · RETURN place (where the call stored its number)
    IN, OUT number place elements from to    in a program for a file: moves a caller's array, from one element type to the other
"""

from __future__ import annotations

from enum import IntEnum

WORDS = 8  # per step
IN, OUT = 16, 17  # kinds of steps beside those of a walk


class Step(IntEnum):
    """Kind of a step."""

    LAUNCH, STOP, JUMP, SET, LOOP, UNLESS, CASE, CALL, RETURN = range(9)


AIMS = {Step.JUMP: 1, Step.LOOP: 2, Step.UNLESS: 2, Step.CASE: 3, Step.CALL: 2}  # the word of a step that is the number of another


class Why(IntEnum):
    """Reason why a walk returned: the lowest two bits of its result, below the step's number."""

    STOPPED, REFUSED, PAUSED = range(3)


# Indices of words in the state that threads share, each group on its own cache line.
NEXT, KERNEL, ARGS, UNITS, CHUNKS = range(5)  # the job; NEXT: its number, and how many chunks workers and the walker have taken
DONE, FAILED = 16, 17
TICKET = 32  # ticket of the walk that workers may join; 0: none
YIELD, THREADS = 48, 49  # address of the system's yield, 0: none; number of threads that share launches, the walker too
STATE_WORDS = 64

SHARED = 6_000  # ns of work from which a launch is shared: threads synchronise in some hundreds of ns
LEAST = 50  # ns of any launch
PART, PARTS = 4_000, 4  # minimum ns of a chunk if a thread has more than one; maximum chunks per thread
WOKEN = 60_000  # ns of shared launches from which threads are woken
BUDGET = 50_000_000  # ns of launches after which a walk checks for interrupts
