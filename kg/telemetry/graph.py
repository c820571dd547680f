"""What the graph knows that resolving needs: an entity, its stored metrics, the pods that ran for it, datasources.

Bounded look-ups on the contract's graph shape. Into a query go only IRIs that are plain ones, and our own timestamps.
"""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast, get_args

import structlog

from drumlin.kg.config.datasources import DatasourceKind, ProfileName
from drumlin.kg.errors import DrumlinError, InvalidIdentifier, InvalidInput, ResourceNotFound
from drumlin.kg.model.iris import ClassName, Iris, ObjectName
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.store.protocol import Row
from drumlin.kg.store.run_archive import RunArchive
from drumlin.kg.telemetry.asking import PodRun, Span, complement, union
from drumlin.kg.telemetry.datasources import DEFAULT_SCRAPE_INTERVAL, Datasource, clean_url, label_names, matchers_of
from drumlin.kg.telemetry.describe import WORKLOAD_KINDS, Scope
from drumlin.kg.telemetry.durations import parse_duration
from drumlin.kg.telemetry.inventory import Inventory, Listing
from drumlin.kg.telemetry.templates import Template

_log = structlog.get_logger()

MAX_RUNS = 50_000
"""Runs of one workload's pods in one window that are read; beyond it the name pattern is asked for."""

_PREFIXES = """PREFIX drumlin: <https://w3id.org/drumlin/ns#> PREFIX prov: <http://www.w3.org/ns/prov#>
PREFIX dcat: <http://www.w3.org/ns/dcat#> PREFIX dcterms: <http://purl.org/dc/terms/> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
"""
_ENTITY = """SELECT ?entity ?type ?former ?domain ?workload ?cluster ?route WHERE {
  ?entity a ?type . OPTIONAL { ?entity drumlin:formerType ?former } OPTIONAL { ?entity drumlin:domain ?domain }
  OPTIONAL { ?entity drumlin:managedBy ?workload } OPTIONAL { ?entity drumlin:cluster ?cluster }
  OPTIONAL { ?entity drumlin:route ?route } }"""
_MATCHERS = "SELECT ?entity ?matcher WHERE { ?entity drumlin:matcher ?matcher }"
# Each pattern starts from a bound IRI and has no OPTIONAL over what is not bound: the engine would scan for it.
_METRICS = """SELECT ?entity ?metric WHERE {
  ?entity drumlin:telemetry ?telemetry . ?telemetry dcterms:hasPart ?part . ?part drumlin:name ?metric }"""
_OWN = "SELECT ?entity ?metric WHERE { ?entity dcterms:hasPart ?part . ?part drumlin:name ?metric }"
_PROPERTIES = "SELECT ?entity ?property ?value WHERE { ?entity ?property ?value } LIMIT 100"
_QUERIES = """SELECT ?entity ?query ?datasource WHERE {
  ?entity dcat:distribution ?at . ?at drumlin:query ?query ; dcat:accessService ?datasource } LIMIT 100"""
_LOGS = """SELECT ?entity ?datasource WHERE {
  ?entity drumlin:telemetry ?telemetry . ?telemetry drumlin:signal drumlin:logs ; dcat:distribution ?at .
  ?at dcat:accessService ?datasource } LIMIT 100"""
_HOLDERS = """SELECT DISTINCT ?entity ?datasource WHERE {
  ?entity drumlin:telemetry ?telemetry . ?telemetry drumlin:signal drumlin:metrics ; dcterms:hasPart ?metric .
  ?metric dcat:distribution ?at . ?at dcat:accessService ?datasource } LIMIT 100"""
