"""The spread of a program's results over random orders of summation.

A program is deterministic: the IR states partial sums and their order, so any order of vertices gives the same bits.
A machine that adds in another order is equally correct. The spread estimates the distance of its results.
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
    """Runs `@main` at the popops level once for each seed, with the elements of every reduction in a random order.

    `inputs` are in the order of `@main`'s arguments; `names` are those of its results. Gives the results by name for
    each seed. Raises PopulusError for a call, because functions are not entered.
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
    """Computes, for each result, the largest range of an element over all runs, relative to the largest element.

    It is 0 if all runs are equal bit for bit.
    """
    spreads: dict[str, float] = {}
    for name in results[0]:
        arrays = np.stack([r[name].astype(np.float64) for r in results])
        largest = float(np.abs(arrays).max(initial=0)) or 1.0
        spreads[name] = float((arrays.max(0) - arrays.min(0)).max(initial=0)) / largest
    return spreads
