"""Draws small mistakes in the sources, by a seed: each changes one place of a file's syntax tree, as a slip of the hand would.

    python -m benchmarks.drawn_mistakes          # lists those that `make mutants` plants
    python -m benchmarks.drawn_mistakes --draw   # draws them again, from the sources as they are now

Nobody chooses them. They are kept in `drawn_mistakes.json`, with what caught each. `LEFT_OUT` has what is not drawn, with the reason; nor
is text that computes nothing: messages, docstrings, assertions, annotations, names.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parent.parent
SEED, COUNT = 28, 160
SHARES = {"runtime/engine/native": 0.5, "runtime/codelets": 0.2, "lowering/poplar": 0.25, "lowering/popops": 0.05}
"""The folders, and the share of the mistakes in each."""

LEFT_OUT = {
    "runtime/engine/native/codegen/cpu.py": "finds the CPU's features: `make portability` gives them",
    "runtime/engine/native/codegen/object_cache.py": "files of compiled code: what it loses is compiled again",
    "runtime/engine/native/codegen/byte_tiles.py": "AMX: runs on few CPUs; `test_native_code.py` reads its text",
    "runtime/engine/native/kernels/byte_tile_blocks.py": "AMX",
    "runtime/engine/native/kernels/half_tiles.py": "AMX",
    "runtime/engine/native/kernels/half_products.py": "AMX",
    "runtime/engine/native/run/launch_check.py": "a check, which computes no result",
    "runtime/engine/native/run/sharing.py": "simulates threads for `populus run --profile`: computes no result",
    "runtime/engine/native/frozen/link.py": "calls the system's linker",
    "runtime/codelets/cost.py": "cycles, by which plans are chosen: all plans give the same numbers",
    "runtime/codelets/tile_failures.py": "the words of a message",
    "lowering/poplar/plan/": "estimates by which one of several right cuts is chosen",
}
"""Files that are left out, and why."""

COSTS = re.compile(r"_?\w*(cycles|flops)\w*|accesses|__repr__|__str__|_too_much|_kib|_label")
"""Functions that are left out: costs, by which plans are chosen, and texts. So is what takes a `Vertex`, which has costs only."""

COMPARED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
"""By comparison: its symbol, and that of the mistake."""

COMPUTED: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.Div: ("/", "*"),
}
"""By operator likewise."""

UNEVEN = (ast.Sub, ast.FloorDiv, ast.Mod, ast.Div, ast.MatMult)
CALLED = dict(pair for a, b in (
    *(("min", "max"), ("any", "all"), ("minimum", "maximum"), ("argmin", "argmax"), ("floor", "ceil"), ("add", "sub"), ("fadd", "fsub")),
    *(("and_", "or_"), ("shl", "lshr"), ("zext", "sext"), ("sdiv", "srem"), ("umin", "umax"), ("sorted", "list"), ("zeros", "ones")),
) for pair in ((a, b), (b, a)))  # fmt: skip
PREDICATES = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
PREDICATE_CALLS = ("icmp_signed", "icmp_unsigned", "fcmp_ordered", "fcmp_unordered")


@dataclass(frozen=True)
class Edit:
    """A place of a file and the text for it: characters `begin` to `end` become `new`."""

    file: str
    function: str
    kind: str
    begin: int
    end: int
    old: str
    new: str

    def applied(self, text: str) -> str:
        """Returns the file's text with the mistake."""
        assert text[self.begin : self.end] == self.old, (self.file, self.old)
        return text[: self.begin] + self.new + text[self.end :]

    def line(self, text: str) -> int:
        """Returns the number of the line, from 1."""
        return text.count("\n", 0, self.begin) + 1


