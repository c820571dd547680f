"""The dashboards of deploy/grafana and ``/sd``: what they ask is asked of a real Prometheus and of a service with the sample cluster.

Variables are filled in as Grafana does it: https://grafana.com/docs/grafana/latest/dashboards/variables/.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import promql_parser
import pytest

from drumlin.api.demo import history
from drumlin.api.demo import prometheus as servers
from tests.integration.test_prometheus_demo import _need
from tests.service.conftest import SAMPLE, serving, until_ready

BOARDS = Path(__file__).parents[2] / "deploy" / "grafana"
NAMES = sorted(each.stem for each in BOARDS.glob("*.json"))
HOURS = 1
LINKS = """
base = "https://kg.example"
cluster = "prod"
[[datasource]]
name = "grafana"
kind = "grafana"
url = "https://grafana.example"
[datasource.dashboards]
workload = "https://grafana.example/d/drumlin-workload?var-cluster={cluster}&var-namespace={namespace}&var-kind={kind}&var-workload={name}"
node = "https://grafana.example/d/drumlin-node?var-cluster={cluster}&var-node={name}"
domain = "https://grafana.example/d/drumlin-gnode?var-domain={name}"
"""
"""The links that the chart configures (tests/integration/test_chart.py)."""
GUID = "fdfec62eb21cf0ef0a22c690f40774de"
EXPECTED = {
    "cluster": "prod",
    "namespace": "payments",
    "kind": "deployment",
    "workload": "checkout",
    "node": "edge-a-1",
    "domain": "local",
    "pod": "checkout-86b96c86dc-hgb2v",
    "job": "drumlin",
    "search": "",
    "drumlin": "http://localhost:8080",
}
"""What is chosen of each variable; it must be among those that the variable's own query offers."""
WITHOUT_DATA = ("DCGM_", "drumlin_kind_stale_seconds", "drumlin_export_ready", "drumlin_reader_restarts")
"""What the sample has no series of: no GPUs are measured, and a dump is no live cluster."""
EMPTY = ("/queries/why-failing",)
"""Nothing fails in the sample."""


