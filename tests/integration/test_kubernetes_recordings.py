"""The fake API server against recordings of a real one, and the live source against a recorded cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drumlin.exporters.kubernetes.informer import KubernetesSource
from drumlin.exporters.protocol import Kind, Upserted
from tests.fake_apiserver import FakeApiServer, Resource
from tests.fake_apiserver.clusters import Answer, Cluster, fake_cluster
from tests.fake_apiserver.following import (
    DEPLOYMENTS,
    DOMAINS,
    FAST,
    JOBS,
    KUSCIA_JOBS,
    NODES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Following,
    restart,
)

SHARED = Path(__file__).resolve().parents[3] / "shared"
RECORDED = SHARED / "data" / "k8s-recorded"
CLUSTER = SHARED / "data" / "cluster"
WATCHED = (PODS, NODES, DEPLOYMENTS, JOBS, REPLICA_SETS, STATEFUL_SETS, DOMAINS, KUSCIA_JOBS)
DOMAIN = Resource("kuscia.secretflow", "v1alpha1", "domains", "Domain", namespaced=False, custom=True)

pytestmark = pytest.mark.skipif(
    not SHARED.is_dir() and os.environ.get("CI") != "true",
    reason="the recordings are not beside the repository (../shared/data); they are needed in CI only",
)
LISTS = sorted(path.stem for path in RECORDED.glob("list_*s.json"))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A fake API server that serves the CRD of the recordings."""
    with fake_cluster() as fake:
        assert fake.fake is not None
        fake.fake.state.register(DOMAIN)
        yield fake


def recorded(name: str) -> Any:
    """Return one recording."""
    return json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))


def serve(fake: FakeApiServer, listed: dict[str, Any], version: int | None = None) -> None:
    """Let the fake hold the objects of a recorded list."""
    for each in listed["items"]:
        fake.state.record("ADDED", fake.state.named(_plural(fake, listed["kind"].removesuffix("List"))), each)
    fake.state.advance(version or int(listed["metadata"]["resourceVersion"]))


def _plural(fake: FakeApiServer, kind: str) -> str:
    return next(each.plural for each in fake.state.resources.values() if each.kind == kind)


def ask(cluster: Cluster, request: str) -> Answer:
    """Send a recorded request; a watch ends after a second instead of its own time."""
    method, target = request.split(" ")
    path, _, query = target.partition("?")
    kept = [each for each in query.split("&") if each and not each.startswith("timeoutSeconds")]
    if "watch=1" in kept:
        kept.append("timeoutSeconds=1")
    return cluster.ask(method, f"{path}?{'&'.join(kept)}")


def events(answer: Answer) -> list[dict[str, Any]]:
    """Return the lines of a watch."""
    return [json.loads(line) for line in answer.text.splitlines()]


