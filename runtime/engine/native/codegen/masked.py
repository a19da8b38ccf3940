"""Kernels for machines without masked loads and stores, for which LLVM writes a branch for each lane, wherever one stands.

Nor do they have prefetches, of which LLVM would leave the addresses.
"""

from __future__ import annotations

import re

_DECLARED = re.compile(r"^declare (?P<type>.+?) @llvm\.(?P<name>masked\.(?:load|store)\.\w+)\.p0\((?P<types>[^()]*)\)$", re.MULTILINE)
_PREFETCH = re.compile(r"^.*@llvm\.prefetch\.p0\(.*\n", re.MULTILINE)


def apart(text: str) -> str:
    """Gives a kernel's text with a function for each kind of masked load and store, instead of its lanes at each place; without prefetches.

    The functions of one kind have equal code in all kernels, so a linker keeps one of them.
    """
    text, made = _PREFETCH.sub("", text), list[str]()
    for found in _DECLARED.finditer(text):
        result, name, types = found["type"], found["name"], found["types"].split(", ")
        align = [n for n, type in enumerate(types) if type == "i32 immarg"]
        intrinsic, function = f"@llvm.{name}.p0(", f"@{name}("
        if len(align) != 1:
            continue
        alignments = set(re.findall(rf"call {re.escape(result)} {re.escape(intrinsic)}[^()]*?i32 immarg (\d+)", text))
        if len(alignments) != 1:
            continue
        text = text.replace(f"call {result} {intrinsic}", f"call {result} {function}")
        given = [f"{type.replace(' immarg', '')} %{n}" for n, type in enumerate(types)]
        passed = [f"{type} {alignments.copy().pop() if n in align else f'%{n}'}" for n, type in enumerate(types)]
        call = f"call {result} {intrinsic}{', '.join(passed)})"
        # Of any other linkage LLVM would write a kernel's own constants into it.
        body = f"  {call}\n  ret void\n" if result == "void" else f"  %r = {call}\n  ret {result} %r\n"
        made.append(f"define linkonce_odr hidden {result} {function}{', '.join(given)}) noinline {{\n{body}}}\n")
        text = re.sub(rf"(call {re.escape(result)} {re.escape(function)}[^()]*?i32) immarg", r"\1", text)
    return text + "".join(made)
