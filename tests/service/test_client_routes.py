"""Both clients have a method for every route: each method is used, what it sends is noted, and held against the OpenAPI document."""

from __future__ import annotations

import asyncio
import inspect
import re
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import drumlin
from drumlin.kg import errors
from drumlin.kg.client.calls import Call
from drumlin.kg.errors import DrumlinError
from drumlin.kg.store.protocol import GraphWrite
from tests.service import client_user
from tests.service.client_user import CHECKOUT
from tests.service.conftest import Service
from tests.service.test_subgraph import forecast

EXCEPTIONS = {
    ("POST", "/v1/logs"): "OpenTelemetry's own exporters send it",
    ("POST", "/mcp"): "agents have clients of their own",
    ("GET", "/sd/{name}"): "a Prometheus asks it",
    ("GET", "/sparql"): "POST does the same, for a text of any length",
    ("GET", "/history"): "POST does the same, for any number of entities",
    ("GET", "/values"): "`values` sends it for filters; here it sends POST, for names",
    **dict.fromkeys(
        (
            ("GET", "/api/v0/graph"),
            ("PATCH", "/api/v0/graph"),
            ("GET", "/api/v0/graph/update"),
            ("POST", "/api/v0/graph/update"),
            ("POST", "/api/v0/graph/compact"),
        ),
        "the public peer's clients have their own",
    ),
}
"""Routes that no method of the client uses, each with what does the same."""

OF = (CHECKOUT, "cpu_usage")
POINTS = pa.table({"ds": pa.array([0], pa.timestamp("us", "UTC")), "y": [1.0]})
NAME = uuid.uuid4().hex
MINE = f"https://kg.example/id/forecast/{NAME}"

Uses = Mapping[str, Callable[[Any], Any]]
CLIENT: Uses = {
    "about": lambda client: client.about(),
    "register_agent": lambda client: client.register_agent("a-guid", {"name": "x"}),
    "agent": lambda client: client.agent("a-guid"),
    "agents": lambda client: client.agents(tag="eu/lab"),
    "heartbeat": lambda client: client.heartbeat("a-guid"),
    "remove_agent": lambda client: client.remove_agent("a-guid"),
    "apply": lambda client: client.apply([GraphWrite.of(MINE, None, "user")]),
    "audit": lambda client: client.audit(),
    "backup": lambda client: client.backup(),
    "changes": lambda client: client.changes(since=0),
    "check": lambda client: client.check(),
    "context": lambda client: client.context(),
    "dataset": lambda client: client.dataset(),
    "document": lambda client: client.document(CHECKOUT),
    "document_address": lambda client: client.document_address(CHECKOUT),
    "export": lambda client: client.export(namespace="payments"),
    "metrics_text": lambda client: client.metrics_text(),
    "next_changes": lambda client: client.next_changes(since="0"),
    "ontology": lambda client: client.ontology(),
    "optimize": lambda client: client.optimize(),
    "peers": lambda client: client.peers(),
    "profile": lambda client: client.profile("opentelemetry"),
    "profiles": lambda client: client.profiles(),
    "queries": lambda client: client.queries(),
    "query": lambda client: client.query("classes"),
    "reach": lambda client: client.reach(CHECKOUT, edges="^managedBy"),
    "ready": lambda client: client.ready(),
    "rules": lambda client: client.rules("opentelemetry"),
    "search": lambda client: client.search("checkout"),
    "similar": lambda client: client.similar("prod/payments/deployment/chekout"),
    "sparql": lambda client: client.sparql("ASK {}"),
    "subgraphs": lambda client: client.subgraphs(type="Node"),
    "update": lambda client: client.update("CLEAR SILENT GRAPH <http://example.org/none>"),
    "vocabulary": lambda client: client.vocabulary("shapes"),
    "workload": lambda client: client.workload(CHECKOUT),
    "workloads": lambda client: client.workloads(),
}
TELEMETRY: Uses = {
    "alerts": lambda client: client.alerts(CHECKOUT),
    "datasources": lambda client: client.datasources(probe=False),
    "explain": lambda client: client.explain(*OF),
    "history": lambda client: client.history(*OF),
    "import_datasources": lambda client: client.import_datasources("grafana"),
    "logs": lambda client: client.logs(CHECKOUT),
    "resolve": lambda client: client.resolve(*OF),
    "resolve_many": lambda client: client.resolve_many(*OF),
    "save_history": lambda client: client.save_history(Path("nowhere") / "x.csv", *OF),
    "values": lambda client: client.values("cpu_usage", CHECKOUT),
}
"""These need servers that the service of this test does not have: they are sent, and told so."""
SUBGRAPH: Uses = {
    "create": lambda graph: graph.create(forecast(NAME)),
    "put": lambda graph: graph.put(forecast(NAME, model="b")),
    "patch": lambda graph: graph.patch({"model": "c"}),
    "get": lambda graph: graph.get(),
    "read": lambda graph: graph.read(),
    "text": lambda graph: graph.text(),
    "to_rdflib": lambda graph: graph.to_rdflib(),
    "around": lambda graph: graph.around(),
    "compare": lambda graph: graph.compare(),
    "frame": lambda graph: graph.frame("Forecast"),
    "delete": lambda graph: graph.delete(),
}
GRAPH: Uses = {
    "put": lambda graph: graph.put("<http://a> <http://b> 1 ."),
    "post": lambda graph: graph.post("<http://a> <http://b> 2 ."),
    "text": lambda graph: graph.text(),
    "to_rdflib": lambda graph: graph.to_rdflib(),
    "delete": lambda graph: graph.delete(),
}
FORECASTS: Uses = {
    "save": lambda forecasts: forecasts.save(POINTS, of=OF, model="m", horizon="1h", step="1h"),
    "list": lambda forecasts: forecasts.list(OF),
    "value": lambda forecasts: forecasts.value(OF),
    "points": lambda forecasts: forecasts.points(OF),
    "compare": lambda forecasts: forecasts.compare(OF),
    "seasonal": lambda forecasts: forecasts.seasonal(OF),
    "backtest": lambda forecasts: forecasts.backtest(OF),
    "delete": lambda forecasts: forecasts.delete(OF, "x"),
}


