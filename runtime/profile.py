"""The cost model: predicted cycles, exchanged bytes and memory of a tile program, which is not run.

A compute set is a bulk-synchronous superstep. It takes

    T = [sync + exchange in] + sync + compute + [sync + exchange out]        [..] only if elements move
    exchange = setup + max over tiles of max(received, sent) bytes / rate    each element is sent once, to all its readers;
               tiles of one bus receive the same elements at twice the rate
    compute = max over tiles of the sum of its vertices' cycles, each with the cycles to start one
A mesh launches a program instead of a barrier. A block moves under another's computing, a copy under other steps: less `hidden`.

Exchange phases of neighbouring steps are not merged, because an element received in one may be sent in the next. A
repeat counts its body times its count. A while counts its bound, or a guess if it has none, which `guessed` marks. Of branches, the
most expensive counts. A call copies its arguments, weights too, into the function's parameters, and results back; the
copy is local to each tile if the layouts are equal. Host transfers take no tile cycles; `host_bytes` has their bytes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import IntegerAttr, LocationAttr, UnknownLoc
from xdsl.ir import Block, Operation, SSAValue

from populus.dialects.poplar import (
    CallOp,
    CollectiveOp,
    CopyOp,
    ExecuteOp,
    FamilyOp,
    Field,
    GraphOp,
    IfOp,
    OutsideOp,
    RepeatOp,
    SequenceOp,
    StreamInOp,
    StreamOutOp,
    SwitchOp,
    TaskOp,
    TensorType,
    WhileOp,
)
from populus.dialects.poplar.memory import storage_of, type_of, view_of
from populus.dialects.poplar.target import Target
from populus.dialects.support.call_places import places_of, renamed
from populus.dialects.support.diagnostics import PopulusError, place, where
from populus.dialects.support.element_types import bytes_of
from populus.dialects.support.output_files import replacing
from populus.runtime.bounds import NOTHING, Work, together, totals, work_of
from populus.runtime.codelets.cost import flops, vertex_cycles
from populus.runtime.cycles import Vertex, family
from populus.runtime.exchange import copy_exchange, shared_by_neighbours
from populus.runtime.exchange.boxes import vertex_tiles
from populus.runtime.gcl import Collective, cost
from populus.runtime.memory import PEAK, Usage, label_of, layout, moved_by, summary, whole
from populus.runtime.overlap import hidden_copies, waits

Cycles: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class ProfiledStep:
    """The predicted cost of one run of a step, and the number of times that it runs (`count`).

    `op`: the step itself. `place`: the model's op that it came from; in a function, that of the call.
    `location`: the same with all names. `call`: the function that it is in, or empty. `compute`, `exchange`, `sync`: cycles. `bytes`:
    received from other tiles. `bounds`: number of fields whose bytes are an upper bound. `vertices`: of all its
    families.
    """

    op: Operation = field(repr=False, compare=False)
    label: str
    place: str
    kind: str  # execute, copy, call, stream_in, stream_out, host_call, collective
    count: int = 1
    compute: int = 0
    exchange: int = 0
    sync: int = 0
    bytes: int = 0
    host_bytes: int = 0
    flops: int = 0
    vertices: int = 0
    codelets: tuple[str, ...] = ()
    bounds: int = 0
    hidden: int = 0  # of `exchange`: cycles under the computing, of a copy under that of the steps after it
    location: LocationAttr = field(default_factory=UnknownLoc, repr=False)
    call: str = ""
    waits: int = 0  # of a collective: cycles that no step before the first reader of its result can hide
    guessed: bool = False  # `count` rests on a guess: it is inside a while without a bound
    imbalance: int = 0  # of `compute`: what the fullest tile computes beyond the mean
    work: Work = NOTHING

    @property
    def cycles(self) -> int:
        """The cycles of one run."""
        return self.compute + self.exchange + self.sync - self.hidden


@dataclass(repr=False)
class Profile:
    """The predicted cost of a program. `summary` has the totals; `steps` has the steps in program order."""

    target: Target
    steps: list[ProfiledStep]
    poplar_ops: int
    compute_sets: int
    memory: Usage
    tiles_used: int
    peak_tile_bytes: int
    branches: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """(place, cycles) of each branch that `cycles` leaves out, because a more expensive one counts."""
    tile_cycles: Cycles = field(default_factory=lambda: np.zeros(0, np.int64), compare=False)
    """The cycles that each tile computes in compute sets: [tiles]."""
    tile_received: Cycles = field(default_factory=lambda: np.zeros(0, np.int64), compare=False)
    """The bytes that each tile receives from others for compute sets, and that its vertices' results send: [tiles]."""
    page: Callable[[], str] | None = field(default=None, compare=False)
    """Renders the page of the program that was profiled."""

    def __repr__(self) -> str:
        s = self.summary
        most = f"{s['peak_tile_bytes']:,} bytes on the fullest of {self.target.tiles:,} tiles"
        return f"<Profile on {self.target.name}: {s['cycles']:,} cycles, {most}, {len(self.steps):,} steps>"

    def summary_html(self) -> str:
        """Renders a bar of the cycles by phase, and the totals: for notebooks."""
        cycles, parts, x = max(int(self.summary["cycles"]), 1), list[str](), 0.0
        for name, colour in (("compute", "#2a8f6d"), ("exchange", "#e29a2d"), ("sync", "#98a0b3")):
            hidden = int(self.summary.get("hidden_cycles", 0)) if name == "exchange" else 0
            width = 400 * (int(self.summary[f"{name}_cycles"]) - hidden) / cycles
            title = f"<title>{name} {width / 400:.1%}</title>"
            parts.append(f'<rect x="{x:.1f}" width="{width:.1f}" height="14" fill="{colour}">{title}</rect>')
            x += width
        rows = "".join(f"<tr><td>{name}</td><td>{value:,}</td></tr>" for name, value in self.summary.items())
        label = "cycles: compute, exchange, sync"
        return f'<svg width="400" height="14" role="img" aria-label="{label}">{"".join(parts)}</svg><table>{rows}</table>'

    def _repr_html_(self) -> str:
        return self.summary_html()

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Writes the page of `populus profile` to a file.

        Raises PopulusError for a profile that was not made by a program, and if the file cannot be written.
        """
        if self.page is None:
            raise PopulusError("the profile is of a graph alone; program.profile() gives one that has a page")
        text = self.page()
        with replacing(path) as partial:
            partial.write_text(text, encoding="utf-8")

    @cached_property
    def summary(self) -> dict[str, int | float | bool]:
        """The totals by name.

        `collective_cycles`: those of `cycles` in which replicas meet, one after the other with all else; `collective_waits`:
        those that would remain if links worked while tiles compute. `guessed_cycles`: those in a while without a bound.
        `peak_tile_bytes`: bytes up to the highest address, if the graph is allocated. `liveness_bound`: the most
        bytes live at once on a tile, a lower bound for it. `utilisation`: the cycles that the operations of each type
        would take at the matrix units' peak for it, added up, relative to `cycles`. runtime/bounds.py has the bounds.
        """

        def total(name: str) -> int:
            return sum(getattr(step, name) * step.count for step in self.steps)

        cycles = total("cycles")
        used = totals(self.steps, cycles)
        return {
            "poplar_ops": self.poplar_ops,
            "compute_sets": self.compute_sets,
            "exchange_bytes": total("bytes"),
            "peak_tile_bytes": self.peak_tile_bytes,
            "cycles": cycles,
            "compute_cycles": total("compute"),
            "exchange_cycles": total("exchange"),
            "sync_cycles": total("sync"),
            **({"hidden_cycles": total("hidden")} if self.target.mesh is not None else {}),
            "flops": total("flops"),
            "utilisation": used.pop("utilisation"),
            "fits": self.peak_tile_bytes <= self.target.room,
            "tiles_used": self.tiles_used,
            "liveness_bound": self.memory.peak_bytes,
            "host_bytes": total("host_bytes"),
            "seconds": cycles / self.target.clock_hz,
            "bounded_fields": sum(step.bounds for step in self.steps),
            **used,
            **({"guessed_cycles": sum(s.cycles * s.count for s in self.steps if s.guessed)} if any(s.guessed for s in self.steps) else {}),
            **self._meetings(),
        }

    def _meetings(self) -> dict[str, int]:
        found = [step for step in self.steps if step.kind == "collective"]
        total = {name: sum(getattr(step, name) * step.count for step in found) for name in ("cycles", "waits")}
        return {f"collective_{name}": value for name, value in total.items()} if found else {}


def profile(graph: GraphOp) -> Profile:
    """Predicts the cost of a graph. Raises PopulusError for a variable without layout."""
    walk = ProfileWalk(graph.machine)
    walk.block(graph.body.block, 1)
    if any(step.kind == "collective" for step in walk.steps):
        walk.overlap()
    inside = [op for op in graph.walk() if op is not graph]
    compute_sets = sum(isinstance(op, ExecuteOp) for op in inside)
    used = int(np.count_nonzero(walk.used))
    alive, allocated = summary(graph), graph.attributes.get(PEAK)
    peak = allocated.value.data if isinstance(allocated, IntegerAttr) else alive.peak_bytes
    loads = np.zeros((2, graph.machine.tiles), np.int64)
    for step in walk.steps:
        if step.op in walk.loads:
            loads += step.count * np.stack(walk.loads[step.op])
    made = Profile(graph.machine, walk.steps, len(inside), compute_sets, alive, used, peak, walk.left_out)
    made.tile_cycles, made.tile_received = loads[0], loads[1]
    return made


@lru_cache(2048)
def _cost(vertex: Vertex) -> tuple[Cycles, int]:
    """Gives (cycles of each vertex, by the parts of its split axes; floating point operations of all vertices)."""
    return vertex_cycles(vertex), flops(vertex)


class ProfileWalk:
    """The walk over the control tree that collects the steps' costs."""

    def __init__(self, target: Target):
        self.target, self.family = target, family(target)
        self.steps: list[ProfiledStep] = []
        self.executes: dict[ExecuteOp, ProfiledStep] = {}  # costs, computed once for all calls of a function
        self.used: NDArray[np.bool_] = np.zeros(target.tiles, bool)
        self.loads: dict[Operation, tuple[Cycles, Cycles]] = {}  # of compute sets: cycles and received bytes of each tile
        self.left_out: list[tuple[str, int]] = []
        self.names: dict[str, str] = {}  # the names of the call that is costed, in place of its function's
        self.function = ""
        self.guessed = False  # inside a while without a bound
        self.spans: list[tuple[Operation, int, int]] = []  # the steps of each op of the program itself

    def overlap(self) -> None:
        """States what collectives of the program itself wait for. Those in functions and loops wait for all of their cycles."""
        cycles = [(op, sum(s.cycles * s.count for s in self.steps[begin:end])) for op, begin, end in self.spans]
        found = waits(cycles)
        self.steps = [
            replace(s, waits=found.get(s.op, s.cycles) if isinstance(s.op, CollectiveOp) else 0) if s.kind == "collective" else s
            for s in self.steps
        ]

    def add(self, step: ProfiledStep) -> None:
        """Adds a step under the names of the call that it is in."""
        location = renamed(step.op.location, self.names)
        named = place(location) if self.names else None
        own = step.place if named is None else named
        self.steps.append(replace(step, location=location, place=own, call=self.function, guessed=self.guessed))

    def call(self, op: CallOp, count: int) -> None:
        """Adds the steps of a call: the copies of its arguments, and the function's steps under the call's names."""
        arriving, leaving = self.arguments(op, count)
        for step in arriving:
            self.add(step)
        outer = self.names, self.function
        self.names = {inside: self.names.get(own, own) for inside, own in places_of(op).items()}
        self.function = op.callee.data
        self.block(op.target().body.block, count)
        self.names, self.function = outer
        for step in leaving:
            self.add(step)

    def block(self, block: Block, count: int) -> None:
        """Adds the steps of a block that runs `count` times."""
        first = len(self.steps)
        for op in block.ops:
            begin = len(self.steps)
            match op:
                case ExecuteOp():
                    if op not in self.executes:
                        self.executes[op] = self.execute(op, 1)
                    self.add(replace(self.executes[op], count=count))
                case CopyOp():
                    self.add(self.copy(op, count))
                case StreamInOp() | StreamOutOp() | OutsideOp():
                    self.add(self.host(op, count, op.operands))
                case SequenceOp() | TaskOp():
                    self.block(op.body.block, count)
                case RepeatOp():
                    self.block(op.body.block, count * op.count.value.data)
                case CallOp():
                    self.call(op, count)
                case WhileOp():
                    outer, self.guessed = self.guessed, self.guessed or op.turns is None
                    for region in (op.before, op.body):
                        self.block(region.block, count * op.counted)
                    self.guessed = outer
                case IfOp():
                    self.branches(op, [op.then.block, op.otherwise.block], count)
                case SwitchOp():
                    self.branches(op, [region.block for region in op.programs], count)
                case _:
                    pass  # definitions of variables, views and functions cost nothing
            if isinstance(block.parent_op(), GraphOp | SequenceOp) and not isinstance(op, SequenceOp) and not self.function:
                self.spans.append((op, begin, len(self.steps)))
        if (mesh := self.target.mesh) is not None and mesh.buffers > 1:
            found = hidden_copies([(s.op, s.exchange, s.compute - s.hidden) for s in self.steps[first:] if s.op.parent is block])
            self.steps[first:] = [replace(s, hidden=found.get(s.op, s.hidden)) for s in self.steps[first:]]

    def branches(self, op: Operation, blocks: Iterable[Block], count: int) -> None:
        """Adds the steps of the most expensive branch."""
        before, branches = self.steps, list[list[ProfiledStep]]()
        for block in blocks:
            self.steps = []
            self.block(block, count)
            branches.append(self.steps)
        costs = [sum(step.cycles * step.count for step in steps) for steps in branches]
        largest = costs.index(max(costs))
        self.steps = before + branches[largest]
        self.left_out += [(where(op), cost) for i, cost in enumerate(costs) if i != largest]

    def execute(self, op: ExecuteOp, count: int) -> ProfiledStep:
        """Costs a compute set: exchange in, compute, exchange out."""
        target, tiles, families = self.target, self.target.tiles, op.families()
        busy, received_in, arrives_in, sent_in, received_out, sent_out = (np.zeros(tiles, np.int64) for _ in range(6))
        operations = bounds = blocks = 0
        several = False  # some operand goes to several tiles
        works: list[Work] = []
        for made in families:
            vertex = Vertex.of(made, target)
            cycles, own = _cost(vertex)
            operations += own
            works.append(work_of(vertex))
            blocks = max(blocks, vertex.blocks)
            busy[vertex_tiles(made.space, tiles)] += cycles.ravel() + self.family.start(made.declaration.is_product, target)
            for access, value in made.connections():
                moved = moved_by(made, access, value, tiles)
                size = storage_of(value).type.element_bytes
                bounds += not moved.exact
                if access.kind != "out":
                    received_in += whole(moved.away * size)
                    several |= shared_by_neighbours(made.space, access.access) > 1
                    arrives_in += whole(moved.away * size) // self.neighbours(made, access)
                    sent_in += whole(moved.home * size)
                if access.kind != "in":
                    received_out += whole(moved.home * size)
                    sent_out += whole(moved.away * size)
        self.used |= busy > 0
        self.loads[op] = busy, received_in + received_out
        phases = [self.transfer(arrives_in, sent_in, several), self.transfer(received_out, sent_out)]
        compute = int(busy.max())
        return ProfiledStep(
            op,
            op.label.data,
            where(op),
            "execute",
            count,
            compute=compute,
            imbalance=compute - round(float(busy.mean())),
            work=together(works, int(arrives_in.sum() + received_out.sum()) / (tiles * target.exchange_bytes)),
            exchange=sum(phases),
            hidden=int(self.family.hidden(compute, sum(phases), blocks, target)),
            sync=self.family.launch(sum(1 for phase in phases if phase), target),
            bytes=int(received_in.sum() + received_out.sum()),
            flops=operations,
            vertices=sum(made.space.vertices for made in families),
            codelets=tuple(dict.fromkeys(made.codelet.data for made in families)),
            bounds=bounds,
        )

    def neighbours(self, family: FamilyOp, field: Field) -> int:
        """Counts the tiles of one bus that receive a field's elements together, in the time of one tile.

        Source: poplin's exchange estimates.
        """
        shared, bus = shared_by_neighbours(family.space, field.access), self.target.bus_tiles
        aligned = (shared % bus == 0 and family.space.start % bus == 0) or shared == family.space.vertices
        return bus if shared > 1 and aligned else 1

    def transfer(self, received: Cycles, sent: Cycles, several: bool = False) -> int:
        """Gives the cycles of an exchange phase; 0 if no element moves."""
        return self.family.transfer(int(max(received.max(), sent.max())), self.target, several)

    def copy(self, op: CopyOp, count: int) -> ProfiledStep:
        """Costs a copy: one exchange, and a local copy of the elements that stay on their tile, for which all tiles wait."""
        return self.copies(storage_of(op.dst).label.data, op, "copy", count, [(op.src, op.dst)])

    def arguments(self, op: CallOp, count: int) -> tuple[list[ProfiledStep], list[ProfiledStep]]:
        """Gives the steps that copy a call's arguments in and its results back, each in one exchange; none without
        arguments.
        """
        if not op.arguments:
            return [], []
        arriving = [(value, parameter.result) for parameter, value in op.bindings() if parameter.read]
        leaving = [(parameter.result, value) for parameter, value in op.bindings() if parameter.written]
        name = op.callee.data
        return [self.copies(f"{name} (in)", op, "call", count, arriving)], [self.copies(f"{name} (out)", op, "call", count, leaving)]

    def copies(self, label: str, op: Operation, kind: str, count: int, pairs: Sequence[tuple[SSAValue, SSAValue]]) -> ProfiledStep:
        """Costs copies that share one exchange."""
        tiles = self.target.tiles
        received, sent = np.zeros((2, tiles), np.int64)
        local = bytes = bounds = read = written = 0
        for src, dst in pairs:
            source, to, view = storage_of(src), storage_of(dst), view_of(dst)
            size = source.type.element_bytes
            if source.outside is not None or to.outside is not None:
                n = math.ceil(math.prod(view.shape) * size)
                read, written = read + n * (source.outside is not None), written + n * (to.outside is not None)
                continue
            moved = copy_exchange(view_of(src), layout(source), view, layout(to), tiles)
            received, sent = received + whole(moved.away * size), sent + whole(moved.home * size)
            share = math.ceil(math.prod(view.shape) * size * layout(to).copies / min(layout(to).cells, tiles))
            local += self.family.local_copy(share, self.target)
            bytes += int(whole(moved.away * size).sum())
            bounds += not moved.exact
        outside, streamed = read + written, self.family.outside(read, self.target) + self.family.outside(written, self.target, True)
        exchange = self.transfer(received, sent) + streamed  # all tiles share the bandwidth to streaming memory
        return ProfiledStep(
            op,
            label,
            where(op),
            kind,
            count,
            compute=local,
            exchange=exchange,
            sync=self.family.launch(bool(exchange), self.target) if pairs else 0,
            bytes=bytes,
            work=Work(outside=outside / self.target.outside_bytes) if outside else NOTHING,
            host_bytes=outside,
            bounds=bounds,
        )

    def host(self, op: Operation, count: int, views: Iterable[SSAValue]) -> ProfiledStep:
        """Costs a transfer from or to the host, for which the tiles wait at a barrier."""
        bytes = sum(bytes_of(v.type.shape, v.type.element) for v in views if isinstance(v.type, TensorType))
        kind = op.name.removeprefix("poplar.")
        if isinstance(op, CollectiveOp):
            return self.collective(op, count)
        return ProfiledStep(op, label_of(op), where(op), kind, count, sync=self.target.sync_cycles, host_bytes=bytes)

    def collective(self, op: CollectiveOp, count: int) -> ProfiledStep:
        """Costs a collective of replicas, each a chip of a ring. Raises PopulusError for a group of more than the machine's chips."""
        given = [bytes_of(type_of(v).shape, type_of(v).element) for v in op.views[: op.inputs.value.data]]
        machine = self.target
        size = Collective.of(op).group.size
        if 1 < machine.chips < size:
            raise PopulusError(f"{where(op)}: {size} replicas meet, and {machine.name} has {machine.chips} chips")
        cycles = cost(op.function.data, sum(given), size, machine.link_bytes, machine.link_cycles)
        return ProfiledStep(op, label_of(op), where(op), "collective", count, exchange=cycles, sync=machine.sync_cycles)
