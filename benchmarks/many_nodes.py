"""Programs of many nodes, results and constants: seconds and memory for each, from a model to its results.

    python -m benchmarks.many_nodes                       the table of docs/reliability.md
    python -m benchmarks.many_nodes results pieces --counts 250 2000
    python -m benchmarks.many_nodes --calls               calls of functions, of Python and of C, instead of seconds

Each program has its own process, which compiled a small one before. Seconds are of the processor, on the engine `numpy`.
"""

# pyright: basic
from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from cProfile import Profile

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import populus

Arrays = dict[str, NDArray[np.float32]]


def model(nodes: list[NodeProto], inputs: dict[str, int], outputs: dict[str, int], constants: Arrays | None = None) -> ModelProto:
    """Makes a model of f32 vectors, given by their lengths."""
    given, made = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, [n]) for name, n in end.items()] for end in (inputs, outputs))
    held = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "many", given, made, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def numbers(n: int) -> Arrays:
    """Makes n constants, no two of them equal."""
    return {f"c{i}": np.array([i, 1, 2, 3], np.float32) for i in range(n)}


def chain(n: int) -> ModelProto:
    """Makes a chain of ReLUs."""
    return model([helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(n)], {"v0": 4}, {f"v{n}": 4})


def mixed_chain(n: int) -> ModelProto:
    """Makes a chain of four functions in turn."""
    ops = ("Sin", "Tanh", "Abs", "Neg")
    return model([helper.make_node(ops[i % 4], [f"v{i}"], [f"v{i + 1}"]) for i in range(n)], {"v0": 4}, {f"v{n}": 4})


def results(n: int) -> ModelProto:
    """Makes n results, a product each."""
    nodes = [helper.make_node("Mul", ["x", f"c{i}"], [f"y{i}"]) for i in range(n)]
    return model(nodes, {"x": 4}, {f"y{i}": 4 for i in range(n)}, numbers(n))


def constants(n: int) -> ModelProto:
    """Makes a chain of sums, with a constant each."""
    return model([helper.make_node("Add", [f"v{i}", f"c{i}"], [f"v{i + 1}"]) for i in range(n)], {"v0": 4}, {f"v{n}": 4}, numbers(n))


def pieces(n: int) -> ModelProto:
    """Makes one node of n results."""
    return model([helper.make_node("Split", ["x"], [f"y{i}" for i in range(n)], num_outputs=n)], {"x": n}, {f"y{i}": 1 for i in range(n)})


def joined(n: int) -> ModelProto:
    """Makes n vectors, whose steps become one, and joins them."""
    nodes = [helper.make_node("Mul", ["x", f"c{i}"], [f"p{i}"]) for i in range(n)]
    return model([*nodes, helper.make_node("Concat", [f"p{i}" for i in range(n)], ["y"], axis=0)], {"x": 4}, {"y": 4 * n}, numbers(n))


def parted(n: int) -> ModelProto:
    """Splits a vector into n, which one node joins."""
    names = [f"p{i}" for i in range(n)]
    nodes = [helper.make_node("Split", ["x"], names, num_outputs=n), helper.make_node("Concat", names, ["y"], axis=0)]
    return model(nodes, {"x": n}, {"y": n})


KINDS: dict[str, tuple[str, Callable[[int], ModelProto]]] = {
    "chain": ("a chain of ReLUs", chain),
    "results": ("a product for each result", results),
    "constants": ("a sum with a constant for each node", constants),
    "pieces": ("pieces of a Split", pieces),
}


def measure(kind: str, n: int, calls: bool) -> str:
    """Compiles and runs a program of n in this process; gives milliseconds and KiB for each, or calls."""

    def run(model: ModelProto) -> None:
        program = populus.compile(model, engine="numpy")
        program.run(program.signature.random())

    run(chain(4))
    run(KINDS[kind][1](4))
    model = KINDS[kind][1](n)
    if calls:
        with Profile() as profile:
            run(model)
        return f"{sum(row.callcount for row in profile.getstats()) / n:,.0f}"
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    run(model)
    seconds, after = time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return f"{1000 * seconds / n:.2f} ({(after - before) / n:.1f})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a row for each kind of program, and a column for each count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", default=list(KINDS), metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--counts", nargs="*", type=int, default=[250, 2000, 20000])
    parser.add_argument("--calls", action="store_true", help="count calls of functions")
    parser.add_argument("--one", action="store_true", help="measure in this process")
    args = parser.parse_args(arguments)
    if args.one:
        print(measure(args.kinds[0], args.counts[0], args.calls))
        return
    heading = "calls a node" if args.calls else "ms a node (KiB a node)"
    print(f"| {heading} | {' | '.join(f'{n:,}' for n in args.counts)} |\n|---|{'---|' * len(args.counts)}")
    for kind in args.kinds:
        command = [sys.executable, "-m", "benchmarks.many_nodes", kind, "--one", *["--calls"] * args.calls, "--counts"]
        cells = [subprocess.run([*command, str(n)], capture_output=True, text=True, check=True).stdout.strip() for n in args.counts]
        print(f"| {KINDS[kind][0]} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
