"""What a remote store does when writers die, the engine dies or refuses, and when somebody else has been there."""

from __future__ import annotations

import http.server
import itertools
import os
import random
import re
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from drumlin.kg import rdf
from drumlin.kg.config.datasources import Credential, StoreSettings
from drumlin.kg.errors import CapabilityMissing, InvalidSettings, QueryRejected, StoreUnavailable, TooLarge
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.store.remote import bookkeeping_graph, write_lease
from drumlin.kg.store.remote.connection import EngineConnection, UpdateFailed
from drumlin.kg.store.remote.store import RemoteStore
from tests.integration.engines import ENGINES, RunningEngine, engine
from tests.listening import listening
from tests.store_behaviours import JSON, ROOT, A, B, answered, line, read, remove, values, write


@pytest.fixture(scope="module", params=ENGINES)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    """Each engine, for this module."""
    with engine(request.param, tmp_path_factory.mktemp(request.param)) as found:
        yield found


@pytest.fixture
def store(running: RunningEngine) -> Iterator[RemoteStore]:
    """A store in it, emptied by its own means."""
    opened = RemoteStore(running.url, running.settings)
    opened.apply([remove(each.graph, each.owner) for each in opened.entries()])
    yield opened
    opened.close()


class Clock:
    """A clock that only sleeping moves on, a second each time."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        """Return the time."""
        return self._now

    def sleep(self, _: float) -> None:
        """Let a second pass."""
        self._now += 1


def another(running: RunningEngine) -> RemoteStore:
    """Open a second store, as another process would."""
    return RemoteStore(running.url, running.settings)


def test_a_writer_that_died_is_waited_for_and_then_passed_over(
    running: RunningEngine, store: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that shows no life is taken away after a while; its late owner can write nothing any more."""
    clock = Clock()
    monkeypatch.setattr(write_lease, "time", clock)
    dead = EngineConnection(running.url, running.settings)
    dead.update(bookkeeping_graph.claim("dead"))
    store.apply([write(A, 1)])

    assert clock.monotonic() > write_lease.ABANDONED
    with pytest.raises(UpdateFailed):
        dead.update(
            f"{bookkeeping_graph.fence('dead')} ;\n INSERT DATA {{ GRAPH <{A}> {{ <http://x> <http://p> 1 }} }}"
        )
    dead.close()
    assert read(store, A).lines == {line(A, 1)}


