"""The live source against a misbehaving API server: the rules of a reflector and the bug reports it must survive."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from exporters.kubernetes.informer import KubernetesSource, Timing
from exporters.protocol import Rejected, Upserted
from kg.errors import SourceUnavailable
from tests.fake_apiserver import FakeApiServer, Fault, Resource
from tests.fake_apiserver.clusters import Cluster, fake_cluster
from tests.fake_apiserver.faults import Action
from tests.fake_apiserver.following import DEPLOYMENTS, DOMAINS, FAST, NODES, PODS, REPLICA_SETS, Following

CRD = Resource("kuscia.secretflow", "v1alpha1", "domains", "Domain", namespaced=False, custom=True)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A fake API server."""
    with fake_cluster() as fake:
        yield fake


@pytest.fixture
def fake(cluster: Cluster) -> FakeApiServer:
    """The same, by its switches."""
    assert cluster.fake is not None
    return cluster.fake


def source(cluster: Cluster, *kinds: object, **options: object) -> KubernetesSource:
    """Return a source with short waits."""
    return KubernetesSource(cluster.access(), kinds or (PODS,), "prod", **({"timing": FAST} | options))


def following(cluster: Cluster, *kinds: object, **options: object) -> Following:
    """Follow ``kinds`` with short waits."""
    return Following(source(cluster, *kinds, **options))


def watches(fake: FakeApiServer) -> int:
    """Return how many watches were asked for."""
    return sum(each.watch for each in fake.requests)


def lists(fake: FakeApiServer) -> int:
    """Return how often the whole was asked for, as a watch-list or as a first page."""
    return sum(
        "sendInitialEvents" in each.params or (not each.watch and "continue" not in each.params)
        for each in fake.requests
        if each.method == "GET"
    )


# -- the list ---------------------------------------------------------------------------------------------------------------


def test_without_the_watch_list_gate_the_list_comes_in_pages(cluster: Cluster, fake: FakeApiServer) -> None:
    """Rule 1, kapp-controller#1845: a server that answers 422 to watch-list parameters is listed page by page, and watched."""
    fake.watch_list = False
    for number in range(7):
        cluster.create(PODS, f"p{number}")
    with following(cluster, page_size=3) as seen:
        seen.until_synced(PODS)
        cluster.create(PODS, "late")
        seen.until(lambda: "late" in seen.names())

    assert seen.told() == [*(f"Upserted p{number}" for number in range(7)), "Synced Pod", "Upserted late"]
    assert [each.params["limit"] for each in fake.requests if "limit" in each.params] == ["3", "3", "3"]


def test_an_old_etcds_500_inside_the_stream_falls_back_to_pages(cluster: Cluster, fake: FakeApiServer) -> None:
    """An etcd without RequestWatchProgress fails watch-lists with ERROR 500 inside a 200; pages work there."""
    cluster.create(PODS, "web")
    fake.faults.inject(Fault("error", on="watch", status=500))
    with following(cluster) as seen:
        seen.until_synced(PODS)

    assert seen.told() == ["Upserted web", "Synced Pod"]
    assert any("limit" in each.params for each in fake.requests)


@pytest.mark.parametrize("action", ["no-initial-end", "empty"])
def test_a_watch_list_without_its_end_falls_back_to_pages(cluster: Cluster, fake: FakeApiServer, action: str) -> None:
    """A proxy or an old server that ignores ``sendInitialEvents`` never says where the list ends."""
    cluster.create(PODS, "web")
    fake.faults.inject(Fault(action, on="watch"))
    with following(cluster, timing=replace(FAST, watch=(1, 1))) as seen:
        seen.until_synced(PODS)

    assert seen.told() == ["Upserted web", "Synced Pod"]


