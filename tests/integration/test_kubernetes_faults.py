"""The live source against an API server that refuses, sends what cannot be read, and does all of it at once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from drumlin.exporters.kubernetes.informer import KubernetesSource
from drumlin.exporters.protocol import Rejected, Upserted
from drumlin.kg.errors import SourceUnavailable
from tests.fake_apiserver import FakeApiServer, Fault, Resource
from tests.fake_apiserver.clusters import Cluster, access_to
from tests.fake_apiserver.faults import Action
from tests.fake_apiserver.following import (
    DEPLOYMENTS,
    DOMAINS,
    FAST,
    NODES,
    PODS,
    Following,
    following,
    lists,
    restart,
    source,
)

CRD = Resource("kuscia.secretflow", "v1alpha1", "domains", "Domain", namespaced=False, custom=True)


# -- refusals ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_refusal_is_waited_out(cluster: Cluster, fake: FakeApiServer, status: int) -> None:
    """An overloaded or starting server is asked again, with growing waits, until it answers."""
    cluster.create(PODS, "web")
    fake.faults.inject(Fault("refuse", status=status, times=4))
    with following(cluster) as seen:
        seen.until_synced(PODS)

    assert seen.names() == {"web"}


def test_a_storage_that_starts_is_waited_for(cluster: Cluster, fake: FakeApiServer) -> None:
    """429 of a watch cache that is being filled is a wait as long as it asks for, not a relist in pages."""
    cluster.create(PODS, "web")
    fake.faults.inject(Fault("reinitialise", times=3))
    with following(cluster) as seen:
        seen.until_synced(PODS)

    assert seen.names() == {"web"}
    assert not any("limit" in each.params for each in fake.requests)


@pytest.mark.parametrize("inside", [False, True])
def test_retry_after_is_honoured(cluster: Cluster, fake: FakeApiServer, *, inside: bool) -> None:
    """A server that names its own wait, in the header or in the Status of an ERROR event, gets it."""
    fake.faults.inject(Fault("error" if inside else "refuse", status=429, retry_after=1, on="watch"))
    with following(cluster, timing=replace(FAST, asked=1.0)) as seen:
        seen.until_synced(PODS)
        times = [each.at for each in fake.requests if each.watch]

    assert times[1] - times[0] >= 0.95


def test_a_retry_after_without_measure_is_cut(cluster: Cluster, fake: FakeApiServer) -> None:
    """One answer cannot put a kind to sleep for a day."""
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


def test_a_server_that_starts_and_forbids_everything_blinds_no_kind(cluster: Cluster, fake: FakeApiServer) -> None:
    """For about a second a new API server has read no roles and answers 403: kinds that were served ask again soon, not in minutes."""
    patient = replace(FAST, forbidden=(60, 60), forgiven=60)
    with following(cluster, PODS, NODES, DEPLOYMENTS, timing=patient) as seen:
        seen.until_synced(PODS, NODES, DEPLOYMENTS)
        fake.cold = 4
        restart(fake)
        cluster.create(PODS, "a")
        cluster.create(NODES, "b")
        cluster.create(DEPLOYMENTS, "c")
        seen.until(lambda: (seen.names(PODS), seen.names(NODES), seen.names(DEPLOYMENTS)) == ({"a"}, {"b"}, {"c"}))
        assert not any(each.forbidden for each in seen.source.status())

    assert fake.warmed["pods"] == 4


def test_a_start_beside_a_server_that_starts_is_no_blindness(cluster: Cluster, fake: FakeApiServer) -> None:
    """As long as nothing at all has been served, a kind that is forbidden is asked for again soon."""
    fake.cold = 3
    restart(fake)
    with following(cluster, PODS, NODES, timing=replace(FAST, forbidden=(60, 60))) as seen:
        seen.until(lambda: "Synced Pod" in seen.told() or "Synced Node" in seen.told())


def test_a_kind_that_is_not_installed_is_found_when_it_comes(cluster: Cluster, fake: FakeApiServer) -> None:
    """404 text/plain is an absent CRD; it is looked for again."""
    with following(cluster, DOMAINS, PODS) as seen:
        seen.until_synced(PODS)
        seen.until(lambda: seen.status(DOMAINS).absent)
        fake.state.register(CRD)
        cluster.create(DOMAINS, "alice")
        seen.until(lambda: seen.names(DOMAINS) == {"alice"})
        seen.until(lambda: not seen.status(DOMAINS).absent)


def test_objects_of_a_crd_that_is_gone_are_gone(cluster: Cluster, fake: FakeApiServer) -> None:
    """A CRD that was deleted unseen takes its objects with it, as soon as the server says again that it does not have it."""
    fake.state.register(CRD)
    cluster.create(DOMAINS, "alice")
    with following(cluster, DOMAINS, PODS) as seen:
        seen.until_synced(DOMAINS, PODS)

        def meanwhile() -> None:
            fake.state.unregister(CRD)
            fake.state.compact()

        restart(fake, meanwhile)
        seen.until(lambda: seen.names(DOMAINS) == set())
        assert seen.status(DOMAINS).absent
        assert seen.gone()[0].estimated
        fake.state.register(CRD)
        cluster.create(DOMAINS, "bob")
        seen.until(lambda: seen.names(DOMAINS) == {"bob"})


def test_a_kind_that_was_deleted_before_the_start_is_complete_without_objects(
    cluster: Cluster, fake: FakeApiServer
) -> None:
    """``Synced`` without an object lets the pipeline end what an earlier process wrote; it comes at the second look only."""
    with following(cluster, DOMAINS) as seen:
        seen.until_synced(DOMAINS)
        asked = [each.at for each in fake.requests if each.plural == "domains"]

    assert seen.told() == ["KindUnavailable Domain", "Synced Domain"]
    assert len(asked) >= 2


@pytest.mark.parametrize("answer", ["group", "nothing"])
def test_a_404_alone_ends_no_object(cluster: Cluster, fake: FakeApiServer, answer: str) -> None:
    """While discovery still names the kind, or cannot be read, a 404 is the server's trouble: what is known stays."""
    fake.state.register(CRD)
    cluster.create(DOMAINS, "alice")
    with following(cluster, DOMAINS) as seen:
        seen.until_synced(DOMAINS)
        fake.discovers = answer == "group"
        fake.faults.inject(Fault("missing", plural="domains", times=6))
        restart(fake)
        cluster.create(DOMAINS, "bob")
        seen.until(lambda: "bob" in seen.names(DOMAINS))

    assert not seen.gone()


