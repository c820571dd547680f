"""History before Drumlin was installed and after its memory ended, against a real Prometheus with thirty days of known truth."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from drumlin.api import bootstrap, exporting
from drumlin.api.export_metrics import BackfillMetrics
from drumlin.exporters import backfill, past_runs
from drumlin.exporters.backfill import Backfill
from drumlin.exporters.kubectl.dump import DumpSource
from drumlin.exporters.pipeline.pipeline import Pipeline
from drumlin.exporters.protocol import Change
from drumlin.exporters.retention import purge
from drumlin.kg.config.settings import RetentionSettings, Settings
from drumlin.kg.store.embedded import backups
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.telemetry import binding, kube_state
from drumlin.kg.telemetry.asking import union
from drumlin.kg.telemetry.binding import Place
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.describe import pod_names
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.guarding import Namesake, OwnerLabels
from drumlin.kg.telemetry.history import History, SeriesTable
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Key, Window
from drumlin.kg.telemetry.templates import TemplateCatalogue
from tests.integration import churn
from tests.integration.churn import AWAY, LAST, core_seconds, mebibytes, of
from tests.integration.conftest import OpenMetrics, RealPrometheus, at, serving
from tests.unit.rendering import BY_NAME, synced, upserted
from tests.unit.telemetry_store import IRIS
from tests.waiting import until

WEB, ADMIN = "prod/shop/deployment/web", "prod/shop/deployment/web-admin"
FACADE, DB = "prod/shop/daemonset/web-facade", "prod/shop/statefulset/db"
TICK = "prod/batch/cronjob/tick"
NOW = at(LAST)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPrometheus]:
    """A real Prometheus with the thirty days."""
    samples = OpenMetrics()
    churn.fill(samples)
    with serving(samples, tmp_path_factory.mktemp("churn")) as running:
        yield running


def prometheus(server: RealPrometheus, **more: Any) -> Datasource:
    """Return it as it is configured: scraped every five minutes, bound to one of its two clusters."""
    given = {"scrape_interval": "5m", "clusters": ["prod"], "matchers": {"cluster": "{cluster}"}, **more}
    return server.datasource(**given)


class Living:
    """A source that tells what exists now, and goes on."""

    name = "kubernetes:prod"

    def __init__(self, namespace: str = "") -> None:
        self._namespace = namespace

    def changes(self, stop: threading.Event) -> Iterator[Change]:
        """Yield what exists."""
        for each in churn.manifests():
            if self._namespace in ("", each["metadata"]["namespace"]):
                yield upserted(each)
        yield from synced(observed=NOW)
        stop.wait()


@dataclass
class Cluster:
    """A followed cluster: its store, the exporter's pipeline and the job that reads the past."""

    store: EmbeddedStore
    pipeline: Pipeline
    datasource: Datasource
    owners: OwnerLabels
    now: datetime = NOW
    is_following: bool = True
    as_of: datetime | None = None

    def observe(self, found: Any) -> Any:
        """Hand over to the exporter."""
        return self.pipeline.observe(found)

    def backfill(self, **settings: Any) -> Backfill:
        """Return the job."""
        given = Settings(base="https://kg.example", cluster="prod", **settings)
        clock = lambda: self.now  # noqa: E731
        return Backfill(self, self.store, self.store.archive, given, IRIS, [self.datasource], clock, pause=0)

    def history(self, entity: str, metric: str, *, server: Datasource | None = None, **more: Any) -> SeriesTable:
        """Fetch thirty days by the hour."""
        resolver = Resolver(
            self.store, IRIS, [server or self.datasource], owners=self.owners, archive=self.store.archive
        )
        with History(resolver, clock=lambda: NOW) as opened:
            return opened.fetch(entity, metric, last="30d", step="1h", **more)


@contextmanager
def followed(directory: Path, server: Datasource, namespace: str = "") -> Iterator[Cluster]:
    """Follow the cluster, or one namespace of it, until all that exists is written."""
    store = EmbeddedStore(directory)
    settings = Settings(base="https://kg.example", cluster="prod")
    kinds = list(BY_NAME.values())
    pipeline = Pipeline(
        store, kinds, settings, IRIS, TemplateCatalogue.shipped(), [server], clock=lambda: NOW, window=0
    )
    stop = threading.Event()
    running = threading.Thread(target=pipeline.run, args=(Living(namespace), stop), daemon=True)
    running.start()
    try:
        until(lambda: pipeline.synced)
        store.archive.note("known", "prod", [""], NOW.timestamp(), NOW.timestamp())
        with closing(OwnerLabels()) as owners:
            yield Cluster(store, pipeline, server, owners)
    finally:
        stop.set()
        running.join(30)
        store.close()


