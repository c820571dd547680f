"""Observed calls: who calls whom, as the metrics of service graphs and meshes report, and what selects the series of each pair.

Each of these names both ends of a call in its own labels; the table here says in which. One reporter and one direction are read, since
each call is counted at both ends. A name is a workload's only where nothing else can be meant: by its namespace, else as the only workload
of that name in the cluster. Anything else is *external*. Blocking; servers are asked that are configured, and no others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog

from drumlin.kg.errors import DrumlinError, InvalidIdentifier
from drumlin.kg.model.iris import Iris, ObjectName
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.store.protocol import Store
from drumlin.kg.telemetry import binding, promql, routes
from drumlin.kg.telemetry.binding import Place
from drumlin.kg.telemetry.datasources import Datasource, matchers_of
from drumlin.kg.telemetry.describe import WORKLOAD_KINDS
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.inventory import Inventory
from drumlin.kg.telemetry.promql import Matcher
from drumlin.kg.telemetry.quoting import any_of

log = structlog.get_logger()

WINDOW = timedelta(minutes=15)
"""How far back calls are looked for: further than the time between two readings."""
MAX_CALLS = 10_000
"""Pairs that are read of one server for one cluster: those with the most calls."""
_LONGEST_NAME = 253  # characters of an external name: those of a host
_WORKLOADS = f"""SELECT ?entity WHERE {{
  VALUES ?type {{ {" ".join(f"<{NAMESPACE}{kind}>" for kind in sorted(WORKLOAD_KINDS))} }} ?entity a ?type }}"""
_ENVOY = (
    "sum by (envoy_cluster_name) (increase("
    'envoy_cluster_upstream_rq_total{job="kuscia-node",envoy_cluster_name=~{{clusters}}}[{{window}}])) > 0'
)

Labels = Mapping[str, str]


class End(NamedTuple):
    """One end of a call, as series name it: ``kind`` is in lower case, None where it is not stated; ``labels`` are those that name it."""

    name: str
    namespace: str | None
    kind: str | None
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mesh:
    """How one kind of service graph counts calls: a counter with the labels that stand for one reporter, and those of both ends.

    ``ends`` reads caller and callee of a series.
    """

    exporter: str
    metric: str
    fixed: str
    labels: tuple[str, ...]
    ends: Callable[[Labels], tuple[End, End]]

    @property
    def query(self) -> str:
        """The template that finds all pairs with calls in the window, or whose counter is new: a first call increases nothing."""
        counter, grouping = f"{self.metric}{{{self.fixed}}}", f"sum by ({','.join(self.labels)})"
        before = f"last_over_time({counter}[1h] offset {int(WINDOW.total_seconds() // 60)}m)"
        return (
            f"topk({MAX_CALLS}, ({grouping} (increase({counter}[{{{{window}}}}])) > 0)"
            f" or (({grouping} ({counter}) unless {grouping} ({before})) > 0))"
        )


@dataclass(frozen=True, slots=True)
class ObservedCall:
    """That one thing calls another (IRIs), where that was seen, and the label values of its series: label → values.

    ``exporter`` is what counts the calls; ``route`` the route that they take between domains, which has the telemetry.
    """

    caller: str
    callee: str
    cluster: str | None
    domain: str | None
    server: Datasource
    exporter: str
    labels: Mapping[str, frozenset[str]] = field(default_factory=dict)
    route: str | None = None


_UNKNOWN = "unknown"
_KINDS = ("deployment", "statefulset", "daemonset", "cronjob", "job", "replicaset")


def _traced(labels: Labels) -> tuple[End, End]:
    return _traced_end("client", labels), _traced_end("server", labels)


def _traced_end(side: str, labels: Labels) -> End:
    own = tuple(each for each in _TRACED if each == side or each.startswith(f"{side}_"))
    namespace = labels.get(f"{side}_k8s_namespace_name") or None
    for kind in _KINDS[:5]:
        if named := labels.get(f"{side}_k8s_{kind}_name"):
            return End(named, namespace, kind, own)
    return End(labels.get(side) or _UNKNOWN, namespace, None, own)


_TRACED = tuple(
    label
    for side in ("client", "server")
    for label in (side, f"{side}_k8s_namespace_name", *(f"{side}_k8s_{kind}_name" for kind in _KINDS[:5]))
)


def _of_istio(labels: Labels) -> tuple[End, End]:
    source = End(
        labels.get("source_workload") or _UNKNOWN,
        _known(labels.get("source_workload_namespace")),
        None,
        ("source_workload", "source_workload_namespace"),
    )
    named = _known(labels.get("destination_workload"))
    own = ("destination_workload", "destination_workload_namespace")
    if named:
        return source, End(named, _known(labels.get("destination_workload_namespace")), None, own)
    return source, End(labels.get("destination_service") or _UNKNOWN, None, None, (*own, "destination_service"))


def _known(value: str | None) -> str | None:
    return None if value == _UNKNOWN else value or None


_LINKERD_KINDS = {
    "deployment": "deployment",
    "statefulset": "statefulset",
    "daemonset": "daemonset",
    "cronjob": "cronjob",
    "job": "k8s_job",
    "replicaset": "replicaset",
}


def _of_linkerd(labels: Labels) -> tuple[End, End]:
    return _linkerd_end("", labels), _linkerd_end("dst_", labels)


def _linkerd_end(prefix: str, labels: Labels) -> End:
    kinds = tuple(prefix + each for each in _LINKERD_KINDS.values())
    namespace = labels.get(f"{prefix}namespace") or None
    for kind, label in _LINKERD_KINDS.items():
        if named := labels.get(prefix + label):
            return End(named, namespace, kind, (f"{prefix}namespace", *kinds))
    host = labels.get("authority", "").partition(":")[0] if prefix else ""
    return End(host or _UNKNOWN, None, None, (f"{prefix}namespace", *kinds, *(("authority",) if prefix else ())))


def _of_hubble(labels: Labels) -> tuple[End, End]:
    return _hubble_end("source", labels), _hubble_end("destination", labels)


def _hubble_end(side: str, labels: Labels) -> End:
    own = (f"{side}_workload", f"{side}_namespace", f"{side}_workload_kind")
    name, namespace, kind = (labels.get(each) or None for each in own)
    return End(name or _UNKNOWN, namespace if name else None, kind.lower() if kind else None, own)


MESHES: Mapping[str, Mesh] = {
    each.exporter: each
    for each in (
        Mesh("service-graph", "traces_service_graph_request_total", "", _TRACED, _traced),
        Mesh(
            "istio",
            "istio_requests_total",
            'reporter="source"',
            (
                "source_workload",
                "source_workload_namespace",
                "destination_workload",
                "destination_workload_namespace",
                "destination_service",
            ),
            _of_istio,
        ),
        Mesh(
            "linkerd",
            "request_total",
            'direction="outbound"',
            (
                *(f"{side}{label}" for side in ("", "dst_") for label in ("namespace", *_LINKERD_KINDS.values())),
                "authority",
            ),
            _of_linkerd,
        ),
        Mesh(
            "hubble",
            "hubble_http_requests_total",
            'traffic_direction="egress"',
            tuple(
                f"{side}_{label}"
                for side in ("source", "destination")
                for label in ("namespace", "workload", "workload_kind")
            ),
            _of_hubble,
        ),
    )
}
"""Service graphs and meshes by the name of their exporter in the settings."""


class Workloads:
    """The workloads of one cluster, by name; a name of several, or of none, finds nothing."""

    def __init__(self, iris: Iterable[tuple[str, ObjectName]]) -> None:
        self._named: defaultdict[str, list[tuple[ObjectName, str]]] = defaultdict(list)
        for iri, name in iris:
            self._named[name.name].append((name, iri))

    def find(self, end: End) -> str | None:
        """Return the IRI of the one workload that an end of a call can be."""
        found = [
            iri
            for name, iri in self._named.get(end.name, ())
            if end.namespace in (None, name.namespace) and end.kind in (None, name.kind)
        ]
        return found[0] if len(found) == 1 else None


class CallReader:
    """Reads the calls of all clusters from the servers that are configured. ``exporters`` are those of the settings."""

    def __init__(self, store: Store, iris: Iris, datasources: Sequence[Datasource], exporters: Iterable[str]) -> None:
        self._store = store
        self._iris = iris
        self._servers = [each for each in datasources if each.kind == "prometheus" and each.access]
        self._meshes = [MESHES[each] for each in exporters if each in MESHES]
        self._kuscia = "kuscia" in exporters

    def read(self, now: datetime) -> tuple[list[ObservedCall], bool]:
        """Return the calls that were seen lately, each pair once, and whether every server has answered."""
        inventory = Inventory(self._store, self._iris)
        found: dict[tuple[str, str], ObservedCall] = {}
        whole = True
        for server in self._servers:
            try:
                with Prometheus(server) as client:
                    for call in self._of(client, inventory, now):
                        found.setdefault((call.caller, call.callee), call)
            except DrumlinError as error:
                log.warning("calls_not_read", datasource=server.name, detail=str(error))
                whole = False
        return list(found.values()), whole

    def _of(self, client: Prometheus, inventory: Inventory, now: datetime) -> Iterator[ObservedCall]:
        if self._meshes:
            workloads = self._workloads()
            for cluster in sorted(inventory.clusters):
                place = Place((cluster,), _domain_of(cluster, inventory))
                if not binding.holds(client.datasource, place):
                    continue
                domains = inventory.clusters_of(place.domain) if place.domain else ()
                if not binding.is_told_apart(client.datasource, place, inventory.clusters, domains):
                    raise binding.clusters_added_together(client.datasource, inventory.clusters)
                for mesh in self._meshes:
                    yield from self._observed(client, mesh, place, workloads[cluster], now)
        if self._kuscia:
            yield from self._between_domains(client, now)

    def _workloads(self) -> Mapping[str, Workloads]:
        by_cluster: defaultdict[str, list[tuple[str, ObjectName]]] = defaultdict(list)
        for row in self._store.look_up(_WORKLOADS):
            try:
                name = self._iris.parse(row["entity"]).name
            except InvalidIdentifier:  # a foreign graph may state what it likes
                continue
            if isinstance(name, ObjectName):
                by_cluster[name.cluster].append((row["entity"], name))
        found = defaultdict[str, Workloads](lambda: Workloads(()))
        found.update((cluster, Workloads(each)) for cluster, each in by_cluster.items())
        return found

    def _observed(
        self, client: Prometheus, mesh: Mesh, place: Place, workloads: Workloads, now: datetime
    ) -> Iterator[ObservedCall]:
        server = client.datasource
        matchers = binding.matchers(server, place)
        query = promql.render(mesh.query, {}, window=WINDOW, datasource=server, matchers=matchers)
        rows, _ = client.instant(query, now)
        own = {each: server.labels.get(each, each) for each in mesh.labels}
        read = [{label: row.get(own[label], "") for label in mesh.labels} for row, _ in rows]
        told = {label for labels in read for label, value in labels.items() if value}
        pairs: defaultdict[tuple[str, str], defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for labels in read:
            caller, callee = mesh.ends(labels)
            ends = self._name(caller, workloads), self._name(callee, workloads)
            if ends[0] is None or ends[1] is None:
                continue
            for label in (*caller.labels, *callee.labels):
                if label in told:
                    pairs[ends[0], ends[1]][own[label]].add(labels[label])
        domain = self._iris.domain(place.domain) if place.domain else None
        for (source, target), values in pairs.items():
            named = {label: frozenset(each) for label, each in values.items()}
            yield ObservedCall(source, target, place.clusters[0], domain, server, mesh.exporter, named)

    def _name(self, end: End, workloads: Workloads) -> str | None:
        """Return the IRI of an end: a workload, or an external; None where its name cannot be one."""
        if found := workloads.find(end):
            return found
        name = f"{end.name}.{end.namespace}" if end.namespace else end.name
        if len(name) > _LONGEST_NAME or not name.isprintable():
            return None
        try:
            return self._iris.external(name)
        except InvalidIdentifier:
            return None

    def _between_domains(self, client: Prometheus, now: datetime) -> Iterator[ObservedCall]:
        """Yield the calls between domains that the gateways of Kuscia count, by the routes that the graph knows."""
        for source, known in self._routes().items():
            if not routes.is_bound(client.datasource, source):
                continue
            names = {name: iris for name, iris in known.items() if name}
            values = {"clusters": any_of(names)}
            matchers = binding.matchers(client.datasource, Place((), source))
            query = promql.render(_ENVOY, values, window=WINDOW, datasource=client.datasource, matchers=matchers)
            seen, _ = client.instant(query, now)
            for row, _ in seen:
                if ends := names.get(row.get("envoy_cluster_name", "")):
                    route, callee = ends
                    caller = self._iris.domain(source)
                    yield ObservedCall(caller, callee, None, caller, client.datasource, "kuscia", route=route)

    def _routes(self) -> Mapping[str, dict[str, tuple[str, str]]]:
        """Return by the id of the source: name of an Envoy cluster → route and destination (IRIs)."""
        found: defaultdict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
        for iri, route, destination in routes.known(self._store.look_up, self._iris):
            for name in route.clusters if destination == self._iris.domain(route.hop) else ():
                found[route.source][name] = (iri, destination)
        return found


def _domain_of(cluster: str, inventory: Inventory) -> str | None:
    return next((each.domain for each in inventory.members if each.kind == "cluster" and each.name == cluster), None)


def written(labels: Mapping[str, frozenset[str]]) -> list[str]:
    """Write label values as the graph has them: ``label=value``, each."""
    return sorted(f"{label}={value}" for label, values in labels.items() for value in values)


def read_matchers(texts: Iterable[str]) -> tuple[Matcher, ...]:
    """Return what every selector of an invocation's metrics must have, of what the graph has (``written``).

    Where a label has several values, any of them: each end is known by its own labels, so every combination is of the same pair.
    """
    values: defaultdict[str, set[str]] = defaultdict(set)
    for text in texts:
        for label, value in matchers_of([text]).items():
            values[label].add(value)
    return tuple(
        Matcher(label, "=", next(iter(each))) if len(each) == 1 else Matcher(label, "=~", any_of(each))
        for label, each in sorted(values.items())
    )
