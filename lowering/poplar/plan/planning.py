"""The choice of each contraction's plan: stated by the user, or the cheapest beside what others take of the memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from xdsl.ir import Attribute, SSAValue

from populus.dialects.poplar import ConstOp, GraphOp, StorageOp
from populus.dialects.poplar.memory import root_of
from populus.dialects.poplin import ConvolutionOp, MatMulOp
from populus.dialects.support.element_types import element_type_of
from populus.dialects.support.walk import ops_of
from populus.lowering.poplar.plan.alternatives import Problem
from populus.lowering.poplar.plan.contraction import MEMORY_SHARE, Contraction, Near, Option, Plan, options, shape_of_contraction
from populus.lowering.poplar.plan.residency import Residency, Room
from populus.lowering.poplar.plan.stated import RECORD, Names, Stated, option_of, stated_of
from populus.lowering.poplar.plan.weights import Arguments, constants_of, offered, steps_of
from populus.lowering.poplar.plan.winograd import Tiles, products_in_tiles, whole_sums
from populus.lowering.poplar.tile_builder import TileBuilder

TILED = "tiled is for convolutions of floats with 3x3 elements and stride 1 by a constant that nothing else reads"


@dataclass(frozen=True)
class Planning:
    """Planner options of the pass, the memory for resident weights, the arguments of each parameter, and the stated plans."""

    residency: Residency
    agree: bool
    traffic: float
    partials: str
    winograd: int
    arguments: Arguments
    tiles: Tiles | None
    names: Names
    share: float = MEMORY_SHARE
    shared: dict[SSAValue, Plan] = field(default_factory=dict[SSAValue, Plan])  # of resident weights that several serial steps read

    def is_constant(self, tensor: SSAValue) -> bool:
        """Tells whether an operand is a constant in all calls of its function."""
        root = root_of(tensor).owner
        given = self.arguments.get(root, ()) if isinstance(root, StorageOp) else ()
        return isinstance(root, ConstOp) or (len(given) > 0 and all(self.is_constant(value) for value in given))

    def in_tiles(self, op: ConvolutionOp) -> Contraction | None:
        """Returns the products of a convolution that is computed in tiles of outputs; None if it is direct."""
        return _in_tiles(op, self.tiles, self.names, self.arguments)

    def plan(
        self,
        t: TileBuilder,
        op: MatMulOp | ConvolutionOp,
        shape: Contraction,
        element: Attribute,
        near: Near,
        whole: bool = False,
        tiled: bool = False,
    ) -> tuple[Plan, Arguments | None]:
        """Plans a contraction. If its weights are resident, replicated on the tiles that read them, also returns the arguments.

        Serial steps that share resident weights have the plan of the first, which gives the weights their layout.
        `whole`: sums are not cut, as Winograd's algorithm needs. `tiled`: `shape` is that of `in_tiles`.
        """
        root = root_of(t.view(op.operands[1]))
        if root in self.shared:
            return self._recorded(op, self.shared[root], True, tiled), None
        constants, steps = constants_of(op.operands[1], self.arguments), steps_of(op.operands[1])
        if (stated := self.names.stated(op)) is not None:
            if stated.tiled and not tiled:
                raise stated.of(TILED)
            plan, resident = option_of(stated, shape, element, t.target, self.traffic).plan, stated.resident
            if whole and plan.in_channels * plan.kernel > 1:
                raise stated.of("Winograd's algorithm, which is faster here, does not cut sums; leave out in and kernel, or ask for exact")
        else:
            candidates = options(shape, element, t.target, near if self.agree else None, self.traffic, self.share)
            candidates = offered(candidates, constants, t.target, steps) if constants else candidates
            plan, resident = self.residency.choose(candidates, bool(constants))
            plan = whole_sums(shape, plan, t.target) if whole else plan
        if resident and steps > 1:
            self.shared[root] = plan
        if (record := RECORD.get()) is not None and len(names := self.names.names[op]) == 1 and not (tiled or whole):
            record.problems[names[0]] = Problem(shape, element, t.target, self.traffic, bool(constants))
        return self._recorded(op, plan, resident, tiled), self.arguments if resident else None

    def _recorded(self, op: MatMulOp | ConvolutionOp, plan: Plan, resident: bool, tiled: bool) -> Plan:
        """Records a plan if somebody asks for it, and returns it."""
        if (record := RECORD.get()) is not None:
            names = self.names.names[op]
            shapes = " x ".join(str(v.type).partition("<")[2].rstrip(">") for v in op.operands)
            stated = stated_of(names[0], plan, resident, tiled, self.names.steps.get(names[0]))
            record.chosen.append((names, stated, f"{op.name.removeprefix('poplin.')} of {shapes}"))
        return plan


def _in_tiles(op: ConvolutionOp, tiles: Tiles | None, names: Names, arguments: Arguments) -> Contraction | None:
    """Returns the products of a convolution in tiles of outputs, if its stated plan or else `tiles` chooses so."""
    if (stated := names.stated(op)) is None:
        return None if tiles is None else tiles.products(op, arguments)
    if not stated.tiled:
        return None
    if (found := products_in_tiles(op, arguments)) is None:
        raise stated.of(TILED)
    return found


@dataclass(frozen=True)
class Bids:
    """The offers of a graph's contractions for memory in which constant weights are resident.

    `share`: of a tile for such weights. `temporaries`: the share for temporaries.
    """

    graph: GraphOp
    arguments: Arguments
    share: float
    traffic: float
    partials: str
    temporaries: float
    names: Names

    def all(self, tiles: Tiles | None) -> tuple[Room, list[tuple[Option, ...]]]:
        """Returns the bytes of a tile for resident weights, and each contraction's options for them.

        Stated plans have their bytes before all others. `tiles`: the choice of convolutions in tiles of outputs; without it all are
        direct. Raises PopulusError for a stated plan whose weights do not fit.
        """
        machine, bids, seen = self.graph.machine, list[tuple[Option, ...]](), set[SSAValue]()
        room, taken = room_of(self.graph, self.share) if self.share else Room(0, 0), 0
        for op in self.graph.walk():
            if not isinstance(op, MatMulOp | ConvolutionOp) or op.operands[1] in seen:
                continue
            stated, constants = self.names.stated(op), constants_of(op.operands[1], self.arguments)
            if not constants:
                if stated is not None and stated.resident:
                    raise stated.of("resident is for constants that nothing else reads")
                continue
            seen.add(op.operands[1])
            shape, element = shape_of_contraction(op, self.partials), element_type_of(op.operands[0].type)
            if isinstance(op, ConvolutionOp):
                shape = _in_tiles(op, tiles, self.names, self.arguments) or shape
            if not shape.macs:
                continue
            if stated is None:
                if self.share:
                    found = options(shape, element, machine, None, self.traffic, self.temporaries)
                    bids.append(offered(found, constants, machine, steps_of(op.operands[1])))
            elif stated.resident:
                own = option_of(stated, shape, element, machine, self.traffic)
                taken += offered((own,), constants, machine)[0].resident_bytes
                _check_room(stated, taken, room)
        return replace(room, resident=room.resident - taken, tile=room.tile - taken), bids


def _check_room(stated: Stated, taken: int, room: Room) -> None:
    """Raises PopulusError for resident weights that exceed the memory for them, with those of the plans before."""
    if taken > room.resident:
        raise stated.of(f"resident weights would take {taken:,} bytes of a tile up to here, and {int(room.resident):,} are for them")


def room_of(graph: GraphOp, share: float) -> Room:
    """Computes the bytes of a tile for resident weights, if they may take `share` of it."""
    spread = [op.type.bytes for op in ops_of(graph) if isinstance(op, ConstOp)]
    return Room.of(share, graph.machine, spread)
