"""Exports nets.py with torch's exporters and writes torch's gradients beside them.

    python test/data/torch_models/make.py test/data/torch_models      in an environment that has torch, onnx and onnxscript

For each net and exporter a `NAME-EXPORTER-OPSET.onnx`, and for each net a `NAME.npz` with inputs (`input:NAME`), the output and its
cotangent, and the gradients of inputs and parameters (`gradient:NAME`).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import onnx
import torch

sys.path.insert(0, str(Path(__file__).parent))
from nets import NETS

BROKEN = {("graph_scatter_max", "script")}  # what comes out is no valid model: onnxruntime refuses it too
OPSETS = {"script": (13, 14, 15, 16, 17, 18, 19, 20), "dynamo": (18, 19, 20, 21, 22, 23)}


def made(name: str, double: bool):
    """A net with its inputs in f32, or the same values in f64."""
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(zlib.crc32(name.encode()))
    module, inputs = NETS[name]()
    with torch.no_grad():
        for p in module.parameters():
            if p.ndim == 1:  # exporters share initializers of equal values, such as the ones and zeros of norms
                p.add_(0.3 * torch.randn(p.shape))
    if not double:
        return module.eval(), inputs
    torch.set_default_dtype(torch.float64)
    return module.eval().double(), tuple(v.double() if v.is_floating_point() else v for v in inputs)


def export(module, inputs, path: Path, exporter: str, opset: int) -> None:
    """Writes the model, without what says where in torch it comes from, which is most of a small file."""
    names = [f"input{i}" for i in range(len(inputs))]
    dynamo = exporter == "dynamo"
    options = {"external_data": False, "optimize": False} if dynamo else {"do_constant_folding": False}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, inputs, str(path), input_names=names, output_names=["output"], opset_version=opset, dynamo=dynamo, **options
        )
    model = onnx.load(path)
    del model.graph.value_info[:], model.metadata_props[:], model.graph.metadata_props[:]
    for f in model.functions:
        del f.value_info[:], f.metadata_props[:]
    for node in [*model.graph.node, *(n for f in model.functions for n in f.node)]:
        del node.metadata_props[:]
        node.doc_string = ""
    onnx.save(model, path)


def oracle(module, inputs, path: Path) -> None:
    """Writes inputs, the output with its cotangent, and gradients, of f64 rounded to f32."""
    given = [i.detach().clone().requires_grad_(i.is_floating_point()) for i in inputs]
    y = module(*given)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float32).double()
    y.backward(g)
    arrays = {f"input:input{i}": v.detach() for i, v in enumerate(given)}
    arrays |= {f"gradient:input{i}": v.grad for i, v in enumerate(given) if v.grad is not None}
    arrays |= {f"gradient:{n}": torch.zeros(p.shape) if p.grad is None else p.grad for n, p in module.named_parameters()}
    arrays |= {"cotangent": g, "output": y.detach()}
    np.savez_compressed(path, **{n: a.float().numpy() if a.is_floating_point() else a.numpy() for n, a in arrays.items()})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--net", nargs="*", default=list(NETS))
    parser.add_argument("--exporter", nargs="*", default=list(OPSETS))
    parser.add_argument("--all", action="store_true", help="every opset; one of them for each net without it")
    parser.add_argument("--double", action="store_true", help="export in f64; f32 without it, while the gradients are of f64 in any case")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(args.net):
        oracle(*made(name, True), args.folder / f"{name}.npz")
        for exporter in (e for e in args.exporter if (name, e) not in BROKEN):
            opsets = OPSETS[exporter]
            for opset in opsets if args.all else opsets[number % len(opsets) :] + opsets[: number % len(opsets)]:
                path = args.folder / f"{name}-{exporter}-{opset}.onnx"
                try:
                    export(*made(name, args.double), path, exporter, opset)
                except Exception as error:
                    path.unlink(missing_ok=True)
                    print(f"{name}: {exporter} {opset}: torch cannot export it: {str(error).splitlines()[0][:150]}", flush=True)
                else:
                    if not args.all:
                        break


if __name__ == "__main__":
    main()
