"""Links from an entity to the pages that show it: a Grafana's dashboards, a Jaeger's traces. Pure; every value is percent-encoded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote as percent_encoded

from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.series import Window

if TYPE_CHECKING:
    from drumlin.kg.telemetry.graph import Entity
    from drumlin.kg.telemetry.resolution import Resolution

_HOLE = re.compile(r"\{(cluster|namespace|kind|name|from|to)\}")
_TRACES = "/search?service={name}&start={from}000&end={to}000"
LOGS = "logs"
"""The scope of a dashboard that shows an entity's logs."""
_STORED = {"from": "now-1d", "to": "now"}  # in the graph, where no window is known; what Grafana understands


class Shown(NamedTuple):
    """What a link is about."""

    scope: str
    cluster: str | None
    namespace: str | None
    kind: str
    name: str


def stored(entity: Shown, datasource: Datasource) -> str | None:
    """Return the dashboard of an entity as the graph keeps it; None for one without."""
    url = datasource.dashboards.get(entity.scope.lower())
    return _filled(url, entity, _STORED) if datasource.kind == "grafana" and url else None


def added(resolution: Resolution, entity: Entity, pages: Sequence[Datasource], window: Window) -> Resolution:
    """Return a resolution with the links of configured Grafanas and Jaegers (``pages``) that show its entity."""
    if not pages:
        return resolution
    shown = Shown(entity.scope, entity.cluster, entity.namespace, entity.kind, entity.name)
    found = links(shown, pages, window)
    if resolution.metric == LOGS:  # where there is a page for logs, it is the one
        found |= links(shown._replace(scope=LOGS), pages, window)
    return replace(resolution, links=found)


def links(entity: Shown, datasources: Iterable[Datasource], window: Window) -> dict[str, str]:
    """Return, by datasource, the pages that show an entity in a window."""
    span = {"from": _milliseconds(window.start.timestamp()), "to": _milliseconds(window.end.timestamp())}
    found: dict[str, str] = {}
    for each in datasources:
        if url := _template(entity, each):
            found[each.name] = _filled(url, entity, span)
    return found


def _template(entity: Shown, datasource: Datasource) -> str | None:
    url = datasource.dashboards.get(entity.scope.lower())
    if datasource.kind == "grafana" and url:
        return url if "{from}" in url else f"{url}{'&' if '?' in url else '?'}from={{from}}&to={{to}}"
    if datasource.kind == "jaeger" and entity.scope == "Workload":
        return url or datasource.url + _TRACES
    return None


def _filled(url: str, entity: Shown, span: Mapping[str, str]) -> str:
    values = {
        "cluster": entity.cluster or "",
        "namespace": entity.namespace or "",
        "kind": entity.kind.lower(),
        "name": entity.name,
        **span,
    }
    return _HOLE.sub(lambda hole: percent_encoded(values[hole[1]], safe=""), url)


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000))
