"""Parquet files by their footers: which columns a file has, which of its row groups may hold a series, since when it goes.

A footer is read once as long as its file stays the same; of the rows only the groups are read whose statistics do not rule them out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kg.telemetry.arrow import pa, parquet, pc

_PER_SECOND = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}


@dataclass(frozen=True, slots=True)
class Footer:
    """What one file says about itself. Reading raises ``OSError`` and ``pyarrow.ArrowException``."""

    path: Path
    metadata: Any
    schema: pa.Schema
    columns: Mapping[str, int]

    @classmethod
    def of(cls, path: Path) -> Footer:
        """Read a file's footer."""
        metadata = parquet.read_metadata(path)
        columns = {metadata.schema.column(n).path: n for n in range(metadata.num_columns)}
        return cls(path, metadata, metadata.schema.to_arrow_schema(), columns)

    def spans(self, column: str) -> Iterator[tuple[int, int]]:
        """Yield the first and last time of each row group that tells them, in seconds since the epoch."""
        for number in range(self.metadata.num_row_groups):
            if span := self._span(number, column):
                yield span

    def read(self, columns: Sequence[str], values: Mapping[str, str], ds: str, first: int, last: int) -> pa.Table:
        """Read columns of the rows that have these values, of the row groups that may have times from ``first`` to ``last`` (seconds)."""
        groups = [n for n in range(self.metadata.num_row_groups) if self._may_hold(n, values, ds, first, last)]
        names = list(dict.fromkeys([*columns, *values]))
        with parquet.ParquetFile(self.path, metadata=self.metadata, read_dictionary=list(values)) as file:
            table = file.read_row_groups(groups, columns=names, use_threads=False)
        chosen: Any = True
        for name, value in values.items():
            chosen = pc.and_kleene(chosen, pc.equal(table[name], value))
        return table.filter(chosen).select(list(columns))

    def values(self, column: str) -> set[str]:
        """Return the different values of a column of texts."""
        with parquet.ParquetFile(self.path, metadata=self.metadata, read_dictionary=[column]) as file:
            found = pc.unique(file.read(columns=[column], use_threads=False)[column].drop_null())
        return set(map(str, found.to_pylist()))

    def _may_hold(self, number: int, values: Mapping[str, str], ds: str, first: int, last: int) -> bool:
        span = self._span(number, ds)
        if span and (span[1] < first or span[0] > last):
            return False
        for name, value in values.items():
            known = self.metadata.row_group(number).column(self.columns[name]).statistics
            if known is not None and known.has_min_max and isinstance(known.min, str):
                low, high = (each.encode() for each in (known.min, known.max))
                if not low <= value.encode() <= high:
                    return False
        return True

    def _span(self, number: int, column: str) -> tuple[int, int] | None:
        known = self.metadata.row_group(number).column(self.columns[column]).statistics
        if known is None or not known.has_min_max:
            return None
        unit = msgspec.json.decode(known.logical_type.to_json()).get("timeUnit")
        if unit not in _PER_SECOND:
            return None
        return known.min_raw // _PER_SECOND[unit], known.max_raw // _PER_SECOND[unit]


class Footers:
    """The footers of files, each read again when its file has changed. For many threads."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, int], Footer]] = {}

    def of(self, path: Path) -> Footer:
        """Return a file's footer; raises ``OSError`` and ``pyarrow.ArrowException``."""
        now = path.stat()
        version = (now.st_mtime_ns, now.st_size)
        known = self._known.get(path)
        if known is None or known[0] != version:
            known = self._known[path] = (version, Footer.of(path))
        return known[1]
