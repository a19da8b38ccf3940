"""`stablehlo-to-popart`: converts programs of StableHLO to the level `popart`; one rule an op, in the files beside.

The pass reads @main and builds it anew: calls are written out, complex numbers become pairs of real ones, tuples and tokens go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import FunctionType, ModuleOp, TensorType, TupleType
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint
from xdsl.utils.exceptions import VerifyException

from populus.dialects import popart
from populus.dialects.base.tensor_op import TensorOp
from populus.dialects.data import ConstantOp
from populus.dialects.signature import complex_pairs, input_names, main_of, output_names, state_names
from populus.dialects.stablehlo.attributes import TokenType
from populus.dialects.stablehlo.ops import HloOp
from populus.dialects.stablehlo.shape_rules import is_static
from populus.dialects.support.budget import check_time
from populus.dialects.support.diagnostics import PopulusError, option, where
from populus.dialects.support.element_types import element_type_of, is_known, shape_of, tensor
from populus.lowering.stablehlo.quantized_types import quantization_of
from populus.lowering.stablehlo.to_popart import (
    chlo,
    contraction,
    control,
    elementwise,
    indexing,
    linear_algebra,
    loops,
    quantized,
    random,
    reduction,
    sorting,
    tensors,
)
from populus.lowering.stablehlo.to_popart.conversion import Conversion, Pair, Rule, Rules, Value, is_complex, leaves, part_type, shape

RULES: Rules = {
    **contraction.RULES,
    **control.RULES,
    **elementwise.RULES,
    **indexing.RULES,
    **linear_algebra.RULES,
    **loops.RULES,
    **random.RULES,
    **reduction.RULES,
    **sorting.RULES,
    **tensors.RULES,
}
LIFTED = {
    *elementwise.RULES,
    "bitcast_convert",
    "constant",
    "reshape",
    "broadcast_in_dim",
    "transpose",
    "tuple",
    "get_tuple_element",
    "composite",
}
"""The ops that a region on scalars may have, if it is computed on whole tensors."""


@dataclass(frozen=True)
class StablehloToPopartPass(ModulePass):
    """Converts @main of a StableHLO program, with the functions that it calls, to `popart`. Every shape has to be static."""

    name = "stablehlo-to-popart"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Converts @main and erases the other functions. A module without an op of StableHLO stays as it is."""
        if any(isinstance(inner, HloOp) for inner in op.walk()):
            Walk(op, claimed_targets(ctx)).main()


def claimed_targets(ctx: Context) -> dict[str, type[TensorOp]]:
    """Lists the loaded ops that claim the target of a custom_call: `STABLEHLO: ClassVar = "my_target"`."""
    named = ((getattr(op, "STABLEHLO", None), op) for op in ctx.loaded_ops)
    return {target: op for target, op in named if isinstance(target, str) and issubclass(op, TensorOp)}


def rule_of(op: Operation) -> Rule:
    """Finds the rule of an op. Raises PopulusError if there is none."""
    if isinstance(op, CallOp):
        return control.call
    dialect, _, kind = op.name.partition(".")
    found = {"stablehlo": RULES, "chlo": chlo.RULES}.get(dialect, {}).get(kind)
    if found is None:
        hint = "; install jaxlib, by which files are read with it expanded" if dialect == "chlo" else ""
        raise PopulusError(f"there is no conversion of {op.name}{hint}")
    return found


