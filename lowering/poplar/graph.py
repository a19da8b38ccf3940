"""Base of the `*-to-poplar` passes: the graph, and the casts between tensors and views.

Such a pass is a table from op class to rule. A rule gets the op and a `TileBuilder`, emits variables and
families, and returns the view that holds each result. Between two such passes, casts
(`builtin.unrealized_conversion_cast`) connect a tensor with the view that holds it. A cast of a cast is folded at
once, and the last pass leaves none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, cast

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, UnknownLoc, UnrealizedConversionCastOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects import poplar
from populus.dialects.check import CloseOp
from populus.dialects.data import ConstantOp, block_format, retyped
from populus.dialects.host import CallOp as HostOp
from populus.dialects.poplar import (
    CallOp,
    ConstOp,
    CopyOp,
    GraphOp,
    GridAttr,
    HostCallOp,
    ParamOp,
    StorageOp,
    StreamInOp,
    StreamOutOp,
    TargetAttr,
    VarOp,
    ViewOp,
)
from populus.dialects.poplar.memory import root_of, type_of, view_of
from populus.dialects.poplar.target import Spec, Target
from populus.dialects.signature import input_names, output_names
from populus.dialects.support.budget import check_time
from populus.dialects.support.call_places import PLACES
from populus.dialects.support.dead_code import erase_dead
from populus.dialects.support.diagnostics import PopulusError, named, option, where
from populus.dialects.support.element_types import element_type_of, shape_of, tensor
from populus.dialects.support.walk import ops_of
from populus.lowering.poplar.inline import inline_large
from populus.lowering.poplar.tile_builder import TileBuilder, label_of, poplar_type

Rule: TypeAlias = "Callable[..., Sequence[SSAValue]]"


@dataclass(frozen=True)
class ToPoplarPass(ModulePass):
    """Base of the passes that lower library calls to tile programs; each subclass has a table of rules.

    `target`, `tiles`, `fidelity`: the machine, for the first such pass of a pipeline; later ones read it from the graph. `fidelity`:
    LoFi, HiFi2, HiFi3 or HiFi4, the 1 to 4 phases in which a mesh multiplies floats; by default as many as a format needs.
    """

    RULES: ClassVar[Mapping[type[Operation], Rule]] = {}

    target: str | None = None
    tiles: int | None = None
    fidelity: str | None = None

    def rules(self, graph: GraphOp) -> Mapping[type[Operation], Rule]:
        """Returns the table of rules for one graph. An override may first rewrite the graph."""
        return self.RULES

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        begun = any(isinstance(inner, GraphOp) for inner in op.body.block.ops)
        graph = the_graph(op, self.target, self.tiles, self.fidelity)
        rules = self.rules(graph)
        steps = [step for step in ops_of(graph) if step is not graph]
        if begun and not any(type(step) in rules for step in steps):
            return  # what follows is for what the rules leave, and an earlier pass did it
        tiles = TileBuilder(graph.machine, {step: i for i, step in enumerate(steps)})
        for inner in steps:
            rule = rules.get(type(inner))
            if rule is None:
                continue
            check_time()
            if inner.name in graph.machine.lacks:
                raise PopulusError(f"{where(inner)}: target {graph.machine.name} has no {inner.name}; lower it to what the target has")
            tiles.at(inner)
            results = rule(inner, tiles)
            for old, new in zip(inner.results, results, strict=True):
                tensor = tiles.tensor(new)
                tensor.name_hint = tensor.name_hint or old.name_hint
                old.replace_all_uses_with(tensor)
            Rewriter.erase_op(inner)
        remove_casts(graph)
        for inner in ops_of(graph):
            tiles.at(inner)
            if isinstance(inner, CallOp):
                stretch_arguments(inner, tiles)
            elif isinstance(inner, CopyOp):
                write_result(inner, tiles)
        erase_dead(graph.body.block, _is_view, inside=True)


def the_graph(module: ModuleOp, target: str | None, tiles: int | None, fidelity: str | None = None) -> GraphOp:
    """Returns the module's `poplar.graph`, which it makes from function `main` if there is none.

    Raises PopulusError if there is neither, and for an unknown target, or one that differs from the graph's. A
    function that calls itself is an error too.
    """
    graphs = [op for op in module.body.block.ops if isinstance(op, GraphOp)]
    if graphs:
        (graph,) = graphs
        made = graph.target.data
        asked = Spec.of(target if target is not None else made.name, tiles, fidelity)
        if asked.name != made.name or not set(asked.overrides) <= set(made.overrides):
            raise PopulusError(f"the program is made for target {graph.target}, not {asked.name}; compile it from the start for another")
        return graph
    functions = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, FuncOp)}
    main = functions.get("main") if len(functions) > 1 else next(iter(functions.values()), None)
    if main is None:
        raise PopulusError(f"a module with a function @main is expected, this one has {', '.join(f'@{f}' for f in functions) or 'none'}")
    spec = Spec.of(target or "host", tiles, fidelity)
    if _called(main, functions):
        inline_large(main, functions, spec.target())
    called = _called(main, functions)
    graph = _graph_of(main, spec)  # reports a user's mistake before anything changes
    for name in called:
        function = _function_of(functions[name], graph.machine)
        Rewriter.insert_op(function, InsertPoint.at_start(graph.body.block))
    for name, function in functions.items():
        if name != main.sym_name.data:
            Rewriter.erase_op(function)
    _lower_calls(graph)
    return graph


def _called(main: FuncOp, functions: Mapping[str, FuncOp]) -> list[str]:
    """Lists the functions that `main` calls, directly or not, callers first. Raises PopulusError for recursion."""
    done: dict[str, None] = {}

    def visit(function: FuncOp, path: tuple[str, ...]) -> None:
        """Visits the callees of a function, in depth-first order."""
        for op in function.walk():
            if isinstance(op, func.CallOp):
                name = op.callee.root_reference.data
                if name in path or name not in functions:
                    why = "calls itself, which tiles have no stack for" if name in path else "is called and is not there"
                    raise PopulusError(f"{where(op)}: @{name} {why}")
                if name not in done:
                    visit(functions[name], (*path, name))
                    done[name] = None

    visit(main, (main.sym_name.data,))
    return list(reversed(done))


def _graph_of(function: FuncOp, spec: Spec) -> GraphOp:
    """Builds the graph: arguments become variables filled by streams, results become output streams."""
    block = function.body.block
    machine = spec.target()
    inputs = input_names(function)
    tiles = TileBuilder(machine)
    first, last = block.first_op, block.last_op
    assert first is not None
    for name, argument, host in zip(inputs, list(block.args), _host_types(function, "input_types", len(inputs))):
        _check_held(machine, argument.type, f"input '{name}'")
        variable = VarOp(name, poplar_type(argument.type))
        _replace_argument(argument, variable, StreamInOp(name, variable.result, host), name, first)
    _lower_constants(function, machine)
    assert isinstance(last, ReturnOp), last
    tiles.at(last)
    outputs = output_names(function)
    for name, value, host in zip(outputs, list(last.operands), _host_types(function, "output_types", len(outputs))):
        stream = StreamOutOp(tiles.view(value), name, host)
        tiles.insert(stream)
        stream.location = named(name)
    Rewriter.erase_op(last)
    graph = GraphOp(function.sym_name.data, TargetAttr(spec), function.detach_region(function.body))
    graph.location = function.location
    Rewriter.replace_op(function, graph, [])
    return graph


def _function_of(function: FuncOp, machine: Target) -> poplar.FuncOp:
    """Builds a tile function: arguments become `in` parameters, results are copied into `out` parameters
    (`write_result`).
    """
    block = function.body.block
    first, last = block.first_op, block.last_op
    assert first is not None
    assert isinstance(last, ReturnOp), last
    name = function.sym_name.data
    for i, argument in enumerate(list(block.args)):
        label = f"{name}.{argument.name_hint or i}"
        _replace_argument(argument, ParamOp("in", label, poplar_type(argument.type)), None, label, first)
    tiles = TileBuilder(machine)
    parameters: list[ParamOp] = []
    for i, value in enumerate(last.operands):
        parameters.append(ParamOp("out", f"{name}.result{i}", poplar_type(value.type)))
        tiles.at(first)
        tiles.insert(parameters[-1])
        tiles.at(last)
        tiles.insert(CopyOp(tiles.view(value), parameters[-1].result))
    for parameter in reversed([op for op in block.ops if isinstance(op, ParamOp)]):  # before the casts
        parameter.detach()
        Rewriter.insert_op(parameter, InsertPoint.at_start(block))
    _lower_constants(function, machine)
    Rewriter.erase_op(last)
    made = poplar.FuncOp(name, function.detach_region(function.body))
    made.location = function.location
    return made


def _replace_argument(argument: BlockArgument, storage: StorageOp, fill: Operation | None, name: str, first: Operation) -> None:
    """Replaces an argument by `storage`, inserted before `first`. `fill`: the step that writes its content."""
    storage.result.name_hint = argument.name_hint
    cast = UnrealizedConversionCastOp.create(operands=[storage.result], result_types=[argument.type])
    for new in (storage, *([] if fill is None else [fill]), cast):
        new.location = named(name) if isinstance(argument.location, UnknownLoc) else argument.location
        Rewriter.insert_op(new, InsertPoint.before(first))
    argument.replace_all_uses_with(cast.outputs[0])
    argument.block.erase_arg(argument)


def _lower_constants(function: FuncOp, machine: Target) -> None:
    """Lowers constants to `poplar.const`, checks and host ops to `poplar.host_call`."""
    tiles = TileBuilder(machine)
    for op in ops_of(function):
        if isinstance(op, ConstantOp):
            _constant(op, machine)
        elif isinstance(op, CloseOp):
            tiles.at(op)
            tiles.insert(HostCallOp("check.close", [tiles.view(op.x)], [], dict(op.properties)))
            Rewriter.erase_op(op)
        elif isinstance(op, HostOp):
            tiles.at(op)
            suffixes = ["", *(f".{i}" for i in range(1, len(op.results)))]
            results = [tiles.var(shape_of(r.type), element_type_of(r.type), suffix=s) for r, s in zip(op.results, suffixes)]
            params = {} if op.params is None else dict(op.params.data)
            tiles.insert(HostCallOp(op.function.data, [tiles.view(v) for v in op.operands], results, params))
            for result, variable in zip(op.results, results):
                variable.name_hint = result.name_hint
                result.replace_all_uses_with(tiles.tensor(variable))
            Rewriter.erase_op(op)


def _lower_calls(graph: GraphOp) -> None:
    """Lowers calls; their results are variables that the function writes."""
    tiles = TileBuilder(graph.machine)
    for op in [op for op in ops_of(graph) if isinstance(op, func.CallOp)]:
        tiles.at(op)
        name = op.callee.root_reference.data
        results = [VarOp(f"{name}.result{i}", poplar_type(r.type)) for i, r in enumerate(op.results)]
        for result in results:
            tiles.insert(result)
        call = CallOp(name, [*(tiles.view(o) for o in op.operands), *(r.result for r in results)])
        tiles.insert(call)
        call.attributes |= {PLACES: op.attributes[PLACES]} if PLACES in op.attributes else {}
        for old, new in zip(op.results, results):
            new.result.name_hint = old.name_hint
            old.replace_all_uses_with(tiles.tensor(new.result))
        Rewriter.erase_op(op)


def stretch_arguments(op: CallOp, t: TileBuilder) -> None:
    """Copies the arguments that are not contiguous views."""
    for i, value in enumerate(op.arguments):
        if not isinstance(root_of(value).owner, UnrealizedConversionCastOp) and not view_of(value).is_contiguous:
            op.operands[i] = t.copied(value)


def write_result(op: CopyOp, t: TileBuilder) -> None:
    """Replaces a final copy into a parameter: the source's variable becomes the parameter, where possible."""
    parameter = op.dst.owner
    if not isinstance(parameter, ParamOp) or not isinstance(root_of(op.src).owner, VarOp):
        return
    grid = t.layout_of(op.src)
    if t.move(op.src, op.dst):
        if grid is not None and parameter.grid is None:
            parameter.grid = GridAttr(grid)
        Rewriter.erase_op(op)


