"""Why an InfluxDB has nothing of a metric: which measurement, field or tag of its ``series`` is not there, and what is similar."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from drumlin.kg.config.datasources import SeriesSettings
from drumlin.kg.errors import MetricMissing
from drumlin.kg.telemetry.fetch.influxdb import InfluxDB
from drumlin.kg.telemetry.influxql import identifier


def explain(client: InfluxDB, query: str) -> MetricMissing:
    """Say why a query of ``influxql.write`` has no point; raises what the client raises."""
    datasource = client.datasource
    place = next((each for each in datasource.series.values() if _asks(query, each)), None)
    found = look(client, place, _tags(client, query)) if place else None
    return found or missing(
        client,
        "there is such a series, but no point of this entity in the window",
        "samples",
        (),
        "take a longer window",
    )


def look(client: InfluxDB, place: SeriesSettings, tags: Sequence[str]) -> MetricMissing | None:
    """Return what is not there of a series and the tags by which entities are told apart; None when all is."""
    steps: tuple[tuple[str, Sequence[str], Iterable[str]], ...] = (
        ("measurement", [place.measurement], client.measurements()),
        (f"field of {place.measurement}", [place.field], client.names("FIELD", place.measurement)),
        (f"tag of {place.measurement}", [*tags, *place.where], client.names("TAG", place.measurement)),
    )
    for what, wanted, there in steps:
        known = list(there)
        for name in wanted:
            if name not in known:
                return missing(client, f"there is no {what} named {name}", name, _near(name, known))
    for tag, value in place.where.items():
        values = client.tag_values(tag, place.measurement)
        if value not in values:
            return missing(client, f"no series of {place.measurement} has {tag}={value}", value, _near(value, values))
    return None


def missing(client: InfluxDB, what: str, name: str, similar: Sequence[str], hint: str | None = None) -> MetricMissing:
    """Return the error that something is not there."""
    known = (
        f"there is {', '.join(similar)}; correct series or labels of the datasource in drumlin.toml"
        if similar
        else None
    )
    detail = {"datasource": client.datasource.name, "missing": name, "similar": list(similar)}
    return MetricMissing(
        f"datasource {client.datasource.name}: {what}",
        hint=hint
        or known
        or "check that its agent writes there, and series and labels of the datasource in drumlin.toml",
        detail=detail,
    )


def tags_of(client: InfluxDB, holes: Iterable[str]) -> list[str]:
    """Return the tags that tell entities apart, in this server's names."""
    return [client.datasource.labels.get(hole, hole) for hole in holes]


def _tags(client: InfluxDB, query: str) -> list[str]:
    return [tag for tag in tags_of(client, ("namespace", "node", "pod")) if f"{identifier(tag)} =" in query]


def _asks(query: str, place: SeriesSettings) -> bool:
    return f"FROM {identifier(place.measurement)}" in query and f"({identifier(place.field)})" in query


def _near(name: str, known: Sequence[str]) -> list[str]:
    return difflib.get_close_matches(name, known, n=5, cutoff=0.4) or sorted(known)[:5]
