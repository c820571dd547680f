"""``drumlin check`` over what a cluster gives: targets that do not exist are links to IRIs without a graph, told and no fault."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from pathlib import Path

from drumlin.exporters.kubectl.dump import DumpSource
from drumlin.exporters.kubernetes.custom_kinds import kinds_of
from drumlin.exporters.pipeline.pipeline import Pipeline
from drumlin.kg.config.settings import Settings
from drumlin.kg.model.iris import Iris
from drumlin.kg.store.embedded.consistency import check
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.telemetry.templates import TemplateCatalogue
from tests.unit.rendering import CONTRACT, now


def manifest(api_version: str, kind: str, name: str, **rest: object) -> dict[str, object]:
    """Return an object of the namespace ``shop``."""
    metadata = {"namespace": "shop", "name": name, "uid": f"uid-{name}"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def test_what_a_pod_refers_to_and_nobody_exports_dangles(tmp_path: Path) -> None:
    """A node and a claim that nobody exports are listed, each with the graph that links there; a claim that exists is not."""
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("lost", "kept")]
    containers = [{"name": "db", "image": "db:1"}]
    running = {"phase": "Running", "startTime": "2026-11-27T10:00:00Z"}
    items = [
        manifest("v1", "Namespace", "shop") | {"metadata": {"name": "shop", "uid": "uid-shop"}},
        manifest("v1", "Pod", "db-0", spec={"nodeName": "n9", "containers": containers}, status=running),
        manifest(
            "apps/v1", "Deployment", "db", spec={"template": {"spec": {"volumes": volumes, "containers": containers}}}
        ),
        manifest("v1", "PersistentVolumeClaim", "kept"),
    ]
    (tmp_path / "objects.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    settings = Settings(**CONTRACT)
    iris, kinds = Iris(settings.base), kinds_of(settings)
    with closing(EmbeddedStore(None)) as store:
        source = DumpSource([tmp_path], kinds, clock=now)
        Pipeline(store, kinds, settings, iris, TemplateCatalogue(()), (), clock=now).run(source, threading.Event())
        with store.snapshot() as snapshot:
            report = check(snapshot, iris)

    assert report.whole
    links = [each.replace(iris.root, "").split(" ") for each in report.dangling.examples]
    ends = {(graph, target) for graph, _, target in links if target.startswith("prod/")}
    assert ends == {
        ("prod/shop/pod/db-0", "prod/-/node/n9"),
        ("prod/shop/deployment/db", "prod/shop/persistentvolumeclaim/lost"),
    }
