"""Current values in a client's hands: rows, with ways into data frames, and what there is no value of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from drumlin.kg.client import calls
from drumlin.kg.client.rows import Rows
from drumlin.kg.client.transport import ClientTransport
from drumlin.kg.errors import InvalidInput

COLUMNS = ("entity", "metric", "value", "unit", "time", "age", "datasource")


class ValueRows(Rows):
    """A row per value: entity (short id), metric, value, unit, time of the newest sample, age in seconds, datasource.

    ``missing`` lists what there is no value of (entity, metric, error, detail), ``warnings`` what the servers warned of, ``queries`` what
    they were asked.
    """

    def __init__(self, pages: Sequence[dict[str, Any]]) -> None:
        rows = [row | {"time": datetime.fromisoformat(row["time"])} for page in pages for row in page["values"]]
        super().__init__(COLUMNS, rows)
        self.missing: list[dict[str, str]] = [each for page in pages for each in page["missing"]]
        self.warnings: list[str] = [each for page in pages for each in page["warnings"]]
        self.queries: list[dict[str, str]] = [each for page in pages for each in page["queries"]]


async def fetch(
    carrier: ClientTransport, entities: Sequence[str] | None, metrics: Sequence[str], options: Mapping[str, Any]
) -> ValueRows:
    """Fetch the values of entities by name or query in one request, of those that filters match a page at a time."""
    given = {name: value for name, value in options.items() if value not in (None, "", [])}
    if entities is not None or "sparql" in given:
        body = {"metrics": list(metrics), **given, **({"entities": entities} if entities is not None else {})}
        return ValueRows([await carrier.run(calls.values_of(body))])
    if not given.keys() - {"unit", "at", "window", "datasource"}:
        raise InvalidInput("say which entities: by name, by a filter, or by sparql", hint='type="Node"')
    pages: list[dict[str, Any]] = [await carrier.run(calls.values(metrics, **given))]
    while after := pages[-1].get("next"):
        pages.append(await carrier.run(calls.values(metrics, **given, after=after)))
    return ValueRows(pages)
