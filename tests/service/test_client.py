"""drumlin.connect over a listening server: the same operations, synchronous and asynchronous."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
import rdflib
from rdflib.compare import isomorphic

import drumlin
from drumlin.api.demo.prometheus import free_port
from drumlin.kg import errors
from drumlin.kg.client import AsyncClient, AsyncGraph, AsyncSubgraph, AsyncWorkload, Client, Graph, Subgraph, Workload
from drumlin.kg.client.forecasts import AsyncForecasts, Forecasts
from drumlin.kg.errors import (
    AlreadyExists,
    Conflict,
    EventsGone,
    InvalidDocument,
    PreconditionFailed,
    QueryRejected,
    ResourceGone,
    ResourceNotFound,
    ShapeViolation,
    SourceUnavailable,
    StoreUnavailable,
)
from drumlin.kg.store.protocol import GraphWrite
from tests.listening import listening
from tests.service.conftest import Service, serving
from tests.service.test_subgraph import forecast

CHECKOUT = "prod/payments/deployment/checkout"
SELECT = """PREFIX : <https://w3id.org/drumlin/ns#>
SELECT ?name ?replicas ?started ?none WHERE { ?w a :Deployment ; :namespace "payments" ; :name ?name ; :replicas ?replicas .
  ?run :runOf ?w ; <http://www.w3.org/ns/prov#startedAtTime> ?started } ORDER BY ?name"""


@pytest.fixture
def client(service: Service) -> Iterator[drumlin.Client]:
    """A client of the service."""
    with drumlin.connect(service.url) as connected:
        yield connected


def test_workloads_are_listed_and_read(client: drumlin.Client) -> None:
    """Listing gives names, kinds and phases; one workload gives its document and its metrics with unit and query."""
    found = {workload.id: workload for workload in client.workloads()}
    assert len(found) == 20
    assert {each.kind for each in client.workloads(kind="StatefulSet")} == {"StatefulSet"}
    assert {each.namespace for each in client.workloads(namespace="payments")} == {"payments"}
    checkout = client.workload(CHECKOUT)
    assert (checkout.kind, checkout.name, checkout.phase) == ("Deployment", "checkout", "Running")
    assert repr(found[CHECKOUT]) == f"<Deployment {CHECKOUT}>"
    assert found[CHECKOUT].metrics == checkout.metrics
    metric = checkout.metrics["cpu_usage"]
    assert (metric.unit, metric.quantity, metric.type) == ("{cpu}", "cpu", "counter")
    assert 'namespace="payments"' in metric.query


def test_solutions_are_pythons_values(client: drumlin.Client) -> None:
    """Numbers and times of a SELECT come as such, an unbound variable as None, and frames can be made of them."""
    rows = client.sparql(SELECT)
    assert rows.columns == ("name", "replicas", "started", "none")
    assert (rows[0]["name"], rows[0]["replicas"], rows[0]["none"]) == ("checkout", 3, None)
    assert rows[0]["started"].tzinfo is not None
    assert list(rows.to_pandas()["replicas"]) == [3, 2]
    assert rows.to_polars().shape == (2, 4)
    assert rows.to_arrow().num_rows == 2
    assert client.sparql("ASK { ?s ?p ?o }") is True
    assert client.sparql("CONSTRUCT { ?s a ?o } WHERE { ?s a ?o } LIMIT 1").endswith(" .\n")


def test_a_subgraph_is_created_replaced_and_deleted(client: drumlin.Client) -> None:
    """put, get, text, create and delete work on one graph, with ETags, and errors are the service's own."""
    name = uuid.uuid4().hex
    handle = client.subgraph(f"forecast/{name}")
    with pytest.raises(ResourceNotFound, match="there is no"):
        handle.get()
    etag = handle.create(forecast(name))
    assert handle.get() == forecast(name)
    with pytest.raises(AlreadyExists):
        handle.create(forecast(name))
    handle.put(handle.text("turtle"), syntax="turtle", if_match=etag)
    handle.put(forecast(name, model="other"), if_match=etag)
    with pytest.raises(PreconditionFailed):
        handle.put(forecast(name), if_match=etag)
    with pytest.raises(ShapeViolation) as refused:
        handle.put(forecast(name, modle="x"))
    assert refused.value.violations[0].suggestion == "model"
    handle.delete()
    with pytest.raises(ResourceGone):
        handle.get()


def test_what_was_read_is_written_only_when_it_is_still_so(client: drumlin.Client) -> None:
    """The ETag that comes with a document guards a put, a patch and a delete of it."""
    name = uuid.uuid4().hex
    handle = client.subgraph(f"forecast/{name}")
    handle.create(forecast(name))
    document, etag = handle.read()
    assert document == handle.get()
    newer = handle.put({**document, "model": "b"}, if_match=etag)
    for write in (handle.delete, partial(handle.patch, {"model": "c"}), partial(handle.put, document)):
        with pytest.raises(PreconditionFailed):
            write(if_match=etag)
    assert handle.read() == (handle.get(), newer)
    handle.delete(if_match=newer)


def test_entities_are_listed_by_what_is_known_of_them(client: drumlin.Client) -> None:
    """Several filters narrow together, several values of one widen; listing and search agree."""
    found = [
        each.id for each in client.subgraphs(type=["Deployment", "StatefulSet"], namespace="payments", cluster="prod")
    ]
    assert found == sorted(found)
    searched = client.search(type=["Deployment", "StatefulSet"], namespace="payments", cluster="prod", limit=1000)
    assert {each["id"] for each in searched["items"]} == set(found) != set()
    node = next(client.subgraphs(type="Node")).name
    pods = list(client.subgraphs(type="Pod", node=node))
    assert 0 < len(pods) < len(list(client.subgraphs(type="Pod")))


def test_a_query_has_its_dataset_and_its_deadline(client: drumlin.Client) -> None:
    """Graphs of the caller's are the default graph or the named ones; a deadline of his ends the query."""
    graph = f"http://example.org/{uuid.uuid4()}"
    client.graph(graph).put("<http://a> <http://b> 1 .")
    ask = "SELECT ?o WHERE { <http://a> <http://b> ?o }"
    assert client.sparql(ask, graphs=[graph])[0]["o"] == 1
    assert not client.sparql(ask, graphs=[f"{graph}/none"])
    assert client.sparql("ASK { GRAPH ?g { <http://a> <http://b> 1 } }", named=[graph])
    assert not client.sparql("ASK { GRAPH ?g { <http://a> <http://b> 1 } }", named=[f"{graph}/none"])
    endless = " . ".join(f"?a{n} ?b{n} ?c{n}" for n in range(6))
    with pytest.raises(QueryRejected) as late:
        client.sparql(f"SELECT (COUNT(*) AS ?n) WHERE {{ {endless} }}", seconds=0.2)
    assert late.value.reason == "timeout"
    client.graph(graph).delete()


def test_writes_of_many_graphs_are_atomic_on_request(client: drumlin.Client) -> None:
    """A refused write of an atomic request raises and leaves nothing behind."""
    lines = frozenset(
        {
            "<https://kg.example/id/domain/x1> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <https://w3id.org/drumlin/ns#Domain> .",
            '<https://kg.example/id/domain/x1> <https://w3id.org/drumlin/ns#name> "x1" .',
        }
    )
    good = GraphWrite.of("https://kg.example/id/domain/x1", lines, "test")
    stolen = GraphWrite.of(f"https://kg.example/id/{CHECKOUT}", None, "test")
    with pytest.raises(Conflict, match="is written by dump") as refused:
        client.apply([good, stolen], atomic=True)
    assert refused.value.detail["owner"] == "dump"
    with pytest.raises(ResourceNotFound):
        client.subgraph("domain/x1").get()
    assert [each["outcome"] for each in client.apply([good])] == ["created"]
    assert [each["outcome"] for each in client.apply([GraphWrite.of(good.graph, None, "test")])] == ["removed"]


def test_the_export_streams(client: drumlin.Client) -> None:
    """The whole graph comes in chunks."""
    assert b"".join(client.export()).count(b"\n") > 1000


def test_an_unknown_metric_says_which_there_are(client: drumlin.Client) -> None:
    """Asking a workload for a metric it does not have names those it has, before anything is sent."""
    with pytest.raises(ResourceNotFound) as refused:
        client.workload(CHECKOUT).history("cpu")
    assert "cpu_usage" in str(refused.value.hint)


def test_no_service_is_a_clear_error() -> None:
    """Nobody listening gives one error that says where and what to do."""
    with (
        drumlin.connect("http://127.0.0.1:9") as client,
        pytest.raises(SourceUnavailable, match="127.0.0.1:9") as failed,
    ):
        client.workloads()
    assert "drumlin serve" in str(failed.value.hint)


class Busy(BaseHTTPRequestHandler):
    """Answers 503 as often as it is told to, then 200; or not at all."""

    refusals = 0
    seconds = 0.0
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """Answer a reading request."""
        type(self).asked.append(self.path)
        time.sleep(self.seconds)
        type(self).refusals -= 1
        body = b'{"status": "alive"}'
        self.send_response(503 if self.refusals >= 0 else 200)
        self.send_header("Retry-After", "0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def busy() -> Iterator[str]:
    """A service that is busy, by its address."""
    Busy.asked, Busy.seconds = [], 0.0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Busy)
    server.daemon_threads = False  # a slow answer of one test would count in the next
    with listening(server):
        yield f"http://127.0.0.1:{server.server_port}"


def test_a_busy_service_is_asked_again_as_often_as_is_said(busy: str) -> None:
    """Two times more by default, ``retries`` otherwise; what is not safe to repeat is not repeated; by both clients."""
    Busy.refusals = 2
    with drumlin.connect(busy) as client:
        assert client.about()["status"] == "alive"
        assert len(Busy.asked) == 3
        Busy.refusals, Busy.asked = 9, []
        with pytest.raises(StoreUnavailable):
            client.about()
        assert len(Busy.asked) == 3
        with pytest.raises(StoreUnavailable):
            client.optimize()
        assert len(Busy.asked) == 4

    async def ask(retries: int) -> None:
        Busy.refusals, Busy.asked = 9, []
        async with drumlin.connect_async(busy, retries=retries) as other:
            with pytest.raises(StoreUnavailable):
                await other.about()
        assert len(Busy.asked) == retries + 1

    asyncio.run(ask(0))
    asyncio.run(ask(1))


def test_a_slow_service_is_given_up_and_not_asked_again(busy: str) -> None:
    """Past the time-out there is one clear error, and the request, which may be under way still, is not sent twice."""
    Busy.refusals, Busy.seconds = 0, 0.6
    with drumlin.connect(busy, timeout=0.2) as client, pytest.raises(SourceUnavailable, match="no answer"):
        client.about()
    assert len(Busy.asked) == 1


def test_the_asynchronous_twin_does_the_same(service: Service) -> None:
    """AsyncClient gives the same answers as Client."""

    async def ask() -> None:
        name = uuid.uuid4().hex
        async with drumlin.connect_async(service.url) as client:
            assert len(await client.workloads()) == 20
            checkout = await client.workload(CHECKOUT)
            assert (await checkout.metrics())["mem_usage"].unit == "By"
            assert (await checkout.load())["name"] == "checkout"
            assert len(await client.sparql(SELECT)) == 2
            assert (await client.about())["cluster"] == "prod"
            handle = client.subgraph(f"forecast/{name}")
            await handle.put(forecast(name))
            assert (await handle.get())["id"].endswith(name)
            assert "Forecast" in await handle.text()
            await handle.delete()
            with pytest.raises(ResourceGone):
                await handle.get()
            assert len([each async for each in client.subgraphs(type="Node")]) == 6
            assert b"".join([chunk async for chunk in client.export()])

    asyncio.run(ask())


def test_the_client_finds_patches_and_follows(client: drumlin.Client) -> None:
    """Search, patch, frame, around and changes do over HTTP what they say."""
    assert client.search("checkout", type=["Deployment", "Pod"])["items"][0]["name"] == "checkout"
    assert client.search(namespace="payments", type="Workload")["total"] == len(client.workloads(namespace="payments"))
    name = uuid.uuid4().hex
    handle = client.subgraph(f"forecast/{name}")
    changes = client.changes(since=client.ready()["generation"], type="Forecast")
    etag = handle.create(forecast(name))
    newer = handle.patch({"model": "b", "trainedTo": None}, if_match=etag)
    handle.patch('INSERT DATA { <> <http://purl.org/dc/terms/description> "x" }')
    with pytest.raises(PreconditionFailed):
        handle.patch({"model": "c"}, if_match=newer)
    assert (handle.get()["model"], handle.get()["description"]) == ("b", "x")
    found = [next(changes) for _ in range(3)]
    assert [each["subject"] for each in found] == [f"forecast/{name}"] * 3
    assert next(client.changes(since=found[0]["id"]))["id"] == found[1]["id"]
    assert '"b"' in next(client.changes(since=found[0]["id"], quads=True))["data"]["added"][0]
    with pytest.raises(EventsGone):
        next(client.changes(since=10**9))
    checkout = client.subgraph(CHECKOUT)
    assert checkout.frame("Deployment")["name"] == "checkout"
    around = checkout.around(include="partOf")
    assert [each["type"] for each in around] == ["Deployment", "Namespace"]


def test_an_update_is_run_and_a_wrong_one_told_with_its_place(client: drumlin.Client) -> None:
    """The generation that holds it comes back; a syntax error has line and column; a deadline of the caller's counts."""
    graph = f"http://example.org/{uuid.uuid4()}"
    before = client.ready()["generation"]
    assert client.update(f"INSERT DATA {{ GRAPH <{graph}> {{ <http://a> <http://b> 1 }} }}") == before + 1
    rename = "DELETE { ?s ?p 1 } INSERT { ?s ?p 2 } WHERE { ?s ?p 1 }"
    assert client.update(f"WITH <{graph}> {rename}") == before + 2
    assert client.update(rename, using=[f"{graph}/none"]) == before + 2
    assert client.sparql(f"ASK {{ GRAPH <{graph}> {{ ?s ?p 2 }} }}")
    with pytest.raises(QueryRejected, match="line 2") as refused:
        client.update("INSERT DATA {\n a b }")
    assert (refused.value.detail["line"], refused.value.reason) == (2, "syntax")
    endless = " . ".join(f"?a{n} ?b{n} ?c{n}" for n in range(6))
    with pytest.raises(QueryRejected) as late:
        client.update(f"INSERT {{ GRAPH <{graph}> {{ ?a0 <http://x> ?c5 }} }} WHERE {{ {endless} }}", seconds=0.2)
    assert late.value.reason == "timeout"
    client.update(f"DROP GRAPH <{graph}>")


def test_any_graph_is_kept_by_its_name(service: Service, client: drumlin.Client) -> None:
    """Put, added to, read in a syntax of one's choice and removed, by either client; a document that does not parse has a place."""
    iri = f"http://example.org/{uuid.uuid4()}"
    graph = client.graph(iri)
    assert graph.put("<http://a> <http://b> 1 .") is True
    assert graph.post('<http://a> <http://b> "2" .', syntax="ntriples") is False
    assert '"2" .' in graph.text("ntriples")
    with pytest.raises(InvalidDocument) as refused:
        graph.put("<http://a> <http://b> .\n")
    assert refused.value.detail["line"] == 1

    async def ask() -> None:
        async with drumlin.connect_async(service.url) as other:
            assert (await other.graph(iri).text("ntriples")).count("\n") == 2
            assert await other.graph(iri).put("<http://a> <http://b> 3 .") is False
            assert await other.graph(iri).post("<http://a> <http://b> 4 .") is False
            assert await other.update(f"DELETE DATA {{ GRAPH <{iri}> {{ <http://a> <http://b> 3 }} }}") > 0
            assert (await other.graph(iri).text("ntriples")).count("\n") == 1
            await other.graph(iri).delete()

    asyncio.run(ask())
    with pytest.raises(ResourceNotFound):
        graph.text()
    with pytest.raises(ResourceNotFound):
        graph.delete()
    with pytest.raises(errors.InvalidInput, match="empty"):  # it must not stand for the default graph
        client.graph("")


def test_what_operators_and_rdf_tools_ask(service: Service, client: drumlin.Client) -> None:
    """State, vocabulary, descriptions and documents come from both clients with the same methods, of one definition."""
    assert client.check()["whole"]
    assert client.audit()["graphs"] > 100
    assert client.optimize()["after"] > 0
    assert client.backup()[257:262] == b"ustar"
    assert "drumlin_http_requests_total" in client.metrics_text()
    assert "@prefix" in client.ontology()
    assert "sh:" in client.vocabulary("shapes")
    assert "@context" in client.context()
    name = client.profiles()[0]["name"]
    assert client.profile(name).endswith(" .\n")
    assert "CONSTRUCT" in client.rules(name)
    assert "void#" in client.dataset("ntriples")
    assert client.document_address(CHECKOUT) == f"/doc/{CHECKOUT}"

    async def ask() -> None:
        async with drumlin.connect_async(service.url) as other:
            assert await other.document(CHECKOUT) == client.document(CHECKOUT)
            with pytest.raises(ResourceNotFound):
                await other.profile("none")

    asyncio.run(ask())


def test_following_goes_on_after_the_service_was_away(tmp_path: Path) -> None:
    """A client that follows changes while the service is killed and started again gets each change once."""
    port = str(free_port())
    options = ("--store", str(tmp_path / "store"), "--port", port)
    seen: list[str] = []
    with drumlin.connect(f"http://127.0.0.1:{port}") as client:
        with serving(*options) as first:
            changes = client.changes(since=0)
            client.subgraph("forecast/a").create(forecast("a"))
            seen += iter(lambda: next(changes)["subject"], "forecast/a")
            first.process.kill()
            first.process.wait()
        with serving(*options):
            client.subgraph("forecast/b").create(forecast("b"))
            seen += ["forecast/a", *iter(lambda: next(changes)["subject"], "forecast/b"), "forecast/b"]
            with drumlin.connect(client.url) as other:
                everything = other.changes(since=0)
                assert [next(everything)["subject"] for _ in seen] == seen


def test_the_twin_finds_and_follows_too(service: Service) -> None:
    """AsyncClient searches, asks, patches and follows like Client."""

    async def ask() -> None:
        name = uuid.uuid4().hex
        async with drumlin.connect_async(service.url) as client:
            assert (await client.search("checkout"))["items"][0]["name"] == "checkout"
            assert await client.query("classes")
            assert await client.queries()
            since = (await client.ready())["generation"]
            handle = client.subgraph(f"forecast/{name}")
            await handle.put(forecast(name))
            await handle.patch({"model": "b"})
            assert (await handle.around(1))[0]["model"] == "b"
            assert (await handle.frame("Forecast"))["model"] == "b"
            async for change in client.changes(since=since, owner="user"):
                assert change["subject"] == f"forecast/{name}"
                break

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("plain", "twin"),
    [
        (Client, AsyncClient),
        (Subgraph, AsyncSubgraph),
        (Graph, AsyncGraph),
        (Forecasts, AsyncForecasts),
        (Workload, AsyncWorkload),
    ],
)
def test_twins_have_the_same_methods_with_the_same_parameters(plain: type, twin: type) -> None:
    """No operation is missing on either side; each is one definition, or takes the same parameters."""
    only_here = {"document", "load"}  # a workload's document is a property that fetches, or is loaded
    methods, others = ({each for each in dir(kind) if not each.startswith("_")} - only_here for kind in (plain, twin))
    assert methods == others
    for name in methods:
        member, other = getattr(plain, name), getattr(twin, name)
        if inspect.isfunction(member):
            assert list(inspect.signature(member).parameters) == list(inspect.signature(other).parameters), name
        elif not isinstance(member, property):
            assert member is other, name


