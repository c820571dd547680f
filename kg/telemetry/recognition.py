"""Guesses the profile of a Prometheus, with the evidence, and computes the settings that fit it.

If no profile fits, or one does except for a few names, the settings contain the differences, so that templates find their series
nevertheless. Gaps that no setting closes are listed as missing. Pure: ``kg.telemetry.appearance`` collects the input.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from drumlin.kg.config.datasources import NodeJoin, ProfileName
from drumlin.kg.telemetry.appearance import MIXED, SIGNS, Appearance
from drumlin.kg.telemetry.profiles import ADDRESS, NAME, PROFILES, Naming, Profile
from drumlin.kg.telemetry.proposing import listed
from drumlin.kg.telemetry.quoting import literally

_WHAT = {
    "cadvisor": "CPU, memory and traffic of pods",
    "kube-state-metrics": "limits, requests and restarts",
    "node-exporter": "all metrics of nodes",
}
_JOBS = {
    "cadvisor": "kubelet",
    "kubelet": "kubelet",
    "kube-state-metrics": "kube-state-metrics",
    "node-exporter": "node-exporter",
}
_EXPORTED = ("namespace", "pod", "container", "node")
_OLD = {"pod": "pod_name", "container": "container_name"}  # cAdvisor's labels before Kubernetes 1.16


@dataclass(frozen=True, slots=True)
class Recognised:
    """The result of a guess.

    ``guess`` is the best profile (None: none fits). It is ``certain`` if everything fits, and no other profile as well; ``rivals`` fit
    as well. ``evidence`` and ``against`` are observations about the guess, else about kube-prometheus, whose names the templates use.
    ``missing`` are gaps that no setting closes; ``notes`` are further observations. ``settings`` make the templates find their series.
    """

    guess: ProfileName | None
    certain: bool
    rivals: tuple[ProfileName, ...]
    evidence: tuple[str, ...]
    against: tuple[str, ...]
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    settings: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "guess": self.guess,
            "title": PROFILES[self.guess].title if self.guess else None,
            "certain": self.certain,
            "rivals": list(self.rivals),
            "evidence": list(self.evidence),
            "against": list(self.against),
            "missing": list(self.missing),
            "notes": list(self.notes),
        }


def recognise(seen: Appearance) -> Recognised:
    """Judge what a server shows."""
    found = {name: list(_checks(profile, seen)) for name, profile in PROFILES.items()}
    ranked = sorted(found, key=lambda name: _rank(found[name]))
    best = ranked[0]
    fits, against = _told(found[best], fits=True), _told(found[best], fits=False)
    guess = best if len(fits) > len(against) and _is_identified(PROFILES[best], seen) else None
    rivals = tuple(name for name in ranked[1:] if _rank(found[name]) == _rank(found[best])) if guess else ()
    row = PROFILES[guess or "kube-prometheus"]  # which the templates are written for
    if not guess:
        fits, against = (_told(found[row.name], fits=each) for each in (True, False))
    settings = {"profile": guess} if guess else {}
    return Recognised(
        guess=guess,
        certain=guess is not None and not against and not rivals,
        rivals=rivals,
        evidence=fits,
        against=against,
        missing=tuple(_missing(seen)),
        notes=tuple(_notes(seen)),
        settings=settings | _differences(row, seen),
    )


def _is_identified(profile: Profile, seen: Appearance) -> bool:
    """Return whether something that a server has speaks for a profile: what it lacks, it shares with any other."""
    if profile.name == "otel-collector":
        return "otel" in seen.series
    job = profile.namings.get("cadvisor", Naming()).job
    own = seen.series["cadvisor"].jobs if "cadvisor" in seen.series else ()
    return any(_is_job(each, _JOBS["cadvisor"] if job is None else job) for each in own) or profile.mark in seen.marks


def _rank(checks: Collection[tuple[bool, str]]) -> tuple[int, int]:
    return sum(not fits for fits, _ in checks), -sum(fits for fits, _ in checks)


def _told(checks: Iterable[tuple[bool, str]], *, fits: bool) -> tuple[str, ...]:
    return tuple(said for fit, said in checks if fit == fits)


def _is_measured(seen: Appearance) -> bool:
    return "cadvisor" in seen.series or "otel" in seen.series


def _checks(profile: Profile, seen: Appearance) -> Iterator[tuple[bool, str]]:
    """Yield, for each thing that a profile says and the server shows, whether they fit, and what the server shows."""
    if profile.name == "otel-collector":
        yield "otel" in seen.series, f"there is {'a' if 'otel' in seen.series else 'no'} metric {SIGNS['otel']}"
        if "cadvisor" in seen.series:
            yield False, "there are cAdvisor's own series (container_…)"
        return
    if "cadvisor" not in seen.series:
        yield False, f"there is no metric {SIGNS['cadvisor']}"
    for exporter, usual in _JOBS.items():
        if exporter == "kubelet" or exporter not in seen.series:
            continue
        job, own = profile.namings.get(exporter, Naming()).job, seen.series[exporter].jobs
        if job != "":
            fits = bool(own) and all(_is_job(each, usual if job is None else job) for each in own)
            yield fits, f"the job of {SIGNS[exporter]} is {listed(own) or 'not named'}"
    yield from _labels(profile, seen)
    if profile.mark:
        yield profile.mark in seen.marks, seen.marks.get(profile.mark) or _UNMARKED[profile.mark]


def _labels(profile: Profile, seen: Appearance) -> Iterator[tuple[bool, str]]:
    if "cadvisor" in seen.series:
        for label, expected in (("metrics_path", profile.path), ("node", profile.node_on_cadvisor)):
            there = seen.has("cadvisor", label)
            if expected is not None:
                yield there == expected, f"cAdvisor's series have {'a' if there else 'no'} label {label}"
    if seen.instance and profile.instance:
        yield (
            seen.instance == profile.instance,
            f"instance of node-exporter is {_INSTANCES[seen.instance]} ({seen.instances[0]})",
        )


_INSTANCES = {NAME: "the name of a node", ADDRESS: "an address", MIXED: "a name here, an address there"}
_UNMARKED = {
    "openshift": "there is no namespace openshift-monitoring",
    "google": "the series have no labels project_id and location",
    "k3s": "no kubelet is of K3s",
}


def _is_job(job: str, expected: str) -> bool:
    if expected.startswith("=~"):
        return re.fullmatch(expected.removeprefix("=~"), job) is not None
    return job == expected


# -- settings, and gaps that no setting closes ----------------------------------------------------------------------------
def _differences(row: Profile, seen: Appearance) -> dict[str, Any]:
    """Return the settings by which a server differs from a profile's row."""
    found: dict[str, Any] = {}
    if row.name == "otel-collector":
        return found
    if jobs := dict(_jobs(row, seen)):
        found["jobs"] = jobs
    if labels := _renamed(row, seen):
        found["labels"] = labels
    if nodes := _nodes(row, seen):
        found["nodes"] = nodes
    if seen.rules - seen.series.keys() - ({"cadvisor"} if "otel" in seen.series else set()):
        found["recorded"] = True
    return found


