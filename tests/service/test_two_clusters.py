"""A service that knows two clusters and one unbound Prometheus: every way to a number says so, and none gives a sum."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.service.conftest import SAMPLE, Service, drumlin_asks, serving, until_ready

CHECKOUT = "prod/payments/deployment/checkout"
UNBOUND = '[[datasource]]\nname = "main"\nkind = "prometheus"\nurl = "http://127.0.0.1:9"\n'


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The sample cluster under two names in one store."""
    directory = tmp_path_factory.mktemp("two")
    (directory / "drumlin.toml").write_text(UNBOUND)
    store = str(directory / "store")
    loaded = drumlin_asks("load", str(SAMPLE), "--store", store, "--cluster", "edge", "--base", "https://kg.example")
    assert loaded.returncode == 0, loaded.stderr
    options = ("--store", store, "--source", f"dump:{SAMPLE}", "--config", str(directory / "drumlin.toml"))
    with serving(*options) as running:
        until_ready(running)
        yield running


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/resolve", {"entity": CHECKOUT, "metric": "cpu_usage"}),
        ("/resolve", {"entity": "prod/-/node/edge-a-1", "metric": "cpu_usage"}),
        ("/resolve", {"entity": "cluster/edge", "metric": "cpu_usage"}),
        ("/resolve", {"entity": CHECKOUT, "metric": "x", "query": "sum(up)"}),
        ("/history", {"entity": CHECKOUT, "metric": "cpu_usage", "format": "json"}),
    ],
)
def test_an_answer_would_be_a_sum_of_clusters_so_there_is_none(
    service: Service, path: str, query: dict[str, str]
) -> None:
    """422 with the configuration that binds the datasource, ready to paste."""
    answer = httpx.get(service.url + path, params=query)

    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert "bound to no cluster" in problem["detail"]
    assert problem["configuration"].startswith("[[datasource]]\n")


def test_the_command_line_shows_the_lines(service: Service) -> None:
    """What to paste is shown by ``drumlin resolve``."""
    answer = drumlin_asks("resolve", CHECKOUT, "cpu_usage", "--last", "1h", "--url", service.url)

    assert answer.returncode != 0
    assert 'matchers = { cluster = "{cluster}" }' in answer.stderr


def test_the_lines_work_when_they_are_pasted(service: Service, tmp_path: Path) -> None:
    """With the last line of the answer in the configuration, each cluster has its own query."""
    lines = httpx.get(service.url + "/resolve", params={"entity": CHECKOUT, "metric": "cpu_usage"}).json()[
        "configuration"
    ]
    kept = [line for line in lines.splitlines() if not line.startswith("clusters")]
    (tmp_path / "drumlin.toml").write_text("\n".join(kept))
    store = str(tmp_path / "store")
    drumlin_asks("load", str(SAMPLE), "--store", store, "--cluster", "edge", "--base", "https://kg.example")
    with serving("--store", store, "--source", f"dump:{SAMPLE}", "--config", str(tmp_path / "drumlin.toml")) as running:
        until_ready(running)
        for cluster in ("prod", "edge"):
            entity = CHECKOUT.replace("prod", cluster)
            found = httpx.get(running.url + "/resolve", params={"entity": entity, "metric": "cpu_usage"}).json()
            assert f'cluster="{cluster}"' in found["query"]
