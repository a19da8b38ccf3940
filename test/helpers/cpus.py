"""CPUs by their features, of which no test asks whether the machine has them: plans are tested for each of them anywhere."""

from __future__ import annotations

from populus.runtime.engine.native.codegen.cpu import CPUS, Machine, machine

# CPUs that code is made for only where it finds them: AVX-512 without words, tile registers, dot products of ARM.
OTHERS = {
    "x86_64": {
        "knl": f"{CPUS['x86_64']['x86-64-v3']},+avx512f",
        "sapphirerapids": f"{CPUS['x86_64']['cascadelake']},+amx-tile,+amx-int8,+amx-bf16",
    },
    "aarch64": {"cortex-a76": "+neon,+dotprod", "neoverse-v1": "+neon,+dotprod,+i8mm"},
}


def table() -> list[Machine]:
    """All CPUs that have a name in the product, and those above."""
    return [
        Machine(f"{architecture}-unknown-linux-gnu", name, features, machine().llvmlite)
        for known in (CPUS, OTHERS)
        for architecture, names in known.items()
        for name, features in names.items()
    ]
