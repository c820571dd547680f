"""Framing, decoding and queueing, for any cut and any order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.exporters.kubernetes.access import StreamBroken
from drumlin.exporters.kubernetes.backlog import Backlog
from drumlin.exporters.kubernetes.timing import Backoff
from drumlin.exporters.kubernetes.wire import MAX_LINE, ManifestDecoder, UnreadableObject, lines
from drumlin.exporters.protocol import Change, Gone, Metadata, Synced, Upserted
from drumlin.kg.errors import SourceUnavailable
from tests.fake_apiserver.following import DEPLOYMENTS, PODS, Pod, PodStatus

WHEN = datetime(2026, 11, 27, tzinfo=UTC)
UIDS = ("u1", "u2", "u3")


def pod(uid: str, form: int) -> Pod:
    """Return the ``form``-th form of a pod."""
    return Pod(Metadata(name=uid, uid=uid, resourceVersion=str(form)), status=PodStatus(str(form)))


def deployment(name: str, replicas: object) -> dict[str, object]:
    """Return a Deployment as the API writes it."""
    return {"metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"}, "spec": {"replicas": replicas}}


# -- lines ------------------------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_do_not_depend_on_how_the_network_cuts_them(whole: list[bytes], data: st.DataObject) -> None:
    """Any cut of the same bytes gives the same lines; empty ones are no events."""
    rest, chunks = b"".join(line + b"\n" for line in whole), []
    while rest:
        cut = data.draw(st.integers(1, len(rest)))
        chunks.append(rest[:cut])
        rest = rest[cut:]

    assert list(lines(chunks)) == [line for line in whole if line]


@given(st.binary(min_size=1, max_size=20).map(lambda line: line.replace(b"\n", b"x")))
def test_an_unended_line_is_never_half_an_object(rest: bytes) -> None:
    """What comes after the last line end is an error, after the whole lines were given."""
    cut = lines([b'{"type":"ADDED"}\n', rest])

    assert next(cut) == b'{"type":"ADDED"}'
    with pytest.raises(StreamBroken):
        next(cut)


def test_an_endless_line_is_given_up() -> None:
    """A line cannot take all memory."""

    def endless() -> Iterator[bytes]:
        while True:
            yield b"x" * 1024 * 1024

    with pytest.raises(StreamBroken, match=str(MAX_LINE)):
        next(lines(endless()))


# -- pages and objects ------------------------------------------------------------------------------------------------------


@given(st.lists(st.one_of(st.integers(0, 9), st.sampled_from(["canary", None, 1.5, [], {}])), max_size=6))
def test_a_page_gives_every_object_that_fits(replicas: list[object]) -> None:
    """Each misfit is named by its identity and its path in the object; the others come typed and in order."""
    items = [deployment(f"d{at}", each) for at, each in enumerate(replicas)]
    page = ManifestDecoder(DEPLOYMENTS).page(
        json.dumps({"metadata": {"resourceVersion": "7"}, "items": items}).encode()
    )

    assert page.version == "7"
    assert len(page.objects) == len(replicas)
    for at, (each, wanted) in enumerate(zip(page.objects, replicas, strict=True)):
        if isinstance(wanted, int):
            assert not isinstance(each, UnreadableObject)
            assert each.metadata.name == f"d{at}"
        else:
            assert isinstance(each, UnreadableObject)
            assert (each.name, each.namespace, each.uid) == (f"d{at}", "shop", f"uid-d{at}")
            assert each.reason.endswith("at `$.spec.replicas`")
            assert "canary" not in each.reason


@pytest.mark.parametrize(
    "item",
    [
        {},
        [],
        7,
        None,
        "canary",
        {"metadata": "canary"},
        {"metadata": {"name": ["canary"]}},
        {"metadata": {"name": "no-uid"}},
    ],
)
def test_what_is_no_object_is_unreadable_without_a_word_of_it(item: object) -> None:
    """However far from an object it is, an item is reported and its content is not."""
    body = {"metadata": {}, "items": [item, deployment("ok", 1)]}
    first, second = ManifestDecoder(DEPLOYMENTS).page(json.dumps(body).encode()).objects

    assert isinstance(first, UnreadableObject)
    assert "canary" not in first.reason
    assert not isinstance(second, UnreadableObject)


def test_an_empty_list_may_be_null() -> None:
    """Go writes an empty slice as null."""
    assert ManifestDecoder(PODS).page(b'{"metadata":{"resourceVersion":"1"},"items":null}').objects == []


@pytest.mark.parametrize("body", [b"", b"{", b"<html>", b'{"items":[]}', b"[]", b'{"metadata":{},"items":[{]}'])
def test_what_is_no_page_is_a_broken_answer(body: bytes) -> None:
    """Half a page, or something else altogether, is never an empty list."""
    with pytest.raises(StreamBroken):
        ManifestDecoder(PODS).page(body)


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"type":"ADDED"}', b'{"object":{}}', b"\xff"])
def test_what_is_no_event_is_a_broken_stream(line: bytes) -> None:
    """A line that is not an event ends the stream, not the source."""
    with pytest.raises(StreamBroken):
        ManifestDecoder(PODS).event(line)


def test_a_bookmarks_zero_values_are_not_read() -> None:
    """The Pod bookmark carries ``containers: null``; only its metadata counts."""
    reader = ManifestDecoder(PODS)
    metadata = {"resourceVersion": "5", "annotations": {"k8s.io/initial-events-end": "true"}}
    zeroes = {"spec": {"containers": None, "nodeName": 7}}
    line = json.dumps({"type": "BOOKMARK", "object": {"metadata": metadata} | zeroes}).encode()
    mark = reader.bookmark(reader.event(line))

    assert (mark.resourceVersion, mark.ends_initial_events) == ("5", True)


# -- the queue --------------------------------------------------------------------------------------------------------------

STEPS = st.lists(st.tuples(st.sampled_from(["upsert", "gone", "take", "synced"]), st.sampled_from(UIDS)), max_size=60)


@given(STEPS)
def test_the_backlog_keeps_order_and_the_newest_form(steps: list[tuple[str, str]]) -> None:
    """For any mix of writes and reads: no object's changes swap, its last form is never lost, and its end neither."""
    backlog, put, taken = Backlog(1000), list[Change](), list[Change]()
    for form, (step, uid) in enumerate(steps):
        if step == "take":
            taken += backlog.take(0)
            continue
        change: Change = Synced(PODS, WHEN)
        if step != "synced":
            change = Upserted(PODS, pod(uid, form)) if step == "upsert" else Gone(PODS, pod(uid, form), WHEN)
        put.append(change)
        backlog.put(change)
    taken += backlog.take(0)

    assert [each for each in taken if not isinstance(each, Upserted)] == [
        each for each in put if not isinstance(each, Upserted)
    ]
    for uid in UIDS:
        told = [each for each in taken if not isinstance(each, Synced) and _uid(each) == uid]
        meant = [each for each in put if not isinstance(each, Synced) and _uid(each) == uid]
        assert told[-1:] == meant[-1:]
        assert [each for each in meant if each in told] == told