_RUN_OF_POD = "?run drumlin:runOf ?pod ; prov:startedAtTime ?start"
_RUNS = """?run drumlin:runOf ?pod ; prov:startedAtTime ?start . OPTIONAL { ?run prov:endedAtTime ?end }"""
_PODS = f"SELECT ?entity ?pod ?start ?end WHERE {{ ?pod drumlin:managedBy ?entity . {_RUNS} FILTER(%s) }} LIMIT {MAX_RUNS + 1}"
_JOB_PODS = (
    f"SELECT ?entity ?pod ?start ?end WHERE {{ ?job drumlin:managedBy ?entity . ?pod drumlin:managedBy ?job . {_RUNS} FILTER(%s) }}"
    f" LIMIT {MAX_RUNS + 1}"
)
_FIRST = f"SELECT ?entity (MIN(?start) AS ?first) WHERE {{ ?pod drumlin:managedBy ?entity . {_RUN_OF_POD} }} GROUP BY ?entity"
_FIRST_OF_JOBS = (
    "SELECT ?entity (MIN(?start) AS ?first) WHERE {"
    f" ?job drumlin:managedBy ?entity . ?pod drumlin:managedBy ?job . {_RUN_OF_POD} }} GROUP BY ?entity"
)
_MANAGERS = """SELECT ?entity ?manager ?above WHERE {
  ?entity drumlin:managedBy ?manager . OPTIONAL { ?manager drumlin:managedBy ?above } }"""
_TEMPLATE = "SELECT ?entity ?property ?value WHERE { ?entity a drumlin:MetricTemplate ; ?property ?value }"
_OWN_RUNS = (
    "SELECT ?entity (MIN(?start) AS ?first) WHERE { ?run drumlin:runOf ?entity ; prov:startedAtTime ?start ."
    " OPTIONAL { ?run prov:endedAtTime ?end } FILTER(%s) } GROUP BY ?entity"
)
_DATASOURCES = """SELECT ?datasource ?name ?kind ?url ?domain ?interval WHERE {
  ?datasource a drumlin:Datasource ; drumlin:name ?name ; drumlin:datasourceType ?kind ; dcat:endpointURL ?url .
  OPTIONAL { ?datasource drumlin:domain ?domain } OPTIONAL { ?datasource drumlin:scrapeInterval ?interval } } LIMIT 1000"""
_BOUND = """SELECT ?datasource ?property ?value WHERE {
  VALUES ?property { drumlin:labelName drumlin:matcher drumlin:holds drumlin:profile }
  ?datasource a drumlin:Datasource ; ?property ?value } LIMIT 10000"""

_MAX_TEMPLATES = 2000
_LATELY = 120  # seconds after it was noted that a cluster is followed, or dumped, in which it is not yet noted again
_MOST_ALIKE = 10_000  # pods of a namespace whose names begin like a workload's that are looked at
_PLAIN = re.compile(
    r"[^\x00-\x20<>\"{}|^`\\]+"
)  # what an IRIREF of SPARQL may hold, https://www.w3.org/TR/sparql11-query/#rIRIREF

