"""Batches of which many writes are refused: each refusal is reported, and the work grows with the writes only."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import httpx
import pytest

import drumlin
from drumlin.api.app import create_app
from drumlin.api.bootstrap import Services, assemble
from drumlin.exporters import remote
from drumlin.exporters.pipeline.sink import write
from drumlin.exporters.remote import RemoteSink
from drumlin.exporters.retention import purge
from drumlin.kg.config.settings import RetentionSettings, Settings
from drumlin.kg.errors import GraphOwned, StoreFull
from drumlin.kg.graphs.owners import HEADER
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphEntry, GraphWrite, Row, Written
from tests.service.conftest import BASE, Service
from tests.store_behaviours import A, line

MANY = 400
NDJSON = {"Content-Type": "application/x-ndjson"}
TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"


class Counting(EmbeddedStore):
    """A store that counts the transactions that it is asked for."""

    applies = 0

    def apply(self, writes: Sequence[GraphWrite]) -> list[Written]:
        """Count, then write."""
        self.applies += 1
        return super().apply(writes)


@pytest.fixture
def parts(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    """The parts of a service whose store counts."""
    monkeypatch.setattr("drumlin.api.bootstrap.EmbeddedStore", Counting)
    made = assemble(Settings(base=BASE, cluster="prod"), directory=tmp_path_factory.mktemp("store"))
    yield made
    made.close()


def _domain(name: str, text: str = "") -> GraphWrite:
    graph = f"{BASE}/id/domain/{name}"
    lines = {f"<{graph}> <{TYPE}> <https://w3id.org/drumlin/ns#Domain> ."}
    lines.add(f'<{graph}> <https://w3id.org/drumlin/ns#name> "{text or name}" .')
    return GraphWrite.of(graph, frozenset(lines), "user")


def _line(number: int, **more: object) -> bytes:
    document = {"id": f"{BASE}/id/domain/d{number}", "type": "Domain", "name": f"d{number}"}
    return json.dumps({"op": "put", "id": f"domain/d{number}", "document": document, **more}).encode()


def _post(parts: Services, body: bytes, path: str = "/subgraphs", **headers: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(parts))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            return await client.post(path, content=body, headers={**NDJSON, **headers})

    return asyncio.run(ask())


@pytest.mark.parametrize("refused", [1, MANY // 2, MANY])
def test_an_exporter_writes_what_it_may_in_two_transactions(
    tmp_path_factory: pytest.TempPathFactory, refused: int
) -> None:
    """However many graphs another owner has, each is reported once and the others are written."""
    store = Counting(tmp_path_factory.mktemp("store"))
    graphs = [f"{A}/{number:03}" for number in range(MANY)]
    store.apply([GraphWrite.of(each, frozenset({line(each, 1)}), "another") for each in graphs[:refused]])
    store.applies = 0

    written, owned = write(
        store, [GraphWrite.of(each, frozenset({line(each, 2)}), "kubernetes:prod") for each in graphs]
    )

    assert [each.detail for each in owned] == [{"graph": each, "owner": "another"} for each in graphs[:refused]]
    assert [(each.graph, each.outcome) for each in written] == [(each, "created") for each in graphs[refused:]]
    assert store.applies == 1 + (refused < MANY)
    store.close()


def test_tombstones_that_were_written_meanwhile_stay_in_two_transactions(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The purge removes the others, whether the writer or the content has changed."""
    store = Counting(tmp_path_factory.mktemp("store"))
    graphs = [f"{A}/{number:03}" for number in range(MANY)]
    store.apply([GraphWrite.of(each, frozenset({line(each, 1)}), "user") for each in graphs])

    class Raced:
        """All are over; half of them are written between the look and the removal, one by another owner."""

        def look_up(self, *_: object) -> list[Row]:
            return [{"entity": each, "former": "x", "at": "2020-01-01T00:00:00Z"} for each in graphs]

        def entries(self) -> list[GraphEntry]:
            found = store.entries()
            store.apply([GraphWrite.of(graphs[0], None, "user")])
            store.apply([GraphWrite.of(graphs[0], frozenset({line(A, 2)}), "another")])
            store.apply([GraphWrite.of(each, frozenset({line(each, 2)}), "user") for each in graphs[1::2]])
            store.applies = 0
            return found

        apply = store.apply

    assert purge(Raced(), RetentionSettings(days=0, classes={}), lambda age: datetime.now(UTC) - age) == MANY // 2 - 1
    assert store.applies == 2
    assert [each.graph for each in store.entries()] == [graphs[0], *graphs[1::2]]
    store.close()


