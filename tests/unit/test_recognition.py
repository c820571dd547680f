"""What a server is taken for: by everything that it shows, never by what it lacks alone; and which lines are proposed."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg.telemetry.appearance import Appearance, Exported
from drumlin.kg.telemetry.proposing import bind, lines
from drumlin.kg.telemetry.recognition import recognise

CADVISOR = Exported(("kubelet",), frozenset({"job", "metrics_path", "node", "namespace", "pod", "container"}))
STATES = Exported(("kube-state-metrics",), frozenset({"job", "namespace", "pod"}))
NODES = Exported(("node-exporter",), frozenset({"job", "instance"}))
STACK = {"cadvisor": CADVISOR, "kube-state-metrics": STATES, "node-exporter": NODES}
K3S = {"k3s": "a kubelet is of K3s (v1.33.2+k3s1)"}


def _seen(series: dict[str, Exported] = STACK, **more: Any) -> Appearance:
    found = {"instances": ("10.0.0.1:9100",), "nodes": frozenset({"n-1"}), "joins": ("node_uname_info",), **more}
    return Appearance(series=series, **found)


def test_one_look_tells_a_profile_from_its_siblings() -> None:
    """Four installations share their jobs: addresses, names, a namespace and a kubelet's version tell them apart."""
    assert recognise(_seen()).guess == "kube-prometheus-stack"
    assert recognise(_seen(marks=K3S)).guess == "k3s"
    assert recognise(_seen(instances=("n-1",))).guess == "kube-prometheus"
    openshift = recognise(_seen(instances=("n-1",), marks={"openshift": "there is a namespace openshift-monitoring"}))
    assert (openshift.guess, openshift.certain) == ("openshift", True)


def test_without_node_exporter_two_profiles_fit() -> None:
    """The guess is not certain, and names its rival; what is missing is said with what finds nothing."""
    found = recognise(Appearance(series={"cadvisor": CADVISOR, "kube-state-metrics": STATES}))

    assert (found.guess, found.certain, found.rivals) == ("kube-prometheus-stack", False, ("kube-prometheus",))
    assert any("no series of node-exporter" in each and "all metrics of nodes" in each for each in found.missing)


def test_an_empty_server_is_like_nothing() -> None:
    """Nothing is guessed where there is nothing, and all that is missing is listed."""
    found = recognise(Appearance())

    assert (found.guess, found.certain, found.settings) == (None, False, {})
    assert len(found.missing) == 3


def test_what_is_lacking_speaks_for_nobody() -> None:
    """Series without metrics_path and node are many installations': without a job of its own there is no guess."""
    plain = Exported(("advisor",), frozenset({"job", "namespace", "pod", "container"}))
    found = recognise(_seen({**STACK, "cadvisor": plain}))

    assert found.guess is None
    assert found.settings["jobs"] == {"cadvisor": "advisor"}
    assert found.settings["labels"] == {"metrics_path": ""}
    assert "the job of container_cpu_usage_seconds_total is advisor" in found.against


def test_a_second_job_is_said() -> None:
    """Where two jobs scrape the same exporter the guess is not certain, and no job is proposed away."""
    twice = CADVISOR._replace(jobs=("cadvisor-again", "kubelet"))
    found = recognise(_seen({**STACK, "cadvisor": twice}, scrapes=2, state_metrics=2))

    assert (found.guess, found.certain) == ("kube-prometheus-stack", False)
    assert "jobs" not in found.settings
    assert len(found.notes) == 3
    assert any("2 times" in each for each in found.notes)


def test_jobs_that_none_of_the_profile_is_are_joined_into_a_pattern() -> None:
    """Several unknown jobs become one regular expression, each of them literally."""
    several = STATES._replace(jobs=("ksm.a", "ksm-b"))

    settings = recognise(_seen({**STACK, "kube-state-metrics": several})).settings
    assert settings["jobs"] == {"kube-state-metrics": r"=~ksm\.a|ksm-b"}
    assert recognise(_seen({**STACK, "kube-state-metrics": STATES._replace(jobs=())})).settings["jobs"] == {
        "kube-state-metrics": ""
    }


