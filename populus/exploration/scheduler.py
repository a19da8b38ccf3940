"""Points weighed by the workers of a Dask scheduler, on this machine or on several.

The scheduler and its workers are the user's own: what is sent to them is pickled by Dask, and so is what they send back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from typing import Any, TypeAlias

from xdsl.dialects.builtin import ModuleOp

from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.package_hash import package_hash
from populus.exploration.measure import Bench

Point: TypeAlias = "dict[str, Any]"

WAIT = 10  # seconds for the scheduler to answer
_ONE = Lock()  # of a worker's process: its threads take turns, as they share the levels above the tiles and the plans that are kept


class Cluster:
    """The workers of a scheduler. Each keeps the levels above the tiles and the plans of the points that it weighed."""

    def __init__(self, address: str, bench: Bench, weigh: Callable[[Bench, int], Point]):
        """Connects to a scheduler.

        Raises PopulusError if Dask is not installed, if no scheduler or no worker is there, and for a model that is a module in memory.
        """
        if find_spec("distributed") is None:
            raise PopulusError(f"scheduler {address}: Dask is not installed; pip install distributed, or leave the scheduler out")
        if not re.fullmatch(r"(?:[a-z]+://)?[^\s:/]+:[0-9]{1,5}", address):
            raise PopulusError(f"scheduler {address}: expected HOST:PORT, such as tcp://127.0.0.1:8786")
        if module := next((m.name for m in bench.models if isinstance(m.model, ModuleOp)), None):
            raise PopulusError(f"scheduler {address}: {module} is a module in memory, which is not sent; give a file that all workers have")
        distributed: Any = import_module("distributed")
        self._weigh, self._completed = weigh, distributed.as_completed
        try:
            self._client: Any = distributed.Client(address, timeout=WAIT, set_as_default=False)
        except (OSError, ValueError) as error:
            said = " ".join(str(error).split()) or type(error).__name__
            raise PopulusError(f"scheduler {address}: {said}; start one with `dask scheduler`, and workers with `dask worker`") from error
        if not self._client.scheduler_info()["workers"]:
            self.close()
            raise PopulusError(f"scheduler {address}: it has no workers; start some with `dask worker {address}`")
        bare = replace(bench, upper={})
        self._bench = self._client.scatter(bare, broadcast=True, hash=False)

    def points(self, groups: Sequence[Sequence[int]]) -> Iterator[Point]:
        """Yields points as they are finished. Raises PopulusError for a worker with other sources, and for one that was lost."""
        futures = [self._client.submit(_group, package_hash(), self._weigh, self._bench, list(group), pure=False) for group in groups]
        try:
            for future in self._completed(futures, loop=self._client.loop):
                try:
                    yield from future.result()
                except PopulusError:
                    raise
                except Exception as error:
                    raise PopulusError(
                        f"scheduler: {type(error).__name__}: {' '.join(str(error).split())}; a log has what is done"
                    ) from error
        finally:
            self._client.cancel(futures)

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()


def _group(sources: str, weigh: Callable[[Bench, int], Point], bench: Bench, numbers: Sequence[int]) -> list[Point]:
    """Weighs points on a worker. Raises PopulusError if its sources are others than those of the command."""
    if package_hash() != sources:
        raise PopulusError("a worker has other sources of populus than this process; install the same version on all")
    with _ONE:
        return [weigh(bench, number) for number in numbers]
