"""Every door for documents of clients: they are parsed in workers, and whatever a parser does there, the service goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from drumlin.api.app import create_app
from drumlin.api.bootstrap import Services, assemble
from drumlin.api.edge.entry import EdgeApplication
from drumlin.kg import rdf
from drumlin.kg.config.settings import Settings
from drumlin.kg.store import sandbox
from drumlin.kg.telemetry import forecast_points
from drumlin.kg.workers import child, pool
from drumlin.kg.workers.child import JobKind
from drumlin.kg.workers.frames import Limits
from tests import hostile
from tests.service.conftest import BASE, NS

ENTITY = "prod/payments/deployment/web"
IRI = f"{BASE}/id/{ENTITY}"
TURTLE = (
    f'@prefix d: <{NS}> . <{IRI}> a d:Deployment ; d:name "web" ; d:namespace "payments" ;'
    f" d:cluster <{BASE}/id/cluster/prod> ."
)
EXPANDED = json.dumps(
    {"@context": {"d": NS}, "@id": f"{IRI}2", "@type": "d:Deployment", "d:name": "web2", "d:namespace": "payments", "d:cluster": {"@id": f"{BASE}/id/cluster/prod"}}
)  # fmt: skip
LINE = json.dumps({"op": "put", "id": f"{ENTITY}2", "document": json.loads(EXPANDED)})
INSERT = f"INSERT DATA {{ <{IRI}> <{NS}replicas> 2 }}"
FORECAST = {"entity": ENTITY, "metric": "cpu_usage", "model": "m", "horizon": "1h", "step": "1m"}
Request = tuple[str, str, dict[str, Any]]


def typed(media_type: str, content: str | bytes) -> dict[str, Any]:
    """Return a body with its type."""
    return {"content": content, "headers": {"Content-Type": media_type}}


# A request for each door, in an order in which all succeed; and the jobs that its documents are read by.
DOORS: dict[str, tuple[Request, str]] = {
    "PUT /subgraph": (("PUT", f"/subgraph/{ENTITY}", typed("text/turtle", TURTLE)), "rdf"),
    "POST /subgraph": (("POST", f"/subgraph/{ENTITY}2", typed("application/ld+json", EXPANDED)), "rdf"),
    "PATCH, an update": (("PATCH", f"/subgraph/{ENTITY}", typed("application/sparql-update", INSERT)), "sparql"),
    "POST /subgraphs": (("POST", "/subgraphs", typed("application/x-ndjson", LINE)), "rdf"),
    "PUT /store?graph": (("PUT", "/store?graph=http://x/g", typed("application/n-triples", "<x:a> <x:b> <x:c> .")), "rdf"),
    "POST /store?graph": (("POST", "/store?graph=http://x/g", typed("text/n3", "<x:a> <x:b> <x:d> .")), "rdf"),
    "POST /store": (("POST", "/store", typed("text/turtle", "<x:a> <x:b> <x:c> .")), "rdf"),
    "POST /store, quads": (("POST", "/store", typed("application/trig", "<x:h> { <x:a> <x:b> <x:c> }")), "rdf"),
    "PUT /store": (("PUT", "/store", typed("application/n-quads", "<x:a> <x:b> <x:c> <x:g> .")), "rdf"),
    "a form": (("POST", "/store?graph=http://x/g", {"files": {"a": ("a.ttl", b"<x:a> <x:b> 1 .", "text/turtle")}}), "rdf"),
    "POST /sparql/update": (("POST", "/sparql/update", typed("application/sparql-update", "INSERT DATA { <x:a> <x:b> 2 }")), "sparql"),
    "POST /forecasts": (("POST", "/forecasts", {"params": FORECAST, **typed("application/vnd.apache.arrow.stream", hostile.stream(hostile.forecast()))}), "points"),
    "GET /forecasts/points": (("GET", "/forecasts/points", {"params": {"entity": ENTITY, "metric": "cpu_usage"}}), "points_file"),
}  # fmt: skip


NEW: Request = ("DELETE", f"/subgraph/{ENTITY}2", {})
"""Lets POST create once more."""


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """The parts of a service with an empty store, and a directory for forecasts."""
    directory = tmp_path_factory.mktemp("service")
    files = {"name": "files", "kind": "parquet", "url": (directory / "files").as_uri()}
    made = assemble(Settings(base=BASE, datasource=(files,)), directory=directory / "store")
    web = json.dumps(json.loads(EXPANDED.replace("web2", "web")))
    assert ask(create(made), ("PUT", f"/subgraph/{ENTITY}", typed("application/ld+json", web)))[0].status_code == 201
    yield made
    made.close()


def create(parts: Services) -> EdgeApplication:
    """Return the whole application."""
    app = create_app(parts)
    assert isinstance(app, EdgeApplication)
    return app


@pytest.fixture(scope="module")
def entry(parts: Services) -> EdgeApplication:
    """The whole application."""
    return create(parts)


def ask(entry: EdgeApplication, *requests: Request) -> list[httpx.Response]:
    """Send requests, one after the other."""

    async def send() -> list[httpx.Response]:
        transport = httpx.ASGITransport(entry, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            return [await client.request(method, path, **more) for method, path, more in requests]

    return asyncio.run(send())


def problem_of(answer: httpx.Response) -> dict[str, Any]:
    """Return the problem document of an answer, or of its only line."""
    found: dict[str, Any] = json.loads(answer.text.splitlines()[0])
    return found.get("problem", found)


def test_no_parser_runs_in_the_service(entry: EdgeApplication, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every door works while the parsers of this process refuse to run: those of the workers are others."""

    def forbidden(*_: object, **__: object) -> None:
        pytest.fail("a parser ran in the process of the service")

    for module, names in (
        (rdf, ("parse", "ground", "statements")),
        (sandbox, ("check", "terms", "statements", "ground")),
        (forecast_points, ("read_stream", "parquet_batches")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, forbidden)

    ask(entry, NEW)
    answers = ask(entry, *(request for request, _ in DOORS.values()))

    for door, answer in zip(DOORS, answers, strict=True):
        assert answer.status_code in (200, 201, 204), (door, answer.text)
    assert json.loads(answers[[*DOORS].index("POST /subgraphs")].text)["outcome"] == "unchanged"


FAULTS: dict[str, tuple[JobKind, set[int], str]] = {
    "time": (JobKind("tests.jobs:sleep", "parse", Limits(0.1, 256 << 20, 1 << 20)), {413}, "more than 0.1 s"),
    "memory": (JobKind("tests.jobs:hoard", "parse", Limits(9.0, 64 << 20, 1 << 20)), {413}, "more than 64 MB of memory"),
    "output": (JobKind("tests.jobs:flood", "parse", Limits(9.0, 64 << 20, 2 << 20)), {413}, "more than 2 MB"),
    "death": (JobKind("tests.jobs:overflow", "parse", Limits(9.0, 64 << 20, 1 << 20)), {422}, "the parser ended on it (SIG"),
}  # fmt: skip


SEVERAL = ("PUT /subgraph", "POST /subgraphs", "POST /sparql/update")
"""Doors that are tried with the faults that end a worker: starting one takes a while."""


def test_a_bulk_request_cannot_keep_a_parser_busy_for_long(
    entry: EdgeApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After three lines that exceed a limit no other line of the request is read, also when all are to be written together."""
    monkeypatch.setattr(pool, "JOBS", {**child.JOBS, "rdf": FAULTS["output"][0]})
    lines = typed("application/x-ndjson", f"{LINE}\n" * 5)

    answer, together = ask(entry, ("POST", "/subgraphs", lines), ("POST", "/subgraphs?atomic=true", lines))

    found = [json.loads(each)["problem"]["detail"] for each in answer.text.splitlines()]
    assert ["not read: 3 lines" in each for each in found] == [False, False, False, True, True]
    assert together.status_code == 413


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_parser_does_is_told_and_the_next_request_works(
    entry: EdgeApplication, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """A limit is 413 and named, the death of a worker 422; nothing was written, and the same requests succeed afterwards."""
    kind, statuses, said = FAULTS[fault]
    with monkeypatch.context() as patch:
        patch.setattr(pool, "JOBS", {**child.JOBS, **dict.fromkeys(("rdf", "sparql", "points"), kind)})
        chosen = [name for name in DOORS if "points" not in name] if fault == "output" else SEVERAL
        doors = {name: DOORS[name][0] for name in chosen}
        ask(entry, NEW)
        answers = ask(entry, *doors.values())
    for door, answer in zip(doors, answers, strict=True):
        problem = problem_of(answer)
        assert problem["status"] in statuses, (door, answer.text)
        assert said in problem["detail"], (door, problem)

    again = ask(entry, *(request for request, _ in DOORS.values()))
    assert {each.status_code for each in again} <= {200, 201, 204}
