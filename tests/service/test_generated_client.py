"""A client that openapi-python-client makes of the OpenAPI document, with its default settings, uses the service as it is."""

from __future__ import annotations

import importlib
import io
import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import openapi_python_client as generator
import pyarrow as pa
import pytest
from openapi_python_client.config import Config, ConfigFile

from tests.service.conftest import BASE, Service

PACKAGE = "generated_drumlin_client"
CHECKOUT = "prod/payments/deployment/checkout"


@pytest.fixture(scope="module")
def made(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """Generate the client, and return what imports a part of it."""
    folder = tmp_path_factory.mktemp("generated")
    document = folder / "openapi.json"
    document.write_bytes(httpx.get(f"{service.url}/openapi.json").content)
    kind = generator.MetaType.NONE
    told = ConfigFile(post_hooks=[])  # it would have ruff format what nobody reads
    config = Config.from_sources(told, kind, document, "utf-8", overwrite=False, output_path=folder / PACKAGE)
    problems = generator.generate(config=config)
    assert not [each for each in problems if "Endpoint will not be generated" in each.header]
    sys.path.insert(0, str(folder))
    try:
        yield lambda name: importlib.import_module(f"{PACKAGE}.{name}")
    finally:
        sys.path.remove(str(folder))
        for name in [each for each in sys.modules if each.startswith(PACKAGE)]:
            del sys.modules[name]


@pytest.fixture
def client(made: Callable[[str], Any], service: Service) -> Iterator[Any]:
    """A client of the service."""
    with made("client").Client(base_url=service.url) as client:
        yield client


def test_it_asks_with_the_parameters_of_the_protocol(made: Callable[[str], Any], client: Any) -> None:
    """The query, its dataset and its format are arguments by GET, fields of a form by POST; an update is one too."""
    query = "SELECT ?s { ?s a <https://w3id.org/drumlin/ns#Deployment> } LIMIT 1"
    found = made("api.sparql.get_sparql").sync_detailed(client=client, query=query, format_="json")
    assert found.parsed["results"]["bindings"][0]["s"]["value"].startswith(BASE)
    form = made("models").PostSparqlDataBody(query=query)
    nothing = made("api.sparql.post_sparql").sync_detailed(client=client, body=form, default_graph_uri=["urn:none"])
    assert nothing.parsed["results"]["bindings"] == []
    update = made("models").PostSparqlUpdateDataBody(update="CLEAR SILENT GRAPH <urn:none>")
    assert made("api.sparql.post_sparql_update").sync_detailed(client=client, body=update).status_code == 204


def test_it_sends_lines_and_points(made: Callable[[str], Any], client: Any) -> None:
    """What it knows no type for it sends as bytes: lines of JSON, and the points of a forecast."""
    iri = f"{BASE}/id/domain/generated"
    line = {"op": "put", "id": "domain/generated", "document": {"id": iri, "type": "Domain", "name": "generated"}}
    file = made("types").File
    written = made("api.subgraphs.post_subgraphs").sync_detailed(
        client=client, body=file(payload=io.BytesIO(json.dumps(line).encode()))
    )
    assert json.loads(written.content)["outcome"] == "created"

    start = datetime(2026, 11, 27, tzinfo=UTC)
    points = pa.table({"ds": [start + timedelta(hours=each) for each in range(3)], "y": [1.0, 2.0, 3.0]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, points.schema) as stream:
        stream.write_table(points)
    saved = made("api.telemetry.post_forecasts").sync_detailed(
        client=client, body=file(payload=io.BytesIO(sink.getvalue().to_pybytes())),
        model="mine", horizon="3h", step="1h", entity=CHECKOUT, metric="cpu_usage",
    )  # fmt: skip
    assert saved.status_code == 404  # the points were read, and this service has no place for them
    assert saved.parsed.detail.startswith("no datasource takes forecasts"), saved.content
