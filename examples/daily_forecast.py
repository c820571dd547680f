# ruff: noqa: INP001 - a script of its own, in no package
"""Forecast metrics of workloads, nodes and GNodes: the daily job, with the built-in baseline in a model's place.

It forecasts the coming day of everything that has the metrics, then follows the change feed: what is new or begins to have them is
forecast when it comes, and at midnight (UTC) all are again. What is there is not made twice, so it may be stopped and started at will.

    DRUMLIN_URL=http://localhost:8080 python examples/daily_forecast.py       # energy_joules of workloads, nodes, domains
    python examples/daily_forecast.py --metric cpu_usage --metric orders_total --type Workload --horizon 2d --step 15m
    python examples/daily_forecast.py --day 2026-11-20     # once, as if it were that day: for backtests, or under a CronJob
"""

from __future__ import annotations

import argparse
import queue
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

import drumlin
from drumlin.kg.errors import DrumlinError, MetricMissing, ResourceNotFound

RETRY = timedelta(hours=1)


class ForecastTask(NamedTuple):
    """What is forecast: metrics of entities of some types (a domain is also a GNode), from how much history, how far and how finely."""

    metrics: tuple[str, ...] = ("energy_joules",)
    types: tuple[str, ...] = ("Workload", "Node", "Domain")
    last: str = "28d"
    horizon: str = "1d"
    step: str = "5m"


DAILY = ForecastTask()


def main() -> int:
    """Run for a day that is named, or follow; returns how many forecasts could not be made on that day."""
    parser = argparse.ArgumentParser(description="Forecast metrics of workloads, nodes and domains.")
    parser.add_argument("--day", type=date.fromisoformat, help="forecast this day (UTC) and end")
    parser.add_argument("--metric", action="append", help=f"a metric (again for more) [{DAILY.metrics[0]}]")
    parser.add_argument("--type", action="append", help=f"a type of entity (again for more) [{', '.join(DAILY.types)}]")
    for name in ("last", "horizon", "step"):
        parser.add_argument(f"--{name}", default=getattr(DAILY, name), help="[%(default)s]")
    given = parser.parse_args()
    metrics, types = tuple(given.metric or DAILY.metrics), tuple(given.type or DAILY.types)
    job = ForecastTask(metrics, types, given.last, given.horizon, given.step)
    with drumlin.connect() as client:
        if given.day:
            return forecast_all(client, given.day, job)
        follow(client, job)
    return 0


def follow(client: drumlin.Client, job: ForecastTask = DAILY) -> None:
    """Forecast all each day, and what comes or changes in between when it does."""
    changed: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_listen, args=(client.url, job, changed), daemon=True).start()
    while True:
        day = datetime.now(UTC).date()
        failed = forecast_all(client, day, job)
        until = datetime.now(UTC) + RETRY if failed else _midnight(day)
        while (left := (until - datetime.now(UTC)).total_seconds()) > 0:
            try:
                id = changed.get(timeout=left)
            except queue.Empty:
                break
            if id is None:
                raise SystemExit("the change feed has ended")
            _made(client, id, day, job)


def _listen(url: str, job: ForecastTask, changed: queue.Queue[str | None]) -> None:
    """Put the id of each entity that the feed tells of into a queue, and None when it ends."""
    try:
        with drumlin.connect(url) as client:
            for event in client.changes(type=job.types):
                if not event["type"].endswith(".deleted"):
                    changed.put(event["subject"])
    finally:
        changed.put(None)


def forecast_all(client: drumlin.Client, day: date, job: ForecastTask = DAILY) -> int:
    """Forecast a day of every entity that has the metrics; returns how many could not be made."""
    return sum(_made(client, id, day, job) for id in _entities(client, job))


def _entities(client: drumlin.Client, job: ForecastTask) -> Iterator[str]:
    for type_ in job.types:
        yield from [each.id for each in client.subgraphs(type=type_)]


def _made(client: drumlin.Client, id: str, day: date, job: ForecastTask) -> int:
    """Forecast an entity's metrics and write what became of each; returns how many could not be made."""
    try:
        known = client.workload(id).metrics
    except DrumlinError as error:
        sys.stderr.write(f"{id}: {error}\n")
        return 1
    return sum(_failed(client, (id, metric), day, job) for metric in job.metrics if metric in known)


def _failed(client: drumlin.Client, of: tuple[str, str], day: date, job: ForecastTask) -> bool:
    """Forecast one metric, if that is not done; one without data has nothing to forecast, and none ends the job."""
    try:
        if is_made(client, of, day):
            return False
        report = forecast(client, of, day, job)
    except DrumlinError as error:
        sys.stderr.write(f"{of[0]} {of[1]}: {error}\n")
        return not isinstance(error, MetricMissing)
    sys.stdout.write(f"{of[0]} {of[1]}: {report}\n")
    sys.stdout.flush()
    return False


def forecast(client: drumlin.Client, of: tuple[str, str], day: date, job: ForecastTask = DAILY) -> str:
    """Forecast a day from the weeks before it, after measuring the forecast before; returns a line about both."""
    try:
        before = client.forecasts.compare(of)
        measured = f", the one before was {before['mae']:.3g} {before['unit']} off (MAE) at {before['points']} points"
    except DrumlinError:  # there was none, or its time has not come
        measured = ""
    start = datetime.combine(day, datetime.min.time(), UTC)
    saved = client.forecasts.seasonal(of, last=job.last, end=start.isoformat(), horizon=job.horizon, step=job.step)
    return saved["id"] + measured


def is_made(client: drumlin.Client, of: tuple[str, str], day: date) -> bool:
    """Return whether the newest forecast of a metric is of this day or a later one."""
    try:
        first = client.forecasts.points(of)["ds"][0].as_py()
    except ResourceNotFound:
        return False
    return bool(first.date() >= day)


def _midnight(day: date) -> datetime:
    return datetime.combine(day + timedelta(days=1), datetime.min.time(), UTC)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
