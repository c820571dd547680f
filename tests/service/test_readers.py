"""Queries of a running service: deadlines, disconnects, limits, the result cache, and what is seen from outside."""

from __future__ import annotations

import itertools
import os
import re
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from tests.service.conftest import Service, serving

COUNT = "SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }"
RUNAWAY = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l . ?m ?n2 ?o }"
ENDLESS = "SELECT * { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }"
TRIPLE = "<https://kg.example/x> <https://kg.example/p> {} ."
PATIENCE = 30.0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of its own, with low limits and a few hundred quads."""
    store = tmp_path_factory.mktemp("store")
    limits = {"DRUMLIN_QUERY_KILLS": "1000", "DRUMLIN_SLOW_QUERY": "0.2", "DRUMLIN_READERS": "2"}
    with serving("--store", str(store), environment=limits) as service:
        write(service, 200)
        yield service


def write(service: Service, size: int) -> int:
    """Put a foreign graph of ``size`` triples."""
    content = "\n".join(TRIPLE.format(number) for number in range(size)) + "\n"
    answer = httpx.put(
        f"{service.url}/store?graph=https://elsewhere.example/g",
        content=content,
        headers={"Content-Type": "text/turtle"},
        timeout=30,
    )
    assert answer.status_code in (200, 201, 204), answer.text
    return size


def ask(service: Service, query: str, **parameters: str) -> httpx.Response:
    """Send a query by GET."""
    return httpx.get(f"{service.url}/sparql", params={"query": query, **parameters}, timeout=60)


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def metric(service: Service, name: str) -> float:
    """Read one sample of /metrics; 0 when it is not there yet."""
    for line in httpx.get(f"{service.url}/metrics").text.splitlines():
        if line.startswith(name + " "):
            return float(line.rsplit(" ", 1)[1])
    return 0.0


def children(service: Service) -> list[int]:
    """Give the pids of the service's processes: readers and workers."""
    pid = service.process.pid
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # the thread has ended
            found += [int(each) for each in (task / "children").read_text().split()]
    return found


def readers(service: Service) -> list[int]:
    """Give the pids of the service's reader processes."""
    return [each for each in children(service) if b"query_workers.main" in Path(f"/proc/{each}/cmdline").read_bytes()]


def test_a_runaway_gets_504_after_its_deadline(running: Service) -> None:
    """The problem document says that the time ran out, others are answered meanwhile."""
    ask(running, COUNT)
    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(ask, running, RUNAWAY, timeout="1")
        beside = [ask(running, f"{COUNT} LIMIT {number + 1}").status_code for number in range(20)]
        answer = stopped.result()
    assert answer.status_code == 504, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["title"] == "Query rejected"
    assert beside == [200] * 20


@pytest.mark.parametrize("value", ["0", "-1", "soon", "inf", "nan"])
def test_a_timeout_that_is_none_is_refused(running: Service, value: str) -> None:
    """Only a positive number of seconds is a deadline."""
    assert ask(running, COUNT, timeout=value).status_code == 400


def test_a_result_that_takes_too_long_is_cut(running: Service) -> None:
    """After a 200 the body ends without its last chunk, and no text is appended to it."""
    received: list[bytes] = []

    def read(answer: httpx.Response) -> None:
        nonlocal received
        for part in answer.iter_raw():
            received += [part[:1000]]  # one by one: what came before the cut counts

    parameters = {"query": ENDLESS, "timeout": "1"}
    with httpx.stream(
        "GET",
        f"{running.url}/sparql",
        params=parameters,
        headers={"Accept": "text/csv", "Accept-Encoding": "identity"},
        timeout=60,
    ) as answer:
        assert answer.status_code == 200
        with pytest.raises(httpx.RemoteProtocolError):
            read(answer)
    assert received[0].startswith(b"a,b,c,")
    assert not any(b"deadline" in part for part in received)


def test_a_client_that_leaves_frees_its_reader(running: Service) -> None:
    """Both readers are taken by clients that go; the next query is answered within a moment."""
    for query in (RUNAWAY, ENDLESS, RUNAWAY):
        left = metric(running, 'drumlin_queries_total{outcome="abandoned"}')
        with pytest.raises(httpx.TimeoutException):
            httpx.post(
                f"{running.url}/sparql",
                content=query,
                headers={"Content-Type": "application/sparql-query"},
                timeout=0.5,
            ).read() if query is RUNAWAY else _leave(running, query)
        until(lambda left=left: metric(running, 'drumlin_queries_total{outcome="abandoned"}') > left)
    assert ask(running, COUNT + " OFFSET 0").status_code == 200


