"""The table of `popart` ops: for each, programs of one op with inputs to run it on, from which `test_ops.py` gets its tests.

    for case in cases():
        case.id, case.module(), case.inputs

A new op adds rows. `test_every_op_has_a_row` finds one that has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr, TensorType, bf16, f16, f32, f64, i1, i32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from populus.dialects import popart
from populus.dialects.popart.base import PopartOp
from populus.dialects.support.diagnostics import named
from populus.dialects.support.element_types import element_of, ui8

Array = NDArray[Any]
F = np.float32


@dataclass(frozen=True)
class Case:
    """One op on given arrays.

    `onnx`: the ONNX op and attributes that compute the same, with `more` as its further inputs, by `onnx.reference` or where
    that one is wrong (LRN's channels, ConvTranspose's groups, negative pads; onnx 1.23) by `oracle`.
    """

    id: str
    op: type[PopartOp]
    arrays: Sequence[Array | None]
    properties: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tolerance: float = 1e-5
    onnx: tuple[str, Mapping[str, Any]] | None = None
    more: Sequence[Array] = ()
    oracle: str = "onnx.reference"
    gradient: bool = True  # False: not differentiable at (or near) these inputs, or it has none

    @property
    def inputs(self) -> dict[str, Array]:
        """By the names of the function's arguments."""
        return {f"x{i}": a for i, a in enumerate(self.arrays) if a is not None}

    def module(self, dtype: np.dtype[Any] | None = None) -> ModuleOp:
        """`func.func @main` of the op; with `dtype`, float operands are of that type."""
        types = {name: a.dtype if dtype is None or not is_float(a) else dtype for name, a in self.inputs.items()}
        block = Block(arg_types=[TensorType(element_of(types[name]), list(a.shape)) for name, a in self.inputs.items()])
        values = iter(block.args)
        op = self.op(*(None if a is None else next(values) for a in self.arrays), **self.properties)
        op.location = named(self.id)
        block.add_ops([op, ReturnOp(*op.results)])
        function = FuncOp("main", ([a.type for a in block.args], [r.type for r in op.results]), Region(block))
        function.attributes["input_names"] = ArrayAttr([StringAttr(name) for name in self.inputs])
        function.attributes["output_names"] = ArrayAttr([StringAttr("y")])
        return ModuleOp([function])


def is_float(a: Array) -> bool:
    """ml_dtypes' floats too."""
    return a.dtype.kind not in "biu"


def cases() -> Iterator[Case]:
    """Every case of the table. Inputs are the same at each call."""
    for rows in (_unary, _binary, _logic, _activations, _reductions, _rearranging, _products, _windows, _norms, _random, _collectives):
        yield from rows(np.random.default_rng(7))


Generator = np.random.Generator


def _floats(g: Generator, *shape: int, low: float = -3, high: float = 3) -> Array:
    return g.uniform(low, high, shape).astype(F)