def _jobs(row: Profile, seen: Appearance) -> Iterator[tuple[str, str]]:
    for exporter, usual in _JOBS.items():
        if exporter not in seen.series:
            continue
        own, job = seen.series[exporter].jobs, row.namings.get(exporter, Naming()).job
        expected = usual if job is None else job
        if expected and not any(_is_job(each, expected) for each in own):
            one = own[0] if len(own) == 1 else f"=~{'|'.join(map(literally, own))}"
            yield exporter, one if own else ""


def _renamed(row: Profile, seen: Appearance) -> dict[str, Any]:
    found: dict[str, Any] = {}
    dropped = dict(row.namings.get("cadvisor", Naming()).labels)
    if "cadvisor" in seen.series and not seen.has("cadvisor", "metrics_path") and "metrics_path" not in dropped:
        found["metrics_path"] = ""
    for usual, old in _OLD.items():
        if seen.has("cadvisor", old) and not seen.has("cadvisor", usual):
            found.setdefault("cadvisor", {})[usual] = old
    if seen.has("dcgm", "hostname") and not seen.has("dcgm", "Hostname"):  # since DCGM exporter 4.9
        found["dcgm"] = {"Hostname": "hostname"}
    for exporter in ("cadvisor", "kubelet", "kube-state-metrics"):
        for usual in _EXPORTED:
            if seen.has(exporter, f"exported_{usual}"):
                found.setdefault(exporter, {})[usual] = f"exported_{usual}"
    named = row.namings.get("node-exporter", Naming()).node
    if named is None and _join(row, seen) == "node":
        found["node-exporter"] = {"instance": "node"}
    return found