def _uid(change: Change) -> str:
    assert isinstance(change, Upserted | Gone)
    return change.manifest.metadata.uid


def test_the_backlog_is_bounded_by_objects() -> None:
    """A hundred forms of one object wait as one."""
    backlog = Backlog(1)
    for form in range(100):
        backlog.put(Upserted(PODS, pod("u1", form)))

    assert backlog.take(0) == [Upserted(PODS, pod("u1", 99))]
    assert backlog.take(0) == []


def test_a_failure_reaches_the_taker() -> None:
    """What a reflector cannot mend is raised where its changes are taken."""
    backlog = Backlog(1)
    backlog.fail(SourceUnavailable("no"))
    with pytest.raises(SourceUnavailable):
        backlog.take(1)


# -- waits ------------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 200))
def test_waits_grow_to_their_limit_and_are_spread(failures: int) -> None:
    """Each wait lies between half and the whole of a doubling that stops at the longest."""
    backoff = Backoff(0.5, 30.0)
    for _ in range(failures):
        backoff.next()
    whole = min(30.0, 0.5 * 2 ** min(failures, 16))

    assert whole / 2 <= backoff.next() <= whole
    backoff.reset()
    assert backoff.next() <= 0.5


def test_projections_parse_nothing_else() -> None:
    """A value outside the projection is not even looked at, so it can be in no message."""
    raw = msgspec.Raw(b'{"metadata":{"name":"a","uid":"u"},"spec":{"containers":[{"env":[{"value":"canary"}]}]}}')
    manifest = ManifestDecoder(PODS).object(raw)

    assert "canary" not in repr(manifest)