class _Finder(ast.NodeVisitor):
    """Collects the edits of a file."""

    def __init__(self, file: str, text: str):
        self.file, self.text = file, text
        self.starts = [0]
        for line in text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.lines = text.splitlines()
        self.functions: list[str] = []
        self.found: list[Edit] = []

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Gives the characters of a node. Columns of a syntax tree count bytes."""

        def place(line: int, column: int) -> int:
            return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

        return place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)  # pyright: ignore[reportAttributeAccessIssue]

    def of(self, node: ast.AST) -> str:
        begin, end = self.span(node)
        return self.text[begin:end]

    def edit(self, kind: str, node: ast.AST, new: str) -> None:
        begin, end = self.span(node)
        self.found.append(Edit(self.file, ".".join(self.functions), kind, begin, end, self.text[begin:end], new))

    def between(self, kind: str, a: ast.AST, b: ast.AST, old: str, new: str) -> None:
        """Replaces an operator between two operands."""
        begin, end = self.span(a)[1], self.span(b)[0]
        gap = self.text[begin:end]
        if gap.count(old) == 1 and "#" not in gap:
            self.found.append(Edit(self.file, ".".join(self.functions), kind, begin, end, gap, gap.replace(old, new)))

    # -- what is passed over

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        costs = any(a.annotation is not None and "Vertex" in ast.unparse(a.annotation) for a in arguments)
        if COSTS.fullmatch(node.name) or costs:
            return
        self.functions.append(node.name)
        for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
            self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self.functions.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if any("Error" in ast.unparse(base) or "Protocol" in ast.unparse(base) for base in node.bases):
            return
        self.functions.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self.functions.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and "TypeAlias" not in ast.unparse(node.annotation):
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in ast.unparse(node.test):
            return
        raises = all(isinstance(s, ast.Raise) for s in node.body)
        if not raises:  # else a wrong condition makes a refusal, or loses one: of messages, not numbers
            self.condition(node.test)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        name = ast.unparse(node.targets[0])
        if not self.functions and isinstance(node.value, ast.Subscript | ast.Call) and name[0].isupper() and not name.isupper():
            return  # a type
        self.visit(node.value)
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                self.visit(target.slice)

    def visit_Raise(self, node: ast.Raise) -> None: ...
    def visit_Assert(self, node: ast.Assert) -> None: ...
    def visit_JoinedStr(self, node: ast.JoinedStr) -> None: ...
    def visit_Import(self, node: ast.Import) -> None: ...
    def visit_ImportFrom(self, node: ast.ImportFrom) -> None: ...

    # -- what is changed

    def condition(self, test: ast.expr) -> None:
        text = self.of(test)
        self.edit("a condition turned round", test, text.removeprefix("not ") if isinstance(test, ast.UnaryOp) else f"not ({text})")
        self.edit("an `if` dropped", test, "True")
        self.edit("an `if` dropped", test, "False")

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.condition(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self.condition(test)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        a, b = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in pairwise(node.values):
            self.between("and for or", left, right, a, b)
        for value in node.values:
            self.edit("a condition dropped", value, "True" if isinstance(node.op, ast.And) else "False")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators):
            self.between("< for <=", left, right, *COMPARED[type(op)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in COMPUTED:
            self.between("+ for -", node.left, node.right, *COMPUTED[type(node.op)])
        if isinstance(node.op, UNEVEN):
            self.swap("swapped operands", node.left, node.right)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.USub):
            self.edit("a sign dropped", node, self.of(node.operand))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if type(node.value) is int:
            self.edit("an offset or bound by 1", node, str(node.value + 1))
            if node.value > 0:
                self.edit("an offset or bound by 1", node, str(node.value - 1))
        elif type(node.value) is float:
            self.edit("a wrong constant", node, repr(node.value + 1.0))
        elif type(node.value) is bool:
            self.edit("a wrong constant", node, str(not node.value))

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
        if name in CALLED:
            text = self.of(node.func)
            self.edit("min for max", node.func, text[: len(text) - len(name)] + CALLED[name])
        if name in PREDICATE_CALLS and isinstance(node.args[0], ast.Constant):
            self.edit("< for <=", node.args[0], repr(PREDICATES[str(node.args[0].value)]).replace("'", '"'))
        if name == "range" and not isinstance(node.args[-1], ast.Constant):
            bound = node.args[0] if len(node.args) == 1 else node.args[1]
            self.edit("an offset or bound by 1", bound, f"({self.of(bound)}) - 1")
        plain = [a for a in node.args if not isinstance(a, ast.Starred)]
        if name not in ("cast", "isinstance", "getattr", "zip", "TypeVar", "partial") and len(plain) == len(node.args):
            for a, b in pairwise(plain):
                self.swap("swapped arguments", a, b)
        self.generic_visit(node)

    def visit_Tuple(self, node: ast.Tuple) -> None:
        if isinstance(node.ctx, ast.Load):
            for a, b in pairwise(node.elts):
                self.swap("swapped axes or items", a, b)
        self.generic_visit(node)

    visit_List = visit_Tuple  # pyright: ignore[reportAssignmentType]

    def visit_Slice(self, node: ast.Slice) -> None:
        for bound in (node.lower, node.upper):
            if bound is not None and not isinstance(bound, ast.Constant):
                self.edit("an offset or bound by 1", bound, f"({self.of(bound)}) + 1")
                self.edit("an offset or bound by 1", bound, f"({self.of(bound)}) - 1")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.edit("a step dropped", node, "pass")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        if isinstance(node.value, ast.Call):
            self.edit("a step dropped", node, "pass")
        self.generic_visit(node)

    def swap(self, kind: str, a: ast.AST, b: ast.AST) -> None:
        """Exchanges two neighbours."""
        (begin, middle), (after, end) = self.span(a), self.span(b)
        one, other = self.text[begin:middle], self.text[after:end]
        texts = isinstance(a, ast.Constant) and isinstance(b, ast.Constant) and isinstance(a.value, str) and isinstance(b.value, str)
        if one != other and not texts and not isinstance(a, ast.Starred) and not isinstance(b, ast.Starred):
            old = self.text[begin:end]
            new = f"({other})" if isinstance(b, ast.BinOp) else other
            last = f"({one})" if isinstance(a, ast.BinOp) else one
            self.found.append(Edit(self.file, ".".join(self.functions), kind, begin, end, old, new + self.text[middle:after] + last))


def edits(file: str, text: str) -> list[Edit]:
    """Lists all edits of a file."""
    finder = _Finder(file, text)
    finder.visit(ast.parse(text))
    return finder.found


def changes(edit: Edit, text: str) -> bool:
    """Tells whether a file with a mistake is Python, and another program."""
    try:
        return ast.dump(ast.parse(edit.applied(text))) != ast.dump(ast.parse(text))
    except SyntaxError:
        return False


def files(folder: str, root: Path = ROOT) -> Iterator[str]:
    """Lists the files of a folder that mistakes are drawn in."""
    for path in sorted((root / folder).rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if not any(name.startswith(left) for left in LEFT_OUT) and path.stat().st_size > 200:
            yield name


def drawn(seed: int = SEED, count: int = COUNT, root: Path = ROOT, shares: Mapping[str, float] = SHARES) -> list[Edit]:
    """Draws mistakes: a file of a folder, a kind of what can be changed there, and a place, each evenly. No place is drawn twice."""
    rng = random.Random(seed)
    found: list[Edit] = []
    for folder, share in shares.items():
        names, of, texts = list(files(folder, root)), dict[str, list[Edit]](), dict[str, str]()
        seen = set[tuple[str, int, int]]()
        while len(seen) < round(share * count):
            file = rng.choice(names)
            if file not in of:
                texts[file] = (root / file).read_text()
                of[file] = edits(file, texts[file])
            if not of[file]:
                continue
            kind = rng.choice(sorted({e.kind for e in of[file]}))
            edit = rng.choice([e for e in of[file] if e.kind == kind])
            if (file, edit.begin, edit.end) not in seen and changes(edit, texts[file]):
                seen.add((file, edit.begin, edit.end))
                found.append(edit)
    return found


@dataclass
class Drawn:
    """A mistake as it is kept: in `file`, `old`, whole lines that stand there once, become `new`.

    `caught`: the first net that caught it, and what failed there. `missed`: all nets ran, and none did. `equivalent`: the reason why it
    changes nothing that a program computes.
    """

    file: str
    function: str
    kind: str
    old: str
    new: str
    caught: tuple[str, str] | None = None
    missed: bool = False
    equivalent: str = ""

    @property
    def stands(self) -> bool:
        """Tells whether its text still stands in the sources, once."""
        path = ROOT / self.file
        return path.exists() and path.read_text().count(self.old) == 1

    def __str__(self) -> str:
        before, after = self.old.splitlines(), self.new.splitlines()
        changed = [" ".join(f"{a.strip()} -> {b.strip()}".split()) for a, b in zip(before, after) if a != b]
        return f"{self.file}, {self.function or 'module'}: {self.kind}: {'; '.join(changed) or ' '.join(self.new.split())}"


def kept(edit: Edit, text: str) -> Drawn:
    """Gives an edit as it is kept: with as many lines around it as make its text stand once."""
    begin, end = text.rfind("\n", 0, edit.begin) + 1, text.find("\n", edit.end) + 1 or len(text)
    while text.count(text[begin:end]) > 1:
        begin = text.rfind("\n", 0, max(begin - 1, 0)) + 1
        if text.count(text[begin:end]) > 1:
            end = text.find("\n", end) + 1 or len(text)
    new = text[begin : edit.begin] + edit.new + text[edit.end : end]
    return Drawn(edit.file, edit.function, edit.kind, text[begin:end], new)


DATA = Path(__file__).with_suffix(".json")


def read() -> list[Drawn]:
    """Reads the mistakes that are kept."""
    return [Drawn(**row) for row in json.loads(DATA.read_text())]


def write(mistakes: Sequence[Drawn]) -> None:
    """Keeps mistakes, a line for each."""
    DATA.write_text("[\n" + ",\n".join(json.dumps({k: v for k, v in vars(m).items() if v or k == "function"}) for m in mistakes) + "\n]\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drawn_mistakes")
    parser.add_argument("--draw", action="store_true", help="draw them again")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=COUNT)
    options = parser.parse_args()
    if options.draw:
        write([kept(e, (ROOT / e.file).read_text()) for e in drawn(options.seed, options.count)])
    for i, m in enumerate(read()):
        print(f"{i}: {m}")
