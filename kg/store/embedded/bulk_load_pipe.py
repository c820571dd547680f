"""Giving the engine what it reads as the file that it is, piece by piece.

To put tens of megabytes together would hold up every other thread for as long as that takes: copying keeps Python's lock, writing does not.
Pieces are made one by one for the same reason.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice

_PIECES = 64  # made and written at once


@contextmanager
def piped(pieces: Iterable[bytes]) -> Iterator[str]:
    """Have ``pieces`` as a file that can be read once, from its beginning; returns its path.

    Raises what making or writing them raised, unless the reader has stopped, which has a reason of its own.
    """
    reading, writing = os.pipe()
    failures: list[BaseException] = []
    thread = threading.Thread(target=_write, args=(writing, pieces, failures), name="piping", daemon=True)
    thread.start()
    try:
        yield f"/dev/fd/{reading}"
    finally:
        os.close(reading)
        thread.join()
    if failures:
        raise failures[0]


def _write(writing: int, pieces: Iterable[bytes], failures: list[BaseException]) -> None:
    try:
        rest = iter(pieces)
        while part := list(islice(rest, _PIECES)):
            written = os.writev(writing, part)
            if written < sum(map(len, part)):  # a signal came
                _write_rest(writing, b"".join(part)[written:])
    except BaseException as error:  # noqa: BLE001 - it is raised where the reading is: what was read is not all
        failures.append(error)
    finally:
        os.close(writing)


def _write_rest(writing: int, rest: bytes) -> None:
    while rest:
        rest = rest[os.write(writing, rest) :]
