"""Pods that use the network of their nodes: what they report is the nodes' traffic, which counts for no namespace, domain or group.

The graph knows which they are: their runs are left out of a group, the pattern of their names out of a namespace. The namespaces of a
domain have too many, so kube-state-metrics tells there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from drumlin.kg.errors import ResourceNotFound
from drumlin.kg.telemetry import promql
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.describe import WORKLOAD_KINDS, pod_names
from drumlin.kg.telemetry.graph import Entity, TelemetryGraph
from drumlin.kg.telemetry.groups import GroupedRun, GroupName
from drumlin.kg.telemetry.promql import Matcher
from drumlin.kg.telemetry.templates import Template

_ON_HOST = 'kube_pod_info{job="kube-state-metrics",namespace={{namespace}},host_network="true"}'


def without(graph: TelemetryGraph, runs: Sequence[GroupedRun], group: GroupName) -> list[GroupedRun]:
    """Leave their runs out of a group's; raises ``ResourceNotFound`` when no other is left."""
    metrics = graph.metrics({run.describer for run in runs if run.describer})
    on_host = {iri for iri, named in metrics.items() if named and "network_receive" not in named}
    found = [run for run in runs if run.describer not in on_host]
    if not found:
        raise ResourceNotFound(f"all pods with {group.by} {group.value} use the network of their nodes")
    return found


def subtracted(template: Template) -> Template:
    """Return a workload's template that leaves them out as kube-state-metrics knows them; without it nothing is left out."""
    if template.quantity != "network":
        return template
    tokens = promql.tokens_of(template.query)
    texts = [token.text for token in tokens]
    for at, token in enumerate(tokens[:-1]):
        if token.text == "sum" and tokens[at + 1].text == "(":
            _, end = promql.parentheses(tokens, at)
            texts[end] = f" unless on (namespace,pod) max by (namespace,pod) ({_ON_HOST}))"
    return replace(template, query="".join(texts))


def left_out(graph: TelemetryGraph, namespace: Entity, server: Datasource) -> tuple[Matcher, ...]:
    """Return the matcher that leaves them out of a namespace."""
    kinds = {kind.lower(): kind for kind in WORKLOAD_KINDS}
    on_host = graph.on_host_network(namespace.cluster or "", namespace.name)
    patterns = [pod_names(kinds[kind], name) for kind, name in on_host if kind in kinds]
    return (Matcher(server.labels.get("pod", "pod"), "!~", "|".join(patterns)),) if patterns else ()
