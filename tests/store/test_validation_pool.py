"""Lines that workers validate: the result is what the service would write, and what becomes of the workers makes no difference."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from drumlin.kg.errors import DrumlinError
from drumlin.kg.graphs.bulk import ValidationPool, read_line, validated
from drumlin.kg.graphs.entities import EntityGraphs
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf import jsonld_loader
from drumlin.kg.rdf.syntax import JSONLD, digest, text_of
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.graph_text import pack
from drumlin.kg.workers.frames import NoWorker
from drumlin.kg.workers.pool import WorkerPool

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
    document({**domain(), "@context": IRIS.context}),
    document({**domain(), "@context": "https://elsewhere.example/context/v1.jsonld"}),
    document({**domain(), "@id": "x:y"}),
    document(domain(name="n" * (jsonld_loader.MAX_BYTES + 1))),
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
def subgraphs(tmp_path: Path) -> Iterator[EntityGraphs]:
    """Open what the service reads documents with."""
    with closing(EmbeddedStore(tmp_path / "s")) as store:
        yield EntityGraphs(store, IRIS, clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def workers() -> Iterator[WorkerPool]:
    """A pool of workers."""
    with closing(WorkerPool()) as made:
        yield made


@pytest.mark.parametrize("sent", SENT, ids=str)
def test_what_is_validated_is_what_the_service_would_write(subgraphs: EntityGraphs, sent: bytes) -> None:
    """The same line, digest, packed text and number of statements; None for what the service refuses, or does not put."""
    found = validated(sent, IRIS)
    try:
        line = read_line(sent, IRIS)
        lines = subgraphs.prepare(line.id, subgraphs.parse(bytes(line.document), JSONLD, line.id)).lines
    except DrumlinError:
        assert found is None
        return
    assert lines is not None
    assert line.op == "put"
    assert found == (line.head(), digest(lines), pack(text_of(lines)), len(lines))


def test_workers_validate_a_batch(workers: WorkerPool) -> None:
    """In its order; an invalid document stands for itself alone, and one that only a parser can read is validated too."""
    sent = [document(domain(number, **({"replicas": "x"} if number == 3 else {}))) for number in range(500)]
    sent[7] = document({**domain(7), "@context": [IRIS.context]})
    expected = [validated(each, IRIS) for each in sent]
    assert [number for number, each in enumerate(expected) if each is None] == [3]
    validation = ValidationPool(workers, IRIS)
    assert validation.validate_batch(sent) == expected
    assert validation.validate_batch([]) == []


def test_one_processor_has_nobody_to_share_with(workers: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker would only take turns with the service, which reads the lines itself."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert ValidationPool(workers, IRIS).validate_batch([document(domain())] * 2) == [None, None]
    assert not workers._idle


def test_a_batch_without_a_worker_is_left_to_the_caller(workers: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever becomes of the worker: the service reads the lines itself, and reports what is wrong with them."""

    def lost(*_: object, **__: object) -> list[bytes]:
        raise NoWorker("all workers are busy")

    monkeypatch.setattr(workers, "run", lost)
    assert ValidationPool(workers, IRIS).validate_batch([document(domain())]) == [None]
