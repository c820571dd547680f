"""Which pods a question names and when: exact where all runs are known, else a pattern that leaves out what is another workload's."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from drumlin.exporters.pipeline.runs import LOST, Run, merge
from drumlin.kg.telemetry import promql
from drumlin.kg.telemetry.asking import PodRun, QueryTemplate, complement, union
from drumlin.kg.telemetry.describe import WORKLOAD_KINDS, owner_names, pod_names
from drumlin.kg.telemetry.guarding import alike
from drumlin.kg.telemetry.quoting import any_of
from drumlin.kg.telemetry.series import Grid

SPANS = st.lists(st.tuples(st.integers(-50, 1500), st.integers(1, 400)), max_size=5).map(
    lambda found: [(float(start), float(start + length)) for start, length in found]
)
GRIDS = st.builds(
    lambda start, points, step: Grid(start * step, (start + points - 1) * step, step),
    st.integers(0, 10),
    st.integers(1, 40),
    st.sampled_from([1, 10, 60]),
)
RUNS = st.lists(
    st.builds(
        lambda name, start, length: PodRun(f"web-{name}", start, None if length is None else start + length),
        st.integers(0, 6),
        st.integers(0, 1500),
        st.none() | st.integers(0, 500),
    ),
    max_size=8,
).map(tuple)
LABELS = st.from_regex(r"[a-z]([-a-z0-9]{0,12}[a-z0-9])?", fullmatch=True)
SUFFIX = st.text("bcdfghjklmnpqrstvwxz2456789", min_size=5, max_size=5)
HASH = st.text("456789bcd", min_size=6, max_size=10)


@given(SPANS, st.floats(-100, 2000))
def test_what_is_not_known_is_the_complement(spans: list[tuple[float, float]], at: float) -> None:
    """A moment inside of a known span is not unknown, one outside of all is; what is unknown lies apart and in order."""
    unknown = complement(spans)

    if any(first < at < last for first, last in spans):
        assert not any(first < at < last for first, last in unknown)
    if not any(first <= at <= last for first, last in spans):
        assert any(first <= at <= last for first, last in unknown)
    assert unknown == union(unknown)
    assert complement(unknown) == union(spans)


@given(GRIDS, SPANS, RUNS, st.integers(0, 300))
def test_each_point_is_asked_for_once_and_by_the_right_selector(
    grid: Grid, spans: list[tuple[float, float]], runs: tuple[PodRun, ...], reach: int
) -> None:
    """A point that looks into an unknown span is asked for by the pattern, any other by the names of just the pods that it may see."""
    question = QueryTemplate(lambda pods: f"q({pods})", runs, ".*", reach, union(spans))
    asked: dict[int, list[tuple[str, tuple[str, ...]]]] = {at: [] for at in range(grid.start, grid.end + 1, grid.step)}
    for part in question.parts(grid):
        for at in range(part.grid.start, part.grid.end + 1, grid.step):
            asked[at].append((part.selector, part.pods))

    for at, found in asked.items():
        seen = {run.name for run in runs if run.start <= at and (run.end is None or run.end >= at - reach)}
        if any(first <= at and at - reach <= last for first, last in spans):
            assert found == [("pattern", ())]
        elif seen:
            ((selector, pods),) = found
            assert selector == "exact"
            assert seen <= {*pods}
        else:
            assert all(selector == "exact" for selector, _ in found)
    told = question.intervals(grid)
    assert [each.start for _, each in told][:1] == [grid.start]
    assert told[-1][1].end == grid.end
    assert all(one[0] != other[0] for one, other in pairwise(told))


@given(GRIDS, SPANS, RUNS)
def test_equal_identities_have_equal_queries(
    grid: Grid, spans: list[tuple[float, float]], runs: tuple[PodRun, ...]
) -> None:
    """What a day is kept under tells apart what is asked: another pod, or another selector for a part of it."""
    known = QueryTemplate(lambda pods: f"q({pods})", runs, "p", 0, ())
    other = QueryTemplate(lambda pods: f"q({pods})", runs, "p", 0, union(spans))

    if known.parts(grid) == other.parts(grid):
        return
    assert known.identity(grid) != other.identity(grid)


def test_without_runs_and_knowledge_all_is_pattern() -> None:
    """A workload of which nothing is known is asked for by its pattern throughout, in one part."""
    grid = Grid(0, 600, 60)
    question = QueryTemplate(lambda pods: f"q({pods})", (), "p", 300, ((-math.inf, math.inf),))

    assert [(part.query, part.selector) for part in question.parts(grid)] == [("q(p)", "pattern")]


def name_of(kind: str, workload: str, revision: str, suffix: str, number: int) -> str:
    """Return a name that the controller of a kind gives to a pod."""
    between = {
        "Deployment": f"-{revision}-{suffix}",
        "StatefulSet": f"-{number}",
        "CronJob": f"-{29_000_000 + number}-{suffix}",
    }
    return workload + between.get(kind, f"-{suffix}")


@given(st.sampled_from(sorted(WORKLOAD_KINDS)), LABELS, HASH, SUFFIX, st.integers(0, 40))
def test_the_pattern_has_all_pods_of_the_workload(
    kind: str, workload: str, revision: str, suffix: str, number: int
) -> None:
    """Whatever the controller draws, the pattern matches the pod, and the pattern of owners its owner."""
    assert alike(pod_names(kind, workload), [name_of(kind, workload, revision, suffix, number)])
    owner, names = owner_names(kind, workload)
    owned = {"Deployment": f"{workload}-{revision}", "CronJob": f"{workload}-{29_000_000 + number}"}
    assert re.fullmatch(names, owned.get(kind, workload))
    assert owner == {"Deployment": "ReplicaSet", "CronJob": "Job"}.get(kind, kind)


@given(LABELS, st.from_regex(r"[g-z][a-z0-9]{0,8}", fullmatch=True), HASH, SUFFIX)
def test_a_deployment_of_a_longer_name_is_never_matched(workload: str, more: str, revision: str, suffix: str) -> None:
    """``web`` has no pod of the Deployment ``web-admin``, with or without owner labels."""
    assert not alike(pod_names("Deployment", workload), [f"{workload}-{more}-{revision}-{suffix}"])
    owner, names = owner_names("Deployment", workload)
    assert owner == "ReplicaSet"
    assert not re.fullmatch(names, f"{workload}-{more}-{revision}")


@given(st.sampled_from(sorted(WORKLOAD_KINDS)), LABELS, st.data())
def test_what_is_left_out_is_no_longer_matched_and_nothing_else(kind: str, workload: str, data: st.DataObject) -> None:
    """Of the names that a pattern matches, the guarded selector matches just those that are not another workload's."""
    pattern = pod_names(kind, workload)
    own = data.draw(st.lists(st.builds(name_of, st.just(kind), st.just(workload), HASH, SUFFIX, st.integers(0, 9))))
    like = st.from_regex(pattern, fullmatch=True).map(str.strip)
    foreign = set(alike(pattern, data.draw(st.lists(like, min_size=1, max_size=4)))) - {*own}
    assume(foreign)
    query = f'sum(rate(a{{pod=~{promql.quote(pattern)},namespace="pod"}}[5m])) / max(b{{pod_name=~{promql.quote(pattern)}}})'

    guarded = promql.exclude(query, pattern, any_of(foreign))

    for selector in promql.selectors(guarded):
        matchers = [each for each in selector.matchers if each.label in ("pod", "pod_name")]
        assert len(matchers) == 2

        def is_matched(name: str, matchers: list[promql.Matcher] = matchers) -> bool:
            return all(bool(re.fullmatch(each.value, name)) == (each.operator == "=~") for each in matchers)

        assert all(map(is_matched, own))
        assert not any(map(is_matched, foreign))
    assert [each.metric for each in promql.selectors(guarded)] == [each.metric for each in promql.selectors(query)]


