"""Wrong definitions of ops, for `populus check-op`: each is a right one with one text replaced, and the line that is to be said."""

ROWS = '''
import sys
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import TensorType, bf16, f16, f32, f64, i32
from xdsl.irdl import irdl_op_definition, operand_def, result_def

from populus.dialects.expr import Arg
from populus.dialects.popart import calls
from populus.dialects.popart.base import PopartOp
from populus.dialects.poplar.tile_code import Vector, codelet
from populus.dialects.support.constraints import number, tensors, whole
from populus.dialects.support.element_types import element_type_of, shape_of, tensor


@codelet(axes={"x": "row column", "y": "row"})
def total(x: Vector, y: Vector, scale: float) -> None:
    for i in range(len(y)):
        s = 0.0
        for k in range(x.shape[1]):
            s += x[i, k] * x[i, k]
        y[i] = scale * s


@irdl_op_definition
class RowsOp(PopartOp):
    """`y[i] = scale (sum over k of x[i, k]^2)`, x: [rows, columns]. Source: a test."""

    name = "acme.rows"
    EXAMPLES: ClassVar = [([(6, 5)], {})]
    x = operand_def(tensors("T", f16, f32, f64))
    y = result_def(TensorType)
    scale: float = number(1.0)

    def infer(self):
        return [tensor(shape_of(self.x.type)[:1], element_type_of(self.x.type))]

    def evaluate(self, x):
        return [(self.scale * (x.astype(np.float64) ** 2).sum(1)).astype(x.dtype)]

    def lower(self, b):
        return [calls.codelet(b, total, self.x, shape=shape_of(self.y.type), scale=self.scale)]

    def gradient(self, b, grads):
        g = calls.reshape(b, grads[0], (*shape_of(self.y.type), 1))
        return [calls.map(b, Arg(1) * Arg(2) * (2.0 * self.scale), self.x, g)]

    def aliases(self):
        return ()
'''

COUNTED = '''
from xdsl.dialects.builtin import TensorType, i32
from xdsl.irdl import irdl_op_definition, operand_def, result_def

from populus.dialects.expr import Arg
from populus.dialects.popart import calls
from populus.dialects.popart.base import PopartOp
from populus.dialects.support.constraints import tensors


@irdl_op_definition
class CountedOp(PopartOp):
    """`y = x + 2000000`. Source: a test."""

    name = "acme.counted"
    x = operand_def(tensors("T", i32))
    y = result_def(TensorType)

    def infer(self):
        return [self.x.type]

    def evaluate(self, x):
        return [(x + 2_000_000).astype(x.dtype)]

    def lower(self, b):
        return [calls.map(b, Arg(1) + 2_000_000, self.x)]
'''

