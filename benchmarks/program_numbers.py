"""Compares what public programs compute with formulas in NumPy: `python benchmarks/program_numbers.py FOLDER [-k WORD]`.

FOLDER holds a copy of the public repository graphcore/popart, as for `programs.py`. Each program of the table runs as it is, in a process
of its own, as `populus run-program` runs it; then its variables hold its inputs and its results. Prints, for each, the largest difference
from the formula, relative to the largest element. Exit 1 if one is above the tolerance of its type.
"""

from __future__ import annotations

import argparse
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
Names: TypeAlias = dict[str, Any]
Pairs: TypeAlias = list[tuple[Any, Any]]
TOLERANCES = {"f": {4: 1e-6, 2: 4e-3}, "i": {1: 0.0, 4: 0.0}}
"""By kind and bytes of an element; halves of a few steps, each rounded."""


def _stored(g: Names) -> Any:
    """Gives what a program stores by the stream that most of them call o_d2h."""
    return g["outputs"][g["o_d2h"]]


def _loaded(g: Names) -> Any:
    return g["inputs"][g["input"]]


def _linear(g: Names) -> Pairs:
    x = _loaded(g)
    return [(_stored(g), x @ g["W_data"] + g["b_data"]), (g["outputs"][g["grad_d2h"]], x.T @ np.ones((2, 2), np.float32))]


def _weights(g: Names) -> Pairs:
    """Gives a step of SGD on a net of one layer, from weights of ones; the other session has its weights, and biases of ones."""

    def probabilities(x: Any, w: Any) -> Any:
        e = np.exp(np.maximum(x @ w + 1, 0))
        return e / e.sum()

    x, label = g["trainingData"].astype(np.float64), int(g["trainingDataLabels"][0])
    trained = 1 - 0.001 * x.T @ (probabilities(x, np.ones((2, 2))) - np.eye(2)[[label]])
    held = g["weights"][g["w"]]
    inferred = probabilities(g["interenceData"].astype(np.float64), held.astype(np.float64))[0, int(g["interenceDataLabels"][0])]
    return [(held, trained), (np.ravel(g["inferenceAnchors"][g["o"]]), -np.log([inferred]))]


# By program: the pairs of a result and what it should be, of the program's variables.
CHECKS: dict[str, Callable[[Names], Pairs]] = {
    "popxl/files/autodiff.py": _linear,
    "popxl/files/basic_graph.py": lambda g: [(_stored(g), _loaded(g) + 1)],
    "popxl/files/call_with_info.py": lambda g: [(_stored(g), 2)],
    "popxl/files/create_multi_graphs_from_same_func.py": lambda g: [(_stored(g), 2 * _loaded(g).sum(axis=1))],
    "popxl/files/in_sequence.py": lambda g: [(_stored(g), 5)],
    "popxl/files/multi_call_graph_input.py": lambda g: [(_stored(g), _loaded(g) + 3)],
    "popxl/files/multi_callsites_of_a_graph.py": lambda g: [(_stored(g), _loaded(g) + 3)],
    "popxl/files/remote_rts_var.py": lambda g: [(g["final_weight"], [4, 6])],
    "popxl/files/remote_variable.py": lambda g: [(g["outputs"][g["y_d2h"]], 3), (g["final_weight"], 3)],
    "popxl/files/remote_variable_replica_grouped.py": lambda g: [
        (g["sess"].get_tensor_data(g["remote_v"]), np.arange(64).reshape(2, 32) + 1),
    ],
    "popxl/files/repeat_graph_0.py": lambda g: [(_stored(g), np.full((2, 2), 3))],
    "popxl/files/repeat_graph_2.py": lambda g: [(g["y_data"], g["x_data"] @ np.ones((2, 2)) + 1)],
    "popxl/files/rts_var.py": lambda g: [(g["final_weight"], [4, 6])],
    "popxl/files/simple_addition.py": lambda g: [
        (_stored(g), g["data_a"] + g["data_b"]),
        (g["run_output"][g["o_d2h"]], g["data_a"] + g["data_b"]),
    ],
    "popxl/files/tensor_addition.py": lambda g: [(_stored(g), 4)],
    "popxl/files/tensor_get_write.py": lambda g: [(_stored(g), 4), (g["session"].get_tensor_data(g["a"]), 5)],
    "popart/files/simple_addition.py": lambda g: [(np.ravel(g["anchors"][g["o"]]), g["data_a"] + g["data_b"])],
    "popart/files/weights.py": _weights,
}


def compared(found: Any, right: Any) -> tuple[float, float]:
    """Gives the largest difference of a result, relative to the largest element, and the most that its type may have."""
    result, expected = np.asarray(found), np.asarray(right, np.float64)
    assert result.shape == expected.shape, f"shape {result.shape}; expected {expected.shape}"
    difference = np.abs(result.astype(np.float64) - expected).max() / np.abs(expected).max()
    return float(difference), TOLERANCES[result.dtype.kind.replace("u", "i")][result.dtype.itemsize]


def inner(path: Path, name: str) -> int:
    """Runs a program in this process, and compares its results."""
    from populus.aliases import installed
    from populus.tools.run_program import as_main

    np.random.seed(0)
    with installed(), as_main(path, []):
        names = runpy.run_path(str(path), run_name="__main__")
        found = [compared(*pair) for pair in CHECKS[name](names)]
    print(f"{max(difference for difference, _ in found):.2g}")
    return int(any(not difference <= most for difference, most in found))


def main() -> int:
    """Prints a line for each program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repositories", type=Path)
    parser.add_argument("-k", default="", help="only programs whose name holds this")
    args = parser.parse_args()
    agree, chosen = 0, [name for name in CHECKS if args.k in name]
    for name in chosen:
        path = (args.repositories / "popart/docs" / name).resolve()
        done = subprocess.run(
            [sys.executable, __file__, "--inner", str(path), name], cwd=path.parent, capture_output=True, text=True, check=False
        )
        agree += done.returncode == 0
        last = (done.stdout if done.returncode == 0 else done.stdout + done.stderr).strip().splitlines()[-1:]
        print(f"{'agrees ' if done.returncode == 0 else 'DIFFERS'} {name}: {' '.join(last)}", flush=True)
    print(f"{agree} of {len(chosen)} agree with their formulas")
    return int(agree < len(chosen))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    if sys.argv[1:2] == ["--inner"]:
        raise SystemExit(inner(Path(sys.argv[2]), sys.argv[3]))
    raise SystemExit(main())
