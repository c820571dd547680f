"""Ids as people write them: kubectl's names of kinds mean the kind, and nothing else is touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.exporters.kubernetes.kinds import KINDS, OPTIONAL
from drumlin.kg.model.kind_names import KIND_NAMES, kind_named, spelled

NAMES = sorted(
    {each.segment for each in KIND_NAMES} | {name for each in KIND_NAMES for name in (each.plural, *each.short)}
)


def test_the_names_are_those_of_the_kinds_that_are_rendered() -> None:
    """The table has each kind that becomes an entity, with the names that the table of kinds gives it, and no other."""
    rendered = [*KINDS, *(each for kinds in OPTIONAL.values() for each in kinds)]
    expected = {
        (each.segment, each.type, each.plural, (each.short,) if each.short else ())
        for each in rendered
        if each.render is not None
    }
    assert {tuple(each) for each in KIND_NAMES} == expected


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("prod/payments/deploy/checkout", "prod/payments/deployment/checkout"),
        ("prod/payments/Deployments/checkout", "prod/payments/deployment/checkout"),
        ("prod/payments/deployments.apps/checkout", "prod/payments/deployment/checkout"),
        ("prod/-/no/edge-a-1", "prod/-/node/edge-a-1"),
        ("prod/payments/po/x/run/1", "prod/payments/pod/x/run/1"),
        ("prod/payments/svc/svc", "prod/payments/service/svc"),
        ("notes/prod/payments/sts/db", "notes/prod/payments/statefulset/db"),
        ("prod/m/smon/x", "prod/m/servicemonitor.monitoring.coreos.com/x"),
        ("https://kg.example/id/prod/-/nodes/a", "https://kg.example/id/prod/-/node/a"),
        ("prod/payments/po.example.com/x", "prod/payments/po.example.com/x"),
        ("function/prod/po/resize", "function/prod/po/resize"),
        ("domain/po", "domain/po"),
        ("prod/po/x", "prod/po/x"),
        ("https://elsewhere/prod/-/no/a", "https://elsewhere/prod/-/no/a"),
        ("po", "po"),
        ("", ""),
    ],
)
def test_an_id_is_spelled_as_ids_are(written: str, meant: str) -> None:
    """Short names, plurals, capitals and Kubernetes' own groups are taken; what could mean something else stays."""
    assert spelled(written) == meant


@given(st.lists(st.text(st.sampled_from("apo/-.%N"), max_size=5) | st.sampled_from(NAMES), max_size=7).map("/".join))
def test_spelling_is_done_once_and_touches_the_kind_alone(id: str) -> None:
    """What is spelled stays as it is, and differs from what was written in one segment at most."""
    found = spelled(id)
    before, after = id.split("/"), found.split("/")
    assert spelled(found) == found
    assert len(before) == len(after)
    assert sum(one != other for one, other in zip(before, after, strict=True)) <= 1


@pytest.mark.parametrize("written", NAMES)
def test_every_name_means_its_kind(written: str) -> None:
    """Each name leads to the kind that bears it, in capitals too."""
    found = kind_named(written.upper() if "." not in written else written)
    assert found is not None
    assert written in (found.segment, found.segment.partition(".")[0], found.plural, *found.short)
