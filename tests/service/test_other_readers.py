"""Other people's JSON-LD and SPARQL tools read a running service: rdflib, pyld, pyoxigraph, npm's ``jsonld`` and Comunica.

The base of this service is its own address, as that of every service should be, so what its documents name can be fetched.
"""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyoxigraph as ox
import pytest
import rdflib
from pyld import jsonld as pyld

from drumlin.api.demo.prometheus import free_port
from drumlin.kg import rdf
from drumlin.kg.rdf.syntax import Lines
from tests import javascript_packages
from tests.service.conftest import SAMPLE, drumlin_asks, serving, until_ready

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")  # rdflib's own, of itself
CHECKOUT = "prod/payments/deployment/checkout"
AT_CHECKOUT = ("subgraph", "doc", "id")
LOADERS = (pyld.requests_document_loader, pyld.aiohttp_document_loader)
ROWS = "SELECT ?s ?p ?o { ?s ?p ?o }"
ROWS_OF_GRAPHS = "SELECT ?s ?p ?o { GRAPH ?g { ?s ?p ?o } }"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service that is also its base."""
    base = f"http://127.0.0.1:{(port := free_port())}"
    store = str(tmp_path_factory.mktemp("store"))
    with serving("--port", str(port), "--base", base, "--store", store, "--source", f"dump:{SAMPLE}") as running:
        until_ready(running)
        assert running.url == base
        yield base


@pytest.fixture(scope="module")
def said(url: str) -> Lines:
    """The statements about the checkout deployment."""
    return rdf.parse(httpx.get(f"{url}/subgraph/{CHECKOUT}?format=ntriples").content, rdf.NTRIPLES)[None]


@pytest.fixture(scope="module")
def exported(url: str) -> dict[str | None, Lines]:
    """The statements of every graph."""
    return rdf.parse(httpx.get(f"{url}/export?format=nquads").content, rdf.NQUADS)


def _lines(graph: rdflib.Graph) -> Lines:
    return rdf.parse(graph.serialize(format="nt").encode(), rdf.NTRIPLES)[None]


def _all(exported: dict[str | None, Lines]) -> Lines:
    return frozenset().union(*exported.values())


# -- Python ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", AT_CHECKOUT)
def test_rdflib_reads_an_address(url: str, said: Lines, path: str) -> None:
    """``Graph().parse(url)``, which accepts every syntax alike, has every statement, and so have the forms of JSON-LD."""
    address = f"{url}/{path}/{CHECKOUT}"

    assert _lines(rdflib.Graph().parse(address)) == said
    if path != "id":
        assert _lines(rdflib.Graph().parse(address, format="json-ld")) == said
        assert _lines(rdflib.Graph().parse(f"{address}?format=jsonld&context=inline")) == said


def test_rdflib_reads_an_export(url: str, exported: dict[str | None, Lines]) -> None:
    """A graph takes in all statements of an export, a dataset the graphs of its JSON-LD."""
    dataset = rdflib.Dataset().parse(f"{url}/export?format=jsonld", format="json-ld")

    assert _lines(rdflib.Graph().parse(f"{url}/export")) == _all(exported)
    assert rdf.parse(dataset.serialize(format="nquads").encode(), rdf.NQUADS) == exported


@pytest.mark.parametrize("loader", LOADERS, ids=lambda loader: loader.__name__)
def test_pyld_reads_an_address(
    url: str, said: Lines, exported: dict[str | None, Lines], loader: Callable[[], Any]
) -> None:
    """Pyld's own loaders fetch a document and the context that it names; one that carries it, and an export, are read alike."""
    to_rdf = functools.partial(_pyld_quads, loader=loader())

    for path in AT_CHECKOUT:
        assert to_rdf(f"{url}/{path}/{CHECKOUT}") == {None: said}
    assert to_rdf(f"{url}/subgraph/{CHECKOUT}?context=inline") == {None: said}
    assert to_rdf(f"{url}/subgraph/{CHECKOUT}?frame=Deployment&context=inline") == {None: said}
    around = httpx.get(f"{url}/subgraph/{CHECKOUT}?depth=1&format=nquads").content
    assert to_rdf(f"{url}/subgraph/{CHECKOUT}?depth=1") == rdf.parse(around, rdf.NQUADS)
    assert to_rdf(f"{url}/export") == exported


