"""Documents that processes read and validate: what they say is what the service would, and what becomes of them makes no difference."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kg import inlining, processes, proving
from kg.bulk import read_line
from kg.errors import DrumlinError
from kg.forms import Forms
from kg.iris import Iris
from kg.proving import Provers
from kg.proving_process import prove
from kg.rdf import JSONLD, digest, text_of
from kg.store.embedded import EmbeddedStore
from kg.store.texts import pack
from kg.subgraphs import Subgraphs
from tests.waiting import until

ROOT = Path(__file__).parents[2]
BASE = "https://kg.example"
IRIS = Iris(BASE)
GOLDEN = ROOT / "tests" / "golden" / "render"


def domain(number: int = 0, **more: Any) -> dict[str, Any]:
    """Return a document of a domain."""
    return {"id": f"{BASE}/id/domain/d{number}", "type": "Domain", "name": f"d{number}", **more}


def put(graph: str, document: bytes, **more: Any) -> bytes:
    """Return a line that puts a document."""
    return json.dumps({"op": "put", "id": graph, **more}).encode()[:-1] + b', "document": ' + document + b"}"


def document(content: dict[str, Any], graph: str | None = None) -> bytes:
    """Return a document as it is sent."""
    return put(graph or content["id"], json.dumps(content).encode())


SENT = [
    *[document(json.loads(path.read_bytes())["document"]) for path in sorted(GOLDEN.glob("*.json"))],
    document(domain()),
    document(domain(phase="Running", label=["a=b", "c=d"])),
    document(domain(), IRIS.expand("domain/other")),  # it says nothing of the graph's entity
    document(domain(phase="Runing")),
    document(domain(restarts="many")),
    document(domain(type="Nothing")),
    document(domain(type=[])),
    document({**domain(), "@context": "https://elsewhere.example/context"}),
    document({**domain(), "@id": "x:y"}),
    document(domain(name="n" * (inlining.MAX_BYTES + 1))),
    *[put(domain()["id"], each) for each in (b"", b"{", b"1", b"[" * 100_000, b'{"id": "\xff"}')],
    put("domain/d0", json.dumps(domain()).encode(), owner="exporter", digest=None),
    put("domain/d0", json.dumps(domain()).encode(), digest="abc"),
    put("domain/d0", json.dumps(domain()).encode(), owner=""),
    put("domain//d0", json.dumps(domain()).encode()),
    put("domain/d0", json.dumps(domain()).encode(), unknown=1),
    b'{"op":"put","id":"domain/d0"}',
    b'{"op":"delete","id":"domain/d0"}',
    b'{"op":"remove","id":"domain/d0","owner":"exporter"}',
    b'{"op":"put"',
    b"\xff",
]


@pytest.fixture
def subgraphs(tmp_path: Path) -> Iterator[Subgraphs]:
    """Open what the service reads documents with."""
    with closing(EmbeddedStore(tmp_path / "s")) as store:
        yield Subgraphs(store, IRIS, clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def provers() -> Iterator[Provers]:
    """Begin processes, and wait until both are there."""
    with closing(Provers(IRIS)) as made:
        made.begin()
        until(lambda: len(made._idle) == proving.COUNT)
        yield made


def pids(provers: Provers) -> list[int]:
    """Return the ids of the processes."""
    return [each.process.pid for each in provers._ready]


def alive(process: int) -> bool:
    """Tell whether a process runs."""
    return Path(f"/proc/{process}").exists()


@pytest.mark.parametrize("sent", SENT, ids=str)
def test_what_is_proven_is_what_the_service_would_write(subgraphs: Subgraphs, sent: bytes) -> None:
    """The same line, digest, packed text and number of statements; what the service refuses, or does not put, is never proven."""
    (proven,) = prove([sent], IRIS, Forms(IRIS))
    try:
        line = read_line(sent, IRIS)
        lines = subgraphs.prepare(line.id, subgraphs.parse(bytes(line.document), JSONLD, line.id)).lines
    except DrumlinError:
        assert proven is None
        return
    assert lines is not None
    assert line.op == "put"
    assert proven is None or proven == (line.head(), digest(lines), pack(text_of(lines)), len(lines))


def test_usual_documents_are_proven(provers: Provers) -> None:
    """In their order, and one that is not stands for itself alone; who asks at one time is answered too."""
    sent = [document(domain(number, **({"replicas": "x"} if number == 3 else {}))) for number in range(500)]
    expected = prove(sent, IRIS, Forms(IRIS))
    assert [number for number, each in enumerate(expected) if each is None] == [3]
    found: list[Any] = [None] * 8
    threads = [
        threading.Thread(target=lambda at=at: found.__setitem__(at, provers.prove(sent))) for at in range(len(found))
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    answered = [each for each in found if each != [None] * len(sent)]
    assert len(answered) >= 2 * proving.COUNT  # those that are at work, and those that wait
    assert all(each == expected for each in answered)
    assert provers.prove([]) == []


def test_nothing_is_proven_before_there_are_processes() -> None:
    """Whoever asks reads the documents itself."""
    with closing(Provers(IRIS)) as provers:
        assert provers.prove([document(domain())] * 2) == [None, None]


def test_one_processor_has_nobody_to_share_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes would only take turns with the service."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    with closing(Provers(IRIS)) as provers:
        provers.begin()
        assert not provers._threads


@pytest.mark.parametrize("fault", ["killed", "stopped"])
def test_a_process_that_is_lost_leaves_it_to_the_caller(
    provers: Provers, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Killed or unheard: the caller reads for itself, nobody waits for good, and others are begun after a while."""
    before = pids(provers)
    if fault == "stopped":
        for each in provers._idle:
            each.channel.settimeout(0.2)
    for process in before:
        os.kill(process, signal.SIGKILL if fault == "killed" else signal.SIGSTOP)
    for _ in range(proving.COUNT):
        assert provers.prove([document(domain())]) == [None]
    assert provers.prove([document(domain())]) == [None]  # there is none any more
    until(lambda: not provers._threads and not any(map(alive, before)))
    provers.begin()
    assert not provers._threads  # not at once
    provers._not_before = 0.0
    provers.begin()
    until(lambda: provers._idle)
    assert provers.prove([document(domain())]) == prove([document(domain())], IRIS, Forms(IRIS))