def _leave(service: Service, query: str) -> None:
    with httpx.stream("GET", f"{service.url}/sparql", params={"query": query}, timeout=30) as answer:
        next(answer.iter_raw())
    raise httpx.ReadTimeout("left")


def test_a_slow_client_costs_no_memory_and_delays_no_write(running: Service) -> None:
    """While a client reads nothing of an endless result, writes go on and the service's memory stays where it was."""
    host, port = running.url.removeprefix("http://").split(":")
    request = f"GET /sparql?query={httpx.QueryParams({'q': ENDLESS})['q'].replace(' ', '%20')}&timeout=4 HTTP/1.1\r\nHost: localhost\r\nAccept: text/csv\r\n\r\n"
    with socket.create_connection((host, int(port))) as slow:
        slow.sendall(request.replace("{", "%7B").replace("}", "%7D").replace("?a", "%3Fa").encode())
        assert slow.recv(1000).startswith(b"HTTP/1.1 200")
        before = _rss(running.process.pid)
        for size in range(201, 221):
            write(running, size)
            assert (
                str(size).encode() in ask(running, "SELECT (COUNT(*) AS ?n) { ?s <https://kg.example/p> ?o }").content
            )
        assert _rss(running.process.pid) - before < 30 * 2**20


def _rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_a_repeated_query_is_answered_from_the_cache_until_a_write(running: Service) -> None:
    """The second answer is the first one; If-None-Match gives 304; after a write both are new."""
    query = "SELECT (COUNT(*) AS ?cached) { ?s <https://kg.example/p> ?o }"
    first, hits = ask(running, query), metric(running, 'drumlin_query_cache_total{result="hit"}')
    second = ask(running, query)
    assert (second.content, second.headers["ETag"]) == (first.content, first.headers["ETag"])
    assert metric(running, 'drumlin_query_cache_total{result="hit"}') == hits + 1
    etag = {"If-None-Match": f'"x", {first.headers["ETag"]}'}
    unchanged = httpx.get(f"{running.url}/sparql", params={"query": query}, headers=etag)
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert unchanged.headers["ETag"] == first.headers["ETag"]
    as_csv = httpx.get(f"{running.url}/sparql", params={"query": query}, headers={"Accept": "text/csv"})
    assert as_csv.headers["ETag"] != first.headers["ETag"]
    write(running, 77)
    third = httpx.get(f"{running.url}/sparql", params={"query": query}, headers=etag)
    assert third.status_code == 200
    assert '"77"' in third.text
    assert int(third.headers["X-Drumlin-Generation"]) > int(first.headers["X-Drumlin-Generation"])
    assert third.headers["Cache-Control"] == "no-cache"


@pytest.mark.parametrize("call", ["NOW()", "RAND()", "UUID()", "STRUUID()", "STR(BNODE())"])
def test_what_changes_by_itself_is_never_kept(running: Service, call: str) -> None:
    """A query whose answer differs each time runs each time, and has no ETag."""
    query = f"SELECT ({call} AS ?x) {{}}"
    first, second = ask(running, query), ask(running, query)
    assert first.status_code == second.status_code == 200
    assert "ETag" not in first.headers
    assert first.content != second.content or call in ("NOW()", "STR(BNODE())")


def test_head_is_get_without_a_body(running: Service) -> None:
    """Small and endless results alike have headers and no content."""
    for query in (COUNT, ENDLESS):
        answer = httpx.head(f"{running.url}/sparql", params={"query": query}, timeout=30)
        assert (answer.status_code, answer.content) == (200, b"")
        assert "X-Drumlin-Generation" in answer.headers


def test_the_same_query_from_many_clients_runs_once(running: Service) -> None:
    """Sixteen clients that ask at once get one result, from one run or from the cache."""
    query = "SELECT (COUNT(*) AS ?together) { ?a ?b ?c . ?d ?e ?f }"
    ran = metric(running, 'drumlin_queries_total{outcome="answered"}')
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: ask(running, query), range(16)))
    assert {each.status_code for each in answers} == {200}
    assert len({each.content for each in answers}) == 1
    assert metric(running, 'drumlin_queries_total{outcome="answered"}') == ran + 1


