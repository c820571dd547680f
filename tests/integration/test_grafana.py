"""A Grafana's datasources imported, and links into it: its API is answered by a replay of what its documentation shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.errors import DatasourceRefused, SourceUnavailable
from drumlin.kg.rdf.jsonld import NodeDocument
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.importing import import_from
from drumlin.kg.telemetry.probing import probe
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Window
from drumlin.kg.telemetry.templates import TemplateCatalogue
from tests.integration.conftest import at
from tests.integration.test_prometheus_history import CHECKOUT, NODE_A, documents
from tests.listening import listening
from tests.unit.telemetry_store import IRIS, GraphStore

TOKEN = "glsa_secret-token"
_COMMON = {"orgId": 1, "typeLogoUrl": "", "access": "proxy", "basicAuth": False, "isDefault": False, "readOnly": False}
LISTED: list[dict[str, Any]] = [
    {
        **_COMMON,
        "id": 1,
        "uid": "prom-1",
        "name": "Mimir (team a)",
        "type": "prometheus",
        "url": "http://reader:hunter2@mimir:8080/prometheus/",
        "user": "reader-name",
        "basicAuthUser": "basic-name",
        "jsonData": {"httpMethod": "POST", "timeInterval": "15s", "httpHeaderName1": "X-Secret-Header"},
        "secureJsonFields": {"basicAuthPassword": True, "httpHeaderValue1": True},
    },
    {**_COMMON, "id": 2, "uid": "loki", "name": "Loki", "type": "loki", "url": "http://loki:3100", "jsonData": {}},
    {
        **_COMMON,
        "id": 3,
        "uid": "jg",
        "name": "traces",
        "type": "jaeger",
        "url": "http://jaeger:16686",
        "jsonData": None,
    },
    {
        **_COMMON,
        "id": 4,
        "uid": "ix",
        "name": "Influx",
        "type": "influxdb",
        "url": "http://influx:8086",
        "database": "db-name",
    },
    {**_COMMON, "id": 5, "uid": "pg", "name": "Postgres", "type": "grafana-postgresql-datasource", "url": "pg:5432"},
    {**_COMMON, "id": 6, "uid": "bad", "name": "Odd", "type": "prometheus", "url": ""},
    {**_COMMON, "id": 7, "uid": "twin", "name": "Twin", "type": "prometheus", "url": "http://prometheus:9090/"},
]
SECRETS = ("hunter2", "reader", "basic-name", "X-Secret-Header", "db-name", TOKEN)


class FakeGrafana(ThreadingHTTPServer):
    """Lists datasources to who has the token; everybody else is refused in Grafana's words. ``answer`` replaces all that."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.listed = LISTED
        self.answer: bytes | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: FakeGrafana

    def do_GET(self) -> None:
        status, body = 200, b""
        if self.path == "/api/health":
            body = b'{"commit": "x", "database": "ok", "version": "11.2.0"}'
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            status, body = 401, b'{"message": "Invalid API key"}'
        elif self.path == "/api/datasources":
            body = json.dumps(self.server.listed).encode()
        self.send_response(status)
        body = self.server.answer or body
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture(scope="module")
def server() -> Iterator[FakeGrafana]:
    """A Grafana on loopback."""
    with listening(FakeGrafana()) as running:
        yield running


@pytest.fixture
def grafana(server: FakeGrafana, tmp_path: Path) -> Iterator[Datasource]:
    """It, configured with a token from a file."""
    (tmp_path / "token").write_text(TOKEN)
    yield _configured(server.url, credential={"secret": f"file:{tmp_path / 'token'}"})
    server.answer = None


def _configured(url: str, **more: object) -> Datasource:
    given = {"name": "grafana-main", "kind": "grafana", "url": url, **more}
    return Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, "https://kg.example/id/domain/d")


def _known(url: str = "http://prometheus:9090", kind: str = "prometheus") -> Datasource:
    given = {"name": "prometheus-main", "kind": kind, "url": url}
    return Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, None)