def _pyld_quads(document: Any, loader: Callable[..., Any]) -> dict[str | None, Lines]:
    written = pyld.to_rdf(document, {"format": "application/n-quads", "documentLoader": loader})
    return rdf.parse(written.encode(), rdf.NQUADS)


def _refuse(url: str, _: Any) -> Any:
    raise AssertionError(f"{url} was asked for")


def test_what_carries_its_context_is_read_offline(
    url: str, said: Lines, exported: dict[str | None, Lines], tmp_path: Path
) -> None:
    """Pyoxigraph, which never fetches, and pyld without a network read the inline form, exports, dumps and ``get -o jsonld``."""
    document = httpx.get(f"{url}/subgraph/{CHECKOUT}", headers={"Prefer": "context=inline"})
    dump = drumlin_asks("dump", "--format", "jsonld", "-u", url)
    got = drumlin_asks("get", CHECKOUT, "-o", "jsonld", "-u", url)
    framed = httpx.get(f"{url}/export?frame=Workload").json()

    for text, expected in (
        (document.text, {None: said}),
        (got.stdout, {None: said}),
        (dump.stdout, exported),
        (httpx.get(f"{url}/export?format=jsonld").text, exported),
    ):
        quads = ox.parse(text.encode(), format=ox.RdfFormat.JSON_LD)
        assert rdf.parse(ox.serialize(quads, format=ox.RdfFormat.N_QUADS) or b"", rdf.NQUADS) == expected
        assert _pyld_quads(json.loads(text), _refuse) == expected
    workloads = _pyld_quads(framed, _refuse)
    assert workloads == {graph: exported[graph] for graph in workloads} != {}


# -- JavaScript -----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def node() -> Callable[..., Any]:
    """Run ``tests/javascript/read.mjs`` with its packages, which are installed when they are not there yet."""
    javascript_packages.install()

    def run(**asked: Any) -> Any:
        command = ["node", "read.mjs", json.dumps(asked)]
        done = subprocess.run(
            command, cwd=javascript_packages.FOLDER, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_jsonld_js_reads_an_address(
    url: str, said: Lines, exported: dict[str | None, Lines], node: Callable[..., Any]
) -> None:
    """Npm's ``jsonld`` finds in documents, in both forms of their context, and in exports what N-Triples and N-Quads say."""
    inline = f"{url}/subgraph/{CHECKOUT}?context=inline"
    documents = [*(f"{url}/{path}/{CHECKOUT}" for path in AT_CHECKOUT), inline]

    *read, export = node(jsonld=[*documents, f"{url}/export"])["jsonld"]

    assert [rdf.parse(each.encode(), rdf.NQUADS) for each in read] == [{None: said}] * len(documents)
    assert rdf.parse(export.encode(), rdf.NQUADS) == exported


def test_comunica_queries_an_address(
    url: str, said: Lines, exported: dict[str | None, Lines], node: Callable[..., Any]
) -> None:
    """A query of a document's address has a row for each statement; the graphs of an export are asked by name."""
    inline = f"{url}/subgraph/{CHECKOUT}?context=inline"
    documents = [*(f"{url}/{path}/{CHECKOUT}" for path in AT_CHECKOUT), inline]

    asked = [*([each, ROWS] for each in documents), [f"{url}/export", ROWS_OF_GRAPHS]]
    *read, export = node(comunica=asked)["comunica"]

    assert [_stated(each) for each in read] == [said] * len(documents)
    assert _stated(export) == _all(exported)


def _stated(rows: list[dict[str, str]]) -> Lines:
    text = "".join(f"{each['s']} {each['p']} {each['o']} .\n" for each in rows)
    return rdf.parse(text.encode(), rdf.NTRIPLES)[None]
