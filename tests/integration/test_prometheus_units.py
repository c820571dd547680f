"""Units on a real Prometheus: the server converts, the answer names the unit, and what cannot be is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drumlin.kg.errors import InvalidInput
from drumlin.kg.telemetry.history import History
from drumlin.kg.telemetry.resolve import Resolver
from tests.integration.conftest import RealPrometheus, at
from tests.integration.test_prometheus_history import CHECKOUT, LEDGER, NODE_A, documents
from tests.unit.telemetry_store import IRIS, GraphStore

WINDOW = {"start": at(130), "end": at(180), "step": "10m"}


@pytest.fixture(scope="module")
def history(prometheus: RealPrometheus) -> Iterator[History]:
    """History over the graph and the real server."""
    with History(Resolver(GraphStore(documents()), IRIS, [prometheus.datasource()])) as opened:
        yield opened


@pytest.mark.parametrize(
    ("entity", "metric", "unit", "told", "metric_told", "truth"),
    [
        (CHECKOUT, "cpu_usage", "millicores", "{millicpu}", "cpu_usage", 250.0),
        (CHECKOUT, "cpu_usage", "%", "%", "cpu_utilisation", 12.5),
        (LEDGER, "mem_usage", "MB", "MBy", "mem_usage", 0.001130),
        (LEDGER, "mem_usage", "mb", "MBy", "mem_usage", 0.001130),
        (LEDGER, "mem_usage", "KiB", "KiBy", "mem_usage", 1130 / 1024),
        (NODE_A, "mem_usage", "By", "By", "mem_usage", None),
    ],
)
def test_values_come_in_the_unit_that_was_asked_for(
    history: History, entity: str, metric: str, unit: str, told: str, metric_told: str, truth: float | None
) -> None:
    """The words of the seed and UCUM's own: the conversion stands in the query, and the answer names unit and metric."""
    found = history.fetch(entity, metric, unit=unit, **WINDOW)

    assert found.unit == told
    assert set(found.table["unit"].to_pylist()) == {told}
    assert set(found.table["metric"].to_pylist()) == {metric_told}
    if truth is not None:
        assert found.table["y"].to_pylist()[0] == pytest.approx(truth, rel=1e-5)


def test_each_metric_takes_the_first_unit_that_fits(history: History) -> None:
    """Several metrics and several units in one call."""
    found = history.fetch(NODE_A, ["mem_usage"], unit=["%", "kWh", "GB"], **WINDOW)

    assert found.unit == "GBy"


@pytest.mark.parametrize(("entity", "metric", "unit"), [(LEDGER, "mem_usage", "W"), (CHECKOUT, "cpu_usage", "MB")])
def test_an_impossible_conversion_names_the_possible_ones(
    history: History, entity: str, metric: str, unit: str
) -> None:
    """It is an error of the caller, with the units in which the metric can be given."""
    with pytest.raises(InvalidInput, match="cannot be converted") as error:
        history.fetch(entity, metric, unit=unit, **WINDOW)

    assert error.value.detail["possible"][0] in ("By", "{cpu}")


def test_a_share_without_a_limit_is_refused(prometheus: RealPrometheus) -> None:
    """``%`` of the CPU of a workload whose graph has no utilisation says why, and what is possible instead."""
    graph = GraphStore(documents())
    part = {"id": IRIS.metric(IRIS.expand(LEDGER), "mem_usage"), "type": "Metric", "name": "mem_usage"}
    telemetry = {"id": IRIS.telemetry(IRIS.expand(LEDGER), "metrics"), "type": "Telemetry", "hasPart": [part]}
    graph.add([{"id": IRIS.expand(LEDGER), "type": "Deployment", "telemetry": [telemetry]}])
    with (
        History(Resolver(graph, IRIS, [prometheus.datasource()])) as history,
        pytest.raises(InvalidInput, match="has no %: none of its containers has a CPU limit") as error,
    ):
        history.fetch(LEDGER, "cpu_usage", unit="%", **WINDOW)

    assert "{cpu}" in str(error.value.hint)


def test_network_usage_is_the_sum_of_both_directions(history: History) -> None:
    """The seed's word resolves to what is received and sent."""
    (found,) = history.resolutions(history.plan(CHECKOUT, "network_usage", unit="Mbit/s", **WINDOW))

    assert found.metric == "network_usage"
    assert found.unit == "Mbit/s"
    assert "container_network_receive_bytes_total" in found.query
    assert "container_network_transmit_bytes_total" in found.query
    assert found.query.endswith(" / 125000")