class Walk:
    """The walk over @main and what it calls. `values`: for each value of the program that it has seen, its replacement."""

    def __init__(self, module: ModuleOp, claimed: Mapping[str, type[TensorOp]] = MappingProxyType({})):
        self.module, self.claimed = module, claimed
        self.functions = {f.sym_name.data: f for f in module.body.block.ops if isinstance(f, FuncOp)}
        self.values: dict[SSAValue, Value] = {}
        self.calls: list[str] = []

    def main(self) -> None:
        """Replaces all functions by a converted @main."""
        old = main_of(self.module)
        block = Block()
        ins, outs = input_names(old), output_names(old)
        builder = Builder(InsertPoint.at_end(block))
        arguments = [self.argument(a.type, block, builder, name, a) for name, a in zip(ins, old.body.block.args)]
        self.calls.append("main")
        results = self.inline(old.body.block, arguments, builder, lifted=False)
        end = old.body.block.last_op
        assert end is not None
        values = [self.result(v, end, builder) for v in results]
        end_op = ReturnOp(*values)
        end_op.location = end.location
        block.add_op(end_op)
        types = FunctionType.from_lists([a.type for a in block.args], [v.type for v in values])
        new = FuncOp("main", types, Region(block))
        new.location = old.location
        state_names(new, inputs=ins, outputs=outs)
        complex_pairs.note(
            new,
            [n for n, a in zip(ins, old.body.block.args) if is_complex(a.type)],
            [n for n, v in zip(outs, end.operands) if is_complex(v.type)],
        )
        for function in list(self.module.body.block.ops):
            function.detach()
        for function in self.functions.values():
            function.drop_all_references()
        self.module.body.block.add_op(new)
        for op in reversed(list(block.ops)):
            if isinstance(op, ConstantOp) and not op.result.uses:
                op.detach()
                op.erase()

    def argument(self, type: Attribute, block: Block, builder: Builder, name: str, old: SSAValue) -> Value:
        """Makes an argument; a complex one is a pair of floats, [.., 2]. Raises PopulusError for what is no static tensor."""
        if not is_static(type):
            how = option("--dim", "dims")
            raise PopulusError(f"input '{name}' is {type}; a tensor of known sizes is expected. Those of a file are stated by {how}")
        element, sizes = stored(type), shape_of(type)
        if not is_known(element):
            raise PopulusError(f"input '{name}' is {type}; tiles cannot hold {element}")
        made = block.insert_arg(tensor((*sizes, 2) if is_complex(type) else sizes, element), len(block.args))
        made.name_hint = old.name_hint
        if isinstance(old.owner, Block) and (location := getattr(old, "location", None)) is not None:
            made.location = location
        if not is_complex(type):
            return made
        rank = len(sizes)
        parts: list[SSAValue] = []
        for i in range(2):
            cut = popart.SliceOp(made, begins=(0,) * rank + (i,), ends=(*sizes, i + 1), steps=(1,) * (rank + 1))
            parts.append(builder.insert(popart.ReshapeOp(builder.insert(cut).results[0], shape=sizes)).results[0])
        return Pair(*parts)

    def result(self, value: Value, end: Operation, builder: Builder) -> SSAValue:
        """Makes a result of a value; a complex one is a pair of floats, [.., 2]."""
        if isinstance(value, SSAValue):
            return value
        if not isinstance(value, Pair):
            raise PopulusError(f"{where(end)}: a result of @main is a tuple or a token; tensors are expected")
        sizes = shape(value.real)
        parts = [builder.insert(popart.ReshapeOp(v, shape=(*sizes, 1))).results[0] for v in (value.real, value.imag)]
        return builder.insert(popart.ConcatOp(*parts, axis=len(sizes))).results[0]

    def call(self, name: str, values: Sequence[Value], builder: Builder, lifted: bool) -> list[Value]:
        """Writes a function out. Raises PopulusError for one that is missing, or that calls itself."""
        function = self.functions.get(name)
        if function is None or not function.body.blocks:
            raise PopulusError(f"there is no function @{name}")
        if name in self.calls:
            raise PopulusError(f"@{name} calls itself")
        self.calls.append(name)
        found = self.inline(function.body.block, values, builder, lifted)
        self.calls.pop()
        return found

    def inline(self, block: Block, values: Sequence[Value], builder: Builder, lifted: bool) -> list[Value]:
        """Converts the ops of a block with values for its arguments, and gives what its end returns."""
        self.values.update(zip(block.args, values, strict=True))
        for op in block.ops:
            if op is block.last_op:
                break
            check_time()
            try:
                self.operation(op, builder, lifted)
            except (PopulusError, VerifyException) as error:
                raise placed(op, error) from error
        assert block.last_op is not None
        return [self.values[v] for v in block.last_op.operands]

    def operation(self, op: Operation, builder: Builder, lifted: bool) -> None:
        """Converts one op. Raises PopulusError if it cannot be, or if its results have other types than the text states."""
        if lifted and not (isinstance(op, CallOp) or op.name.partition(".")[2] in LIFTED):
            raise PopulusError("it stands in a region that combines elements; element-wise ops are expected there")
        for result in op.results:
            type: Attribute = result.type
            if not is_static(type) and isinstance(type, TensorType):
                how = option("--value INPUT=N", "values={'INPUT': N}")
                raise PopulusError(f"its result is {type}, as a size is computed when the program runs; state an input of it by {how}")
            if isinstance(type, TensorType) and not is_known(part_type(result.type)):
                raise PopulusError(f"its result is {result.type}; tiles cannot hold {part_type(result.type)}")
        rule, conversion = rule_of(op), Conversion(op, [self.values[v] for v in op.operands], builder, self, lifted)
        inside = isinstance(op, CallOp) or op.name == "stablehlo.composite"  # its ops are converted one by one
        found = quantized.quantized(rule, conversion) if not inside and quantized.is_quantized(op) else rule(conversion)
        results = found if isinstance(found, list) else [found]
        if len(results) != len(op.results):
            raise PopulusError(f"it has {len(op.results)} results, and gives {len(results)}")
        for result, value in zip(op.results, results):
            check_type(result.type, value, lifted)
            for tensor_value in leaves([value]):
                tensor_value.name_hint = tensor_value.name_hint or result.name_hint
            self.values[result] = value