def test_a_bulk_request_reports_each_line_in_two_transactions(parts: Services) -> None:
    """Lines that another owner or a stale digest forbids are problems at their places; all others are written together."""
    parts.store.apply([_domain(f"d{number}") for number in range(0, MANY, 2)])
    stale = {"digest": "0" * 32}
    body = b"\n".join(_line(number, **(stale if number % 4 == 1 else {})) for number in range(MANY))
    parts.store.applies = 0

    told = [json.loads(each) for each in _post(parts, body, **{HEADER: "kubernetes"}).text.splitlines()]

    found = [each.get("outcome") or each["problem"]["status"] for each in told]
    assert found == [409, 412, 409, "created"] * (MANY // 4)
    assert [each["problem"]["graph"] for each in told[::2]] == [f"{BASE}/id/domain/d{n}" for n in range(0, MANY, 2)]
    assert parts.store.applies == 2


def test_a_store_that_fails_is_reported_for_each_line_after_one_attempt(
    parts: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk refuses the batch, and its lines are not tried one by one."""
    attempts = []

    def full(_: object, writes: Sequence[GraphWrite]) -> list[Written]:
        attempts.append(len(writes))
        raise StoreFull("no room")

    monkeypatch.setattr(Counting, "apply", full)
    told = [json.loads(each) for each in _post(parts, b"\n".join(map(_line, range(10)))).text.splitlines()]
    assert [each["problem"]["status"] for each in told] == [507] * 10
    assert attempts == [10]


def test_an_atomic_request_lists_the_refusals_of_all_lines(parts: Services) -> None:
    """The problem is the first one's, with its line, and lists every line that is refused; nothing was written."""
    parts.store.apply([_domain("d1"), _domain("d3")])
    owned = _post(parts, b"\n".join(map(_line, range(5))), "/subgraphs?atomic=true", **{HEADER: "kubernetes"}).json()
    graphs = [f"{BASE}/id/domain/d{number}" for number in (1, 3)]
    assert (owned["status"], owned["line"], owned["graph"], owned["owner"]) == (409, 2, graphs[0], "user")
    assert [(each["line"], each["graph"], each["owner"]) for each in owned["refusals"]] == [
        (2, graphs[0], "user"),
        (4, graphs[1], "user"),
    ]
    invalid = _post(parts, b"\n".join([_line(0), b"{", _line(5), b"x"]), "/subgraphs?atomic=true").json()
    assert (invalid["status"], invalid["line"]) == (422, 2)
    assert [each["line"] for each in invalid["refusals"]] == [2, 4]
    assert all(each["detail"] for each in invalid["refusals"])
    assert parts.store.entry(f"{BASE}/id/domain/d0") is None


@pytest.mark.parametrize("lists_all", [True, False])
def test_a_follower_writes_what_it_may_in_two_requests(
    service: Service, monkeypatch: pytest.MonkeyPatch, *, lists_all: bool
) -> None:
    """Each refusal is reported as the store would; a service of before, which names only the first, takes a request for each."""
    run, many = uuid.uuid4().hex, 30
    with drumlin.connect(service.url) as client:
        client.apply([_domain(f"{run}-{number:02}") for number in range(0, many, 2)])
        sink = RemoteSink(client, BASE)
        requests = []
        real = client.apply

        def apply(writes: Sequence[GraphWrite], *, atomic: bool) -> object:
            requests.append(len(writes))
            try:
                return real(writes, atomic=atomic)
            except remote.Conflict as error:
                if not lists_all:
                    del error.detail["refusals"]
                raise

        monkeypatch.setattr(client, "apply", apply)
        writes = [
            GraphWrite(each.graph, each.content, "kubernetes:x")
            for each in (_domain(f"{run}-{n:02}") for n in range(many))
        ]
        written, owned = write(sink, writes, remote.MOST)
        assert [type(each) for each in owned] == [GraphOwned] * (many // 2)
        assert [each.detail for each in owned] == [{"graph": each.graph, "owner": "user"} for each in writes[::2]]
        assert [(each.graph, each.outcome) for each in written] == [(each.graph, "created") for each in writes[1::2]]
        assert requests == ([many, many // 2] if lists_all else list(range(many, many // 2 - 1, -1)))
