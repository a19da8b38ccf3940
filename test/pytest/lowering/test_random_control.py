"""Random programs of branches and loops in each other: tiles compute what whole arrays do, whatever is carried or captured."""

from __future__ import annotations

import random

import numpy as np
import pytest
from xdsl.dialects.builtin import i32
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Region, SSAValue

from helpers.random_programs import Programs
from populus.dialects.base.control_flow import INDEX
from populus.dialects.expr import Arg, cast, exp, maximum
from populus.dialects.popops import IfOp, LoopOp, MapOp, MultiSliceOp, ReduceOp, YieldOp
from populus.dialects.support.diagnostics import verify
from populus.dialects.support.element_types import element_type_of, shape_of, tensor
from populus.dialects.table import context
from populus.lowering.driver.pipeline import Pipeline
from populus.runtime.interpreter import run_function
from populus.runtime.session import Session

PROGRAMS = 14  # hundreds of others were run once
DEEPEST = 3


class ControlPrograms(Programs):
    """As `Programs`, with some of the steps inside branches and loops, which read the values around them."""

    depth = 0

    def step(self) -> None:
        if self.depth < DEEPEST and self.rng.random() < 0.25:
            self.depth += 1
            self.rng.choice([self.branch, self.loop, self.loop])()
            self.depth -= 1
        else:
            super().step()

    def flag(self) -> SSAValue:
        """A condition that depends on data."""
        x = self.pick()
        total = self.push(ReduceOp(x, op="add", dims=range(len(shape_of(x.type)))))
        return self.push(MapOp(total, expr=Arg(1) >= self.rng.choice([-1.0, 0.0, 1.0])))

    def push(self, op) -> SSAValue:
        """An op whose result no other step picks."""
        self.block.add_op(op)
        return op.results[0]

    def inside(self, arguments, take, end) -> Region:
        """A region of a few steps; `take` gets its arguments, what it gives is `end()`."""
        block, values = self.block, self.values
        self.block, self.values = Block(arg_types=arguments), list(values)
        take(list(self.block.args))
        for _ in range(self.rng.randint(0, 4)):
            self.step()
        self.block.add_op(YieldOp(*end()))
        region = Region(self.block)
        self.block, self.values = block, values
        return region

    def alike(self, type) -> SSAValue:
        """Some value of a type; often one that is only now computed."""
        found = self.rng.choice([v for v in self.values if v.type == type])
        return self.push(MapOp(found, expr=exp(-maximum(Arg(1), -Arg(1))))) if self.rng.random() < 0.4 else found

    def keep(self, results) -> None:
        self.values += [r for r in results if np.prod(shape_of(r.type)) <= 4096]

    def branch(self) -> None:
        types = [self.pick().type for _ in range(self.rng.randint(0, 3))]
        flag = self.flag()
        regions = [self.inside([], lambda _: None, lambda: [self.alike(t) for t in types]) for _ in range(2)]
        op = IfOp(flag, *regions)
        self.block.add_op(op)
        self.keep(op.results)

    def loop(self) -> None:
        tables = [v for v in self.values if len(shape_of(v.type)) > 1 and shape_of(v.type)[0] <= 4]
        scanned = [self.rng.choice(tables)] if tables and self.rng.random() < 0.6 else []
        trips = shape_of(scanned[0].type)[0] if scanned else self.rng.choice([1, 2, 3, 4])
        carried = [self.pick() for _ in range(self.rng.randint(0, 3))]
        conditional = self.rng.random() < 0.4
        rows = self.rng.randint(0, 2)
        open_ended = conditional and not scanned and not rows and self.rng.random() < 0.3
        arguments = [INDEX, *(v.type for v in carried), *(tensor(shape_of(v.type)[1:], element_type_of(v.type)) for v in scanned)]
        go = self.flag() if conditional else None
        index: list[SSAValue] = []

        def take(args) -> None:
            index.append(args[0])
            self.values += args[1:]
            if self.rng.random() < 0.3:  # a row of a table that is not scanned, by the iteration's number
                big = [v for v in self.values if len(shape_of(v.type)) > 1 and shape_of(v.type)[0] >= trips]
                if big and not open_ended:
                    self.add(MultiSliceOp(self.rng.choice(big), index[0], dim=0))

        def end() -> list[SSAValue]:
            first = []
            if open_ended:
                first = [self.push(MapOp(index[0], expr=Arg(1) < cast(1.0 * trips, i32)))]
            elif conditional:
                first = [self.flag()]
            return [*first, *(self.alike(v.type) for v in carried), *(self.pick() for _ in range(rows))]

        body = self.inside(arguments, take, end)
        op = LoopOp(carried, body, trips=None if open_ended else trips, scanned=scanned, go=go)
        self.block.add_op(op)
        self.keep(op.results)


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_tiles_branch_and_loop_as_whole_arrays_do(seed: int):
    module = ControlPrograms(seed).module()
    verify(module)
    (function,) = (op for op in module.body.block.ops if isinstance(op, FuncOp))
    rng = np.random.default_rng(seed)
    inputs = {f"i{i}": rng.standard_normal(shape_of(a.type)).astype(np.float32) for i, a in enumerate(function.body.block.args)}
    with np.errstate(all="ignore"):
        expected = run_function(module, dict(inputs))
    if not all(np.isfinite(e).all() for e in expected.values()):
        return  # sums of infinities depend on their order
    tiles, target = random.Random(seed).choice([(1, "host"), (4, "gc200"), (16, "host"), (1472, "gc200")])
    for fuse in (True, False):
        lowered = module.clone()
        passes = Pipeline.named("inference").from_level("popops").with_defaults(target=target, tiles=tiles)
        (passes if fuse else passes.remove("popops-fuse")).run(context(), lowered, verify_each=True)
        for engine in ("numpy", *(("strict", "native") if fuse and (tiles < 1472 or seed < 4) else ())):
            found = Session(lowered, engine).run(inputs)
            for name, e in expected.items():
                scale = max(float(np.abs(e).max(initial=0)), 1e-6)
                np.testing.assert_allclose(found[name] / scale, e / scale, rtol=0, atol=2e-5, err_msg=f"{name} {engine} {fuse}")
