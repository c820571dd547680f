"""The live source's lists and watches, against an API server that ends, forgets, cuts or is silent: the rules of a reflector."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from drumlin.exporters.kubernetes.informer import KubernetesSource, Timing
from tests.fake_apiserver import FakeApiServer, Fault
from tests.fake_apiserver.clusters import Cluster
from tests.fake_apiserver.following import (
    DEPLOYMENTS,
    FAST,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    Following,
    following,
    lists,
    restart,
    source,
    watches,
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
    """An event that comes twice is told once; a pod is marked as ending before it is gone."""
    fake.duplicates = True
    with following(cluster) as seen:
        seen.until_synced(PODS)
        cluster.create(PODS, "a")
        cluster.delete(PODS, "a")
        cluster.create(PODS, "b")
        seen.until(lambda: "b" in seen.names())

    told = seen.told()
    assert told.count("Upserted a") in (1, 2)  # that it is ending may be taken along with its end
    assert [each for each in told if each != "Upserted a"] == ["Synced Pod", "Gone a", "Upserted b"]


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


# -- a server that was restored -----------------------------------------------------------------------------------------------


def test_a_restored_server_is_noticed_by_its_version(cluster: Cluster, fake: FakeApiServer) -> None:
    """An etcd from an older backup has a lower version: after the outage everything is listed anew, though watches would open."""
    for number in range(9):
        cluster.create(PODS, f"p{number}")
    patient = replace(FAST, silence=(30, 30))
    with following(cluster, timing=patient) as seen:
        seen.until_synced(PODS)

        def restored() -> None:
            fake.state = FakeApiServer(seed=1).state
            fake.state.create(fake.state.named("pods"), "default", {"metadata": {"name": "restored"}})

        restart(fake, restored)
        seen.until(lambda: seen.names() == {"restored"})

    assert seen.status().relists == 1


def test_events_below_the_version_of_a_watch_are_a_restored_server(cluster: Cluster, fake: FakeApiServer) -> None:
    """A version that goes back within a watch is not believed: the kind is listed anew."""
    pods = fake.state.named("pods")
    for number in range(5):
        cluster.create(PODS, f"p{number}")
    with following(cluster) as seen:
        seen.until_synced(PODS)
        stale = fake.state.read(pods, "default", "p0")
        with fake.state.changed:
            fake.state.remove(pods, "default", "p1")
            fake.state.log.pop()  # lost in the restore: nobody is told
        fake.state.record("MODIFIED", pods, stale)
        seen.until(lambda: seen.names() == {"p0", "p2", "p3", "p4"})

    assert seen.status().relists == 1


def test_another_cluster_behind_the_address_is_noticed(cluster: Cluster, fake: FakeApiServer) -> None:
    """A new uid of kube-system is a new cluster: every kind is listed anew, also those whose versions seem to fit."""
    namespaces = fake.state.named("namespaces")
    fake.state.create(namespaces, "", {"metadata": {"name": "kube-system"}})
    cluster.create(PODS, "old")
    with following(cluster, PODS, NAMESPACES, timing=replace(FAST, silence=(30, 30))) as seen:
        seen.until_synced(PODS, NAMESPACES)

        def replaced() -> None:
            fake.state = FakeApiServer(seed=1).state
            fake.state.create(namespaces, "", {"metadata": {"name": "kube-system"}})
            fake.state.create(fake.state.named("pods"), "default", {"metadata": {"name": "new"}})
            fake.state.advance(1000)

        restart(fake, replaced)
        seen.until(lambda: seen.names() == {"new"})


def test_each_kind_is_listed_anew_now_and_then(cluster: Cluster, fake: FakeApiServer) -> None:
    """What a restore changed unseen is found by a slow relist, which reports only what differs, even at an equal version."""
    pods = fake.state.named("pods")
    for name in ("kept", "lost", "changed"):
        cluster.create(PODS, name)
    often = replace(FAST, watch=(1, 1), relist=(0.2, 0.3))
    with following(cluster, timing=often) as seen:
        seen.until_synced(PODS)
        with fake.state.changed:
            changed = fake.state.read(pods, "default", "changed")
            fake.state.remove(pods, "default", "lost")
            fake.state.record("MODIFIED", pods, changed | {"status": {"phase": "Failed"}})
            fake.state.log.clear()
        seen.until(lambda: bool(seen.gone()) and seen.count("Upserted changed") == 2)

    assert seen.known(PODS)["default", "changed"].status.phase == "Failed"
    assert [(each.manifest.metadata.name, each.estimated) for each in seen.gone()] == [("lost", True)]
    assert seen.count("Upserted kept") == 1


def test_by_default_a_relist_comes_every_half_hour_spread() -> None:
    """Kinds do not list together: each draws its time anew; the setting ``relist_minutes`` changes it, 0 turns it off."""
    assert Timing().relist == Timing.relisting(30).relist == (1500.0, 2100.0)
    assert Timing.relisting(0).relist is None
