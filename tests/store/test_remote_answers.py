"""Answers of servers elsewhere that would end the process that reads them, or its request: refused as what cannot be read."""

from __future__ import annotations

import http.server
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import drumlin
from drumlin.kg.config.datasources import DatasourceKind, DatasourceSettings, StoreSettings
from drumlin.kg.errors import DatasourceRefused, SourceUnavailable, StoreUnavailable
from drumlin.kg.model.iris import Iris
from drumlin.kg.sparql.dataset import Chosen
from drumlin.kg.store.remote import querying
from drumlin.kg.store.remote.connection import EngineConnection
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.grafana import Grafana
from drumlin.kg.telemetry.fetch.influxdb import InfluxDB
from drumlin.kg.telemetry.fetch.loki import Loki
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from tests import hostile
from tests.listening import listening


class _Engine(http.server.BaseHTTPRequestHandler):
    """A server that answers everything with one body."""

    body = b""

    def do_POST(self) -> None:
        """Answer."""
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def engine() -> Iterator[EngineConnection]:
    """A connection to it."""
    with listening(http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Engine)) as server:
        connection = EngineConnection(
            f"sparql+http://127.0.0.1:{server.server_address[1]}", StoreSettings(engine="oxigraph", timeout=20)
        )
        yield connection
        connection.close()


@pytest.mark.parametrize("depth", [101, 100_000])
def test_what_an_engine_answers_is_not_read_when_it_is_nested_too_deeply(engine: EngineConnection, depth: int) -> None:
    """Neither solutions nor triples, in our own look-ups nor in a caller's query; an answer within the limit is read."""
    select, construct = Chosen("SELECT ?a { ?a ?b ?c }"), Chosen("CONSTRUCT WHERE { ?a ?b ?c }")

    def asked(chosen: Chosen, media_type: str) -> bytes:
        out = io.BytesIO()
        querying.work(engine, chosen, media_type, None, 20)(out)
        return out.getvalue()

    _Engine.body = hostile.solutions(depth)
    for ask in (
        lambda: querying.rows(engine, select.text),
        lambda: querying.look_up(engine, select.text, {}),
        lambda: asked(select, "text/csv"),
    ):
        with pytest.raises(StoreUnavailable, match="cannot be read: triple terms are nested more than 100 levels deep"):
            ask()
    _Engine.body = hostile.triple_terms(depth)
    with pytest.raises(StoreUnavailable, match="cannot be read: terms are nested more than 100 levels deep"):
        asked(construct, "text/turtle")

    _Engine.body = hostile.solutions(100)
    assert len(querying.rows(engine, select.text)) == 1
    _Engine.body = hostile.triple_terms(100)
    assert asked(construct, "application/n-triples").count(b"<<(") == 100


def test_an_answer_that_is_no_result_is_said_to_be_unreadable(engine: EngineConnection) -> None:
    """Our own look-ups name the engine, too, when it answers something else than JSON results."""
    _Engine.body = b"<html>"

    with pytest.raises(StoreUnavailable, match="answers something that cannot be read"):
        querying.rows(engine, "SELECT ?a { ?a ?b ?c }")


def _address(engine: EngineConnection) -> str:
    return f"http://{engine.host}"


_Server = Prometheus | Loki | Grafana | InfluxDB
ASKED: dict[DatasourceKind, tuple[type[_Server], Callable[[Any], object]]] = {
    "prometheus": (Prometheus, lambda server: server.probe()),
    "loki": (Loki, lambda server: server.probe()),
    "grafana": (Grafana, lambda server: server.datasources()),
    "influxdb": (InfluxDB, lambda server: server.measurements()),
}


@pytest.mark.parametrize("kind", ASKED)
@pytest.mark.parametrize(
    "body",
    [b'{"a":' * 100_000, b'{"status":"\xff","version":"\xff","results":"\xff"}', b'[{"a":"\xff"}]'],
    ids=["deep", "bytes", "list"],
)
def test_what_a_datasource_answers_is_refused_when_it_cannot_be_decoded(
    engine: EngineConnection, kind: DatasourceKind, body: bytes
) -> None:
    """JSON without end, and what is not UTF-8, is an error that names the datasource."""
    _Engine.body = body
    given = {"name": "odd", "kind": kind, "url": _address(engine), "database": "d" if kind == "influxdb" else None}
    settings = DatasourceSettings.model_validate({key: value for key, value in given.items() if value})
    open_, ask = ASKED[kind]

    datasource = Datasource.from_settings(settings, Iris("https://kg.example"), None)
    with open_(datasource) as server, pytest.raises(DatasourceRefused, match="datasource odd answered"):
        ask(server)


def test_what_a_service_answers_is_refused_by_its_client_when_it_cannot_be_decoded(engine: EngineConnection) -> None:
    """A client says that the address is no service's, whatever stands there."""
    for body in (b"[" * 100_000, b'"\xff"'):
        _Engine.body = body
        with drumlin.connect(_address(engine)) as client, pytest.raises(SourceUnavailable, match="no service's answer"):
            client.forecasts.list(("a", "b"))
