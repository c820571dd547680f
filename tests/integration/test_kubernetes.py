"""The live source's contract on a quiet network, against the fake API server and, where there is one, a real one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from drumlin.exporters.kubernetes.informer import KubernetesSource, Timing
from drumlin.exporters.kubernetes.kinds import OPTIONAL
from drumlin.exporters.protocol import Gone, Synced, Upserted
from drumlin.kg.errors import InvalidSettings
from tests.fake_apiserver.clusters import Cluster, fake_cluster, real_cluster, why_no_real_cluster
from tests.fake_apiserver.following import CONFIG_MAPS, DEPLOYMENTS, FAST, NODES, PODS, Following

NOON = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)
REAL = Timing(backoff=(0.05, 1.0))


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real API server for all tests of this file."""
    if reason := why_no_real_cluster():
        pytest.skip(reason)
    with real_cluster(tmp_path_factory.mktemp("apiserver")) as cluster:
        yield cluster


@pytest.fixture(params=["fake", "real"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """An API server without objects of the kinds used here: the fake always, a real one where there is one."""
    if request.param == "fake":
        with fake_cluster() as fake:
            yield fake
        return
    real: Cluster = request.getfixturevalue("real")
    yield real
    for kind in (PODS, NODES, DEPLOYMENTS, CONFIG_MAPS):
        assert real.ask("DELETE", real.path(kind)).status == 200


def following(cluster: Cluster, *kinds: object, **options: object) -> Following:
    """Follow ``kinds`` of ``cluster``."""
    timing = FAST if cluster.fake else REAL
    return Following(KubernetesSource(cluster.access(), kinds, "prod", timing=timing, clock=lambda: NOON, **options))


def test_a_source_is_named_after_its_cluster(cluster: Cluster) -> None:
    """The owner recorded for graphs tells the source and the cluster."""
    assert KubernetesSource(cluster.access(), [PODS], "prod").name == "kubernetes:prod"


def test_what_exists_comes_first_and_then_one_synced(cluster: Cluster) -> None:
    """All objects that exist are told before ``Synced``, which comes once per kind, empty kinds included."""
    for name in ("a", "b", "c"):
        cluster.create(PODS, name)
    with following(cluster, PODS, NODES) as seen:
        seen.until_synced(PODS, NODES)
        pods = [each for each in seen.changes if each.kind is PODS]

    assert [type(each) for each in pods] == [Upserted, Upserted, Upserted, Synced]
    assert pods[-1] == Synced(PODS, NOON)
    assert seen.names() == {"a", "b", "c"}


def test_creation_change_and_deletion_are_told_in_order(cluster: Cluster) -> None:
    """An object's life is told as it happens, and its end carries the last form and the clock's time."""
    with following(cluster, PODS) as seen:
        seen.until_synced(PODS)
        cluster.create(PODS, "web")
        seen.until(lambda: seen.count("Upserted web") == 1)
        cluster.patch(PODS, "web", {"status": {"phase": "Running"}}, "/status")
        seen.until(lambda: seen.count("Upserted web") == 2)
        cluster.delete(PODS, "web")
        seen.until(lambda: bool(seen.gone()))

    (gone,) = seen.gone()
    assert (gone.observed, gone.estimated) == (NOON, False)
    assert gone.manifest.status.phase == "Running"
    assert seen.names() == set()


def test_same_name_with_a_new_uid_is_an_end_and_a_beginning(cluster: Cluster) -> None:
    """Rule 6, cilium#30409: an object that is deleted and made again under its name is two objects."""
    first = cluster.create(PODS, "db-0")
    with following(cluster, PODS) as seen:
        seen.until_synced(PODS)
        cluster.delete(PODS, "db-0")
        second = cluster.create(PODS, "db-0")
        seen.until(lambda: seen.uid("db-0") == second["metadata"]["uid"])

    assert [each.manifest.metadata.uid for each in seen.gone()] == [first["metadata"]["uid"]]
    assert second["metadata"]["uid"] != first["metadata"]["uid"]


def test_an_object_that_leaves_the_selection_is_gone(cluster: Cluster) -> None:
    """With a label selector, losing the label ends an object and getting it begins one."""
    cluster.create(CONFIG_MAPS, "in", {"team": "shop"})
    cluster.create(CONFIG_MAPS, "out", {"team": "ops"})
    with following(cluster, CONFIG_MAPS, label_selector="team=shop") as seen:
        seen.until_synced(CONFIG_MAPS)
        assert seen.names(CONFIG_MAPS) == {"in"}
        cluster.patch(CONFIG_MAPS, "in", {"metadata": {"labels": {"team": "ops"}}})
        cluster.patch(CONFIG_MAPS, "out", {"metadata": {"labels": {"team": "shop"}}})
        seen.until(lambda: seen.names(CONFIG_MAPS) == {"out"})


def test_only_warnings_are_asked_for_whatever_the_labels() -> None:
    """Nine of ten events are normal and never leave the server; events bear no labels, those that are followed may."""
    (events,) = OPTIONAL["events"]
    with fake_cluster() as cluster:
        for name, kind in (("a", "Warning"), ("b", "Normal")):
            cluster.create(events, name, type=kind, reason="Failed")
        with following(cluster, events, PODS, label_selector="team=shop") as seen:
            seen.until_synced(events, PODS)
            cluster.create(events, "c", type="Normal", reason="Pulled")
            cluster.create(events, "d", type="Warning", reason="BackOff")
            seen.until(lambda: seen.names(events) == {"a", "d"})


def test_one_namespace_alone_is_followed_when_asked(cluster: Cluster) -> None:
    """Namespaced mode reads namespaced kinds of that namespace only, and cluster-scoped kinds as ever."""
    cluster.create(DEPLOYMENTS, "web")
    cluster.create(NODES, "node-0")
    with following(cluster, DEPLOYMENTS, NODES, namespace="kube-system") as seen:
        seen.until_synced(DEPLOYMENTS, NODES)

    assert (seen.names(DEPLOYMENTS), seen.names(NODES)) == (set(), {"node-0"})


def test_a_namespace_that_is_none_is_refused(cluster: Cluster) -> None:
    """A namespace becomes part of a path, so what is not a name is refused before any request."""
    with pytest.raises(InvalidSettings, match="not the name of a namespace"):
        KubernetesSource(cluster.access(), [PODS], "prod", namespace="../kube-system")


def test_a_restart_tells_everything_again(cluster: Cluster) -> None:
    """A source has no memory: each ``changes`` begins with what exists and ``Synced``."""
    cluster.create(PODS, "web")
    source = KubernetesSource(cluster.access(), [PODS], "prod", timing=FAST if cluster.fake else REAL)
    for _ in range(2):
        with Following(source) as seen:
            seen.until_synced(PODS)
        assert seen.told() == ["Upserted web", "Synced Pod"]


def test_status_tells_objects_events_and_bookmarks(cluster: Cluster) -> None:
    """The status of a kind is a snapshot: counts and ages in seconds."""
    source = KubernetesSource(cluster.access(), [PODS], "prod", timing=FAST if cluster.fake else REAL)
    assert source.status() == ()
    cluster.create(PODS, "web")
    with Following(source) as seen:
        seen.until_synced(PODS)
        status = seen.status()

    assert (status.synced, status.objects, status.relists, status.rejected) == (True, 1, 0, 0)
    assert status.event_age is not None
    assert 0 <= status.event_age < 5


def test_a_stop_while_a_quiet_watch_is_read_takes_effect_at_once(cluster: Cluster) -> None:
    """A blocked read does not hold up the end of the process."""
    with following(cluster, PODS, NODES, DEPLOYMENTS) as seen:
        seen.until_synced(PODS, NODES, DEPLOYMENTS)
        time.sleep(0.3)

        assert seen.stop() < 0.6
        assert not [each.name for each in threading.enumerate() if each.name.startswith("reflector-")]


def test_an_end_is_told_only_for_what_was_known(cluster: Cluster) -> None:
    """Objects that came and went before the list are never mentioned."""
    cluster.create(PODS, "brief")
    cluster.delete(PODS, "brief")
    with following(cluster, PODS) as seen:
        seen.until_synced(PODS)
        cluster.create(PODS, "last")
        seen.until(lambda: seen.count("Upserted last") == 1)

    assert not [each for each in seen.changes if isinstance(each, Gone)]


@pytest.mark.parametrize(
    ("query", "status", "media_type"),
    [
        ("/api/v1/pods?watch=1&sendInitialEvents=true&timeoutSeconds=1", 422, "application/json"),
        ("/api/v1/pods?watch=1&resourceVersion=abc&timeoutSeconds=1", 500, "application/json"),
        ("/apis/kuscia.secretflow/v1alpha1/kusciajobs", 404, "text/plain; charset=utf-8"),
        ("/api/v1/namespaces/default/pods/none", 404, "application/json"),
        ("/api/v1/pods?limit=1&continue=broken", 400, "application/json"),
    ],
)
def test_refusals_have_the_status_of_the_real_server(
    cluster: Cluster, query: str, status: int, media_type: str
) -> None:
    """The fake refuses what the real server refuses, in the same form."""
    answer = cluster.ask("GET", query)

    assert (answer.status, answer.media_type) == (status, media_type)


def test_pages_are_bound_to_the_list_they_began_with(cluster: Cluster) -> None:
    """What is created between two pages is in neither; the pages together are the list at one version."""
    for name in ("a", "b", "c"):
        cluster.create(CONFIG_MAPS, name)
    path = cluster.path(CONFIG_MAPS)
    first = cluster.ask("GET", f"{path}?limit=2").body
    cluster.create(CONFIG_MAPS, "bb")
    second = cluster.ask("GET", f"{path}?limit=2&continue={first['metadata']['continue']}").body

    names = [each["metadata"]["name"] for each in first["items"] + second["items"]]
    assert [name for name in names if name != "kube-root-ca.crt"] == ["a", "b", "c"]
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
