"""What a program's sums would give in other orders than the one that it states.

A program is deterministic: partial sums and their order are in the IR, so any order of vertices gives the same bits. A machine
that adds in another order would be as right; how far its results could be is what this tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import SSAValue

from populus.dialects.base.tensor_op import ints
from populus.dialects.popops import ReduceOp
from populus.dialects.support.diagnostics import PopulusError, where
from populus.runtime.interpreter import evaluate_op

Array = NDArray[Any]


def results_in_orders(module: ModuleOp, inputs: Mapping[str, Array], names: list[str], seeds: range) -> Iterator[dict[str, Array]]:
    """The results of `@main` at the popops level, once for each seed, with the elements of every reduction in another order.

    `inputs` in the order of `@main`'s arguments; `names`: of its results. Raises PopulusError for a call: functions are not looked into.
    """
    main = next(op for op in module.body.block.ops if isinstance(op, FuncOp) and op.sym_name.data == "main")
    for seed in seeds:
        rng = np.random.default_rng(seed)
        values: dict[SSAValue, Array] = dict(zip(main.body.block.args, inputs.values()))
        for op in main.body.block.ops:
            arrays = [values[o] for o in op.operands]
            if isinstance(op, ReturnOp):
                yield dict(zip(names, arrays))
                break
            if isinstance(op, CallOp):
                raise PopulusError(f"{where(op)}: sums in a function have one order here; compile without popart-outline to see others")
            if isinstance(op, ReduceOp):
                for d in ints(op.dims):
                    arrays[0] = np.take(arrays[0], rng.permutation(arrays[0].shape[d]), d)
            values.update(zip(op.results, evaluate_op(op, arrays)))


def spread(results: list[dict[str, Array]]) -> dict[str, float]:
    """For each result the largest difference of an element between any two, relative to the largest element; 0 if all are bitwise equal."""
    found: dict[str, float] = {}
    for name in results[0]:
        arrays = np.stack([r[name].astype(np.float64) for r in results])
        largest = float(np.abs(arrays).max(initial=0)) or 1.0
        found[name] = float((arrays.max(0) - arrays.min(0)).max(initial=0)) / largest
    return found
