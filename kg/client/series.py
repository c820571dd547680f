"""Fetched series in a client's hands: one long table, what was asked for it, and ways into the tools of forecasters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from drumlin.kg.client import notebook
from drumlin.kg.errors import InvalidInput
from drumlin.kg.telemetry import wire

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class Series:
    """A long table ``unique_id, ds, y, metric, unit`` on an aligned UTC grid, with what one must know to trust it.

    ``coverage`` maps (unique_id, metric) to the share of grid points that have a value, ``gaps`` to the (start, end) runs that have none,
    ``intervals`` to what picked its series when (``selector, start, end``): ``exact`` pods, or the ``pattern`` of their names.
    ``failures`` lists series that are not in the table and why; ``warnings`` says everything else worth knowing.
    """

    def __init__(self, table: pyarrow.Table, account: Mapping[str, Any]) -> None:
        self.table = table
        self.unit: str | None = account["unit"]
        self.step: int = account["step"]
        self.resolutions: list[dict[str, Any]] = account["queries"]
        self.coverage = {(each["unique_id"], each["metric"]): each["coverage"] for each in account["series"]}
        self.gaps = {
            (each["unique_id"], each["metric"]): [tuple(gap) for gap in each["gaps"]] for each in account["series"]
        }
        queried = zip(self.coverage, self.resolutions, strict=False)  # a forecast has no query
        self.intervals: dict[tuple[str, str], list[dict[str, str]]] = {
            key: each.get("intervals", []) for key, each in queried
        }
        self.warnings: list[str] = account["warnings"]
        self.failures: list[dict[str, str]] = account["failures"]

    @classmethod
    def from_ipc(cls, source: bytes | BinaryIO, progress: Callable[[int], None] | None = None) -> Series:
        """Read what the service sends; raises ``InvalidDocument`` when it is cut. ``progress`` receives how many series have come."""
        return cls(*wire.read(source, progress))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        return f"<Series of {len(self.coverage)} × {self.step} s: {len(self):,} rows, unit {self.unit}>"

    def _repr_html_(self) -> str:
        columns = ("entity", "metric", "unit", "points", "coverage %", "first", "last", "least", "mean", "most")
        grouped = self.table.group_by(["unique_id", "metric", "unit"], use_threads=False).aggregate(
            [("y", "count"), ("ds", "min"), ("ds", "max"), ("y", "min"), ("y", "mean"), ("y", "max")]
        )
        order = ("unique_id", "metric", "unit", "y_count", None, "ds_min", "ds_max", "y_min", "y_mean", "y_max")
        rows = (
            [100 * self.coverage[each["unique_id"], each["metric"]] if name is None else each[name] for name in order]
            for each in grouped.slice(0, notebook.MAX_ROWS).to_pylist()
        )
        return notebook.table(columns, rows, grouped.num_rows, f"{len(self):,} rows, a point every {self.step} s")

    @property
    def queries(self) -> list[str]:
        """The queries that were run, in the order of the table."""
        return [each["query"] for each in self.resolutions]

    @property
    def query(self) -> str:
        """The query of the first series."""
        return self.queries[0]

    def to_arrow(self) -> pyarrow.Table:
        """Return the table: unique_id, metric and unit as dictionaries, ds as UTC timestamps, y as float64 (null where missing)."""
        return self.table

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas frame with time-zone aware ``ds`` (extra ``pandas``)."""
        return self.table.to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """Return a polars frame (extra ``polars``)."""
        import polars

        frame = polars.from_arrow(self.table)
        assert isinstance(frame, polars.DataFrame)
        return frame

    @property
    def freq(self) -> str:
        """The step as pandas and Nixtla's libraries write a frequency: ``300s``."""
        return f"{self.step}s"

    def to_nixtla(self, metric: str | None = None) -> pandas.DataFrame:
        """Return all series as statsforecast, mlforecast and neuralforecast read them: ``unique_id``, ``ds`` (UTC without a zone), ``y``.

        Those refuse gaps, so points between two values are on a straight line, and what is missing at either end is left out. With them
        goes ``freq``. Raises ``InvalidInput`` when there are several metrics and none is named.
        """
        from drumlin.kg.telemetry.frames import nixtla

        frame: pandas.DataFrame = nixtla(self.table, metric).to_pandas()
        return frame

    def to_prophet(self, unique_id: str | None = None, metric: str | None = None) -> pandas.DataFrame:
        """Return one series as Prophet reads it: ``ds`` (UTC without a zone, which Prophet refuses) and ``y``; missing values stay NaN.

        Raises ``InvalidInput`` when there are several series and none is named.
        """
        key = self._only(unique_id, metric)
        import pyarrow.compute as pc

        mine = pc.and_(pc.equal(self.table["unique_id"], key[0]), pc.equal(self.table["metric"], key[1]))
        frame: pandas.DataFrame = self.table.filter(mine).select(["ds", "y"]).to_pandas()
        frame["ds"] = frame["ds"].dt.tz_localize(None)
        return frame

    def wide(self) -> pyarrow.Table:
        """Return a table of one row per timestamp: ``ds``, then a column per series, named ``unique_id metric``."""
        import pyarrow
        import pyarrow.compute as pc

        stamps = pc.unique(self.table["ds"]).sort()
        columns = {}
        for key in self.coverage:
            mine = pc.and_(pc.equal(self.table["unique_id"], key[0]), pc.equal(self.table["metric"], key[1]))
            found = self.table.filter(mine)
            columns[" ".join(key)] = found["y"].take(pc.index_in(stamps, value_set=found["ds"].combine_chunks()))
        return pyarrow.table({"ds": stamps, **columns})

    def _only(self, unique_id: str | None, metric: str | None) -> tuple[str, str]:
        known = [key for key in self.coverage if unique_id in (None, key[0]) and metric in (None, key[1])]
        if len(known) != 1:
            raise InvalidInput(
                f"{len(known)} series fit, where one is needed",
                hint=f"name unique_id and metric; there are {', '.join(' '.join(key) for key in list(self.coverage)[:5])}",
            )
        return known[0]

    def to_parquet(self, path: str | Path) -> None:
        """Write the table as Parquet, compressed with zstd."""
        import pyarrow.parquet

        pyarrow.parquet.write_table(self.table, path, compression="zstd")
