"""Ten thousand texts that are nearly SPARQL, against a listening service with a canary beside it."""

from __future__ import annotations

from pathlib import Path

import httpx

from kg.errors import QueryRejected
from kg.sparql import gate
from tests.fuzzing import SHAPES, canary, cases, send
from tests.service.conftest import serving

COUNT = 10_000
LIMITS = {"DRUMLIN_QUERY_TIMEOUT": "2"}


def test_no_text_ends_the_service_or_makes_it_fetch(tmp_path: Path) -> None:
    """The writer lives, nothing is fetched, no text crashes the engine, and the store is as sound as before."""
    with serving("--store", str(tmp_path / "store"), environment=LIMITS) as service, canary() as (address, heard):
        outcomes, crashed = send(service.url, cases(20261128, COUNT, updates=0.05), address)

        assert service.process.poll() is None, "".join(service.log)
        assert httpx.get(service.url + "/livez").status_code == 200
        assert heard == []
        assert not crashed, crashed[:3]
        assert sum(outcomes.values()) == COUNT
        assert outcomes["query 200"] > COUNT / 20
        assert outcomes["update 204"] > 0
        assert not any("request_crashed" in line for line in service.log)


def test_the_shapes_that_killed_the_engine_are_refused() -> None:
    """Each of the measured shapes, ten thousand times in a row, does not pass the gate."""
    for shape in SHAPES:
        for text in (f"SELECT * {{ ?s ?p ?o {shape * 10_000}", f"SELECT * {{ FILTER({shape * 10_000}"):
            try:
                gate.check(text, max_bytes=1 << 20)
            except QueryRejected:
                continue
            raise AssertionError(shape)
