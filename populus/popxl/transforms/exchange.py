"""Contexts that make loads and stores one exchange: `merge_exchange`, `io_tile_exchange`.

A tile program has all streams of a run at its beginning and its end, and copies that follow each other in one step; so merging states
what is wanted, and what a graph lists, and moves nothing more.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from populus.popxl.context import get_current_graph, in_sequence, io_tiles
from populus.popxl.errors import Unsupported
from populus.popxl.graph import Graph
from populus.popxl.internals.kinds import CLASSES
from populus.popxl.internals.op import Op

EXCHANGES = ("HostLoad", "HostStore", "RemoteLoad", "RemoteLoadInplace", "RemoteStore")


@contextmanager
def merge_exchange() -> Generator[None]:
    """Makes loads and stores that are called inside, and of which none needs another, one `MultiExchange` of the graph's list of ops."""
    graph = get_current_graph()
    before = len(graph.recorded)
    yield
    _merge(graph, before)


@contextmanager
def io_tile_exchange(verify_overlap: bool = True) -> Generator[None]:
    """Makes `io_tiles`, `merge_exchange` and `in_sequence(False)` one context.

    Raises RuntimeError if more than one op is left, which would not overlap with what is computed next; not so without `verify_overlap`.
    """
    graph = get_current_graph()
    before = len(graph.recorded)
    with io_tiles(), merge_exchange(), in_sequence(False):
        yield
    left = [op.kind for op in graph.recorded[before:] if op.kind != "Init"]
    if verify_overlap and len(left) > 1:
        raise Unsupported(f"io_tile_exchange leaves {len(left)} ops, which would not overlap with what follows: {', '.join(left)}")


def _merge(graph: Graph, before: int) -> None:
    made = graph.recorded[before:]
    parts = [op for op in made if op.kind in EXCHANGES]
    if len(parts) < 2 or _dependent(made, parts):
        return
    whole = CLASSES["MultiExchange"](graph, {}, list(dict.fromkeys(t for op in parts for t in op.inputs)))
    whole.outputs = [t for op in parts for t in op.outputs]
    whole.body = [inner for op in parts for inner in op.body]
    graph.recorded[before:] = [*(op for op in made if op not in parts), whole]


def _dependent(made: Sequence[Op], parts: Sequence[Op]) -> bool:
    """Tells whether one of the exchanges needs what another one gives, itself or by way of other ops."""
    given = {t for op in parts for t in op.outputs}
    for op in made:
        if op not in parts and given & set(op.inputs):
            given |= set(op.outputs)
    return any(given & set(op.inputs) for op in parts)


def decompose_sum(graph: Graph) -> Graph:
    """Gives the graph. Its sums, and those of gradients, have two terms each already."""
    return graph
