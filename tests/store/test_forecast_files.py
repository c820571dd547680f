"""Forecast files are whole, whenever their writer is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet

_SAVING = """
import itertools, sys
import pyarrow as pa
from drumlin.kg.telemetry import forecast_points
from drumlin.kg.telemetry.datasources import Datasource
server = Datasource("f", "", "parquet", "file://" + sys.argv[1])
points = pa.table({"ds": pa.array(range(100_000), pa.timestamp("ms", "UTC")), "y": [n / 7 for n in range(100_000)]})
for number in itertools.count():
    forecast_points.store([(f"energy/a/{number}.parquet", points)], server)
    print(f"energy/a/{number}.parquet", flush=True)
"""


def test_a_kill_leaves_no_half_forecast(tmp_path: Path) -> None:
    """Killed in the middle of saving, every file that has its name is whole, and all that were told are there."""
    root = str(Path(__file__).resolve().parents[2])
    process = subprocess.Popen(
        [sys.executable, "-c", _SAVING, str(tmp_path)], cwd=root, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    told = [process.stdout.readline().strip() for _ in range(3)]
    time.sleep(0.013)  # into the middle of the fourth, wherever that is
    process.send_signal(signal.SIGKILL)
    told += [line.strip() for line in process.stdout.readlines() if line.endswith("\n")]
    process.wait()
    process.stdout.close()
    files = {str(file.relative_to(tmp_path)): file for file in tmp_path.rglob("*.parquet")}
    assert set(told) <= set(files)
    assert {pyarrow.parquet.read_table(file).num_rows for file in files.values()} == {100_000}
