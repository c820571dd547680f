"""The hosting graphs, and the small parts of the pipeline: times, labels, amounts that cannot be read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import structlog
from hypothesis import assume, given
from hypothesis import strategies as st

from drumlin.exporters.pipeline.context import kept
from drumlin.exporters.pipeline.hosting_domain import OWNER, ensure
from drumlin.exporters.pipeline.runs import moment
from drumlin.kg.errors import InvalidManifest
from drumlin.kg.rdf.jsonld import NAMESPACE, compact
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.validation.validate import validate
from tests.memory_sink import MemorySink
from tests.unit.rendering import CONTRACT, around, follow, synced, upserted
from tests.unit.test_pipeline import pod

BASE = "https://kg.example/id/"
DATASOURCES = [
    {"name": "prometheus-main", "kind": "prometheus", "url": "http://prometheus.monitoring.svc:9090"},
    {
        "name": "grafana-main",
        "kind": "grafana",
        "url": "https://grafana.example",
        "dashboards": {"cluster": "https://g.example/{cluster}"},
    },
]


def ensured(sink: MemorySink) -> list[str]:
    """Ensure the hosting graphs; return what was really written."""
    base = around({**CONTRACT, "datasource": DATASOURCES})
    written = ensure(sink, base.settings, base.iris, base.catalogue, base.datasources)
    return [each.graph.removeprefix(BASE) for each in written if each.outcome != "unchanged"]


def test_the_hosting_graphs_exist_from_the_start_and_are_valid() -> None:
    """Domain, cluster, configured datasources and templates are there before any object, and only once."""
    sink = MemorySink()
    first, second = ensured(sink), ensured(sink)

    assert {"domain/glaciation-node1", "cluster/prod", "datasource/prometheus-main", "template/workload.cpu_usage"} <= {
        *first
    }
    assert second == []
    assert set(sink.owners.values()) == {OWNER}
    for graph, lines in sink.graphs.items():
        validate(lines, graph, around().iris)


def test_the_cluster_belongs_to_the_hosting_domain_and_has_telemetry() -> None:
    """The cluster's metrics are summed over its nodes; its dashboard is the one of its scope."""
    sink = MemorySink()
    ensured(sink)
    cluster = compact(sink.graphs[BASE + "cluster/prod"], BASE + "cluster/prod")

    assert cluster["domain"] == BASE + "domain/glaciation-node1"
    (metrics,) = cluster["telemetry"]
    assert metrics["dashboard"][0]["url"] == "https://g.example/prod"
    assert {each["name"] for each in metrics["hasPart"]} >= {"cpu_usage", "energy_joules"}


def test_a_hosting_graph_that_a_user_wrote_stays() -> None:
    """A user's cluster is reported and kept, a template of theirs is kept without a word, and the start goes on."""
    sink = MemorySink()
    for theirs in (BASE + "template/workload.cpu_usage", BASE + "cluster/prod"):
        sink.apply([GraphWrite.of(theirs, frozenset({f'<{theirs}> <{NAMESPACE}name> "mine" .'}), "user")])
    with structlog.testing.capture_logs() as logs:
        written = ensured(sink)

    assert {sink.owners[each] for each in (BASE + "template/workload.cpu_usage", BASE + "cluster/prod")} == {"user"}
    assert "domain/glaciation-node1" in written
    assert [each["event"] for each in logs] == ["graph_owned"]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2026-11-27T21:50:28Z", "2026-11-27T21:50:28Z"),
        ("2026-11-27T21:50:28.123456Z", "2026-11-27T21:50:28Z"),
        ("2026-11-27T22:50:28+01:00", "2026-11-27T21:50:28Z"),
    ],
)
def test_times_are_kept_in_utc_to_the_second(written: str, expected: str) -> None:
    """Whatever zone and precision a manifest uses, the graph has one form."""
    assert moment(written) == expected


@pytest.mark.parametrize(
    "written", ["", "secret", "2026-13-01T00:00:00Z", "2026-11-27T29:50:28Z", "0001-01-01T00:00:00+23:00"]
)
def test_what_is_not_a_time_is_refused_without_being_repeated(written: str) -> None:
    """A malformed time is an error that does not quote it."""
    with pytest.raises(InvalidManifest) as caught:
        moment(written)

    assert str(caught.value) == "a time is malformed"


def test_a_time_without_a_zone_is_refused() -> None:
    """Nobody can say which moment it means."""
    with pytest.raises(InvalidManifest, match="has no zone"):
        moment("2026-11-27T21:50:28")


@given(st.datetimes(timezones=st.timezones()))
def test_any_moment_is_read_as_itself(written: datetime) -> None:
    """Any zone gives the same moment, to the second, unless it leaves the calendar."""
    assume(2 < written.year < 9999)

    assert datetime.fromisoformat(moment(written.isoformat())) == written.astimezone(UTC).replace(microsecond=0)


@pytest.mark.parametrize(
    ("key", "expected"), [("team", True), ("teams", False), ("site/zone", True), ("site", False), ("x", False)]
)
def test_labels_are_kept_by_key_or_prefix(key: str, *, expected: bool) -> None:
    """An exact key, or a prefix that ends in a star; everything else is dropped."""
    assert kept(key, ("team", "site/*")) is expected


def test_a_second_name_of_one_cluster_is_warned_of() -> None:
    """The same uids under another name are the same cluster: the run says so once, at its beginning, and writes all the same."""
    sink = MemorySink()
    ensured(sink)
    follow([upserted(pod("web-0", "p1")), *synced()], sink)
    other = around({**CONTRACT, "cluster": "staging"})
    ensure(sink, other.settings, other.iris, other.catalogue, ())
    with structlog.testing.capture_logs() as logs:
        _, run = follow([upserted(pod("web-0", "p1")), *synced()], sink, other)
    (warning,) = run.summary.warnings
    assert warning.startswith("objects of cluster staging have the uids of objects of cluster prod")
    assert [each["event"] for each in logs if each["log_level"] == "warning"] == ["cluster_has_two_names"]
    assert f"{BASE}staging/shop/pod/web-0" in sink.graphs

    _, again = follow([upserted(pod("web-0", "p1")), *synced()], sink, other)
    third = around({**CONTRACT, "cluster": "third"})
    ensure(sink, third.settings, third.iris, third.catalogue, ())
    _, different = follow([upserted(pod("web-0", "p9")), *synced()], sink, third)
    assert again.summary.warnings == different.summary.warnings == []
