"""Callers that are limited to domains, at the edge of the whole application: they get what a service gives that holds only what they see.

The sample cluster has three domains. What two of them must not see bears a canary, and a twin cluster has it in every name.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as settings_of
from hypothesis.errors import Unsatisfiable
from requests import Request
from schemathesis.generation import GenerationMode

from drumlin.api.access.callers import Role
from drumlin.api.access.rules import ROUTES
from drumlin.api.access.tokens import TokenFile
from drumlin.api.answers import examples
from drumlin.api.app import create_app
from drumlin.api.bootstrap import Services, assemble, now
from drumlin.exporters.kubectl.dump import DumpSource
from drumlin.exporters.kubernetes.custom_kinds import kinds_of
from drumlin.kg.config.settings import Settings
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.store.protocol import GraphWrite
from tests.conformance import operations
from tests.service.conftest import SAMPLE
from tests.waiting import until

BASE = "https://kg.example"
IRIS = Iris(BASE)
CANARY = "canary7"
SETS = [("local",), ("alice", "bob")]
SHOWN = "prod/payments/deployment/checkout"
OTHERWISE = {"/livez", "/readyz", "/events", "/changes", "/compare", "/datasources"}
"""Routes that answer limited callers otherwise: with positions of their own view, and without probes."""
CLOSED = {each.partition(" ")[2] for each, rule in ROUTES.items() if rule.whole}


class Asked:
    """An application with a token that is limited to ``domains``, or not."""

    def __init__(self, parts: Services, path: Path, domains: Sequence[str] = (), role: Role = Role.reader) -> None:
        file = TokenFile(path)
        self.token = file.create("the-caller", role, domains=domains)[1]
        self.app = create_app(parts)
        from drumlin.api.access.authentication import Authenticator

        self.app._access.authenticator = Authenticator(parts.settings, file, unguarded=True)

    def all(self, requests: Sequence[tuple[str, str, dict[str, Any]]]) -> list[httpx.Response]:
        """Send requests one after the other."""

        async def ask() -> list[httpx.Response]:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            headers = {"Authorization": f"Bearer {self.token}"}
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
                return [
                    await client.request(method, path, **{**more, "headers": {**headers, **more.get("headers", {})}})
                    for method, path, more in requests
                ]

        return asyncio.run(ask())

    def one(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Send one request."""
        return self.all([(method, path, more)])[0]

    def close(self) -> None:
        """Close the views."""
        self.app._views.close()


def settings(**more: Any) -> Settings:
    """Return settings with a datasource that two of the domains share; nothing answers there."""
    shared = {"name": "shared", "kind": "prometheus", "url": "http://127.0.0.1:9", "domains": ["alice", "bob", "local"]}
    hidden = {"name": f"of-{CANARY}", "kind": "prometheus", "url": f"http://{CANARY}:9", "domains": [f"{CANARY}-x"]}
    return Settings(
        base=BASE, cluster="prod", datasource=[shared, *([hidden] if more.pop("hidden", True) else [])], **more
    )


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """A service with the sample cluster."""
    own = settings()
    source = DumpSource([SAMPLE], kinds_of(own), clock=now)
    made = assemble(own, directory=tmp_path_factory.mktemp("store"), source=source)
    until(lambda: all(each.is_written for each in made.exporting), 60)
    for each in made.exporting:
        each.stop()
    yield made
    made.close()


def twin(text: str) -> str:
    """Rename the cluster and the domains in a graph's text, and mark its names."""
    text = text.replace("/id/prod/", f"/id/{CANARY}-prod/").replace("/cluster/prod>", f"/cluster/{CANARY}-prod>")
    text = re.sub(r"/id/domain/(\w+)>", rf"/id/domain/{CANARY}-\1>", text)
    return re.sub(rf'<{NAMESPACE}(name|label)> "', rf'<{NAMESPACE}\1> "{CANARY}', text)