@pytest.fixture(scope="module")
def fresh(server: RealPrometheus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A service in its first minute: it knows what exists, and nothing else."""
    with followed(tmp_path_factory.mktemp("fresh") / "store", prometheus(server)) as cluster:
        yield cluster


def equals_truth(found: SeriesTable, name: str, entity: str, metric: str) -> None:
    """Hold a series of thirty days against what was written, and its coverage against what the server holds."""
    key, values = Key(entity, metric), found.table["y"].to_pylist()
    assert found.coverage[key] >= 0.99
    if metric == "mem_usage":
        truth = [mebibytes(of(name), minute) << 20 for minute in range(0, LAST + 1, 60)]
        assert values == truth
    else:
        assert 3600 * sum(each or 0 for each in values) == pytest.approx(core_seconds(of(name)), rel=1e-3)


@pytest.mark.parametrize(("entity", "name"), [(WEB, "web"), (ADMIN, "web-admin"), (FACADE, "web-facade"), (DB, "db")])
@pytest.mark.parametrize("metric", ["cpu_usage", "mem_usage"])
def test_the_first_minute_has_the_whole_past(fresh: Cluster, entity: str, name: str, metric: str) -> None:
    """A store that knows only today's pods gives thirty days, equal to the truth, without a pod of a workload of a like name."""
    found = fresh.history(entity, metric)

    equals_truth(found, name, entity, metric)
    (resolution,) = found.queries
    assert [each.selector for each in resolution.intervals][:1] == ["pattern"]
    assert resolution.warnings == ()


def test_exact_and_pattern_can_be_forced(fresh: Cluster) -> None:
    """Known pods alone cover what they ran for; the pattern alone is what auto asks for in the first minute."""
    exact = fresh.history(WEB, "mem_usage", selector="exact")
    pattern = fresh.history(WEB, "mem_usage", selector="pattern")

    living = max(life.start for life in of("web"))
    assert exact.coverage[Key(WEB, "mem_usage")] == pytest.approx((LAST - living) / LAST, abs=0.01)
    assert [each.selector for each in exact.queries[0].intervals] == ["exact"]
    assert "none of its pods is known before" in exact.warnings[0]
    equals_truth(pattern, "web", WEB, "mem_usage")
    assert pattern.queries[0].selector == "pattern"


def test_without_owner_labels_the_pattern_has_what_is_called_alike(fresh: Cluster, server: RealPrometheus) -> None:
    """Never a pod of web-admin; of web-facade only those that are gone and that the graph does not know; a warning says so."""
    plain = prometheus(server, matchers={"cluster": "{cluster}", "from": "kubelet"})
    found = fresh.history(WEB, "mem_usage", server=plain)
    admin = fresh.history(ADMIN, "mem_usage", server=plain)

    strangers = [life for life in of("web-facade") if life.end is not None]
    expected = [mebibytes([*of("web"), *strangers], minute) << 20 for minute in range(0, LAST + 1, 60)]
    assert found.table["y"].to_pylist() == expected
    assert any("no owner labels of prometheus-main" in each for each in found.warnings)
    equals_truth(admin, "web-admin", ADMIN, "mem_usage")


@pytest.fixture(scope="module")
def filled(server: RealPrometheus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The same service after it has read the past, interrupted after some days."""
    with followed(tmp_path_factory.mktemp("filled") / "store", prometheus(server)) as cluster:
        cluster.now = NOW + timedelta(minutes=5)
        first = cluster.backfill(backfill_days=8)
        first.turn()
        assert 0 < first.states[0].runs < len(churn.LIVES)
        second = cluster.backfill()
        second.turn()
        assert second.states[0].complete
        assert second.states[0].failure is None
        yield cluster


def test_past_runs_are_what_ran(filled: Cluster) -> None:
    """Each run that kube-state-metrics saw is known by uid with its start, its end to a scrape, its node and workload; those it missed are not."""
    rows = filled.store.look_up(
        "PREFIX d: <https://w3id.org/drumlin/ns#> PREFIX prov: <http://www.w3.org/ns/prov#>"
        " SELECT ?run ?start ?end ?outcome ?seen WHERE { ?pod d:namespace ?n . ?run d:runOf ?pod ; prov:startedAtTime ?start ;"
        " prov:endedAtTime ?end ; d:outcome ?outcome . OPTIONAL { ?run d:observedIn ?seen } }"
    )
    known = {IRIS.parse(row["run"]).below[1]: row for row in rows}
    assert not filled.store.entries(prefix=IRIS.expand("prod/lab/pod/x")[:-5])  # the datasource is bound to one cluster
    archived = {
        run.uid: run
        for entity in (WEB, ADMIN, FACADE, DB, TICK)
        for run in filled.store.archive.runs([IRIS.expand(entity)], 0, 1e12)[IRIS.expand(entity)]
    }
    seen = [life for life in churn.LIVES if life.end is not None and life.shown()]
    assert {life.uid for life in seen} <= known.keys() | archived.keys()
    assert len(known.keys() & archived.keys()) == 0
    missed = [life for life in churn.LIVES if not life.shown()]
    assert [life.workload[1] for life in missed if life.namespace == "shop"] == ["web"] * 3
    assert not {life.uid for life in missed} & (known.keys() | archived.keys())
    for life in seen:
        born = at(life.start if life.born is None else life.born).timestamp()
        if life.uid in archived:
            start, end = float(archived[life.uid].start), float(archived[life.uid].end)
            assert archived[life.uid].pod == life.pod
        else:
            row = known[life.uid]
            start, end = (datetime.fromisoformat(row[name]).timestamp() for name in ("start", "end"))
        assert start == born
        if life.end not in AWAY and life.end != AWAY.stop:
            assert end == at(life.end or 0).timestamp(), life
    assert {row.get("seen") for row in rows if "seen" in row} == {IRIS.datasource("prometheus-main")}


@pytest.mark.parametrize(("entity", "name"), [(WEB, "web"), (ADMIN, "web-admin"), (FACADE, "web-facade"), (DB, "db")])
def test_after_backfill_pods_are_named_but_for_the_outage(filled: Cluster, entity: str, name: str) -> None:
    """Exact pods everywhere but where kube-state-metrics was away; what ran only there is in the sum all the same."""
    for metric in ("cpu_usage", "mem_usage"):
        found = filled.history(entity, metric)
        equals_truth(found, name, entity, metric)
        patterns = [each for each in found.queries[0].intervals if each.selector == "pattern"]
        assert all(each.start >= at(AWAY.start - 65) or each.end <= at(65) for each in patterns)
        assert all(each.end <= at(AWAY.stop + 65) for each in patterns if each.start > at(65))


@pytest.mark.parametrize(
    ("options", "failure"),
    [
        ({"url": "http://127.0.0.1:9"}, "cannot be reached"),
        ({"matchers": {"created_by_kind": "ReplicaSet"}}, "there is no kube_pod_start_time"),
        ({"matchers": {"from": "kubelet"}}, None),
    ],
)
def test_a_server_that_cannot_tell_is_asked_again_later(
    server: RealPrometheus, tmp_path: Path, options: dict[str, Any], failure: str | None
) -> None:
    """One that is away, or lacks what is needed, is named and left alone for a while; nothing counts as read or known."""
    with followed(tmp_path / "store", prometheus(server, **options), "batch") as cluster:
        cluster.now = NOW + timedelta(minutes=5)
        job = cluster.backfill(backfill_days=1)
        job.turn()
        (state,) = job.states
        assert state.again == cluster.now + timedelta(minutes=5 if failure else 60)
        assert (failure is None) == (state.failure is None)
        assert failure is None or failure in str(state.failure)
        job.turn()
        assert (state.runs, state.complete) == (0, False)
        assert not cluster.store.archive.spans("read", "prod", [cluster.datasource.iri])
        assert not cluster.store.archive.spans("known", "prod", ["batch"])


@pytest.mark.parametrize("followed_only", [{"namespace": "batch"}, {"label_selector": "team=batch"}])
def test_only_namespaces_that_are_followed_are_filled(
    server: RealPrometheus, tmp_path: Path, followed_only: dict[str, str]
) -> None:
    """An exporter of one namespace, or of those with certain labels, does not write the past of others."""
    with followed(tmp_path / "store", prometheus(server), "batch") as cluster:
        cluster.now = NOW + timedelta(minutes=5)
        job = cluster.backfill(backfill_days=0.5, context=[followed_only])
        job.turn()

        assert job.states[0].runs > 8
        assert job.states[0].failure is None
        assert not cluster.store.entries(prefix=IRIS.expand("prod/shop/pod/x")[:-5])
        assert not cluster.store.archive.spans("known", "prod", ["shop"])
        assert len(cluster.store.entries(prefix=IRIS.expand("prod/batch/pod/x")[:-1])) > 8


def test_a_server_that_renames_labels_is_read_and_guarded_alike(server: RealPrometheus) -> None:
    """``exported_pod`` is the pod; without owner series, who created a pod and the name of its ReplicaSet tell the workload."""
    lab = prometheus(server, clusters=["lab"])
    matchers, last = binding.matchers(lab, Place(("lab",))), at(churn.LAB_LAST)
    with Prometheus(lab) as client:
        state = kube_state.find(client, "kube_pod_info", matchers, at(0), last)
        assert state is not None
        past = past_runs.read(client, state, at(0), last)
    web = Namesake("Deployment", "lab", "web", pod_names("Deployment", "web"))
    with closing(OwnerLabels()) as owners:
        foreign = owners.foreign(lab, matchers, web, at(0), last)

    ended = {run.pod: run for run in past.runs}
    assert ended.keys() == {life.pod for life in churn.LAB if life.end is not None}
    assert ended["web-86b96c86dc-bcdfg"].manager == ("Deployment", "web")
    assert ended["web-facade-npqrs"].manager == ("DaemonSet", "web-facade")
    assert ended["web-facade-npqrs"].end == at(1300).timestamp()
    assert past.namespaces == {"lab"}
    assert past.outages == []
    assert foreign == {"web-facade-npqrs"}


@pytest.mark.parametrize("days", [0, 4])
def test_the_past_of_a_dump_is_read_too(
    server: RealPrometheus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, days: int
) -> None:
    """A served dump is of the time of its file: what was before is read and written by its exporter, what came later is the pattern's."""
    monkeypatch.setattr(backfill, "PERIOD_SECONDS", 0.05)
    monkeypatch.setattr(exporting, "RESTART_SECONDS", 0.05)
    monkeypatch.setattr(bootstrap, "now", lambda: NOW + timedelta(hours=3))
    file = tmp_path / "dump.json"
    items = [{"apiVersion": BY_NAME[each["kind"]].api_version, **each} for each in churn.manifests()]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    os.utime(file, (NOW.timestamp(), NOW.timestamp()))
    told = {"name": "prometheus-main", "kind": "prometheus", "url": server.url, "scrape_interval": "5m"}
    told |= {"clusters": ["prod"], "matchers": {"cluster": "{cluster}"}}
    settings = Settings(base=IRIS.base, cluster="prod", datasource=[told], backfill_days=days)
    source = DumpSource([file], list(BY_NAME.values()), clock=bootstrap.now)
    parts = bootstrap.assemble(settings, directory=tmp_path / "store", source={"prod": source})
    try:
        (job,) = parts.backfills
        monkeypatch.setattr(job, "_pause", 0)
        assert isinstance(parts.store, EmbeddedStore)
        archive = parts.store.archive
        until(lambda: archive.spans("seen", "prod", [""]))
        if days:
            until(lambda: _days(archive.spans("known", "prod", ["shop"])) > days - 0.3)
            owners = {each.owner for each in parts.store.entries(prefix=f"{IRIS.root}prod/shop/pod/web-")}
            assert owners == {"dump"}
        around = parts.resolver.resolve(WEB, "cpu_usage", Window(NOW - timedelta(hours=1), NOW + timedelta(hours=2)))
        assert [each.selector for each in around.intervals] == ["exact", "pattern"]
        assert NOW - around.step <= around.intervals[0].end <= NOW
        past = parts.resolver.resolve(WEB, "cpu_usage", Window(at(LAST - 3 * 1440), NOW), step="1h")
        assert [each.selector for each in past.intervals] == (["exact"] if days else ["pattern", "exact"])
    finally:
        parts.close()


def test_the_service_reads_the_past_by_itself(
    server: RealPrometheus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assembled from its settings, it follows, reads, and tells how far it is; switched off, it does not."""
    monkeypatch.setattr(backfill, "PERIOD_SECONDS", 0.05)
    told = {"name": "prometheus-main", "kind": "prometheus", "url": server.url, "scrape_interval": "5m"}
    told |= {"clusters": ["prod"], "matchers": {"cluster": "{cluster}"}}
    for days in (0, 4):
        monkeypatch.setattr(bootstrap, "now", lambda: NOW)
        settings = Settings(base=IRIS.base, cluster="prod", datasource=[told], backfill_days=days)
        parts = bootstrap.assemble(settings, directory=tmp_path / f"store-{days}", source={"prod": Living()})
        try:
            (job,) = parts.backfills
            monkeypatch.setattr(job, "_pause", 0)
            assert isinstance(parts.store, EmbeddedStore)
            archive = parts.store.archive
            until(lambda archive=archive: archive.spans("known", "prod", [""]))
            monkeypatch.setattr(job, "_clock", lambda: NOW + timedelta(minutes=3))
            if days:
                until(
                    lambda archive=archive, days=days: _days(archive.spans("known", "prod", ["", "shop"])) > days - 0.1
                )
            found = parts.resolver.resolve(WEB, "cpu_usage", Window(at(LAST - 3 * 1440), NOW), step="1h")
            assert [each.selector for each in found.intervals] == ["exact" if days else "pattern"]
            said = {(each.name, sample.value) for each in _metrics(parts) for sample in each.samples}
            assert (("drumlin_backfill_runs", 0.0) in said) == (days == 0)
        finally:
            parts.close()


def _days(spans: list[tuple[int, int]]) -> float:
    return sum(last - first for first, last in union(spans)) / 86_400


def _metrics(parts: bootstrap.Services) -> list[Any]:
    assert isinstance(parts.store, EmbeddedStore)
    return list(BackfillMetrics(parts.backfills, parts.store.archive).collect())


def test_a_cron_job_is_all_its_jobs(filled: Cluster) -> None:
    """Seven hundred runs, of which the graph has a fortnight's and the archive the rest, equal what its namespace used."""
    found = filled.history(TICK, "cpu_usage")

    hourly = [3600 * (each or 0) for each in found.table["y"].to_pylist()]
    assert found.coverage[Key(TICK, "cpu_usage")] >= 0.99
    assert len(found.queries[0].pods) > 700
    assert hourly[1:] == pytest.approx([60 * 0.25 * 20 * 22.5 / 20] * 720, rel=0.2)


def test_after_the_purge_nothing_is_missing(filled: Cluster, tmp_path: Path) -> None:
    """When the store was backed up and restored, and its tombstones are gone, the archive still names the pods."""
    with backups.filling(tmp_path / "backup") as made:
        backups.take(filled.store, IRIS.base, made, NOW)
    note = backups.restore(tmp_path / "backup", tmp_path / "store")
    assert note.runs == filled.store.archive.counts()[0] > 100
    with closing(EmbeddedStore(tmp_path / "store")) as store:
        retention = RetentionSettings(days=0, classes={"Pod": 0})
        removed = 0
        while more := purge(store, retention, lambda age: NOW + timedelta(days=20) - age, store.archive):
            removed += more
    with closing(EmbeddedStore(tmp_path / "store")) as store:
        after = replace(filled, store=store)
        assert removed > 100
        assert not store.look_up("SELECT ?e WHERE { ?e a <https://w3id.org/drumlin/ns#Tombstone> }")
        for entity, name in ((WEB, "web"), (DB, "db"), (ADMIN, "web-admin")):
            found = after.history(entity, "cpu_usage")
            equals_truth(found, name, entity, "cpu_usage")
            assert found.queries[0].selector == "mixed"
            assert found.queries[0].pods == filled.history(entity, "cpu_usage").queries[0].pods
        assert after.history(TICK, "cpu_usage").table == filled.history(TICK, "cpu_usage").table
