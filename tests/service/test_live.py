"""A running service over a live API server: what kubectl would change shows in the graph, in SPARQL and in resolve."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import drumlin
from drumlin.exporters.kubernetes.kinds import KINDS
from drumlin.kg.errors import ResourceGone
from tests.fake_apiserver.server import FakeApiServer
from tests.service.conftest import ROOT, Service, drumlin_asks, run_drumlin, serving, until_ready

CLUSTER = ROOT.parent / "shared" / "data" / "cluster"
CANARIES = ("canary-env-value", "--canary-arg", "CANARY-")
RUNS = """PREFIX : <https://w3id.org/drumlin/ns#> PREFIX prov: <http://www.w3.org/ns/prov#>
SELECT ?uid ?start ?end ?outcome WHERE { ?run :runOf ?of ; prov:startedAtTime ?start . OPTIONAL { ?run prov:endedAtTime ?end }
  OPTIONAL { ?run :outcome ?o BIND(STRAFTER(STR(?o), "#") AS ?outcome) } BIND(STRAFTER(STR(?run), "/run/") AS ?uid) }"""

pytestmark = pytest.mark.skipif(
    not CLUSTER.is_dir() and os.environ.get("CI") != "true", reason="no recorded cluster at ../shared/data/cluster"
)


def kubeconfig(path: Path, url: str) -> dict[str, str]:
    """Write a kubeconfig for a server without authentication and return the environment that names it."""
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "test", "user": {"token": "only-for-this-test"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    path.write_text(json.dumps(content))
    return {"KUBECONFIG": str(path)}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that follows an API server through the recorded ninety seconds, every event sent twice."""
    directory = tmp_path_factory.mktemp("live")
    with FakeApiServer() as api:
        api.load(CLUSTER / "before")
        environment = kubeconfig(directory / "kubeconfig", api.url)
        with serving("--store", str(directory / "store"), "--source", "kubernetes", environment=environment) as service:
            until_ready(service)
            api.replay(CLUSTER / "watch", duplicates=True)
            _until_quiet(service)
            yield service


def _until_quiet(service: Service) -> None:
    """Wait until the last object of the recording is there and nothing has been written for a second."""
    deadline = time.monotonic() + 30
    last, since = -1, time.monotonic()
    while time.monotonic() < deadline:
        generation = httpx.get(service.url + "/readyz").json()["generation"]
        if generation != last:
            last, since = generation, time.monotonic()
        settled = httpx.get(service.url + "/subgraph/prod/search/job/reindex-29930272").status_code == 200
        if settled and time.monotonic() - since > 1.5:
            return
        time.sleep(0.1)
    raise AssertionError("the graph never came to rest:\n" + "".join(service.log[-20:]))


def test_the_runs_are_those_of_the_contract(live: Service) -> None:
    """Every run of the recording, with start, end, and outcome, is answered by SPARQL, and no other of those kinds."""
    with drumlin.connect(live.url) as client:
        found = {row["uid"]: row for row in client.sparql(RUNS)}
    rows = json.loads((ROOT.parent / "shared" / "contract" / "runs.json").read_text())
    for row in rows:
        run = found.pop(row["uid"])
        assert run["start"].isoformat().replace("+00:00", "Z") == row["start"], row
        assert run["outcome"] == row["outcome"], row
        if row["end"] is None:
            assert run["end"] is None, row
        elif row["end"] != "observed":
            assert run["end"].isoformat().replace("+00:00", "Z") == row["end"], row
    # What is left are runs of the kinds that the contract does not list: daemon sets and cron jobs.
    assert all(run["end"] is None for run in found.values())
    assert len(found) == 3 + 2


def test_what_was_deleted_is_gone_but_not_forgotten(live: Service) -> None:
    """A deleted job answers 410 with its runs; a deployment that came back under its name is there, with both runs."""
    with drumlin.connect(live.url) as client:
        with pytest.raises(ResourceGone) as gone:
            client.subgraph("prod/ml/job/train-demand-2026-11").get()
        assert gone.value.detail["tombstone"]["formerType"] == "Job"
        assert drumlin_asks("why", "prod/ml/job/train-demand-2026-11", "-u", live.url).returncode == 0
        web = client.workload("prod/search/deployment/web")
        assert [run.get("outcome") for run in sorted(web.document["runs"], key=lambda run: run["startedAt"])] == [
            "Deleted",
            None,
        ]


def test_resolve_names_the_pods_that_ran(live: Service) -> None:
    """A window over a rollout names the pods of both revisions, deleted ones too, and never a namesake's."""
    window = {"start": "2026-11-27T21:50:00Z", "end": "2026-11-27T21:53:00Z", "step": "15s", "selector": "exact"}
    with drumlin.connect(live.url) as client:
        checkout = client.resolve("prod/payments/deployment/checkout", "cpu_usage", **window)
        assert len(checkout["pods"]) == 9
        assert {pod.split("-")[1] for pod in checkout["pods"]} == {"86b96c86dc", "86dc45ccc"}
        edge = client.resolve("prod/edge/deployment/web", "cpu_usage", **window)
        assert edge["pods"] == ["web-6585b8cfcd-qzggm"]


def test_no_canary_is_anywhere(live: Service) -> None:
    """Values of environment variables, arguments, certificates and keys are in no graph and no log."""
    everything = drumlin_asks("dump", "-u", live.url).stdout + "".join(live.log)
    assert "checkout" in everything
    for canary in CANARIES:
        assert canary not in everything
    assert "only-for-this-test" not in everything