_SCOPES: Mapping[str, Scope] = {
    "Pod": "Pod",
    "Node": "Node",
    "Domain": "Domain",
    "GlaciationNode": "Domain",
    "Cluster": "Cluster",
    "Namespace": "Namespace",
    "DomainRoute": "DomainRoute",
    "Host": "Node",
    "VirtualMachine": "VirtualMachine",
    "ContainerInstance": "ContainerInstance",
    "Invocation": "Invocation",
    "Function": "Function",
    **dict.fromkeys(("Workflow", "Task", "Party", "Serving"), "Group"),
    **dict.fromkeys(WORKLOAD_KINDS, "Workload"),
}
_PLACES: frozenset[Scope] = frozenset({"Cluster", "Node", "Domain"})  # what others' pods are in as well


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity that has telemetry. ``kind`` is its type, or its former one when it is a tombstone.

    ``cluster`` is the name of the cluster that it stands in, or is; None for a domain. ``clusters``: those of a group of pods. The
    ``namespace`` of a namespace is its own name. ``route`` is the one that an invocation takes, whose telemetry it has.
    """

    iri: str
    kind: str
    scope: Scope
    cluster: str | None
    namespace: str | None
    name: str
    domain: str | None
    workload: str | None
    clusters: tuple[str, ...] = ()
    route: str | None = None

    @property
    def describer(self) -> str:
        """The entity whose graph holds the stored telemetry: a pod's is its workload's."""
        return self.workload or self.iri if self.scope == "Pod" else self.iri


@dataclass(frozen=True, slots=True)
class StoredMetric:
    """A metric as the graph describes it; ``queries`` are stored queries by the IRI of their datasource."""

    name: str
    unit: str
    quantity: str
    metric_type: str
    queries: Mapping[str, str]


class TelemetryGraph:
    """Reads what resolving needs from a store, and from the archive of the runs that have left it.

    Of the telemetry of clusters, nodes and domains only that of ``domains`` (IRIs) is found; None: that of all.
    """

    def __init__(
        self,
        store: Listing,
        iris: Iris,
        archive: RunArchive | None = None,
        domains: frozenset[str] | None = None,
    ) -> None:
        self._store = store
        self._iris = iris
        self._archive = archive
        self._domains = domains
        self._templates: tuple[tuple[tuple[str, str], ...], tuple[Template, ...]] = ((), ())

    def inventory(self) -> Inventory:
        """Return the clusters and domains as they are when they are first looked at."""
        return Inventory(self._store, self._iris)

    def entity(self, id_or_iri: str) -> Entity:
        """Find an entity by IRI or short id; raises ``ResourceNotFound``, with a near name where there is one."""
        found = self.entities([id_or_iri])[id_or_iri]
        if isinstance(found, DrumlinError):
            raise found
        return found

    def entities(self, names: Iterable[str]) -> dict[str, Entity | DrumlinError]:
        """Find entities by IRI or short id, all at once; what is none has the error that says why."""
        found: dict[str, Entity | DrumlinError] = {}
        iris: dict[str, str] = {}
        for name in names:
            try:
                iris[name] = self._iris.expand(name)
            except DrumlinError as error:
                found[name] = error
        rows = self._ask_all(_ENTITY, iris.values())
        for name, iri in iris.items():
            try:
                found[name] = self._entity(iri, rows[iri])
            except DrumlinError as error:
                found[name] = error
        return found

    def _entity(self, iri: str, rows: list[Row]) -> Entity:
        if not rows:
            raise ResourceNotFound(f"there is no {self._iris.short(iri)}", hint=self._near(iri), detail={"id": iri})
        if not iri.startswith(self._iris.root):
            raise ResourceNotFound(
                f"the telemetry of {iri} is at the service that names it",
                hint="ask there: drumlin peers lists addresses",
            )
        kinds = [_local(row[key]) for row in rows for key in ("type", "former") if key in row]
        kind = next((kind for kind in kinds if kind in _SCOPES), None)
        if kind is None:
            what = next((kind for kind in kinds if kind != "Tombstone"), kinds[0])
            raise ResourceNotFound(
                f"{self._iris.short(iri)} is a {what}, which has no telemetry",
                hint="workloads, pods, namespaces, nodes, hosts, virtual machines, containers, domains, their routes, clusters, functions "
                "and invocations have",
            )
        if self._domains is not None and _SCOPES[kind] in _PLACES:
            home = rows[0].get("domain")
            if iri not in self._domains and home not in self._domains:
                raise ResourceNotFound(
                    f"the telemetry of {self._iris.short(iri)} is another domain's",
                    hint="ask for what is your domain's own",
                )
        named = self._iris.parse(iri).name
        cluster, namespace = (named.name if _SCOPES[kind] == "Cluster" else None), None
        if isinstance(named, ObjectName):
            cluster, namespace = named.cluster, named.namespace
        elif kind == "Invocation" and "cluster" in rows[0]:
            cluster = self._iris.parse(rows[0]["cluster"]).name.name
        route = rows[0].get("route")
        return Entity(
            iri=iri,
            kind=kind,
            scope="DomainRoute" if route else _SCOPES[kind],
            cluster=cluster,
            namespace=named.name if kind == "Namespace" else namespace,
            name=named.name,
            domain=rows[0].get("domain"),
            workload=rows[0].get("workload"),
            route=route,
        )

    def _near(self, iri: str) -> str:
        """Suggest the graph with the nearest name, looked for in the same namespace, then in the same cluster."""
        wanted = self._iris.short(iri)
        for depth in (2, 1):
            prefix = "/".join(wanted.split("/")[:depth]) + "/"
            known = [
                self._iris.short(each.graph)
                for each in self._store.entries(prefix=self._iris.root + prefix, limit=5000)
            ]
            if near := difflib.get_close_matches(wanted, known, n=1, cutoff=0.8):
                return f"did you mean {near[0]}?"
        return "list what there is with /subgraphs or drumlin get"

    def matchers(self, invocation: str) -> list[str]:
        """Return what selects the series of an invocation, as its graph has it."""
        return [row["matcher"] for row in self._ask(_MATCHERS, invocation)]

    def metrics(self, iris: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return the names of the metrics that each entity's graph describes."""
        rows = self._ask_all(_METRICS, iris)
        return {iri: frozenset(row["metric"] for row in rows[iri]) for iri in rows}

    def own_metrics(self, iris: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return the names of the metrics that each workload's pods expose themselves."""
        beside = {iri: self._iris.scraped(iri) for iri in iris if self._iris.is_entity(iri)}
        rows = self._ask_all(_OWN, beside.values())
        return {iri: frozenset(row["metric"] for row in rows[own]) for iri, own in beside.items()}

    def own_metric(self, iri: str, name: str) -> StoredMetric:
        """Return what the graph beside a workload's says about one of the metrics that its pods expose."""
        return self.stored_metric(self._iris.scraped(iri), name)

    def stored_metric(self, iri: str, name: str) -> StoredMetric:
        """Return what an entity's graph says about one of its metrics."""
        part = Iris.metric(iri, name)
        said = {_local(row["property"]): _local(row["value"]) for row in self._ask(_PROPERTIES, part)}
        queries = {row["datasource"]: row["query"] for row in self._ask(_QUERIES, part)}
        return StoredMetric(name, said.get("unit", "1"), said.get("quantity", ""), said.get("metricType", ""), queries)

    def on_host_network(self, cluster: str, namespace: str) -> list[tuple[str, str]]:
        """Return kind and name of the workloads of a namespace whose pods use their nodes' network, as their metrics say."""
        rows = self.ask(
            f"SELECT DISTINCT ?entity ?metric WHERE {{ ?entity dcterms:isPartOf"
            f" <{self._iris.object(cluster, None, 'Namespace', namespace)}> ; drumlin:telemetry ?telemetry ."
            f" ?telemetry dcterms:hasPart ?part . ?part drumlin:name ?metric }}"
        )
        metrics: defaultdict[str, set[str]] = defaultdict(set)
        for row in rows:
            metrics[row["entity"]].add(row["metric"])
        found = []
        for iri, named in metrics.items():
            name = self._iris.parse(iri).name
            if "network_receive" not in named and "cpu_usage" in named and isinstance(name, ObjectName):
                found.append((name.kind, name.name))
        return sorted(found)

    def log_datasources(self, iri: str) -> set[str]:
        """Return the IRIs of the datasources that hold an entity's logs as its graph says."""
        return {row["datasource"] for row in self._ask(_LOGS, iri)}

    def metric_datasources(self, iri: str) -> set[str]:
        """Return the IRIs of the datasources that hold an entity's metrics as its graph says."""
        return {row["datasource"] for row in self._ask(_HOLDERS, iri)}

    def pods(self, workloads: Sequence[Entity], start: datetime, end: datetime) -> dict[str, tuple[PodRun, ...] | None]:
        """Return the runs of each workload's pods that overlap the span, for a CronJob those of its jobs; None: too many.

        A run that stands in the graph and in the archive is given once.
        """
        span = overlap(start, end)
        rows = self._ask_all(_PODS % span, [each.iri for each in workloads])
        by_job = self._ask_all(_JOB_PODS % span, [each.iri for each in workloads if each.kind == "CronJob"])
        if any(sum(map(len, found.values())) > MAX_RUNS for found in (rows, by_job)):
            if len(workloads) == 1:
                return {workloads[0].iri: None}
            middle = len(workloads) // 2
            return self.pods(workloads[:middle], start, end) | self.pods(workloads[middle:], start, end)
        archived = self._archived(list(rows), start, end)
        return {
            iri: tuple(dict.fromkeys((*self._pod_runs(found + by_job.get(iri, [])), *archived.get(iri, ()))))
            for iri, found in rows.items()
        }

    def _archived(self, workloads: list[str], start: datetime, end: datetime) -> dict[str, list[PodRun]]:
        if self._archive is None:
            return {}
        found = self._archive.runs(workloads, start.timestamp(), end.timestamp())
        return {iri: [PodRun(each.pod, each.start, each.end) for each in runs] for iri, runs in found.items()}

    def unknown(self, workload: Entity) -> tuple[Span, ...] | None:
        """Return the spans, in order, in which pods of a workload may have run that nothing knows of; None: nobody noted that.

        It is before the cluster was followed and its past was read, while nobody followed it, and where the oldest runs are folded.
        """
        if self._archive is None or workload.cluster is None:
            return None
        known = self._archive.spans("known", workload.cluster, ("", workload.namespace or ""))
        if not known:
            return None
        newest = max(end for _, end in known)
        unknown = complement((*known, (newest, newest + _LATELY)))
        if folded := self._archive.folded(workload.iri):
            unknown = union((*unknown, (folded.first, folded.last)))
        return unknown

    def dumped(self, workload: Entity) -> float | None:
        """Return until when the newest dump of a workload's cluster covers it, in seconds; None: there is none."""
        if self._archive is None or workload.cluster is None:
            return None
        return max((end + _LATELY for _, end in self._archive.spans("seen", workload.cluster, [""])), default=None)

    def first_known(self, workloads: Sequence[Entity]) -> dict[str, datetime | None]:
        """Return when the earliest run that the graph knows of each workload's pods began; None when it knows none."""
        rows = self._ask_all(_FIRST, [each.iri for each in workloads])
        by_job = self._ask_all(_FIRST_OF_JOBS, [each.iri for each in workloads if each.kind == "CronJob"])
        times = {iri: [time_of(row["first"]) for row in (*found, *by_job.get(iri, ()))] for iri, found in rows.items()}
        return {iri: min(found, default=None) for iri, found in times.items()}

    def strangers(self, workload: Entity, alike: Callable[[Iterable[str]], list[str]]) -> frozenset[str]:
        """Return the names of pods that are ``alike`` a workload's and, as the graph knows, another one's."""
        root = self._iris.object(workload.cluster or "", workload.namespace, "Pod", workload.name)
        entries = self._store.entries(prefix=f"{root}-", limit=_MOST_ALIKE)
        by_name = {self._iris.parse(each.graph).name.name: each.graph for each in entries}
        pods = [by_name[name] for name in alike(by_name)]
        rows = self._ask_all(_MANAGERS, pods)
        return frozenset(
            self._iris.parse(pod).name.name
            for pod, found in rows.items()
            if found and not any(workload.iri in (row["manager"], row.get("above")) for row in found)
        )

    def _pod_runs(self, rows: list[Row]) -> Iterator[PodRun]:
        for row in rows:
            parsed = self._iris.parse(row["pod"]).name
            if isinstance(parsed, ObjectName) and parsed.kind == "pod":  # a CronJob manages jobs, which run as well
                ended = time_of(row["end"]).timestamp() if "end" in row else None
                yield PodRun(parsed.name, time_of(row["start"]).timestamp(), ended)

    def templates(self) -> tuple[Template, ...]:
        """Return the metric templates of the graph; those that cannot be used are left out and logged. Read again when one changes."""
        entries = self._store.entries(prefix=f"{self._iris.root}template/", limit=_MAX_TEMPLATES)
        now = tuple((each.graph, each.digest) for each in entries)
        if now != self._templates[0]:
            rows = self._ask_all(_TEMPLATE, [each.graph for each in entries])
            self._templates = now, tuple(found for iri in rows if (found := _template(iri, rows[iri])))
        return self._templates[1]

    def ran(self, iris: Iterable[str], start: datetime, end: datetime) -> dict[str, datetime | None]:
        """Return when each entity's earliest run that overlaps the span began, or None when none does."""
        rows = self._ask_all(_OWN_RUNS % overlap(start, end), iris)
        return {iri: time_of(found[0]["first"]) if found else None for iri, found in rows.items()}

    def datasources(self) -> Iterator[Datasource]:
        """Yield the datasources that the graph describes; without access, since a document cannot grant it."""
        said: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for row in self._store.look_up(_PREFIXES + _BOUND):
            said[row["datasource"]][_local(row["property"])].append(row["value"])
        for row in self._store.look_up(_PREFIXES + _DATASOURCES):
            if (known := _local(row["kind"])) not in get_args(DatasourceKind):
                continue
            kind = cast("DatasourceKind", known)
            try:
                url = clean_url(row["url"])
                interval = parse_duration(row["interval"]) if "interval" in row else DEFAULT_SCRAPE_INTERVAL
            except InvalidInput:
                continue  # written by hand and unusable: it cannot be resolved against
            about = said[row["datasource"]]
            yield Datasource(
                row["name"],
                row["datasource"],
                kind,
                url,
                row.get("domain"),
                interval,
                labels=label_names(about["labelName"]),
                clusters=tuple(self._ids(about["holds"], "cluster")),
                domains=tuple(self._ids(about["holds"], "domain")),
                matchers=matchers_of(about["matcher"]),
                profile=_profile(about["profile"]),
            )

    def _ids(self, iris: Iterable[str], segment: str) -> Iterator[str]:
        """Yield the ids of the things of one reserved class among IRIs."""
        for iri in iris:
            with suppress(InvalidIdentifier):  # written by hand: it names nothing that can be held
                name = self._iris.parse(iri).name
                if isinstance(name, ClassName) and name.kind == segment:
                    yield name.name

    def ask(self, query: str) -> list[Row]:
        """Answer one of our own bounded SELECTs; the usual prefixes are known."""
        return self._store.look_up(_PREFIXES + query)

    def ask_all(self, query: str, iris: Iterable[str]) -> dict[str, list[Row]]:
        """Ask the same about many entities (``?entity``) with one query."""
        return self._ask_all(query, iris)

    def _ask_all(self, query: str, iris: Iterable[str]) -> dict[str, list[Row]]:
        """Ask the same about many entities with one query, a quarter of the time of one query each."""
        found: dict[str, list[Row]] = {iri: [] for iri in iris}
        if not found:
            return found
        named = " ".join(f"<{iri}>" for iri in found if _PLAIN.fullmatch(iri))  # the rest names nothing in any graph
        bound = query.replace("WHERE {", f"WHERE {{ VALUES ?entity {{ {named} }}", 1)
        for row in self._store.look_up(_PREFIXES + bound):
            found[row["entity"]].append(row)
        return found

    def _ask(self, query: str, entity: str) -> list[Row]:
        return self._store.look_up(_PREFIXES + query, {"entity": entity})


def _template(iri: str, rows: Iterable[Row]) -> Template | None:
    """Read a template; one that cannot be used is logged."""
    said = {row["property"]: row["value"] for row in rows}
    try:
        return Template.read(iri, said) if said else None
    except KeyError as error:
        _log.warning("template_unusable", template=iri, missing=str(error))
        return None


def _profile(written: Iterable[str]) -> ProfileName | None:
    """Read the profile of a datasource's document; one that is not known names its series as the templates do."""
    return next((each for each in get_args(ProfileName) if each in written), None)


def overlap(start: datetime, end: datetime) -> str:
    """Return the condition that a run (``?start``, ``?end``) overlaps a span."""
    first, last = (f'"{at.astimezone(UTC).isoformat().replace("+00:00", "Z")}"^^xsd:dateTime' for at in (start, end))
    return f"?start <= {last} && (!BOUND(?end) || ?end >= {first})"


def time_of(text: str) -> datetime:
    """Read a time of the graph; one without a zone is in UTC."""
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _local(iri: str) -> str:
    return iri.removeprefix(NAMESPACE)
