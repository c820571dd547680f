"""Logs: the lines of an entity's pods in a window, from the Loki that holds them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from drumlin.kg.errors import InvalidInput
from drumlin.kg.telemetry import logql
from drumlin.kg.telemetry.fetch.loki import Direction, LogLine, Loki, Span
from drumlin.kg.telemetry.resolution import Resolution
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Window

MAX_LINES = 1_000_000
"""Lines of one request; they are streamed."""


@dataclass(frozen=True, slots=True)
class LogLines:
    """Lines as they come, and what was asked for them."""

    resolution: Resolution
    lines: Iterator[LogLine]


def fetch(
    resolver: Resolver,
    entity: str,
    window: Window,
    *,
    containing: str | None = None,
    limit: int = 1000,
    direction: Direction = "backward",
    datasource: str | None = None,
) -> LogLines:
    """Return the lines of a workload or pod, the newest first unless ``direction`` says otherwise; raises as ``resolve_logs`` does.

    ``containing`` keeps the lines that have this text. Nothing is asked before the first line is taken.
    """
    if not 1 <= limit <= MAX_LINES:
        raise InvalidInput(f"a limit of {limit:,} lines is not offered", hint=f"1 to {MAX_LINES:,}")
    resolution = resolver.resolve_logs(entity, window, datasource=datasource, containing=containing)
    span = Span(int(logql.nanoseconds(window.start)), int(logql.nanoseconds(window.end)), limit)

    def lines() -> Iterator[LogLine]:
        with Loki(resolver.datasource(resolution)) as client:
            yield from client.lines(resolution.query, span, direction)

    return LogLines(resolution, lines())


def as_dict(line: LogLine) -> dict[str, Any]:
    """Return a line as JSON has it: RFC 3339 time with nanoseconds, labels, text, and its own metadata where it has some."""
    seconds, rest = divmod(line.at, 1_000_000_000)
    at = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    found: dict[str, Any] = {"time": f"{at}.{rest:09d}Z", "labels": dict(line.labels), "line": line.text}
    return found | ({"metadata": dict(line.metadata)} if line.metadata else {})
