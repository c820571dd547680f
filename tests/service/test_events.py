"""/events over a listening server: every committed change once, in order, through reconnects, restarts and kill -9."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.service.conftest import Service, serving
from tests.service.test_subgraph import JSONLD, forecast
from tests.waiting import until

BATCH = {"Accept": "application/cloudevents-batch+json"}
PATIENCE = 60.0


def put(http: httpx.Client, name: str, **changes: Any) -> None:
    """Write a forecast."""
    answer = http.put(f"/subgraph/forecast/{name}", content=json.dumps(forecast(name, **changes)), headers=JSONLD)
    assert answer.status_code in (201, 204)


@contextmanager
def stream(url: str, **headers: str) -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:
    """Open the feed and give its events, as (id, event); ``Last-Event-ID`` and filters go in as they are."""
    query = headers.pop("query", "")
    with (
        httpx.Client(timeout=httpx.Timeout(PATIENCE)) as http,
        http.stream("GET", f"{url}/events{query}", headers={"Accept": "text/event-stream", **headers}) as answer,
    ):
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert next(lines).startswith("retry:")
        yield _events(lines)


def _events(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    id = ""
    for line in lines:
        if line.startswith("id: "):
            id = line[4:]
        elif line.startswith("data: "):
            yield id, json.loads(line[6:])


def batch(http: httpx.Client, since: str, **params: Any) -> tuple[str, list[dict[str, Any]]]:
    """Read the next events and the place they reach."""
    answer = http.get("/events", params={"since": since, **params}, headers=BATCH, timeout=PATIENCE)
    assert answer.status_code == 200, answer.text
    return answer.headers["X-Drumlin-Last-Event-Id"], answer.json()


def everything(http: httpx.Client, since: str = "0", limit: int = 1000, **params: Any) -> list[dict[str, Any]]:
    """Read all events there are, batch by batch."""
    found: list[dict[str, Any]] = []
    while True:
        since, events = batch(http, since, limit=limit, **params)
        if not events:
            return found
        found += events


def test_changes_come_as_they_are_committed(http: httpx.Client) -> None:
    """A subscriber gets created, replaced and deleted as CloudEvents that say what, whose and when; a repeated write is none."""
    name = uuid.uuid4().hex
    with stream(str(http.base_url), query="?type=Forecast") as events:
        put(http, name)
        put(http, name)
        put(http, name, model="b")
        http.delete(f"/subgraph/forecast/{name}")
        found = [event for _, event in (next(events) for _ in range(3))]
    assert [each["subject"] for each in found] == [f"forecast/{name}"] * 3
    assert found[0]["type"].rpartition(".")[2] in ("created", "deleted")
    assert found[2]["type"] == "drumlin.subgraph.deleted"
    assert found[0]["data"]["after"] == found[1]["data"]["before"]
    assert found[1]["data"]["type"] == "Forecast"
    assert {each["specversion"] for each in found} == {"1.0"}
    assert found[0]["source"] == "https://kg.example"


def test_changes_come_with_what_they_changed(http: httpx.Client) -> None:
    """``quads=true`` tells the N-Quads that each change removed and added, by stream, by batch, and again to who comes back; else none."""
    name = uuid.uuid4().hex
    iri = f"https://kg.example/id/forecast/{name}"
    with stream(str(http.base_url), query="?type=Forecast&quads=true") as events:
        put(http, name)
        put(http, name, model="b")
        http.delete(f"/subgraph/forecast/{name}")
        (first, created), (_, replaced), (_, deleted) = (next(events) for _ in range(3))
    model = f'<{iri}> <https://w3id.org/drumlin/ns#model> "%s" <{iri}> .'
    assert model % "seasonal-naive" in created["data"]["added"]
    assert created["data"]["removed"] == []
    assert (replaced["data"]["removed"], replaced["data"]["added"]) == ([model % "seasonal-naive"], [model % "b"])
    assert model % "b" in deleted["data"]["removed"]
    _, again = batch(http, first, quads=True, type="Forecast")
    assert again[0]["data"]["added"] == replaced["data"]["added"]
    _, plain = batch(http, first, type="Forecast")
    assert "added" not in plain[0]["data"]


def test_what_is_too_much_or_too_old_is_said_to_be_left_out(tmp_path: Path) -> None:
    """An event of more quads than the limit, or of a graph that nobody keeps any more, says so, and is told all the same."""
    with serving("--store", str(tmp_path / "s")) as service, httpx.Client(base_url=service.url) as http:
        many = "".join(f"<http://a> <http://b> {number} .\n" for number in range(1_001))
        http.put("/store?graph=http://many", content=many, headers={"Content-Type": "text/turtle"}).raise_for_status()
        put(http, "a")
        events = everything(http, quads=True)
        told = {each["subject"]: each["data"] for each in events}
        assert "1,001 added" in told["http://many"]["leftOut"]
        assert told["forecast/a"]["added"]
    with serving("--store", str(tmp_path / "s")) as service, httpx.Client(base_url=service.url) as http:
        again = everything(http, quads=True)
        assert [each["id"] for each in again] == [each["id"] for each in events]
        assert "not kept" in {each["subject"]: each["data"] for each in again}["forecast/a"]["leftOut"]


def test_a_reader_goes_on_after_the_event_it_has_seen(http: httpx.Client) -> None:
    """Last-Event-ID and since give exactly what came after, from memory or from the log, one by one or many at once."""
    whole = everything(http)
    ids = [each["id"] for each in whole]
    assert len(set(ids)) == len(ids) > 50
    assert ids == sorted(ids, key=lambda each: tuple(map(int, each.split("."))))
    assert [each["id"] for each in everything(http, limit=7)] == ids
    for place in (0, 1, len(ids) // 2, len(ids) - 2):
        with stream(str(http.base_url), **{"Last-Event-ID": ids[place]}) as events:
            assert next(events)[0] == ids[place + 1]


def test_filters_let_through_what_is_asked(http: httpx.Client) -> None:
    """Class, namespace, domain and owner narrow the feed; all kinds of workloads have one name."""
    _, pods = batch(http, "0", type="Pod")
    assert pods
    assert all("/pod/" in each["subject"] for each in pods)
    _, paid = batch(http, "0", namespace="payments", type="Workload")
    assert {each["data"]["namespace"] for each in paid} == {"payments"}
    assert {each["data"]["type"] for each in paid} <= {
        "Deployment",
        "StatefulSet",
        "ReplicaSet",
        "Job",
        "CronJob",
        "DaemonSet",
    }
    _, none = batch(http, "0", owner="nobody")
    assert none == []


def test_each_filter_lets_through_the_events_that_say_so(http: httpx.Client) -> None:
    """By class, domain, namespace and owner, alone, with several values and together: the very events that say so, in their order."""
    whole = everything(http)
    values = {
        name: sorted({each["data"][name] for each in whole if name in each["data"]})
        for name in ("type", "domain", "namespace", "owner")
    }
    assert all(len(each) > 1 or name == "domain" for name, each in values.items()), values
    questions = [{name: some} for name, each in values.items() for some in (each[:1], each[-2:])]
    questions.append({"type": ["Pod", "Deployment"], "namespace": ["payments"], "domain": values["domain"]})
    for chosen in questions:
        wanted = [each for each in whole if all(each["data"].get(name) in some for name, some in chosen.items())]
        assert everything(http, **chosen) == wanted, chosen


def test_all_events_add_up_to_the_graph(tmp_path: Path) -> None:
    """What every kind of write removed and added, one event after the other, comes to what an export holds; each is a valid CloudEvent."""
    with (
        serving("--store", str(tmp_path / "s")) as service,
        httpx.Client(base_url=service.url, timeout=PATIENCE) as http,
    ):
        for name in ("a", "b", "c"):
            put(http, name)
        put(http, "a", model="b")
        http.delete("/subgraph/forecast/b").raise_for_status()
        turtle = {"Content-Type": "text/turtle"}
        http.put("/store?graph=http://f", content="[] <http://p> 1, [] .", headers=turtle).raise_for_status()
        http.post("/store?graph=http://f", content="<http://s> <http://p> 2 .", headers=turtle).raise_for_status()
        http.put("/store?graph=http://g", content="<http://s> <http://p> 3 .", headers=turtle).raise_for_status()
        http.delete("/store?graph=http://g").raise_for_status()
        update = (
            "INSERT DATA { GRAPH <http://h> { <http://s> <http://p> 4 } GRAPH <http://f> { <http://s> <http://p> 5 } }"
        )
        http.post(
            "/sparql/update", content=update, headers={"Content-Type": "application/sparql-update"}
        ).raise_for_status()
        bulk = [
            {"op": "put", "id": f"forecast/{name}", "document": forecast(name, model="z")} for name in ("a", "d", "b")
        ]
        bulk.append({"op": "remove", "id": "forecast/c"})
        http.post("/subgraphs?atomic=true", content="\n".join(map(json.dumps, bulk))).raise_for_status()
        events = everything(http, quads=True, limit=3)
        exported = http.get("/export", headers={"Accept": "application/n-quads"}).text.splitlines()
        generation = http.get("/readyz").json()["generation"]
        with stream(service.url, **{"Last-Event-ID": "0"}, query="?quads=true") as streamed:
            again = [next(streamed) for _ in events]
    for id, each in again:
        assert id == each["id"]
        each.pop("type")  # deleted is told as long as the tombstone is what the graph is
    assert [each for _, each in again] == [{key: each[key] for key in each if key != "type"} for each in events]
    held: set[str] = set()
    digests: dict[str, str | None] = {}
    for each in events:
        data = each["data"]
        removed, added = set(data["removed"]), set(data["added"])
        assert removed <= held
        assert not added & held
        held = (held - removed) | added
        assert digests.get(data["iri"]) == data.get("before")
        digests[data["iri"]] = data.get("after")
        _check_cloud_event(each)
    assert sorted(held) == sorted(exported)
    assert sorted({int(each["id"].split(".")[0]) for each in events}) == list(range(1, generation + 1))
    assert len({each["id"] for each in events}) == len(events)


def _check_cloud_event(event: dict[str, Any]) -> None:
    """Hold an event against CloudEvents 1.0.2 and its JSON format."""
    assert event.keys() == {"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "data"}
    assert all(re.fullmatch("[a-z0-9]{1,20}", name) for name in event)
    assert event["specversion"] == "1.0"
    assert all(isinstance(event[name], str) and event[name] for name in event.keys() - {"data"})
    assert urlsplit(event["source"]).scheme == "https"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", event["time"])  # RFC 3339
    assert isinstance(event["data"], dict)


def test_a_long_poll_waits_for_the_first_event(http: httpx.Client) -> None:
    """A batch is answered as soon as something comes, and empty when nothing does."""
    generation = http.get("/readyz").json()["generation"]
    reached, events = batch(http, str(generation), wait=0.3)
    assert (reached, events) == (str(generation), [])
    name = uuid.uuid4().hex
    writing = threading.Timer(0.3, put, (http, name))
    writing.start()
    _, events = batch(http, reached, wait=30)
    writing.join()
    assert [each["subject"] for each in events] == [f"forecast/{name}"]


@pytest.mark.parametrize(("since", "status"), [("x", 422), ("1.2.3", 422), ("-1", 422), ("99999999", 410)])
def test_a_place_that_is_none_is_refused(http: httpx.Client, since: str, status: int) -> None:
    """A made-up id is 422; one ahead of the log (the store was restored) is 410 and says what there is."""
    answer = http.get("/events", params={"since": since}, headers=BATCH)
    assert answer.status_code == status
    if status == 410:
        assert answer.json()["oldest"] == 1
        assert answer.json()["newest"] > 1


def test_no_change_is_lost_or_told_twice_through_kill_9(tmp_path: Path) -> None:
    """A reader that reconnects with its last id gets, over several killed services, exactly the log of the store."""
    options = ("--store", str(tmp_path / "store"))
    seen: list[tuple[str, str, str | None]] = []
    last = "0"
    acknowledged = 0
    for life in range(3):
        with serving(*options) as service, httpx.Client(base_url=service.url, timeout=PATIENCE) as http:
            writing = threading.Thread(target=_write_until_killed, args=(service.url, life), daemon=True)
            with stream(service.url, **{"Last-Event-ID": last}) as events:
                writing.start()
                for id, event in events:
                    seen.append((id, event["subject"], event["data"].get("after")))
                    last = id
                    acknowledged += 1
                    if acknowledged % 40 == 0:
                        break
            os.kill(service.process.pid, signal.SIGKILL)
            service.process.wait()
            writing.join(PATIENCE)
    with serving(*options) as service, httpx.Client(base_url=service.url, timeout=PATIENCE) as http:
        seen += [(each["id"], each["subject"], each["data"].get("after")) for each in everything(http, last)]
        told = [(each["id"], each["subject"], each["data"].get("after")) for each in everything(http)]
    assert seen == told
    assert len(seen) >= 120


def _write_until_killed(url: str, life: int) -> None:
    """Write one graph after the other until nobody answers."""
    with httpx.Client(base_url=url, timeout=PATIENCE) as http:
        for number in range(10_000):
            try:
                put(http, f"f{number % 7}", model=f"{life}.{number}")
            except httpx.TransportError:
                return


def test_a_service_with_subscribers_stops(tmp_path: Path) -> None:
    """Open streams do not keep a service from ending; each comes to its end, plain whatever is accepted, and both say the same."""
    with (
        serving("--store", str(tmp_path / "store")) as service,
        httpx.Client(base_url=service.url, timeout=PATIENCE) as http,
        http.stream("GET", "/events?since=0", headers={"Accept-Encoding": "gzip"}) as other,
        http.stream("GET", "/events?since=0", headers={"Accept-Encoding": "identity"}) as plain,
    ):
        assert "Content-Encoding" not in other.headers
        for number in range(20):
            put(http, f"n{number}")
        assert len(everything(http)) > 20
        assert service.stop() == 0
        told = [[line for line in each.iter_lines() if "data: " in line] for each in (other, plain)]
        assert told[0] == told[1]
        assert len(told[0]) > 10


def test_a_subscriber_that_reads_nothing_costs_nothing(tmp_path: Path) -> None:
    """While one subscriber never reads, the others get everything, and the service's memory stays bounded."""
    with (
        serving("--store", str(tmp_path / "store")) as service,
        httpx.Client(base_url=service.url, timeout=PATIENCE) as http,
    ):
        lines = b"\n".join(
            json.dumps({"op": "put", "id": f"forecast/n{number}", "document": forecast(f"n{number}")}).encode()
            for number in range(500)
        )
        with httpx.stream("GET", f"{service.url}/events?since=0") as idle:
            assert idle.status_code == 200
            http.post("/subgraphs", content=lines)
            until(lambda: len(everything(http)) >= 500)  # the index may still be made for the first time


def test_hundreds_of_subscribers_leave_room_for_others(service: Service) -> None:
    """200 streams get the same change, each once, while other requests are answered; 128 used to be all that the server took."""
    name = uuid.uuid4().hex
    address = urlsplit(service.url)
    ask = f"GET /events?type=Forecast HTTP/1.1\r\nHost: {address.netloc}\r\nAccept: text/event-stream\r\n\r\n".encode()

    async def subscribe() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(ask)
        await reader.readuntil(b"from here on")
        return reader, writer

    async def follow() -> None:
        streams = await asyncio.gather(*(subscribe() for _ in range(200)))
        with httpx.Client(base_url=service.url, timeout=PATIENCE) as http:
            await asyncio.to_thread(put, http, name)
        for reader, writer in streams:
            assert name.encode() in await reader.readuntil(b"}}\n")
            writer.close()

    asyncio.run(asyncio.wait_for(follow(), PATIENCE))
