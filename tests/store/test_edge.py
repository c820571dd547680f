"""The edge by itself: queries that are shared, clients that are counted, documents that are judged, clients that leave."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import msgspec
import pytest

from drumlin.api.app import create_app
from drumlin.api.bootstrap import Services, assemble
from drumlin.api.edge.entry import EdgeApplication
from drumlin.api.edge.parsed_requests import ParsedRequests
from drumlin.api.edge.rate_limit import MAX_CLIENTS, WINDOW, RateLimiter
from drumlin.api.edge.result_cache import CachedResult, ResultCache
from drumlin.api.edge.sparql import SparqlEndpoint
from drumlin.api.http import async_write
from drumlin.api.http.disconnects import unless_disconnected
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import DrumlinError, PreconditionFailed, QueryRejected, ReaderLost, Throttled
from drumlin.kg.rdf.syntax import NTRIPLES
from drumlin.kg.store.query_workers.request import QueryRequest

BASE = "https://kg.example"
NS = "https://w3id.org/drumlin/ns#"
PATIENCE = 30.0
LARGE = bytes(200_000)
DOMAIN = f"{BASE}/id/domain/x"


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """The parts of a service with an empty store."""
    made = assemble(Settings(base=BASE), directory=tmp_path_factory.mktemp("store"))
    yield made
    made.close()


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine, which must end in time."""
    asyncio.run(asyncio.wait_for(work, PATIENCE))


# -- queries that are shared ------------------------------------------------------------------------------------------
class _Result(AsyncIterator[bytes]):
    """A result whose first part is there: whole, or the first of two parts."""

    generation = 1

    def __init__(self, body: bytes, *, whole: bool) -> None:
        self._whole = body if whole else None
        self._parts = [body, b"end"]
        self.closed = False

    def whole(self) -> bytes | None:
        return self._whole

    async def __anext__(self) -> bytes:
        if not self._parts:
            raise StopAsyncIteration
        return self._parts.pop(0)

    def close(self) -> None:
        self.closed = True


class _Asking:
    """Stands for the readers: each query waits until it is let go, then has a result or fails."""

    def __init__(self, parts: Services, make: Callable[[], _Result | DrumlinError]) -> None:
        assert parts.asking
        self.question = parts.asking.question
        self._make = make
        self.asked = 0
        self.results: list[_Result] = []
        self.clients: list[str] = []
        self.go = asyncio.Event()

    async def ask(self, question: QueryRequest) -> _Result:
        self.asked += 1
        self.clients.append(question.client)
        await self.go.wait()
        made = self._make()
        if isinstance(made, DrumlinError):
            raise made
        self.results.append(made)
        return made


class _Metrics:
    """Stands for the metrics, of which nothing is asked."""

    def observe(self, *_: object) -> None:
        """Count nothing."""

    def cached(self, *_: object) -> None:
        """Count nothing."""

    def let_go(self) -> None:
        """Count nothing."""


class _Client:
    """One client of the whole application, which takes an answer piece by piece when it is told to."""

    def __init__(
        self, app: EdgeApplication, path: str, query: str = "", method: str = "GET", address: str = "127.0.0.1"
    ) -> None:
        self._app = app
        self.scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": query.encode(),
            "headers": [(b"host", b"localhost")], "client": (address, 1), "root_path": "", "http_version": "1.1",
            "scheme": "http", "server": ("localhost", 80),
        }  # fmt: skip
        self.status = 0
        self.body = b""
        self.reads = asyncio.Event()
        self.leaves = asyncio.Event()
        self.first = asyncio.Event()

    def sends(self, body: bytes, kind: str) -> _Client:
        self._sent = body
        self.scope["headers"].append((b"content-type", kind.encode()))  # type: ignore[attr-defined]
        return self

    _sent: bytes | None = b""

    async def _receive(self) -> dict[str, Any]:
        if self._sent is not None:
            body, self._sent = self._sent, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        self.first.set()
        await self.reads.wait()
        self.body += message["body"]

    def begin(self) -> asyncio.Task[None]:
        return asyncio.create_task(self._app(self.scope, self._receive, self._send))


def edge_of(parts: Services, asking: _Asking) -> EdgeApplication:
    """Return the application with other readers."""
    app = create_app(parts)
    assert isinstance(app, EdgeApplication)
    app._views.whole.sparql = SparqlEndpoint(parts, asking, app._metrics)  # type: ignore[arg-type]
    return app


async def until_asked(asking: _Asking, times: int) -> None:
    """Let others run until so many queries were asked."""
    while asking.asked < times:  # noqa: ASYNC110 - each turn lets the others run
        await asyncio.sleep(0)


