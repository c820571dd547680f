"""What the engine reads through a pipe is what it was given, and a failure on one side ends the other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.kg.store.embedded import bulk_load_pipe
from drumlin.kg.store.embedded.bulk_load_pipe import piped


@pytest.mark.parametrize("count", [0, 1, 512, 513, 2_000])
def test_pieces_come_through_in_order(count: int) -> None:
    """Any number of them, more than the pipe or one call of the system takes at once."""
    pieces = [f"{number} ".encode() * (number % 97) for number in range(count)]
    with piped(pieces) as path:
        assert Path(path).read_bytes() == b"".join(pieces)


def test_what_was_written_in_part_is_written_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may take less than it was given."""

    def some(file: int, part: list[bytes]) -> int:
        return os.write(file, b"".join(part)[:1000])

    monkeypatch.setattr(bulk_load_pipe.os, "writev", some)
    pieces = [b"%d." % number for number in range(1_500)]
    with piped(pieces) as path:
        assert Path(path).read_bytes() == b"".join(pieces)


def test_who_stops_reading_says_why() -> None:
    """The error is the reader's, not that nobody read on, and no thread is left waiting."""

    def stop(pieces: list[bytes]) -> None:
        with piped(pieces) as path, Path(path).open("rb") as file:
            file.read(10)
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        stop([b"x" * 10**6] * 5)


def test_a_writer_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who read to a premature end must not take it for the whole."""

    def fails(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(bulk_load_pipe.os, "writev", fails)
    with pytest.raises(OSError, match="Input/output error"), piped([b"x"]) as path:
        assert Path(path).read_bytes() == b""


def test_a_piece_that_cannot_be_made_is_told() -> None:
    """Whatever the reason: the pieces before it are not the whole."""

    def pieces() -> Iterator[bytes]:
        yield from [b"x"] * 100
        raise MemoryError

    with pytest.raises(MemoryError), piped(pieces()) as path:
        assert len(Path(path).read_bytes()) <= 100
