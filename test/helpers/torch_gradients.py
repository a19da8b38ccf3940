"""`populus.vjp` on models that torch exported, against torch's gradients in f64, as test/data/torch_models/make.py wrote them.

python test/helpers/torch_gradients.py FOLDER [PART-OF-A-NAME ..]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

import populus

Array = NDArray[Any]
FOLDER = Path(__file__).parents[1] / "data/torch_models"
TOLERANCE = 1e-4  # relative to the largest element of a gradient
NOISE = 1e-6  # relative to the largest element of all: below it is rounding, where a gradient is 0 by a symmetry


def problems(path: Path, **options: Any) -> list[str]:
    """What differs, a phrase for each; empty where the output and all gradients agree. `options` are those of vjp."""
    with np.load(path.with_name(f"{path.stem.split('-')[0]}.npz")) as file:
        oracle: dict[str, Array] = dict(file)
    graph = onnx.load(path).graph  # pyright: ignore[reportUnknownMemberType]
    types = {i.name: onnx.helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type) for i in graph.input}
    wrt = [name.removeprefix("gradient:") for name in oracle if name.startswith("gradient:")]
    outputs, gradients = populus.vjp(path, wrt, **options).run(
        {name: oracle[f"input:{name}"].astype(type) for name, type in types.items()}, {"output": oracle["cotangent"]}
    )
    pairs = {"output": (outputs["output"], oracle["output"])}
    pairs.update({f"the gradient of {name}": (gradients[name], oracle[f"gradient:{name}"]) for name in wrt})
    noise = NOISE * max(float(np.abs(e).max(initial=0)) for _, e in pairs.values())
    return [text for what, (found, expected) in pairs.items() if (text := _difference(what, found, expected, noise))]


def _difference(what: str, found: Array, expected: Array, noise: float) -> str:
    if found.shape != expected.shape:
        return f"{what} is {list(found.shape)}, torch's {list(expected.shape)}"
    size, error = float(np.abs(expected).max(initial=0)), float(np.abs(found - expected).max(initial=0))
    return "" if error <= TOLERANCE * size + noise else f"{what} differs by {error:.3g} of {size:.3g}"


def main(folder: Path, parts: list[str]) -> None:
    paths = [p for p in sorted(folder.glob("*.onnx")) if not parts or any(part in p.name for part in parts)]
    good = 0
    for path in paths:
        try:
            wrong = "; ".join(problems(path))
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        good += not wrong
        if wrong:
            print(f"{path.stem}: {wrong}"[:400], flush=True)
    print(f"{good} of {len(paths)} agree")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