@pytest.fixture(scope="module", params=SETS, ids="+".join)
def both(
    request: pytest.FixtureRequest, sample: Services, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Asked, Asked]]:
    """A limited caller of a service that holds more, and an unlimited one of a service that holds what the first one sees."""
    domains: tuple[str, ...] = request.param
    folder = tmp_path_factory.mktemp("both")
    all_, only = (
        assemble(settings(hidden=hidden), directory=folder / name) for name, hidden in (("all", True), ("only", False))
    )
    store = sample.visibility.open(frozenset(domains))
    seen = {each.graph: each for each in store.entries()}
    for service in (all_, only):
        service.store.apply([GraphWrite.of(each.graph, None, each.owner) for each in service.store.entries()])
    for entry in sample.store.entries():
        found = sample.store.read(entry.graph)
        assert found is not None
        writes = [GraphWrite(entry.graph, found.content, entry.owner)]
        if (shown := store.read(entry.graph)) is not None:
            only.store.apply([GraphWrite(entry.graph, shown.content, entry.owner)])
        if entry.graph not in seen:
            marked = f'<{entry.graph}> <{NAMESPACE}label> "{CANARY}=x" .'
            writes = [GraphWrite.of(entry.graph, found.lines | {marked}, entry.owner)]
        if (name := twin(f"<{entry.graph}>")[1:-1]) != entry.graph:
            writes.append(GraphWrite.of(name, frozenset(twin(found.text).split("\n")), entry.owner))
        all_.store.apply(writes)
    store.close()
    limited, free = Asked(all_, folder / "a.json", domains), Asked(only, folder / "b.json")
    yield limited, free
    for each, service in ((limited, all_), (free, only)):
        each.close()
        service.close()