# (name, the text, what replaces it, what the line says)
WRONG = [
    # members that fail
    (
        "evaluate raises",
        "        return [(self.scale",
        "        raise KeyError('w')\n        return [(self.scale",
        "its `evaluate` raises KeyError: 'w' (own.py:41)",
    ),
    (
        "evaluate ends the process",
        "        return [(self.scale",
        "        sys.exit(0)\n        return [(self.scale",
        "its `evaluate` raises SystemExit: 0 (own.py:41)",
    ),
    (
        "evaluate gives None",
        "        return [(self.scale",
        "        return None\n        return [(self.scale",
        "its `evaluate` gives None; a list of arrays is expected (own.py:40)",
    ),
    (
        "evaluate gives a list",
        "        return [(self.scale",
        "        return [x.tolist()]\n        return [(self.scale",
        "its `evaluate` gives a list for result 0; an array is expected (own.py:40)",
    ),
    ("evaluate gives too much", ".astype(x.dtype)]", ".astype(x.dtype)] * 2", "its `evaluate` gives 2 arrays for 1 results (own.py:40)"),
    (
        "lower raises",
        "        return [calls.codelet(",
        "        raise KeyError('w')\n        return [calls.codelet(",
        "its `lower` raises KeyError: 'w' (own.py:44)",
    ),
    (
        "lower ends the process",
        "        return [calls.codelet(",
        "        sys.exit(3)\n        return [calls.codelet(",
        "its `lower` raises SystemExit: 3 (own.py:44)",
    ),
    (
        "lower calls itself",
        "        return [calls.codelet(",
        "        return self.lower(b)\n        return [calls.codelet(",
        "its `lower` raises RecursionError",
    ),
    (
        "lower gives None",
        "        return [calls.codelet(",
        "        return None\n        return [calls.codelet(",
        "its `lower` gives None; a list of values is expected (own.py:43)",
    ),
    (
        "lower gives its operand",
        "        return [calls.codelet(",
        "        return [self.x]\n        return [calls.codelet(",
        "its lowering gives tensor<6x5xf32>, its results are y: tensor<6xf32>",
    ),
    (
        "lower makes its own op",
        "        return [calls.codelet(",
        "        return [b.insert(RowsOp(self.x, scale=self.scale)).y]\n        return [calls.codelet(",
        "the lowering has no end: acme.rows -> acme.rows",
    ),
    (
        "infer raises",
        "        return [tensor",
        "        raise KeyError('w')\n        return [tensor",
        "example: 'rows': acme.rows: its `infer` raises KeyError: 'w' (own.py:38)",
    ),
    (
        "infer ends the process",
        "        return [tensor",
        "        sys.exit(3)\n        return [tensor",
        "example: 'rows': acme.rows: its `infer` raises SystemExit: 3 (own.py:38)",
    ),
    (
        "gradient raises",
        "        g = calls",
        "        raise KeyError('w')\n        g = calls",
        "gradient: acme.rows: its `gradient` raises KeyError: 'w' (own.py:47)",
    ),
    (
        "gradient ends the process",
        "        g = calls",
        "        sys.exit()\n        g = calls",
        "gradient: acme.rows: its `gradient` raises SystemExit (own.py:47)",
    ),
    (
        "gradient gives None",
        "        return [calls.map(",
        "        return None\n        return [calls.map(",
        "its `gradient` gives None; a list of values, or None, is expected (own.py:46)",
    ),
    (
        "gradient gives too little",
        "        return [calls.map(",
        "        return []\n        return [calls.map(",
        "gradient: gradient gives 0 values for 1 operands",
    ),
    (
        "gradient of another type",
        "        return [calls.map(",
        "        return [grads[0]]\n        return [calls.map(",
        "gradient: the gradient of an operand of tensor<6x5xf64> is tensor<6xf64>",
    ),
    ("aliases raises", "        return ()", "        raise KeyError('w')", "aliases: its `aliases` raises KeyError: 'w' (own.py:51)"),
    (
        "aliases gives None",
        "        return ()",
        "        return None",
        "aliases: its `aliases` gives None; pairs of operand and result are expected (own.py:50)",
    ),
    (
        "aliases gives a number",
        "        return ()",
        "        return [5]",
        "aliases: its `aliases` gives 5; pairs of operand and result are expected (own.py:50)",
    ),
    (
        "aliases of no operand",
        "        return ()",
        "        return [(3, 0)]",
        "aliases: its `aliases` gives (3, 0); the op has 1 operands and 1 results (own.py:50)",
    ),
    (
        "inplace_priority raises",
        "    def aliases(self):",
        "    def inplace_priority(self):\n        raise KeyError('w')\n\n    def aliases(self):",
        "aliases: its `inplace_priority` raises KeyError: 'w' (own.py:51)",
    ),
    (
        "verify_ raises",
        "    def aliases(self):",
        "    def verify_(self):\n        raise KeyError('w')\n\n    def aliases(self):",
        "example: its `verify_` raises KeyError: 'w' (own.py:51)",
    ),
    (
        "codelet reads outside",
        "x[i, k] * x[i, k]",
        "x[i, k] * x[i, k + 1]",
        "own.py:23: codelet total: index 5 of x is outside of the 5 elements of dimension 1",
    ),
    ("codelet divides by 0", "s += x", "s += 1 // (k - k) + x", "own.py:23: codelet total: an integer is divided by 0"),
    ("example of an unknown attribute", "[([(6, 5)], {})]", "[([(6, 5)], {'q': 1})]", "example: 'rows': acme.rows has no attribute 'q'"),
    # values
    (
        "evaluate of another element type",
        ".astype(x.dtype)]",
        "]",
        "its `evaluate` gives [6] of float64 for result 0; `infer` says [6] of float32 (own.py:40)",
    ),
    (
        "evaluate of another shape",
        ".sum(1)",
        ".sum(1, keepdims=True)",
        "its `evaluate` gives [6, 1] of float32 for result 0; `infer` says [6] of float32 (own.py:40)",
    ),
    ("evaluate of other values", "** 2", "** 4", "evaluate: its `evaluate` gives other values than its lowering for y"),
    (
        "evaluate changes its operand",
        "        return [(self.scale",
        "        x[0] = 0\n        return [(self.scale",
        "evaluate: its `evaluate` changes its operand x0 (own.py:40)",
    ),
    ("codelet of other values", "s = 0.0", "s = 1.0", "evaluate: its `evaluate` gives other values than its lowering for y"),
    (
        "evaluate of other values in half",
        "        return [(self.scale",
        "        if x.dtype == np.float16:\n            x = x + x.dtype.type(1)\n        return [(self.scale",
        "half: in float16 popops gives other values than popart for y",
    ),
    (
        "gradient is said to be none",
        "        return [calls.map(",
        "        return [None]\n        return [calls.map(",
        "gradient: the gradient of x0, element",
    ),
    ("gradient without a factor", "(2.0 * self.scale)", "self.scale", "gradient: the gradient of x0, element"),
    # attributes
    (
        "lower without an attribute",
        "scale=self.scale)]",
        "scale=1.0)]",
        "attributes: with 'scale' = 0.5 popops gives other values than popart for y",
    ),
    ("gradient without an attribute", "(2.0 * self.scale)", "2.0", "attributes: with 'scale' = 0.5 the gradient of x0, element"),
    (
        "lower refuses an attribute",
        "        return [calls.codelet(",
        "        assert self.scale == 1.0, 'only 1'\n        return [calls.codelet(",
        "attributes: 'rows': acme.rows: its `lower` raises AssertionError: only 1 (own.py:44)",
    ),
    # gradients of gradients
    (
        "gradient through a constant",
        "self.x, g)]",
        "calls.op(b, 'detach', self.x), g)]",
        "second derivatives: the gradient of the gradient, of x0, element",
    ),
    # memory
    (
        "aliases of unlike sizes",
        "        return ()",
        "        return [(0, 0)]",
        "aliases: its `aliases` gives (0, 0); operand 0 has 120 bytes, result 0 has 24, so they share no memory (own.py:50)",
    ),
    (
        "inplace_priority of no result",
        "    def aliases(self):",
        "    def inplace_priority(self):\n        return [(0, 10.0, 2)]\n\n    def aliases(self):",
        "its `inplace_priority` names operand 0 and result 2; the op has 1 operands and 1 results (own.py:50)",
    ),
    # sizes
    (
        "positions that are not apart",
        "    def aliases(self):",
        "    def independent(self):\n        return [(0, 1, 0, 0)]\n\n    def aliases(self):",
        "its `independent` gives (0, 1, 0, 0); (operand, its dimension, result, its dimension) of one size is expected (own.py:50)",
    ),
    (
        "independent raises",
        "    def aliases(self):",
        "    def independent(self):\n        raise KeyError('w')\n\n    def aliases(self):",
        "sizes: acme.rows: its `independent` raises KeyError: 'w' (own.py:51)",
    ),
    (
        "a neutral element that is none",
        "    def aliases(self):",
        "    def neutral(self):\n        return [(0, 1, 'two')]\n\n    def aliases(self):",
        "its `neutral` gives (0, 1, 'two'); (operand, its dimension, one of zero, one, lowest, highest), or these and a dimension of",
    ),
    (
        "a neutral element of no dimension",
        "    def aliases(self):",
        "    def neutral(self):\n        return [(0, 1, 'zero', 0)]\n\n    def aliases(self):",
        "its `neutral` gives (0, 1, 'zero', 0); (operand, its dimension, one of",
    ),
    (
        "a neutral element that changes the result",
        "    def aliases(self):",
        "    def neutral(self):\n        return [(0, 1, 'one')]\n\n    def aliases(self):",
        "sizes: with the element that its `neutral` gives beyond 4 of 5 positions, result 0 is not that of 4: by up to",
    ),
    (
        "neutral raises",
        "    def aliases(self):",
        "    def neutral(self):\n        raise KeyError('w')\n\n    def aliases(self):",
        "sizes: acme.rows: its `neutral` raises KeyError: 'w' (own.py:51)",
    ),
]

