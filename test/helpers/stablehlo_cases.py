"""Small programs of StableHLO, with inputs: name -> (text of @main's lines, inputs).

A program's arguments are `%a`, `%b`, ..; their types are those of the inputs, and the last line's text after `->` is the result's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
NAMES = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "int16": "i16", "int32": "i32",
    "int64": "i64", "uint8": "ui8", "uint16": "ui16", "uint32": "ui32", "uint64": "ui64",
}  # fmt: skip


def type_of(array: Array) -> str:
    """Gives the MLIR type of an array."""
    return "tensor<" + "".join(f"{n}x" for n in array.shape) + NAMES[array.dtype.name] + ">"


def program(body: str, arrays: Sequence[Array]) -> str:
    """Makes a module: `body` ends with a line `return %x : type`."""
    arguments = ", ".join(f"%{chr(97 + i)}: {type_of(a)}" for i, a in enumerate(arrays))
    results = body.rstrip().rpartition("\n")[2].rpartition(" : ")[2]
    return f"func.func @main({arguments}) -> ({results}) {{\n{body}\n}}\n"


def draw(*shape: int, dtype: Any = np.float32, low: float = -4, high: float = 4) -> Array:
    """Draws an array, the same for the same shape."""
    random = np.random.default_rng(len(shape) + sum(shape))
    if np.dtype(dtype).kind in "iu":
        low = max(low, np.iinfo(dtype).min)
        return random.integers(int(low), int(high) + 1, shape).astype(dtype)
    return random.uniform(low, high, shape).astype(dtype)


def at(*values: int) -> Array:
    """Makes indices."""
    return np.array(values, np.int32)


def scalar(value: float) -> Array:
    """Makes a tensor of one element without dimensions."""
    return np.array(value, np.float32)


def unary(name: str, x: Array) -> tuple[str, list[Array]]:
    t = type_of(x)
    return f"%0 = stablehlo.{name} %a : {t}\nreturn %0 : {t}", [x]


def binary(name: str, x: Array, y: Array) -> tuple[str, list[Array]]:
    t = type_of(x)
    return f"%0 = stablehlo.{name} %a, %b : {t}\nreturn %0 : {t}", [x, y]


X, POSITIVE, WHOLE = draw(3, 5), draw(3, 5, low=0.1)[::-1].copy(), draw(3, 5, dtype=np.int32, low=-100, high=100)
BITS = np.array([0, 1, 2, 3, 255, 4096, 2**31 - 1, 2**32 - 1], np.uint32)
EDGES = np.array([0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 3e9, -3e9, 0.0, -0.0], np.float32)
SIMPLE = [
    "abs",
    "cbrt",
    "ceil",
    "cosine",
    "exponential",
    "exponential_minus_one",
    "floor",
    "logistic",
    "negate",
    "sign",
    "sine",
    "tan",
    "tanh",
]
TWO = ["add", "atan2", "divide", "maximum", "minimum", "multiply", "remainder", "subtract"]
SHIFTS = np.array([0, 1, 7, 8, 31, 32, 33, 200], np.uint32)

ROWS: list[Array] = [draw(5, 3), np.array([[1], [4], [1], [7]], np.int32), draw(4, 3)]  # 7 is outside

INPUTS: dict[str, list[Array]] = {
    "clamp": [scalar(-1), X, POSITIVE],
    "compare_total_order": [np.array([-0.0, 0.0, np.nan, -np.inf], np.float32), np.array([0.0, -0.0, np.inf, np.nan], np.float32)],
    "select": [X, POSITIVE],
    "is_finite": [np.array([1, np.inf, -np.inf, np.nan], np.float32)],
    "reduce_precision": [np.array([1.2345, 1000000.0, -1e-06, np.inf, np.nan, 0.0703125], np.float32)],
    "convert_f32_i8": [X],
    "convert_i32_bf16": [WHOLE],
    "bitcast_wider": [np.arange(8, dtype=np.uint8).reshape(2, 4)],
    "bitcast_narrower": [BITS],
    "iota": [np.zeros((2, 3), np.int32)],
    "reshape": [X],
    "broadcast_in_dim": [draw(1, 3)],
    "transpose": [draw(2, 3, 4)],
    "slice": [X],
    "pad": [X, scalar(7)],
    "concatenate": [X, POSITIVE],
    "reverse": [X],
    "dot_general": [draw(2, 3, 4), draw(4, 2, 5)],
    "dot_general_i8": [draw(3, 4, dtype=np.int8, low=-128, high=127), draw(4, 2, dtype=np.int8, low=-128, high=127)],
    "convolution": [draw(2, 5, 6, 4), draw(3, 2, 2, 6)],
    "convolution_batch_groups": [draw(4, 6, 3), draw(2, 3, 4)],
    "compare_EQ": [WHOLE, np.where(WHOLE > 0, WHOLE, 3).astype(np.int32)],
    "compare_NE": [WHOLE, np.where(WHOLE > 0, WHOLE, 3).astype(np.int32)],
    "compare_LT": [WHOLE, np.where(WHOLE > 0, WHOLE, 3).astype(np.int32)],
    "compare_LE": [WHOLE, np.where(WHOLE > 0, WHOLE, 3).astype(np.int32)],
    "compare_GT": [WHOLE, np.where(WHOLE > 0, WHOLE, 3).astype(np.int32)],
    "compare_GE": [WHOLE, np.where(WHOLE > 0, WHOLE, 3).astype(np.int32)],
    "reduce_any_region": [draw(7, 2, dtype=np.int32, low=0, high=99), at(0).reshape(())],
    "reduce_arg_max": [draw(3, 5), scalar(-np.inf)],
    "select_and_scatter": [draw(4, 6), draw(4, 3), scalar(0.5)],
    "sort": [np.round(draw(6, 4)), np.arange(24, dtype=np.int32).reshape(6, 4)],
    "sort_by_bits": [draw(6, 4)],
    "map": [draw(3, 5), draw(3, 5) + 1],
    "gather": [draw(4, 3, 5), np.array([[0, 0], [3, 3], [4, 1], [-2, 2], [9, 9], [1, -7]], np.int32)],
    "gather_batching": [draw(3, 5), np.array([[1], [4], [0]], np.int32)],
    "dynamic_slice": [draw(3, 5), at(1).reshape(()), at(7).reshape(())],
    "dynamic_update_slice": [draw(3, 5), draw(2, 5), at(-4).reshape(()), at(0).reshape(())],
    "scatter_set": [ROWS[0], np.array([[1], [4], [0], [7]], np.int32), ROWS[2]],
    "scatter_any_region": ROWS,
    "scatter_windows": [draw(5, 6), at(3, 2), draw(2, 3)],
    "scatter_windows_that_are_partly_outside": [draw(5, 6), np.array([[4, 1], [-1, 0], [0, 4], [3, 3]], np.int32), draw(4, 2, 3)],
    "rng_three_fry": [np.array([3, 2**63 + 5], np.uint64)],
    "triangular_solve": [np.tril(draw(4, 4, low=1, high=2)), draw(4, 2)],
    "tuple": [draw(3), draw(2)],
    "complex": [draw(3, 5), draw(3, 5) + 0.3],
    "fft": [draw(2, 6)],
    "reduce_add": [draw(2, 3, 4), scalar(0.5)],
    "reduce_multiply": [draw(2, 3, 4), scalar(0.5)],
    "reduce_maximum": [draw(2, 3, 4), scalar(0.5)],
    "reduce_window_add_3": [draw(12, 5), scalar(0)],
    "reduce_window_add_11": [draw(12, 5), scalar(0)],
    "reduce_window_maximum_3": [draw(12, 5), scalar(-np.inf)],
    "reduce_window_maximum_11": [draw(12, 5), scalar(-np.inf)],
    "while_0": [draw(3), at(0).reshape(())],
    "while_3": [draw(3), at(3).reshape(())],
    "case_0": [at(0).reshape(()), draw(3)],
    "case_1": [at(1).reshape(()), draw(3)],
    "case_2": [at(2).reshape(()), draw(3)],
    "case_-1": [at(-1).reshape(()), draw(3)],
    "case_9": [at(9).reshape(()), draw(3)],
    "scatter_add": ROWS,
    "scatter_multiply": ROWS,
    "scatter_maximum": ROWS,
    "complex_extremes": [np.array([3e38, -3e38, 2.0, 3.0], np.float32), np.array([2e38, 1.0, -3e38, -4.0], np.float32)],
}
TEXTS = dict(part.split("\n", 1) for part in (Path(__file__).parent / "stablehlo_programs.txt").read_text().split("\n## ")[1:])
assert TEXTS.keys() == INPUTS.keys(), TEXTS.keys() ^ INPUTS.keys()

CASES: dict[str, tuple[str, list[Array]]] = {
    **{name: unary(name, X) for name in SIMPLE},
    **{f"{name}_f64": unary(name, X.astype(np.float64)) for name in ("cbrt", "logistic", "tanh")},
    **{f"{name}_bf16": unary(name, X.astype(ml_dtypes.bfloat16)) for name in ("exponential", "tanh", "negate")},
    **{name: unary(name, POSITIVE) for name in ("log", "log_plus_one", "rsqrt", "sqrt")},
    **{name: unary(name, EDGES) for name in ("round_nearest_afz", "round_nearest_even")},
    **{name: unary(name, BITS) for name in ("popcnt", "count_leading_zeros", "not")},
    "popcnt_i8": unary("popcnt", np.array([0, -1, 127, -128], np.int8)),
    **{name: binary(name, X, draw(3, 5, low=-3, high=3)) for name in TWO},
    **{f"{name}_i32": binary(name, WHOLE, draw(3, 5, dtype=np.int32, low=1, high=9)) for name in TWO if name != "atan2"},
    **{name: binary(name, BITS, BITS[::-1].copy()) for name in ("and", "or", "xor")},
    **{name: binary(name, BITS, SHIFTS) for name in ("shift_left", "shift_right_logical", "shift_right_arithmetic")},
    "shift_right_arithmetic_i32": binary("shift_right_arithmetic", BITS.view(np.int32), SHIFTS.view(np.int32)),
    "power": binary("power", POSITIVE, draw(3, 5, low=-3, high=3)),
    "power_i32": binary("power", WHOLE, draw(3, 5, dtype=np.int32, low=0, high=4)),
    **{name: (TEXTS[name], arrays) for name, arrays in INPUTS.items()},
}
