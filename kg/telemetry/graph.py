"""What the graph knows that resolving needs: an entity, its stored metrics, the pods that ran for it, datasources.

Bounded look-ups on the contract's graph shape. Into a query go only IRIs that are plain ones, and our own timestamps.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast, get_args

import structlog

from kg.errors import DrumlinError, InvalidInput, ResourceNotFound
from kg.iris import Iris, ObjectName
from kg.jsonld import NAMESPACE
from kg.servers import DatasourceKind
from kg.store.protocol import Row, Store
from kg.telemetry.asking import PodRun
from kg.telemetry.datasources import DEFAULT_SCRAPE_INTERVAL, Datasource, clean_url, label_names
from kg.telemetry.describe import WORKLOAD_KINDS, Scope
from kg.telemetry.durations import parse_duration
from kg.telemetry.templates import Template

_log = structlog.get_logger()

MAX_RUNS = 50_000
"""Runs of one workload's pods in one window that are read; beyond it the name pattern is asked for."""

_PREFIXES = """PREFIX drumlin: <https://w3id.org/drumlin/ns#> PREFIX prov: <http://www.w3.org/ns/prov#>
PREFIX dcat: <http://www.w3.org/ns/dcat#> PREFIX dcterms: <http://purl.org/dc/terms/> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
"""
_ENTITY = """SELECT ?entity ?type ?former ?domain ?workload WHERE {
  ?entity a ?type . OPTIONAL { ?entity drumlin:formerType ?former } OPTIONAL { ?entity drumlin:domain ?domain }
  OPTIONAL { ?entity drumlin:managedBy ?workload } }"""
# Each pattern starts from a bound IRI and has no OPTIONAL over what is not bound: the engine would scan for it.
_METRICS = """SELECT ?entity ?metric WHERE {
  ?entity drumlin:telemetry ?telemetry . ?telemetry dcterms:hasPart ?part . ?part drumlin:name ?metric }"""
_PROPERTIES = "SELECT ?entity ?property ?value WHERE { ?entity ?property ?value } LIMIT 100"
_QUERIES = """SELECT ?entity ?query ?datasource WHERE {
  ?entity dcat:distribution ?at . ?at drumlin:query ?query ; dcat:accessService ?datasource } LIMIT 100"""
_LOGS = """SELECT ?entity ?datasource WHERE {
  ?entity drumlin:telemetry ?telemetry . ?telemetry drumlin:signal drumlin:logs ; dcat:distribution ?at .
  ?at dcat:accessService ?datasource } LIMIT 100"""
_HOLDERS = """SELECT DISTINCT ?entity ?datasource WHERE {
  ?entity drumlin:telemetry ?telemetry . ?telemetry drumlin:signal drumlin:metrics ; dcterms:hasPart ?metric .
  ?metric dcat:distribution ?at . ?at dcat:accessService ?datasource } LIMIT 100"""
_RUNS = """?run drumlin:runOf ?pod ; prov:startedAtTime ?start . OPTIONAL { ?run prov:endedAtTime ?end }"""
_PODS = f"SELECT ?entity ?pod ?start ?end WHERE {{ ?pod drumlin:managedBy ?entity . {_RUNS} FILTER(%s) }} LIMIT {MAX_RUNS + 1}"
_JOB_PODS = (
    f"SELECT ?entity ?pod ?start ?end WHERE {{ ?job drumlin:managedBy ?entity . ?pod drumlin:managedBy ?job . {_RUNS} FILTER(%s) }}"
    f" LIMIT {MAX_RUNS + 1}"
)
_TEMPLATE = "SELECT ?entity ?property ?value WHERE { ?entity a drumlin:MetricTemplate ; ?property ?value } LIMIT 100"
_OWN_RUNS = (
    "SELECT ?entity (MIN(?start) AS ?first) WHERE { ?run drumlin:runOf ?entity ; prov:startedAtTime ?start ."
    " OPTIONAL { ?run prov:endedAtTime ?end } FILTER(%s) } GROUP BY ?entity"
)
_DATASOURCES = """SELECT ?datasource ?name ?kind ?url ?domain ?interval WHERE {
  ?datasource a drumlin:Datasource ; drumlin:name ?name ; drumlin:datasourceType ?kind ; dcat:endpointURL ?url .
  OPTIONAL { ?datasource drumlin:domain ?domain } OPTIONAL { ?datasource drumlin:scrapeInterval ?interval } } LIMIT 1000"""
_LABELS = "SELECT ?datasource ?label WHERE { ?datasource a drumlin:Datasource ; drumlin:labelName ?label } LIMIT 10000"

_MAX_TEMPLATES = 2000
_PLAIN = re.compile(
    r"[^\x00-\x20<>\"{}|^`\\]+"
)  # what an IRIREF of SPARQL may hold, https://www.w3.org/TR/sparql11-query/#rIRIREF

