"""Many writes in one request over a listening server: in order, each on its own or all together, in bounded memory."""

from __future__ import annotations

import gzip
import json
import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard

from drumlin.kg.graphs.owners import HEADER as OWNER
from tests.service.conftest import BASE, Service

NDJSON = {"Content-Type": "application/x-ndjson"}
MANY = 2_500
"""More than two batches."""


def _line(name: str, op: str = "put", **more: Any) -> dict[str, Any]:
    document = {"document": {"id": f"{BASE}/id/domain/{name}", "type": "Domain", "name": name}} if op == "put" else {}
    return {"op": op, "id": f"domain/{name}", **document, **more}


def _body(*lines: dict[str, Any] | bytes) -> bytes:
    return b"\n".join(each if isinstance(each, bytes) else json.dumps(each).encode() for each in lines)


def _told(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def _send(http: httpx.Client, *lines: dict[str, Any] | bytes, **headers: str) -> list[Any]:
    told = _told(http.post("/subgraphs", content=_body(*lines), headers={**NDJSON, **headers}))
    return [each.get("outcome") or each["problem"]["status"] for each in told]


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return uuid.uuid4().hex


def test_many_lines_are_answered_in_order_whatever_is_between(http: httpx.Client, name: str) -> None:
    """Thousands of lines, over several batches, a bad one and a double one among them: each result stands where its line stood."""
    lines: list[dict[str, Any] | bytes] = [_line(f"{name}-{number}") for number in range(MANY)]
    lines[1_200] = b"{"
    lines[2_100] = _line(f"{name}-5", "delete")

    told = _told(http.post("/subgraphs", content=_body(*lines), headers=NDJSON))

    outcomes = [each.get("outcome") or each["problem"]["status"] for each in told]
    assert (outcomes.pop(1_200), outcomes.pop(2_099)) == (422, "deleted")
    assert set(outcomes) == {"created"}
    ids = [each.get("id", "").rpartition("-")[2] for each in told]
    assert ids == ["" if place == 1_200 else "5" if place == 2_100 else str(place) for place in range(MANY)]
    assert http.get(f"/subgraph/domain/{name}-5").status_code == 410


def test_outcomes_are_what_a_reader_sees(http: httpx.Client, name: str) -> None:
    """Deleting is ``deleted``, writing over a tombstone is ``created``, removing what is not there is no write."""
    put, delete, remove = _line(name), _line(name, "delete"), _line(name, "remove")

    assert _send(http, put, put, delete, delete, put, remove, remove) == [
        *("created", "unchanged", "deleted", 410, "created", "removed", "unchanged")
    ]


def test_a_line_names_what_must_be_there(http: httpx.Client, name: str) -> None:
    """``digest`` is a digest or an ETag as it was read; null creates only, also over a tombstone; a stale one is 412 and writes nothing."""
    assert _send(http, _line(name, digest=None), _line(name, digest=None)) == ["created", 412]
    etag = http.get(f"/subgraph/domain/{name}.ttl").headers["ETag"]
    other = _line(name, digest=etag)
    other["document"]["name"] = "another"
    assert _send(http, other, other) == ["replaced", 412]
    assert _send(http, _line(name, "delete", digest=etag), _line(name, "remove", digest=etag)) == [412, 412]
    assert _send(http, _line(name, "delete"), _line(name, digest=None)) == ["deleted", "created"]


def test_an_atomic_request_tells_which_line_is_wrong(http: httpx.Client, name: str) -> None:
    """The problem bears the number of its line, and nothing was written; too many bytes are told with the limit."""
    _send(http, _line(f"{name}-there"))
    owned, stale = _line(f"{name}-there", owner="other"), _line(f"{name}-there", digest="0")
    refused_early = (b"x", _line(name), _line(f"{name}-2", "fly"), _line(f"{name}-3", "delete"), _line("", "put"))
    for bad in (*refused_early, owned, stale, _line(f"{name}-4", digest="0")):
        refused = http.post("/subgraphs?atomic=true", content=_body(_line(name), bad), headers=NDJSON)
        assert (refused.status_code >= 400, refused.json()["line"]) == (True, 2), refused.text
    assert http.get(f"/subgraph/domain/{name}").status_code == 404
    large = zstandard.compress((b" " * 1_000_000 + b"{}\n") * 140)
    answer = http.post("/subgraphs?atomic=true", content=large, headers={**NDJSON, "Content-Encoding": "zstd"})
    assert (answer.status_code, "134,217,728 bytes" in answer.json()["detail"]) == (413, True)
    assert "10,000 lines" in http.post("/subgraphs?atomic=true", content=b"{}\n" * 10_001, headers=NDJSON).text


def test_a_line_that_is_nested_without_end_is_refused_alone(http: httpx.Client, name: str) -> None:
    """It is told as that, and the lines around it are done."""
    deep = b'{"op":"put","id":"domain/deep","document":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    told = _told(
        http.post("/subgraphs", content=_body(_line(name)) + b"\n" + deep + _body(_line(f"{name}-b")), headers=NDJSON)
    )
    assert [each.get("outcome") for each in told] == ["created", None, "created"]
    assert "nested too deeply" in told[1]["problem"]["detail"]


