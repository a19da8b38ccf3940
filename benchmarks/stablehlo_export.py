"""ONNX models as StableHLO: exports nets, runs them by XLA and by tile programs, and prints how far the results are apart.

    python -m benchmarks.stablehlo_export [NET ..]

Nets are the nine of onnx's wheel with random weights, and layers of BERT and GPT (`benchmarks/models.py`).
"""

# pyright: basic
from __future__ import annotations

import sys
import time

import numpy as np

import populus
from benchmarks.models import MODELS, NETS
from populus.compare import xla
from populus.tools.export import stablehlo

MEASURED = (*NETS, "bert_layer", "gpt_layer", "bert_12")


def main() -> None:
    print("| net | ops | text MB | export s | differs by |\n|---|---|---|---|---|")
    for name in sys.argv[1:] or MEASURED:
        model = MODELS[name]()
        begun = time.process_time()
        text = "".join(stablehlo(model, cache=False))
        seconds = time.process_time() - begun
        program = populus.compile(model, cache=False)
        inputs = program.signature.random(0)
        found, wanted = list(program.run(inputs).values()), xla.run(text, list(inputs.values()))
        apart = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(found, wanted, strict=True))
        print(f"| {name} | {text.count('stablehlo.')} | {len(text) / 1e6:.1f} | {seconds:.1f} | {apart:.0e} |", flush=True)


if __name__ == "__main__":
    main()
