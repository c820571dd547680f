"""A workload's own metrics: which names are listed, and what is asked for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg.telemetry import promql
from drumlin.kg.telemetry.fetch.prometheus import Described
from drumlin.kg.telemetry.scraped import _chosen, template_of

NAMES = st.from_regex(r"[a-z_:][a-z0-9_:]{0,30}", fullmatch=True)


@pytest.mark.parametrize(
    ("name", "about", "expected"),
    [
        ("http_requests_total", None, ("counter", "/s", "activity")),
        ("http_requests_total", Described("counter", "Requests."), ("counter", "/s", "activity")),
        ("queue_length", None, ("gauge", "1", "activity")),
        ("process_resident_memory_bytes", Described("gauge"), ("gauge", "By", "memory")),
        ("process_cpu_seconds_total", Described("counter"), ("counter", "1", "cpu")),
        ("sent_bytes_total", None, ("counter", "By/s", "network")),
        ("request_duration_seconds_sum", Described("histogram"), ("counter", "1", "activity")),
        ("request_duration_seconds_count", Described("histogram"), ("counter", "/s", "activity")),
        ("battery_joules_total", None, ("counter", "W", "energy")),
        ("temperature", Described("gauge", "", "celsius"), ("gauge", "Cel", "activity")),
        ("anything", Described("unknown"), ("gauge", "1", "activity")),
        ("request_duration_seconds", Described("summary"), None),
        ("request_duration_seconds", Described("histogram"), None),
    ],
)
def test_type_and_unit_come_from_the_metadata_else_from_the_name(
    name: str, about: Described | None, expected: tuple[str, str, str] | None
) -> None:
    """A counter is asked for as a rate, per second; quantiles of several pods have no sum and are left out."""
    found = template_of(name, about)
    assert (found and (found.metric_type, found.unit, found.quantity)) == expected
    assert found is None or ("rate(" in found.query) == (found.metric_type == "counter")


@given(NAMES, st.sampled_from(["", "counter", "gauge", "histogram", "summary", "unknown", "info"]))
def test_every_template_is_promql_with_the_holes_of_a_workload(name: str, kind: str) -> None:
    """Whatever the name: what is asked has one selector, of that metric, and can be filled for any workload."""
    if template := template_of(name, Described(kind)):
        assert promql.holes(template.query) == {"namespace", "pods"}

        filled = template.query.replace("{{namespace}}", '"a"').replace("{{pods}}", '"b"').replace("{{window}}", "5m")
        assert [each.metric for each in promql.selectors(filled)] == [name]


def test_so_many_are_listed_and_what_every_process_has_comes_last() -> None:
    """Buckets, creation times and the scrapes' own series are never; of the rest the application's come first."""
    names = [
        "up",
        "scrape_duration_seconds",
        "go_gc_seconds_sum",
        "orders_total",
        "a_bucket",
        "a_created",
        "a_sum",
        "bad.name",
    ]
    assert [each.metric for each in _chosen(names, {}, 10)] == ["a_sum", "orders_total", "go_gc_seconds_sum"]
    assert [each.metric for each in _chosen(names, {}, 2)] == ["a_sum", "orders_total"]