@dataclass(frozen=True)
class Site:
    """A service with the sample cluster, and the Prometheus that scrapes it, knows its past and is told its targets."""

    service: str
    prometheus: str
    time: int

    def ask(self, path: str, **params: object) -> Any:
        """Ask the Prometheus and return its data."""
        answer = httpx.get(
            f"{self.prometheus}/api/v1/{path}", params={name: str(each) for name, each in params.items()}
        )
        body = answer.json()
        assert body["status"] == "success", body
        return body["data"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Serve the sample, register an agent with a host, and start a Prometheus beside it."""
    _need("prometheus", "promtool")
    home = tmp_path_factory.mktemp("prometheus")
    end = int(time.time()) // history.STEP * history.STEP
    past = home / "past.om"
    history.write_history(past, start=end - HOURS * 3600, end=end)
    servers.backfill(past, home)
    config = home / "drumlin.toml"
    config.write_text(LINKS, encoding="utf-8")
    with serving("--source", f"dump:{SAMPLE}", "--config", str(config)) as service:
        until_ready(service)
        agent = {
            "name": "agent of node-17",
            "platform": "docker",
            "origin": "edge-lab",
            "entities": [{"key": "host", "type": "Host", "name": "node-17"}],
        }
        httpx.put(f"{service.url}/agents/{GUID}", json=agent).raise_for_status()
        with servers.start(
            _command(home, service.url), "--web.listen-address=127.0.0.1:{port}", "/-/ready", home / "log"
        ) as server:
            found = Site(service.url, server.url, end - 1)
            _until(lambda: found.ask("query", query="count_over_time(drumlin_generation[1m]) > 2")["result"])
            yield found


def _command(home: Path, service: str) -> list[str]:
    jobs = [
        {"job_name": "drumlin", "static_configs": [{"targets": [service.removeprefix("http://")]}]},
        *(
            {
                "job_name": name,
                "scrape_interval": "1h",
                "http_sd_configs": [{"url": f"{service}/sd/{name}", "refresh_interval": "1s"}],
                "relabel_configs": [{"source_labels": ["__meta_drumlin_id"], "target_label": "drumlin"}],
            }
            for name in ("hosts", "agents", "pods")
        ),
    ]
    config = home / "prometheus.yml"
    config.write_text(
        json.dumps({"global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"}, "scrape_configs": jobs})
    )
    binary = str(servers.need_binary("prometheus"))
    return [
        binary,
        f"--config.file={config}",
        f"--storage.tsdb.path={home / 'data'}",
        "--storage.tsdb.retention.time=3650d",
    ]


def _until(condition: Any) -> Any:
    deadline = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def _board(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((BOARDS / f"{name}.json").read_bytes())
    return found


def _filled(text: str, site: Site, values: Mapping[str, str] = EXPECTED) -> str:
    """Replace variables as Grafana does: ``$name``, ``${name}`` and ``${name:format}``."""
    begin, end = (datetime.fromtimestamp(site.time - each, UTC) for each in (30 * 86_400, 0))  # the sample was recorded
    iso = {"__from": f"{begin:%Y-%m-%dT%H:%M:%S.000Z}", "__to": f"{end:%Y-%m-%dT%H:%M:%S.000Z}"}
    known = {**values, "__rate_interval": "15m", "__range": "1h", "__interval": "1m", **iso}

    def value(found: re.Match[str]) -> str:
        return known[found[1] or found[2]]

    return re.sub(r"\$(?:\{(\w+)(?::[\w:]+)?\}|(\w+))", value, text)


def _targets(board: Mapping[str, Any], kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what panels and annotations ask of one kind of datasource, by title."""
    for panel in board["panels"]:
        yield from ((panel["title"], each) for each in panel["targets"] if each["datasource"]["type"] == kind)
    for each in board["annotations"]["list"]:
        if each["datasource"]["type"] == kind:
            yield each["name"], each["target"]


def _rows(site: Site, target: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Ask the service what Infinity would ask, and return the rows below the root that it names."""
    answer = httpx.get(site.service + _filled(target["url"], site))
    assert answer.status_code == 200, (target["url"], answer.text)
    rows: list[dict[str, Any]] = answer.json()[target["root_selector"]]
    return rows


@pytest.mark.parametrize("name", NAMES)
def test_each_query_runs_on_prometheus(site: Site, name: str) -> None:
    """It is valid PromQL, the server takes it, and it finds series wherever the sample has such."""
    asked = list(_targets(_board(name), "prometheus"))
    for title, target in asked:
        query = _filled(target["expr"], site)
        promql_parser.parse(query)
        at = time.time() if "drumlin_" in query else site.time
        found = site.ask("query", query=query, time=at)["result"]
        assert found or any(each in query for each in WITHOUT_DATA), (title, query)
    assert asked


@pytest.mark.parametrize("name", NAMES)
def test_each_question_to_the_service_has_its_columns(site: Site, name: str) -> None:
    """The address answers, the root is a list, and each column that a panel maps is in some row of it."""
    for title, target in _targets(_board(name), "yesoreyeram-infinity-datasource"):
        rows = _rows(site, target)
        assert rows or target["url"].startswith(EMPTY), (title, target["url"])
        lacking = {each["selector"] for each in target["columns"]} - {key for row in rows for key in row}
        assert not rows or lacking <= {"end", "outcome", "gpus"}, (title, lacking)


@pytest.mark.parametrize("name", NAMES)
def test_each_variable_offers_what_there_is(site: Site, name: str) -> None:
    """Variables are asked of the service or of the Prometheus; the sample's own things are among the answers."""
    for each in _board(name)["templating"]["list"]:
        if each["type"] == "query" and each["datasource"]["type"] == "prometheus":
            metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", each["query"]["query"]).groups()  # type: ignore[union-attr]
            offered = site.ask(f"label/{label}/values", **{"match[]": metric})
        elif each["type"] == "query":
            target = each["query"]["infinityQuery"]
            (column,) = target["columns"]
            texts = [row[column["selector"]] for row in _rows(site, target)]
            pattern = _filled(each["regex"].removeprefix("/").removesuffix("/"), site) if each["regex"] else "(.*)"
            offered = [found[1] for text in texts if (found := re.search(pattern, text))]
        else:
            continue
        assert EXPECTED[each["name"]] in offered, (each["name"], offered)


@pytest.mark.parametrize("name", NAMES)
def test_dashboards_link_to_pages_that_are_there(site: Site, name: str) -> None:
    """Links lead to the service's pages, or to another of the dashboards with variables that it has."""
    for each in _board(name)["links"]:
        url = urlsplit(_filled(each["url"], site, {**EXPECTED, "drumlin": site.service}))
        if url.netloc:
            answer = httpx.get(url.geturl(), headers={"Accept": "text/html"}, follow_redirects=True)
            assert answer.status_code == 200, each
        else:
            other = _board(url.path.removeprefix("/d/drumlin-"))
            assert {f"var-{given['name']}" for given in other["templating"]["list"]} >= parse_qs(url.query).keys()


@pytest.mark.parametrize("id", ["prod/payments/deployment/checkout", "prod/-/node/edge-a-1", "domain/local"])
def test_pages_link_to_the_dashboards(site: Site, id: str) -> None:
    """With what is chosen there: the variables of the link are the dashboard's, and their values are among what it offers."""
    page = httpx.get(f"{site.service}/doc/{id}", headers={"Accept": "text/html"}).text
    (link,) = re.findall(r'<a href="(https://grafana\.example/[^"]+)"', page)
    url = urlsplit(link.replace("&amp;", "&"))
    given = {name.removeprefix("var-"): value for name, (value,) in parse_qs(url.query).items()}

    assert given.items() <= EXPECTED.items()
    assert given.keys() <= {each["name"] for each in _board(url.path.removeprefix("/d/drumlin-"))["templating"]["list"]}


def test_log_panels_select_by_labels_that_promtail_writes(site: Site) -> None:
    """LogQL's stream selectors are written as PromQL's; what follows is a line filter."""
    asked = [_filled(target["expr"], site) for _, target in _targets(_board("logs"), "loki")]
    for query in asked:
        (selector,) = re.findall(r"\{[^}]*\}", query)
        assert {each.name for each in promql_parser.parse(selector).matchers.matchers} == {"namespace", "pod"}
    assert asked


def test_each_dashboard_can_be_provisioned() -> None:
    """Ids are unique and stable, panels do not overlap, and every variable that is used is defined."""
    boards = [_board(name) for name in NAMES]

    assert len(NAMES) == len({each["uid"] for each in boards}) == 5
    for board in boards:
        defined = {each["name"] for each in board["templating"]["list"]}
        used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps([board["panels"], board["annotations"], board["links"]])))
        assert used <= defined, board["title"]
        taken = [
            (x, y)
            for panel in board["panels"]
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        ]
        assert len(taken) == len(set(taken)), board["title"]
        assert max(x for x, _ in taken) < 24