def test_what_a_grafana_lists_becomes_graphs(grafana: Datasource) -> None:
    """Name, kind, address and interval of those that are known kinds; what is known already, or no use, is told."""
    written: dict[str, NodeDocument] = {}

    def write(iri: str, document: NodeDocument) -> str:
        written[iri] = document
        return "created"

    found = import_from(grafana, [_known()], IRIS, write)

    outcomes = ["created", "created", "created", "created", "unsupported", "unusable", "known"]
    assert [each["outcome"] for each in found] == outcomes
    document = written[IRIS.datasource("grafana-main.prom-1")]
    assert document["name"] == "Mimir (team a)"
    assert document["endpointURL"] == "http://mimir:8080/prometheus"
    assert (document["datasourceType"], document["scrapeInterval"]) == ("prometheus", "PT15S")
    assert document["domain"] == "https://kg.example/id/domain/d"
    assert found[-1]["id"] == IRIS.datasource("prometheus-main")
    assert [each["datasourceType"] for each in written.values()] == ["prometheus", "loki", "jaeger", "influxdb"]
    assert not [secret for secret in SECRETS if secret in json.dumps(list(written.values())) + json.dumps(found)]


def test_a_name_that_another_has_is_not_taken(grafana: Datasource) -> None:
    """A datasource of the name of a configured one is told apart by Grafana's uid."""
    other = _known("http://elsewhere:3100", "loki")
    written: list[NodeDocument] = []
    taken = Datasource(name="Loki", iri=other.iri, kind="loki", url="http://elsewhere:3100")
    import_from(grafana, [taken], IRIS, lambda _, document: written.append(document) or "created")
    assert "grafana-main.loki" in {each["name"] for each in written}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(b"<html>login</html>", "not Grafana's JSON"), (b'[{"name": "no uid"}]', "not Grafana's JSON")],
)
def test_what_is_no_grafana_is_told(grafana: Datasource, server: FakeGrafana, answer: bytes, reason: str) -> None:
    """HTML of a login page, JSON of another shape: one line, and nothing is written."""
    server.answer = answer
    with pytest.raises(DatasourceRefused, match=reason):
        import_from(grafana, [], IRIS, lambda *_: pytest.fail("written"))


def test_without_a_token_nothing_is_listed(server: FakeGrafana) -> None:
    """No token, a wrong one, no server: what Grafana says, and what to do; the look at it tells the version all the same."""
    with pytest.raises(DatasourceRefused, match=r"\(401\): Invalid API key") as error:
        import_from(_configured(server.url), [], IRIS, lambda *_: "created")
    assert "credential" in str(error.value.hint)
    with pytest.raises(SourceUnavailable, match="cannot be reached"):
        import_from(_configured("http://127.0.0.1:9", timeout=1), [], IRIS, lambda *_: "created")
    seen = probe(_configured(server.url), TemplateCatalogue.shipped(), at(0))
    assert (seen["reachable"], seen["version"]) == (True, "11.2.0")


def test_a_resolution_links_to_the_pages_of_its_window() -> None:
    """Dashboards by scope with the window in milliseconds, Jaeger's search in microseconds; nothing for a scope without a template."""
    board = "https://grafana.example/d/w?var-ns={namespace}&var-w={name}"
    own = "https://grafana.example/d/n/{name}?from={from}&to={to}&orgId=1"
    pages = [_configured("https://grafana.example", dashboards={"workload": board, "node": own})]
    jaeger = DatasourceSettings.model_validate({"name": "jaeger-main", "kind": "jaeger", "url": "http://jaeger:16686"})
    pages.append(Datasource.from_settings(jaeger, IRIS, None))
    resolver = Resolver(GraphStore(documents()), IRIS, [_known(), *pages])
    window = Window(at(0), at(60))
    first, last = (str(int(each.timestamp() * 1000)) for each in (at(0), at(60)))

    links = resolver.resolve(CHECKOUT, "cpu_usage", window).to_dict()["links"]
    assert links == {
        "grafana-main": f"https://grafana.example/d/w?var-ns=payments&var-w=checkout&from={first}&to={last}",
        "jaeger-main": f"http://jaeger:16686/search?service=checkout&start={first}000&end={last}000",
    }
    assert resolver.resolve(NODE_A, "cpu_usage", window).links == {
        "grafana-main": f"https://grafana.example/d/n/edge-a-1?from={first}&to={last}&orgId=1"
    }
    assert (
        "links"
        not in Resolver(GraphStore(documents()), IRIS, [_known()]).resolve(NODE_A, "cpu_usage", window).to_dict()
    )
