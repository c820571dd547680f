"""Marks beside the parts of a store: read as they were written, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumlin.kg.store.embedded.marks import MarkFile, StoreMark, read_mark

STORE = "0123456789abcdef0123456789abcdef"


def test_a_mark_is_written_over_in_place(tmp_path: Path) -> None:
    """Each generation takes the same bytes, so writing needs no room; the last one is read."""
    file = MarkFile(tmp_path / "mark", STORE)
    sizes = set()
    for generation in (0, 9, 10, 2**62, 11):
        file.write(generation, durable=generation == 9)
        sizes.add((tmp_path / "mark").stat().st_size)
        assert read_mark(tmp_path / "mark") == StoreMark(STORE, generation)
    file.close()
    assert sizes == {63}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 63,
        b"\xff" * 63,
        b"one two",
        f"{STORE} 00000000000000000009 00000000\n".encode(),
        b"a b c",
        b"a -1 c",
    ],
)
def test_what_is_no_mark_is_not_believed(tmp_path: Path, content: bytes) -> None:
    """A mark that was cut, overwritten or edited counts as absent; so does one that is not there."""
    (tmp_path / "mark").write_bytes(content)
    assert read_mark(tmp_path / "mark") is None
    assert read_mark(tmp_path / "absent") is None