# The op's `evaluate` or `lower` has no end: the row says where it was.
ENDLESS = [
    ("        return [(self.scale", "        while True:\n            pass\n        return [(self.scale", "in its `evaluate` (own.py:4"),
    ("        return [calls.codelet(", "        while True:\n            pass\n        return [calls.codelet(", "in its `lower` (own.py:4"),
    ("        g = calls", "        while True:\n            pass\n        g = calls", "in its `gradient` (own.py:4"),
    ("        return [tensor", "        while True:\n            pass\n        return [tensor", "in its `infer` (own.py:"),
    ("import numpy as np", "import numpy as np\nwhile True:\n    pass", "in its `<module>` (own.py:"),
]

# (name, texts and what replaces them, what the line says)
WRONG_IN_TWO = [
    (
        "gradient without a small slope",
        (("number(1.0)", "number(1e-6)"), ("(2.0 * self.scale)", "0.0")),
        "gradient: the gradient of x0, element",
    ),
    (
        "gradient of half a small slope",
        (("number(1.0)", "number(1e-6)"), ("(2.0 * self.scale)", "self.scale")),
        "gradient: the gradient of x0, element",
    ),
    (
        "evaluate of twice a small value",
        (("number(1.0)", "number(1e-7)"), ("        return [(self.scale", "        return [(2 * self.scale")),
        "evaluate: its `evaluate` gives other values than its lowering for y: by up to",
    ),
    (
        "positions that depend on those before",
        (
            ("    for i in range(len(y)):\n        s = 0.0\n", "    s = 0.0\n    for i in range(len(y)):\n"),
            (".sum(1)", ".sum(1)[::-1].cumsum()[::-1]"),
            ("in range(len(y))", "in range(len(y) - 1, -1, -1)"),
            ("    def aliases(self):", "    def independent(self):\n        return [(0, 0, 0, 0)]\n\n    def aliases(self):"),
        ),
        "sizes: result 0 is said to keep dimension 0 apart, but its first 3 positions depend on the others",
    ),
]

# What the file says before any op is checked: one line without an op.
UNREADABLE = [
    ("import numpy as np", "import numpy as np\nsys.exit(2)", "own.py:7: SystemExit: 2"),
    ("[([(6, 5)], {})]", "[(6, {})]", "`EXAMPLES` is [(6, {})]; pairs of shapes and attributes are expected"),
    ("[([(6, 5)], {})]", "[([(6, 'a')], {})]", "`EXAMPLES` is [([(6, 'a')], {})]; pairs of shapes and attributes are expected"),
    ("[([(6, 5)], {})]", "[([(6, 5)], 3)]", "`EXAMPLES` is [([(6, 5)], 3)]; pairs of shapes and attributes are expected"),
]
