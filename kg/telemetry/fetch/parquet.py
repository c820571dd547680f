"""Series in a directory of Parquet files: long tables as ``history`` writes them, or anybody's with such columns.

A point of the grid is what the step that ends there holds: the mean, or for what adds up (joules per step) the sum. Files that have not the
columns are left out with a warning; when none has them, an error says which is missing and which are similar.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Literal, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from drumlin.kg.errors import DatasourceRefused, MetricMissing, SourceUnavailable
from drumlin.kg.telemetry.arrow import pa, pc
from drumlin.kg.telemetry.arrow_input import errors
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.connection import configuration
from drumlin.kg.telemetry.fetch.parquet_files import Footer, Footers
from drumlin.kg.telemetry.fetch.prometheus import Fetched
from drumlin.kg.telemetry.series import Grid, Samples, moment

MAX_FILES = 20_000
MAX_ROWS = 5_000_000
"""Rows of one series in one window."""
COLUMNS = ("unique_id", "ds", "y", "metric")
_QUERY = re.compile(
    r"SELECT .* (?P<how>avg|sum)\(.*\)(?: \* (?P<factor>[0-9.e+-]+))? AS \"y\" FROM .* WHERE \"(?:[^\"]|\"\")*\" = '(?P<id>(?:[^']|'')*)'"
    r" AND \"(?:[^\"]|\"\")*\" = '(?P<metric>(?:[^']|'')*)' GROUP BY 1",
    re.DOTALL,
)

How = Literal["avg", "sum"]


class Seen(NamedTuple):
    """What a look at a directory shows: files, those that hold series, and forecasts; the series' first and last time.

    ``lacking``: why none of the others holds series, when there are others.
    """

    files: int
    usable: int
    forecasts: int
    oldest: datetime | None = None
    newest: datetime | None = None
    lacking: MetricMissing | None = None


def directory_of(datasource: Datasource) -> Path:
    """Return the directory of a parquet datasource."""
    return Path(unquote(urlsplit(datasource.url).path))


def write(
    unique_id: str, metric: str, how: How, step: int, datasource: Datasource, factor: Fraction = Fraction(1)
) -> str:
    """Return the query for one series as SQL that DuckDB runs on the same files; values are multiplied with ``factor``."""
    times = "" if factor == 1 else f" * {float(factor)!r}"
    name, at, y, of = (_identifier(each) for each in _columns(datasource).values())
    files = _string(f"{directory_of(datasource)}/**/*.parquet")
    return (
        f'SELECT to_timestamp(ceil(epoch({at}) / {step}) * {step}) AS "ds", {how}({y}){times} AS "y" '  # noqa: S608 - every part is quoted
        f"FROM read_parquet({files}, union_by_name = true) WHERE {name} = {_string(unique_id)} AND {of} = {_string(metric)} GROUP BY 1"
    )


class Parquet:
    """One configured directory. Raises ``SourceUnavailable`` (no directory, no table) and ``DatasourceRefused`` (not such a table)."""

    def __init__(self, datasource: Datasource) -> None:
        if datasource.access is None:
            raise SourceUnavailable(
                f"datasource {datasource.name} is not configured, so nothing is read from it",
                hint="add to drumlin.toml: " + configuration(datasource),
            )
        self.datasource = datasource
        self._names = _columns(datasource)
        self._footers = Footers()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is held open."""

    def series(self, query: str, grid: Grid) -> Fetched:
        """Read the one series of a query that ``write`` made, on a grid of any length."""
        asked = _QUERY.fullmatch(query)
        if asked is None:
            raise DatasourceRefused(f"datasource {self.datasource.name} is no SQL engine; it only reads what it wrote")
        wanted = {name: asked[name].replace("''", "'") for name in ("id", "metric")}
        usable, others = self._tables()
        parts = [self._rows(file, wanted, grid) for file in usable]
        warnings = [f"{others} files have not the columns of a series and are left out"] if others else []
        rows = pa.concat_tables(parts)
        once = rows.group_by("ds", use_threads=False).aggregate([("y", "last")]).sort_by("ds")
        if twice := rows.num_rows - once.num_rows:
            warnings.append(f"{twice} rows have a time that another file has too; the last file's count")
        how: How = "sum" if asked["how"] == "sum" else "avg"
        values = pc.multiply(once["y_last"], float(asked["factor"] or 1))
        return Fetched((gridded(once["ds"], values, grid, how),) if once.num_rows else (), tuple(warnings))

    def look(self) -> Seen:
        """Return what is there, from the files' footers; raises when there is no such directory, or a file is not Parquet."""
        footers = [self._footer(file) for file in self._files(some=False)]
        usable = [each for each in footers if self._is_table(each)]
        forecasts = sum(
            {"ds", "y"} <= each.columns.keys() and self._names["unique_id"] not in each.columns for each in footers
        )
        spans: list[tuple[datetime, datetime]] = []
        for each in usable:
            with self._reading(each.path):
                spans += [(moment(first), moment(last)) for first, last in each.spans(self._names["ds"])]
        oldest = min((first for first, _ in spans), default=None)
        newest = max((last for _, last in spans), default=None)
        lacking = self._no_columns(footers) if not usable and len(footers) > forecasts else None
        return Seen(len(footers), len(usable), forecasts, oldest, newest, lacking)

    def known(self, column: str) -> list[str]:
        """Return the values of ``unique_id`` or ``metric`` in all files, sorted."""
        found: set[str] = set()
        for each in self._tables()[0]:
            with self._reading(each.path):
                found |= each.values(self._names[column])
        return sorted(found)

    def explain(self, query: str) -> MetricMissing:
        """Say what of a query is not there: the series, its metric, or only its points in the window."""
        asked = _QUERY.fullmatch(query)
        for column, group in (("unique_id", "id"), ("metric", "metric")):
            value = asked[group].replace("''", "'") if asked else ""
            known = self.known(column)
            if value not in known:
                similar = difflib.get_close_matches(value, known, n=5, cutoff=0.5)
                return self._missing(f"no row has {self._names[column]} = {value!r}", value, similar or known[:5])
        return self._missing("there are rows of it, but none in the window", "samples", [])

    # -- files --------------------------------------------------------------------------------------------------------
    def _tables(self) -> tuple[list[Footer], int]:
        """Return the files that have the columns, in the order of their names, and how many others there are."""
        footers = [self._footer(file) for file in self._files()]
        usable = [each for each in footers if self._is_table(each)]
        if not usable:
            raise self._no_columns(footers)
        return usable, len(footers) - len(usable)

    def _is_table(self, footer: Footer) -> bool:
        return set(self._names.values()) <= footer.columns.keys()

    def _files(self, *, some: bool = True) -> list[Path]:
        directory = directory_of(self.datasource)
        if not directory.is_dir():
            raise self._unavailable(f"{directory} is no directory", "make it, or set url of the datasource")
        files = sorted(directory.rglob("*.parquet"))
        if some and not files:
            raise self._unavailable(f"{directory} has no .parquet file", "write one: drumlin history … --to x.parquet")
        if len(files) > MAX_FILES:
            raise self._unavailable(
                f"{directory} has more than {MAX_FILES:,} files", "join small files into larger ones"
            )
        return files

    def _footer(self, file: Path) -> Footer:
        with self._reading(file):
            return self._footers.of(file)

    @contextmanager
    def _reading(self, file: Path) -> Iterator[None]:
        try:
            yield
        except errors() as error:
            raise self._unavailable(f"{file.name} cannot be read as Parquet", "remove it, or write it again") from error

    def _rows(self, footer: Footer, wanted: Mapping[str, str], grid: Grid) -> pa.Table:
        """Return the rows of a series in a window: ``ds`` in milliseconds since the epoch, ``y``."""
        ds, y = self._names["ds"], self._names["y"]
        kind = footer.schema.field(ds).type
        if not pa.types.is_timestamp(kind):
            raise self._refused(f"column {ds} of {footer.path.name} is {kind}, not a timestamp")
        first, last = grid.start - grid.step, grid.end
        values = {self._names["unique_id"]: wanted["id"], self._names["metric"]: wanted["metric"]}
        parts = [pa.table({"ds": pa.array([], pa.int64()), "y": pa.array([], pa.float64())})]
        count = 0
        with self._reading(footer.path):
            for batch in footer.read([ds, y], values, ds, first, last):
                part = self._inside(footer, batch, first, last)
                count += part.num_rows
                if count > MAX_ROWS:
                    raise self._refused(f"has more than {MAX_ROWS:,} rows of it in the window")
                parts.append(part)
        return pa.concat_tables(parts)

    def _inside(self, footer: Footer, batch: pa.RecordBatch, first: int, last: int) -> pa.Table:
        """Return the rows of a batch of ``ds`` and ``y`` whose times are in a window (seconds)."""
        stamps = batch[self._names["ds"]].cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
        try:
            rows = pa.table({"ds": stamps, "y": batch[self._names["y"]].cast(pa.float64())})
        except pa.ArrowException as error:
            raise self._refused(f"column {self._names['y']} of {footer.path.name} does not hold numbers") from error
        return rows.filter(pc.and_(pc.greater(rows["ds"], first * 1000), pc.less_equal(rows["ds"], last * 1000)))

    # -- errors -------------------------------------------------------------------------------------------------------
    def _no_columns(self, footers: Iterable[Footer]) -> MetricMissing:
        known = sorted({name for each in footers for name in each.columns})
        lacking = [each for each in self._names.values() if each not in known] or list(self._names.values())
        column = next(key for key, name in self._names.items() if name == lacking[0])
        similar = difflib.get_close_matches(lacking[0], known, n=5, cutoff=0.4) or known[:5]
        return self._missing(
            f"no file has the column {lacking[0]}",
            lacking[0],
            similar,
            f'its columns are {", ".join(known[:20])}; set labels = {{{column} = "{similar[0]}"}} for it in drumlin.toml'
            if similar
            else None,
        )

    def _missing(self, what: str, missing: str, similar: Iterable[str], hint: str | None = None) -> MetricMissing:
        near = list(similar)
        advice = hint or (f"there is {', '.join(near)}" if near else "take a longer window")
        detail = {"datasource": self.datasource.name, "missing": missing, "similar": near}
        return MetricMissing(f"datasource {self.datasource.name}: {what}", hint=advice, detail=detail)

    def _unavailable(self, what: str, hint: str) -> SourceUnavailable:
        return SourceUnavailable(f"datasource {self.datasource.name}: {what}", hint=hint)

    def _refused(self, what: str) -> DatasourceRefused:
        return DatasourceRefused(f"datasource {self.datasource.name}: {what}", hint="check labels in drumlin.toml")


def gridded(stamps: pa.ChunkedArray, values: pa.ChunkedArray, grid: Grid, how: How) -> Samples:
    """Put values with their times (milliseconds since the epoch) into the steps that end at the grid's points."""
    step = grid.step * 1000
    steps = pc.divide(pc.add(pc.subtract(stamps, grid.start * 1000), step - 1 + step * _AHEAD), step)
    ends = pc.add(pc.multiply(pc.subtract(steps, _AHEAD), grid.step), grid.start)
    kind = "sum" if how == "sum" else "mean"
    inside = pc.and_(pc.greater_equal(ends, grid.start), pc.less_equal(ends, grid.end))
    rows = pa.table({"ds": ends, "y": values}).filter(pc.and_(inside, pc.is_valid(values)))
    found = rows.group_by("ds").aggregate([("y", kind)]).sort_by("ds").combine_chunks()
    return Samples(pa.concat_arrays(found["ds"].chunks), pa.concat_arrays(found[f"y_{kind}"].chunks))


_AHEAD = 1  # the first step begins before the grid; so that no dividend is negative


def _columns(datasource: Datasource) -> dict[str, str]:
    return {name: datasource.labels.get(name, name) for name in COLUMNS}


def _identifier(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