def test_a_text_that_looks_like_the_pattern_is_left_alone() -> None:
    """Only a matcher of the pattern is guarded, not a value, a comparison or another label of the same text."""
    query = 'label_replace(a{pod=~"p",x="p",y!~"p"}, "pod=~", "p", "pod", "p") == on (pod) b'

    assert promql.exclude(query, "p", "q") == query.replace('pod=~"p",', 'pod=~"p",pod!~"q",')


def run(start: int, end: int | None, *, seen: bool, outcome: str = LOST) -> Run:
    """Make a run of one uid."""
    times = [f"2026-11-{each:02}T00:00:00Z" for each in (start, end or 1)]
    over = {"end": times[1], "outcome": outcome, "estimated": True} if end else {}
    return Run("u", times[0], **over, observed="https://kg.example/id/datasource/main" if seen else None)


@given(st.permutations([run(3, 5, seen=True), run(3, 9, seen=True), run(2, 4, seen=True)]))
def test_findings_of_a_run_are_merged_in_any_order(found: list[Run]) -> None:
    """An outage makes a run seem to end earlier: the latest end and the earliest start hold, whichever came first."""
    known: Run | None = None
    for each in found:
        known = merge(known, each)

    assert known == run(2, 9, seen=True)


@pytest.mark.parametrize("known", [run(3, None, seen=False), run(3, 4, seen=False, outcome="Completed")])
def test_what_the_source_told_of_a_run_stands(known: Run) -> None:
    """Nothing that a datasource remembers ends a living run, or changes what the API server told."""
    assert merge(known, run(1, 9, seen=True)) == known
