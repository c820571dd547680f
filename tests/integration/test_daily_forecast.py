"""The daily job of ``examples/``, run as its users run it: a real Prometheus with energy, a service, the job beside them."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import ModuleType

import pytest

import drumlin
from drumlin.api.demo import prometheus as servers
from tests.integration.conftest import need
from tests.service.conftest import ROOT, Service, serving

JOB = ROOT / "examples" / "daily_forecast.py"
TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
DAYS = 10
PATIENCE = 60.0
OWN = "prod/farm/statefulset/"


def _watts(hour: int) -> int:
    return 10 + 5 * (8 <= hour < 18)


def _energy(series: str) -> list[str]:
    """Return a counter of joules that has the same course every day, a sample every five minutes."""
    lines, joules = [], 0
    for sample in range(DAYS * 288):
        at = TODAY - timedelta(days=DAYS) + timedelta(minutes=5 * sample)
        lines.append(f"{series} {joules} {int(at.timestamp())}")
        joules += 300 * _watts(at.hour)
    return lines


def _manifests(*names: str) -> dict[str, object]:
    """Return StatefulSets with a pod each, as ``kubectl get`` prints them."""
    began = f"{TODAY - timedelta(days=DAYS + 1):%Y-%m-%dT%H:%M:%SZ}"
    items: list[dict[str, object]] = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "n-1"}}]
    for name in names:
        meta = {"namespace": "farm", "creationTimestamp": began}
        spec = {"containers": [{"name": "c", "image": "c:1"}]}
        own = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": f"u-{name}", "controller": True}
        items += [
            {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "metadata": {**meta, "name": name, "uid": f"u-{name}"},
                "spec": {"replicas": 1, "template": {"spec": spec}},
            },
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {**meta, "name": f"{name}-0", "uid": f"p-{name}", "ownerReferences": [own]},
                "spec": {**spec, "nodeName": "n1"},
                "status": {"phase": "Running", "startTime": began},
            },
        ]
    return {"kind": "List", "apiVersion": "v1", "items": items}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that knows two workloads, whose energy is in a real Prometheus; a third one's is there as well."""
    need("promtool", "prometheus")
    need("prometheus", "prometheus")
    directory = tmp_path_factory.mktemp("daily")
    lines = [
        "# TYPE kepler_pod_cpu_joules counter",
        *(
            line
            for name in ("a", "b", "c")
            for line in _energy(
                f'kepler_pod_cpu_joules_total{{pod_namespace="farm",pod_name="{name}-0",zone="package"}}'
            )
        ),
        "# TYPE kepler_node_cpu_joules counter",
        *_energy('kepler_node_cpu_joules_total{node_name="n1",zone="package"}'),
        "# EOF",
    ]
    (directory / "energy.om").write_text("\n".join(lines) + "\n")
    (directory / "cluster.json").write_text(json.dumps(_manifests("a", "b")))
    servers.backfill(directory / "energy.om", directory)
    with servers.start_prometheus(directory) as server:
        (directory / "drumlin.toml").write_text(
            f'[[datasource]]\nname = "prometheus-main"\nkind = "prometheus"\nurl = "{server.url}"\nscrape_interval = "5m"\n'
            f'[[datasource]]\nname = "forecasts"\nkind = "parquet"\nurl = "{(directory / "forecasts").as_uri()}"\n'
        )
        options = ["--store", str(directory / "store"), "--config", str(directory / "drumlin.toml")]
        with serving(*options, "--source", f"dump:{directory / 'cluster.json'}") as running:
            yield running


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[drumlin.Client]:
    """A client of the service, when all workloads are there."""
    with drumlin.connect(service.url) as connected:
        deadline = time.monotonic() + PATIENCE
        while len(connected.workloads(namespace="farm")) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield connected


@pytest.fixture(scope="module")
def job() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("daily_forecast", JOB)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def _environment(service: Service) -> dict[str, str]:
    return {**os.environ, "DRUMLIN_URL": service.url, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def _of(client: drumlin.Client, name: str) -> list[dict[str, object]]:
    return client.forecasts.list((OWN + name, "energy_joules"))


@pytest.fixture(scope="module")
def days(service: Service, client: drumlin.Client, job: ModuleType) -> dict[str, str]:
    """What the job wrote for yesterday (run as a script), for yesterday again, and for today."""
    yesterday, today = ((TODAY - timedelta(days=back)).date() for back in (1, 0))
    arguments = [sys.executable, str(JOB), "--day", yesterday.isoformat()]
    first = subprocess.run(
        arguments, env=_environment(service), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert first.returncode == 0, first.stderr
    written = {"first": first.stdout}
    for name, day in (("again", yesterday), ("second", today)):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert job.forecast_all(client, day) == 0
        written[name] = out.getvalue()
    return written


def test_each_day_is_forecast_measured_and_revised(client: drumlin.Client, days: dict[str, str]) -> None:
    """Yesterday's forecast is compared with what came, today's revises it, and a day is not forecast twice; values by hand."""
    assert [line.split(":")[0] for line in days["first"].splitlines()] == [
        f"{OWN}a energy_joules",
        f"{OWN}b energy_joules",
        "prod/-/node/n1 energy_joules",
        "domain/local energy_joules",
    ]
    assert days["again"] == ""
    assert len(days["second"].splitlines()) == 4
    assert all("off (MAE) at" in line for line in days["second"].splitlines())
    newest, before = _of(client, "a")
    assert newest["revisionOf"] == before["id"]
    document = client.subgraph(str(before["id"])).get()
    assert document["trainedTo"] == f"{TODAY - timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"
    points = client.forecasts.points((OWN + "a", "energy_joules"), str(before["id"]))
    assert points.num_rows == 288
    assert client.forecasts.points(("prod/-/node/n1", "energy_joules"))["y"].to_pylist() == points["y"].to_pylist()
    for stamp, joules in zip(points["ds"].to_pylist()[::37], points["y"].to_pylist()[::37], strict=True):
        # a point is the step's share of the four scrapes before it
        assert joules == pytest.approx(300 * _watts((stamp - timedelta(minutes=10)).hour), rel=1e-6)
    compared = client.forecasts.compare((OWN + "a", "energy_joules"), str(before["id"]))
    assert compared["points"] > 280
    # Every day is the same, but that the last point's window ends after the last sample: five of its twenty minutes are not counted.
    assert compared["mae"] == pytest.approx(300 * _watts(23) / 4 / compared["points"], rel=1e-6)


@pytest.mark.usefixtures("days")
def test_a_workload_that_comes_is_forecast_when_it_comes(service: Service, client: drumlin.Client) -> None:
    """The job follows the change feed: a workload that appears is forecast at once, and the job goes on."""
    running = subprocess.Popen(
        [sys.executable, JOB], env=_environment(service), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + PATIENCE
        while not _of(client, "b"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        document = (
            json.dumps(client.subgraph(OWN + "a").get())
            .replace("/statefulset/a", "/statefulset/c")
            .replace("a-[0-9]", "c-[0-9]")
        )
        written = json.loads(document) | {"name": "c"}
        written.pop("runs", None)
        while not _of(client, "c"):  # the feed may not be open yet, so the change is made again
            client.subgraph(OWN + "c").put({**written, "replicas": int(time.monotonic() * 1000) % 1000})
            assert time.monotonic() < deadline
            time.sleep(0.5)
        assert running.poll() is None
    finally:
        running.kill()
        told, failed = running.communicate()
    assert f"{OWN}c energy_joules: " in told, failed
