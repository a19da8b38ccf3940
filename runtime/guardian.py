"""The guardian of several ranks: a process that each is connected to, which sees at once when one of them ends.

    python guardian.py COUNT    # prints its port and a word that ranks say first

A rank that ends in order says so. When another one ends, or fails, the guardian prints one line and closes all connections, and each
rank that sees its own closed ends itself. It runs in a session of its own, so that it outlives whatever the launcher of ranks kills.
It needs only the standard library, as it starts with the ranks.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import socket
import sys
import time
from contextlib import suppress

GRACE = 1.0  # seconds in which other ranks may say that they failed the same way
JOIN = 120.0  # seconds in which all ranks come
KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}  # a machine that is gone is seen after 20 s


def alive(connection: socket.socket) -> socket.socket:
    """Makes a connection notice that the other machine is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


class Rank:
    """A connection of a rank: its number, where it runs, and the last message."""

    def __init__(self, connection: socket.socket):
        self.connection = connection
        self.number, self.place, self.text = -1, "", b""
        self.said: str | None = None  # why it failed; "" if it ended in order

    def read(self, word: str) -> bool:
        """Reads messages. Gives False when the connection is closed."""
        try:
            given = self.connection.recv(65536)
        except OSError:
            return False
        self.text += given
        while b"\n" in self.text:
            line, self.text = self.text.split(b"\n", 1)
            message: dict[str, str] = json.loads(line)
            if message["word"] != word:
                return False
            if "number" in message:
                self.number, self.place = int(message["number"]), message["place"]
            else:
                self.said = message["said"]
        return bool(given)


def lines(count: int, ranks: list[Rank], lost: list[Rank]) -> list[str]:
    """Gives what to print: a message of several ranks once, else the ranks that are gone."""
    said = [r for r in ranks if r.said]
    if said:
        first = min(said, key=lambda r: r.number)
        one = len({r.said for r in said}) == 1 and len(said) > 1
        return [first.said if one or count == 1 else f"{first.said} (rank {first.number} of {count})"] if first.said else []
    if not lost:
        return []
    # The launcher ends the others when one is lost. Name all that were gone in the same moment: nothing tells which was the first.
    gone = sorted(lost, key=lambda r: r.number)
    names = " and ".join(f"rank {r.number} of {count} ({r.place})" for r in gone)
    others = "the others end too, and " if len(gone) < count else ""
    return [f"populus: {names} {'were' if len(gone) > 1 else 'was'} lost; {others}the newest checkpoint is whole"]


def watch(listener: socket.socket, count: int, word: str) -> list[str]:
    """Follows ranks until all have ended in order, or one has not. Gives the lines to print."""
    ranks: list[Rank] = []
    begun, failed = time.monotonic(), 0.0
    while True:
        open_ranks = [r for r in ranks if r.said is None]
        if len(ranks) == count and not open_ranks:
            return lines(count, ranks, [])
        if failed and time.monotonic() - failed > GRACE:
            return lines(count, ranks, [])
        if len(ranks) < count and time.monotonic() - begun > JOIN:
            return [f"populus: {count - len(ranks)} of {count} ranks did not come within {JOIN:g} s"]
        ready, _, _ = select.select([listener, *(r.connection for r in open_ranks)], [], [], 0.5)
        lost: list[Rank] = []
        for source in ready:
            if source is listener:
                ranks.append(Rank(alive(listener.accept()[0])))
                continue
            rank = next(r for r in ranks if r.connection is source)
            if not rank.read(word):
                if rank.number < 0:  # a stranger
                    ranks.remove(rank)
                elif rank.said is None:
                    lost.append(rank)
            elif rank.said == "":
                for other in open_ranks:
                    with suppress(OSError):
                        other.connection.sendall(rank.number.to_bytes(4, "big"))
            if rank.said and not failed:
                failed = time.monotonic()
        if lost and not failed:
            return lines(count, ranks, lost)


def main() -> None:
    """Runs the guardian."""
    count, word = int(sys.argv[1]), secrets.token_hex(16)
    listener = socket.create_server(("", 0))
    print(listener.getsockname()[1], word, flush=True)
    os.close(1)
    for line in watch(listener, count, word):
        os.write(2, (line + "\n").encode())


if __name__ == "__main__":
    main()
