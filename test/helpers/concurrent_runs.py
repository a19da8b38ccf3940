"""Several threads at the same thing, and small models for them: products, windows, rows, loops, tables, strings, random numbers."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper, parser

T = TypeVar("T")
Arrays = dict[str, NDArray[Any]]

THREADS = 16
PATIENCE = 300  # seconds, after which threads count as waiting for each other for ever


@contextmanager
def switching(seconds: float = 1e-6) -> Generator[None, None, None]:
    """The interpreter goes from thread to thread as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def together(work: Callable[[int], T], threads: int = THREADS) -> list[T]:
    """What `work(i)` gives in each of some threads, which begin at the same moment. Raises what one of them raises."""
    begin = threading.Barrier(threads)
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def one(i: int) -> None:
        try:
            begin.wait(PATIENCE)
            results[i] = work(i)
        except BaseException as error:
            errors.append(error)

    team = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(threads)]
    with switching():
        for thread in team:
            thread.start()
        for thread in team:
            thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in team), "threads wait for each other"
    if errors:
        raise errors[0]
    return [results[i] for i in range(threads)]


def same(found: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]]) -> bool:
    """Whether two results are the same to the bit."""
    return found.keys() == expected.keys() and all(
        found[n].dtype == e.dtype
        and found[n].shape == e.shape
        and (bool((found[n] == e).all()) if e.dtype == object else found[n].tobytes() == e.tobytes())
        for n, e in expected.items()
    )


def model(text: str, **weights: NDArray[Any]) -> onnx.ModelProto:
    """A model of ONNX's text, with these initializers."""
    made = parser.parse_model(f'<ir_version: 9, opset_import: ["": 20]> {text}')
    made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return made


def _weights(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def models() -> dict[str, onnx.ModelProto]:
    """Models by name; each takes some microseconds to run."""
    return {
        "product": model("net (float[8,16] x) => (float[8,16] y) { a = MatMul(x, w) b = Relu(a) y = Add(b, x) }", w=_weights(16, 16)),
        "window": model(
            "net (float[1,3,8,8] x) => (float[1,4,1,1] y) { a = Conv<pads = [1,1,1,1]>(x, w) b = Relu(a) y = GlobalAveragePool(b) }",
            w=_weights(4, 3, 3, 3),
        ),
        "rows": model(
            "net (float[6,10] x) => (float[6,10] y, float[6] z) { y = Softmax(x) z = ReduceSum<keepdims = 0>(x, a) }", a=np.array([1])
        ),
        "loop": model(
            """net (float[5] x) => (float[5] y) {
                 y = Loop(n, c, x) <body = one (int64 i, bool go, float[5] s) => (bool on, float[5] t) { on = Identity(go) t = Add(s, s) }>
               }""",
            n=np.array(7),
            c=np.array(True),
        ),
        "table": model("net (int64[4] x) => (float[4,3] y) { y = Gather(w, x) }", w=_weights(9, 3)),
        "strings": model("net (string[4] x, string[4] z) => (string[4] y) { a = StringConcat(x, z) y = StringConcat(a, x) }"),
    }


def inputs_of(program: Any, seed: int) -> Arrays:
    """Inputs that differ from seed to seed, strings too."""
    drawn = program.signature.random(seed)
    return {
        name: np.array([f"{name}{seed}.{i}" for i in range(array.size)], object).reshape(array.shape) if array.dtype == object else array
        for name, array in drawn.items()
    }
