"""Random programs of library calls, for tests that compare what levels and engines make of them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, FunctionType, ModuleOp, StringAttr, f32
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects.data import constant
from populus.dialects.expr import Arg, exp, maximum, select
from populus.dialects.poplin import ConvolutionOp, MatMulOp
from populus.dialects.popnn import PoolOp, SoftmaxOp
from populus.dialects.popops import BroadcastOp, ConcatOp, DimShuffleOp, MapOp, ReduceOp, ReshapeOp, SliceOp
from populus.dialects.signature import main_of
from populus.dialects.support.element_types import shape_of, tensor

UNARY = (Arg(1) * 0.5, -Arg(1), exp(-maximum(Arg(1), -Arg(1))), maximum(Arg(1), 0.0))
KINDS = ("unary", "binary", "binary", "reshape", "shuffle", "slice", "concat", "reduce", "stretch", "product", "window")
BINARY = (Arg(1) + Arg(2), Arg(1) * Arg(2), Arg(1) - Arg(2), select(Arg(1), Arg(2), Arg(1) >= Arg(2)))


class Programs:
    """Builds a function of a few arguments, some twenty ops that use each other's results, and several results."""

    def __init__(self, seed: int, shapes: Sequence[tuple[int, ...]] = ()):
        self.rng = random.Random(seed)
        drawn = [tuple(self.rng.choice([1, 2, 3, 4, 6]) for _ in range(self.rng.randint(1, 4))) for _ in range(2)]
        shapes = shapes or drawn
        self.block = Block(arg_types=[tensor(s, f32) for s in shapes])
        self.values: list[SSAValue] = list(self.block.args)
        weights = np.random.default_rng(seed).standard_normal(shapes[0]).astype(np.float32)
        self.add(constant(weights))
        for _ in range(self.rng.randint(6, 22)):
            self.step()

    def add(self, op) -> SSAValue:
        self.block.add_op(op)
        value = op.results[0]
        if np.prod(shape_of(value.type)) <= 4096:
            self.values.append(value)
        return value

    def pick(self) -> SSAValue:
        """Often the newest value: chains are what is merged and overwritten."""
        return self.values[-1] if self.rng.random() < 0.5 else self.rng.choice(self.values)

    def step(self) -> None:
        x = self.pick()
        shape = shape_of(x.type)
        if not shape:
            return
        alike = [v for v in self.values if shape_of(v.type) == shape]
        match self.rng.choice(KINDS):
            case "unary":
                self.add(MapOp(x, expr=self.rng.choice(UNARY)))
            case "binary":
                self.add(MapOp(x, self.rng.choice(alike), expr=self.rng.choice(BINARY)))
            case "reshape":
                elements = int(np.prod(shape))
                first = self.rng.choice([n for n in range(1, elements + 1) if elements % n == 0])
                self.add(ReshapeOp(x, shape=(first, elements // first)))
            case "shuffle":
                permutation = self.rng.sample(range(len(shape)), len(shape))
                self.add(DimShuffleOp(x, permutation=permutation))
            case "slice":
                begins = [self.rng.randrange(n) for n in shape]
                backwards = [self.rng.random() < 0.2 for _ in shape]
                ends = [-1 if back else self.rng.randint(b + 1, n) for b, n, back in zip(begins, shape, backwards)]
                self.add(SliceOp(x, begins=begins, ends=ends, steps=[-1 if back else self.rng.choice([1, 1, 2]) for back in backwards]))
            case "concat":
                parts = [x, *self.rng.choices(alike, k=self.rng.randint(1, 2))]
                self.add(ConcatOp(*parts, dim=self.rng.randrange(len(shape))))
            case "reduce":
                dims = self.rng.sample(range(len(shape)), self.rng.randint(1, len(shape)))
                self.add(ReduceOp(x, op=self.rng.choice(["add", "max", "square_add"]), dims=dims))
            case "stretch":
                self.add(BroadcastOp(x, shape=(2, *shape)))
            case "product":
                rows = self.add(ReshapeOp(x, shape=(1, -1, shape[-1])))
                self.add(MatMulOp(rows, self.add(DimShuffleOp(rows, permutation=(0, 2, 1)))))
                self.add(SoftmaxOp(self.values[-1]))
            case _:
                n = shape[-1]
                image = self.add(ReshapeOp(x, shape=(1, -1, n)))
                channels = shape_of(image.type)[1]
                pads, one = (1, 1), (1,)
                if self.rng.random() < 0.5:
                    self.add(PoolOp(image, kind="max", kernel=(2,), strides=(2,), pads=pads, dilations=one))
                else:
                    kernel = self.add(constant(np.full((channels, 1, 2), 0.5, np.float32)))
                    self.add(ConvolutionOp(image, kernel, strides=one, pads=pads, dilations=one, groups=channels))

    def function(self, name: str) -> FuncOp:
        """What is built so far as a function."""
        results = [*self.rng.sample(self.values, min(3, len(self.values))), self.values[-1]]
        self.block.add_op(ReturnOp(*results))
        type = FunctionType.from_lists([a.type for a in self.block.args], [r.type for r in results])
        return FuncOp(name, type, Region(self.block), visibility=None if name == "main" else StringAttr("private"))

    def main(self) -> FuncOp:
        function = self.function("main")
        for key, types in (("input_names", function.function_type.inputs), ("output_names", function.function_type.outputs)):
            function.attributes[key] = ArrayAttr([StringAttr(f"{key[0]}{i}") for i in range(len(types))])
        return function

    def module(self) -> ModuleOp:
        return ModuleOp([self.main()])


class Calls(Programs):
    """The same with calls of functions that are built alike, each from several places."""

    def __init__(self, seed: int):
        self.functions: list[FuncOp] = []
        super().__init__(seed)

    def step(self) -> None:
        if self.rng.random() < 0.7:
            super().step()
            return
        if len(self.functions) < 2 and self.rng.random() < 0.5:
            inner = Programs(self.rng.randrange(10_000), [shape_of(self.pick().type) for _ in range(2)])
            self.functions.append(inner.function(f"f{len(self.functions)}"))
        for function in self.functions:
            fitting = [[v for v in self.values if v.type == type] for type in function.function_type.inputs]
            if all(fitting):
                arguments = [self.rng.choice(values) for values in fitting]
                call = CallOp(function.sym_name.data, arguments, list(function.function_type.outputs))
                self.block.add_op(call)
                self.values += [r for r in call.results if np.prod(shape_of(r.type)) <= 4096]

    def module(self) -> ModuleOp:
        return ModuleOp([self.main(), *self.functions])


def inlined(module: ModuleOp) -> ModuleOp:
    """The module with the ops of functions in place of their calls."""
    functions = {f.sym_name.data: f for f in module.body.block.ops if isinstance(f, FuncOp)}
    while call := next((op for op in main_of(module).walk() if isinstance(op, CallOp)), None):
        body = functions[call.callee.root_reference.data].body.clone().block
        for argument, value in zip(body.args, call.operands):
            argument.replace_all_uses_with(value)
        last = body.last_op
        assert isinstance(last, ReturnOp)
        for old, new in zip(call.results, last.operands):
            old.replace_all_uses_with(new)
        for op in list(body.ops):
            op.detach()
            if op is not last:
                Rewriter.insert_op(op, InsertPoint.before(call))
        last.erase()
        Rewriter.erase_op(call)
    for name, function in functions.items():
        if name != "main":
            Rewriter.erase_op(function)
    return module
