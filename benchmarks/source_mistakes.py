"""The mistakes that `make mutants` plants in the sources, as data: a file, its text, the text in its place, and what should catch it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """A mistake: in `file`, `old`, which stands there once, becomes `new`.

    `checks`: what should catch it, in this order: a test file under `test/pytest`, perhaps with `-k WORDS`; `lit FOLDER` under
    `test/filecheck/lowering`; or `fuzz NAME`. `equivalent`: the reason why no program can show it; empty for a mistake.
    """

    file: str
    old: str
    new: str
    checks: tuple[str, ...]
    equivalent: str = ""


def _of(file: str, checks: tuple[str, ...], *pairs: tuple[str, str] | tuple[str, str, str]) -> tuple[Mistake, ...]:
    return tuple(Mistake(file, old, new, checks, *why) for old, new, *why in pairs)


NUMPY, STRICT, NATIVE = "runtime/test_numpy_engine.py", "runtime/test_strict_engine.py", "runtime/test_native_engine.py"
MEMORY, CODELETS, EXCHANGE = "runtime/test_memory.py", "runtime/test_codelets.py", "runtime/test_exchange.py"
PARTITION, VIEW, PLANS = "dialects/test_partition.py", "dialects/test_view.py", "lowering/test_plans.py"
RANDOM, CONTROL, OFFLOAD = "lowering/test_random_programs.py", "lowering/test_random_control.py", "lowering/test_offload.py"
OPTIONS, INPLACE, REWRITES = "lowering/test_options.py", "lowering/test_inplace.py", "lowering/test_rewrites.py"
CONVERSION, AUTODIFF, TRAINING = "lowering/test_onnx_to_popart.py", "lowering/test_autodiff.py", "test_training.py"
GRAPHS, TILES = "fuzz graphs", "fuzz tiles"

MISTAKES = (
    # -- planners: live ranges and memory
    *_of(
        "runtime/fitting.py", (NUMPY, GRAPHS),
        ("first <= until and since <= last", "first < until and since < last"),
        ("(rows[_FIRST] <= spans[-1][1])", "(rows[_FIRST] < spans[-1][1])"),
        ("(rows[_LAST] >= spans[0][0])", "(rows[_LAST] > spans[0][0])"),
    ),
    *_of(
        "runtime/liveness.py", (MEMORY, CONTROL),
        ("if pieces is None or not covered(view, pieces.near(view)):", "if pieces is None:"),
        ("if variable in self.written or variable in self.needs:", "if variable in self.touched:"),
        ("if not whole or variable in self.written:", "if variable in self.written:"),
        ("if all(disjoint(view, piece) for piece in pieces.near(view)):", "if True:"),
        ("        if surely:\n            self.written |= other.written", "        if True:\n            self.written |= other.written"),
        ("== math.prod(view.base)", ">= math.prod(view.base) // 2"),
        ("self.needs |= other.needs - self.written", "self.needs |= set()"),
        ("if variable in flow.needs or (read_after and variable not in flow.written):", "if variable in flow.needs:"),
        ("set[StorageOp].intersection(*(one.written", "set[StorageOp].union(*(one.written"),
        ("flow.then(self.block(op.body.block), surely=False)", "flow.then(self.block(op.body.block))"),
    ),
    *_of(
        "runtime/fitting.py", ("lit poplar-allocate", MEMORY),
        ("(ahead < rows[_CELLS]) | (behind < cells)", "(ahead < rows[_CELLS])"),
        ("np.flatnonzero(gaps >= size)", "np.flatnonzero(gaps >= size // 2)"),
    ),
    *_of("runtime/memory.py", (MEMORY,), ("total[: n - head] += sign * self.bytes[head:]", "total[: n - head] += self.bytes[head:]")),
    # -- passes of popart and popops: aliases, dropped checks
    *_of(
        "lowering/popart/cse.py", ("lit popart-cse", REWRITES),
        ("tuple(op.operands),", "frozenset(op.operands),"),
        ("or not is_pure(op)", ""),
    ),
    *_of(
        "lowering/popart/inplace.py", ("lit popart-inplace", INPLACE),
        ("operand not in marks and ", ""),
        ("and memory.overwritable(op, operand, result)", ""),
        ("return here < read", "return here + 1 < read"),
        ("if any(self.of(o) is shared for i, o in enumerate(op.operands) if o is not value and i != operand):", "if False:"),
        (" or _repeats(value):", ":"),
    ),
    *_of(
        "lowering/popart/patterns/views.py", ("lit popart-fuse", f"{REWRITES} -k computes"),
        ("return tuple(first[d] for d in second)", "return tuple(second[d] for d in first)"),
        ("or not read_once(v) or calls", "or calls"),
    ),
    *_of(
        "lowering/popart/patterns/convolution.py", ("lit popart-fuse", f"{REWRITES} -k computes"),
        ("zip(ints(op.pads), (*lower[2:], *upper[2:]))", "zip(ints(op.pads), (*upper[2:], *lower[2:]))"),
        ("if any((*lower[:2], *upper[:2])) or min", "if min"),
        ("term = bias - mean * factor", "term = bias + mean * factor"),
    ),
    *_of(
        "lowering/popops/fuse.py", ("lit popops-fuse", GRAPHS),
        ("(producer not in widening and any(use.operation is not op for use in value.uses)):", "(producer in widening):"),
        ("expr.Arg(len(operands) + j + 1) for j", "expr.Arg(len(operands) + j) for j"),
    ),
    *_of(
        "lowering/popart/autodiff/__init__.py", (f"{AUTODIFF} -k contributions",),
        ("self.gradients[value] = calls.insert(self.builder, popart.AddOp(before, gradient))", "self.gradients[value] = gradient"),
    ),
    *_of("lowering/popart/accumulate.py", ("test_training_options.py -k parts",), ("(part if share == 1 else part * share)", "part")),
    # -- lowerings to tiles: bounds, axes, aliases
    *_of(
        "lowering/poplar/merge.py", ("lit poplar-merge", f"{RANDOM} -k 'whole and (2 or 11)'"),
        ("if not earlier.touched or step.conflicts(earlier):", "if not earlier.touched:"),
        ("and all(m.on_one_tile for m in met)", ""),
    ),
    *_of(
        "lowering/poplar/plan/reduction.py", (f"{RANDOM} -k 'whole and (2 or 11)'",),
        ('"add" if op == "square_add" else op', "op"),
        ('params: dict[str, Attribute] = {"op": StringAttr(op)}', 'params: dict[str, Attribute] = {"op": StringAttr("add")}'),
    ),
    *_of(
        "lowering/poplar/plan/window.py", ("test_ops.py -k 'onnx and (conv or pool)'", f"{NATIVE} -k gives_what_numpy", GRAPHS),
        ("r = -w.before[d] % g", "r = w.before[d] % g"),
        ("(w.before[d] + r) // g, after", "w.before[d] // g, after"),
    ),
    *_of(
        "lowering/poplar/plan/layout.py", ("lit poplar-map", f"{RANDOM} -k 'whole and (2 or 11)'"),
        ("if cut - dimension.keys() and not copies:", "if False:"),
    ),
    *_of(
        "lowering/poplar/from_popops.py", ("lit popops-to-poplar", "test_ops.py -k 'onnx and (pad or concat)'", RANDOM),
        ("if all(o.type == x.type and view_of(o) == view_of(x) for o in same):", "if True:"),
        ("ends = [a + (n - 1) * (1 + c) + 1 if n else a", "ends = [a + (n - 1) * (1 + c) if n else a"),
        ("begin += x.type.shape[order.index(dim)]", "begin += x.type.shape[dim]"),
    ),
    *_of(
        "lowering/poplar/from_popnn.py", ("lit popnn-to-poplar", "test_ops.py -k 'onnx and pool'", GRAPHS),
        ("offset=-w.before[d]) for d in spatial]", "offset=-w.after[d]) for d in spatial]"),
    ),
    *_of(
        "lowering/poplar/control_flow.py", (CONTROL, "lowering/test_control_flow.py"),
        ("views = [t.copied(v) if root_of(v) in homes and not _same(v, home) else v", "views = [v"),
        ("if max(reads, default=-1) < min(made, default=len(order)):", "if True:"),
        ("(Arg(2) < most - 1)", "(Arg(2) < most)"),
    ),
    *_of(
        "lowering/poplar/tile_builder.py", ("lowering/test_tile_builder.py", f"{RANDOM} -k '(whole or functions) and (2 or 11)'", CONTROL),
        ("        if root_of(src) is root_of(dst) and not disjoint(view_of(src), view_of(dst)):\n            src = self.copied(src)\n", ""),
        ("isinstance(variable, VarOp) or view_of(x).repeats:\n", "isinstance(variable, VarOp):\n"),
        (
            "math.inf if isinstance(step, StreamInOp | StreamOutOp)", "math.inf if isinstance(step, StreamInOp)",
            "the graph is made with its output streams, so they have positions, and count as any step that reads does",
        ),
        ("if not _still_valid(root, view, home):", "if False:"),
    ),
    *_of(
        "lowering/poplar/offload.py", ("lit poplar-offload", f"{OFFLOAD} -k 'numpy or wait or steps'"),
        ("isinstance(op, StreamOutOp) or (isinstance(op, CopyOp) and mine == [0])", "isinstance(op, StreamOutOp | CopyOp)"),
        ("after = [i for i in touching if i > order[here]]", "after = [i for i in touching if i > order[here] + 1]"),
    ),
    *_of(
        "lowering/poplar/load_ahead.py", (f"{OFFLOAD} -k 'loads'",),
        ("if not moved or highest(", "if True or highest("),
    ),
    *_of(
        "lowering/poplar/schedule.py", (f"{OFFLOAD} -k 'weights or buffer or memory or outside or loads'",),
        ("mesh.buffers > 1", "mesh.buffers > 0"),
        ("+ tenant.largest <= limit", "<= limit"),
        ("left[k] - hidden, total - hidden", "left[k], total - hidden"),
    ),
    # -- conversions from ONNX: signs, bounds, axes
    *_of(
        "lowering/onnx/to_popart/tensor.py", (f"{CONVERSION} -k onnxruntime_gives", GRAPHS),
        ("if d != axis:\n            rest", "if d == axis:\n            rest"),
        ("math.prod(size[d + 1 :]) for d", "math.prod(size[d:]) for d"),
        ("(0, n) if step > 0 else (-1, n - 1)", "(0, n) if step > 0 else (0, n - 1)"),
        ("range(-max(lower[d], 0), left + max(upper[d], 0))", "range(-max(upper[d], 0), left + max(lower[d], 0))"),
    ),
    *_of(
        "lowering/onnx/to_popart/nn.py", (f"{CONVERSION} -k onnxruntime_gives", GRAPHS, f"{CONVERSION} -k packaged"),
        ("pads = small + large if mode ==", "pads = large + small if mode =="),
    ),
    # -- the tile level's rules and closed forms
    *_of(
        "dialects/poplar/partition.py", (PARTITION, VIEW),
        ("        if coefficient < span:", "        if coefficient < span - 1:"),
        ("if missing := domain.cut - {a for access in accesses for a, _ in access.terms}:", "if missing := set[str]():"),
        ("if (low < 0 or high > n) and", "if (low < 0 or high > n + 1) and"),
    ),
    *_of(
        "dialects/poplar/view.py", (VIEW,),
        ("if step < 0 or last[d] >= self.base[d]:", "if step < 0:"),
        ("            if left % n:\n                return None\n", ""),
    ),
    *_of(
        "dialects/poplar/overlap.py", (VIEW, STRICT, "lit poplar-merge"),
        ("if end_a <= first_b or end_b <= first_a:", "if end_a <= first_b + 1 or end_b <= first_a:"),
        ("step_a > 1 and low_a % step_a != low_b % step_b", "low_a % step_a != low_b % step_b or low_a != low_b"),
        ("domain.start, tuple(dims)", "0, tuple(dims)"),
    ),
    # -- engines and kernels
    *_of(
        "runtime/engine/superstep.py", (STRICT,),
        ("part[(part >= 0) & (part != tile)]", "part[(part >= 0) & (part > tile)]"),
        ("if writers.size and writers.max() >= 0:", "if writers.size and writers.max() > 0:"),
        ("        self._check_reads()\n", ""),
        ("            check_defined(family, number, slices, vertex)\n", ""),
    ),
    *_of("runtime/engine/checked_vertices.py", (STRICT,), ("store.complete = store.defined.size == 0", "pass")),
    *_of(
        "runtime/codelets/indexed.py", (f"{CODELETS} -k multi_update",),
        ("if low < 0 or high >= n:", "if low < 0 or high > n:"),
        ("own = (indices >= first) & (indices < end)", "own = (indices >= first) & (indices <= end)"),
        ("last = len(rows) - 1 - back", "last = back"),
    ),
    *_of(
        "runtime/codelets/pool.py", (f"{CODELETS} -k pool",),
        ("high = min(self.count, (n - 1 - shift) // self.stride + 1)", "high = min(self.count, (n - shift) // self.stride + 1)"),
        ("low, high = (-self.before, self.size + self.behind) if", "low, high = (0, self.size + self.behind) if"),
    ),
    *_of("runtime/codelets/reduce.py", (f"{CODELETS} -k reduce",), ("value = -np.inf if op == \"max\" else np.inf", "value = 0.0")),
    *_of("runtime/exchange/images.py", (EXCHANGE,), ("member & (readers == 1)", "member & (readers >= 1)")),
    *_of(
        "runtime/engine/native/kernels/tables.py", ("tools/test_bad_texts.py", f"{CODELETS} -k refuses_an_index"),
        ("icmp uge i64 {i}, {n}", "icmp ugt i64 {i}, {n}"),
    ),
    *_of(
        "runtime/engine/native/kernels/rows.py", (f"{NATIVE} -k form_is_native", GRAPHS),
        ("f.loop(whole, n, one, [(type, neutral)])", "f.loop(whole, whole, one, [(type, neutral)])"),
    ),
    *_of(
        "runtime/engine/native/kernels/reduction.py", (f"{NATIVE} -k form_is_native", GRAPHS),
        ("len(xs) * -(-n // BLOCK)", "len(xs) * max(n // BLOCK, 1)"),
    ),
    *_of(
        "runtime/tasks.py",
        (f"{NATIVE} -k slices", "runtime/test_byte_products.py -k rounding", "runtime/test_endings.py -k waits", GRAPHS),
        ("None if between is None or any(touches(op, pair.sums) for op in between) else total", "total"),
        ("if not any(touches(op, v) for op in between for v in others):", "if True:"),
    ),
)  # fmt: skip