def test_metrics_tell_that_the_source_is_synced(live: Service) -> None:
    """/metrics names the source and says that it has been read in full."""
    text = httpx.get(live.url + "/metrics").text
    assert 'drumlin_export_ready{source="kubernetes:prod"} 1.0' in text
    assert 'drumlin_kind_synced{kind="Pod",source="kubernetes:prod"} 1.0' in text
    assert 'drumlin_kind_objects{kind="Namespace",source="kubernetes:prod"} 12.0' in text


def test_metrics_tell_everything_about_each_kind(live: Service) -> None:
    """Rule 9: Every kind that is followed has a row in each family, and those that had no event have no age."""
    text = httpx.get(live.url + "/metrics").text
    always = ("synced", "forbidden", "absent", "objects", "relists", "gone_410", "rejected", "queue_age_seconds")
    counted = ("writes_total", "skipped_writes_total", "render_errors_total")
    rows = {
        line.partition("}")[0]: line.rpartition(" ")[2] for line in text.splitlines() if line[:13] == "drumlin_kind_"
    }
    for kind in KINDS:
        for name in always + counted:
            assert f'drumlin_kind_{name}{{kind="{kind.name}",source="kubernetes:prod"' in rows
    for age in ("event_age_seconds", "bookmark_age_seconds"):
        assert f'drumlin_kind_{age}{{kind="Pod",source="kubernetes:prod"' in rows
    assert float(rows['drumlin_kind_writes_total{kind="Pod",source="kubernetes:prod"']) > 0
    assert rows['drumlin_kind_render_errors_total{kind="Pod",source="kubernetes:prod"'] == "0.0"


def test_no_api_server_is_told_and_the_service_stays(tmp_path: Path) -> None:
    """Without an API server the service answers, is not ready, and says why in words that help."""
    environment = kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    with serving("--source", "kubernetes", environment=environment) as service:
        deadline = time.monotonic() + 20
        while "failure" not in (body := httpx.get(service.url + "/readyz").json()):
            assert time.monotonic() < deadline, "".join(service.log)
            time.sleep(0.2)
        assert body["status"] == "syncing"
        assert "Pod" in body["waiting"]
        assert "127.0.0.1:9" in body["failure"]
        assert httpx.get(service.url + "/livez").status_code == 200


def test_an_outage_of_the_api_server_leaves_the_service(tmp_path: Path) -> None:
    """Ready stays ready: what is stale stands in /readyz, /metrics, resolutions and on the front page, and as 503 where that is wished."""
    resolve = {"entity": "cluster/prod", "metric": "cpu_usage", "last": "1h"}
    store = ("--store", str(tmp_path / "store"))
    (tmp_path / "drumlin.toml").write_text(
        '[[datasource]]\nname = "p"\nkind = "prometheus"\nurl = "http://127.0.0.1:9"\n'
    )
    options = ("--source", "kubernetes", "--config", str(tmp_path / "drumlin.toml"), *store)
    with FakeApiServer() as api:
        environment = kubeconfig(tmp_path / "kubeconfig", api.url)
        api.state.create(api.state.named("namespaces"), "", {"metadata": {"name": "shop"}})
        with serving(*options, environment=environment) as service, httpx.Client(base_url=service.url) as http:
            until_ready(service)
            assert "stale" not in http.get("/readyz").json()
            assert http.get("/resolve", params=resolve).json()["warnings"] == []
            api.stop()
            deadline = time.monotonic() + 20
            while "stale" not in (ready := http.get("/readyz")).json():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert ready.status_code == 200
            assert ready.json()["stale"][0]["cluster"] == "prod"
            (warning,) = http.get("/resolve", params=resolve).json()["warnings"]
            assert "cluster prod has not been followed in full since" in warning
            assert "Out of date." in http.get("/", headers={"Accept": "text/html"}).text
            line = 'drumlin_kind_stale_seconds{kind="Namespace",source="kubernetes:prod"} '
            assert float(http.get("/metrics").text.partition(line)[2].partition("\n")[0]) > 0
            (past,) = http.post(
                "/resolve",
                json={
                    "entities": ["cluster/prod"],
                    "metrics": ["cpu_usage"],
                    "start": "2026-01-01T00:00:00Z",
                    "end": "2026-01-02T00:00:00Z",
                },
            ).text.splitlines()
            assert json.loads(past)["warnings"] == []
        with serving(*options, "--strict-ready", environment=environment) as service:
            deadline = time.monotonic() + 20
            while (ready := httpx.get(service.url + "/readyz")).json()["status"] != "stale":
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert ready.status_code == 503
            assert httpx.get(service.url + "/subgraph/prod/-/namespace/shop").status_code == 200
        api.start()


def test_serve_ends_on_refused_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that is refused at the first contact ends the command with its reason, a hint and exit code 5, as ``follow`` does."""
    with FakeApiServer() as api:
        api.token = "another"
        monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path / "kubeconfig", api.url)["KUBECONFIG"])
        ended = run_drumlin("serve", "--port", "0", "--source", "kubernetes", "--cluster", "prod")
    last = ended.stderr[-600:]
    assert ended.returncode == 5, last
    assert "the API server answered 401: Unauthorized" in last
    assert "hint: check the kubeconfig context" in last
    assert "only-for-this-test" not in ended.stderr
