"""Entities that are resolved together are read of the graph together, and each is answered as if it were alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.kg.errors import DrumlinError
from drumlin.kg.telemetry import graph, resolve
from drumlin.kg.telemetry.resolution import Resolution, Unresolved
from drumlin.kg.telemetry.resolve import Resolver
from tests.thoroughness import examples
from tests.unit.test_telemetry_resolve import _configured, _store, _window

KNOWN = [
    "prod/payments/deployment/checkout",
    "prod/payments/statefulset/orders-db",
    "prod/search/cronjob/reindex",
    "prod/search/job/reindex-29930271",
    "prod/payments/deployment/idle",
    "prod/payments/pod/checkout-86b96c86dc-aaaaa",
    "prod/payments/pod/orders-db-0",
    "prod/-/node/edge.a-1",
    "glaciation-node/glaciation-node1",
    "cluster/prod",
]
UNKNOWN = ["prod/payments/deployment/chekout", "prod/payments/service/checkout", "x", "", "a b>c", 'urn:x"> }']
RESOLVER = Resolver(_store(), resolve.Iris("https://kg.example"), [_configured()])
WINDOW = _window(0, 9)


def _alone(entity: str, metric: str) -> Any:
    try:
        return RESOLVER.resolve(entity, metric, WINDOW)
    except DrumlinError as error:
        return entity, metric, type(error), str(error)


def _plain(found: Resolution | Unresolved) -> Any:
    if isinstance(found, Resolution):
        return found
    return found.entity, found.metric, type(found.error), str(found.error)


@settings(max_examples=examples(15), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(KNOWN + UNKNOWN), st.sampled_from(["cpu_usage", "mem_usage", "cpu_usge"])),
        max_size=12,
    ),
    st.integers(1, 5),
)
def test_together_and_alone_are_the_same(pairs: list[tuple[str, str]], size: int) -> None:
    """Whatever stands beside it and wherever a batch ends, a pair has its own answer or its own error, in order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resolve, "_TOGETHER", size)
        found = [_plain(each) for each in RESOLVER.resolve_many(pairs, WINDOW)]

    assert found == [_alone(*pair) for pair in pairs]


def test_one_of_too_many_pods_does_not_take_the_others_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the runs of a batch are too many to read, it is halved until the one that has them stands alone."""
    monkeypatch.setattr(graph, "MAX_RUNS", 2)
    monkeypatch.setattr(graph, "_PODS", graph._PODS.replace("LIMIT 50001", "LIMIT 3"))
    pairs = [(each, "cpu_usage") for each in KNOWN[:4]]

    found = {each.entity.rpartition("/")[2]: each for each in RESOLVER.resolve_many(pairs, WINDOW)}

    assert {name: each.selector for name, each in found.items() if isinstance(each, Resolution)} == {
        "checkout": "pattern",  # it had three
        "orders-db": "exact",
        "reindex": "mixed",
        "reindex-29930271": "mixed",
    }