def test_a_slow_query_is_logged_by_its_digest(running: Service) -> None:
    """The log has times, a digest and the request's id, never the query's text."""
    query = "SELECT (COUNT(*) AS ?secretname) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }"
    parameters = {"query": query, "timeout": "0.5"}
    httpx.get(f"{running.url}/sparql", params=parameters, headers={"X-Request-Id": "slow-one"}, timeout=60)
    until(lambda: any("query_slow" in line and "slow-one" in line for line in running.log))
    assert not any("secretname" in line for line in running.log)


def test_a_crash_of_the_engine_is_one_500(running: Service) -> None:
    """A reader that is killed amid a query costs that request only."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, running, RUNAWAY, timeout="20")
        busy = metric(running, "drumlin_readers")
        time.sleep(0.5)
        for pid in readers(running):
            os.kill(pid, signal.SIGKILL)
        answer = asked.result()
    assert answer.status_code == 500, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    until(lambda: metric(running, "drumlin_readers") >= busy)
    until(lambda: ask(running, COUNT + " OFFSET 0").status_code == 200)
    assert metric(running, 'drumlin_reader_restarts_total{reason="crash"}') >= 1


def test_a_client_has_its_share_of_queries_and_of_kills(tmp_path: Path) -> None:
    """Too many at once, and too many that had to be killed, are 429 with numbers and Retry-After; waiting for others costs nothing.

    The deadline is the configured one, whatever the request asks for.
    """
    limits = {"CONCURRENCY": "2", "KILLS": "3", "TIMEOUT": "2"}
    environment = {"DRUMLIN_READERS": "2", **{f"DRUMLIN_QUERY_{name}": value for name, value in limits.items()}}
    other = httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.2"), timeout=60)
    with other, serving("--store", str(tmp_path), environment=environment) as service, ThreadPoolExecutor(3) as pool:
        write(service, 200)
        asked = [pool.submit(ask, service, f"{RUNAWAY} LIMIT {n + 1}", timeout="60") for n in range(3)]
        until(lambda: any(each.done() for each in asked))  # one is refused, so two have the readers
        crowded = [other.get(f"{service.url}/sparql", params={"query": COUNT, "timeout": "0.1"}) for _ in range(4)]
        answers = [each.result(PATIENCE) for each in asked]
        assert all(each.is_success or (each.status_code, each.json()["reason"]) == (504, "busy") for each in crowded)
        assert other.get(f"{service.url}/sparql", params={"query": COUNT}).status_code == 200
        assert sorted(each.status_code for each in answers) == [429, 504, 504]
        assert all(
            re.search(r"\b2(\.| s)", each.json()["detail"]) for each in answers if each.status_code == 504
        )  # not after 60 s
        (refused,) = [each for each in answers if each.status_code == 429]
        assert int(refused.headers["Retry-After"]) >= 1
        assert (refused.json()["limit"], "2" in refused.json()["detail"]) == (2, True)
        for _ in range(5):  # one of the two gave way, which is no kill
            if (banned := ask(service, RUNAWAY, timeout="0.2")).status_code == 429:
                break
        assert banned.status_code == 429
        assert 1 <= int(banned.headers["Retry-After"]) <= 60
        assert banned.json()["limit"] == 3


def test_readers_do_not_outlive_a_service_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL of the service ends its readers, busy ones too; the next start leaves only its own folders."""
    with serving("--store", str(tmp_path)) as service:
        write(service, 200)
        pids = readers(service)
        assert pids
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask, service, RUNAWAY)
            time.sleep(0.3)
            service.process.kill()
            with pytest.raises(httpx.TransportError):
                asked.result()
        until(lambda: not any(_runs(pid) for pid in pids))
    with serving("--store", str(tmp_path)) as service:
        assert ask(service, COUNT).status_code == 200
        assert len(list((tmp_path / "readers").iterdir())) <= len(readers(service))
        service.stop()
    assert not (tmp_path / "readers").exists()


def _runs(pid: int) -> bool:
    try:
        return "query_workers.main" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


PART = TRIPLE.replace("example/p>", "example/part>")  # counted by no other test
PARTS = {
    "query": lambda url, number: httpx.post(f"{url}/sparql", data={"query": f"{COUNT} # {number}"}, timeout=60),
    "parse": lambda url, number: httpx.put(
        f"{url}/store?graph=https://elsewhere.example/k",
        content=PART.format(f"( {number} )"),
        headers={"Content-Type": "text/turtle"},
        timeout=60,
    ),
    "update": lambda url, number: httpx.post(
        f"{url}/sparql/update",
        data={
            "update": f"CREATE SILENT GRAPH <http://x/k> ; INSERT {{ <http://x/k> <http://x/p> {number} }} WHERE {{}}"
        },
        timeout=60,
    ),
    "bulk": lambda url, number: httpx.post(
        f"{url}/subgraphs",
        content="".join(
            f'{{"op":"put","id":"domain/k{each}","document":{{"type":"Domain","name":"{number}","@context":{{}}}}}}\n'
            for each in range(50)
        ),
        headers={"Content-Type": "application/x-ndjson"},
        timeout=60,
    ),
}
"""Requests that need a process beside the service."""