def _apart(g: Generator, *shape: int) -> Array:
    """Floats that differ by 0.05 at least, none within 0.02 of 0: away from the kinks and ties of max and relu."""
    n = int(np.prod(shape))
    return ((g.permutation(n) - n // 2) * 0.05 + 0.025).astype(F).reshape(shape)


# name -> class, interval, ONNX op (None: the class name), whether it has a gradient there
_UNARY: list[tuple[type[PopartOp], float, float, bool]] = [
    (popart.AbsOp, -3, 3, True),
    (popart.AcosOp, -0.9, 0.9, True),
    (popart.AcoshOp, 1.2, 4, True),
    (popart.AsinOp, -0.9, 0.9, True),
    (popart.AsinhOp, -3, 3, True),
    (popart.AtanOp, -3, 3, True),
    (popart.AtanhOp, -0.9, 0.9, True),
    (popart.CeilOp, -3, 3, False),
    (popart.CosOp, -3, 3, True),
    (popart.CoshOp, -3, 3, True),
    (popart.ErfOp, -3, 3, True),
    (popart.ExpOp, -3, 3, True),
    (popart.FloorOp, -3, 3, False),
    (popart.LogOp, 0.2, 4, True),
    (popart.NegOp, -3, 3, True),
    (popart.ReciprocalOp, 0.3, 3, True),
    (popart.RoundOp, -3, 3, False),
    (popart.SignOp, -3, 3, False),
    (popart.SinOp, -3, 3, True),
    (popart.SinhOp, -3, 3, True),
    (popart.SqrtOp, 0.2, 4, True),
    (popart.TanOp, -1.2, 1.2, True),
]


def _unary(g: Generator) -> Iterator[Case]:
    for op, low, high, gradient in _UNARY:
        name = op.name.removeprefix("popart.")
        yield Case(name, op, [_floats(g, 3, 5, low=low, high=high)], onnx=(op.__name__.removesuffix("Op"), {}), gradient=gradient)
    halves = np.array([-2.5, -1.5, -0.5, -0.0, 0.5, 1.5, 2.5], F)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], F)
    yield Case("round_halves", popart.RoundOp, [halves], onnx=("Round", {}), gradient=False)
    yield Case("sign_special", popart.SignOp, [special], onnx=("Sign", {}), gradient=False)
    yield Case("abs_int", popart.AbsOp, [np.array([-5, 0, 7], np.int32)], onnx=("Abs", {}))
    yield Case("exp_scalar", popart.ExpOp, [np.array(0.5, F)], onnx=("Exp", {}))
    yield Case("exp_half", popart.ExpOp, [_floats(g, 7).astype(np.float16)], tolerance=2e-3, onnx=("Exp", {}), gradient=False)
    yield Case("bit_cast", popart.BitCastOp, [special], {"to": i32}, gradient=False)
    for op in (popart.DetachOp, popart.Expm1Op, popart.Log1pOp):
        yield Case(op.name.removeprefix("popart."), op, [_floats(g, 3, 5, low=-0.9)], gradient=op is not popart.DetachOp)
    labels = np.array([0, 3, 1], np.int32)
    yield Case("nll", popart.NllOp, [_floats(g, 3, 4, low=0.1), labels])
    yield Case("nll_of_logarithms", popart.NllOp, [_floats(g, 3, 4), labels], {"logarithms": True})
    yield Case("atan2", popart.Atan2Op, [_apart(g, 3, 5), _apart(g, 5)])
    yield Case("is_nan", popart.IsNanOp, [special], onnx=("IsNaN", {}))
    yield Case("is_inf", popart.IsInfOp, [special], onnx=("IsInf", {}))
    yield Case("is_inf_negative", popart.IsInfOp, [special], {"detect_positive": False}, onnx=("IsInf", {"detect_positive": 0}))
    yield Case("is_inf_positive", popart.IsInfOp, [special], {"detect_negative": False}, onnx=("IsInf", {"detect_negative": 0}))
    none = {"detect_negative": False, "detect_positive": False}
    yield Case("is_inf_none", popart.IsInfOp, [special], none, onnx=("IsInf", {"detect_negative": 0, "detect_positive": 0}))
    x = np.array([-2.7, -1.5, -0.2, 0.0, 0.9, 2.7], F)
    yield Case("cast_to_int", popart.CastOp, [x], {"to": i32}, onnx=("Cast", {"to": 6}))
    yield Case("cast_to_bool", popart.CastOp, [x], {"to": i1}, onnx=("Cast", {"to": 9}))
    yield Case("cast_to_half", popart.CastOp, [x], {"to": f16}, onnx=("Cast", {"to": 10}), gradient=False)
    yield Case("cast_to_bfloat", popart.CastOp, [x], {"to": bf16}, onnx=("Cast", {"to": 16}), gradient=False)
    yield Case("cast_to_double", popart.CastOp, [x], {"to": f64}, onnx=("Cast", {"to": 11}))
    yield Case("cast_from_bool", popart.CastOp, [x > 0], {"to": f32}, onnx=("Cast", {"to": 1}))
    yield Case("cast_wraps", popart.CastOp, [np.array([300, -1, 5], np.int32)], {"to": ui8}, onnx=("Cast", {"to": 2}))


def _binary(g: Generator) -> Iterator[Case]:
    for op in (popart.AddOp, popart.SubOp, popart.MulOp, popart.DivOp, popart.MaxOp, popart.MinOp):
        name, onnx = op.name.removeprefix("popart."), (op.__name__.removesuffix("Op"), {})
        yield Case(name, op, [_apart(g, 4, 3, 5), _apart(g, 3, 1) + F(0.011)], onnx=onnx)
        yield Case(f"{name}_scalar", op, [np.array(1.26, F), _apart(g, 6)], onnx=onnx)
        ints = g.integers(-40, 40, (5, 4), dtype=np.int32), g.integers(1, 9, (4,), dtype=np.int32)
        yield Case(f"{name}_int", op, ints, onnx=None if op is popart.DivOp else onnx)
    yield Case("div_towards_zero", popart.DivOp, [np.array([-7, 7, -7, 7], np.int32), np.array([2, 2, -2, -2], np.int32)])
    yield Case("add_wraps", popart.AddOp, [np.array([250, 3], np.uint8), np.array([10, 4], np.uint8)], onnx=("Add", {}))
    nans = np.array([np.nan, 1, np.inf], F), np.array([0, np.nan, 2], F)
    yield Case("max_nan", popart.MaxOp, nans, onnx=("Max", {}), gradient=False)
    yield Case("min_nan", popart.MinOp, nans, onnx=("Min", {}), gradient=False)
    yield Case("pow", popart.PowOp, [_floats(g, 3, 4, low=0.3), _floats(g, 4)], onnx=("Pow", {}))
    yield Case("pow_int_exponent", popart.PowOp, [_floats(g, 5), np.array([0, 1, 2, 3, -1], np.int64)], onnx=("Pow", {}))
    yield Case("pow_int", popart.PowOp, [np.array([2, -3, 0, 5], np.int32), np.array([10, 3, 0, 1], np.int32)], onnx=("Pow", {}))
    yield Case("pow_int_float", popart.PowOp, [np.array([4, 9, 2], np.int32), np.array([0.5, 0.5, 3], F)], onnx=("Pow", {}))
    a, b = np.array([-7, 7, -7, 7, 6, 0], np.int32), np.array([3, 3, -3, -3, 3, 5], np.int32)
    yield Case("mod", popart.ModOp, [a, b], onnx=("Mod", {}))
    yield Case("mod_c", popart.ModOp, [a, b], {"fmod": True}, onnx=("Mod", {"fmod": 1}))
    yield Case("mod_unsigned", popart.ModOp, [np.array([7, 200], np.uint8), np.array([4, 9], np.uint8)], onnx=("Mod", {}))
    yield Case("mod_float", popart.ModOp, [a.astype(F) + F(0.3), b.astype(F)], {"fmod": True}, onnx=("Mod", {"fmod": 1}))


