"""StableHLO's own test programs, run by tile programs: how many are right by their own checks.

    python benchmarks/stablehlo_tests.py /path/to/a/checkout/of/openxla/stablehlo [--part 0/8] [--match REGEX] [--log FILE]

It wants jaxlib, which reads the programs. `@inputs` of a program becomes the inputs of @main, so that the machine computes what is
checked. A program is wrong if a check fails, rounded if it fails by no more than 64 roundings of the tensor's largest element, and
refused if Populus says that it has no conversion.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp

import populus
from populus.dialects.signature import main_of, return_of, state_names
from populus.dialects.table import context
from populus.lowering.stablehlo.importer import read_text
from populus.lowering.stablehlo.jaxlib_reader import generic_text
from populus.lowering.stablehlo.to_popart.conversion import is_complex
from populus.lowering.stablehlo.to_popart.tensors import array_of

DATA = "stablehlo/testdata"
MARK = "// -----"  # between the programs of one file
LIMIT = 60  # seconds for one program
GIVEN = {"inputs", "samples"}  # functions that give what a program computes on
CLOSE, ALMOST = 3, 1e-3  # units in the last place of `expect_close`; the absolute or relative error of `expect_almost_eq`


Run: TypeAlias = Callable[[str, str], tuple[str, str]]  # of a program's name and text: right, rounded, wrong or refused, and why
SIZED = re.compile(r"stablehlo\.(real_)?dynamic_(?!slice|update)|stablehlo\.set_dimension")  # ops whose operands are sizes
EXPECTED = re.compile(
    r"(?:check\.expect_(\w+)_const (%[\w#]+), (dense<.*?>|#\S+) : (tensor<[^\n]*?>)(?:, tolerance = [^\n]*)?$)"
    r'|(?:"check\.expect_(\w+)_const"\((%[\w#]+)\) <?\{[^\n]*?value = (dense<[^\n]*?>) : (tensor<[^\n]*?>)\}>?[^\n]*$)',
    re.MULTILINE | re.DOTALL,
)


class Overrun(TimeoutError):
    """A program took longer than `LIMIT`."""


def programs(file: Path) -> dict[str, str]:
    """Gives the programs of a file by name. Files of `tests/interpret` have several, whose checks are ops of their own."""
    text = file.read_text()
    if MARK not in text and ("check.expect_" not in text or "custom_call @check." in text):
        return {file.name: text}
    found: dict[str, str] = {}
    for part in re.split(rf"^{MARK}.*$", text, flags=re.MULTILINE):
        if "custom_call @check." in part:
            found[f"{file.stem}:main"] = part
            continue
        for name in re.findall(r"func\.func (?:public )?@(\w+)\(\)", part)[-1:]:
            text = EXPECTED.sub(_as_call, part)
            text = re.sub(
                r"check\.expect_(\w+) (%[\w#]+), (%[\w#]+)(?:, [\w ]*= [^\n:]*)* : ((?:tensor<[^\n]*?>)(?:, tensor<.*?>)?)$",
                lambda m: _call(m[1], m[2], m[3], m[4].split(", tensor")[0]),
                text,
                flags=re.MULTILINE,
            )
            found[f"{file.stem}:{name}"] = text.replace(f"@{name}(", "@main(")
    return found


def _as_call(match: re.Match[str]) -> str:
    check, value, dense, type = match.groups()[:4] if match[1] else match.groups()[4:]
    name = f"%expected_{match.start()}"
    return f"{name} = stablehlo.constant {dense} : {type}\n  {_call(check, value, name, type)}"


def _call(check: str, a: str, b: str, type: str) -> str:
    return f"stablehlo.custom_call @check.expect_{check}({a}, {b}) {{has_side_effect = true}} : ({type}, {type}) -> ()"


def split(module: ModuleOp) -> tuple[list[str], dict[str, Any]]:
    """Makes results of what is checked, and inputs of what `@inputs` gives; returns the checks and the inputs' values."""
    main = main_of(module)
    functions = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, FuncOp)}
    checks: list[str] = []
    values: list[Any] = []
    inputs: dict[str, Any] = {}
    expected = {op.operands[1] for op in main.body.block.ops if op.name == "stablehlo.custom_call" and len(op.operands) == 2}
    return_of(main).operands = ()  # some return what a check gave
    op: Any
    for op in list(main.body.block.ops):
        sizes = bool(GIVEN & functions.keys()) or any(SIZED.match(use.operation.name) for r in op.results for use in r.uses)
        if op.name == "stablehlo.constant" and op.results[0] not in expected and not sizes:
            (result,) = op.results
            array, name = array_of(op.stated("value"), result.type), f"in{len(inputs)}"
            argument = main.body.block.insert_arg(result.type, len(main.body.block.args))
            argument.name_hint, inputs[name] = name, as_complex(array) if is_complex(result.type) else array
            result.replace_all_uses_with(argument)
        target = str(op.get("call_target_name")) if op.name == "stablehlo.custom_call" else ""
        if isinstance(op, CallOp) and op.callee.string_value() in GIVEN:
            for i, (result, value) in enumerate(zip(op.results, return_of(functions[op.callee.string_value()]).operands)):
                owner: Any = value.owner
                if getattr(owner, "name", "") == "stablehlo.constant":
                    array = array_of(owner.stated("value"), value.type)
                    argument = main.body.block.insert_arg(result.type, len(main.body.block.args))
                    argument.name_hint = name = f"in{i}"
                    inputs[name] = as_complex(array) if is_complex(value.type) else array
                    result.replace_all_uses_with(argument)
        elif target.startswith("check."):
            checks.append(target.partition(".")[2])
            values += op.operands
            op.detach()
            op.erase()
    end = return_of(main)
    new = ReturnOp(*values)
    main.body.block.insert_op_before(new, end)
    end.detach()
    end.erase()
    main.update_function_type()
    state_names(main, inputs=list(inputs), outputs=[f"{i}{side}" for i in range(len(checks)) for side in ("actual", "expected")])
    return checks, inputs