def test_a_query_is_its_clients_whoever_sent_its_text_before(parts: Services) -> None:
    """Readers are asked in the name of the client that asks now, though the request was read for another one."""

    async def ask() -> None:
        asking = _Asking(parts, lambda: Throttled("not now", detail={"retryAfter": 1}))
        app = edge_of(parts, asking)
        asking.go.set()
        for address in ("127.0.0.1", "127.0.0.2"):
            client = _Client(app, "/sparql", "query=SELECT+*+%7B+%3Fs+%3Fp+%3Fo+%7D", address=address)
            client.reads.set()
            await client.begin()
        assert asking.clients == ["127.0.0.1", "127.0.0.2"]

    run(ask())


def test_a_slow_client_of_a_large_result_delays_nobody(parts: Services) -> None:
    """While the first client reads nothing of its stream, those who come after it and those who wait with it are answered whole."""

    async def ask() -> None:
        asking = _Asking(parts, lambda: _Result(LARGE, whole=False))
        app = edge_of(parts, asking)
        slow, beside, later = (_Client(app, "/sparql", "query=SELECT+*+%7B+%3Fs+%3Fp+%3Fo+%7D") for _ in range(3))
        beside.reads.set()
        later.reads.set()
        held = slow.begin()
        await until_asked(asking, 1)
        waiting = beside.begin()
        asking.go.set()
        await slow.first.wait()
        await waiting
        await later.begin()
        assert (beside.body, later.body) == (LARGE + b"end", LARGE + b"end")
        assert not held.done()
        slow.reads.set()
        await held
        assert slow.body == LARGE + b"end"
        assert all(each.closed for each in asking.results)
        assert not app._views.whole.sparql._flights  # type: ignore[union-attr]
        assert not len(app._views.whole.sparql._limiter)  # type: ignore[union-attr]

    run(ask())


def test_the_same_query_runs_once_until_its_first_part(parts: Services) -> None:
    """Those who come while it runs share a small result, and an error; the one who asked first may leave without harm to them."""

    async def ask() -> None:
        small = _Asking(parts, lambda: _Result(b"rows", whole=True))
        await shared(small, status=200, body=b"rows", asked=1)
        failing = _Asking(parts, lambda: QueryRejected("too long", reason="timeout"))
        await shared(failing, status=504, asked=1)
        crowded = _Asking(parts, lambda: Throttled("too many", detail={"retryAfter": 1}))
        await shared(crowded, status=429, asked=3)  # which is said to one client only
        left = _Asking(parts, lambda: _Result(b"rows", whole=True))
        await shared(left, status=200, body=b"rows", asked=3, leaves=True)

    async def shared(
        asking: _Asking, *, status: int, asked: int, body: bytes | None = None, leaves: bool = False
    ) -> None:
        app = edge_of(parts, asking)
        clients = [_Client(app, "/sparql", f"query=ASK+%7B+%3Fs+%3Fp+{asked}{leaves:d}{status}+%7D") for _ in range(3)]
        for each in clients:
            each.reads.set()
        first = clients[0].begin()
        await until_asked(asking, 1)
        others = [each.begin() for each in clients[1:]]
        for _ in range(50):
            await asyncio.sleep(0)
        if leaves:
            clients[0].leaves.set()
            await first
        asking.go.set()
        await asyncio.gather(first, *others)
        assert [each.status for each in clients[1:]] == [status] * 2
        assert body is None or {each.body for each in clients[1:]} == {body}
        assert asking.asked == asked
        assert not app._views.whole.sparql._flights  # type: ignore[union-attr]

    run(ask())


def test_a_query_whose_client_has_left_is_ended_and_counted(parts: Services) -> None:
    """No answer is made for nobody: the query is cancelled, its place is free, and the request counts as 499."""

    async def ask() -> None:
        asking = _Asking(parts, lambda: _Result(b"", whole=True))
        app = edge_of(parts, asking)
        client = _Client(app, "/sparql", "query=ASK+%7B%7D")
        client.reads.set()
        running = client.begin()
        await until_asked(asking, 1)
        client.leaves.set()
        await running
        assert client.status == 499
        assert not len(app._views.whole.sparql._limiter)  # type: ignore[union-attr]

    run(ask())


def test_kept_results_are_bounded_with_their_queries() -> None:
    """What is kept takes so many bytes at most, also when the queries are longer than their results; the oldest goes first."""
    cache = ResultCache(100_000)
    for number in range(200):
        key = f"ASK {{}} # {number} {'x' * 10_000}", ()
        cache.put(1, key, CachedResult(b"true", "text/csv", 1, keep=True))
        assert cache.get(1, key)
    assert len(cache._results) == 100_000 // 11_047
    assert cache.bytes <= 100_000
    cache.put(2, ("ASK {}", ()), CachedResult(b"true", "text/csv", 2, keep=True))
    assert len(cache._results) == 1
    assert cache.bytes < 2000