def _logic(g: Generator) -> Iterator[Case]:
    p, q = np.array([True, True, False, False]), np.array([True, False, True, False])
    for op in (popart.AndOp, popart.OrOp, popart.XorOp):
        yield Case(op.name.removeprefix("popart."), op, [p, q], onnx=(op.__name__.removesuffix("Op"), {}))
    yield Case("not", popart.NotOp, [p], onnx=("Not", {}))
    a, b = g.integers(-3, 3, (4, 3), dtype=np.int32), g.integers(-3, 3, (3,), dtype=np.int32)
    for op in (popart.EqualOp, popart.GreaterOp, popart.GreaterOrEqualOp, popart.LessOp, popart.LessOrEqualOp):
        name, onnx = op.name.removeprefix("popart."), (op.__name__.removesuffix("Op"), {})
        yield Case(name, op, [a, b], onnx=onnx)
        yield Case(f"{name}_float", op, [a.astype(F), b.astype(F)], onnx=onnx)
    yield Case("equal_bool", popart.EqualOp, [p, q], onnx=("Equal", {}))
    for op in (popart.BitwiseAndOp, popart.BitwiseOrOp, popart.BitwiseXorOp):
        name = op.name.removeprefix("popart.")
        yield Case(name, op, [a, b], onnx=(op.__name__.removesuffix("Op"), {}))
    yield Case("bitwise_not", popart.BitwiseNotOp, [a], onnx=("BitwiseNot", {}))
    u, by = np.array([1, 128, 255], np.uint8), np.array([1, 1, 3], np.uint8)
    yield Case("bit_shift_left", popart.BitShiftOp, [u, by], {"left": True}, onnx=("BitShift", {"direction": "LEFT"}))
    yield Case("bit_shift_right", popart.BitShiftOp, [u, by], {"left": False}, onnx=("BitShift", {"direction": "RIGHT"}))
    yield Case("where", popart.WhereOp, [p, _floats(g, 3, 4), _floats(g, 3, 1)], onnx=("Where", {}))
    yield Case("where_int", popart.WhereOp, [p, np.arange(4), -np.arange(4)], onnx=("Where", {}))
    yield Case("where_bool", popart.WhereOp, [p, q, ~q], onnx=("Where", {}))


_ACTIVATIONS: list[tuple[type[PopartOp], Mapping[str, float]]] = [
    (popart.CeluOp, {"alpha": 2.0}),
    (popart.EluOp, {"alpha": 0.5}),
    (popart.EluOp, {"alpha": -0.5}),
    (popart.HardSigmoidOp, {"alpha": 0.5, "beta": 0.6}),
    (popart.HardSwishOp, {}),
    (popart.LeakyReluOp, {"alpha": 0.1}),
    (popart.LeakyReluOp, {"alpha": 0.0}),
    (popart.LeakyReluOp, {"alpha": -0.5}),
    (popart.MishOp, {}),
    (popart.ReluOp, {}),
    (popart.SeluOp, {}),
    (popart.SeluOp, {"alpha": 2.0, "gamma": 3.0}),
    (popart.ShrinkOp, {"lambd": 1.5, "bias": 1.5}),
    (popart.SigmoidOp, {}),
    (popart.SoftplusOp, {}),
    (popart.SoftsignOp, {}),
    (popart.SwishOp, {"alpha": 1.5}),
    (popart.TanhOp, {}),
    (popart.ThresholdedReluOp, {"alpha": 1.01}),
]


