"""Links from an entity to what shows it: a Grafana's dashboards, traces of a Jaeger or Tempo, profiles of a Pyroscope.

Pure; every value is percent-encoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote as percent_encoded

from drumlin.kg.telemetry import signals
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.series import Window

if TYPE_CHECKING:
    from drumlin.kg.telemetry.graph import Entity
    from drumlin.kg.telemetry.resolution import Resolution

_HOLE = re.compile(r"\{(cluster|namespace|kind|name|from|to|from_s|to_s)\}")
_SERVICES: Mapping[str, str] = {
    "jaeger": "/search?service={name}&start={from}000&end={to}000",
    "tempo": "/api/search?q=%7B%20resource.service.name%20%3D%20%22{name}%22%20%7D&start={from_s}&end={to_s}",
    "pyroscope": "/?query=process_cpu%3Acpu%3Ananoseconds%3Acpu%3Ananoseconds%7Bservice_name%3D%22{name}%22%7D&from={from}&until={to}",
}
"""Kind → where it is searched for a service. Tempo has no page of its own: the link is to its API, unless `dashboards` name one."""
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
    start, end = window.start.timestamp(), window.end.timestamp()
    span = {"from": _milliseconds(start), "to": _milliseconds(end), "from_s": str(int(start)), "to_s": str(int(end))}
    found: dict[str, str] = {}
    for each in datasources:
        if url := _template(entity, each):
            found[each.name] = _filled(url, entity, span)
    return found


def _template(entity: Shown, datasource: Datasource) -> str | None:
    url = datasource.dashboards.get(entity.scope.lower())
    if datasource.kind == "grafana" and url:
        return url if "{from}" in url else f"{url}{'&' if '?' in url else '?'}from={{from}}&to={{to}}"
    if datasource.kind in _SERVICES and entity.scope in signals.SCOPES:
        return url or datasource.url + _SERVICES[datasource.kind]
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