def test_requests_with_long_headers_are_not_remembered(parts: Services) -> None:
    """What is remembered of a request is short, whichever part of it a client makes long."""
    assert parts.asking
    requests = ParsedRequests(parts.settings, parts.asking)

    async def ask() -> None:
        for number in range(20):
            headers = {b"accept": b"text/csv" + b" " * 10_000 + b"%d" % number}
            await requests.parse("GET", b"query=ASK%7B%7D", headers, b"")

    run(ask())
    assert not requests._found


def test_invented_methods_share_one_label(parts: Services) -> None:
    """A client that sends a new method with each request makes no new series of metrics."""
    app = create_app(parts)
    assert isinstance(app, EdgeApplication)
    counted: list[tuple[Any, ...]] = []
    app._metrics.observe = lambda *given: counted.append(given)  # type: ignore[method-assign, assignment]

    async def ask() -> None:
        for number in range(3):
            client = _Client(app, "/livez", method=f"BREW{number}")
            client.reads.set()
            await client.begin()
            assert client.status == 405

    run(ask())
    assert {each[:3] for each in counted} == {("other", "/livez", 405)}


def test_a_problem_lists_a_bounded_number_of_parameters(parts: Services) -> None:
    """Ten thousand values that are invalid are no megabyte of answer."""

    async def ask() -> None:
        body = msgspec.json.encode({"entities": [1] * 10_000})
        client = _Client(create_app(parts), "/resolve", method="POST").sends(body, "application/json")  # type: ignore[arg-type]
        client.reads.set()
        await client.begin()
        assert client.status == 422
        assert len(msgspec.json.decode(client.body)["parameters"]) == 100

    run(ask())


# -- clients that are counted -----------------------------------------------------------------------------------------
class _Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def limiter(clock: _Clock, *, concurrent: int = 2, kills: int = 2) -> RateLimiter:
    """Return a limiter with a clock that stands still."""
    return RateLimiter(concurrent=concurrent, kills=kills, clock=clock)


def test_a_client_that_ended_all_its_queries_is_forgotten() -> None:
    """Nothing is kept of a thousand clients who have asked and are done; a refused one leaves nothing either."""
    limits = limiter(_Clock())
    for number in range(5000):
        limits.acquire(f"10.0.{number}")
        limits.release(f"10.0.{number}")
    assert len(limits) == 0
    limits.acquire("a")
    limits.acquire("a")
    with pytest.raises(Throttled, match="2 queries of this client are running"):
        limits.acquire("a")
    limits.release("a")
    limits.acquire("a")
    assert len(limits) == 1


@pytest.mark.parametrize(
    "error", [QueryRejected("", reason="timeout"), QueryRejected("", reason="memory"), ReaderLost("")]
)
def test_kills_are_forgotten_after_their_window(error: DrumlinError) -> None:
    """At the limit a client is refused with the seconds that it has to wait; after them it may ask, and nothing is kept of others."""
    clock = _Clock()
    limits = limiter(clock)
    limits.record("other", error)
    for _ in range(2):
        limits.record("", error)  # an address that is not known is one client too
        clock.now += 1
    with pytest.raises(Throttled, match="2 queries of this client had to be killed") as refused:
        limits.acquire("")
    assert refused.value.detail == {"limit": 2, "retryAfter": WINDOW - 2}
    limits.acquire("other")
    limits.release("other")
    clock.now += WINDOW - 2 + 0.5
    limits.acquire("")
    limits.release("")
    clock.now += WINDOW
    limits.acquire("third")
    assert len(limits) == 1


def test_an_error_that_costs_no_reader_is_no_kill() -> None:
    """A query that is refused, or found no reader in time, may be sent as often as one likes."""
    limits = limiter(_Clock(), kills=1)
    for each in (QueryRejected("", reason="syntax"), QueryRejected("", reason="busy"), PreconditionFailed("")):
        limits.record("a", each)
    limits.acquire("a")


def test_the_table_of_clients_is_bounded() -> None:
    """However many addresses have queries killed at the same time, so many are remembered at most: the newest."""
    limits = limiter(_Clock(), kills=1)
    for number in range(MAX_CLIENTS + 100):
        limits.record(str(number), ReaderLost(""))
    assert len(limits) == MAX_CLIENTS
    limits.acquire("0")
    with pytest.raises(Throttled):
        limits.acquire(str(MAX_CLIENTS + 99))