def _activations(g: Generator) -> Iterator[Case]:
    for op, properties in _ACTIVATIONS:
        id = "_".join([op.name.removeprefix("popart."), *(f"{v:g}" for v in properties.values())])
        yield Case(id, op, [_apart(g, 9, 11)], properties, onnx=(op.__name__.removesuffix("Op"), properties))
    large = np.array([-200, -90, -20, 20, 90, 200], F)
    yield Case("softplus_large", popart.SoftplusOp, [large], gradient=False)
    yield Case("sigmoid_large", popart.SigmoidOp, [large], onnx=("Sigmoid", {}), gradient=False)
    yield Case("gelu", popart.GeluOp, [_apart(g, 9, 11)], onnx=("Gelu", {}))
    yield Case("gelu_tanh", popart.GeluOp, [_apart(g, 9, 11)], {"tanh": True}, onnx=("Gelu", {"approximate": "tanh"}))
    yield Case("prelu", popart.PReluOp, [_apart(g, 2, 3, 4), _floats(g, 3, 1)], onnx=("PRelu", {}))
    yield Case("shrink_int", popart.ShrinkOp, [np.arange(-3, 4, dtype=np.int32)], {"lambd": 1.5}, onnx=("Shrink", {"lambd": 1.5}))
    yield Case("relu_int", popart.ReluOp, [np.arange(-3, 4, dtype=np.int32)], onnx=("Relu", {}))


_REDUCTIONS: list[tuple[type[PopartOp], str]] = [
    (popart.ReduceL1Op, "ReduceL1"),
    (popart.ReduceL2Op, "ReduceL2"),
    (popart.ReduceLogSumOp, "ReduceLogSum"),
    (popart.ReduceLogSumExpOp, "ReduceLogSumExp"),
    (popart.ReduceMaxOp, "ReduceMax"),
    (popart.ReduceMeanOp, "ReduceMean"),
    (popart.ReduceMinOp, "ReduceMin"),
    (popart.ReduceProdOp, "ReduceProd"),
    (popart.ReduceSumOp, "ReduceSum"),
    (popart.ReduceSumSquareOp, "ReduceSumSquare"),
]


def _reductions(g: Generator) -> Iterator[Case]:
    for op, onnx in _REDUCTIONS:
        name = op.name.removeprefix("popart.")
        x = (
            np.abs(_apart(g, 3, 4, 5)) + F(0.01) * np.arange(60, dtype=F).reshape(3, 4, 5)
            if op is popart.ReduceLogSumOp
            else _apart(g, 3, 4, 5)
        )
        for axes, keep in (((1,), True), ((0, 2), False), ((0, 1, 2), True)):
            id = f"{name}_{''.join(map(str, axes))}{'_keep' if keep else ''}"
            more = [np.array(axes, np.int64)]
            properties = {"axes": axes, "keep": keep}
            yield Case(id, op, [x], properties, onnx=(onnx, {"keepdims": int(keep)}), more=more, tolerance=2e-5)
        if "log" not in name:  # ONNX leaves logarithms of integers open
            agrees = None if op is popart.ReduceSumSquareOp else (onnx, {"keepdims": 0})  # onnx.reference gives int64
            ints = g.integers(1, 9, (3, 4), dtype=np.int32)
            yield Case(f"{name}_int", op, [ints], {"axes": (1,)}, onnx=agrees, more=[np.array([1])])
        if op not in (popart.ReduceMaxOp, popart.ReduceMinOp):
            empty = np.zeros((2, 0, 3), F)
            yield Case(f"{name}_empty", op, [empty], {"axes": (1,)}, onnx=(onnx, {"keepdims": 0}), more=[np.array([1])], gradient=False)
        yield Case(f"{name}_none", op, [_apart(g, 4) ** 2], {"axes": ()})
    half = _floats(g, 4, 200, low=0, high=400).astype(np.float16)
    yield Case("reduce_mean_half", popart.ReduceMeanOp, [half], {"axes": (1,)}, tolerance=2e-3, gradient=False)
    yield Case("reduce_l2_half", popart.ReduceL2Op, [half], {"axes": (1,)}, tolerance=2e-3, gradient=False)
    infinite = np.array([[-np.inf, -np.inf], [np.inf, 1], [1000, 1000]], F)
    yield Case("reduce_log_sum_exp_infinite", popart.ReduceLogSumExpOp, [infinite], {"axes": (1,)}, gradient=False)
    yield Case("reduce_max_nan", popart.ReduceMaxOp, [np.array([[1, np.nan], [2, 3]], F)], {"axes": (1,)}, gradient=False)
    yield Case("reduce_prod_zeros", popart.ReduceProdOp, [np.array([[0, 2, 3], [0, 0, 3], [1, 2, 3]], F)], {"axes": (1,)})
    p = np.array([[True, False], [False, False], [True, True]])
    yield Case("reduce_max_bool", popart.ReduceMaxOp, [p], {"axes": (1,)}, onnx=("ReduceMax", {"keepdims": 0}), more=[np.array([1])])
    yield Case("reduce_min_bool", popart.ReduceMinOp, [p], {"axes": (1,)}, onnx=("ReduceMin", {"keepdims": 0}), more=[np.array([1])])


