"""Arrow streams and Parquet files that others wrote, read within limits and validated in full before anything looks at a value.

pyarrow trusts what it reads: offsets that point outside of a buffer, or an index outside of its dictionary, are followed into memory that
is not theirs. Compressed buffers are unpacked to whatever size they declare, so the sizes are added up first.
https://arrow.apache.org/docs/format/Columnar.html#encapsulated-message-format
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from drumlin.kg.errors import InvalidDocument, TooLarge
from drumlin.kg.telemetry.arrow import pa, parquet

MAX_UNPACKED = 256 << 20
"""Bytes of a stream's compressed buffers once they are unpacked."""
MAX_COLUMNS = 1000
_ROWS = 65_536  # rows of a Parquet file that are held at once
_LEGACY = b"ARROW:experimental_compression"  # how streams before format V5 declare compression


def errors() -> tuple[type[Exception], ...]:
    """Return what pyarrow raises for input that it does not accept.

    Its own classes, ``OSError`` for what is cut, ``KeyError`` for a column that is there twice, ``ValueError`` for a name that is not
    UTF-8 or a time beyond the calendar, ``TypeError`` and ``OverflowError`` for statistics of another kind than their column.
    """
    return (pa.ArrowException, OSError, KeyError, ValueError, TypeError, OverflowError, MemoryError)


@contextmanager
def translated(what: str, hint: str | None = None) -> Iterator[None]:
    """Raise every error of pyarrow as ``InvalidDocument``: ``what`` begins the message, pyarrow's own words end it."""
    try:
        yield
    except errors() as error:
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise InvalidDocument(f"{what}: {said}", hint=hint) from error


def read_stream(body: bytes, *, max_rows: int) -> pa.Table:
    """Read an Arrow IPC stream into a table that is safe to compute with.

    Raises ``TooLarge`` for more than ``max_rows`` rows, ``MAX_COLUMNS`` columns or ``MAX_UNPACKED`` bytes once unpacked, and
    ``InvalidDocument`` for everything that pyarrow does not accept.
    """
    with translated("the body is not a valid Arrow IPC stream", "send what pyarrow.ipc.new_stream writes"):
        _check_sizes(body)
        with pa.ipc.open_stream(body) as stream:
            if len(stream.schema) > MAX_COLUMNS:
                raise TooLarge(f"the table has {len(stream.schema):,} columns; the limit is {MAX_COLUMNS:,}")
            batches = list(within(stream, max_rows))
        return pa.Table.from_batches(batches, stream.schema)


def within(batches: Iterable[pa.RecordBatch], max_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches, each validated in full; raises ``TooLarge`` when they have more than ``max_rows`` rows in all."""
    rows = 0
    for each in batches:
        rows += each.num_rows
        if rows > max_rows:
            raise TooLarge(f"the table has more than {max_rows:,} rows, which is the limit")
        each.validate(full=True)
        yield each


# -- sizes of compressed buffers ------------------------------------------------------------------------------------------
def _check_sizes(body: bytes) -> None:
    """Raise ``TooLarge`` when compressed buffers declare more than ``MAX_UNPACKED`` bytes in all; pyarrow allocates what they declare."""
    unpacked = 0
    for message in pa.ipc.MessageReader.open_stream(body):
        if message.type not in ("record batch", "dictionary"):
            continue
        try:
            sizes = _unpacked_sizes(message)
        except (struct.error, IndexError) as error:
            raise InvalidDocument("the Arrow IPC stream has a message that is cut or malformed") from error
        unpacked += sum(sizes)
        if unpacked > MAX_UNPACKED:
            raise TooLarge(
                f"the Arrow IPC stream unpacks to {unpacked:,} bytes or more; the limit is {MAX_UNPACKED:,}",
                hint="send fewer points, or only the columns ds, y and quantiles",
            )


def _unpacked_sizes(message: Any) -> list[int]:
    """Return the sizes that a message's compressed buffers declare in the eight bytes before each; nothing when none is compressed."""
    metadata = message.metadata.to_pybytes()
    batch = _Table.root(metadata).table(2)
    if message.type == "dictionary":
        batch = batch and batch.table(1)
    if batch is None or not (batch.offset(3) or _LEGACY in metadata):
        return []
    body = memoryview(message.body)
    found = []
    for offset, length in batch.structs(2, "<qq"):
        if length >= _SIZE.size:
            (size,) = _SIZE.unpack_from(body, offset)
            found.append(length if size < 0 else size)
    return found


_SIZE = struct.Struct("<q")


class _Table:
    """A table of a flatbuffer: https://flatbuffers.dev/internals/. Reading outside of it raises ``struct.error``."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    @classmethod
    def root(cls, data: bytes) -> _Table:
        """Return the table that a buffer begins with."""
        return cls(data, *struct.unpack_from("<I", data))

    def offset(self, field: int) -> int:
        """Return where the value of a field stands, 0 when it is absent."""
        (back,) = struct.unpack_from("<i", self._data, self._at)
        (size,) = struct.unpack_from("<H", self._data, self._at - back)
        slot = 4 + 2 * field
        if slot >= size:
            return 0
        (found,) = struct.unpack_from("<H", self._data, self._at - back + slot)
        return self._at + int(found) if found else 0

    def table(self, field: int) -> _Table | None:
        """Return the table in a field."""
        at = self.offset(field)
        return _Table(self._data, at + struct.unpack_from("<I", self._data, at)[0]) if at else None

    def structs(self, field: int, form: str) -> Iterator[tuple[Any, ...]]:
        """Yield the structs of the vector in a field."""
        at = self.offset(field)
        if at:
            begin = at + struct.unpack_from("<I", self._data, at)[0]
            (count,) = struct.unpack_from("<I", self._data, begin)
            size = struct.calcsize(form)
            if begin + 4 + count * size > len(self._data):
                raise struct.error("a vector is longer than its message")
            yield from struct.iter_unpack(form, self._data[begin + 4 : begin + 4 + count * size])


# -- Parquet --------------------------------------------------------------------------------------------------------------
def parquet_batches(
    path: Path,
    columns: Sequence[str],
    *,
    metadata: Any = None,
    groups: Sequence[int] | None = None,
    words: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield columns of a file (of some row groups), some thousand validated rows at a time; ``words`` are read as dictionaries.

    What a footer declares has no influence on how much memory that takes. Raises ``errors()``.
    """
    with parquet.ParquetFile(path, metadata=metadata, read_dictionary=list(words)) as file:
        for batch in file.iter_batches(_ROWS, row_groups=groups, columns=list(columns), use_threads=False):
            batch.validate(full=True)
            yield batch
