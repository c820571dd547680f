"""Pending and firing alerts of Prometheus and of Alertmanagers, matched to the entities that they are about.

They are fetched when they are asked for and never stored: an alert lives for minutes, and the server that fires it is its only truth.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from drumlin.kg.errors import DrumlinError, InvalidInput, ResourceNotFound
from drumlin.kg.model.iris import Iris
from drumlin.kg.store.protocol import Store
from drumlin.kg.telemetry import alert_labels
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.alertmanager import Alertmanager
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.graph import TelemetryGraph
from drumlin.kg.telemetry.templates import did_you_mean

State = Literal["pending", "firing", "suppressed"]
"""``suppressed``: it fires, and an Alertmanager notifies nobody, because of a silence or of another alert."""
STATES: tuple[State, ...] = ("pending", "firing", "suppressed")
KINDS = frozenset({"prometheus", "alertmanager"})
_TOGETHER = 8  # servers that are asked at one time
_ABOUT = """SELECT ?entity ?manager ?domain WHERE { ?entity a ?type .
  OPTIONAL { ?entity drumlin:managedBy ?manager } OPTIONAL { ?entity drumlin:domain ?domain } }"""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert. ``entities`` are the IRIs of what it is about, the most specific first, then what that is part of.

    ``since`` is as the server writes it (RFC 3339). ``unmatched`` says why there are no entities.
    """

    name: str
    state: State
    severity: str | None
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    since: str
    value: float | None
    datasources: tuple[str, ...]
    entities: tuple[str, ...] = ()
    unmatched: str | None = None

    def subjects(self, iris: Iris) -> list[str]:
        """Return what it is about without what that is part of, unless it is about that itself."""
        places = ("cluster/", "domain/")
        found = [
            each
            for each in self.entities
            if not (short := iris.short(each)).startswith(places) and "/-/namespace/" not in short
        ]
        return found or list(self.entities[:1])

    def to_dict(self, iris: Iris) -> dict[str, Any]:
        """Return it as JSON has it; entities by their short ids."""
        found: dict[str, Any] = {
            "alert": self.name,
            "state": self.state,
            "severity": self.severity,
            "entity": iris.short(self.entities[0]) if self.entities else None,
            "entities": [iris.short(each) for each in self.entities],
            "since": self.since,
            "value": self.value,
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
            "datasources": list(self.datasources),
        }
        return found | ({"unmatched": self.unmatched} if self.unmatched else {})


class FoundAlerts(NamedTuple):
    """Alerts, the most severe first, and the datasources that could not be asked."""

    alerts: tuple[Alert, ...]
    failures: tuple[tuple[str, DrumlinError], ...]


class Alerts:
    """The alerts of the configured datasources. Blocks; for many threads."""

    def __init__(
        self, store: Store, iris: Iris, datasources: Sequence[Datasource], *, matched_only: bool = False
    ) -> None:
        """``matched_only``: those about nothing in a namespace of the store, which may be somebody else's, are left out."""
        self._matched_only = matched_only
        self._graph = TelemetryGraph(store, iris)
        self._iris = iris
        self._servers = [each for each in datasources if each.kind in KINDS and each.access is not None]

    def fetch(
        self,
        entities: Collection[str] | None = None,
        *,
        states: Collection[str] = (),
        severities: Collection[str] = (),
        datasource: str | None = None,
    ) -> FoundAlerts:
        """Return the alerts about any of ``entities`` (IRIs or short ids; None: all alerts), in any of the states and severities.

        An alert about a pod is one about its workload, namespace, cluster and domain too. Raises ``ResourceNotFound`` for an unknown entity
        and where no datasource is configured, ``InvalidInput`` for an unknown state; when no server can be asked, the first one's error.
        """
        if unknown := sorted(set(states) - set(STATES)):
            raise InvalidInput(f"{unknown[0][:40]!r} is no state of an alert", hint=f"there are {', '.join(STATES)}")
        wanted = None if entities is None else self._known(entities)
        servers = self._chosen(datasource)
        with ThreadPoolExecutor(_TOGETHER, "alerts") as pool:
            outcomes = list(pool.map(_asked, servers))
        failures = [
            (server.name, each)
            for server, each in zip(servers, outcomes, strict=True)
            if isinstance(each, DrumlinError)
        ]
        if failures and len(failures) == len(servers):
            raise failures[0][1]
        listed = [
            (server, each) for server, each in zip(servers, outcomes, strict=True) if not isinstance(each, DrumlinError)
        ]
        found = _merged(self._matched(listed))
        chosen = [
            each
            for each in found
            if (wanted is None or not wanted.isdisjoint(each.entities))
            and (not states or each.state in states)
            and (not severities or each.severity in severities)
        ]
        return FoundAlerts(tuple(sorted(chosen, key=_order)), tuple(failures))

    def _known(self, entities: Collection[str]) -> frozenset[str]:
        found = {name: self._iris.expand(name) for name in entities}
        known = self._graph.ask_all(_ABOUT, found.values())
        for name, iri in found.items():
            if not known[iri]:
                raise ResourceNotFound(f"there is no {name[:200]}", hint="list what there is: GET /subgraphs")
        return frozenset(found.values())

    def _chosen(self, name: str | None) -> list[Datasource]:
        chosen = [each for each in self._servers if name in (None, each.name, each.iri)]
        if chosen:
            return chosen
        if name is not None:
            known = [each.name for each in self._servers]
            raise ResourceNotFound(f"{name[:80]!r} is no datasource with alerts", hint=did_you_mean(name, known))
        raise ResourceNotFound(
            "no datasource with alerts is configured",
            hint='add [[datasource]] with name, kind = "prometheus" or "alertmanager" and url to drumlin.toml',
        )

    def _matched(self, listed: Sequence[tuple[Datasource, list[Alert]]]) -> Iterator[Alert]:
        """Yield the alerts with the entities that they are about, looked up together."""
        clusters = self._graph.inventory().clusters
        placed: list[tuple[Alert, str | None, list[str]]] = []
        for server, alerts in listed:
            for each in alerts:
                cluster = alert_labels.cluster_of(each.labels, server, clusters)
                named = alert_labels.candidates(each.labels, server, cluster, self._iris) if cluster else []
                placed.append((each, cluster, named))
        rows = self._graph.ask_all(_ABOUT, {iri for _, _, named in placed for iri in named})
        more = {row["manager"] for found in rows.values() for row in found if "manager" in row}
        more |= {self._iris.cluster(cluster) for _, cluster, _ in placed if cluster}
        rows |= self._graph.ask_all(_ABOUT, more - rows.keys())
        for alert, cluster, named in placed:
            if self._matched_only and not any(rows.get(each) for each in named):
                continue
            if cluster is None:
                yield replace(
                    alert, unmatched=f"its labels and the binding of {alert.datasources[0]} do not tell its cluster"
                )
            else:
                yield replace(alert, entities=self._entities(cluster, named, rows))

    def _entities(
        self, cluster: str, named: Sequence[str], rows: Mapping[str, Sequence[Mapping[str, str]]]
    ) -> tuple[str, ...]:
        """Return the entities there are: the most specific, what manages it, its node only where it is what it is about, its place."""
        there = [iri for iri in named if rows.get(iri)]
        closest = [iri for iri in there if "/-/" not in iri.removeprefix(self._iris.root)]
        about = closest or [iri for iri in there if "/-/namespace/" not in iri]
        found = dict.fromkeys(about)
        for iri in about:
            manager = next((row["manager"] for row in rows[iri] if "manager" in row), None)
            while manager and manager not in found:
                found[manager] = None
                manager = next((row["manager"] for row in rows.get(manager, ()) if "manager" in row), None)
        found |= dict.fromkeys(iri for iri in there if "/-/namespace/" in iri)
        found[self._iris.cluster(cluster)] = None
        domains = (row["domain"] for iri in found for row in rows.get(iri, ()) if "domain" in row)
        return (*found, *dict.fromkeys(list(domains)[:1]))


