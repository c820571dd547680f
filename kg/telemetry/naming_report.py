"""Reports the names that a Prometheus or Loki uses: profile, the label that distinguishes clusters, lines to paste.

A hub with clusters of several kinds fits no profile as a whole. Each of its clusters is then examined, and gets a table of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from drumlin.kg.errors import DatasourceRefused
from drumlin.kg.telemetry import binding, proposing
from drumlin.kg.telemetry.appearance import CLUSTER_LABELS, LOOKED_AT, Appearance, look
from drumlin.kg.telemetry.datasources import Datasource, with_settings
from drumlin.kg.telemetry.fetch.loki import Loki
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.proposing import Binding
from drumlin.kg.telemetry.recognition import Recognised, recognise

MOST_CLUSTERS = 20
"""Clusters of one server that are looked at one by one."""


@dataclass(frozen=True, slots=True)
class Report:
    """``datasource`` as templates are looked for in it, and ``told``, the reported properties."""

    datasource: Datasource
    told: dict[str, Any] = field(default_factory=dict)


def report(datasource: Datasource, now: datetime, clusters: Collection[str]) -> Report:
    """Look how a server names its series or streams. ``clusters`` are those that are known, by Drumlin's names.

    Raises ``SourceUnavailable`` when there is no answer, and what a Loki refuses.
    """
    if datasource.kind == "prometheus":
        return _of_series(datasource, now, clusters)
    return _of_streams(datasource, now, clusters) if datasource.kind == "loki" else Report(datasource)


_OF_LINES = (
    ("k8s_namespace_name", "k8s_pod_name"),
    ("kubernetes_namespace_name", "kubernetes_pod_name"),
    ("namespace_name", "pod_name"),
)
"""Labels that collectors of logs give where they do not call them namespace and pod: OTLP's, Fluentd's, Fluent Bit's."""


def _of_streams(datasource: Datasource, now: datetime, clusters: Collection[str]) -> Report:
    with Loki(datasource) as client:
        names = client.label_names(now - LOOKED_AT, now)
        wanted = [each for each in CLUSTER_LABELS if each in names]
        values = {each: tuple(sorted(client.label_values(each, now - LOOKED_AT, now))) for each in wanted}
    bound = proposing.bind(Appearance(clusters=values), clusters)
    settings: dict[str, Any] = {}
    usual = "namespace" in names and "pod" in names
    if not usual and not datasource.labels and (own := next((each for each in _OF_LINES if {*each} <= {*names}), None)):
        settings["labels"] = dict(zip(("namespace", "pod"), own, strict=True))
    if names and not binding.is_bound(datasource):
        settings |= bound.settings
    told: dict[str, Any] = {"clusterLabel": bound.to_dict()}
    return Report(datasource, told | ({"configuration": _table(datasource, settings)} if settings else {}))


def _of_series(datasource: Datasource, now: datetime, clusters: Collection[str]) -> Report:
    """Report on a Prometheus; a certain guess is used where nothing is configured. A refused look at the index becomes a note."""
    try:
        seen = _seen(datasource, now)
    except DatasourceRefused as error:
        nothing = {"configured": datasource.profile, "used": datasource.profile, **recognise(Appearance()).to_dict()}
        profile = nothing | {"missing": [], "against": [], "notes": [str(error)]}
        return Report(datasource, {"profile": profile, "clusterLabel": proposing.UNKNOWN.to_dict()})
    found, bound = recognise(seen), proposing.bind(seen, clusters)
    used, settings = datasource, _open(datasource, found)
    if found.certain and settings.keys() == found.settings.keys():
        used = with_settings(datasource, found.settings)
    profile = {"configured": datasource.profile, "used": used.profile, **found.to_dict()}
    told: dict[str, Any] = {"profile": profile, "clusterLabel": bound.to_dict()}
    tables = {} if found.certain or _is_named(datasource) else _clusters(datasource, bound, now)
    if len({each.guess for each in tables.values()}) > 1:
        told["clusterLabel"]["profiles"] = {value: each.guess for value, each in tables.items()}
        told["configuration"] = "\n\n".join(_tables(datasource, bound, tables, clusters))
        return Report(used, told)
    if not binding.is_bound(datasource):
        settings |= bound.settings
    if settings:
        told["configuration"] = _table(datasource, settings)
    return Report(used, told)


def _seen(datasource: Datasource, now: datetime) -> Appearance:
    with Prometheus(datasource) as client:
        return look(client, now)


def _is_named(datasource: Datasource) -> bool:
    """Return whether the configuration says anything of its names."""
    return any(_given(datasource).values())


def _given(datasource: Datasource) -> dict[str, object]:
    return {
        "profile": datasource.profile,
        "labels": datasource.labels or datasource.exporters,
        "jobs": datasource.jobs,
        "nodes": datasource.nodes,
        "recorded": datasource.recorded,
    }


def _open(datasource: Datasource, found: Recognised) -> dict[str, Any]:
    """Return the settings that are proposed: all where nothing is configured, else what the configuration leaves out."""
    given = _given(datasource)
    if not any(given.values()):
        return dict(found.settings)
    if datasource.profile != found.guess:
        return {"profile": found.guess} if found.certain and datasource.profile else {}
    return {name: value for name, value in found.settings.items() if not given[name]}


def _clusters(datasource: Datasource, bound: Binding, now: datetime) -> dict[str, Recognised]:
    """Return what each cluster of a server is taken for, by the value of its label; nothing for a server of one."""
    if bound.label is None or not 1 < len(bound.values) <= MOST_CLUSTERS:
        return {}
    label = bound.label
    parts = {
        value: replace(datasource, matchers={**datasource.matchers, label: value})
        for value in bound.values
        if "{" not in value
    }
    return {value: recognise(_seen(part, now)) for value, part in parts.items()}


def _tables(
    datasource: Datasource, bound: Binding, parts: Mapping[str, Recognised], clusters: Collection[str]
) -> list[str]:
    """Write a table for each cluster; one that is not known by its name there gets a name to replace."""
    found = []
    for value, each in parts.items():
        own = replace(datasource, name=f"{datasource.name}-{value}")
        held = [value if value in clusters else f"Drumlin's name of {value}"]
        found.append(_table(own, {**each.settings, "clusters": held, "matchers": {bound.label: value}}))
    return found


def _table(datasource: Datasource, settings: Mapping[str, Any]) -> str:
    merged = dict(settings)
    if "matchers" in merged:
        merged["matchers"] = {**datasource.matchers, **merged["matchers"]}
    return binding.configuration(datasource, *proposing.lines(merged))