def test_pages_are_handed_on_one_by_one(cluster: Cluster, fake: FakeApiServer) -> None:
    """kube-state-metrics#2302, kr8s#726: the first page is consumed while the second has not come, so memory is a page, not a list."""
    fake.watch_list = False
    for number in range(4):
        cluster.create(PODS, f"p{number}")
    fake.faults.inject(Fault("slow", on="list"))
    fake.faults.inject(Fault("silence", on="list"))
    with following(cluster, page_size=2) as seen:
        seen.until(lambda: seen.names() == {"p0", "p1"})
        assert "Synced Pod" not in seen.told()
        seen.until_synced(PODS)

    assert seen.names() == {"p0", "p1", "p2", "p3"}


def test_an_expired_continue_token_restarts_the_list(cluster: Cluster, fake: FakeApiServer) -> None:
    """Rule 5, 410 on ``continue``: the token in its body would give an inconsistent rest, so the list begins anew."""
    fake.watch_list = False
    for number in range(6):
        cluster.create(PODS, f"p{number}")
    listing = source(cluster, page_size=2, capacity=1)
    with Following(listing, pause=0.05) as seen:
        seen.until(lambda: bool(seen.names()))
        cluster.delete(PODS, "p5")
        fake.state.compact()
        seen.until_synced(PODS)

    assert seen.names() == {f"p{number}" for number in range(5)}
    assert seen.status().gone410 == 1
    first = [each for each in fake.requests if "limit" in each.params and "continue" not in each.params]
    assert len(first) == 2


def test_a_lost_continue_token_does_not_end_the_list(cluster: Cluster, fake: FakeApiServer) -> None:
    """kube-state-metrics#3065: a page that says more remain but names no token is not the last."""
    fake.watch_list = False
    for number in range(5):
        cluster.create(PODS, f"p{number}")
    fake.faults.inject(Fault("lose-continue", on="list"))
    with following(cluster, page_size=2) as seen:
        seen.until_synced(PODS)

    assert seen.names() == {f"p{number}" for number in range(5)}


@pytest.mark.parametrize("action", ["truncate", "drop", "silence", "empty"])
def test_half_a_page_is_no_page(cluster: Cluster, fake: FakeApiServer, action: str) -> None:
    """A page that is cut short is asked for again; nothing of it is believed."""
    fake.watch_list = False
    cluster.create(PODS, "web")
    fake.faults.inject(Fault(action, on="list"))
    with following(cluster) as seen:
        seen.until_synced(PODS)

    assert seen.told() == ["Upserted web", "Synced Pod"]


def test_thousands_of_objects_are_listed_in_seconds(cluster: Cluster, fake: FakeApiServer) -> None:
    """kubernetes-client/python#2284, #1867, #1921: 3,661 ReplicaSets took 30 s of model building there."""
    for number in range(3661):
        fake.state.create(fake.state.named("replicasets"), "default", {"metadata": {"name": f"rs-{number}"}})
    fake.watch_list = False
    with following(cluster, REPLICA_SETS) as seen:
        seen.until_synced(REPLICA_SETS)

    assert len(seen.known(REPLICA_SETS)) == 3661


# -- the watch's end ----------------------------------------------------------------------------------------------------------


def test_a_watch_that_ends_is_opened_again_where_it_ended(cluster: Cluster, fake: FakeApiServer) -> None:
    """kubernetes-client/python#728, #124, kubernetes_asyncio#135, #325: the server's timeout is no end, and nothing is listed again."""
    with following(cluster, timing=replace(FAST, watch=(1, 1))) as seen:
        seen.until_synced(PODS)
        seen.until(lambda: watches(fake) >= 3)
        cluster.create(PODS, "late")
        seen.until(lambda: "late" in seen.names())

    assert lists(fake) == 1
    assert seen.status().relists == 0


@pytest.mark.parametrize("action", ["drop", "truncate", "garble"])
def test_a_broken_stream_resumes_without_loss_or_half_objects(
    cluster: Cluster, fake: FakeApiServer, action: str
) -> None:
    """A dropped connection, half a line, a line that is not JSON: the watch resumes behind the last whole event."""
    with following(cluster) as seen:
        seen.until_synced(PODS)
        fake.faults.inject(Fault(action, on="watch", after=1))
        restart(fake)
        for name in ("a", "b", "c"):
            cluster.create(PODS, name)
        seen.until(lambda: seen.names() == {"a", "b", "c"})

    assert seen.told() == ["Synced Pod", "Upserted a", "Upserted b", "Upserted c"]
    assert lists(fake) == 1