def _rearranging(g: Generator) -> Iterator[Case]:
    x = _floats(g, 3, 4, 5)
    yield Case("reshape", popart.ReshapeOp, [x], {"shape": (5, -1)}, onnx=("Reshape", {}), more=[np.array([5, -1])])
    yield Case("reshape_scalar", popart.ReshapeOp, [x[:1, :1, 0]], {"shape": ()}, onnx=("Reshape", {}), more=[np.array([], np.int64)])
    yield Case("transpose", popart.TransposeOp, [x], {"permutation": (2, 0, 1)}, onnx=("Transpose", {"perm": [2, 0, 1]}))
    yield Case("expand", popart.ExpandOp, [x[:, :1]], {"shape": (2, 1, 4, 1)}, onnx=("Expand", {}), more=[np.array([2, 1, 4, 1])])
    yield Case("concat", popart.ConcatOp, [x, x[:, :2], x[:, :1]], {"axis": 1}, onnx=("Concat", {"axis": 1}))
    yield Case("concat_one", popart.ConcatOp, [x], {"axis": 0}, onnx=("Concat", {"axis": 0}))
    bounds = {"begins": (0, 3, 4), "ends": (3, 0, -1), "steps": (2, -1, -3)}
    yield Case("slice", popart.SliceOp, [x], bounds)
    yield Case("slice_all", popart.SliceOp, [x], {"begins": (0, 0, 0), "ends": (3, 4, 5), "steps": (1, 1, 1)})
    yield Case("slice_empty", popart.SliceOp, [x], {"begins": (1, 0, 0), "ends": (1, 4, 5), "steps": (1, 1, 1)}, gradient=False)
    around = {"lower": (1, -1, 2), "upper": (0, 2, -3)}
    pads = np.array([1, -1, 2, 0, 2, -3])
    yield Case("pad", popart.PadOp, [x, None], around, onnx=("Pad", {}), more=[pads], oracle="onnxruntime")
    yield Case("pad_value", popart.PadOp, [x, np.array(1.5, F)], around)
    positive, mixed = {"lower": (2, 0, 1), "upper": (0, 3, 4)}, {"lower": (2, -1, 1), "upper": (0, 1, -2)}
    for mode in ("reflect", "edge"):
        pads = np.array([2, 0, 1, 0, 3, 4])
        yield Case(f"pad_{mode}", popart.PadOp, [x, None], {**positive, "mode": mode}, onnx=("Pad", {"mode": mode}), more=[pads])
        yield Case(f"pad_{mode}_crop", popart.PadOp, [x, None], {**mixed, "mode": mode})
    yield Case("tile", popart.TileOp, [x], {"repeats": (2, 1, 3)}, onnx=("Tile", {}), more=[np.array([2, 1, 3])])
    indices = np.array([[0, -1], [2, 1]])
    yield Case("gather", popart.GatherOp, [x, indices], {"axis": 1}, onnx=("Gather", {"axis": 1}))
    rows, at, new = _floats(g, 5, 2), np.array([3, 0, 4]), _floats(g, 3, 2)
    yield Case("scatter", popart.ScatterOp, [rows, at, new], {"reduction": "set"})
    yield Case("scatter_again", popart.ScatterOp, [rows, np.array([3, 0, 3]), new], {"reduction": "set"}, gradient=False)
    for reduction in ("add", "mul", "min", "max"):
        case = f"scatter_{reduction}"
        yield Case(case, popart.ScatterOp, [rows, np.array([3, 0, 3]), new], {"reduction": reduction}, gradient=reduction == "add")
    ties = np.array([[1, 3, 2, 3], [0, np.inf, -np.inf, 0]], F)
    yield Case("top_k", popart.TopKOp, [ties], {"k": 3, "largest": True}, gradient=False)
    yield Case("top_k_smallest", popart.TopKOp, [ties], {"k": 2, "largest": False}, gradient=False)
    yield Case("gather_scalar", popart.GatherOp, [x, np.array(-2)], {"axis": 0}, onnx=("Gather", {"axis": 0}))


