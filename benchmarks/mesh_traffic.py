"""Published microbenchmarks of networks and DRAM on meshes, predicted from the numbers of a machine.

A flow is T transactions of S bytes by each of n cores. It takes the latency of its first bytes, then the most of issuing, of one core's
rate and of the rate that all share. `Bench` has the figures of these benchmarks, which no program that we plan
needs: the way against a network's direction, reads and writes at once, a multicast that waits for its path anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from populus.dialects.poplar.machine import Mesh
from populus.dialects.poplar.target import Target


@dataclass(frozen=True)
class Bench:
    """Figures of single-sender rows, all of which are marked `fit`."""

    cores: int  # of the rows with all cores
    packet: int  # most bytes of one
    write_issue: float  # of a write to one place
    read_issue: float  # of a read from one place
    bank_bytes: float  # of one bank, to one core
    around: float  # cycles to a core in another row and column
    outside: float  # cycles more of a multicast whose sender is not in it
    against_read: float  # all cores, by the network whose direction is against
    against_write: float
    with_write: float  # all cores read, and write, at once
    all_write: float  # all cores, by the network for writes
    reads: float  # requests a cycle that DRAM answers
    writes: float
    scattered_writes: float  # of All to All
    side: float  # cycles more of a multicast for each core of a side of the rectangle that it goes to


BENCH = {
    "n150": Bench(64, 8192, 22.0, 25.0, 22.0, 94.0, 240.0, 66.0, 50.0, 84.0, 140.0, 1.6, 1.45, 0.18, 48.0),
    "p150": Bench(110, 16384, 23.0, 35.0, 43.0, 153.0, 320.0, 150.0, 119.0, 128.0, 200.0, 0.39, 1.32, 1.1, 55.0),
}
START, EACH = 200.0, 9.0  # cycles in which cores start apart, and more for each core
SHARE = 1 / 3  # exponent of cores, relative to all, in the rate that they share


def predicted(row: Mapping[str, str], target: Target) -> float | None:
    """Predicts a row in its unit; None for a row that no number of the machine is about (PCIe, several multicasts at once)."""
    mesh, bench = target.mesh, BENCH.get(target.name)
    if mesh is None or bench is None or row["unit"] != "cycles":
        return None
    given = dict(part.split("=", 1) for part in row["shape"].split(";") if "=" in part)
    try:
        flow = _Flow(mesh, bench, int(given["Number of Transactions"]), int(given["Transaction Size (bytes)"]), {**given, "op": row["op"]})
    except KeyError:
        return None
    name = row["op"].removeprefix("Noc Estimator - ")
    for start, of in _KINDS.items():
        if name.startswith(start):
            return of(flow)
    return None


@dataclass(frozen=True)
class _Flow:
    mesh: Mesh
    bench: Bench
    transactions: int
    size: int
    given: Mapping[str, str]

    @property
    def bytes(self) -> int:
        return self.transactions * self.size

    @property
    def cores(self) -> int:
        return int(self.given.get("Number of Cores", "1"))

    @property
    def second(self) -> bool:
        """True if it goes by network 1."""
        return self.given.get("NoC Index") == "1"

    def stream(self, latency: float, issue: float, rate: float) -> float:
        """Computes the cycles of one core's flow."""
        return latency + max((self.transactions - 1) * issue, (self.bytes - 64) / rate)

    def shared(self, one: float, rate: float, requests: float) -> float:
        """Computes the cycles of the flows of several cores, of which one alone would take `one`. They start apart."""
        own = rate * (self.cores / self.bench.cores) ** SHARE
        answered = max((self.cores * self.bytes - 64) / own, self.cores * self.transactions / requests)
        return max(START + EACH * self.cores + one, self.first + answered)

    @property
    def first(self) -> float:
        """Computes the cycles until the first 64 bytes of DRAM arrive."""
        return self.mesh.dram_cycles - 2048 / self.mesh.dram_tile_bytes

    def unicast(self, read: bool = False) -> float:
        far = self.bench.around if self.given.get("Same axis") == "False" else 0.0
        issue = self.bench.read_issue if read else self.bench.write_issue
        return self.stream(self.mesh.signal_cycles + far, issue, self.mesh.unicast_bytes)

    def both_ways(self) -> float:
        together = 2 if "Same Kernel" in self.given.get("op", "") else 1
        return self.stream(self.mesh.signal_cycles + self.bench.around, together * self.bench.write_issue, self.mesh.unicast_bytes)

    def multicast(self, rate: float, rectangle: bool = False) -> float:
        """Predicts a multicast: a sender waits for its path once if its transactions are linked, else before each packet."""
        if self.given.get("Mechanism") == "unicast":
            return self.unicast()
        latency = self.mesh.multicast_cycles - 2048 / self.mesh.row_bytes
        if rectangle:
            latency = self.mesh.signal_cycles + self.bench.side * float(self.given["Number of subordinates"]) ** 0.5
        rate = max(rate, self.mesh.unicast_bytes) if self.size >= 8192 else rate  # 2 KiB leave gaps
        latency += self.bench.outside if self.given.get("Loopback") == "False" else 0.0
        packets = self.transactions * -(-self.size // self.bench.packet)
        waits = packets if self.given.get("Mechanism") == "multicast" or self.transactions == 1 else 1
        path = 2 / 3 * latency - 75
        return latency + (waits - 1) * path + max((self.transactions - 1) * self.bench.write_issue, (self.bytes - 64) / rate)

    def dram(self, banks: bool, written: bool) -> float:
        """Predicts DRAM by one core or by several, pages over all banks or each in one."""
        issue = self.mesh.issue_cycles if banks else self.bench.write_issue
        rate = self.mesh.dram_tile_bytes if banks else self.bench.bank_bytes
        one = self.stream(self.first, issue, rate)
        if self.cores == 1:
            return one
        if written:
            requests = self.bench.scattered_writes if "NoC Index" in self.given else self.bench.writes
            against = self.given.get("NoC Index") == "0"
            return self.shared(one, self.bench.against_write if against else self.bench.all_write, requests)
        return self.shared(one, self.bench.against_read if self.second else self.mesh.dram_read_bytes, self.bench.reads)

    def read_and_written(self) -> float:
        """Predicts transactions of which each is read, waited for, and written by another core's request."""
        each = self.first + (self.size - 64) / self.mesh.dram_tile_bytes
        return self.shared(self.transactions * each, self.bench.with_write, self.bench.writes)

    def in_turn(self) -> float:
        """Predicts one core that reads one bank after the other, all of its requests at once."""
        return self.stream(self.first, self.bench.write_issue, self.mesh.unicast_bytes)


_KINDS = {
    "L1 One to One": _Flow.unicast,
    "L1 One from One": lambda f: f.unicast(True),
    "L1 One to Row": lambda f: f.multicast(f.mesh.row_bytes),
    "L1 One to Column": lambda f: f.multicast(f.mesh.column_bytes),
    "L1 One to All": lambda f: f.multicast(f.mesh.row_bytes, True),
    "Core Bidirectional": _Flow.both_ways,
    "DRAM Interleaved One from All": lambda f: f.dram(True, False),
    "DRAM Interleaved One to All": lambda f: f.dram(True, True),
    "DRAM Interleaved All from All": lambda f: f.dram(True, False),
    "DRAM Interleaved All to All": lambda f: f.dram(True, True),
    "DRAM Sharded One": lambda f: f.dram(False, False),
    "DRAM Sharded All from All": lambda f: f.dram(False, False),
    "DRAM Sharded All to All": lambda f: f.dram(False, True),
    "DRAM Sharded Read": _Flow.in_turn,
    "Multi Interleaved Read": lambda f: f.dram(True, False),
    "Multi Interleaved Write": lambda f: f.dram(True, True),
    "Multi Interleaved": _Flow.read_and_written,
}
