# ruff: noqa: INP001 - a script of its own, in no package
"""Forecast the energy of every workload that has energy telemetry: the daily job, with the built-in baseline in a model's place.

Run it once a day: ``DRUMLIN_URL=http://localhost:8080 python examples/daily_forecast.py``.
"""

from __future__ import annotations

import sys

import kg
from kg.errors import DrumlinError

METRIC = "energy_joules"


def main() -> int:
    """Save a forecast per workload; returns how many could not be made."""
    failed = 0
    with kg.connect() as client:
        for workload in client.workloads():
            if METRIC not in workload.metrics:
                continue
            try:
                saved = client.forecasts.seasonal((workload.id, METRIC), last="28d", horizon="1d", step="5m")
            except DrumlinError as error:  # one workload without history does not end the job
                failed += 1
                sys.stderr.write(f"{workload.id}: {error}\n")
            else:
                sys.stdout.write(f"{workload.id}: {saved['id']}\n")
    return failed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
