"""The promises of ``kg.store.protocol``, kept on Oxigraph's server and on Virtuoso; ``tests/store/test_store.py`` has the embedded store's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import httpx
import pytest

from drumlin.kg.errors import CapabilityMissing
from drumlin.kg.store.protocol import Store
from drumlin.kg.store.remote.store import RemoteStore
from tests import store_behaviours
from tests.integration.engines import ENGINES, RunningEngine, engine


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], RunningEngine]]:
    """Start each engine at its first use, one for the session."""
    running: dict[str, RunningEngine] = {}
    contexts = []

    def get(name: str) -> RunningEngine:
        if name not in running:
            context = engine(name, tmp_path_factory.mktemp(name))
            running[name] = context.__enter__()
            contexts.append(context)
        return running[name]

    yield get
    for context in contexts:
        context.__exit__(None, None, None)


def opened(running: RunningEngine) -> RemoteStore:
    """Open a store in a running engine."""
    return RemoteStore(running.url, running.settings, clock=lambda: store_behaviours.NOON)


def emptied(running: RunningEngine) -> None:
    """Take everything out of an engine but what is its own."""
    auth = httpx.DigestAuth("dba", "dba") if running.name == "virtuoso" else None
    root = running.url.removeprefix("sparql+")
    path = "/sparql-auth" if auth else ""
    with httpx.Client(trust_env=False, auth=auth, timeout=60) as client:
        query = "SELECT DISTINCT ?g { GRAPH ?g { ?s ?p ?o } }"
        rows = client.get(f"{root}{path or '/query'}", params={"query": query}, headers={"Accept": "text/csv"})
        names = [each.strip('"') for each in rows.text.split()[1:]]
        graphs = [
            each for each in names if each.startswith(("urn:drumlin:", "https://kg.example/", "http://elsewhere/"))
        ]
        text = ";".join(f"CLEAR SILENT GRAPH <{each}>" for each in graphs) if auth else "CLEAR ALL"
        for start in range(0, len(graphs), 20) if auth else [0]:
            batch = ";".join(f"CLEAR GRAPH <{each}>" for each in graphs[start : start + 20]) if auth else text
            client.post(f"{root}{path or '/update'}", data={"update": batch}).raise_for_status()


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest, engines: Callable[[str], RunningEngine]) -> Iterator[Store]:
    """An empty store in each engine."""
    running = engines(request.param)
    emptied(running)
    with closing(opened(running)) as store:
        yield store


@pytest.mark.parametrize("behaviour", store_behaviours.BEHAVIOURS, ids=lambda each: each.__name__)
def test_every_store_keeps_the_promise(store: Store, behaviour: Callable[[Store], None]) -> None:
    """Each guarantee of the protocol holds on each kind of store; the function's own docstring says which."""
    behaviour(store)


def test_the_past_is_refused_in_words(store: Store) -> None:
    """An engine keeps what graphs are: what they were, at a generation or a time, is no answer but an error that says so."""
    store.apply([store_behaviours.write(store_behaviours.A, 1)])
    with pytest.raises(CapabilityMissing, match="not what they were") as refused:
        store.read_at(store_behaviours.A, 1)
    assert "at" in (refused.value.hint or "")
    with pytest.raises(CapabilityMissing):
        store.generation_at(store_behaviours.NOON)


@pytest.mark.parametrize("name", ENGINES)
def test_two_processes_may_write_one_engine(engines: Callable[[str], RunningEngine], name: str) -> None:
    """Two stores before one engine, as two API processes are, lose no conditional write of the other."""
    running = engines(name)
    emptied(running)
    one, two = opened(running), opened(running)
    try:
        store_behaviours.read_increment_write_loses_nothing(one, two)
    finally:
        one.close()
        two.close()