def test_rollouts_and_runs_are_annotations(site: Site) -> None:
    """A ReplicaSet is rolled out when its first pod starts; each run is a span with its pod and node, up to now while it lasts."""
    began = [
        (each["status"]["startTime"], each["metadata"]["name"], each["spec"]["nodeName"])
        for each in json.loads((SAMPLE / "pods.json").read_bytes())["items"]
        if each["metadata"]["name"].startswith("checkout-")
    ]
    window = {
        "workload": "prod/payments/deployment/checkout",
        "from": "2026-11-01T00:00:00Z",
        "until": "2026-12-24T00:00:00Z",
    }

    def rows(name: str, **more: str) -> list[dict[str, str]]:
        found: list[dict[str, str]] = httpx.get(f"{site.service}/queries/{name}", params={**window, **more}).json()[
            "rows"
        ]
        return found

    (rollout,) = rows("rollouts")
    assert rollout["time"] == rollout["timeEnd"] == min(began)[0]
    assert (rollout["title"], rollout["text"], rollout["tags"]) == ("checkout-86b96c86dc", "3 pods", "rollout")
    expected = sorted((time, "2026-12-24T00:00:00Z", name, f"on {node}", "run") for time, name, node in began)
    assert sorted(tuple(each.values()) for each in rows("run-annotations")) == expected
    assert rows("rollouts", **{"from": "2026-12-01T00:00:00Z"}) == []
    assert rows("run-annotations", until="2026-11-02T00:00:00Z") == []
    assert rows("rollouts", workload="prod/search/statefulset/index") == []  # it has no ReplicaSets


def test_prometheus_reads_its_targets_from_the_service(site: Site) -> None:
    """Hosts and nodes come with the name that the shipped templates ask for; an agent's host with the agent."""

    def found() -> Any:
        active = site.ask("targets", state="active")["activeTargets"]
        targets = [each for each in active if each["scrapePool"] != "drumlin"]
        return targets if {each["scrapePool"] for each in targets} == {"hosts", "agents"} else None

    targets = _until(found)
    labels = {(each["scrapePool"], each["labels"]["instance"]): each for each in targets}
    node, host = labels["hosts", "edge-a-1"], labels["agents", "node-17"]
    assert node["scrapeUrl"] == "http://edge-a-1:9100/metrics"
    assert node["discoveredLabels"]["__meta_drumlin_type"] == "Node"
    assert ("hosts", "node-17") in labels
    assert host["labels"]["drumlin"] == "edge-lab/-/host/node-17"
    assert host["discoveredLabels"]["__meta_drumlin_agent"] == f"agent/{GUID}"


def test_lists_of_targets_that_there_are_not_are_errors(site: Site) -> None:
    """An unknown list, an unknown or doubled parameter and an invalid port are problem documents."""
    port = httpx.get(f"{site.service}/sd/hosts", params={"port": 9256}).json()
    assert {each["targets"][0].rpartition(":")[2] for each in port} == {"9256"}
    for path, status, word in (
        ("/sd/nothing", 404, "hosts"),
        ("/sd/hosts?prt=1", 422, "port"),
        ("/sd/hosts?port=x", 422, "whole number"),
        ("/sd/hosts?port=1&port=2", 422, "twice"),
        ("/sd/pods?port=1", 422, "port"),
    ):
        answer = httpx.get(site.service + path)
        assert (answer.status_code, word in answer.text) == (status, True), answer.text