def test_a_write_that_was_cut_is_finished_by_the_next(
    running: RunningEngine, store: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that dies between any two requests leaves all of its write or none, and books that agree with it."""
    if running.name != "virtuoso":
        pytest.skip("its update is one transaction")
    monkeypatch.setattr(write_lease, "_TOGETHER", 2)
    monkeypatch.setattr(write_lease, "QUICK", 0.2)
    store.apply([write(A, 0), write(B, 0)])
    for requests in itertools.count(1):
        before = store.generation
        doomed = another(running)
        try:
            with _dying(doomed, after=requests):
                doomed.apply([write(A, requests, "a" * 10), write(B, requests)])
            break
        except StoreUnavailable:
            pass
        finally:
            doomed.close()
        survivor = another(running)
        survivor.apply([write(f"{ROOT}prod/c/pod/z", requests)])
        told = [read(survivor, graph) for graph in (A, B)]
        numbers = [{each.split('"')[1] for each in found.lines} - {"a" * 10} for found in told]
        assert numbers[0] == numbers[1], f"cut after {requests} requests"
        assert len({each.entry.generation for each in told}) == 1
        last = [each for each in survivor.log(before) if each.graph == A]
        assert [each.after for each in last][-1:] == ([told[0].entry.digest] if numbers[0] == {str(requests)} else [])
        survivor.apply([write(A, "x", requests), write(B, "x", requests)])
        survivor.close()
    assert requests > 5


@contextmanager
def _dying(store: RemoteStore, *, after: int) -> Iterator[None]:
    """Let the store's updates through up to a number of them, and none later: as if the process had been killed."""
    passed = store._connection.update
    count = 0

    def update(text: str) -> None:
        nonlocal count
        count += 1
        if count > after:
            raise StoreUnavailable("killed")
        passed(text)

    store._connection.update = update
    yield


def test_a_killed_engine_keeps_what_it_acknowledged(
    tmp_path: Path, running: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After kill -9 of the engine under load, everything acknowledged is there, whole, and the log agrees."""
    directory = tmp_path / "killed"
    acknowledged: dict[str, int] = {}

    def load(opened: RemoteStore, part: int) -> None:
        number = 0
        while True:
            graph = f"{ROOT}prod/k/pod/p{part}-{number % 7}"
            try:
                opened.apply([write(graph, number, *range(5))])
            except StoreUnavailable:
                return
            acknowledged[graph] = number
            number += 1

    with engine(running.name, directory) as first:
        stores = [another(first) for _ in range(2)]
        threads = [threading.Thread(target=load, args=(each, part)) for part, each in enumerate(stores)]
        for each in threads:
            each.start()
        deadline = time.monotonic() + 60
        while len(acknowledged) < 2 and time.monotonic() < deadline:  # a busy machine begins slowly
            time.sleep(0.02)
        time.sleep(random.uniform(0, 1))
        first.process.kill()
        first.process.wait()
        for each in threads:
            each.join()
        for opened in stores:
            opened.close()
    with engine(running.name, directory) as second:
        again = another(second)
        monkeypatch.setattr(write_lease, "QUICK", 0.2)
        again.apply([write(A, "after")])
        for graph, number in acknowledged.items():
            kept = {each.split('"')[1] for each in read(again, graph).lines}
            assert any(str(later) in kept for later in (number, number + 7)), graph
        changes = {each.graph: each.after for each in again.log(0, limit=10**6)}
        assert changes == {each.graph: each.digest for each in again.entries()}
        again.close()
    assert acknowledged


class Door(http.server.ThreadingHTTPServer):
    """A way to an engine on which one request, counted from when ``after`` is set, goes wrong in a way that is named."""

    daemon_threads = True

    def __init__(self, running: RunningEngine) -> None:
        super().__init__(("127.0.0.1", 0), _Through)
        self.upstream = running.url.removeprefix("sparql+")
        self.fault = ""
        self.after = 0
        self.url = f"sparql+http://127.0.0.1:{self.server_address[1]}"


class _Through(http.server.BaseHTTPRequestHandler):
    server: Door
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Pass a request on, unless it is its turn to go wrong; Digest's first try without a credential is none."""
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.after -= 1
        fault = self.server.fault if self.server.after == 0 else ""
        if fault == "refused":
            return self._answer(500, "text/plain", b"out of order")
        if fault == "garbage":
            return self._answer(200, "text/html", b"<html>welcome</html>")
        kept = {each: self.headers[each] for each in ("Content-Type", "Accept", "Authorization") if self.headers[each]}
        with httpx.Client(timeout=60, trust_env=False, verify=False) as http:
            answer = http.post(self.server.upstream + self.path, content=content, headers=kept)
        if answer.status_code == 401:
            self.server.after += 1
        if fault == "unheard":
            self.close_connection = True
            return None
        return self._answer(answer.status_code, answer.headers.get("Content-Type", ""), answer.content, answer.headers)

    def _answer(self, status: int, kind: str, content: bytes, more: Mapping[str, str] = MappingProxyType({})) -> None:
        self.send_response(status)
        for name in ("WWW-Authenticate",):
            if name in more:
                self.send_header(name, more[name])
        if kind:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize("fault", ["refused", "garbage", "unheard"])
def test_whatever_the_engine_answers_a_write_is_whole_or_not_there(
    running: RunningEngine, store: RemoteStore, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Each request of a write answered 500, by a page, or not at all: what is said of the write is true, and the next one goes through."""
    monkeypatch.setattr(write_lease, "QUICK", 0.1)
    store.apply([write(A, 0), write(B, 0)])
    settings = running.settings.model_copy(update={"engine": running.name})
    with listening(Door(running)) as door:
        for place in itertools.count(1):
            told = None
            with closing(RemoteStore(door.url, settings)) as doomed, suppress(StoreUnavailable, QueryRejected):
                door.fault, door.after = fault, place
                told = doomed.apply([write(A, place), write(B, place)])
            found = [read(store, graph).lines for graph in (A, B)]
            if told or found[0] == {line(A, place)}:
                assert found == [{line(A, place)}, {line(B, place)}]
            else:
                assert found == [{line(A, place - 1)}, {line(B, place - 1)}]
            store.apply([write(A, place), write(B, place)])
            if door.after > 0:
                break
    assert place > 3
    last = {each.graph: each.after for each in store.log(0, limit=10**6)}
    assert {each.graph: each.digest for each in store.entries()} == {
        graph: digest for graph, digest in last.items() if digest
    }


def test_a_live_writer_is_never_passed_over_however_slow_its_engine(
    running: RunningEngine, store: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its request runs for longer than a claim lasts, it shows life, and the other waits."""
    if running.name == "virtuoso":
        pytest.skip("a write is many short requests there, with a sign of life between them")
    monkeypatch.setattr(write_lease, "QUICK", 0.3)
    monkeypatch.setattr(write_lease, "BEAT", 0.05)
    slow = another(running)
    passed = slow._connection.update
    begun = threading.Event()

    def update(text: str) -> None:
        if text.startswith("DROP GRAPH"):  # the fence: this is the write
            begun.set()
            time.sleep(1.0)
        passed(text)

    monkeypatch.setattr(slow._connection, "update", update)
    thread = threading.Thread(target=slow.apply, args=([write(A, "slow")],))
    thread.start()
    assert begun.wait(20)
    store.apply([write(B, "next")])
    thread.join()

    assert read(store, A).entry.generation < read(store, B).entry.generation
    slow.close()


def test_a_writer_that_was_paused_amid_its_requests_writes_nothing_late(
    running: RunningEngine, store: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever request of a write comes after another writer has taken the claim away is refused, and what the write is said to be is true."""
    monkeypatch.setattr(write_lease, "QUICK", 0.1)
    monkeypatch.setattr(write_lease, "_TOGETHER", 3)
    store.apply([write(A, 0), write(B, 0)])
    for place in itertools.count(1):
        paused = another(running)
        passed, requests = paused._connection.update, itertools.count(1)

        def update(
            text: str, passed: Callable[[str], None] = passed, requests: Iterator[int] = requests, place: int = place
        ) -> None:
            if next(requests) == place:
                store.apply([write(A, "newer", place), write(B, "newer", place)])
            passed(text)

        monkeypatch.setattr(paused._connection, "update", update)
        with closing(paused), suppress(StoreUnavailable):
            paused.apply([write(A, "older", place), write(B, "older", place)])
        found = [{each.split('"')[1] for each in read(store, graph).lines} for graph in (A, B)]
        assert found[0] == found[1]
        reached = next(requests) > place
        assert found[0] == ({"newer", str(place)} if reached and place > 1 else {"older", str(place)})
        if not reached:
            break
    assert place > 2


def test_an_engine_that_hangs_makes_nobody_pass_over_anybody(
    running: RunningEngine, store: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that got no answer are errors in time; while nothing is answered no claim grows old, and all goes on when the engine does."""
    store.apply([write(A, 1)])
    settings = running.settings.model_copy(update={"timeout": 0.3, "engine": running.name})
    with closing(RemoteStore(running.url, settings)) as hasty:
        os.kill(running.process.pid, signal.SIGSTOP)
        try:
            for attempt in (lambda: hasty.apply([write(A, 2)]), lambda: hasty.read(A)):
                with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.3 s"):
                    attempt()
        finally:
            os.kill(running.process.pid, signal.SIGCONT)
    monkeypatch.setattr(write_lease, "QUICK", 0.2)
    store.apply([write(B, 3)])

    assert read(store, A).lines == {line(A, 1)}


def test_a_full_disk_refuses_writes_and_goes_on_reading(
    running: RunningEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is half written; with room again Virtuoso goes on by itself, Oxigraph's server once it is started anew."""
    monkeypatch.setattr(write_lease, "QUICK", 0.1)
    directory = tmp_path / "full"
    with engine(running.name, directory, bounded=True) as full, closing(another(full)) as opened:
        opened.apply([write(A, 1), write(B, 1)])
        resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        with pytest.raises(StoreUnavailable):
            opened.apply([write(A, 2), write(B, *range(2000))])
        assert [read(opened, graph).lines for graph in (A, B)] == [{line(A, 1)}, {line(B, 1)}]
        resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        if running.name == "virtuoso":
            opened.apply([write(A, 3)])
            return
        with pytest.raises(StoreUnavailable):
            opened.apply([write(A, 3)])
    with engine(running.name, directory) as again, closing(another(again)) as opened:
        assert read(opened, A).lines == {line(A, 1)}
        opened.apply([write(A, 3)])


def test_what_somebody_else_wrote_is_noticed(
    running: RunningEngine, store: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph that was changed behind the store's back is an error that names it, not a wrong answer; the next write mends it."""
    monkeypatch.setattr("drumlin.kg.store.remote.store._SETTLING", 0.2)
    store.apply([write(A, 1)])
    somebody = EngineConnection(running.url, running.settings)
    somebody.update(f'INSERT DATA {{ GRAPH <{A}> {{ <{A}> <http://p/value> "2" }} }}')
    somebody.close()

    with pytest.raises(StoreUnavailable, match="not what Drumlin has written"):
        store.read(A)
    store.apply([write(A, 3)])
    assert read(store, A).lines == {line(A, 3)}


def test_a_query_past_its_deadline_is_a_timeout(store: RemoteStore) -> None:
    """The client gives up at the deadline and says so as for every other store."""
    store.apply([write(A, *range(400))])
    query = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l FILTER(?c != ?f && ?i != ?l && STR(?a) != ?c) }"
    with pytest.raises(QueryRejected) as refused:
        b"".join(store.answer(query, media_type=JSON, timeout=0.5).chunks)

    assert refused.value.reason == "timeout"


def test_rows_that_virtuoso_cuts_are_an_error(running: RunningEngine, store: RemoteStore) -> None:
    """An answer as long as the engine's limit is refused, a graph that could not be read back too; Oxigraph has no limit."""
    many = [write(f"{ROOT}prod/r/pod/p{number}", *range(600)) for number in range(18)]
    store.apply(many)
    queries = {"SELECT * { ?s ?p ?o }": JSON, "CONSTRUCT { ?s ?p ?o } { ?s ?p ?o }": "application/n-triples"}
    large = GraphWrite.of(A, frozenset(line(A, number) for number in range(10_001)), "user")
    if running.name == "oxigraph":
        assert [answered(store, query, kind).count("p/value") for query, kind in queries.items()] == [18 * 600] * 2
        store.apply([large])
        assert read(store, A).lines == large.lines
        return
    for query, kind in queries.items():
        with pytest.raises(TooLarge, match="10,000"):
            answered(store, query, kind)
    with pytest.raises(CapabilityMissing) as refused:
        store.apply([large])
    assert refused.value.detail["capability"] == "UNLIMITED_ROWS"


def test_blank_nodes_are_refused(store: RemoteStore) -> None:
    """What the protocol cannot name is refused as a capability that is lacking, and nothing is written."""
    with pytest.raises(CapabilityMissing) as refused:
        store.apply(
            [write(A, 1), GraphWrite.of("http://elsewhere/b", frozenset({"_:b <http://p> <http://o> ."}), "user")]
        )

    assert refused.value.detail["capability"] == "BLANK_NODES"
    assert store.read(A) is None


TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
NAMES = st.sampled_from(
    ["integer", "decimal", "double", "boolean", "dateTime", "duration", "date", "float", "string", "long"]
)
NUMBERS = (
    st.integers().map(str)
    | st.decimals(allow_nan=False, allow_infinity=False).map(str)
    | st.booleans().map(lambda b: str(b).lower())
)


@given(
    texts=st.lists(TEXTS, max_size=5),
    typed=st.lists(st.tuples(NUMBERS | TEXTS, NAMES), max_size=6),
    tag=st.sampled_from(["de", "en-GB"]),
)
@hypothesis_settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_any_literal_comes_back(store: RemoteStore, texts: list[str], typed: list[tuple[str, str]], tag: str) -> None:
    """Whatever the texts, numbers and types, well-formed or not, a graph is read back as it was written."""
    xsd = "http://www.w3.org/2001/XMLSchema#"
    objects = [bookkeeping_graph.literal(text) for text in texts] + [
        f"{bookkeeping_graph.literal(text)}@{tag}" for text in texts
    ]
    objects += [f"{bookkeeping_graph.literal(text)}^^<{xsd}{name}>" for text, name in typed]
    lines = rdf.parse("\n".join(f"<{A}> <http://p/value> {each} ." for each in objects).encode(), rdf.NTRIPLES)
    content = lines.get(None, frozenset())
    store.apply([GraphWrite.of(A, content, "user")])

    assert read(store, A).lines == content


class _Odd(http.server.BaseHTTPRequestHandler):
    """A server that is no engine: redirects, or refuses."""

    status = 302

    def do_GET(self) -> None:
        """Answer anything, or hang up."""
        if not self.status:
            self.close_connection = True
            return
        self.send_response(self.status)
        self.send_header("Server", "Odd/1")
        self.send_header("Location", "http://127.0.0.1:9/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def odd() -> Iterator[Callable[[int], str]]:
    """Serve one status at an address."""
    with listening(http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Odd)) as server:

        def at(status: int) -> str:
            _Odd.status = status
            return f"sparql+http://127.0.0.1:{server.server_address[1]}"

        yield at


def test_an_engine_that_is_none_is_named(odd: Callable[[int], str]) -> None:
    """A redirect is not followed, a refused credential is said, an unknown server is not taken for an engine."""
    oxigraph = StoreSettings(engine="oxigraph")
    with pytest.raises(StoreUnavailable, match="redirect"):
        RemoteStore(odd(302), oxigraph)
    with pytest.raises(StoreUnavailable, match="credential"):
        RemoteStore(odd(401), oxigraph)
    with pytest.raises(InvalidSettings, match="none of"):
        RemoteStore(odd(200))
    for address in ("sparql+ftp://x", "sparql+http://", "sparql+http://u:p@host", "sparql+http://h?x=1"):
        with pytest.raises(InvalidSettings):
            RemoteStore(address)


@pytest.mark.parametrize(
    ("address", "reason", "hint"),
    [
        ("sparql+http://127.0.0.1:{closed}", "cannot be reached: nobody listens there", "this is its port"),
        ("sparql+https://127.0.0.1:{odd}", "cannot be reached: it does not speak TLS", "http://"),
        ("sparql+http://127.0.0.1:{odd}", "cannot be reached: .*disconnected", "its log"),
        ("sparql+http://127.0.0.1:{silent}", r"did not answer within 0\.2 s", "store.timeout"),
    ],
)
def test_why_an_engine_is_not_reached_is_said_in_words(
    odd: Callable[[int], str], address: str, reason: str, hint: str
) -> None:
    """The error says what is wrong and what to do about it, not which class of which library noticed."""
    with socket.socket() as free, socket.create_server(("127.0.0.1", 0)) as silent:
        free.bind(("127.0.0.1", 0))
        ports = {"closed": free.getsockname()[1], "odd": urlsplit(odd(0)).port, "silent": silent.getsockname()[1]}
        with pytest.raises(StoreUnavailable, match=reason) as error:
            RemoteStore(address.format(**ports), StoreSettings(engine="oxigraph", timeout=0.2))
    assert re.search(hint, str(error.value.hint))


def test_a_credential_is_read_when_it_is_used_and_never_told(odd: Callable[[int], str], tmp_path: Path) -> None:
    """A missing secret is an error that does not say where it was looked for; a wrong one is never in the error."""
    missing = StoreSettings(engine="oxigraph", credential=Credential(secret=f"file:{tmp_path / 'none'}", username="u"))
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        RemoteStore(odd(200), missing)
    (tmp_path / "secret").write_text("hunter2")
    wrong = StoreSettings(engine="virtuoso", credential=Credential(secret=f"file:{tmp_path / 'secret'}", username="u"))
    with pytest.raises(StoreUnavailable) as refused:
        RemoteStore(odd(401), wrong)
    assert "hunter2" not in str(refused.value)


def test_a_closed_store_says_so(running: RunningEngine) -> None:
    """After ``close`` everything is refused with one clear error."""
    opened = another(running)
    opened.close()

    with pytest.raises(StoreUnavailable, match="closed"):
        opened.apply([write(A, 1)])
    with pytest.raises(StoreUnavailable, match="closed"):
        values(opened, "SELECT ?v { ?s ?p ?v }")
