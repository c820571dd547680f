# ruff: noqa: INP001 - a script of its own, in no package
"""Forecast the energy of every workload that has energy telemetry: the daily job, with the built-in baseline in a model's place.

It forecasts the coming day of all workloads, then follows the change feed: a workload that is new or begins to have energy telemetry is
forecast when it comes, and at midnight (UTC) all are again. What is there is not made twice, so it may be stopped and started at will.

    DRUMLIN_URL=http://localhost:8080 python examples/daily_forecast.py
    python examples/daily_forecast.py --day 2026-11-20     # once, as if it were that day: for backtests, or under a CronJob
"""

from __future__ import annotations

import argparse
import queue
import sys
import threading
from datetime import UTC, date, datetime, timedelta

import kg
from kg.errors import DrumlinError, ResourceNotFound

METRIC = "energy_joules"
LAST, HORIZON, STEP = "28d", "1d", "5m"
RETRY = timedelta(hours=1)


def main() -> int:
    """Run for a day that is named, or follow; returns how many forecasts could not be made on that day."""
    parser = argparse.ArgumentParser(description="Forecast the energy of every workload.")
    parser.add_argument("--day", type=date.fromisoformat, help="forecast this day (UTC) and end")
    day = parser.parse_args().day
    with kg.connect() as client:
        if day:
            return forecast_all(client, day)
        follow(client)
    return 0


def follow(client: kg.Client) -> None:
    """Forecast all workloads each day, and those that come or change in between when they do."""
    changed: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_listen, args=(client.url, changed), daemon=True).start()
    while True:
        day = datetime.now(UTC).date()
        failed = forecast_all(client, day)
        until = datetime.now(UTC) + RETRY if failed else _midnight(day)
        while (left := (until - datetime.now(UTC)).total_seconds()) > 0:
            try:
                id = changed.get(timeout=left)
            except queue.Empty:
                break
            if id is None:
                raise SystemExit("the change feed has ended")
            _told(client, id, day)


def _listen(url: str, changed: queue.Queue[str | None]) -> None:
    """Put the id of each workload that the feed tells of into a queue, and None when it ends."""
    try:
        with kg.connect(url) as client:
            for event in client.changes(type="Workload"):
                if not event["type"].endswith(".deleted"):
                    changed.put(event["subject"])
    finally:
        changed.put(None)


def forecast_all(client: kg.Client, day: date) -> int:
    """Forecast a day of every workload that has energy telemetry; returns how many could not be made."""
    return sum(not _told(client, workload.id, day) for workload in client.workloads())


def _told(client: kg.Client, id: str, day: date) -> bool:
    """Forecast a workload and write what became of it; one without history does not end the job."""
    try:
        if METRIC not in client.workload(id).metrics or is_made(client, id, day):
            return True
        report = forecast(client, id, day)
    except DrumlinError as error:
        sys.stderr.write(f"{id}: {error}\n")
        return False
    sys.stdout.write(f"{id}: {report}\n")
    sys.stdout.flush()
    return True


def forecast(client: kg.Client, id: str, day: date) -> str:
    """Forecast a day of a workload from the weeks before it, after measuring the forecast before; returns a line about both."""
    try:
        before = client.forecasts.compare((id, METRIC))
        measured = f", the one before was {before['mae']:.3g} {before['unit']} off (MAE) at {before['points']} points"
    except DrumlinError:  # there was none, or its time has not come
        measured = ""
    start = datetime.combine(day, datetime.min.time(), UTC)
    saved = client.forecasts.seasonal((id, METRIC), last=LAST, end=start.isoformat(), horizon=HORIZON, step=STEP)
    return saved["id"] + measured


def is_made(client: kg.Client, id: str, day: date) -> bool:
    """Tell whether the newest forecast of a workload is of this day or a later one."""
    try:
        first = client.forecasts.points((id, METRIC))["ds"][0].as_py()
    except ResourceNotFound:
        return False
    return bool(first.date() >= day)


def _midnight(day: date) -> datetime:
    return datetime.combine(day + timedelta(days=1), datetime.min.time(), UTC)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
