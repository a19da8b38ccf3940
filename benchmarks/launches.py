"""The native launches of a program, as a table of their own that a benchmark runs without the host's streams."""

from collections.abc import Callable

import populus
from populus.runtime.engine.arena import memory
from populus.runtime.engine.native.run.program import NativeProgram
from populus.runtime.engine.native.run.step_table import Table
from populus.runtime.engine.native.run.thread_pool import team


def launches(program: populus.Program) -> Callable[[], object]:
    """Makes the call that runs each launch of `program` once, in order, on one thread. The program has run before."""
    ran = program.session._program  # pyright: ignore[reportPrivateUsage]
    assert isinstance(ran, NativeProgram), ran
    assert not ran.fallbacks, ran.fallbacks
    table = Table(ran.library, ran.blocks())
    for number, launch in ran.table.launches.items():
        table.launch(launch, ran.table.names[number])
    table.finish()
    table.bind([1] * len(table), memory(ran.workspace.needed))
    return lambda: table.run(team(ran.library, 1))