def _asked(server: Datasource) -> list[Alert] | DrumlinError:
    try:
        if server.kind == "alertmanager":
            with Alertmanager(server) as client:
                return [
                    _alert(
                        each.labels,
                        each.annotations,
                        "suppressed" if each.status.state == "suppressed" else "firing",
                        each.startsAt,
                        "",
                        server,
                    )
                    for each in client.alerts()
                ]
        with Prometheus(server) as prometheus:
            return [
                _alert(
                    each.labels,
                    each.annotations,
                    "pending" if each.state == "pending" else "firing",
                    each.activeAt,
                    each.value,
                    server,
                )
                for each in prometheus.alerts()
            ]
    except DrumlinError as error:
        return error


def _alert(
    labels: Mapping[str, str], annotations: Mapping[str, str], state: State, since: str, value: str, server: Datasource
) -> Alert:
    try:
        number: float | None = float(value)
    except ValueError:
        number = None
    return Alert(
        name=labels.get("alertname", ""),
        state=state,
        severity=labels.get("severity"),
        labels=labels,
        annotations=annotations,
        since=since,
        value=number if number is not None and math.isfinite(number) else None,
        datasources=(server.name,),
    )


def _merged(alerts: Iterator[Alert]) -> list[Alert]:
    """Return the alerts with each once: an Alertmanager has a Prometheus' with its external labels, and knows whether it is suppressed."""
    by_name: dict[str, list[Alert]] = {}
    for each in alerts:
        same = by_name.setdefault(each.name, [])
        twin = next((n for n, other in enumerate(same) if _is_same(each, other)), None)
        if twin is None:
            same.append(each)
        else:
            same[twin] = _joined(same[twin], each)
    return [each for found in by_name.values() for each in found]


def _is_same(one: Alert, other: Alert) -> bool:
    if "pending" in (one.state, other.state) and one.state != other.state:
        return False
    fewer, more = sorted((one.labels, other.labels), key=len)
    return fewer.items() <= more.items() and alert_labels.IDENTIFYING.isdisjoint(more.keys() - fewer.keys())


def _joined(one: Alert, other: Alert) -> Alert:
    more = one if len(one.labels) >= len(other.labels) else other
    known = one if one.entities else other
    return replace(
        more,
        state="suppressed" if "suppressed" in (one.state, other.state) else one.state,
        value=one.value if one.value is not None else other.value,
        datasources=tuple(dict.fromkeys((*one.datasources, *other.datasources))),
        entities=known.entities,
        unmatched=known.unmatched,
    )


_SEVERITIES = ("critical", "page", "error", "warning", "info", "none")


def _order(alert: Alert) -> tuple[int, int, str, str]:
    severity = alert.severity or ""
    rank = _SEVERITIES.index(severity) if severity in _SEVERITIES else len(_SEVERITIES)
    return ("firing", "pending", "suppressed").index(alert.state), rank, alert.name, str(sorted(alert.labels.items()))