def restart(fake: FakeApiServer, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Let the server go away, let things happen, and let it come back."""
    fake.stop()
    meanwhile()
    fake.start()


def test_the_watch_resumes_from_bookmarks_on_a_quiet_kind(cluster: Cluster, fake: FakeApiServer) -> None:
    """Rule 3, kubernetes-client/python#2223: the last event of a quiet kind is long compacted; its bookmarks are not."""
    cluster.create(PODS, "web")
    with following(cluster) as seen:
        seen.until_synced(PODS)
        for number in range(20):
            cluster.create(NODES, f"n{number}")
        now = fake.state.version
        seen.until(lambda: (seen.status().bookmark_age or 9) < 0.05)
        time.sleep(0.3)
        fake.state.compact()
        restart(fake)
        cluster.create(PODS, "late")
        seen.until(lambda: "late" in seen.names())

    assert seen.status().gone410 == 0
    assert fake.requests[-2].params.get("resourceVersion", fake.requests[-1].params.get("resourceVersion")) == str(now)


@pytest.mark.parametrize("watch_list", [True, False])
def test_410_inside_the_stream_lists_once_and_finds_what_vanished(
    cluster: Cluster, fake: FakeApiServer, *, watch_list: bool
) -> None:
    """Rule 4, airflow#21087, kr8s#476, skywalking#8565, KSM#694, argo-cd#4053: no stuck watcher, no loop, no ghost, no Status as object."""
    fake.watch_list = watch_list
    for name in ("kept", "changed", "lost"):
        cluster.create(PODS, name)
    with following(cluster) as seen:
        seen.until_synced(PODS)

        def meanwhile() -> None:
            pods = fake.state.named("pods")
            fake.state.remove(pods, "default", "lost")
            fake.state.patch(pods, "default", "changed", {"status": {"phase": "Running"}})
            fake.state.create(pods, "default", {"metadata": {"name": "new"}})
            fake.state.compact()

        restart(fake, meanwhile)
        seen.until(lambda: seen.names() == {"kept", "changed", "new"})
        time.sleep(0.2)

    assert sorted(seen.told()[4:]) == ["Gone lost", "Upserted changed", "Upserted new"]
    assert [each.estimated for each in seen.gone()] == [True]
    assert (seen.status().relists, seen.status().gone410) == (1, 1)


def test_a_new_uid_found_at_a_relist_ends_the_old_one_first(cluster: Cluster, fake: FakeApiServer) -> None:
    """volcano#5993: recreated during an outage, the old object is told gone (estimated) before the new one."""
    cluster.create(PODS, "db-0")
    with following(cluster) as seen:
        seen.until_synced(PODS)

        def meanwhile() -> None:
            pods = fake.state.named("pods")
            fake.state.remove(pods, "default", "db-0")
            fake.state.create(pods, "default", {"metadata": {"name": "db-0"}})
            fake.state.compact()

        restart(fake, meanwhile)
        seen.until(lambda: seen.count("Upserted db-0") == 2)

    assert seen.told() == ["Upserted db-0", "Synced Pod", "Gone db-0", "Upserted db-0"]
    assert seen.gone()[0].estimated


def test_a_late_deletion_of_an_old_uid_touches_nothing(cluster: Cluster, fake: FakeApiServer) -> None:
    """volcano#5993: DELETED of the former object after ADDED of its namesake must not remove the namesake."""
    old = cluster.create(PODS, "db-0")
    with following(cluster) as seen:
        seen.until_synced(PODS)
        cluster.delete(PODS, "db-0")
        cluster.create(PODS, "db-0")
        late = old | {"metadata": old["metadata"] | {"resourceVersion": str(fake.state.version + 1)}}
        fake.state.record("DELETED", fake.state.named("pods"), late)
        cluster.create(PODS, "last")
        seen.until(lambda: "last" in seen.names())

    assert seen.names() == {"db-0", "last"}
    assert len(seen.gone()) == 1


def test_repeated_events_change_nothing(cluster: Cluster, fake: FakeApiServer) -> None:
    """An event that comes twice is told once."""
    fake.duplicates = True
    with following(cluster) as seen:
        seen.until_synced(PODS)
        cluster.create(PODS, "a")
        cluster.delete(PODS, "a")
        cluster.create(PODS, "b")
        seen.until(lambda: "b" in seen.names())

    assert seen.told() == ["Synced Pod", "Upserted a", "Gone a", "Upserted b"]


# -- silence ----------------------------------------------------------------------------------------------------------------


def test_a_silently_dead_connection_is_replaced(cluster: Cluster, fake: FakeApiServer) -> None:
    """Rule 2, kopf#585, #698, #957: behind a load balancer a stream can die without a word; the watchdog opens another."""
    fake.faults.inject(Fault("silence", on="watch", after=1))
    with following(cluster) as seen:
        seen.until_synced(PODS)
        cluster.create(PODS, "unheard")
        seen.until(lambda: "unheard" in seen.names(), within=3)

    assert lists(fake) == 1


def test_a_watch_asks_for_bookmarks_and_a_random_end(cluster: Cluster, fake: FakeApiServer) -> None:
    """Rule 2: each watch asks for bookmarks and an end between 240 and 300 s of its own, and 90 to 120 s of silence are its death."""
    with Following(KubernetesSource(cluster.access(), (PODS, DEPLOYMENTS), "prod")) as seen:
        seen.until_synced(PODS)
        seen.until_synced(DEPLOYMENTS)
        asked = [each.params for each in fake.requests if each.watch]

    assert asked
    assert all(each["allowWatchBookmarks"] == "true" and 240 <= int(each["timeoutSeconds"]) <= 300 for each in asked)
    assert Timing().watch[0] < Timing().watch[1]
    assert Timing().silence == (90.0, 120.0)


def test_a_line_that_drips_for_ever_counts_as_silence(cluster: Cluster, fake: FakeApiServer) -> None:
    """Bytes alone are no sign of life: a line must end within the watchdog's time."""
    cluster.create(PODS, "big", annotations="x" * 100_000)  # 1,600 pieces of a millisecond or more
    fake.faults.inject(Fault("slow", on="watch"))
    with following(cluster, timing=replace(FAST, silence=(0.2, 0.2))) as seen:
        seen.until_synced(PODS)

    assert seen.names() == {"big"}
    assert any("limit" in each.params for each in fake.requests)


def test_an_empty_200_is_no_busy_loop(cluster: Cluster, fake: FakeApiServer) -> None:
    """kubernetes#104171: 200 with an empty body, at once and again, is met with growing waits."""
    with following(cluster, timing=replace(FAST, backoff=(0.1, 1.0))) as seen:
        seen.until_synced(PODS)
        fake.faults.inject(Fault("empty", times=1000))
        before = len(fake.requests)
        restart(fake)
        time.sleep(1.5)
        assert 2 <= len(fake.requests) - before <= 12
        fake.faults.clear()
        cluster.create(PODS, "late")
        seen.until(lambda: "late" in seen.names())


def test_a_stream_that_is_cut_after_each_event_is_no_busy_loop(cluster: Cluster, fake: FakeApiServer) -> None:
    """A proxy that lets one event through and hangs up does not make a request storm."""
    for number in range(200):
        fake.state.create(fake.state.named("pods"), "default", {"metadata": {"name": f"p{number}"}})
    fake.faults.inject(Fault("truncate", on="watch", after=1, times=1000))
    with following(cluster, timing=replace(FAST, backoff=(0.1, 1.0))):
        time.sleep(1.5)

    assert len(fake.requests) <= 12


def test_a_version_from_the_future_is_given_up(cluster: Cluster, fake: FakeApiServer) -> None:
    """After a restore of etcd a watch at the old, higher version is 200 and silence; a relist tells the truth."""
    for number in range(30):
        cluster.create(PODS, f"p{number}")
    with following(cluster, timing=replace(FAST, silence=(0.2, 0.3))) as seen:
        fake.bookmark_every = 0.1
        seen.until_synced(PODS)

        def restored() -> None:
            fake.state = FakeApiServer(seed=1).state
            fake.state.create(fake.state.named("pods"), "default", {"metadata": {"name": "restored"}})

        restart(fake, restored)
        seen.until(lambda: seen.names() == {"restored"})

    assert {each.estimated for each in seen.gone()} == {True}


def test_a_quiet_kind_without_bookmarks_is_not_listed_again_and_again(cluster: Cluster, fake: FakeApiServer) -> None:
    """A server that sends no bookmarks looks silent; each suspicion doubles the patience before the next relist."""
    fake.bookmark_every = 1000
    with following(cluster, timing=replace(FAST, silence=(0.05, 0.06))) as seen:
        seen.until_synced(PODS)
        seen.until(lambda: watches(fake) >= 24)

    assert lists(fake) <= 8  # twelve, if every second silent watch were taken for a lost version


# -- refusals ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_refusal_is_waited_out(cluster: Cluster, fake: FakeApiServer, status: int) -> None:
    """An overloaded or starting server is asked again, with growing waits, until it answers."""
    cluster.create(PODS, "web")
    fake.faults.inject(Fault("refuse", status=status, times=4))
    with following(cluster) as seen:
        seen.until_synced(PODS)

    assert seen.names() == {"web"}


@pytest.mark.parametrize("inside", [False, True])
def test_retry_after_is_honoured(cluster: Cluster, fake: FakeApiServer, *, inside: bool) -> None:
    """A server that names its own wait, in the header or in the Status of an ERROR event, gets it."""
    fake.faults.inject(Fault("error" if inside else "refuse", status=429, retry_after=1, on="watch"))
    with following(cluster) as seen:
        seen.until_synced(PODS)
        times = [each.at for each in fake.requests if each.watch]

    assert times[1] - times[0] >= 0.95


def test_a_retry_after_without_measure_is_cut(
    cluster: Cluster, fake: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answer cannot put a kind to sleep for a day."""
    monkeypatch.setattr("exporters.kubernetes.reflector._LONGEST_ASKED", 0.1)
    fake.faults.inject(Fault("refuse", status=503, retry_after=86_400))
    with following(cluster) as seen:
        seen.until_synced(PODS)


def test_an_overloaded_server_is_not_asked_for_everything(cluster: Cluster, fake: FakeApiServer) -> None:
    """However often 429 and 503 come, the watch is resumed; a relist would only add to the load."""
    with following(cluster) as seen:
        seen.until_synced(PODS)
        fake.faults.inject(Fault("refuse", status=429, times=5))
        fake.faults.inject(Fault("refuse", status=503, times=5))
        restart(fake)
        cluster.create(PODS, "late")
        seen.until(lambda: "late" in seen.names())

    assert seen.status().relists == 0


def test_an_error_event_of_another_code_keeps_the_version(cluster: Cluster, fake: FakeApiServer) -> None:
    """ERROR 500 in a running watch is a wait and a resumption, not a relist."""
    with following(cluster) as seen:
        seen.until_synced(PODS)
        fake.faults.inject(Fault("error", on="watch", status=500))
        restart(fake)
        cluster.create(PODS, "late")
        seen.until(lambda: "late" in seen.names())

    assert seen.status().relists == 0


def test_a_version_that_is_refused_again_and_again_is_given_up(cluster: Cluster, fake: FakeApiServer) -> None:
    """client-java#2151: after a control-plane upgrade no kind stays dead; the fifth refusal makes it list anew."""
    with following(cluster) as seen:
        seen.until_synced(PODS)
        fake.faults.inject(Fault("refuse", status=500, times=7))
        restart(fake)
        cluster.create(PODS, "late")
        seen.until(lambda: "late" in seen.names())

    assert seen.status().relists >= 1


def test_a_forbidden_kind_leaves_the_others_alone(cluster: Cluster, fake: FakeApiServer) -> None:
    """403 on one kind: no ``Synced`` for it, a status that says so, the others live, and it recovers when it is allowed."""
    cluster.create(PODS, "web")
    cluster.create(NODES, "node-0")
    fake.forbidden.add("nodes")
    with following(cluster, PODS, NODES) as seen:
        seen.until_synced(PODS)
        seen.until(lambda: seen.status(NODES).forbidden)
        assert not seen.status(NODES).synced
        cluster.create(PODS, "late")
        seen.until(lambda: "late" in seen.names())
        assert "Synced Node" not in seen.told()
        fake.forbidden.clear()
        seen.until_synced(NODES)
        assert not seen.status(NODES).forbidden

    assert seen.names(NODES) == {"node-0"}
    assert sum(each.plural == "nodes" for each in fake.requests) < 15


def test_a_kind_forbidden_while_it_is_watched_keeps_what_is_known(cluster: Cluster, fake: FakeApiServer) -> None:
    """A right that is taken away ends no object; when it is back, what happened meanwhile is found."""
    cluster.create(PODS, "web")
    with following(cluster) as seen:
        seen.until_synced(PODS)
        fake.forbidden.add("pods")
        restart(fake)
        seen.until(lambda: seen.status().forbidden)
        cluster.delete(PODS, "web")
        assert seen.names() == {"web"}
        fake.forbidden.clear()
        seen.until(lambda: seen.names() == set())


def test_a_kind_that_is_not_installed_is_found_when_it_comes(cluster: Cluster, fake: FakeApiServer) -> None:
    """404 text/plain is an absent CRD; it is looked for again."""
    with following(cluster, DOMAINS, PODS) as seen:
        seen.until_synced(PODS)
        seen.until(lambda: seen.status(DOMAINS).absent)
        fake.state.register(CRD)
        cluster.create(DOMAINS, "alice")
        seen.until_synced(DOMAINS)
        assert not seen.status(DOMAINS).absent

    assert seen.names(DOMAINS) == {"alice"}


def test_credentials_that_never_worked_end_the_source_with_a_hint(cluster: Cluster, fake: FakeApiServer) -> None:
    """A wrong token at the start is the operator's error: it is told at once, without the token."""
    fake.token = "another"
    with following(replace(cluster, token="secret-token")) as seen:
        seen.until(lambda: seen.error is not None)

    assert isinstance(seen.error, SourceUnavailable)
    assert "401" in str(seen.error)
    assert seen.error.hint
    assert "secret-token" not in f"{seen.error} {seen.error.hint} {seen.error.detail}"


def test_credentials_that_worked_before_are_waited_for(cluster: Cluster, fake: FakeApiServer) -> None:
    """kubernetes-client/python#1768: a spell of 401 in a running watch is a wait, not an end."""
    with following(cluster) as seen:
        seen.until_synced(PODS)
        fake.faults.inject(Fault("refuse", status=401, times=6))
        restart(fake)
        cluster.create(PODS, "late")
        seen.until(lambda: "late" in seen.names())


def test_credentials_of_a_kind_that_waits_are_no_reason_to_end(cluster: Cluster, fake: FakeApiServer) -> None:
    """A spell of 401 while a kind is not installed ends nothing, though that kind never was synced."""
    with following(cluster, DOMAINS) as seen:
        seen.until(lambda: seen.status(DOMAINS).absent)
        fake.faults.inject(Fault("refuse", status=401, times=4))
        fake.state.register(CRD)
        seen.until_synced(DOMAINS)


def test_every_kind_comes_back_after_an_outage(cluster: Cluster, fake: FakeApiServer) -> None:
    """client-java#2151, KSM#694: after the control plane was away, each kind goes on, without a relist where none is needed."""
    with following(cluster, PODS, NODES, DEPLOYMENTS) as seen:
        seen.until_synced(PODS, NODES, DEPLOYMENTS)
        restart(fake, lambda: time.sleep(0.4))
        cluster.create(PODS, "a")
        cluster.create(NODES, "b")
        cluster.create(DEPLOYMENTS, "c")
        seen.until(lambda: (seen.names(PODS), seen.names(NODES), seen.names(DEPLOYMENTS)) == ({"a"}, {"b"}, {"c"}))

    assert lists(fake) == 3


# -- objects ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("watch_list", [True, False])
def test_an_object_that_cannot_be_read_is_reported_and_the_rest_is_read(
    cluster: Cluster, fake: FakeApiServer, *, watch_list: bool
) -> None:
    """One misfit costs itself only: it is named by path and uid, its values never."""
    fake.watch_list = watch_list
    cluster.create(DEPLOYMENTS, "a")
    broken = fake.state.create(
        fake.state.named("deployments"), "default", {"metadata": {"name": "b"}, "spec": {"replicas": "canary"}}
    )
    cluster.create(DEPLOYMENTS, "c")
    with following(cluster, DEPLOYMENTS) as seen:
        seen.until_synced(DEPLOYMENTS)
        (rejected,) = [each for each in seen.changes if isinstance(each, Rejected)]
        assert seen.status(DEPLOYMENTS).rejected == 1

    assert seen.names(DEPLOYMENTS) == {"a", "c"}
    assert (rejected.kind, rejected.namespace, rejected.name) == (DEPLOYMENTS, "default", "b")
    assert rejected.where == "/apis/apps/v1/namespaces/default/deployments/b"
    assert rejected.reason == f"Expected `int`, got `str` - at `$.spec.replicas` (uid {broken['metadata']['uid']})"


def test_an_object_that_becomes_unreadable_stays_known_until_it_is_deleted(
    cluster: Cluster, fake: FakeApiServer
) -> None:
    """A misfit in the watch ends nothing; its deletion tells the last form that could be read."""
    cluster.create(DEPLOYMENTS, "web")
    with following(cluster, DEPLOYMENTS) as seen:
        seen.until_synced(DEPLOYMENTS)
        cluster.patch(DEPLOYMENTS, "web", {"spec": {"replicas": "canary"}})
        seen.until(lambda: seen.status(DEPLOYMENTS).rejected == 1)
        assert seen.names(DEPLOYMENTS) == {"web"}
        cluster.delete(DEPLOYMENTS, "web")
        seen.until(lambda: bool(seen.gone()))

    assert seen.gone()[0].manifest.spec.replicas == 1


def test_an_object_that_became_unreadable_unseen_is_no_ghost_and_not_gone(
    cluster: Cluster, fake: FakeApiServer
) -> None:
    """Found unreadable at a relist, an object that is known still exists."""
    cluster.create(DEPLOYMENTS, "web")
    with following(cluster, DEPLOYMENTS) as seen:
        seen.until_synced(DEPLOYMENTS)

        def meanwhile() -> None:
            fake.state.patch(fake.state.named("deployments"), "default", "web", {"spec": {"replicas": "canary"}})
            fake.state.compact()

        restart(fake, meanwhile)
        cluster.create(DEPLOYMENTS, "late")
        seen.until(lambda: "late" in seen.names(DEPLOYMENTS) and seen.status(DEPLOYMENTS).relists == 1)
        time.sleep(0.1)

    assert not seen.gone()


def test_a_storm_of_events_on_few_objects_does_not_grow_the_queue(cluster: Cluster, fake: FakeApiServer) -> None:
    """Rule 8: waiting changes are bounded by objects: a slow consumer gets the newest form, and the watch goes on."""
    cluster.create(PODS, "web")
    pods = fake.state.named("pods")
    with Following(source(cluster, capacity=2), pause=0.05) as seen:
        seen.until_synced(PODS)
        for number in range(300):
            fake.state.patch(pods, "default", "web", {"status": {"phase": f"phase-{number}"}})
        seen.until(lambda: seen.known(PODS)["default", "web"].status.phase == "phase-299")

    assert seen.count("Upserted web") < 150


def test_a_consumer_that_stands_still_stops_the_watch_not_the_memory(cluster: Cluster, fake: FakeApiServer) -> None:
    """At the queue's capacity the reflector waits; and a stop frees it."""
    for number in range(50):
        cluster.create(PODS, f"p{number}")
    stop = threading.Event()
    waiting = source(cluster, capacity=5)
    changes = waiting.changes(stop)
    assert isinstance(next(changes), Upserted)
    time.sleep(0.3)
    assert waiting.status()[0].objects <= 2 * 5 + 1  # a lot that is being taken, the queue, and one that waits for room

    began = time.monotonic()
    stop.set()
    assert not list(changes)
    assert time.monotonic() - began < 0.6


@pytest.mark.parametrize(
    "fault", [Fault("silence", on="watch"), Fault("silence", on="watch", after=1), Fault("refuse", times=99)]
)
def test_a_stop_takes_effect_whatever_the_server_does(cluster: Cluster, fake: FakeApiServer, fault: Fault) -> None:
    """A read that hears nothing and a wait between attempts are both left at once."""
    fake.faults.inject(replace(fault))
    with following(cluster, timing=replace(FAST, silence=(30, 30), backoff=(20, 20))) as seen:
        time.sleep(0.3)

        assert seen.stop() < 0.6


# -- everything at once -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_after_any_sequence_of_faults_the_source_knows_what_exists(
    cluster: Cluster, fake: FakeApiServer, seed: int
) -> None:
    """Random writes among random faults: in the end no ghost, none missing, and every object in its last form."""
    dice = random.Random(seed)
    fake.bookmark_every = 0.05
    fake.watch_list = dice.random() < 0.7
    with following(
        cluster, PODS, timing=replace(FAST, watch=(1, 1), silence=(0.15, 0.2), page=0.2), page_size=3
    ) as seen:
        for _ in range(5):
            _write(fake, dice)
        seen.until_synced(PODS)
        for _ in range(40):
            dice.choice([_write, _write, _write, _misbehave])(fake, dice)
            time.sleep(dice.random() * 0.03)
        fake.faults.clear()
        existing = {
            (each["metadata"]["namespace"], each["metadata"]["name"]): (
                each["metadata"]["uid"],
                each["metadata"]["resourceVersion"],
            )
            for each in fake.state.objects(fake.state.named("pods"))
        }
        seen.until(
            lambda: (
                existing
                == {key: (each.metadata.uid, each.metadata.resourceVersion) for key, each in seen.known(PODS).items()}
            ),
            within=10,
        )

    assert seen.count("Synced Pod") == 1


def _write(fake: FakeApiServer, dice: random.Random) -> None:
    pods, name = fake.state.named("pods"), f"p{dice.randrange(8)}"
    exists = any(each["metadata"]["name"] == name for each in fake.state.objects(pods))
    if not exists:
        fake.state.create(pods, "default", {"metadata": {"name": name}})
    elif dice.random() < 0.5:
        fake.state.remove(pods, "default", name)
    else:
        fake.state.patch(pods, "default", name, {"status": {"phase": str(dice.random())}})


_WATCH_FAULTS: tuple[Action, ...] = ("drop", "silence", "truncate", "empty", "error", "garble", "slow", "lose-continue")


def _misbehave(fake: FakeApiServer, dice: random.Random) -> None:
    times, after = dice.randrange(1, 3), dice.randrange(4)
    in_answer = Fault(dice.choice(_WATCH_FAULTS), times=times, after=after, status=dice.choice([410, 429, 500, 503]))
    instead = Fault("refuse", times=times, status=dice.choice([401, 403, 429, 500, 503]))
    choices: list[Callable[[], object]] = [
        lambda: fake.faults.inject(in_answer),
        lambda: fake.faults.inject(instead),
        fake.state.compact,
        lambda: restart(fake),
        lambda: restart(fake, fake.state.compact),
        lambda: setattr(fake, "duplicates", not fake.duplicates),
    ]
    dice.choice(choices)()