_SCOPES: Mapping[str, Scope] = {
    "Pod": "Pod",
    "Node": "Node",
    "Domain": "Domain",
    "GlaciationNode": "Domain",
    "Cluster": "Cluster",
    **dict.fromkeys(WORKLOAD_KINDS, "Workload"),
}


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity that has telemetry. ``kind`` is its type, or its former one when it is a tombstone."""

    iri: str
    kind: str
    scope: Scope
    cluster: str
    namespace: str | None
    name: str
    domain: str | None
    workload: str | None

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
    """Reads what resolving needs from a store."""

    def __init__(self, store: Store, iris: Iris) -> None:
        self._store = store
        self._iris = iris
        self._templates: tuple[tuple[tuple[str, str], ...], tuple[Template, ...]] = ((), ())

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
        kinds = [_local(row[key]) for row in rows for key in ("type", "former") if key in row]
        kind = next((kind for kind in kinds if kind in _SCOPES), None)
        if kind is None:
            what = next((kind for kind in kinds if kind != "Tombstone"), kinds[0])
            raise ResourceNotFound(
                f"{self._iris.short(iri)} is a {what}, which has no telemetry",
                hint="workloads, pods, nodes, domains and clusters have",
            )
        named = self._iris.parse(iri).name
        cluster, namespace = (named.cluster, named.namespace) if isinstance(named, ObjectName) else (named.name, None)
        return Entity(
            iri=iri,
            kind=kind,
            scope=_SCOPES[kind],
            cluster=cluster,
            namespace=namespace,
            name=named.name,
            domain=rows[0].get("domain"),
            workload=rows[0].get("workload"),
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

    def metrics(self, iris: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return the names of the metrics that each entity's graph describes."""
        rows = self._ask_all(_METRICS, iris)
        return {iri: frozenset(row["metric"] for row in rows[iri]) for iri in rows}

    def stored_metric(self, iri: str, name: str) -> StoredMetric:
        """Return what an entity's graph says about one of its metrics."""
        part = Iris.metric(iri, name)
        said = {_local(row["property"]): _local(row["value"]) for row in self._ask(_PROPERTIES, part)}
        queries = {row["datasource"]: row["query"] for row in self._ask(_QUERIES, part)}
        return StoredMetric(name, said.get("unit", "1"), said.get("quantity", ""), said.get("metricType", ""), queries)

    def log_datasources(self, iri: str) -> set[str]:
        """Return the IRIs of the datasources that hold an entity's logs as its graph says."""
        return {row["datasource"] for row in self._ask(_LOGS, iri)}

    def metric_datasources(self, iri: str) -> set[str]:
        """Return the IRIs of the datasources that hold an entity's metrics as its graph says."""
        return {row["datasource"] for row in self._ask(_HOLDERS, iri)}

    def pods(self, workloads: Sequence[Entity], start: datetime, end: datetime) -> dict[str, tuple[PodRun, ...] | None]:
        """Return the runs of each workload's pods that overlap the span, for a CronJob those of its jobs; None: too many."""
        span = _overlap(start, end)
        rows = self._ask_all(_PODS % span, [each.iri for each in workloads])
        by_job = self._ask_all(_JOB_PODS % span, [each.iri for each in workloads if each.kind == "CronJob"])
        if any(sum(map(len, found.values())) > MAX_RUNS for found in (rows, by_job)):
            if len(workloads) == 1:
                return {workloads[0].iri: None}
            middle = len(workloads) // 2
            return self.pods(workloads[:middle], start, end) | self.pods(workloads[middle:], start, end)
        return {iri: tuple(self._pod_runs(found + by_job.get(iri, []))) for iri, found in rows.items()}

    def _pod_runs(self, rows: list[Row]) -> Iterator[PodRun]:
        for row in rows:
            parsed = self._iris.parse(row["pod"]).name
            if isinstance(parsed, ObjectName) and parsed.kind == "pod":  # a CronJob manages jobs, which run as well
                ended = _time(row["end"]).timestamp() if "end" in row else None
                yield PodRun(parsed.name, _time(row["start"]).timestamp(), ended)

    def templates(self) -> tuple[Template, ...]:
        """Return the metric templates of the graph; those that cannot be used are left out and logged. Read again when one changes."""
        entries = self._store.entries(prefix=f"{self._iris.root}template/", limit=_MAX_TEMPLATES)
        now = tuple((each.graph, each.digest) for each in entries)
        if now != self._templates[0]:
            self._templates = now, tuple(found for each in entries if (found := self._template(each.graph)))
        return self._templates[1]

    def _template(self, iri: str) -> Template | None:
        said = {row["property"]: row["value"] for row in self._ask(_TEMPLATE, iri)}
        try:
            return Template.read(iri, said) if said else None
        except KeyError as error:
            _log.warning("template_unusable", template=iri, missing=str(error))
            return None

    def ran(self, iris: Iterable[str], start: datetime, end: datetime) -> dict[str, datetime | None]:
        """Return when each entity's earliest run that overlaps the span began, or None when none does."""
        rows = self._ask_all(_OWN_RUNS % _overlap(start, end), iris)
        return {iri: _time(found[0]["first"]) if found else None for iri, found in rows.items()}

    def datasources(self) -> Iterator[Datasource]:
        """Yield the datasources that the graph describes; without access, since a document cannot grant it."""
        renamed: dict[str, list[str]] = {}
        for row in self._store.look_up(_PREFIXES + _LABELS):
            renamed.setdefault(row["datasource"], []).append(row["label"])
        for row in self._store.look_up(_PREFIXES + _DATASOURCES):
            if (known := _local(row["kind"])) not in get_args(DatasourceKind):
                continue
            kind = cast("DatasourceKind", known)
            try:
                url = clean_url(row["url"])
                interval = parse_duration(row["interval"]) if "interval" in row else DEFAULT_SCRAPE_INTERVAL
            except InvalidInput:
                continue  # written by hand and unusable: it cannot be resolved against
            labels = label_names(renamed.get(row["datasource"], ()))
            yield Datasource(row["name"], row["datasource"], kind, url, row.get("domain"), interval, labels=labels)

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


def _overlap(start: datetime, end: datetime) -> str:
    first, last = (f'"{at.astimezone(UTC).isoformat().replace("+00:00", "Z")}"^^xsd:dateTime' for at in (start, end))
    return f"?start <= {last} && (!BOUND(?end) || ?end >= {first})"


def _time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _local(iri: str) -> str:
    return iri.removeprefix(NAMESPACE)
