"""Giving the engine what it reads as the file that it is, piece by piece.

To put tens of megabytes together would hold up every other thread for as long as that takes: copying keeps Python's lock, writing does not.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_PIECES = 512  # written at once; the system takes 1,024


@contextmanager
def piped(pieces: Sequence[bytes]) -> Iterator[str]:
    """Have ``pieces`` as a file that can be read once, from its beginning; returns its path.

    Raises what writing them raised, unless nobody read on: who stops reading has a reason of its own.
    """
    reading, writing = os.pipe()
    failures: list[OSError] = []
    thread = threading.Thread(target=_write, args=(writing, pieces, failures), name="piping", daemon=True)
    thread.start()
    try:
        yield f"/dev/fd/{reading}"
    finally:
        os.close(reading)
        thread.join()
    if failures:
        raise failures[0]


def _write(writing: int, pieces: Sequence[bytes], failures: list[OSError]) -> None:
    try:
        for start in range(0, len(pieces), _PIECES):
            part = pieces[start : start + _PIECES]
            written = os.writev(writing, part)
            if written < sum(map(len, part)):  # a signal came
                _write_rest(writing, b"".join(part)[written:])
    except OSError as error:
        failures.append(error)
    finally:
        os.close(writing)


def _write_rest(writing: int, rest: bytes) -> None:
    while rest:
        rest = rest[os.write(writing, rest) :]
