"""Nets on meshes: results of the native and the strict engine beside the host's, and the memory that a program takes.

    python -m benchmarks.mesh_nets [NAME ...]

Nine nets of the onnx package with random weights, a layer of BERT-base and a step of decoding, for n150 and p150. A difference is the
largest, over the largest element of the result. `strict` checks one vertex of each family. Prints a row for each net and machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

import populus
from benchmarks.models import LIGHT, cached_layer, randomised, transformer

NETS = ("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19", "zfnet512")
MACHINES = ("n150", "p150")


def _net(name: str) -> Callable[[], onnx.ModelProto]:
    return lambda: randomised(LIGHT / f"light_{name}.onnx")


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    **{name: _net(name) for name in NETS},
    "bert_layer": transformer,
    "decoding_step": cached_layer,
}


def difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> float:
    """Computes the largest difference of results over the largest element of each."""
    return max(float(np.abs(found[name] - w).max() / max(np.abs(w).max(), 1e-30)) for name, w in wanted.items())


def row(name: str, machine: str, model: onnx.ModelProto, inputs: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Compiles a net for a machine, runs it on both engines, and formats the row."""
    native = populus.compile(model, target=machine, engine="native", narrow=True, cache=False)
    strict = populus.compile(model, target=machine, engine="strict", sample=1, narrow=True, cache=False)
    far = [difference(program.run(inputs), wanted) for program in (native, strict)]
    summary = native.profile().summary
    assert summary["fits"], (name, machine)
    kept = sum(op.type.bytes for op in outside(native))
    return f"| {name} | {machine} | {far[0]:.1e} | {far[1]:.1e} | {summary['peak_tile_bytes']:,} | {kept:,} | {summary['cycles']:,} |"


def outside(program: populus.Program) -> list[Any]:
    """Lists the variables and constants that wait in DRAM."""
    from populus.dialects.poplar import StorageOp
    from populus.runtime.session import graph_of

    return [op for op in graph_of(program.module("poplar")).walk() if isinstance(op, StorageOp) and op.outside is not None]


def main(arguments: list[str]) -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(description="nets on meshes beside the host")
    parser.add_argument("names", nargs="*", metavar="NAME", help="nets (all)")
    names = parser.parse_args(arguments).names or list(MODELS)
    if unknown := [n for n in names if n not in MODELS]:
        parser.error(f"no net '{unknown[0]}'; there are {', '.join(MODELS)}")
    print("| net | machine | native | strict | bytes of the fullest core | bytes in DRAM | cycles |\n|---|---|---|---|---|---|---|")
    for name in names:
        model = MODELS[name]()
        host = populus.compile(model, engine="numpy", cache=False)
        inputs = host.signature.random()
        wanted = host.run(inputs)
        for machine in MACHINES:
            print(row(name, machine, model, inputs, wanted), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
