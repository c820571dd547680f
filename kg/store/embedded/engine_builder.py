"""Main program of a process that builds an engine from the change log of a store that is open, when the one there has outgrown it.

What it takes (processor time, memory, Python's lock) is not taken from the service, and is given back whole when it ends. It reads the
log beside those who write it, writes only into the folder that it builds, and says on its standard input, a socket, what came of it.
"""

from __future__ import annotations

import argparse
import os
import time
from contextlib import closing
from pathlib import Path

import msgspec

from drumlin.kg.errors import DrumlinError
from drumlin.kg.processes import begun, limit_arenas, lower_priority
from drumlin.kg.store.embedded.change_log_reader import LogReader
from drumlin.kg.store.embedded.engine import EmbeddedEngine
from drumlin.kg.store.embedded.rebuilding import build, packed_graphs
from drumlin.kg.store.embedded.recovery import approach
from drumlin.kg.store.embedded.wal import full
from drumlin.kg.store.graph_text import statements_of, unpack

OUTGROWN = 3
"""How many times the bytes that its graphs need an engine takes before it is built anew."""
_STATEMENT = 300  # bytes of a statement in the engine's indexes, beside its text
_SPARE = 64 << 20  # bytes of disk that a build leaves to those who write meanwhile


class BuildOutcome(msgspec.Struct, frozen=True):
    """What came of it: the bytes that the graphs ``need``, the ``generation`` that a built engine holds (None: none), or the error.

    ``processor`` is the time that it took of one, in seconds.
    """

    needed: int = 0
    generation: int | None = None
    error: str = ""
    processor: float = 0.0


def build_when_outgrown(folder: Path, path: Path, size: int) -> BuildOutcome:
    """Build an engine in ``folder`` from the log in the file ``path``, if one of ``size`` bytes is too large for the graphs in it.

    Raises ``StoreFull`` before there is no room for others, ``StoreUnavailable``.
    """
    with closing(LogReader(path)) as log:
        graphs, needed = needed_by(log)
        if size <= OUTGROWN * needed:
            return BuildOutcome(needed)
        _check_room(folder.parent, 2 * needed)
        generation = build(folder, log, graphs, lambda *_: _check_room(folder.parent, 0))
        with closing(EmbeddedEngine(folder, log.store_id)) as engine:
            generation = approach(engine, log, generation)
            engine.flush()
            engine.hold(generation)
        return BuildOutcome(needed, generation)


def needed_by(log: LogReader) -> tuple[int, int]:
    """Return how many graphs there are, and about how many bytes an engine that was built from them takes: 220 to 360 a statement."""
    graphs = needed = 0
    for _, packed in packed_graphs(log):
        text = unpack(packed)
        graphs += 1
        needed += len(text) + _STATEMENT * statements_of(text)
    return graphs, needed


def _check_room(disk: Path, needed: int) -> None:
    found = os.statvfs(disk)
    if (free := found.f_bavail * found.f_frsize) < needed + _SPARE:
        raise full(f"the disk has {free >> 20:,} MB left, and {(needed + _SPARE) >> 20:,} MB are needed")


def main() -> None:
    """Build as the arguments say."""
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("log", type=Path)
    options.add_argument("size", type=int)
    given, channel = begun(options)
    lower_priority(os.getpid())
    limit_arenas(2)  # a load is two threads, which would wait for one another
    try:
        outcome = build_when_outgrown(given.folder, given.log, given.size)
    except DrumlinError as error:
        outcome = BuildOutcome(error=str(error))
    with channel:
        channel.sendall(msgspec.json.encode(msgspec.structs.replace(outcome, processor=time.process_time())))


if __name__ == "__main__":
    main()
