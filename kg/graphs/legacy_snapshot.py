"""The current graph as a snapshot in the public peer's terms: nodes, pods, workloads, what they ask for, and what is measured now. Pure.

IRIs are those that the peer's exporter makes: ``https://kubernetes.local/#{namespace}.{pod}``, and ``<glc:…>`` as JSON-LD leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from drumlin.kg.errors import InvalidIdentifier
from drumlin.kg.model.iris import Iris, ObjectName
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.rdf.syntax import Lines
from drumlin.kg.store.protocol import Row

CLUSTER = "https://kubernetes.local/#"
METRICS: Mapping[str, tuple[str, str]] = {"cpu_usage": ("CPU", "Core"), "mem_usage": ("RAM", "Bytes")}
"""Metric → the peer's resource and unit."""
MOST = 2000
"""Things whose metrics are asked for; those of further things are not fetched."""
_PREFIX = f"PREFIX : <{NAMESPACE}> PREFIX prov: <http://www.w3.org/ns/prov#> "
_NODES = """SELECT ?it ?name ?phase ?cpu ?memory WHERE { ?it a :Node ; :name ?name . OPTIONAL { ?it :phase ?phase }
  OPTIONAL { ?it :cpuAllocatable ?cpu } OPTIONAL { ?it :memoryAllocatable ?memory } } LIMIT 50000"""
_PODS = """SELECT ?it ?phase ?owner ?node ?start WHERE { ?it a :Pod . OPTIONAL { ?it :phase ?phase } OPTIONAL { ?it :managedBy ?owner }
  OPTIONAL { ?run :runOf ?it ; prov:startedAtTime ?start . FILTER NOT EXISTS { ?run prov:endedAtTime ?end }
    OPTIONAL { ?run :scheduledOn ?node } } } LIMIT 200000"""
_WORKLOADS = """SELECT ?it ?type (SUM(?cpu) AS ?cores) (SUM(?memory) AS ?bytes) WHERE {
  VALUES ?type { :Deployment :StatefulSet :DaemonSet :ReplicaSet :Job } ?it a ?type .
  OPTIONAL { ?it :container ?container . OPTIONAL { ?container :cpuRequest ?cpu } OPTIONAL { ?container :memoryRequest ?memory } }
  } GROUP BY ?it ?type LIMIT 50000"""
_XSD = "http://www.w3.org/2001/XMLSchema#"


class Measured(NamedTuple):
    """A value of one metric of an entity (IRI) at a time, in seconds."""

    entity: str
    metric: str
    value: float
    time: float


Measure = Callable[[Sequence[str], Sequence[str]], Iterable[Measured]]
"""Returns the current values of metrics of entities; what cannot be had is left out."""


def snapshot(look_up: Callable[[str], Sequence[Row]], measure: Measure, iris: Iris, now: datetime) -> Lines:
    """Return the statements of a snapshot of ``now``."""
    nodes, pods, workloads = (look_up(_PREFIX + query) for query in (_NODES, _PODS, _WORKLOADS))
    ids: dict[str, str] = {}
    for row in (*nodes, *pods, *workloads):
        with suppress(InvalidIdentifier):  # a foreign graph may state what it likes
            ids[row["it"]] = _id(iris, row["it"])
    lines: set[str] = set()
    for row in nodes:
        if (node := ids.get(row["it"])) is not None:
            lines.update(_node(node, row, int(now.timestamp() * 1000)))
    for row in pods:
        if (pod := ids.get(row["it"])) is not None:
            lines.update(_pod(pod, row, ids))
    for row in workloads:
        if (workload := ids.get(row["it"])) is not None:
            lines.update(_workload(workload, row))
    measurable = [row["it"] for row in (*nodes, *pods) if row["it"] in ids]
    of_nodes = {row["it"] for row in nodes}
    if 0 < len(measurable) <= MOST:
        for found in measure(measurable, list(METRICS)):
            if found.entity in ids:
                lines.update(_measurement(ids[found.entity], found, part=found.entity in of_nodes))
    return frozenset(lines)


def _id(iris: Iris, iri: str) -> str:
    """Return the name of an object as the peer writes it: a pod's with its namespace, any other alone."""
    name = iris.parse(iri).name
    if isinstance(name, ObjectName) and name.kind == "pod" and name.namespace:
        return f"{CLUSTER}{name.namespace}.{name.name}"
    return f"{CLUSTER}{name.name}"