def test_what_is_not_lines_of_json_is_refused(http: httpx.Client, name: str) -> None:
    """A body of another type is 415 and is not read; lines of JSON under another name, or none, are taken."""
    for sent in ("text/csv", "application/x-www-form-urlencoded"):
        answer = http.post("/subgraphs", content=_body(_line(name)), headers={"Content-Type": sent})
        assert (answer.status_code, "application/x-ndjson" in answer.json()["offered"]) == (415, True)
    sent_as_json = http.post("/subgraphs", content=_body(_line(name)), headers={"Content-Type": "application/json"})
    assert _told(sent_as_json)[0]["outcome"] == "created"
    assert _told(http.post("/subgraphs", content=_body(_line(name))))[0]["outcome"] == "unchanged"


@pytest.mark.parametrize(("coding", "packed"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
def test_a_packed_body_is_read_and_a_broken_one_told(http: httpx.Client, name: str, coding: str, packed: Any) -> None:
    """Both codings that are given are taken; one that ends too early keeps what was written and says so in its last line."""
    lines = [_line(f"{name}-{number}") for number in range(50)]
    whole = packed(_body(*lines, b"")) + packed(_body(*lines[:20]))
    headers = {**NDJSON, "Content-Encoding": coding}
    assert len(_told(http.post("/subgraphs", content=whole, headers=headers))) == 70
    *told, last = _told(http.post("/subgraphs", content=whole[:-2], headers=headers))
    assert [each["outcome"] for each in told][:50] == ["unchanged"] * 50
    assert last["problem"]["status"] == 422
    document = packed(json.dumps(_line(name)["document"]).encode())
    one = {"Content-Type": "application/ld+json", "Content-Encoding": coding}
    assert http.put(f"/subgraph/domain/{name}", content=document, headers=one).status_code == 201
    asked = {"Content-Type": "application/sparql-query", "Content-Encoding": coding}
    assert http.post("/sparql", content=packed(b"ASK {}"), headers=asked).json()["boolean"] is True
    as_json = {"Content-Type": "application/json", "Content-Encoding": coding}
    told = http.post("/resolve", content=packed(b'{"entities": ["x"], "metrics": ["y"]}'), headers=as_json)
    assert (told.status_code, told.json()["problem"]["status"]) == (200, 400)
    other = http.post("/subgraphs", content=whole, headers={**NDJSON, "Content-Encoding": "br"})
    assert (other.status_code, coding in other.json()["offered"]) == (415, True)


def test_an_owner_is_a_name_that_every_answer_can_bear(http: httpx.Client, name: str) -> None:
    """An owner in any script, as it is or percent-encoded, can be read back; one that is too long or has control characters is refused."""
    assert _send(http, _line(name), **{OWNER: "kubernetes:%E5%8D%97%E4%BA%AC%201"}) == ["created"]
    as_it_is = {**NDJSON, OWNER: "kubernetes:南京 1".encode()}
    assert _told(http.post("/subgraphs", content=_body(_line(name)), headers=as_it_is))[0]["outcome"] == "unchanged"
    read = http.get(f"/subgraph/domain/{name}")
    assert (read.status_code, read.headers["X-Drumlin-Owner"]) == (200, "kubernetes:%E5%8D%97%E4%BA%AC%201")
    assert http.get("/subgraphs", params={"owner": "kubernetes:南京 1"}).json()["items"][0]["name"] == name
    for bad in ("a%0D%0AX: 1", "%00", "", "x" * 201, b"\xff", "%C3"):
        answer = http.post("/subgraphs", content=_body(_line(f"{name}-b")), headers={**NDJSON, OWNER: bad})
        assert answer.status_code == 422, bad
    assert http.get(f"/subgraph/domain/{name}-b").status_code == 404


def _most(service: Service) -> int:
    """Return the most memory that the service has had since its count was set back, in bytes."""
    status = Path(f"/proc/{service.process.pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def test_large_lines_and_bodies_do_not_pile_up(service: Service, http: httpx.Client) -> None:
    """40 MB of lines, all refused, take a few batches of memory; a JSON body that is too large is 413 and is not kept."""
    Path(f"/proc/{service.process.pid}/clear_refs").write_text("5", encoding="ascii")
    before = _most(service)

    def lines() -> Iterator[bytes]:
        bad = b'{"op": "put", "id": "domain/x", "document": "' + b"y" * 1_000_000 + b'"}\n'
        yield from (bad for _ in range(40))

    assert len(_told(http.post("/subgraphs", content=lines(), headers=NDJSON))) == 40
    for path in ("/resolve", "/history"):
        answer = http.post(path, json={"entities": ["x" * 5_000_000], "metrics": ["cpu_usage"]})
        assert (answer.status_code, "4,194,304" in answer.json()["detail"]) == (413, True)
    assert _most(service) - before < 40_000_000


def _workers(service: Service) -> list[int]:
    """Return the worker processes of the service."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if f"--parent={service.process.pid}\0" in (said := path.read_text()) and "drumlin.kg.workers.child" in said:
                found.append(int(path.parent.name))
    return found


def test_many_lines_are_read_by_processes_whatever_becomes_of_them(
    own_service: Service, client: httpx.Client, name: str
) -> None:
    """Results and what is stored are the same with processes, and when they are killed in the middle of a request."""

    def sent(run: int) -> list[dict[str, Any] | bytes]:
        lines: list[dict[str, Any] | bytes] = [_line(f"{name}-{run}-{number}") for number in range(MANY)]
        lines[1_500] = _line(f"{name}-{run}-bad", document={"id": f"{BASE}/id/domain/{name}-{run}-bad", "type": "No"})
        return lines

    def outcomes(told: list[dict[str, Any]]) -> list[Any]:
        assert [each["problem"]["status"] for each in told if "problem" in each] == [422]
        return [each.get("outcome") or each["problem"]["title"] for each in told]

    first = outcomes(_told(client.post("/subgraphs", content=_body(*sent(0)), headers=NDJSON)))
    assert _workers(own_service)
    again = outcomes(_told(client.post("/subgraphs", content=_body(*sent(1)), headers=NDJSON)))

    def killing() -> Iterator[bytes]:
        for number, each in enumerate(sent(2)):
            if number == 2_200:
                for process in _workers(own_service):
                    os.kill(process, signal.SIGKILL)
            yield _body(each) + b"\n"

    assert first == again == outcomes(_told(client.post("/subgraphs", content=killing(), headers=NDJSON)))
    assert first.count("created") == MANY - 1
    stored = [client.get(f"/subgraph/domain/{name}-{run}-7").json()["name"] for run in range(3)]
    assert stored == [f"{name}-{run}-7" for run in range(3)]