def _nodes(row: Profile, seen: Appearance) -> NodeJoin | None:
    way = _join(row, seen)
    if way == "node":  # a label of another name, not another way
        return None
    return None if way == row.nodes else way


def _join(row: Profile, seen: Appearance) -> NodeJoin | Literal["node"]:
    """Return how node-exporter's series lead to a node: ``label``, the label ``node``, or a join; the row's own where it works."""
    if not seen.instances:
        return row.nodes
    named = row.namings.get("node-exporter", Naming()).node
    if named and seen.node_label:
        return row.nodes
    if row.nodes in seen.joins:
        return row.nodes
    if seen.instance == NAME:
        return "label"
    if seen.node_label:
        return "node"
    return next(iter(seen.joins), row.nodes)


def _missing(seen: Appearance) -> Iterator[str]:
    """Yield what templates need and no setting gives them."""
    if "otel" in seen.series and "cadvisor" not in seen.series:
        for label in ("k8s_namespace_name", "k8s_pod_name"):
            if not seen.has("otel", label):
                yield (
                    f"{SIGNS['otel']} has no label {label}: the collector does not turn resource attributes into labels"
                    " (resource_to_telemetry_conversion, or promote_resource_attributes of Prometheus)"
                )
        return
    if seen.otel and not _is_measured(seen):
        yield (
            f"OpenTelemetry's metrics are there as {listed(seen.otel)}, not as {SIGNS['otel']}: let the collector add units and"
            " suffixes (add_metric_suffixes, or translation_strategy = UnderscoreEscapingWithSuffixes)"
        )
    for exporter, what in _WHAT.items():
        if exporter not in seen.series:
            instead = ", but for what recording rules keep" if exporter in seen.rules else ""
            yield f"no series of {exporter} ({SIGNS[exporter]}) in the last {seen.span}: {what} find nothing{instead}"
    for label in ("namespace", "pod", "container"):
        if "cadvisor" in seen.series and not any(seen.has("cadvisor", each) for each in (label, _OLD.get(label, ""))):
            yield f"{SIGNS['cadvisor']} has no label {label}, by which containers are told apart"
    if seen.instance == ADDRESS and not seen.joins and not seen.node_label:
        yield (
            f"instance of node-exporter is an address ({seen.instances[0]}), and neither a label node nor node_uname_info nor"
            " kube_node_info leads to the name of a node"
        )


def _notes(seen: Appearance) -> Iterator[str]:
    if seen.scrapes > 1:
        yield f"a container's memory is there {seen.scrapes} times: two jobs, targets or replicas scrape the same"
    if seen.state_metrics > 1:
        yield f"{seen.state_metrics} kube-state-metrics are scraped: each limit is there {seen.state_metrics} times"
    for exporter, series in seen.series.items():
        if len(series.jobs) > 1:
            yield f"{len(series.jobs)} jobs have {SIGNS[exporter]}: {listed(series.jobs)}"