def check_type(stated: Attribute, value: Value, lifted: bool) -> None:
    """Raises PopulusError if a value has another type than the text states; `lifted`: another element type."""
    if isinstance(stated, TupleType | TokenType) or isinstance(value, tuple):
        return
    if isinstance(value, Pair) != is_complex(stated):
        raise PopulusError(f"its result is {stated}, and its conversion is {'complex' if isinstance(value, Pair) else 'real'}")
    for part in leaves([value]):
        own = stored(stated)
        expected = tensor(shape(part) if lifted else shape_of(stated), own)
        if part.type != expected and not (lifted and element_type_of(part.type) == own):
            raise PopulusError(f"its result is {stated}, and {part.type} by its conversion")


def stored(type: Attribute) -> Attribute:
    """Gives the type of the elements that stand for those of a type: the parts of complex ones, integers of quantized ones."""
    found = quantization_of(type)
    return part_type(type) if found is None else found.storage


class UnconvertedError(PopulusError):
    """An error about one op, which it names and has."""

    op: Operation


def placed(op: Operation, error: Exception) -> PopulusError:
    """Gives an error with the place and the name of the innermost op that it is about."""
    if isinstance(error, UnconvertedError):
        return error
    made = UnconvertedError(f"{where(op)}: {op.name}: {' '.join(str(error).split())}")
    made.op = op
    return made


def judged(module: ModuleOp) -> list[tuple[Operation, str]]:
    """Lists the ops of a program, each with the reason why it is not converted, or an empty text.

    If each op has a rule, the program is converted, and the first op that fails has the reason.
    """
    ops = [op for op in module.walk() if isinstance(op, HloOp) and op.name != "stablehlo.return"]
    reasons: dict[Operation, str] = {}
    for op in ops:
        try:
            rule_of(op)
        except PopulusError as error:
            reasons[op] = str(error)
    if not reasons:
        try:
            Walk(module).main()
        except UnconvertedError as error:
            reasons[error.op] = str(error)
    return [(op, reasons.get(op, "")) for op in ops]
