"""Datasources of a Grafana into the graph: resolved against, never fetched from, and without anything by which one gets in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from drumlin.kg.errors import InvalidInput
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NodeDocument
from drumlin.kg.telemetry.addresses import address
from drumlin.kg.telemetry.datasources import DEFAULT_SCRAPE_INTERVAL, Datasource
from drumlin.kg.telemetry.durations import parse_duration
from drumlin.kg.telemetry.fetch.grafana import KINDS, Grafana, GrafanaDatasource

Write = Callable[[str, NodeDocument], str]
"""Registers a graph under its IRI and returns what became of it: created, replaced, unchanged."""


def import_from(grafana: Datasource, known: Sequence[Datasource], iris: Iris, write: Write) -> list[dict[str, Any]]:
    """Write a graph for each datasource of a Grafana; returns, in its order, what became of each: ``name``, ``type``, ``outcome``, ``id``.

    One is left out whose type is not known here (``unsupported``), whose url cannot be used (``unusable``), or which a datasource
    that is configured or discovered is already (``known``). One that the Grafana no longer has stays. Raises what asking it raises.
    """
    with Grafana(grafana) as client:
        entries = client.datasources()
    mine = iris.datasource(f"{grafana.name}.")
    others = [each for each in known if not each.iri.startswith(mine)]
    return [_import(entry, grafana, others, iris, write) for entry in entries]


def _import(
    entry: GrafanaDatasource, grafana: Datasource, others: Sequence[Datasource], iris: Iris, write: Write
) -> dict[str, Any]:
    found: dict[str, Any] = {"name": entry.name, "type": entry.type}
    kind = KINDS.get(entry.type)
    if kind is None:
        return found | {"outcome": "unsupported"}
    name = f"{grafana.name}.{entry.uid}"
    try:
        datasource = Datasource.discovered(name, kind, entry.url, iris, grafana.domain, None)
    except InvalidInput as error:
        return found | {"outcome": "unusable", "detail": str(error)}
    if same := next(
        (each for each in others if each.kind == kind and address(each.url) == address(datasource.url)), None
    ):
        return found | {"outcome": "known", "id": same.iri}
    taken = entry.name in {each.name for each in others}
    datasource = replace(datasource, name=name if taken else entry.name, scrape_interval=_interval(entry))
    return found | {"outcome": write(datasource.iri, datasource.document(iris)), "id": datasource.iri}


def _interval(entry: GrafanaDatasource) -> timedelta:
    """Return how often it is scraped, when Grafana says it in a form that is known here."""
    try:
        return parse_duration(entry.interval) if entry.interval else DEFAULT_SCRAPE_INTERVAL
    except InvalidInput:
        return DEFAULT_SCRAPE_INTERVAL
