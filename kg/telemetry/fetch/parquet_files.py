"""Parquet files by their footers: which columns a file has, which of its row groups may hold a series, since when it goes.

A footer is read once as long as its file stays the same; of the rows only the groups are read whose statistics do not rule them out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from drumlin.kg.telemetry.arrow import pa, parquet, pc
from drumlin.kg.telemetry.arrow_input import parquet_batches
from drumlin.kg.telemetry.fetch.parquet_statistics import Range, ranges

_INT64 = struct.Struct("<q")
_PER_SECOND = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}


@dataclass(frozen=True, slots=True)
class Footer:
    """What one file says about itself. Reading raises ``kg.telemetry.arrow_input.errors``."""

    path: Path
    metadata: Any
    schema: pa.Schema
    columns: Mapping[str, int]
    ranges: Sequence[Mapping[str, Range]]

    @classmethod
    def of(cls, path: Path) -> Footer:
        """Read a file's footer."""
        with path.open("rb") as file:
            metadata = parquet.read_metadata(file)
            known = ranges(file)
        columns = {metadata.schema.column(n).path: n for n in range(metadata.num_columns)}
        if len(known) != metadata.num_row_groups:
            known = [{}] * metadata.num_row_groups
        return cls(path, metadata, metadata.schema.to_arrow_schema(), columns, known)

    def spans(self, column: str) -> Iterator[tuple[int, int]]:
        """Yield the first and last time of each row group that records them, in seconds since the epoch."""
        for each in self.ranges:
            if span := self._span(each, column):
                yield span

    def read(
        self, columns: Sequence[str], values: Mapping[str, str], ds: str, first: int, last: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield columns of the rows that have these values, of the row groups that may have times from ``first`` to ``last`` (seconds)."""
        groups = [n for n, known in enumerate(self.ranges) if self._may_hold(known, values, ds, first, last)]
        names = list(dict.fromkeys([*columns, *values]))
        for batch in parquet_batches(self.path, names, metadata=self.metadata, groups=groups, words=list(values)):
            chosen: Any = True
            for name, value in values.items():
                chosen = pc.and_kleene(chosen, pc.equal(batch[name], value))
            yield batch.filter(chosen).select(list(columns))

    def values(self, column: str) -> set[str]:
        """Return the different values of a column of texts."""
        found: set[str] = set()
        for batch in parquet_batches(self.path, [column], metadata=self.metadata, words=[column]):
            found.update(map(str, pc.unique(batch[column].drop_null()).to_pylist()))
        return found

    def _may_hold(self, known: Mapping[str, Range], values: Mapping[str, str], ds: str, first: int, last: int) -> bool:
        span = self._span(known, ds)
        if span and (span[1] < first or span[0] > last):
            return False
        for name, value in values.items():
            if name in known and self._logical(name).type == "STRING":
                least, greatest = known[name]
                if not least <= value.encode() <= greatest:
                    return False
        return True

    def _span(self, known: Mapping[str, Range], column: str) -> tuple[int, int] | None:
        unit = msgspec.json.decode(self._logical(column).to_json()).get("timeUnit")
        if column not in known or unit not in _PER_SECOND or any(len(each) != _INT64.size for each in known[column]):
            return None
        (first,), (last,) = map(_INT64.unpack, known[column])
        return first // _PER_SECOND[unit], last // _PER_SECOND[unit]

    def _logical(self, column: str) -> Any:
        return self.metadata.schema.column(self.columns[column]).logical_type


class Footers:
    """The footers of files, each read again when its file has changed. For many threads."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, int], Footer]] = {}

    def of(self, path: Path) -> Footer:
        """Return a file's footer; raises ``kg.telemetry.arrow_input.errors``."""
        now = path.stat()
        version = (now.st_mtime_ns, now.st_size)
        known = self._known.get(path)
        if known is None or known[0] != version:
            known = self._known[path] = (version, Footer.of(path))
        return known[1]
