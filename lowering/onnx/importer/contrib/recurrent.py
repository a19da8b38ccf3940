"""The LSTM of 8-bit weights, whose inputs and states are quantized when it runs.

    gates = (xq - xz) (Wq - wz) xs ws + (hq - hz) (Rq - rz) hs rs + Wb + Rb

`xq` quantizes the inputs of all steps as one tensor, `hq` the states of the whole batch at each step.
Source: onnxruntime, dynamic_quantize_lstm.cc and uni_directional_lstm.cc, on one thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.importer.contrib.call import Body, Call, integers, number

_ACTIVATIONS = {name.lower(): name for name in ("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")}
_WAYS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}  # for each direction: does it run backwards?
_GATES = "iofc"


def _activations(c: Call, directions: int) -> list[str]:
    """Gives the activations of gates, candidates and cells, for each direction.

    Raises PopulusError for one with parameters, and for a wrong number.
    """
    listed = [name.decode() for name in c.get("activations", [])] or ["Sigmoid", "Tanh", "Tanh"] * directions
    if len(listed) != 3 * directions:
        raise PopulusError(f"{c.op_type} has {len(listed)} activations; {3 * directions} are expected")
    for name in listed:
        if name.lower() not in _ACTIVATIONS:
            *first, last = sorted(_ACTIVATIONS.values())
            raise PopulusError(f"{c.op_type} with the activation {name} is not supported; {', '.join(first)} and {last} are")
    return [_ACTIVATIONS[name.lower()] for name in listed]


def _gate(c: Call, d: int, gate: str, kind: str, cell: str = "") -> str:
    """Writes the activation of a gate, of direction `d`; `cell`: the cell that its peephole sees."""
    last = f"sum_{gate}"
    lines = ""
    if cell and c.has(7):
        lines += f"see_{gate} = Mul (hole_{gate}_{d}, {cell})\npeep_{gate} = Add ({last}, see_{gate})\n"
        last = f"peep_{gate}"
    if c.has(3):
        lines += f"biased_{gate} = Add ({last}, bias_{gate}_{d})\n"
        last = f"biased_{gate}"
    if limit := float(c.get("clip", 0.0)):
        lines += f"{number(-limit, f'low_{gate}', last)}{number(limit, f'high_{gate}', last)}"
        lines += f"cut_{gate} = Clip ({last}, low_{gate}, high_{gate})\n"
        last = f"cut_{gate}"
    return f"{lines}gate_{gate} = {kind} ({last})\n"


def _step(c: Call, d: int, kinds: Sequence[str]) -> str:
    """Writes a step: `h_new` and `c_new` from `h`, `cell` and `row`, of the product of inputs."""
    f, g, out = kinds
    lines = f"""hq, hs, hz = DynamicQuantizeLinear (h)
whole = MatMulInteger (hq, r_{d}, hz, rz_{d})
whole_f = Cast <to = 1> (whole)
scale = Mul (hs, rs_{d})
part = Mul (whole_f, scale)
total = Add (row, part)
{", ".join(f"sum_{gate}" for gate in _GATES)} = Split <axis = -1, num_outputs = 4> (total)
{_gate(c, d, "i", f, "cell")}"""
    if c.get("input_forget", 0):
        lines += f"{number(1.0, 'unit', 'gate_i')}gate_f = Sub (unit, gate_i)\n"
    else:
        lines += _gate(c, d, "f", f, "cell")
    lines += f"{_gate(c, d, 'c', g)}kept = Mul (gate_f, cell)\nadded = Mul (gate_i, gate_c)\nc_new = Add (kept, added)\n"
    return f"{lines}{_gate(c, d, 'o', f, 'c_new')}shown = {out} (c_new)\nh_new = Mul (gate_o, shown)\n"


def _scan(c: Call, d: int, kinds: Sequence[str], back: bool) -> str:
    """Writes `y_D`, `h_D` and `c_D`: outputs of all steps and last states of direction `d`, from the products `rows_D`."""
    start = f"(h_first_{d}, c_first_{d}, "
    if not c.has(4):
        way = ", scan_input_directions = [1], scan_output_directions = [1]" if back else ""
        body = f"step (h, cell, row) => (h_new, c_new, y) {{ {_step(c, d, kinds)}y = Identity (h_new) }}"
        return f"h_{d}, c_{d}, y_{d} = Scan <num_scan_inputs = 1, body = {body}{way}> {start}rows_{d})\n"
    # A finished row outputs 0, which the next step quantizes too; without an output of steps, its state stays.
    ends = f"""{number(0.0, "none", "h")}going = Less (number, until)