def _products(g: Generator) -> Iterator[Case]:
    shapes = {
        "matrices": ((3, 4), (4, 5)), "rows": ((2, 3, 4), (4, 5)), "batch": ((2, 3, 4), (2, 4, 5)), "left_vector": ((4,), (2, 4, 5)),
        "right_vector": ((2, 3, 4), (4,)), "vectors": ((4,), (4,)), "broadcast": ((2, 1, 3, 4), (5, 4, 2)), "one": ((3, 4), (2, 4, 5)),
        "one_right": ((2, 3, 4), (1, 4, 5)), "lifted": ((3, 4), (1, 1, 4, 5)),
    }  # fmt: skip
    for name, (a, b) in shapes.items():
        yield Case(f"matmul_{name}", popart.MatMulOp, [_floats(g, *a), _floats(g, *b)], onnx=("MatMul", {}))
    ints = g.integers(-9, 9, (2, 3), dtype=np.int32), g.integers(-9, 9, (3, 4), dtype=np.int32)
    yield Case("matmul_int", popart.MatMulOp, ints, onnx=("MatMul", {}))
    halves = _floats(g, 3, 40).astype(np.float16), _floats(g, 40, 2).astype(np.float16)
    yield from _quantized(g)
    yield from _packed()
    yield Case("matmul_half", popart.MatMulOp, halves, tolerance=5e-3, gradient=False)
    yield Case("gemm", popart.GemmOp, [_floats(g, 3, 4), _floats(g, 4, 5), _floats(g, 5)], onnx=("Gemm", {}))
    scaled = {"alpha": 0.5, "beta": 2.0}
    for ta, tb in ((True, False), (False, True), (True, True)):
        a, b = _floats(g, *((4, 3) if ta else (3, 4))), _floats(g, *((5, 4) if tb else (4, 5)))
        onnx = ("Gemm", {**scaled, "transA": int(ta), "transB": int(tb)})
        yield Case(f"gemm_{ta:d}{tb:d}", popart.GemmOp, [a, b, _floats(g, 3, 1)], {**scaled, "trans_a": ta, "trans_b": tb}, onnx=onnx)
    yield Case("gemm_plain", popart.GemmOp, [_floats(g, 3, 4), _floats(g, 4, 5)], {"alpha": 0.25}, onnx=("Gemm", {"alpha": 0.25}))
    q, k, v, mask = _floats(g, 2, 3, 4, 5), _floats(g, 2, 3, 6, 5), _floats(g, 2, 3, 6, 2), _floats(g, 4, 6)
    onnx = ("Attention", {"scale": 0.5})
    yield Case("attention", popart.AttentionOp, [q, k, v], {"scale": 0.5}, onnx=onnx, tolerance=1e-4)
    yield Case("attention_masked", popart.AttentionOp, [q, k, v, mask], {"scale": 0.5}, onnx=onnx, tolerance=1e-4)
    few = k[:, :, :2], v[:, :, :2]
    yield Case("attention_few_keys", popart.AttentionOp, [q, *few], {"scale": 0.5}, onnx=onnx, tolerance=1e-4)


def _window(strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int], group: int | None = None) -> dict[str, Any]:
    properties: dict[str, Any] = {"strides": tuple(strides), "pads": tuple(pads), "dilations": tuple(dilations)}
    return properties if group is None else {**properties, "group": group}


def _packed() -> Iterator[Case]:
    g = np.random.default_rng(5)
    codes, scales, x = g.integers(0, 256, (6, 3, 8), np.uint8), _floats(g, 6, 3, low=0.1), _floats(g, 2, 3, 40)
    for name, zeros in (("bytes", g.integers(0, 16, (6, 3), np.uint8)), ("floats", _floats(g, 6, 3, low=0, high=15))):
        yield Case(f"packed_matmul_{name}", popart.PackedMatMulOp, [x, codes, scales, zeros], {"bits": 4}, gradient=False)


def _quantized(g: Generator) -> Iterator[Case]:
    a, b = g.integers(0, 256, (2, 3, 7), np.uint8), g.integers(-64, 65, (7, 5), np.int8)  # of 7 bits: see `WEIGHTS` of contrib_models
    yield Case("integer_matmul", popart.IntegerMatMulOp, [a, b], onnx=("MatMulInteger", {}))
    x, w = g.integers(-128, 128, (2, 6, 5, 5), np.int8), g.integers(-128, 128, (4, 3, 3, 3), np.int8)
    window = {"strides": (2, 1), "pads": (1, 0, 1, 2), "dilations": (1, 1), "group": 2}
    yield Case("integer_conv", popart.IntegerConvOp, [x, w], window)
    scale, zero = g.uniform(0.1, 2, (5, 1)).astype(F), g.integers(-9, 9, (5, 1), np.int8)
    yield Case("dequantize", popart.DequantizeOp, [x, scale, zero])
    yield Case("quantize", popart.QuantizeOp, [20 * _floats(g, 2, 5, 3), scale, zero], gradient=False)


