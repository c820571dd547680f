"""A workload's own metrics: what its pods expose and a Prometheus scrapes, found in the server's index and described for the graph.

The jobs that scrape a pod are found by ``up``, whose labels are those of the target. The names of their series are listed, with type,
unit and help from the server's metadata where it has some, else from the name as Prometheus' conventions have it
(https://prometheus.io/docs/practices/naming/). They stand in a graph beside the workload's own, since the exporter writes that one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

import structlog

from drumlin.kg.errors import DrumlinError, InvalidInput
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import CONTEXT_IRI, NAMESPACE, NodeDocument
from drumlin.kg.store.protocol import Store
from drumlin.kg.telemetry import binding, dialects
from drumlin.kg.telemetry.binding import Place
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.describe import DEFAULT_WINDOW, WORKLOAD_KINDS, pod_names
from drumlin.kg.telemetry.fetch.prometheus import Described, Prometheus
from drumlin.kg.telemetry.graph import Entity, TelemetryGraph
from drumlin.kg.telemetry.holders import DatasourceSelector
from drumlin.kg.telemetry.promql import Matcher
from drumlin.kg.telemetry.quoting import any_of
from drumlin.kg.telemetry.templates import Template

log = structlog.get_logger()

SPAN = timedelta(days=1)
"""A metric that has not been scraped for so long is a workload's no more."""
EXPORTER = "own"
"""What the templates of these metrics name as their exporter."""
_TOGETHER = 200  # workloads that are read of the graph at once
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LEFT_OUT = re.compile(r"up|scrape_.*|ALERTS.*|.*_(bucket|created)")
_RUNTIME = re.compile(r"(go|process|python|jvm|nodejs|promhttp|dotnet|ruby)_.*")  # every process has them: named last
_WORKLOADS = f"""SELECT DISTINCT ?entity WHERE {{
  VALUES ?type {{ {" ".join(f"<{NAMESPACE}{kind}>" for kind in sorted(WORKLOAD_KINDS))} }} ?entity a ?type }}"""
_UNITS: Mapping[str, str] = {
    "seconds": "s",
    "milliseconds": "ms",
    "bytes": "By",
    "joules": "J",
    "watts": "W",
    "volts": "V",
    "amperes": "A",
    "meters": "m",
    "grams": "g",
    "celsius": "Cel",
    "hertz": "Hz",
    "ratio": "1",
    "percent": "%",
}
_QUANTITIES = (
    ("energy", re.compile(r"joules|energy")),
    ("gpu", re.compile(r"gpu")),
    ("cpu", re.compile(r"cpu")),
    ("memory", re.compile(r"mem|heap|resident")),
    ("disk", re.compile(r"disk|filesystem|_fs_")),
    ("network", re.compile(r"network|transmit|receive|sent_bytes|received_bytes")),
)


@dataclass(frozen=True, slots=True)
class Target:
    """A pod that a job scrapes, with all labels of its ``up``."""

    namespace: str
    pod: str
    job: str
    labels: Mapping[str, str]


def template_of(name: str, about: Described | None) -> Template | None:
    """Return the template that asks for a series of this name by its type; None for what cannot be added up over pods.

    A series that two jobs or two replicas of a Prometheus scrape counts once: their labels are dropped before the sum.
    """
    kind = (about.type if about else "") or ("counter" if name.endswith(("_total", "_sum", "_count")) else "gauge")
    if kind in ("histogram", "summary", "gaugehistogram") and name.endswith(("_sum", "_count")):
        kind = "counter"
    if kind in ("histogram", "summary", "gaugehistogram", "stateset"):  # the quantiles of pods have no sum
        return None
    counter = kind == "counter"
    selected = f"{name}{{namespace={{{{namespace}}}},pod=~{{{{pods}}}}}}"
    value = f"rate({selected}[{{{{window}}}}])" if counter else selected
    return Template(
        name=f"workload.{name}",
        metric=name,
        scope="Workload",
        title=(about.help if about else "") or name,
        signal="metrics",
        quantity=next((each for each, pattern in _QUANTITIES if pattern.search(name)), "activity"),
        unit=_unit(name, about.unit if about else "", counter=counter),
        metric_type="counter" if counter else "gauge",
        exporter=EXPORTER,
        datasource_type="prometheus",
        query=f"sum(max without (job,service,endpoint,prometheus,prometheus_replica) ({value}))",
    )


def _unit(name: str, said: str, *, counter: bool) -> str:
    """Return the UCUM unit of what a template returns: a counter's is per second."""
    words = [said.lower(), *reversed(name.lower().removesuffix("_total").removesuffix("_sum").split("_"))][:2]
    unit = "1" if name.endswith("_count") else next((_UNITS[each] for each in words if each in _UNITS), "1")
    if not counter:
        return unit
    return {"1": "/s", "s": "1", "J": "W"}.get(unit, f"{unit}/s")