@pytest.mark.parametrize(
    ("more", "settings"),
    [
        ({"joins": ("kube_node_info",)}, {"nodes": "kube_node_info"}),
        ({"joins": ("node_uname_info", "kube_node_info")}, {}),
        ({"joins": (), "node_label": True}, {"labels": {"node-exporter": {"instance": "node"}}}),
    ],
)
def test_the_way_to_a_node_is_one_that_works(more: dict[str, Any], settings: dict[str, Any]) -> None:
    """The profile's own way is kept where it leads to a node; else another that does is proposed."""
    assert recognise(_seen(**more)).settings == {"profile": "kube-prometheus-stack", **settings}


def test_addresses_that_lead_nowhere_are_missing_something() -> None:
    """Neither a label nor a join: the report says that no setting mends it."""
    assert any("leads to the name of a node" in each for each in recognise(_seen(joins=())).missing)


def test_exported_labels_are_recognised_by_exporter() -> None:
    """What a target without honor_labels renames is renamed for that exporter alone."""
    states = STATES._replace(labels=STATES.labels | {"exported_namespace", "exported_pod"})
    found = recognise(_seen({**STACK, "kube-state-metrics": states}))

    exported = {"namespace": "exported_namespace", "pod": "exported_pod"}
    assert found.settings["labels"] == {"kube-state-metrics": exported}


def test_opentelemetry_needs_its_labels_and_its_suffixes() -> None:
    """Resource attributes that are no labels, and metrics without unit and suffix, are told with the collector's settings."""
    plain = recognise(Appearance(series={"otel": Exported(("otel",), frozenset({"job"}))}))
    assert (plain.guess, plain.certain) == ("otel-collector", True)
    assert any("resource_to_telemetry_conversion" in each for each in plain.missing)

    found = recognise(Appearance(otel=("k8s.pod.cpu.time",)))
    assert found.guess is None
    assert "k8s.pod.cpu.time" in found.missing[0]
    assert "add_metric_suffixes" in found.missing[0]


@pytest.mark.parametrize(
    ("clusters", "known", "settings"),
    [
        ({}, ["prod"], {"clusters": ["prod"]}),
        ({}, ["edge", "prod"], {}),
        ({"cluster": ("edge", "prod")}, ["edge", "prod"], {"matchers": {"cluster": "{cluster}"}}),
        ({"cluster": ("edge", "prod")}, [], {"matchers": {"cluster": "{cluster}"}}),
        ({"cluster": ("site",)}, ["prod"], {"clusters": ["prod"], "matchers": {"cluster": "site"}}),
        ({"cluster": ("prod",)}, ["edge", "prod"], {"clusters": ["prod"], "matchers": {"cluster": "{cluster}"}}),
        ({"cluster": ("a", "b")}, ["prod", "edge"], {}),
        ({"cluster": ("x",), "clusterName": ("edge", "prod")}, ["prod"], {"matchers": {"clusterName": "{cluster}"}}),
    ],
)
def test_a_binding_follows_from_values_and_known_clusters(
    clusters: dict[str, tuple[str, ...]], known: list[str], settings: dict[str, Any]
) -> None:
    """A label whose values are the names that are known fills itself; other values are fixed, or a note says what to write."""
    found = bind(Appearance(clusters=clusters), known)

    assert found.settings == settings
    assert settings or found.notes


def test_google_needs_more_than_the_clusters_name() -> None:
    """Clusters of two projects may have one name: a note says so. Series without the label are the server's own."""
    labels = {"cluster": ("edge", "prod"), "project_id": ("a", "b"), "location": ("x",)}
    found = bind(Appearance(clusters=labels, unclustered=True), ["prod"])

    assert any("project_id has several values (a, b)" in each for each in found.notes)
    assert any('cluster = ""' in each for each in found.notes)


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)


@given(name=TEXT, listed=st.lists(TEXT, max_size=3))
def test_what_is_proposed_can_be_read_back(name: str, listed: list[str]) -> None:
    """Whatever a server calls its jobs and clusters, the lines are TOML and say that."""
    settings = {"profile": "aks", "recorded": True, "clusters": listed, "jobs": {"kubelet": name}}

    assert tomllib.loads("\n".join(lines(settings))) == settings
