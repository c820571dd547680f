"""Fetched series in a client's hands: one long table, what was asked for it, and ways into the tools of forecasters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kg.telemetry import wire

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class Series:
    """A long table ``unique_id, ds, y, metric, unit`` on an aligned UTC grid, with what one must know to trust it.

    ``coverage`` maps (unique_id, metric) to the share of grid points that have a value, ``gaps`` to the (start, end) runs that have none.
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
        self.warnings: list[str] = account["warnings"]
        self.failures: list[dict[str, str]] = account["failures"]

    @classmethod
    def from_ipc(cls, data: bytes) -> Series:
        """Read what the service sends; raises ``InvalidDocument`` when it is cut."""
        return cls(*wire.read(data))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        return f"<Series of {len(self.coverage)} × {self.step} s: {len(self):,} rows, unit {self.unit}>"

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

    def to_parquet(self, path: str | Path) -> None:
        """Write the table as Parquet, compressed with zstd."""
        import pyarrow.parquet

        pyarrow.parquet.write_table(self.table, path, compression="zstd")
