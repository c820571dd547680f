"""Several clusters in one process: each under its own name, with reflectors, readiness and metrics of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import InvalidSettings
from tests.fake_apiserver.server import FakeApiServer
from tests.service.conftest import Service, serving, until_ready

PATIENCE = 30.0


def write_kubeconfig(path: Path, servers: dict[str, str]) -> dict[str, str]:
    """Write a kubeconfig with a context for each server and return the environment that names it."""
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": next(iter(servers)),
        "clusters": [{"name": name, "cluster": {"server": url}} for name, url in servers.items()],
        "users": [{"name": "test", "user": {"token": "only-for-this-test"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "test"}} for name in servers],
    }
    path.write_text(json.dumps(content))
    return {"KUBECONFIG": str(path)}


def add(server: FakeApiServer, plural: str, name: str, labels: dict[str, str], namespace: str = "shop") -> None:
    """Create an object with labels."""
    spec = {"containers": [{"name": "main", "image": "registry.example/shop:1"}]} if plural == "pods" else {}
    resource = server.state.named(plural)
    server.state.create(
        resource, namespace if plural == "pods" else "", {"metadata": {"name": name, "labels": labels}, "spec": spec}
    )


def until(service: Service, holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "".join(service.log[-20:])
        time.sleep(0.05)


def test_two_clusters_with_the_same_names_are_kept_apart(tmp_path: Path) -> None:
    """A pod of both is two entities; the end of one leaves the other; metrics and readiness name each; labels select."""
    with ExitStack() as stack:
        main, edge = (stack.enter_context(FakeApiServer(seed=seed)) for seed in (1, 2))
        for server in (main, edge):
            add(server, "namespaces", "shop", {})
            add(server, "pods", "db-0", {"team": "shop"})
            add(server, "pods", "other", {"team": "ops"})
        environment = write_kubeconfig(tmp_path / "kubeconfig", {"main": main.url, "rim": edge.url})
        contexts = ("--context", "main", "--context", "rim=edge", "--selector", "team=shop")
        service = stack.enter_context(
            serving("--source", "kubernetes", *contexts, "--store", str(tmp_path / "store"), environment=environment)
        )
        until_ready(service)

        def status(id: str) -> int:
            return httpx.get(f"{service.url}/subgraph/{id}").status_code

        assert [status(f"{cluster}/shop/pod/db-0") for cluster in ("prod", "edge")] == [200, 200]
        assert [status(f"{cluster}/-/namespace/shop") for cluster in ("prod", "edge")] == [200, 200]
        assert [status(f"cluster/{cluster}") for cluster in ("prod", "edge")] == [200, 200]
        assert [status(f"{cluster}/shop/pod/other") for cluster in ("prod", "edge")] == [404, 404]
        document = httpx.get(f"{service.url}/subgraph/edge/shop/pod/db-0").json()
        assert document["cluster"].endswith("/id/cluster/edge")

        metrics = httpx.get(f"{service.url}/metrics").text
        for source in ("kubernetes:prod", "kubernetes:edge"):
            assert f'drumlin_export_ready{{source="{source}"}} 1.0' in metrics
            assert f'drumlin_kind_objects{{kind="Pod",source="{source}"}} 1.0' in metrics

        edge.state.remove(edge.state.named("pods"), "shop", "db-0")
        until(service, lambda: status("edge/shop/pod/db-0") == 410)
        assert status("prod/shop/pod/db-0") == 200


def test_one_cluster_that_is_away_leaves_the_other(tmp_path: Path) -> None:
    """A cluster that does not answer keeps the service from being ready, and is named; the other is in the graph."""
    with FakeApiServer() as main:
        add(main, "namespaces", "shop", {})
        environment = write_kubeconfig(tmp_path / "kubeconfig", {"main": main.url, "rim": "http://127.0.0.1:9"})
        contexts = ("--context", "main", "--context", "rim")
        with serving("--source", "kubernetes", *contexts, environment=environment) as service:
            until(service, lambda: httpx.get(f"{service.url}/subgraph/prod/-/namespace/shop").status_code == 200)
            until(service, lambda: "failure" in httpx.get(f"{service.url}/readyz").json())
            body = httpx.get(f"{service.url}/readyz").json()

    assert (body["status"], body["source"]) == ("syncing", "kubernetes:rim")


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ([{"name": "a"}, {}], "neither a name nor a context"),
        ([{}, {"name": "prod"}], "the same cluster"),
        ([{"name": "a"}, {"name": "b", "cluster": "domain"}], "reserved"),
    ],
)
def test_clusters_need_names_of_their_own(tables: list[dict[str, str]], says: str) -> None:
    """Two clusters that could not be told apart are refused when the settings are read."""
    with pytest.raises(InvalidSettings, match=says):
        Settings.load(cluster="prod", context=tables)


def test_a_table_in_the_file_says_what_is_followed(tmp_path: Path) -> None:
    """``[[context]]`` names contexts, clusters, namespaces and labels; the first cluster is the settings' own."""
    file = tmp_path / "drumlin.toml"
    file.write_text(
        'cluster = "prod"\n[[context]]\nnamespace = "shop"\n[[context]]\nname = "rim"\nlabel_selector = "team=shop"\n'
    )
    clusters = Settings.load(file).clusters

    assert list(clusters) == ["prod", "rim"]
    assert (clusters["prod"].name, clusters["prod"].namespace) == (None, "shop")
    assert (clusters["rim"].name, clusters["rim"].label_selector) == ("rim", "team=shop")
