"""Groups of pods: by application, application group, team or another label, kind, namespace or node, as the graph says.

What no server knows: to which team a pod belongs, above all one that is gone. A pod belongs to what manages it, a Job's to its CronJob
where the Job itself says nothing, and its labels are those of its namespace where neither says anything. Read of the graph for one
window, once for all groups of a dimension.

A group has an id like an entity's, ``{dimension}/{value}``: ``applicationGroup/shop``, ``node/prod/edge-a-1``; ``-`` stands for no value.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from urllib.parse import quote, unquote

from drumlin.kg.errors import InvalidInput, ResourceNotFound, TooLarge
from drumlin.kg.model.iris import Iris, ObjectName
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.store.protocol import Row
from drumlin.kg.telemetry.graph import TelemetryGraph, overlap, time_of

MAX_POD_RUNS = 200_000
"""Runs of pods in one window that are read for groups."""
NONE = "-"
"""The value of what has none."""
DIMENSIONS = ("applicationGroup", "application", "team", "kind", "namespace", "node")
"""What can be grouped by, beside ``label:KEY``."""
_SAID = {"application_group": "applicationGroup", "group": "applicationGroup", "app": "application", "type": "kind"}
_PLACES = frozenset({"namespace", "node"})  # whose names are those of one cluster
_LABEL = "label:"
_FROM_LABELS: Mapping[str, tuple[str, ...]] = {
    "application": ("app.kubernetes.io/name", "app.kubernetes.io/instance"),
    "applicationGroup": ("app.kubernetes.io/part-of",),
    "team": ("team",),
}
"""The labels that say what a tombstone has not kept otherwise."""
_TOGETHER = 500  # managers that are read of the graph together

_RUNS = """SELECT ?pod ?manager ?node ?start ?end WHERE {{
  ?run drumlin:runOf ?pod ; prov:startedAtTime ?start . FILTER(CONTAINS(STR(?pod), "/pod/"))
  OPTIONAL {{ ?run prov:endedAtTime ?end }} OPTIONAL {{ ?run drumlin:scheduledOn ?node }}
  OPTIONAL {{ ?pod drumlin:managedBy ?manager }} FILTER({span}) }} LIMIT {limit}"""
_ABOUT = """SELECT ?entity ?type ?former ?manager ?application ?applicationGroup ?label WHERE {
  ?entity a ?type . OPTIONAL { ?entity drumlin:formerType ?former } OPTIONAL { ?entity drumlin:managedBy ?manager }
  OPTIONAL { ?entity drumlin:application ?application } OPTIONAL { ?entity drumlin:applicationGroup ?applicationGroup }
  OPTIONAL { ?entity drumlin:label ?label } }"""


class GroupName(NamedTuple):
    """Which group: the dimension and the value; that of a namespace or node is ``cluster/name``."""

    by: str
    value: str

    def iri(self, iris: Iris) -> str:
        """Return its IRI: it names no graph."""
        values = self.value.split("/") if self.by in _PLACES and self.value != NONE else [self.value]
        return iris.root + "/".join(quote(each, safe="-._~") for each in (self.by, *values))

    @classmethod
    def read(cls, iris: Iris, id_or_iri: str) -> GroupName | None:
        """Read an id or IRI; None for what names no group."""
        by, *values = id_or_iri.removeprefix(iris.root).split("/")
        by = unquote(by)
        if by not in DIMENSIONS and not by.startswith(_LABEL):
            return None
        if not all(values) or (len(values) != 1 and (by not in _PLACES or len(values) != 2)):
            return None
        return cls(by, "/".join(map(unquote, values)))


def dimension(text: str) -> str:
    """Read what is grouped by; raises ``InvalidInput`` with what there is."""
    found = _SAID.get(text, text)
    if found in DIMENSIONS or (found.startswith(_LABEL) and len(found) > len(_LABEL)):
        return found
    near = difflib.get_close_matches(text[:64], (*DIMENSIONS, *_SAID), n=1)
    offered = f"group by {', '.join(DIMENSIONS)} or label:KEY"
    raise InvalidInput(
        f"group_by: {text[:64]!r} is nothing to group by",
        hint=f"did you mean {near[0]}?" if near else offered,
        detail={"offered": [*DIMENSIONS, "label:KEY"]},
    )


class PodPlace(NamedTuple):
    """A pod by name. Sorted, those of one namespace stand together."""

    cluster: str
    namespace: str
    name: str


class GroupedRun(NamedTuple):
    """One run of a pod, in seconds since the epoch; ``end`` None: it still runs. ``describer``: the workload whose graph describes it."""

    pod: PodPlace
    start: float
    end: float | None
    describer: str | None


@dataclass(frozen=True, slots=True)
class _Manager:
    kind: str
    manager: str | None
    values: Mapping[str, str]
    labels: Mapping[str, str]

    def value(self, by: str) -> str | None:
        if by == "kind":
            return self.kind
        if by.startswith(_LABEL):
            return self.labels.get(by.removeprefix(_LABEL))
        said = (self.labels[each] for each in _FROM_LABELS[by] if each in self.labels)
        return self.values.get(by) or next(said, None)


class Grouping:
    """The groups of one dimension in a span of time.

    ``among``: the workloads, pods, namespaces, nodes, clusters and domains (IRIs) whose pods alone count; None: all pods. A pod is of the
    domain of its namespace and of that of its node.
    """

    def __init__(
        self,
        graph: TelemetryGraph,
        iris: Iris,
        by: str,
        start: datetime,
        end: datetime,
        among: frozenset[str] | None = None,
    ) -> None:
        self.by = by
        self._iris = iris
        self.runs: dict[str, list[GroupedRun]] = defaultdict(list)
        rows = graph.ask(_RUNS.format(span=overlap(start, end), limit=MAX_POD_RUNS + 1))
        if len(rows) > MAX_POD_RUNS:
            raise TooLarge(
                f"more than {MAX_POD_RUNS:,} pods ran in the window",
                hint="take a shorter window, or ask for a namespace",
            )
        managers = _managers(graph, rows)
        self._domains: dict[tuple[str, str, str], str] = {}
        if any(each.startswith(f"{iris.root}domain/") for each in among or ()):
            self._domains = {(each.kind, each.cluster, each.name): each.domain for each in graph.inventory().members}
        if by == "team" or by.startswith(_LABEL):
            managers |= dict(_about(graph, sorted({namespace_of(iris, row["pod"]) for row in rows})))
        for row in rows:
            self._take(row, managers, among)
        self.shared = _shared(self.runs) if by == "node" else frozenset()

    @property
    def names(self) -> list[GroupName]:
        """The groups in the order of their values, that without a value last."""
        return [GroupName(self.by, each) for each in sorted(self.runs, key=lambda value: (value == NONE, value))]

    def of(self, group: GroupName) -> list[GroupedRun]:
        """Return the runs of a group's pods; raises ``ResourceNotFound`` when none ran, with a near value."""
        if found := self.runs.get(group.value):
            return found
        near = difflib.get_close_matches(group.value, self.runs, n=1)
        raise ResourceNotFound(
            f"no pod with {group.by} {group.value[:80]!r} ran in the window",
            hint=f"did you mean {near[0]}?" if near else f"list the groups: group_by={group.by}",
        )

    def _take(self, row: Row, managers: Mapping[str, _Manager], among: frozenset[str] | None) -> None:
        named = self._iris.parse(row["pod"]).name
        if not isinstance(named, ObjectName) or named.kind != "pod":
            return
        chain = list(_chain(row.get("manager"), managers))
        pod = PodPlace(named.cluster, named.namespace or "", named.name)
        if among is not None and among.isdisjoint((row["pod"], *chain, *self._around(row, pod))):
            return
        end = time_of(row["end"]).timestamp() if "end" in row else None
        run = GroupedRun(pod, time_of(row["start"]).timestamp(), end, chain[-1] if chain else None)
        told = [*chain, self._iris.object(pod.cluster, None, "Namespace", pod.namespace)]
        self.runs[self._value(row, pod, [managers[each] for each in told if each in managers])].append(run)

    def _around(self, row: Row, pod: PodPlace) -> Iterator[str]:
        """Yield in what a pod runs."""
        yield self._iris.object(pod.cluster, None, "Namespace", pod.namespace)
        yield self._iris.cluster(pod.cluster)
        if "node" in row:
            yield row["node"]
        node = unquote(row.get("node", "").rpartition("/")[2])
        for kind, name in (("namespace", pod.namespace), ("node", node)):
            if domain := self._domains.get((kind, pod.cluster, name)):
                yield self._iris.domain(domain)

    def _value(self, row: Row, pod: PodPlace, chain: list[_Manager]) -> str:
        if self.by == "namespace":
            return f"{pod.cluster}/{pod.namespace}"
        if self.by == "node":
            return f"{pod.cluster}/{unquote(row['node'].rpartition('/')[2])}" if "node" in row else NONE
        if self.by == "kind":
            kinds = [each.kind for each in chain if each.kind != "Namespace"]
            return kinds[-1] if kinds else "Pod"
        return next((found for each in chain if (found := each.value(self.by))), NONE)