def as_complex(array: Any) -> Any:
    return np.ascontiguousarray(array).view(np.complex128 if array.dtype == np.float64 else np.complex64)[..., 0]


def parts(array: Any) -> list[Any]:
    return [array.real, array.imag] if array.dtype.kind == "c" else [array]


def steps(a: Any, b: Any) -> Any:
    """Counts the floats between two arrays, as StableHLO's CheckOps do: NaN equals NaN, and nothing else that is not finite is near."""
    bits = f"u{a.itemsize}"
    x, y = (np.ascontiguousarray(v).view(bits) for v in (a, b))
    sign = np.array(1 << (8 * a.itemsize - 1), bits)
    p, q = x & ~sign, y & ~sign
    apart = np.where((x ^ y) & sign, p + q, np.maximum(p, q) - np.minimum(p, q)).astype(np.float64)
    wide = np.float64 if a.itemsize == 8 else np.float32
    f, g = a.astype(wide), b.astype(wide)
    apart = np.where(np.isfinite(f) & np.isfinite(g), apart, np.inf)
    return np.where((x == y) | (np.isnan(f) & np.isnan(g)), 0, apart)


def failure(check: str, actual: Any, expected: Any) -> str | None:
    """Tells how a check fails; None if it does not."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return f"{actual.dtype}{actual.shape} for {expected.dtype}{expected.shape}"
    for a, b in zip(parts(actual), parts(expected)):
        if check in ("eq", "expect_eq") or a.dtype.kind in "biu":
            bad = ~((a == b) | ((a != a) & (b != b)))
        elif check == "expect_close":
            bad = steps(a, b) > CLOSE
        else:
            f, g = a.astype(np.float64), b.astype(np.float64)
            with np.errstate(all="ignore"):
                near = np.abs(f - g) <= ALMOST
            bad = ~(near | (f == g) | (np.isnan(f) & np.isnan(g)))
        if bad.any():
            at = tuple(int(v) for v in np.argwhere(bad)[0])
            worst = f", {steps(a, b).max():.0f} steps at most" if a.dtype.kind not in "biu" else ""
            return f"{check}: {int(bad.sum())} of {bad.size} elements differ; at {at} {a[at]} for {b[at]}{worst}"
    return None


def is_rounding(actual: Any, expected: Any) -> bool:
    """Tells whether no element is further away than 64 roundings of the largest one: sums in another order are as near."""
    sizes = np.abs(expected if expected.dtype.kind == "c" else expected.astype(np.float64))
    largest = np.where(np.isfinite(sizes), sizes, 0).max(initial=0)
    for a, b in zip(parts(actual), parts(expected)):
        if a.dtype.kind in "biu":
            return False
        eps = {2: 2.0**-8 if a.dtype.name == "bfloat16" else 2.0**-11, 4: 2.0**-24, 8: 2.0**-53}[a.itemsize]
        f, g = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(f) & np.isfinite(g)
        same = (f == g) | (np.isnan(f) & np.isnan(g))
        if not same[~finite].all() or (np.abs(f - g)[finite] > 64 * eps * largest).any():
            return False
    return True


def run(name: str, content: str, engine: Any) -> tuple[str, str]:
    """Runs a program; gives `right`, `rounded`, `wrong`, `refused` or `broken`, and the reason."""
    text = generic_text(content.encode(), name)
    module = read_text(context(), text, name)
    checks, inputs = split(module)
    if not checks:
        return "unchecked", "the program has no check"
    program = populus.compile(module, engine=engine, cache=False)
    found = program.run(inputs)
    for i, check in enumerate(checks):
        if why := failure(check, found[f"{i}actual"], found[f"{i}expected"]):
            kind = "rounded" if is_rounding(found[f"{i}actual"], found[f"{i}expected"]) else "wrong"
            return kind, why
    return "right", ""


def outcome(name: str, content: str, run: Run) -> tuple[str, str]:
    """Runs a program within the limit of time."""
    signal.alarm(LIMIT)
    try:
        return run(name, content)
    except Overrun:
        return "broken", f"longer than {LIMIT} s"
    except populus.ProgramError as error:
        return "refused", str(error).replace(name, "FILE")
    except (AssertionError, Exception) as error:
        return "broken", f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)


def report(cases: Iterable[tuple[str, str]], run: Run, log: Path | None) -> None:
    """Runs programs, name and text, and prints what came of them, by reason. Exits with 1 if one is wrong."""

    def stop(*_: object) -> None:
        raise Overrun

    signal.signal(signal.SIGALRM, stop)
    total, reasons = Counter[str](), defaultdict[str, list[str]](list)
    begun = time.perf_counter()
    for name, text in cases:
        kind, why = outcome(name, text, run)
        total[kind] += 1
        if kind != "right":
            reasons[f"{kind}: {re.sub(r'[0-9]+', 'N', why)[-160:]}"].append(name)
        if log is not None:
            with log.open("a") as stream:
                stream.write(json.dumps([name, kind, why]) + "\n")
    counts = ", ".join(f"{n} {k}" for k, n in total.most_common())
    print(f"{total.total()} programs in {time.perf_counter() - begun:.0f} s: {counts}")
    for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        print(f"{len(names):5} {reason}   ({names[0]})")
    sys.exit(bool(total["wrong"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--folder", default=DATA)
    parser.add_argument("--part", default="0/1", help="run part i of n, `i/n`")
    parser.add_argument("--match", default="")
    parser.add_argument("--engine", default="strict")
    parser.add_argument("--log", type=Path)
    given = parser.parse_args()
    first, every = map(int, given.part.split("/"))
    files = sorted(f for f in (given.checkout / given.folder).glob("*.mlir") if re.search(given.match, f.name))[first::every]
    cases = {name: text for file in files for name, text in programs(file).items()}
    report(cases.items(), lambda name, text: run(name, text, given.engine), given.log)


if __name__ == "__main__":
    main()
