"""make validate: every pass of the nine nets, of a transformer layer and of training steps, with results before and after it.

    python -m benchmarks.validation             # all
    python -m benchmarks.validation resnet50 mlp

A line for each: how many passes were compared on how many kinds of inputs, or the alarm. The status is 1 after an alarm.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence

import populus
from benchmarks.judging import judged
from benchmarks.models import LIGHT, NETS, conv_net, mlp, randomised, transformer
from benchmarks.spread import check_spread
from populus.compare.validation import ENGINE, validating
from populus.training.session import TrainingSession


def net(name: str) -> Callable[[], None]:
    """Makes the compilation of a net."""
    return lambda: _compile(populus.compile, randomised(LIGHT / f"light_{name}.onnx", logits=True))


def _compile(compile: Callable[..., object], model: object) -> None:
    compile(model, tiles=16, engine="numpy")


CASES: dict[str, Callable[[], None]] = {
    **{name: net(name) for name in NETS},
    "bert layer": lambda: _compile(populus.compile, transformer(batch=1, sequence=32)),
    "training step of mlp": lambda: _train(mlp()),
    "training step of conv_net": lambda: _train(conv_net()),
}


def _train(model: object) -> None:
    session = TrainingSession(model, loss="cross_entropy", optimizer="sgd", tiles=16, engine="numpy")  # pyright: ignore[reportArgumentType]
    assert session is not None


def judge(name: str) -> tuple[bool, str]:
    """Compares the passes of a case. Raises PopulusError for an alarm."""
    with validating() as passes, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        CASES[name]()
    check_spread(passes.outputs, name)
    kinds = [kinds for name, kinds in passes.compared if name != ENGINE]
    native = dict(passes.compared).get(ENGINE, 0)
    return True, f"{len(kinds)} passes keep their results, on {max(kinds)} kinds of inputs, and {ENGINE} on {native}"


def main(names: Sequence[str]) -> int:
    """Prints a line for each case. Gives 0 if there is no alarm."""
    return judged(names or CASES, judge)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