def namespace_of(iris: Iris, pod: str) -> str:
    """Return the IRI of the namespace of a pod's IRI."""
    cluster, namespace, *_ = iris.short(pod).split("/")
    return f"{iris.root}{cluster}/-/namespace/{namespace}"


def _chain(manager: str | None, managers: Mapping[str, _Manager]) -> Iterator[str]:
    """Yield what manages a pod, and what manages that."""
    seen: set[str] = set()
    while manager and manager not in seen:
        seen.add(manager)
        yield manager
        manager = managers[manager].manager if manager in managers else None


def _managers(graph: TelemetryGraph, rows: Iterable[Row]) -> dict[str, _Manager]:
    found: dict[str, _Manager] = {}
    wanted = {row["manager"] for row in rows if "manager" in row}
    while wanted:
        found |= dict(_about(graph, sorted(wanted)))
        wanted = {each.manager for each in found.values() if each.manager} - found.keys() - wanted
    return found


def _about(graph: TelemetryGraph, iris: list[str]) -> Iterator[tuple[str, _Manager]]:
    for first in range(0, len(iris), _TOGETHER):
        for iri, rows in graph.ask_all(_ABOUT, iris[first : first + _TOGETHER]).items():
            if not rows:
                continue
            kinds = {_local(row.get("former", row["type"])) for row in rows} - {"Tombstone"}
            labels = dict(row["label"].split("=", 1) for row in rows if "=" in row.get("label", ""))
            values = {each: rows[0][each] for each in ("application", "applicationGroup") if each in rows[0]}
            yield iri, _Manager(min(kinds, default="Pod"), rows[0].get("manager"), values, labels)


def _shared(groups: Mapping[str, Iterable[GroupedRun]]) -> frozenset[PodPlace]:
    """Return the pods that are of several groups, one after the other: those of a StatefulSet that moved to another node."""
    seen: dict[PodPlace, str] = {}
    found: set[PodPlace] = set()
    for value, runs in groups.items():
        found |= {run.pod for run in runs if seen.setdefault(run.pod, value) != value}
    return frozenset(found)


def _local(iri: str) -> str:
    return iri.removeprefix(NAMESPACE)
