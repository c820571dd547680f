"""Objects in trouble: each is reported once until it is over, and nothing is kept of one that is gone."""

from __future__ import annotations

from typing import Any

import pytest

from drumlin.exporters.pipeline import reconciler as following_module
from drumlin.exporters.pipeline.reconciler import Reconciler, ReportedNames
from drumlin.exporters.protocol import Change, Rejected
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.store.protocol import GraphWrite
from tests.memory_sink import MemorySink
from tests.unit.rendering import BY_NAME, follow, gone, upserted
from tests.unit.test_pipeline import BASE, pod

MANY = 300


def bad(name: str) -> dict[str, Any]:
    """Return a pod that cannot be rendered."""
    found = pod(name, f"uid-{name}")
    found["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "many"}}
    return found


def misfit(name: str) -> Rejected:
    """Return the report of a pod that cannot be read."""
    return Rejected(f"/api/v1/namespaces/shop/pods/{name}", "Expected `int`", BY_NAME["Pod"], "shop", name)


def take(run: Reconciler, *changes: Change) -> None:
    """Have changes taken in and written, one by one."""
    for each in changes:
        run.take(each)
        run.flush()


def remembered(run: Reconciler) -> int:
    """Return how many names are kept in the tables of what was reported."""
    return sum(len(value) for value in vars(run).values() if isinstance(value, ReportedNames))


def wheres(run: Reconciler) -> list[str]:
    """Return where the reported objects stand."""
    return [each.where for each in run.summary.rejected]


def test_what_could_not_be_rendered_is_forgotten_when_it_is_gone() -> None:
    """Of hundreds of objects that failed and went, no name is kept."""
    _, run = follow([])
    for number in range(MANY):
        take(run, upserted(bad(f"bad-{number}")), gone(bad(f"bad-{number}")))

    assert len(run.summary.rejected) == MANY
    assert remembered(run) == 0


def test_what_crashes_a_renderer_is_forgotten_when_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object whose last form cannot be rendered either is gone all the same: it is no entity, and no name is kept."""

    def broken(*_: Any) -> Any:
        raise KeyError("placed")

    monkeypatch.setattr("drumlin.exporters.kubernetes.render.pod.placed", broken)
    _, run = follow([])
    for number in range(MANY):
        take(run, upserted(pod(f"p-{number}", f"u{number}")), gone(pod(f"p-{number}", f"u{number}")))

    assert remembered(run) == 0
    assert run.summary.objects["Pod"] == 0


def test_what_somebody_else_owns_is_forgotten_when_it_is_gone_or_written() -> None:
    """Of graphs that were refused, those whose objects went or that could be written at last leave no name."""
    sink = MemorySink()
    for number in range(MANY):
        theirs = f"{BASE}prod/shop/pod/p-{number}"
        sink.apply([GraphWrite.of(theirs, frozenset({f'<{theirs}> <{NAMESPACE}name> "x" .'}), "user")])
    _, run = follow([], sink)
    for number in range(MANY):
        take(run, upserted(pod(f"p-{number}", f"u{number}")))
    assert len(run.summary.rejected) == remembered(run) == MANY

    for number in range(0, MANY, 2):
        take(run, gone(pod(f"p-{number}", f"u{number}")))
    for number in range(1, MANY, 2):
        sink.apply([GraphWrite.of(f"{BASE}prod/shop/pod/p-{number}", None, "user")])
        take(run, upserted(pod(f"p-{number}", f"u{number}", phase="Pending")))

    assert remembered(run) == 0
    assert len(run.summary.rejected) == MANY


def test_what_could_not_be_read_is_forgotten_when_it_can_or_is_gone() -> None:
    """Of objects that did not fit their projection, those that fit later or went leave no name."""
    _, run = follow([])
    for number in range(MANY):
        take(run, misfit(f"p-{number}"))
        take(run, (upserted if number % 2 else gone)(pod(f"p-{number}", f"u{number}")))

    assert len(run.summary.rejected) == MANY
    assert remembered(run) == 0


def test_trouble_that_comes_back_is_reported_again() -> None:
    """Once until it is over: an object that was handled well meanwhile is reported anew, in each kind of trouble."""
    sink, run = follow([])
    theirs = f"{BASE}prod/shop/pod/p"
    take(run, misfit("p"), misfit("p"), upserted(pod("p", "u")), misfit("p"))
    assert wheres(run) == [misfit("p").where] * 2

    take(run, upserted(bad("q")), upserted(pod("q", "uid-q")), upserted(bad("q")))
    assert wheres(run)[2:] == [f"{BASE}prod/shop/pod/q"] * 2

    def seize(owner: str, release: str) -> None:
        sink.apply([GraphWrite.of(theirs, None, release)])
        sink.apply([GraphWrite.of(theirs, frozenset({f'<{theirs}> <{NAMESPACE}name> "x" .'}), owner)])

    seize("user", "test")
    take(run, upserted(pod("p", "u", phase="Pending")))
    sink.apply([GraphWrite.of(theirs, None, "user")])
    take(run, upserted(pod("p", "u", phase="Running")))
    seize("user", "test")
    take(run, upserted(pod("p", "u", phase="Failed")))
    assert wheres(run)[4:] == [theirs] * 2


def test_names_of_objects_in_trouble_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more objects than the limit that stay unreadable, the names of those that came up last are kept."""
    monkeypatch.setattr(following_module, "_MOST_NAMES", 10)
    _, run = follow([])
    take(run, *(misfit(f"p-{number}") for number in range(MANY)))
    reported = len(run.summary.rejected)
    take(run, misfit(f"p-{MANY - 1}"), misfit(f"p-{MANY - 1}"))

    assert reported == len(run.summary.rejected) == MANY
    assert remembered(run) == 10
