"""Jobs for workers that do what a hostile document can make a parser do."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyoxigraph as ox

from drumlin.kg.errors import ShapeViolation, TooLarge, Violation
from tests import hostile


def echo(payload: bytes) -> Iterator[bytes]:
    """Return what was sent, and the process that did it."""
    yield payload
    yield str(os.getpid()).encode()


def sleep(payload: bytes) -> Iterator[bytes]:
    """Never return."""
    yield payload
    time.sleep(3600)


def nap(payload: bytes) -> Iterator[bytes]:
    """Return after so many seconds."""
    time.sleep(float(payload))
    yield payload


def take(payload: bytes) -> Iterator[bytes]:
    """Take so many bytes of memory, and return how many."""
    yield str(len(bytearray(int(payload)))).encode()


def write(payload: bytes) -> Iterator[bytes]:
    """Return so many bytes, a megabyte at a time."""
    for _ in range(int(payload) >> 20):
        yield bytes(1 << 20)


def end(payload: bytes) -> Iterator[bytes]:
    """End the process by a signal, or by an exit code with words on stderr."""
    yield b"begun"
    if payload.isdigit():
        os.kill(os.getpid(), int(payload))
    sys.exit(payload.decode())


def fail(payload: bytes) -> Iterator[bytes]:
    """Raise what nobody expects."""
    yield from ()
    raise KeyError(payload)


def refuse(payload: bytes) -> Iterator[bytes]:
    """Raise an error of ours."""
    yield b"begun"
    if payload:
        raise ShapeViolation((Violation("x:a", "x:p", None, "rule", "it is wrong", "right"),))
    raise TooLarge("too large", hint="less", detail={"limit": 1})


def open_files(payload: bytes) -> Iterator[bytes]:
    """Return the environment of the process and what its file descriptors are."""
    yield from ()
    yield repr(dict(os.environ)).encode()
    for each in Path("/proc/self/fd").iterdir():
        try:
            yield f"{each.name} {each.readlink()}".encode()
        except FileNotFoundError:  # that of the listing itself
            continue


def ignore_signals(payload: bytes) -> Iterator[bytes]:
    """Refuse to be ended by anything but SIGKILL, and never return."""
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    yield from sleep(payload)


def hoard(payload: bytes) -> Iterator[bytes]:
    """Take memory without end."""
    yield from ()
    held = [payload]
    while True:
        held.append(bytes(1 << 20))


def flood(payload: bytes) -> Iterator[bytes]:
    """Return bytes without end."""
    while True:
        yield payload + bytes(1 << 20)


def overflow(payload: bytes) -> Iterator[bytes]:
    """Read a document as the parser does that nothing checked before: its stack overflows, whatever the document is."""
    yield from ()
    del payload
    ox.Store().load(hostile.triple_terms(20_000), format=ox.RdfFormat.TURTLE)