def _constant(op: ConstantOp, machine: Target) -> None:
    """Lowers a constant to `poplar.const` if it has uses."""
    if op.result.uses:
        _check_held(machine, op.result.type, where(op))
        plain = tensor(shape_of(op.result.type), element_type_of(op.result.type))
        constant = ConstOp(label_of(op), retyped(op.value, plain), poplar_type(op.result.type))
        constant.result.name_hint = op.result.name_hint
        cast = UnrealizedConversionCastOp.create(operands=[constant.result], result_types=[op.result.type])
        for new in (constant, cast):
            new.location = op.location
            Rewriter.insert_op(new, InsertPoint.before(op))
        op.result.replace_all_uses_with(cast.outputs[0])
    Rewriter.erase_op(op)


def _check_held(machine: Target, type: Attribute, subject: str) -> None:
    element = element_type_of(type)
    if (block := block_format(type)) and block not in machine.blocks:
        raise PopulusError(f"{subject} is in format {block}, which target {machine.name} does not have; take one that has it, such as n150")
    if not machine.holds(element):
        raise PopulusError(
            f"{subject} is {element}, which target {machine.name} cannot hold; "
            f"ask for narrower types ({option('--narrow', 'narrow=True')}, popops-narrow) or take target host"
        )


def _host_types(function: FuncOp, key: str, count: int) -> list[Attribute | None]:
    """Returns the element types of the host's data if `popops-narrow` changed the function's; else None for each."""
    return list(_attributes(function, key)) or [None] * count