class Discovery:
    """Finds the own metrics of workloads, at most ``limit`` of each. Asks only servers that are configured. Blocks."""

    def __init__(self, store: Store, iris: Iris, datasources: Sequence[Datasource], limit: int) -> None:
        self._store = store
        self._iris = iris
        self._graph = TelemetryGraph(store, iris)
        self._holders = DatasourceSelector(self._graph, iris, datasources)
        self._servers = [each for each in datasources if each.kind == "prometheus" and each.access]
        self._limit = limit

    def workloads(self) -> list[str]:
        """Return the IRIs of all workloads that there are."""
        return sorted(
            row["entity"] for row in self._store.look_up(_WORKLOADS) if row["entity"].startswith(self._iris.root)
        )

    def find(self, workloads: Sequence[str], now: datetime) -> dict[str, NodeDocument | None]:
        """Return the document of each workload's own metrics by the IRI of its graph, None where it has none.

        A workload is left out when a server that may hold something of it did not answer.
        """
        entities = self._entities(workloads)
        found: dict[str, list[tuple[Datasource, Place, Template]]] = {each.iri: [] for each, _ in entities}
        unknown: set[str] = set()
        for server in self._servers:
            holding = [(entity, place) for entity, place in entities if binding.holds(server, place)]
            try:
                with Prometheus(server) as client:
                    self._look(client, holding, now, found, unknown)
            except DrumlinError as error:
                log.warning("own_metrics_not_found_out", datasource=server.name, detail=str(error))
                unknown |= {entity.iri for entity, _ in holding}
        return {
            self._iris.scraped(entity.iri): self._document(entity, found[entity.iri])
            for entity, _ in entities
            if entity.iri not in unknown
        }

    def _entities(self, workloads: Sequence[str]) -> list[tuple[Entity, Place]]:
        inventory = self._graph.inventory()
        found: list[tuple[Entity, Place]] = []
        waiting = iter(workloads)
        while together := list(islice(waiting, _TOGETHER)):
            known = self._graph.entities(together).values()
            found += [(each, self._holders.place(each, inventory)) for each in known if isinstance(each, Entity)]
        return found

    def _look(
        self,
        client: Prometheus,
        entities: Iterable[tuple[Entity, Place]],
        now: datetime,
        found: Mapping[str, list[tuple[Datasource, Place, Template]]],
        unknown: set[str],
    ) -> None:
        server = client.datasource
        by_namespace: defaultdict[str, list[Target]] = defaultdict(list)
        for each in _targets(client, now):
            by_namespace[each.namespace].append(each)
        metadata = client.metadata() if by_namespace else {}
        for entity, place in entities:
            pods = re.compile(pod_names(entity.kind, entity.name))
            mine = [each for each in by_namespace.get(entity.namespace or "", ()) if pods.fullmatch(each.pod)]
            try:
                matchers = binding.matchers(server, place)
            except InvalidInput:  # its cluster or domain is not known
                unknown.add(entity.iri)
                continue
            jobs = {each.job for each in mine if _fits(each, matchers)}
            if not jobs:
                continue
            own = (
                Matcher(_label(server, "namespace"), "=", entity.namespace or ""),
                Matcher(_label(server, "pod"), "=~", pods.pattern),
            )
            selector = (
                f"{{{','.join(map(str, (*matchers, *own, Matcher(_label(server, 'job'), '=~', any_of(jobs)))))}}}"
            )
            names = client.label_values("__name__", now - SPAN, now, match=selector)
            found[entity.iri].extend((server, place, each) for each in _chosen(names, metadata, self._limit))

    def _document(self, entity: Entity, metrics: Sequence[tuple[Datasource, Place, Template]]) -> NodeDocument | None:
        if not metrics:
            return None
        graph = self._iris.scraped(entity.iri)
        parts: dict[str, NodeDocument] = {}
        for server, place, template in metrics:
            iri = Iris.metric(graph, template.metric)
            part = parts.setdefault(
                template.metric,
                {
                    "id": iri,
                    "type": "Metric",
                    "name": template.metric,
                    "title": template.title,
                    "quantity": template.quantity,
                    "unit": template.unit,
                    "metricType": template.metric_type,
                    "distribution": [],
                },
            )
            window = max(DEFAULT_WINDOW, 4 * server.scrape_interval)
            values = {"namespace": entity.namespace or "", "pods": pod_names(entity.kind, entity.name)}
            query = dialects.write(
                template,
                values,
                self._iris.short(entity.iri),
                window=window,
                step=window,
                datasource=server,
                matchers=binding.matchers(server, place),
            )
            at = {"id": Iris.at(iri, server.name), "type": "MetricQuery", "query": query, "accessService": server.iri}
            part["distribution"].append(at)
        kept = islice(parts.values(), self._limit)
        return {"@context": CONTEXT_IRI, "id": graph, "partOf": [entity.iri], "hasPart": list(kept)}


def _targets(client: Prometheus, now: datetime) -> list[Target]:
    """Return the pods that are scraped, by ``up``."""
    namespace, pod, job = (_label(client.datasource, each) for each in ("namespace", "pod", "job"))
    series = client.labels_of(f'up{{{pod}!=""}}', now - SPAN, now)
    return [Target(each.get(namespace, ""), each[pod], each.get(job, ""), each) for each in series if pod in each]


def _fits(target: Target, matchers: Iterable[Matcher]) -> bool:
    return all(target.labels.get(each.label, "") == each.value for each in matchers)


def _chosen(names: Iterable[str], metadata: Mapping[str, Described], limit: int) -> list[Template]:
    """Return the templates of the names that are a workload's own, at most so many: what every process has comes last."""
    wanted = [each for each in names if _NAME.fullmatch(each) and not _LEFT_OUT.fullmatch(each)]
    found: list[Template] = []
    for name in sorted(wanted, key=lambda each: (bool(_RUNTIME.fullmatch(each)), each)):
        base = re.sub("_(sum|count)$", "", name)
        if template := template_of(name, metadata.get(name) or metadata.get(base)):
            found.append(template)
    return found[:limit]


def _label(server: Datasource, name: str) -> str:
    return server.labels.get(name, name)