def without_times(recording: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a recording's events as the server sent them."""
    return [{"type": each["type"], "object": each["object"]} for each in recording["events"]]


# -- the fake is honest -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LISTS)
def test_lists_are_answered_as_recorded(cluster: Cluster, fake: FakeApiServer, name: str) -> None:
    """The envelope, its kind, version and items are the real server's, for built-in kinds and for a CRD's."""
    recording = recorded(name)
    serve(fake, recording["body"])
    answer = ask(cluster, recording["request"])

    assert (answer.status, answer.media_type) == (recording["status"], "application/json")
    assert answer.body == recording["body"]


def test_pages_and_their_tokens_are_as_recorded(cluster: Cluster, fake: FakeApiServer) -> None:
    """Page by page the same items, counts of what remains, and even tokens."""
    pages = recorded("list_pods_chunked")
    serve(fake, recorded("list_pods")["body"])
    for page in pages:
        assert ask(cluster, page["request"]).body == page["body"]


def test_an_expired_token_is_answered_as_recorded(cluster: Cluster, fake: FakeApiServer) -> None:
    """After compaction a token is 410 with a token for an inconsistent rest."""
    first, second = recorded("list_pods_continue_expired_410")
    rest = [each for each in recorded("list_pods")["body"]["items"] if each["metadata"]["name"] > "db-0"]
    serve(fake, first["body"] | {"items": first["body"]["items"] + rest})
    assert ask(cluster, first["request"]).body["metadata"]["continue"] == first["body"]["metadata"]["continue"]
    fake.state.compact()
    answer = ask(cluster, second["request"])

    assert (answer.status, answer.body) == (second["status"], second["body"])


def test_partial_metadata_is_answered_as_recorded(cluster: Cluster, fake: FakeApiServer) -> None:
    """The metadata-only form of a list is served on request."""
    serve(fake, recorded("list_pods")["body"])
    recording = recorded("list_pods_partialmetadata")
    _, path = recording["request"].split(" ")
    answer = cluster.ask("GET", path, accept="application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")

    assert answer.body == recording["body"]


@pytest.mark.parametrize(
    ("name", "now"),
    [
        ("list_forbidden_403", 0),
        ("list_unauthorized_401", 0),
        ("list_exact_rv_expired_410", 693),
        ("watch_sendInitialEvents_invalid_422", 0),
        ("watch_rv_invalid", 0),
    ],
)
def test_refusals_are_answered_as_recorded(cluster: Cluster, fake: FakeApiServer, name: str, now: int) -> None:
    """Status, media type and the whole Status body are the real server's."""
    recording = recorded(name)
    fake.state.advance(now)
    fake.state.compact()
    fake.forbidden |= {"pods"} if recording["status"] == 403 else set()
    fake.token = "needed" if recording["status"] == 401 else None
    answer = ask(cluster, recording["request"])

    assert (answer.status, answer.media_type) == (recording["status"], "application/json")
    assert answer.body == recording["body"]


def test_an_unknown_collection_is_answered_as_recorded(cluster: Cluster) -> None:
    """A CRD that is not installed is 404 in plain text, not a Status."""
    recording = recorded("list_unknown_404")
    answer = ask(cluster, recording["request"])

    assert (answer.status, answer.media_type) == (404, recording["body"]["contentType"])
    assert answer.text == recording["body"]["_nonJSON"]


@pytest.mark.parametrize(
    ("name", "now"),
    [
        ("watch_pods_410_after_restart", 693),
        ("watch_pods_410_bookmarks", 693),
        ("watch_crd_410", 696),
        ("watch_events_410", 693),
        ("watch_events_rv1", 693),
        ("watch_future_rv", 551),
    ],
)
def test_watches_at_a_wrong_version_are_answered_as_recorded(
    cluster: Cluster, fake: FakeApiServer, name: str, now: int
) -> None:
    """Too old is an ERROR event of code 410 inside a 200; too new is a 200 and silence."""
    recording = recorded(name)
    fake.state.advance(now)
    fake.state.compact()
    answer = ask(cluster, recording["request"])

    assert answer.status == 200
    assert events(answer) == without_times(recording)


@pytest.mark.parametrize("name", ["watch_rv0", "watch_rv_unset"])
def test_watches_without_a_version_begin_with_what_exists(cluster: Cluster, fake: FakeApiServer, name: str) -> None:
    """Version 0 and none replay the objects as ADDED, without an end mark."""
    recording = recorded(name)
    for event in without_times(recording):
        fake.state.record("ADDED", fake.state.named("namespaces"), event["object"])

    assert events(ask(cluster, recording["request"])) == without_times(recording)


def test_a_watch_list_is_answered_as_recorded(cluster: Cluster, fake: FakeApiServer) -> None:
    """First every object, then the bookmark that is annotated as the end of the initial events."""
    recording = recorded("watch_list_sendInitialEvents")
    expected = without_times(recording)
    end = next(at for at, each in enumerate(expected) if each["type"] == "BOOKMARK")
    for event in expected[:end]:
        fake.state.record("ADDED", fake.state.named("pods"), event["object"])
    fake.state.advance(551)
    answered = events(ask(cluster, recording["request"]))

    assert answered[: end + 1] == expected[: end + 1]
    assert answered[end + 1]["type"] == "BOOKMARK"


@pytest.mark.parametrize(
    "name", ["watch_pods_added_modified_deleted_bookmark", "watch_deployments", "watch_rv1_served_from_cache"]
)
def test_watches_are_answered_as_recorded(cluster: Cluster, fake: FakeApiServer, name: str) -> None:
    """Events come in their order with whole objects, then bookmarks of the kind's own empty form."""
    recording = recorded(name)
    expected = [each for each in without_times(recording) if each["type"] != "BOOKMARK"]
    for event in expected:
        resource = fake.state.named(_plural(fake, event["object"]["kind"]))
        fake.state.record(event["type"], resource, event["object"])
    marks = [each for each in without_times(recording) if each["type"] == "BOOKMARK"]
    if marks:
        fake.state.advance(int(marks[-1]["object"]["metadata"]["resourceVersion"]))  # other kinds went on
    answered = events(ask(cluster, recording["request"]))

    assert [each for each in answered if each["type"] != "BOOKMARK"] == expected
    if marks:
        assert answered[-1] == marks[-1]


def test_deletions_are_told_as_recorded(cluster: Cluster, fake: FakeApiServer) -> None:
    """A pod is marked before it is deleted, with a grace period of 0 as well; its namesake has a new uid."""
    recording = recorded("watch_pods_deleted_with_grace_0")
    pods = fake.state.named("pods")
    for name in ("one", "one-graceful"):
        fake.state.create(pods, "rec", {"metadata": {"name": name}})
        fake.state.patch(pods, "rec", name, {"status": {"phase": "Pending"}})
    fake.state.delete(pods, "rec", "one", 0)
    fake.state.delete(pods, "rec", "one-graceful")
    fake.state.create(pods, "rec", {"metadata": {"name": "one"}})
    fake.state.patch(pods, "rec", "one", {"status": {"phase": "Pending"}})

    def told(events: list[Any]) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for each in events:
            meta = each["object"]["metadata"]
            said = [meta.get(key) for key in ("generation", "deletionGracePeriodSeconds")]
            found.setdefault(meta["name"], []).append((each["type"], "deletionTimestamp" in meta, *said))
        return found

    answered = events(ask(cluster, f"{recording['request']}&resourceVersion=1"))
    assert told(answered) == told(without_times(recording))
    uids = {each["object"]["metadata"]["uid"] for each in answered}
    assert len(uids) == len({each["object"]["metadata"]["uid"] for each in without_times(recording)})


def test_a_restart_is_answered_as_recorded(cluster: Cluster, fake: FakeApiServer) -> None:
    """After a start each collection is forbidden, in the real server's words, until the caches of RBAC are filled."""
    fake.user, fake.cold = "system:serviceaccount:drumlin:drumlin", 1
    restart(fake)
    answers = [each for each in recorded("restart_until_served") if each["status"] and "readyz" not in each["request"]]
    first = [each for each in answers if each["status"] == 403]
    assert len(first) == 3
    for each in first:
        answer = ask(cluster, each["request"])
        assert (answer.status, answer.body) == (403, each["body"])
    for each in answers[len(first) :]:
        assert ask(cluster, each["request"]).status == each["status"]


@pytest.mark.parametrize("name", ["discovery_api_v1", "discovery_apis_apps_v1"])
def test_discovery_names_collections_as_recorded(cluster: Cluster, name: str) -> None:
    """What the fake serves it announces with the real server's kind, scope and verbs."""
    recording = recorded(name)
    answer = ask(cluster, recording["request"])
    real = {each["name"]: each for each in recording["body"]["resources"]}

    assert {key: answer.body[key] for key in answer.body if key != "resources"} == {
        key: value for key, value in recording["body"].items() if key != "resources"
    }
    for each in answer.body["resources"]:
        assert each.items() <= real[each["name"]].items()


def test_the_version_is_as_recorded(cluster: Cluster) -> None:
    """The fake says which server it imitates."""
    recording = recorded("version")

    assert ask(cluster, recording["request"]).body.items() <= recording["body"].items()


# -- the source on a recorded cluster -----------------------------------------------------------------------------------------


def _identity(manifest: Any) -> Any:
    return msgspec.structs.replace(manifest, metadata=msgspec.structs.replace(manifest.metadata, resourceVersion=""))


def _after(kind: Kind) -> dict[tuple[str | None, str], Any]:
    content = json.loads((CLUSTER / "after" / f"{kind.plural}.json").read_text(encoding="utf-8"))
    found = [msgspec.json.decode(json.dumps(each), type=kind.projection) for each in content["items"]]
    return {(each.metadata.namespace, each.metadata.name): _identity(each) for each in found}


@pytest.mark.parametrize("watch_list", [True, False])
def test_before_and_watch_give_after(cluster: Cluster, fake: FakeApiServer, *, watch_list: bool) -> None:
    """The recorded cluster ends as recorded, kind by kind, though every event came two or four times."""
    fake.load(CLUSTER / "before")
    fake.watch_list = watch_list
    fake.duplicates = True
    expected = {kind: _after(kind) for kind in WATCHED}
    with Following(KubernetesSource(cluster.access(), WATCHED, "prod", timing=FAST, page_size=10)) as seen:
        seen.until_synced(*WATCHED)
        fake.replay(CLUSTER / "watch", duplicates=True)
        seen.until(lambda: all(_now(seen, kind) == expected[kind] for kind in WATCHED), within=10)

    assert not any(each.estimated for each in seen.gone())
    known = {each.manifest.metadata.uid for each in seen.changes if isinstance(each, Upserted)}
    runs = json.loads((SHARED / "contract" / "runs.json").read_text(encoding="utf-8"))
    followed = {kind.name for kind in WATCHED}
    assert {run["uid"] for run in runs if run["kind"] in followed} <= known


def _now(seen: Following, kind: Kind) -> dict[tuple[str | None, str], Any]:
    return {key: _identity(each) for key, each in seen.known(kind).items()}