def _attributes(function: FuncOp, key: str) -> tuple[Attribute, ...]:
    attribute = function.attributes.get(key)
    return cast("ArrayAttr[Attribute]", attribute).data if isinstance(attribute, ArrayAttr) else ()


def remove_casts(graph: GraphOp) -> None:
    """Folds casts of casts, and erases ops that become unused."""
    for op in ops_of(graph):
        if isinstance(op, UnrealizedConversionCastOp):
            source = op.inputs[0].owner
            if isinstance(source, UnrealizedConversionCastOp) and _same_but_for_blocks(source.inputs[0].type, op.outputs[0].type):
                op.outputs[0].replace_all_uses_with(source.inputs[0])
                _carry_block(source.inputs[0])
    erase_dead(graph.body.block, _is_view, inside=True)


def _same_but_for_blocks(one: Attribute, other: Attribute) -> bool:
    if isinstance(one, poplar.TensorType) and isinstance(other, poplar.TensorType):
        return one.dims == other.dims and one.element == other.element
    return one == other


def _carry_block(view: SSAValue) -> None:
    """Gives views and copies of a view in a block format that format: they were made before their operand was lowered."""
    if not isinstance(view.type, poplar.TensorType) or not view.type.block:
        return
    for use in list(view.uses):
        step = use.operation
        shown = step.y if isinstance(step, ViewOp) else root_of(step.dst) if isinstance(step, CopyOp) and use.index == 0 else None
        if shown is not None and type_of(shown).block != view.type.block:
            _carry_block(Rewriter.replace_value_with_new_type(shown, view.type.reshaped(type_of(shown).shape)))


def _is_view(op: Operation) -> bool:
    return isinstance(op, UnrealizedConversionCastOp | ViewOp | ConstOp)