def _windows(g: Generator) -> Iterator[Case]:
    convolutions: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
        "plain": ((2, 3, 5, 6), (4, 3, 3, 3), _window((1, 1), (0, 0, 0, 0), (1, 1), 1)),
        "strided": ((1, 2, 7, 6), (4, 2, 3, 2), _window((2, 3), (1, 0, 2, 1), (1, 1), 1)),
        "dilated": ((1, 2, 8, 7), (3, 2, 2, 3), _window((1, 2), (1, 1, 1, 1), (3, 2), 1)),
        "groups": ((2, 4, 5, 5), (6, 2, 3, 3), _window((1, 1), (1, 1, 1, 1), (1, 1), 2)),
        "depthwise": ((1, 3, 5, 5), (3, 1, 3, 3), _window((2, 2), (1, 1, 1, 1), (1, 1), 3)),
        "1d": ((2, 3, 9), (2, 3, 4), _window((2,), (2, 1), (1,), 1)),
        "3d": ((1, 2, 4, 3, 4), (2, 2, 2, 2, 2), _window((1, 1, 2), (0, 1, 0, 0, 0, 1), (1, 1, 1), 1)),
    }
    for name, (x, w, properties) in convolutions.items():
        onnx = ("Conv", {**properties, "kernel_shape": w[2:]})
        yield Case(f"conv_{name}", popart.ConvOp, [_floats(g, *x), _floats(g, *w), _floats(g, w[0])], properties, onnx=onnx, tolerance=1e-4)
    x, w, properties = convolutions["plain"]
    yield Case("conv_no_bias", popart.ConvOp, [_floats(g, *x), _floats(g, *w)], properties, onnx=("Conv", properties), tolerance=1e-4)
    transposed: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
        "plain": ((1, 3, 4, 3), (3, 2, 3, 3), {**_window((1, 1), (0, 0, 0, 0), (1, 1), 1), "output_padding": (0, 0)}),
        "strided": ((2, 2, 3, 4), (2, 3, 3, 2), {**_window((2, 3), (1, 0, 0, 1), (1, 1), 1), "output_padding": (1, 2)}),
        "dilated": ((1, 2, 4, 3), (2, 2, 2, 3), {**_window((2, 1), (1, 1, 1, 1), (3, 2), 1), "output_padding": (0, 0)}),
        "groups": ((1, 4, 3, 3), (4, 3, 3, 3), {**_window((2, 2), (1, 1, 1, 1), (1, 1), 2), "output_padding": (0, 1)}),
        "cropped": ((1, 2, 4, 4), (2, 1, 2, 2), {**_window((2, 2), (2, 3, 2, 1), (1, 1), 1), "output_padding": (0, 0)}),
        "1d": ((2, 3, 4), (3, 2, 3), {**_window((2,), (1, 1), (1,), 1), "output_padding": (1,)}),
    }
    for name, (x, w, properties) in transposed.items():
        arrays = [_floats(g, *x), _floats(g, *w), _floats(g, w[1] * properties["group"])]
        onnx = ("ConvTranspose", {**properties, "kernel_shape": w[2:]})
        yield Case(f"conv_transpose_{name}", popart.ConvTransposeOp, arrays, properties, onnx=onnx, tolerance=1e-4, oracle="onnxruntime")
    pools: dict[str, tuple[tuple[int, ...], dict[str, Any], bool]] = {
        "plain": ((2, 3, 6, 4), {"kernel": (2, 2), **_window((2, 2), (0, 0, 0, 0), (1, 1))}, False),
        "padded": ((1, 2, 5, 6), {"kernel": (3, 3), **_window((2, 1), (1, 1, 1, 1), (1, 1))}, False),
        "dilated": ((1, 2, 7, 8), {"kernel": (3, 2), **_window((1, 2), (1, 0, 2, 1), (2, 3))}, False),
        "ceil": ((1, 2, 6, 7), {"kernel": (3, 3), **_window((2, 2), (0, 1, 0, 0), (1, 1))}, True),
        "1d": ((2, 2, 8), {"kernel": (3,), **_window((3,), (1, 1), (1,))}, True),
    }
    for name, (x, properties, ceil) in pools.items():
        attributes = {"kernel_shape": properties["kernel"], "ceil_mode": int(ceil)} | {k: v for k, v in properties.items() if k != "kernel"}
        properties = {**properties, "ceil": ceil}
        yield Case(f"max_pool_{name}", popart.MaxPoolOp, [_apart(g, *x)], properties, onnx=("MaxPool", attributes))
        yield Case(f"average_pool_{name}", popart.AveragePoolOp, [_floats(g, *x)], properties, onnx=("AveragePool", attributes))
        counted = ("AveragePool", {**attributes, "count_include_pad": 1})
        properties = {**properties, "count_padding": True}
        yield Case(f"average_pool_{name}_counted", popart.AveragePoolOp, [_floats(g, *x)], properties, onnx=counted)
    bytes_ = g.integers(-99, 99, (1, 1, 4, 4), dtype=np.int8)
    yield Case(
        "max_pool_int",
        popart.MaxPoolOp,
        [bytes_],
        pools["padded"][1],
        onnx=("MaxPool", {"kernel_shape": (3, 3), **_window((2, 1), (1, 1, 1, 1), (1, 1))}),
    )
    for size in (1, 3, 4):
        properties = {"size": size, "alpha": 0.5, "beta": 0.75, "bias": 2.0}
        onnx = ("LRN", properties) if size % 2 else None  # onnxruntime refuses even sizes
        yield Case(f"lrn_{size}", popart.LrnOp, [_floats(g, 2, 7, 3, 2)], properties, onnx=onnx, oracle="onnxruntime")


