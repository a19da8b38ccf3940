"""What the passes from library calls to tiles share: the graph, casts between tensors and views, and building families.

A `*-to-poplar` pass is a table from op class to rule. A rule gets the op and a `Tiles`, emits variables and families, and
returns the view that holds each result. Between two such passes a tensor and the view that holds it are tied by casts
(`builtin.unrealized_conversion_cast`); a cast of a cast goes at once, the last pass leaves none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, cast

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr, UnknownLoc, UnrealizedConversionCastOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects.check import CloseOp
from populus.dialects.data import ConstantOp
from populus.dialects.diagnostics import PopulusError, named, where
from populus.dialects.element_types import element_type_of
from populus.dialects.poplar import ConstOp, GraphOp, HostCallOp, StreamInOp, StreamOutOp, TargetAttr, VarOp, ViewOp
from populus.dialects.poplar.target import Spec, Target
from populus.lowering.tiles import Tiles, label_of, poplar_type

Rule: TypeAlias = "Callable[..., Sequence[SSAValue]]"


@dataclass(frozen=True)
class ToPoplarPass(ModulePass):
    """Base of the passes that turn library calls into tile programs; each subclass has a table of rules.

    `target`, `tiles`: the machine, for the first such pass of a pipeline; later ones find it in the graph.
    """

    RULES: ClassVar[Mapping[type[Operation], Rule]] = {}

    target: str | None = None
    tiles: int | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        graph = the_graph(op, self.target, self.tiles)
        steps = [step for step in graph.walk() if step is not graph]
        tiles = Tiles(graph.machine, {step: i for i, step in enumerate(steps)})
        for inner in steps:
            rule = self.RULES.get(type(inner))
            if rule is None:
                continue
            tiles.at(inner)
            results = rule(inner, tiles)
            for old, new in zip(inner.results, results, strict=True):
                tensor = tiles.tensor(new)
                tensor.name_hint = tensor.name_hint or old.name_hint
                old.replace_all_uses_with(tensor)
            Rewriter.erase_op(inner)
        remove_casts(graph)


def the_graph(module: ModuleOp, target: str | None, tiles: int | None) -> GraphOp:
    """The module's `poplar.graph`, made from its function `main` the first time.

    Raises PopulusError if there is neither, the target is unknown, or another one is asked for than the graph has.
    """
    graphs = [op for op in module.body.block.ops if isinstance(op, GraphOp)]
    if graphs:
        (graph,) = graphs
        made = graph.target.data
        asked = Spec.of(target if target is not None else made.name, tiles)
        if asked.name != made.name or not set(asked.overrides) <= set(made.overrides):
            raise PopulusError(f"the program is made for target {graph.target}, not {asked.name}; compile it from the start for another")
        return graph
    functions = [op for op in module.body.block.ops if isinstance(op, FuncOp)]
    if len(functions) != 1:
        raise PopulusError(f"a module of one function is expected, this one has {len(functions)}")
    return _graph_of(functions[0], Spec.of(target or "host", tiles))  # a user's mistake is found here, before anything changes


def _graph_of(function: FuncOp, spec: Spec) -> GraphOp:
    """Arguments become variables filled by streams, constants `poplar.const`, results streams out."""
    block = function.body.block
    machine = spec.target()
    inputs = names(function, "input_names", len(block.args))
    first = block.first_op
    assert first is not None
    for name, argument, host in zip(inputs, list(block.args), _host_types(function, "input_types", len(inputs))):
        _check_held(machine, argument.type, f"input '{name}'")
        variable = VarOp(name, poplar_type(argument.type))
        variable.result.name_hint = argument.name_hint
        stream = StreamInOp(name, variable.result, host)
        cast = UnrealizedConversionCastOp.get([variable.result], [argument.type])
        for new in (variable, stream, cast):
            new.location = named(name) if isinstance(argument.location, UnknownLoc) else argument.location
            Rewriter.insert_op(new, InsertPoint.before(first))
        argument.replace_all_uses_with(cast.outputs[0])
    while block.args:
        block.erase_arg(block.args[-1])
    for op in list(function.walk()):
        if isinstance(op, ConstantOp):
            _constant(op, machine)
        elif isinstance(op, CloseOp):
            tiles = Tiles(machine)
            tiles.at(op)
            tiles.insert(HostCallOp("check.close", [tiles.view(op.x)], [], dict(op.properties)))
            Rewriter.erase_op(op)
        elif isinstance(op, ReturnOp):
            outputs = names(function, "output_names", len(op.operands))
            tiles = Tiles(machine)
            tiles.at(op)
            for name, value, host in zip(outputs, list(op.operands), _host_types(function, "output_types", len(outputs))):
                stream = StreamOutOp(tiles.view(value), name, host)
                tiles.insert(stream)
                stream.location = named(name)
            Rewriter.erase_op(op)
    graph = GraphOp(function.sym_name.data, TargetAttr(spec), function.detach_region(function.body))
    graph.location = function.location
    Rewriter.replace_op(function, graph, [])
    return graph


def _constant(op: ConstantOp, machine: Target) -> None:
    """A constant becomes `poplar.const`, if anything reads it."""
    if op.result.uses:
        _check_held(machine, op.result.type, where(op))
        constant = ConstOp(label_of(op), op.value, poplar_type(op.result.type))
        constant.result.name_hint = op.result.name_hint
        cast = UnrealizedConversionCastOp.get([constant.result], [op.result.type])
        for new in (constant, cast):
            new.location = op.location
            Rewriter.insert_op(new, InsertPoint.before(op))
        op.result.replace_all_uses_with(cast.outputs[0])
    Rewriter.erase_op(op)


def _check_held(machine: Target, type: Attribute, what: str) -> None:
    element = element_type_of(type)
    if not machine.holds(element):
        raise PopulusError(
            f"{what} is {element}, which target {machine.name} cannot hold; "
            "ask for narrower types (--narrow, popops-narrow) or take target host"
        )


def names(function: FuncOp, key: str, count: int) -> list[str]:
    """The model's names of a function's arguments (`input_names`) or results (`output_names`)."""
    found = [name.data for name in _attributes(function, key) if isinstance(name, StringAttr)]
    if len(found) == count:
        return found
    return [f"{key.split('_', maxsplit=1)[0]}{i}" for i in range(count)]


def _host_types(function: FuncOp, key: str, count: int) -> list[Attribute | None]:
    """The element types of the host's data, where `popops-narrow` has changed those of the function."""
    return list(_attributes(function, key)) or [None] * count


def _attributes(function: FuncOp, key: str) -> tuple[Attribute, ...]:
    attribute = function.attributes.get(key)
    return cast("ArrayAttr[Attribute]", attribute).data if isinstance(attribute, ArrayAttr) else ()


def remove_casts(graph: GraphOp) -> None:
    """Folds casts of casts, and erases casts and views that nobody uses."""
    for op in list(graph.walk()):
        if isinstance(op, UnrealizedConversionCastOp):
            source = op.inputs[0].owner
            if isinstance(source, UnrealizedConversionCastOp) and source.inputs[0].type == op.outputs[0].type:
                op.outputs[0].replace_all_uses_with(source.inputs[0])
    for op in reversed(list(graph.walk())):
        if isinstance(op, UnrealizedConversionCastOp | ViewOp | ConstOp) and not any(r.uses for r in op.results):
            Rewriter.erase_op(op)
