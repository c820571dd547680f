"""The process that takes changes into the search index for the service: ``python -m kg.index_process``.

Python runs one thread at a time, and in a flood of writes the service needs its turns for them; here there are others. A request is the
generation to begin after and the newest there is; the answer is what was taken in of that (``kg.intake.Taken``), for the
service to count. It reads the change log and writes the index's file, both beside the service. What it cannot take in,
for whatever reason, it leaves to the service, and ends.
"""

from __future__ import annotations

import argparse
import os
import socket
from pathlib import Path

import msgspec

from kg.index_tables import Tables
from kg.intake import CHUNK, Intake, Taken
from kg.iris import Iris
from kg.processes import begun
from kg.store.frames import Frames, frame
from kg.store.log_reader import LogReader
from kg.store.protocol import StoredGraph

_YIELDING = 10  # of the system's 19: while the processors are short, writes go before the index that follows them


class Asked(msgspec.Struct, array_like=True):
    """What is to be taken in: changes of generations greater than ``position``, none greater than ``until``."""

    position: int
    until: int


def answer(log: LogReader, tables: Tables, iris: Iris, asked: Asked) -> Taken:
    """Take in a chunk of what is asked for; raises ``KeyError`` for a graph whose text the log does not have."""
    entries = log.log(asked.position, asked.until, CHUNK)
    held = log.stored_of({each.graph for each in entries})

    def read(graph: str) -> StoredGraph | None:
        if graph not in held:
            return None
        entry, text = held[graph]
        if text is None:
            raise KeyError(graph)
        return StoredGraph(entry, text)

    return Intake(tables, iris, lambda _: None, read).take_in(entries, log.pruned() + 1)


def main() -> None:
    """Serve on standard input until the other side is gone."""
    options = argparse.ArgumentParser()
    options.add_argument("log", type=Path)
    options.add_argument("index", type=Path)
    options.add_argument("base")
    given, channel = begun(options)
    os.nice(_YIELDING)
    try:
        _serve(channel, LogReader(given.log), Tables(given.index), Iris(given.base))
    except Exception as error:  # noqa: BLE001 - the edge of the process: it is told, and the service does it itself
        channel.sendall(frame(b"X", f"{type(error).__name__}: {error}".encode()))


def _serve(channel: socket.socket, log: LogReader, tables: Tables, iris: Iris) -> None:
    arrived = Frames()
    tables.write_along()
    channel.sendall(frame(b"E"))
    while found := arrived.wait(channel):
        taken = answer(log, tables, iris, msgspec.json.decode(found[1], type=Asked))
        channel.sendall(frame(b"D", msgspec.json.encode(taken)))


if __name__ == "__main__":
    main()