# -- documents that are judged ----------------------------------------------------------------------------------------
def statements(*lines: str) -> bytes:
    """Write statements about a domain as N-Triples."""
    return "".join(f"<{DOMAIN}> {each} .\n" for each in lines).encode()


VALID = statements(f"<http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <{NS}Domain>", f'<{NS}name> "x"')
DOCUMENTS = {
    "valid": (VALID, "application/n-triples", 201, True),
    "valid JSON-LD": (b'{"id":"%s","type":"Domain","name":"x"}' % DOMAIN.encode(), "application/ld+json", 204, True),
    "a hundred faults": (statements(*(f'<{NS}nam{number}> "x"' for number in range(100))), "application/n-triples", 422, False),
    "a hundred faults in JSON-LD": (
        b'{"id":"%s","type":"Domain",%s}' % (DOMAIN.encode(), b",".join(b'"bad%d":1' % n for n in range(100))),
        "application/ld+json",
        422,
        False,
    ),
    "one fault": (VALID + statements(f'<{NS}nam> "x"'), "application/n-triples", 422, False),
    "blank nodes": (b"".join(b"_:a%d <http://e/p> _:a%d .\n" % (n, n + 1) for n in range(300)), "application/n-triples", 422, False),
    "a context of its own": (b'{"@context":{"x":"http://e/"},"@id":"%s","x:p":1}' % DOMAIN.encode(), "application/ld+json", 422, False),
    "no JSON": (b"{", "application/ld+json", 422, False),
    "Turtle": (VALID, "text/turtle", 204, False),
    "RDF/XML that is none": (b"<a>", "application/rdf+xml", 422, False),
    "a valid one that is large": (statements(f"<http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <{NS}Domain>", f'<{NS}name> "{"x" * 20_000}"'), "application/n-triples", 200, False),
}  # fmt: skip


@pytest.mark.parametrize("name", DOCUMENTS)
def test_only_a_quick_valid_document_is_judged_on_the_event_loop(
    parts: Services, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else a client sends is read and judged in a thread, so that nobody waits for its faults to be found."""
    data, kind, status, inline = DOCUMENTS[name]
    judged: list[bool] = []
    putting, parse = parts.subgraphs.putting, parts.subgraphs.parse

    def note(work: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any, **more: Any) -> Any:
            judged.append(threading.current_thread() is threading.main_thread())
            return work(*given, **more)

        return noted

    monkeypatch.setattr(parts.subgraphs, "putting", note(putting))
    monkeypatch.setattr(parts.subgraphs, "parse", note(parse))

    async def ask() -> None:
        client = _Client(create_app(parts), "/subgraph/domain/x", method="PUT").sends(data, kind)  # type: ignore[arg-type]
        client.reads.set()
        await client.begin()
        assert client.status in (status, 201, 204) if status < 400 else client.status == status, client.body

    run(ask())
    assert judged
    assert all(each == inline for each in judged)


def test_a_document_of_a_store_elsewhere_is_never_judged_inline(parts: Services) -> None:
    """Its writes block, so that there is always a thread."""
    store: Any = object()
    assert async_write.quick_content(store, parts.iris, VALID, NTRIPLES, DOMAIN) is None


def test_a_long_query_is_read_in_a_thread(parts: Services) -> None:
    """The gate takes 0.2 ms for a kilobyte, and a query may have a thousand of them."""
    assert parts.asking
    requests = ParsedRequests(parts.settings, parts.asking)
    threads: list[bool] = []
    read = requests._parse

    def noted(*given: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return read(*given)

    requests._parse = noted  # type: ignore[method-assign]

    async def ask() -> None:
        for size in (10, 20_000):
            body = b"ASK {} #" + b"x" * size
            await requests.parse("POST", b"", {b"content-type": b"application/sparql-query"}, body)

    run(ask())
    assert threads == [True, False]


# -- clients that leave -----------------------------------------------------------------------------------------------
def test_work_ends_with_its_client() -> None:
    """What is done for a client that leaves is cancelled and cleaned up before its request ends; else its result or error comes."""
    cleaned: list[str] = []

    async def work(name: str, *, forever: bool = False) -> str:
        try:
            if forever:
                await asyncio.Event().wait()
            if name == "fails":
                raise KeyError(name)
            return name
        finally:
            cleaned.append(name)

    async def stays() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def leaves() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def ask() -> None:
        assert await unless_disconnected(stays, work("a")) == "a"
        assert await unless_disconnected(leaves, work("b", forever=True)) is None
        with pytest.raises(KeyError):
            await unless_disconnected(stays, work("fails"))
        task = asyncio.create_task(unless_disconnected(stays, work("c", forever=True)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(ask())
    assert cleaned == ["a", "b", "fails", "c"]