def test_importing_kg_is_fast_and_light() -> None:
    """``import drumlin`` loads neither the engine, pyarrow, pandas nor FastAPI."""
    heavy = ("pyoxigraph", "pyarrow", "pandas", "fastapi", "httpx", "rdflib")
    code = f"import drumlin, sys; assert not [name for name in {heavy!r} if name in sys.modules], sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


CONSTRUCT = """PREFIX : <https://w3id.org/drumlin/ns#>
CONSTRUCT { ?w :name ?name ; :container _:c . _:c :name ?name } WHERE { ?w a :Deployment ; :name ?name }"""


def test_graphs_come_as_rdflibs(service: Service, client: drumlin.Client) -> None:
    """An entity's graph, a graph by name, and CONSTRUCT and DESCRIBE results become rdflib graphs, with either client."""
    name = rdflib.URIRef("https://w3id.org/drumlin/ns#name")
    checkout = client.subgraph(CHECKOUT)
    graph = checkout.to_rdflib()
    assert isomorphic(graph, rdflib.Graph().parse(data=str(checkout.text("turtle")), format="turtle"))
    assert "checkout" in {str(each) for each in graph.objects(predicate=name)}
    for syntax in ("nquads", "jsonld"):
        dataset = checkout.text(syntax).to_rdflib()
        assert isinstance(dataset, rdflib.Dataset)
        (quads,) = [each for each in dataset.graphs() if len(each)]
        assert isomorphic(quads, graph)
    made = client.sparql(CONSTRUCT).to_rdflib()
    assert len(set(made.subjects(predicate=name))) == 2 * len(client.workloads(kind="Deployment"))
    described = client.sparql(f"DESCRIBE <https://kg.example/id/{CHECKOUT}>").to_rdflib()
    assert (rdflib.URIRef(f"https://kg.example/id/{CHECKOUT}"), name, rdflib.Literal("checkout")) in described
    assert len(client.ontology().to_rdflib()) > 100
    iri = f"http://example.org/{uuid.uuid4()}"
    client.graph(iri).put("<http://a> <http://b> [] .")

    async def ask() -> None:
        async with drumlin.connect_async(service.url) as asking:
            assert set(await asking.subgraph(CHECKOUT).to_rdflib()) == set(graph)
            assert set(await asking.graph(iri).to_rdflib()) == set(client.graph(iri).to_rdflib())
            assert isomorphic((await asking.sparql(CONSTRUCT)).to_rdflib(), made)
            with pytest.raises(ResourceNotFound):
                await asking.graph(iri + "/none").to_rdflib()

    asyncio.run(ask())
    client.graph(iri).delete()