def _norms(g: Generator) -> Iterator[Case]:
    x = _floats(g, 2, 6, 3, 4)
    scale, bias, mean, variance = _floats(g, 6), _floats(g, 6), _floats(g, 6), _floats(g, 6, low=0.3)
    onnx = ("BatchNormalization", {"epsilon": 0.01})
    yield Case("batch_norm", popart.BatchNormOp, [x, scale, bias, mean, variance], {"epsilon": 0.01}, onnx=onnx)
    yield Case("batch_norm_2d", popart.BatchNormOp, [x[:, :, 0, 0], scale, bias, mean, variance], onnx=("BatchNormalization", {}))
    yield Case("batch_variance", popart.BatchVarianceOp, [x, x.mean((0, 2, 3))], gradient=False)  # none flows to the mean
    halves = x.astype(np.float16), x.mean((0, 2, 3)).astype(np.float16)
    yield Case("batch_variance_half", popart.BatchVarianceOp, halves, tolerance=2e-3, gradient=False)
    floats = x.astype(np.float16), x.mean((0, 2, 3))
    yield Case("batch_variance_half_float", popart.BatchVarianceOp, floats, tolerance=1e-5, gradient=False)
    yield Case("instance_norm", popart.InstanceNormOp, [x, scale, bias], onnx=("InstanceNormalization", {}), tolerance=1e-4)
    for groups in (1, 2, 6):
        onnx = ("GroupNormalization", {"num_groups": groups})
        yield Case(f"group_norm_{groups}", popart.GroupNormOp, [x, scale, bias], {"groups": groups}, onnx=onnx, tolerance=1e-4)
    last, tail = _floats(g, 4), _floats(g, 3, 4)
    yield Case("layer_norm", popart.LayerNormOp, [x, last, last[::-1].copy()], {"axis": 3}, onnx=("LayerNormalization", {}), tolerance=1e-4)
    yield Case("layer_norm_2", popart.LayerNormOp, [x, tail], {"axis": 2}, onnx=("LayerNormalization", {"axis": 2}), tolerance=1e-4)
    for axis, factors in ((3, last), (2, tail)):
        onnx = ("RMSNormalization", {"axis": axis, "epsilon": 0.01})
        yield Case(f"rms_norm_{axis}", popart.RmsNormOp, [x, factors], {"axis": axis, "epsilon": 0.01}, onnx=onnx)
    half = x.astype(np.float16), last.astype(np.float16)
    yield Case("rms_norm_half", popart.RmsNormOp, half, {"axis": 3}, tolerance=2e-3, gradient=False)
    for axis in (0, 1, 3):
        yield Case(f"softmax_{axis}", popart.SoftmaxOp, [x], {"axis": axis}, onnx=("Softmax", {"axis": axis}))
        yield Case(f"log_softmax_{axis}", popart.LogSoftmaxOp, [x], {"axis": axis}, onnx=("LogSoftmax", {"axis": axis}))
    large = np.array([[1000, 1001, -1000]], F)
    yield Case("softmax_large", popart.SoftmaxOp, [large], {"axis": 1}, onnx=("Softmax", {"axis": 1}), gradient=False)
    half = _floats(g, 3, 7).astype(np.float16)
    yield Case("softmax_half", popart.SoftmaxOp, [half], {"axis": 1}, tolerance=2e-3, gradient=False)


def _random(g: Generator) -> Iterator[Case]:
    seed = np.array([1, 2], np.uint32)
    for distribution, a, b in (("uniform", -1.0, 3.0), ("normal", 1.0, 0.5), ("bernoulli", 0.3, 0.0)):
        properties = {"distribution": distribution, "a": a, "b": b, "stream": 5, "shape": (4, 100)}
        yield Case(f"random_{distribution}", popart.RandomOp, [seed], properties)


def _collectives(g: Generator) -> Iterator[Case]:
    """Of a group of one replica; `runtime/test_replicas.py` has groups of several."""
    x = g.normal(size=(4, 3)).astype(F)
    for reduction in ("add", "mean", "square_add", "max", "min"):
        yield Case(f"all_reduce_{reduction}", popart.AllReduceOp, [x], {"reduction": reduction, "size": 1})
    yield Case("all_reduce_mul", popart.AllReduceOp, [x], {"reduction": "mul", "size": 1}, gradient=False)
    yield Case("all_reduce_or", popart.AllReduceOp, [x > 0], {"reduction": "or", "size": 1}, gradient=False)
    yield Case("all_gather", popart.AllGatherOp, [x], {"size": 1})
    yield Case("all_gather_shared", popart.AllGatherOp, [x], {"size": 1, "shared": True})
    yield Case("reduce_scatter", popart.ReduceScatterOp, [x], {"size": 1})
    yield Case("reduce_scatter_local", popart.ReduceScatterOp, [x], {"size": 1, "reduction": "local"})
    yield Case("broadcast", popart.BroadcastOp, [x], {"size": 1})
    yield Case("all_to_all", popart.AllToAllOp, [x], {"size": 1})
    yield Case("barrier", popart.BarrierOp, [x], {"size": 1})
    yield Case("replica_index", popart.ReplicaIndexOp, [], {"size": 1})
