"""Layered drawings: whatever waits for what, nodes lie apart, edges lead on, and the drawing is the same each time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.api.pages.lanes import LaneWork, lanes_of
from drumlin.api.pages.layers import NODE_HEIGHT, NODE_WIDTH, LayeredDrawing, layered

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
KEYS = st.lists(st.sampled_from("abcdefghijklmnop"), max_size=16, unique=True)
EDGES = st.lists(st.tuples(st.sampled_from("abcdefghijklmnopz"), st.sampled_from("abcdefghijklmnopz")), max_size=40)


def assert_apart(drawn: LayeredDrawing) -> None:
    """Assert that no two nodes overlap, and that all are inside."""
    for one, other in combinations(drawn.nodes, 2):
        assert abs(one.x - other.x) >= NODE_WIDTH or abs(one.y - other.y) >= NODE_HEIGHT, (one, other)
    assert all(
        0 <= each.x <= drawn.width - NODE_WIDTH and 0 <= each.y <= drawn.height - NODE_HEIGHT for each in drawn.nodes
    )


@given(nodes=KEYS, edges=EDGES, most=st.integers(0, 20))
def test_any_graph_is_drawn(nodes: list[str], edges: list[tuple[str, str]], most: int) -> None:
    """Cycles, loops, repeated edges and edges to nowhere too: nodes apart, edges forward but for those that close a cycle."""
    drawn = layered(nodes, edges, most)
    assert drawn == layered(nodes, edges, most)
    assert len(drawn.nodes) + drawn.left_out == len(nodes)
    assert len(drawn.nodes) == min(most, len(nodes))
    assert_apart(drawn)
    at = {each.key: each for each in drawn.nodes}
    wanted = {(a, b) for a, b in edges if a in at and b in at and a != b}
    assert {(each.start, each.end) for each in drawn.edges} == wanted
    for each in drawn.edges:
        start, end = at[each.start], at[each.end]
        assert (start.layer < end.layer and start.x + NODE_WIDTH < end.x) != each.back
        assert each.path.startswith("M")


@given(pairs=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30))
def test_what_has_no_cycle_has_no_edge_back_and_the_fewest_layers(pairs: list[tuple[int, int]]) -> None:
    """Each node stands right behind the last that it waits for."""
    edges = [(f"n{min(a, b)}", f"n{max(a, b)}") for a, b in pairs if a != b]
    drawn = layered([f"n{number}" for number in range(12)], edges)
    assert not any(each.back for each in drawn.edges)
    layer = {each.key: each.layer for each in drawn.nodes}
    for key, own in layer.items():
        assert own == max((layer[start] + 1 for start, end in edges if end == key), default=0)


def test_a_plan_is_drawn_from_left_to_right() -> None:
    """psi, then train and stats, then predict; train stands where it crosses nothing."""
    drawn = layered(
        ["predict", "psi", "stats", "train"],
        [("psi", "train"), ("psi", "stats"), ("train", "predict"), ("stats", "predict")],
    )
    assert [(each.key, each.layer) for each in drawn.nodes] == [("psi", 0), ("stats", 1), ("train", 1), ("predict", 2)]
    assert drawn.left_out == 0
    assert (drawn.nodes[0].y, drawn.nodes[3].y) == (39, 39)


def test_crossings_are_untangled() -> None:
    """Two chains that were given crosswise run beside each other."""
    drawn = layered(["a", "b", "y", "x"], [("a", "x"), ("b", "y")])
    y = {each.key: each.y for each in drawn.nodes}
    assert (y["a"] - y["b"]) * (y["x"] - y["y"]) > 0


WORK = st.builds(
    lambda party, name, start, length: LaneWork(
        party,
        name,
        NOON + timedelta(seconds=start),
        None if length is None else NOON + timedelta(seconds=start + length),
        "good",
        "",
    ),
    st.sampled_from(["alice", "bob", ""]),
    st.text(max_size=5),
    st.integers(0, 10**6),
    st.none() | st.integers(-5, 10**6),
)


@given(work=st.lists(WORK, min_size=1, max_size=20))
def test_every_piece_of_work_has_a_bar_in_the_lane_of_its_party(work: list[LaneWork]) -> None:
    """Lanes stand one below the other, bars in rows of their own; all are inside, and what was short or ends early is seen."""
    drawn = lanes_of(work, NOON + timedelta(days=3))
    assert drawn is not None
    assert [lane.party for lane in drawn.lanes] == sorted({each.party for each in work})
    assert sum(len(lane.bars) for lane in drawn.lanes) == len(work)
    top = 0
    for lane in drawn.lanes:
        assert lane.y == top
        top += lane.height
        rows = [bar.y for bar in lane.bars]
        assert len(set(rows)) == len(rows)
        for bar in lane.bars:
            assert lane.y < bar.y < top
            assert drawn.label <= bar.x
            assert bar.x + bar.width <= drawn.width
            assert bar.width >= 4
    assert top <= drawn.height


def test_nothing_that_has_begun_is_no_picture() -> None:
    """A plan of which nothing runs yet has no lanes."""
    assert lanes_of([], NOON) is None


@pytest.mark.parametrize("nodes", [[], ["alone"]])
def test_little_is_drawn_too(nodes: list[str]) -> None:
    """Nothing is an empty drawing, one node a drawing of one."""
    drawn = layered(nodes, [])
    assert (len(drawn.nodes), drawn.edges) == (len(nodes), ())
    assert drawn.height > 0