def uses(client: Any) -> list[tuple[Any, Uses, bool]]:
    """Return a client and its handles, each with how its methods are used, and whether that must succeed."""
    graph = client.graph(f"http://example.org/{NAME}")
    return [
        (client, CLIENT, True),
        (client, TELEMETRY, False),
        (client.subgraph(f"forecast/{NAME}"), SUBGRAPH, True),
        (graph, GRAPH, True),
        (client.forecasts, FORECASTS, False),
    ]


def noted(client: Any) -> set[tuple[str, str]]:
    """Have a client note method and path of all that it sends."""
    sent: set[tuple[str, str]] = set()
    wire = client._carrier._wire
    send = wire.send

    async def send_and_note(call: Call[Any], *, whole: bool) -> Any:
        sent.add((call.method, call.path))
        return await send(call, whole=whole)

    wire.send = send_and_note
    return sent


def blocking(url: str) -> set[tuple[str, str]]:
    """Use every method of the blocking client, and return what was sent."""
    with drumlin.connect(url) as client:
        sent = noted(client)
        for owner, table, succeeds in uses(client):
            for use in table.values():
                with suppress(*() if succeeds else (DrumlinError,)):
                    answer = use(owner)
                    if inspect.isgenerator(answer):
                        next(answer)
                        answer.close()
        return sent


async def awaiting(url: str) -> set[tuple[str, str]]:
    """Use every method of the asynchronous client, and return what was sent."""
    async with drumlin.connect_async(url) as client:
        sent = noted(client)
        for owner, table, succeeds in uses(client):
            for use in table.values():
                with suppress(*() if succeeds else (DrumlinError,)):
                    answer = use(owner)
                    if inspect.isasyncgen(answer):
                        await anext(answer)
                        await answer.aclose()
                    else:
                        await answer
        return sent


@pytest.mark.parametrize("use", [blocking, lambda url: asyncio.run(awaiting(url))], ids=["Client", "AsyncClient"])
def test_every_route_has_a_method(service: Service, use: Callable[[str], set[tuple[str, str]]]) -> None:
    """Each path and method of the OpenAPI document is what some method of the client sends, but for those that are justified."""
    sent = {(method, re.sub(r"^/queries/.+", "/queries/classes", path)) for method, path in use(service.url)}
    with drumlin.connect(service.url) as client:
        document = client.run(Call("GET", "/openapi.json", lambda response: response.json()))
    routes = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    saved = {(method, path) for method, path in routes if path.startswith("/queries/")} - {("GET", "/queries/classes")}
    assert len(routes) - len(saved) > 40
    assert {route for route in routes - saved if not _is_sent(route, sent)} == set(EXCEPTIONS)


def _is_sent(route: tuple[str, str], sent: set[tuple[str, str]]) -> bool:
    template = re.compile("[^/]+".join(map(re.escape, re.split(r"\{[^}]*\}", route[1]))).replace("[^/]+", ".+") + "$")
    return any(method == route[0] and template.match(path) for method, path in sent)


UNFAILING = {"about", "context", "metrics_text", "profiles", "queries"}
"""These raise nothing but what every operation may raise."""


def test_every_method_is_used_and_says_what_it_raises() -> None:
    """No method of the client is left out above, and each says what it raises, but for what all may raise."""
    with drumlin.connect() as client:
        left = {"close", "forecasts", "graph", "run", "stream", "subgraph", "url", "id"}
        for owner in {type(owner): owner for owner, *_ in uses(client)}.values():
            methods = {name for name in dir(owner) if not name.startswith("_")} - left
            assert methods == {name for each, table, _ in uses(client) if type(each) is type(owner) for name in table}
            for name in methods:
                told = str(getattr(type(owner), name).__doc__)
                named = [each for each in re.findall(r"``([A-Z]\w+)``", told) if hasattr(errors, each)]
                assert bool(named) or "raises" in told.lower() or name in UNFAILING, name


def test_what_a_user_writes_has_the_types_and_the_answers_that_he_expects(service: Service) -> None:
    """The snippet that mypy checks runs, with the same answers from both clients."""
    found = client_user.ask(service.url)
    assert CHECKOUT in found
    assert asyncio.run(client_user.ask_awaiting(service.url)) == found