h_next = Where (going, h_new, {"none" if c.wants(0) else "h"})
c_next = Where (going, c_new, cell)
last_next = Where (going, h_new, last)
y = Where (going, h_new, none)
"""
    body = f"step (h, cell, last, number, row) => (h_next, c_next, last_next, y) {{ {_step(c, d, kinds)}{ends} }}"
    ran = f"h_end_{d}, c_end_{d}, h_{d}, ys_{d} = Scan <num_scan_inputs = 2, body = {body}> {start}zeros, numbers, rows_{d})\n"
    turned = f"ReverseSequence <time_axis = 0, batch_axis = 1> (ys_{d}, lengths)" if back else f"Identity (ys_{d})"
    return f"{ran}c_{d} = Where (any, c_end_{d}, zeros)\ny_{d} = {turned}\n"


def _direction(c: Call, d: int, kinds: Sequence[str], back: bool) -> str:
    """Writes the results of direction `d`; see `_scan`."""
    lines = f"at_{d} = Constant <value = int64 {{{d}}}> ()\n"
    for name, i in (("w", 1), ("r", 2), ("ws", 8), ("wz", 9), ("rs", 10), ("rz", 11)):
        lines += f"{name}_{d} = Gather (x{i}, at_{d})\n"
    for name, i in (("h", 5), ("c", 6)):
        lines += f"{name}_first_{d} = {f'Gather (x{i}, at_{d})' if c.has(i) else 'Identity (zeros)'}\n"
    if c.has(3):
        gates = ", ".join(f"bias_{gate}_{d}" for gate in _GATES)
        lines += f"both_{d} = Gather (x3, at_{d})\nof_w_{d}, of_r_{d} = Split <axis = 0, num_outputs = 2> (both_{d})\n"
        lines += f"bias_{d} = Add (of_w_{d}, of_r_{d})\n{gates} = Split <axis = 0, num_outputs = 4> (bias_{d})\n"
    if c.has(7):
        gates = ", ".join(f"hole_{gate}_{d}" for gate in "iof")
        lines += f"holes_{d} = Gather (x7, at_{d})\n{gates} = Split <axis = 0, num_outputs = 3> (holes_{d})\n"
    turned = "ReverseSequence <time_axis = 0, batch_axis = 1> (xq, lengths)" if back and c.has(4) else "Identity (xq)"
    lines += f"""in_{d} = {turned}
product_{d} = MatMulInteger (in_{d}, w_{d}, xz, wz_{d})
product_f_{d} = Cast <to = 1> (product_{d})
scale_{d} = Mul (xs, ws_{d})
rows_{d} = Mul (product_f_{d}, scale_{d})
"""
    return lines + _scan(c, d, kinds, back)


def _lengths(c: Call) -> str:
    """Writes `lengths` of the batch, `numbers` of steps, and `x`: zeros after the longest row, which is not quantized."""
    if not c.has(4):
        return "x = Identity (x0)\n"
    return f"""lengths = Cast <to = 7> (x4)
{integers("column", 1)}until = Unsqueeze (lengths, column)
{number(0.0, "nothing")}rank0 = Constant <value = int64[0] {{}}> ()
from = Constant <value = int64 {{0}}> ()
by = Constant <value = int64 {{1}}> ()
any = Less (from, until)
steps_1 = Shape <start = 0, end = 1> (x0)
steps = Reshape (steps_1, rank0)
numbers = Range (from, steps, by)
longest = ReduceMax <keepdims = 0> (lengths)
read_1 = Less (numbers, longest)
{integers("inner", 1, 2)}read = Unsqueeze (read_1, inner)
x = Where (read, x0, nothing)
"""


def _dynamic_lstm(c: Call) -> str:
    """Writes DynamicQuantizeLSTM; weights are [directions, inputs, 4 hidden], transposed as against LSTM's.

    Raises PopulusError for an unknown direction, for batches first, and as `_activations`.
    """
    c.refuse("layout")
    way = c.get("direction", "forward")
    if way not in _WAYS:
        raise PopulusError(f"{c.op_type} has the direction '{way}'; forward, reverse or bidirectional is expected")
    backwards = _WAYS[way]
    kinds = _activations(c, len(backwards))
    lines = f"""{_lengths(c)}xq, xs, xz = DynamicQuantizeLinear (x)
batch = Shape <start = 1, end = 2> (x0)
{integers("hidden", int(c.required("hidden_size")))}state = Concat <axis = 0> (batch, hidden)
zeros = ConstantOfShape (state)
{integers("between", 1)}{integers("front", 0)}"""
    for d, back in enumerate(backwards):
        lines += _direction(c, d, kinds[3 * d : 3 * d + 3], back)
    for i, (name, axis) in enumerate((("y", "between"), ("h", "front"), ("c", "front"))):
        if c.wants(i):
            parts = [f"{name}_all_{d}" for d in range(len(backwards))]
            lines += "".join(f"{part} = Unsqueeze ({name}_{d}, {axis})\n" for d, part in enumerate(parts))
            lines += f"y{i} = Concat <axis = {1 if i == 0 else 0}> ({', '.join(parts)})\n"
    return lines


FUNCTIONS: Mapping[str, Body] = {"DynamicQuantizeLSTM": _dynamic_lstm}
