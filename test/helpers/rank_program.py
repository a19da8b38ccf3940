"""A program for `mpiexec`: results that N ranks and one process have the same, which rank 0 prints; and ranks that fail.

mpiexec -n 2 python test/helpers/rank_program.py equal 4 8
mpiexec -n 3 python test/helpers/rank_program.py faults 3 killed
"""

from __future__ import annotations

import os
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from populus.program.replicas import Place, Replicas
from populus.runtime.gcl import CUT_FROM, Group, communicator
from populus.write.builder import Builder


def digest(arrays):
    """Gives a short digest of the bits of arrays."""
    return sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()[:16]


def meetings(count):
    """Gives each replica's results of reductions and exchanges over every group of `count` replicas, by hand: no program is compiled."""
    place = Place.of(count)
    groups = [Group(stride, size) for stride in (1, 2, 4) for size in (1, 2, 4, 8) if count % (stride * size) == 0]

    def one(k):
        rng, found = np.random.default_rng(k), []
        for n, group in enumerate(groups):
            way, x = communicator(), rng.normal(size=(CUT_FROM // 8 * (1 + 15 * (n % 2)) + 3,)).astype(np.float32)
            found += [way.reduced(group, "add", x, f"{n} add"), np.concatenate(way.gather(group, x, f"{n} all"))]
            parts = [x[i : i + 5] for i in range(group.size)]
            found.append(np.concatenate(way.exchange(group, parts, f"{n} parts")))
        return {"all": np.concatenate(found)}

    return digest(a for each in place.everywhere(place.run(one)) for a in each.values())


def collectives(count):
    """Gives a digest of a compiled program with collectives over two kinds of groups."""
    import populus

    b = Builder()
    x = b.input("x", (count, 3))
    all = b.op("all_reduce", b.op("tanh", x)[0], size=count, reduction="mean")[0]
    b.output("y", b.op("all_to_all", all, size=count // 2, stride=2)[0])
    b.output("z", b.op("all_gather", b.op("reduce_scatter", x, size=count)[0], size=2)[0])
    b.output("k", b.op("replica_index", size=count)[0])
    given = [{"x": np.random.default_rng(k).normal(size=(count, 3)).astype(np.float32)} for k in range(count)]
    found = Replicas(populus.compile(b.module(), target="gc200", tiles=4, engine="numpy"), count).run(given)
    assert [int(each["k"]) for each in found] == list(range(count))
    return digest(each[name] for each in found for name in sorted(each))


def faults(count, kind):
    """Lets replica 1 fail in one of several ways, while the others wait for it."""

    def one(k):
        for step in range(10000):
            if k == 1 and step == 20:
                match kind:
                    case "killed":
                        os.kill(os.getpid(), 9)
                    case "ended":
                        return
                    case "else":
                        communicator().gather(Group(1, count), np.ones(3), "something else")
                    case _:
                        raise AssertionError(kind)
            communicator().gather(Group(1, count), np.ones(3000), f"step {step}")

    Place.of(count).run(one)


if __name__ == "__main__":
    name, count, more = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    results = [faults(count, more)] if name == "faults" else [meetings(count), meetings(int(more)), collectives(count)]
    if Place.of(count).first:
        print(*results)