def test_no_request_is_left_alone_when_its_process_dies(running: Service) -> None:
    """While all readers and workers are killed again and again, each request is answered or refused in words, and then all work."""
    stop, answers = threading.Event(), list[httpx.Response]()

    def go_on(part: str) -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            answers.append(PARTS[part](running.url, number))

    with ThreadPoolExecutor(len(PARTS)) as clients:
        working = [clients.submit(go_on, part) for part in PARTS]
        for _ in range(15):
            before = len(answers)
            until(lambda before=before: len(answers) > before)  # type: ignore[misc]
            for pid in children(running):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        stop.set()
        for each in working:
            each.result()
    for answer in answers:
        assert answer.is_success or (answer.status_code in (500, 503) and answer.json()["detail"]), answer.text
        assert answer.status_code != 500 or answer.json()["type"].endswith("/reader-lost"), answer.text
    for part in PARTS.values():
        until(lambda part=part: part(running.url, 7).is_success)  # type: ignore[misc]
    assert httpx.get(f"{running.url}/livez").status_code == 200


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_result_is_compressed_under_an_etag_of_its_own(running: Service, coding: str) -> None:
    """The plain and the compressed form are the same result; either ETag is known again by whoever sends it."""
    query = "SELECT * { ?s <https://kg.example/p> ?o } ORDER BY ?o"
    plain = _get(running, query, "identity")
    assert len(plain.content) > 5000
    packed = _get(running, query, f"{coding};q=1, identity;q=0.5")
    assert packed.headers["Content-Encoding"] == coding
    assert int(packed.headers["Content-Length"]) < len(plain.content) / 4
    assert packed.content == plain.content
    assert packed.headers["ETag"] == f'{plain.headers["ETag"][:-1]}-{coding}"'
    assert plain.headers["Vary"] == packed.headers["Vary"] == "Accept, Accept-Encoding"
    for etag in (plain.headers["ETag"], packed.headers["ETag"]):
        known = _get(running, query, coding, **{"If-None-Match": etag})
        assert (known.status_code, known.content, known.headers["ETag"]) == (304, b"", etag)
    assert _get(running, query, coding, **{"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_large_result_is_compressed_as_it_goes(running: Service, coding: str) -> None:
    """A stream is chunked and compressed, and is what the plain one is."""
    query = "SELECT ?a ?d { ?a <https://kg.example/p> ?b . ?d <https://kg.example/p> ?e } ORDER BY ?b ?e LIMIT 5000"
    packed, plain = _get(running, query, coding), _get(running, query, "identity")
    assert packed.headers["Content-Encoding"] == coding
    assert {"Content-Length", "ETag"}.isdisjoint(packed.headers)
    assert len(plain.content) > 65_536
    assert packed.content == plain.content


def test_a_small_result_stays_as_it_is(running: Service) -> None:
    """What fits into a packet is not compressed."""
    assert "Content-Encoding" not in _get(running, COUNT, "gzip, zstd").headers


def _get(service: Service, query: str, coding: str, **headers: str) -> httpx.Response:
    sent = {"Accept": "application/sparql-results+json", "Accept-Encoding": coding, **headers}
    return httpx.get(f"{service.url}/sparql", params={"query": query}, headers=sent, timeout=60)


def test_sorting_a_billion_rows_is_stopped(running: Service) -> None:
    """A result that is larger than any memory ends at its deadline or its memory, and costs the service none."""
    before = _rss(running.process.pid)
    answer = ask(running, f"{ENDLESS} ORDER BY DESC(?c)", timeout="1")
    assert answer.status_code in (504, 413)
    assert _rss(running.process.pid) - before < 30 * 2**20
    assert ask(running, COUNT).status_code == 200


def test_a_thousand_idle_connections_are_no_hindrance(running: Service) -> None:
    """Queries go on being answered while a thousand clients are connected and say nothing."""
    host, port = running.url.removeprefix("http://").split(":")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4096, hard)), hard))
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1000):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
        for number in range(20):
            assert ask(running, f"{COUNT} LIMIT {number + 50}").status_code == 200
