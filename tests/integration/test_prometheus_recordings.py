"""Every exchange recorded from a real Prometheus, replayed: as the answer to a range query it is its series or an error, never less."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from drumlin.kg.errors import DatasourceRefused
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.series import Grid
from tests.integration.test_prometheus_faults import FaultServer, Reply, _datasource
from tests.listening import listening

DIRECTORY = Path(__file__).resolve().parents[3] / "shared" / "data" / "prom-loki-recorded"
RECORDINGS = sorted(path.stem for path in DIRECTORY.glob("prom_*.json"))
GRID = Grid(1_795_723_200, 1_795_726_800, 60)
SPAN = (datetime(2026, 11, 27, 20, tzinfo=UTC), datetime(2026, 11, 27, 21, tzinfo=UTC))


def _recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DIRECTORY / f"{name}.json").read_text())
    return found


def _reply(response: dict[str, Any]) -> Reply:
    body = response["body"]
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    headers = {key: value for key, value in response.get("headers", {}).items() if key != "content-encoding"}
    return response["status"], headers, content


@pytest.fixture
def server() -> Iterator[FaultServer]:
    """A server that says what was recorded; skips, except in CI, where the recordings are not."""
    if not RECORDINGS:
        if os.environ.get("CI") == "true":
            pytest.fail("no recordings in ../shared/data/prom-loki-recorded")
        pytest.skip("no recordings in ../shared/data/prom-loki-recorded")
    with listening(FaultServer()) as running:
        yield running


@pytest.fixture
def client(server: FaultServer) -> Iterator[Prometheus]:
    """A client of that server which does not wait between tries."""
    with Prometheus(_datasource(server.server_port, timeout=20), sleep=lambda _: None) as opened:
        yield opened


def _said(body: Any) -> str:
    """Return the server's own words of an error, as they stand in one line."""
    words = body.get("error", "") if isinstance(body, dict) else body
    return " ".join(words.split())[:100]


@pytest.mark.parametrize("name", RECORDINGS or ["none"])
def test_a_recording_is_its_series_or_an_error(client: Prometheus, server: FaultServer, name: str) -> None:
    """A matrix of one series gives its values, an empty one none; everything else is refused with the server's words."""
    response = _recorded(name)["response"]
    body = response["body"]
    server.replies = [_reply(response)]
    matrix = response["status"] == 200 and isinstance(body, dict) and isinstance(body.get("data"), dict)
    series = body["data"].get("result") if matrix and body["data"].get("resultType") == "matrix" else None

    if series is not None and len(series) < 2:
        found = client.series("up", GRID).parts
        expected = [(round(float(at)), float(value)) for each in series for at, value in each["values"]]
        pairs = [zip(part.seconds.to_pylist(), part.values.to_pylist(), strict=True) for part in found]
        assert [pair for part in pairs for pair in part] == expected
        return
    with pytest.raises(DatasourceRefused) as error:
        client.series("up", GRID)
    assert str(error.value).startswith("datasource prometheus-main ")
    assert "asked for up" in str(error.value)
    if response["status"] != 200 and response["status"] != 301:
        assert _said(body) in str(error.value)
    elif series is not None:
        assert f"{len(series)} series where one was expected" in str(error.value)


@pytest.mark.parametrize(
    "name",
    ["prom_query_range_matrix", "prom_query_range_matrix_post", "prom_query_range_gap", "prom_query_range_pod_churn"],
)
def test_each_series_of_a_recorded_matrix_is_decoded_alone(client: Prometheus, server: FaultServer, name: str) -> None:
    """Gaps stay gaps: exactly the recorded points of each series, no more."""
    response = _recorded(name)["response"]
    series = response["body"]["data"]["result"]
    assert series
    for each in series:
        data = {"resultType": "matrix", "result": [each]}
        server.replies = [(200, {}, json.dumps({"status": "success", "data": data}).encode())]
        (part,) = client.series("up", GRID).parts
        assert part.seconds.to_pylist() == [at for at, _ in each["values"]]
        assert part.values.to_pylist() == [float(value) for _, value in each["values"]]


INDEX: dict[str, Callable[[Prometheus], Any]] = {
    "prom_labels": lambda client: client.label_names("up", *SPAN),
    "prom_label_values_namespace": lambda client: client.label_values("namespace", *SPAN),
    "prom_buildinfo": lambda client: client.probe(),
}


@pytest.mark.parametrize("name", INDEX)
def test_what_is_asked_of_the_index_is_read(client: Prometheus, server: FaultServer, name: str) -> None:
    """Label names, label values and the version are what the server said."""
    response = _recorded(name)["response"]
    server.replies = [_reply(response)]
    data = response["body"]["data"]
    assert INDEX[name](client) == (data["version"] if name == "prom_buildinfo" else data)


@pytest.mark.parametrize("name", ["prom_label_values_bad_name", "prom_series_missing_match", "prom_err_404"])
def test_what_the_index_refuses_is_told(client: Prometheus, server: FaultServer, name: str) -> None:
    """The server's words reach the error of an index look-up too."""
    response = _recorded(name)["response"]
    server.replies = [_reply(response)]
    with pytest.raises(DatasourceRefused) as error:
        client.label_values("a", *SPAN)
    assert _said(response["body"]) in str(error.value)