def _node(node: str, row: Row, at: int) -> Iterator[str]:
    yield from _resource(node, "KubernetesWorkerNode")
    yield from _status(node, _local(row.get("phase", "Unknown")), None)
    for part, key, unit in (("CPU", "cpu", "Core"), ("RAM", "memory", "Bytes")):
        yield from _resource(f"{node}.{part}", part)
        yield f"<{node}> <glc:hasSubResource> <{node}.{part}> ."
        if key in row:
            yield from _value(f"{node}.{part}", f"{part}.Capacity", unit, row[key], at, "ResourceSpecification")


def _pod(pod: str, row: Row, ids: Mapping[str, str]) -> Iterator[str]:
    yield from _resource(pod, "Pod")
    yield f"<{pod}> <http://glaciation-project.eu/model/k8s/#hasName> {_text(row['it'].rpartition('/')[2])} ."
    yield from _status(pod, _local(row.get("phase", "Unknown")), row.get("start"))
    if node := ids.get(row.get("node", "")):
        yield f"<{pod}> <glc:consumes> <{node}> ."
    if owner := ids.get(row.get("owner", "")):
        yield f"<{owner}> <glc:makes> <{pod}> ."


def _workload(workload: str, row: Row) -> Iterator[str]:
    yield f"<{workload}> <{_TYPE}> <glc:AssignedTask> ."
    yield f"<{workload}> <glc:hasDescription> {_text(_local(row['type']))} ."
    for key, name, unit in (("cores", "CPU", "Core"), ("bytes", "RAM", "Bytes")):
        if float(row.get(key, 0)) > 0:
            constraint = f"{workload}.{name}.Allocated"
            yield f"<{workload}> <glc:hasConstraint> <{constraint}> ."
            yield f"<{constraint}> <{_TYPE}> <glc:SoftConstraint> ."
            yield f"<{constraint}> <glc:hasDescription> {_text(f'{name}.Allocated')} ."
            yield f"<{constraint}> <glc:maxValue> {_number(row[key])} ."
            yield f"<{constraint}> <glc:measuredIn> <glc:{unit}> ."
            yield f"<{constraint}> <glc:hasAspect> <glc:Performance> ."


def _measurement(entity: str, found: Measured, *, part: bool) -> Iterator[str]:
    resource, unit = METRICS[found.metric]
    subject = f"{entity}.{resource}" if part else entity
    yield from _value(subject, f"{resource}.Usage", unit, f"{found.value}", int(found.time * 1000), "Prometheus")


_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"


def _resource(iri: str, description: str) -> Iterator[str]:
    yield f"<{iri}> <{_TYPE}> <glc:WorkProducingResource> ."
    yield f"<{iri}> <glc:hasDescription> {_text(description)} ."
    yield f"<{iri}> <glc:hasID> <{iri}> ."


def _status(iri: str, phase: str, start: str | None) -> Iterator[str]:
    status = f"{iri}.Status"
    yield f"<{iri}> <glc:hasStatus> <{status}> ."
    yield f"<{status}> <{_TYPE}> <glc:Status> ."
    yield f"<{status}> <glc:hasDescription> {_text(phase)} ."
    if start:
        yield f"<{status}> <glc:startTime> {_text(start)} ."


def _value(subject: str, name: str, unit: str, value: str, at: int, source: str) -> Iterator[str]:
    base = subject.removesuffix(f".{name.partition('.')[0]}")
    measurement = f"{base}.{name}.{at}"
    yield f"<{subject}> <glc:hasMeasurement> <{measurement}> ."
    yield f"<{measurement}> <{_TYPE}> <glc:Measurement> ."
    yield f"<{measurement}> <glc:hasDescription> {_text(name)} ."
    yield f'<{measurement}> <glc:hasTimestamp> "{at}"^^<{_XSD}integer> .'
    yield f"<{measurement}> <glc:hasValue> {_number(value)} ."
    yield f"<{measurement}> <glc:measuredIn> <glc:{unit}> ."
    yield f"<{measurement}> <glc:relatesToMeasurementProperty> <glc:{name}> ."
    yield f"<glc:{source}> <glc:makes> <{measurement}> ."


def _number(value: str) -> str:
    """Write a number as the peer does: whole ones as integers, others as doubles."""
    number = float(value)
    return f'"{int(number)}"^^<{_XSD}integer>' if number.is_integer() else f'"{number!r}"^^<{_XSD}double>'


def _text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _local(iri: str) -> str:
    return iri.rpartition("#")[2]