def test_a_server_without_core_kinds_is_no_kubernetes(cluster: Cluster, fake: FakeApiServer) -> None:
    """404 on pods is a wrong path or another server: nothing is set aside or gone, and the trouble says what it is."""
    access = access_to(f"{cluster.url}/wrong/prefix")
    with Following(KubernetesSource(access, (PODS, DEPLOYMENTS), "prod", timing=FAST)) as seen:
        seen.until(lambda: "not a Kubernetes API" in (seen.status().trouble or ""))
        seen.until(lambda: sum(each.path.endswith("/deployments") for each in fake.requests) > 3)
        assert not seen.status().absent

    assert "Synced Deployment" not in seen.told()
    assert not any("KindUnavailable Pod" in each for each in seen.told())


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


def test_credentials_that_worked_in_an_earlier_run_are_waited_for(cluster: Cluster, fake: FakeApiServer) -> None:
    """A run that begins anew, since the store was away, in a spell of 401: it is no first contact, and nothing ends."""
    twice = source(cluster)
    with Following(twice) as seen:
        seen.until_synced(PODS)
    fake.faults.inject(Fault("refuse", status=401, times=6))
    with Following(twice) as seen:
        seen.until_synced(PODS)
    assert seen.error is None


def test_credentials_of_a_kind_that_waits_are_no_reason_to_end(cluster: Cluster, fake: FakeApiServer) -> None:
    """A spell of 401 while a kind is not installed ends nothing, though that kind never was synced."""
    with following(cluster, DOMAINS) as seen:
        seen.until(lambda: seen.status(DOMAINS).absent)
        fake.faults.inject(Fault("refuse", status=401, times=4))
        fake.state.register(CRD)
        cluster.create(DOMAINS, "alice")
        seen.until(lambda: seen.names(DOMAINS) == {"alice"})


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

    stop.set()
    assert not list(changes)


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
