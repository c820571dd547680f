"""Ten thousand texts that are nearly SPARQL, and a thousand documents that are nearly sound, against a listening service."""

from __future__ import annotations

from pathlib import Path

import httpx

from drumlin.kg.errors import QueryRejected
from drumlin.kg.sparql import gate
from tests.fuzzing import ENTITY, SHAPES, bodies, canary, cases, send, send_bodies
from tests.service.conftest import OWN_DOCUMENT, serving

COUNT = 10_000
BODIES = 1_000
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


def test_no_document_ends_the_service_or_is_answered_500(tmp_path: Path) -> None:
    """Mutants in every syntax, Arrow streams and forms at every door: workers parse them, the service lives and says what is wrong."""
    config = tmp_path / "drumlin.toml"
    config.write_text(f'[[datasource]]\nname = "files"\nkind = "parquet"\nurl = "{(tmp_path / "files").as_uri()}"\n')
    with serving("--store", str(tmp_path / "store"), "--config", str(config)) as service:
        sound = {"Content-Type": "text/turtle"}
        assert httpx.put(service.url + ENTITY, content=OWN_DOCUMENT, headers=sound).status_code == 201

        outcomes, crashed = send_bodies(service.url, bodies(20261129, BODIES))

        assert service.process.poll() is None, "".join(service.log)
        assert httpx.get(service.url + "/livez").status_code == 200
        assert not crashed, crashed[:3]
        assert {each.split()[1] for each in outcomes} <= {"200", "201", "204", "400", "409", "410", "413", "415", "422"}
        assert sum(outcomes.values()) == BODIES
        assert not any("request_crashed" in line for line in service.log)
        assert httpx.put(service.url + ENTITY, content=OWN_DOCUMENT, headers=sound).status_code in (201, 204)


def test_the_shapes_that_killed_the_engine_are_refused() -> None:
    """Each of the measured shapes, ten thousand times in a row, does not pass the gate."""
    for shape in SHAPES:
        for text in (f"SELECT * {{ ?s ?p ?o {shape * 10_000}", f"SELECT * {{ FILTER({shape * 10_000}"):
            try:
                gate.check(text, max_bytes=1 << 20)
            except QueryRejected:
                continue
            raise AssertionError(shape)