def test_a_process_that_cannot_be_begun_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service goes on by itself."""

    def fails(*_: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(processes, "start", fails)
    with closing(Provers(IRIS)) as provers:
        provers.begin()
        until(lambda: not provers._threads)
        assert provers.prove([document(domain())]) == [None]


def test_processes_end_when_nobody_asks(provers: Provers, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a rest, and with the service."""
    before = pids(provers)
    monkeypatch.setattr(proving, "REST", 0.0)
    until(lambda: not provers._threads and not any(map(alive, before)))
    monkeypatch.undo()
    provers.begin()
    until(lambda: len(provers._idle) == proving.COUNT)
    before = pids(provers)
    provers.close()
    assert not any(map(alive, before))
    provers.begin()
    assert not provers._threads


BEGINNING = """
import sys, time
from kg import proving
from kg.forms import Forms
from kg.iris import Iris

provers = proving.Provers(Iris("https://kg.example"))
provers.begin()
while len(provers._ready) < proving.COUNT:
    time.sleep(0.01)
print(*[each.process.pid for each in provers._ready], flush=True)
sys.stdin.read()
"""


def test_the_processes_die_with_the_service() -> None:
    """``kill -9`` leaves none behind."""
    command = [sys.executable, "-c", BEGINNING]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout
        begun = [int(each) for each in service.stdout.readline().split()]
        assert all(map(alive, begun))
        service.kill()
    until(lambda: not any(map(alive, begun)))