def requests(shown: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Return reads of every route: the examples of the reference, and others about an entity."""
    found: list[tuple[str, str, dict[str, Any]]] = []
    for each in examples():
        method = each.route.partition(" ")[0]
        if method not in ("GET", "HEAD") and each.route not in ("POST /sparql", "POST /resolve"):
            continue
        content = each.body if isinstance(each.body, str) or each.body is None else json.dumps(each.body)
        if each.path.startswith(("/alerts", "/history", "/logs", "/values")):
            continue  # nothing answers where they ask
        found.append((method, each.path.replace(SHOWN, shown), {"headers": dict(each.headers), "content": content}))
    pages = (
        f"/doc/{shown}.html /search.html?q=a /changes?n=5 /compare.html?entity={shown} /datasources.html"
        f" /forecasts.html?entity={shown} / /about /queries.html /sparql.html"
    )
    found += [("GET", path, {"headers": {"Accept": "text/html"}}) for path in pages.split()]
    found += [
        ("GET", path, {})
        for path in (
            "/subgraphs?limit=1000", "/search?q=can", "/search?q=canary", "/search?facet=namespace&facet=type&facet=domain", "/export",
            "/export?format=trig", "/graph?root=domain/alice&depth=2", f"/graph?root={shown}&depth=3", "/datasources", "/agents", "/profiles/dcat",
            f"/subgraph/{shown}?depth=2", f"/subgraph/{shown}?frame=seed", f"/subgraph/{shown[:-1]}", "/subgraph/cluster/prod",
            "/subgraph/domain/alice", "/subgraph/domain/local", f"/subgraph/{CANARY}-{shown}", f"/doc/{CANARY}-{shown}",
            f"/resolve?entity={shown[:-1]}&metric=cpu_usage", "/resolve?entity=prod/-/node/edge-a-1&metric=cpu_usage",
            "/store?default", f"/store?graph={quote(BASE)}/id/{SHOWN}", f"/id/{SHOWN}",
        )
    ]  # fmt: skip
    found.append(("GET", "/events?since=0", {"headers": {"Accept": "application/cloudevents-batch+json"}}))
    for query in (
        "SELECT * { ?s ?p ?o } ORDER BY ?s ?p ?o",
        "SELECT (COUNT(*) AS ?n) (COUNT(DISTINCT ?g) AS ?m) { GRAPH ?g { ?s ?p ?o } }",
        f"ASK {{ ?s ?p ?o FILTER(CONTAINS(STR(?s), '{CANARY}')) }}",
        f"DESCRIBE <{BASE}/id/{SHOWN}>",
        f"SELECT * FROM <{BASE}/id/{SHOWN}> {{ ?s ?p ?o }} ORDER BY ?p ?o",
        f"SELECT * FROM NAMED <{BASE}/id/{SHOWN}> {{ GRAPH ?g {{ ?s ?p ?o }} }} ORDER BY ?p ?o",
        f"CONSTRUCT WHERE {{ ?s <{NAMESPACE}label> ?o }}",
        f"SELECT ?s {{ ?s <{NAMESPACE}nome> ?o }}",
    ):
        found.append(
            ("GET", f"/sparql?query={quote(query)}", {"headers": {"Accept": "text/csv, text/turtle;q=0.5, */*;q=0.1"}})
        )
    for name in ("blast-radius", "users-of-data", "who-may-read", "namespaces", "receivers", "workloads-of-domain"):
        found.append(("GET", f"/queries/{name}", {}))
    return found + [("POST", "/mcp", {"json": each}) for each in calls(shown)]


def calls(shown: str) -> list[dict[str, Any]]:
    """Return messages of an agent: each tool that asks the graph, about what is seen, what is hidden, and what is misspelt."""
    everything = "SELECT * { ?s ?p ?o } ORDER BY ?s ?p ?o"
    asked: list[tuple[str, dict[str, Any]]] = [
        ("search", {}), ("search", {"text": "can"}), ("sparql", {"query": everything}), ("saved_query", {"name": "classes"}),
        ("describe", {"id": shown}), ("describe", {"id": shown[:-1]}), ("describe", {"id": f"{CANARY}-{shown}"}),
        ("neighbours", {"id": shown}), ("neighbours", {"id": "domain/alice", "relations": "^domain", "depth": 2}),
        ("resolve", {"id": shown, "metric": "cpu_usage"}), ("why_failing", {"id": shown}),
    ]  # fmt: skip
    return [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        for name, arguments in asked
    ]


def told(answer: httpx.Response) -> tuple[int, str, list[str]]:
    """Return what an answer says, without what differs from one service to another: positions, times, the holder of the token."""
    text = re.sub(r"20\d\d-\d\d-\d\d[T ][\d:.]+(Z|\+00:00|%2B00%3A00)?", "TIME", answer.text)
    text = re.sub(r'"generation": ?\d+|"id": ?"\d+(\.\d+)?"|generation \d+|data-generation="\d+"', "POSITION", text)
    text = re.sub(r'"requestId": ?"\w+"|Request \w{32}', "", text)
    return answer.status_code, answer.headers.get("Content-Type", ""), sorted(text.splitlines())


def test_a_limited_caller_gets_what_a_service_gives_that_holds_only_what_it_sees(both: tuple[Asked, Asked]) -> None:
    """Every read of every route gives the same answer, be it an error, a page, a total or a suggestion."""
    limited, free = both
    ids = [each["id"] for each in free.one("GET", "/subgraphs?type=Deployment&limit=1").json()["items"]]
    asked = [
        each
        for each in requests(ids[0] if ids else SHOWN)
        if each[1].partition("?")[0].removesuffix(".html") not in CLOSED | OTHERWISE
    ]
    differ = []
    for request, one, other in zip(asked, limited.all(asked), free.all(asked), strict=True):
        if told(one) != told(other):
            lines = [sorted(set(told(each)[2]) - set(told(beside)[2])) for each, beside in ((one, other), (other, one))]
            differ.append((request[1], told(one)[:2], told(other)[:2], *lines))
    assert not differ, "\n".join(f"{each}"[:1500] for each in differ)


def generated(operation: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield a few requests that an operation's schema allows, and some that it forbids."""
    found: list[tuple[str, str, dict[str, Any]]] = []

    def keep(case: Any) -> None:
        sent = {key: value for key, value in case.as_transport_kwargs(base_url="http://localhost").items() if value}
        sent = {key: sent[key] for key in ("method", "url", "headers", "params", "data", "json") if key in sent}
        url = urlsplit(str(Request(**sent).prepare().url))
        found.append((case.method, f"{url.path}?{url.query}" if url.query else url.path, {}))

    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
        run = given(case=operation.as_strategy(generation_mode=mode))(keep)
        bounds = settings_of(max_examples=2, deadline=None, database=None, phases=[Phase.generate],
                             derandomize=True, suppress_health_check=list(HealthCheck))  # fmt: skip
        with suppress(Unsatisfiable):
            bounds(run)()
    yield from found


@pytest.mark.parametrize("both", [SETS[1]], indirect=True)
def test_whatever_is_asked_the_answers_are_the_same(both: tuple[Asked, Asked]) -> None:
    """Requests that are generated from the OpenAPI document (Schemathesis) get the same answer as well."""
    limited, free = both
    document = free.one("GET", "/openapi.json").json()
    reads = [each for each in operations(document, "http://localhost") if each.method.upper() == "GET"]
    asked = [
        request
        for operation in reads
        if operation.path not in CLOSED | OTHERWISE | {"/alerts", "/history", "/values", "/logs", "/export"}
        for request in generated(operation)
    ]
    assert len(asked) > len(reads)
    differ = [
        (request[1], told(one), told(other))
        for request, one, other in zip(asked, limited.all(asked), free.all(asked), strict=True)
        if told(one) != told(other)
    ]
    assert not differ, "\n".join(f"{each}"[:800] for each in differ)


def test_no_answer_has_what_is_hidden(both: tuple[Asked, Asked]) -> None:
    """No body and no header of any route has the canary, unless the request had it."""
    limited, _ = both
    asked = [each for each in requests(SHOWN) if CANARY not in f"{each[1]} {each[2]}"]
    for (_, path, _), answer in zip(asked, limited.all(asked), strict=True):
        assert CANARY not in answer.text.lower(), path
        assert CANARY not in str(answer.headers).lower(), path
