"""Gzip streams of shared pieces: whatever comes, every gzip reader gets it, each piece as soon as it is sent, and the check holds."""

from __future__ import annotations

import gzip
import zlib

from hypothesis import given
from hypothesis import strategies as st

from api.shared_gzip import Gzip, Piece

pieces = st.lists(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: (text * 40).encode()), max_size=8)


@given(pieces, st.integers(0, 8))
def test_a_reader_gets_what_comes_from_where_it_begins(data: list[bytes], since: int) -> None:
    """Readers who begin at different places share the pieces, and each one's stream is whole and passes its check."""
    shared = [Piece(each) for each in data]
    for start in {0, min(since, len(data))}:
        stream = Gzip()
        sent = b"".join(stream.add(each) for each in shared[start:]) + stream.end()
        assert gzip.decompress(sent) == b"".join(data[start:])


@given(pieces)
def test_a_piece_can_be_read_as_soon_as_it_is_sent(data: list[bytes]) -> None:
    """Nothing is held back until the next piece comes."""
    reader, stream = zlib.decompressobj(wbits=31), Gzip()
    for each in data:
        assert reader.decompress(stream.add(Piece(each))) == each
