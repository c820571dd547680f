"""A reader: a process of its own that answers queries on its own replica, so that a query can be killed and may crash.

The engine cannot cancel a query, and some queries end its process; here that costs one reader. It gets its replica's folder on the
command line and frames on its standard input, a socket (``kg.store.query_workers.frames``). It dies with the service, at the latest
when the socket ends. Imports little: it is started for every reader.
"""

from __future__ import annotations

import argparse
import json
import mmap
import resource
import socket
import sys
import time
from collections import deque
from contextlib import suppress

import pyoxigraph as ox

from drumlin.kg.errors import DrumlinError
from drumlin.kg.processes import begun
from drumlin.kg.sparql.dataset import Chosen
from drumlin.kg.store import blank_nodes, querying
from drumlin.kg.store.query_workers import frames
from drumlin.kg.store.query_workers.frames import BEGUN
from drumlin.kg.workers.frames import CHUNK, Frames, frame

_PATIENCE = 0.01  # seconds that a part of a result may wait for more
_LONG = 0.01  # seconds that a query takes, after which others may have been asked elsewhere
_END = frame(b"E")
_SKIPPED = b"S"  # a query that is wanted no more


class _Reply:
    """Where the engine writes to: sends what it is given in parts of about ``CHUNK`` bytes, sooner when more is slow to come."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._waiting = bytearray()
        self._since = 0.0  # when the first byte that waits came

    def write(self, data: bytes, /) -> int:
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting += data
        if len(self._waiting) >= CHUNK or time.monotonic() - self._since > _PATIENCE:
            self._channel.sendall(self._part())
        return len(data)

    def flush(self) -> None:
        """Do nothing: ``end`` sends the rest."""

    def end(self) -> None:
        self._channel.sendall(self._part() + _END)

    def fail(self, error: DrumlinError) -> None:
        said = {"type": type(error).__name__, "message": str(error), "hint": error.hint, "detail": error.detail}
        self._channel.sendall(frame(b"X", json.dumps(said | {"reason": getattr(error, "reason", None)}).encode()))

    def _part(self) -> bytes:
        if not self._waiting:
            return b""
        part = frame(b"D", bytes(self._waiting))
        self._waiting.clear()
        return part


class _Requests:
    """The frames that came and are not answered yet."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._arrived = Frames()
        self.waiting: deque[tuple[bytes, bytes]] = deque()

    def wait(self) -> bool:
        """Wait for frames; False when the other side is gone."""
        return self._take(self._channel.recv(CHUNK))

    def look(self) -> None:
        """Take what is there without waiting, and strike out what is wanted no more."""
        with suppress(BlockingIOError):
            while self._take(self._channel.recv(CHUNK, socket.MSG_DONTWAIT)):
                pass
        kinds = [kind for kind, _ in self.waiting]
        if b"C" in kinds:
            last = len(kinds) - kinds[::-1].index(b"C")
            for at in range(last):
                if kinds[at] == b"Q":
                    self.waiting[at] = _SKIPPED, b""

    def _take(self, data: bytes) -> bool:
        self._arrived.feed(data)
        while (found := self._arrived.next()) is not None:
            self.waiting.append(found)
        return bool(data)


def serve(engine: ox.Store, channel: socket.socket, begun: mmap.mmap) -> None:
    """Answer until the other side is gone; ``begun`` has the number of queries that were begun (``frames.BEGUN``)."""
    count = 0
    requests = _Requests(channel)
    channel.sendall(frame(b"E"))  # the replica is open
    while requests.wait():
        while requests.waiting:
            began = time.monotonic()
            kind, payload = requests.waiting.popleft()
            if kind in (b"Q", _SKIPPED):
                count += 1
                BEGUN.pack_into(begun, 0, count)
            _act(engine, channel, kind, payload)
            if time.monotonic() - began > _LONG:
                requests.look()


def _act(engine: ox.Store, channel: socket.socket, kind: bytes, payload: bytes) -> None:
    if kind == b"U":
        blank_nodes.replay(engine, payload.decode())
        return
    if kind == b"C":
        return
    reply = _Reply(channel)
    if kind == b"Q":
        query, options = frames.read_asked(payload)
        chosen = Chosen(query, options.union, options.default, options.named)
        try:
            querying.work(engine, chosen, options.media_type, options.base)(reply)
        except DrumlinError as error:
            reply.fail(error)
            return
    reply.end()


def main() -> None:
    """Serve on standard input."""
    options = argparse.ArgumentParser()
    options.add_argument("folder")
    options.add_argument("--address-space", type=int, default=0, help="bytes; 0 for no limit")
    options.add_argument("--begun", type=int, required=True, help="the shared memory that counts what was begun")
    given, channel = begun(options)
    if given.address_space:
        resource.setrlimit(resource.RLIMIT_AS, (given.address_space, given.address_space))
    engine = ox.Store(given.folder)
    try:
        serve(engine, channel, mmap.mmap(given.begun, BEGUN.size))
    except (BrokenPipeError, ConnectionResetError):  # the service is gone, or no longer wants the result
        sys.exit(0)


if __name__ == "__main__":
    main()
