"""Labels of blank nodes that follow from what is said of them."""

from __future__ import annotations

import re
import time

import pyoxigraph as ox
from hypothesis import given
from hypothesis import strategies as st

from kg.labels import stable
from kg.rdf import Lines

GRAPH = "http://example.org/g"
_NODES = st.integers(0, 5).map("_:n{}".format) | st.sampled_from(["<http://a>", "<http://b>"])
LINES = st.frozensets(
    st.builds("{} <http://{}> {} .".format, _NODES, st.sampled_from("pq"), _NODES | st.sampled_from(['"x"', '"_:n1"'])),
    max_size=10,
)


def _renamed(lines: Lines, order: list[int]) -> Lines:
    return frozenset(re.sub(r"(?<!\")_:n(\d)", lambda match: f"_:m{order[int(match[1])]}", line) for line in lines)


def _canonical(lines: Lines) -> ox.Dataset:
    dataset = ox.Dataset(ox.parse("\n".join(lines).encode(), format=ox.RdfFormat.N_TRIPLES))
    dataset.canonicalize(ox.CanonicalizationAlgorithm.UNSTABLE)
    return dataset


@given(lines=LINES)
def test_relabelled_lines_say_the_same(lines: Lines) -> None:
    """The graph stays isomorphic to what it was; no two nodes become one."""
    assert _canonical(stable(lines, GRAPH)) == _canonical(lines)


@given(order=st.permutations(range(6)))
def test_labels_do_not_follow_from_labels(order: list[int]) -> None:
    """Nodes that can be told apart get the same labels, whatever they were called before."""
    chain = {
        "<http://a> <http://p> _:n0 .",
        "_:n0 <http://p> _:n1 .",
        "_:n1 <http://p> _:n2 .",
        '_:n2 <http://q> "x" .',
    }
    lines = frozenset(chain | {"_:n3 <http://p> _:n3 .", "_:n3 <http://q> _:n4 .", "_:n5 <http://q> _:n2 ."})

    assert stable(_renamed(lines, order), GRAPH) == stable(lines, GRAPH)


def test_two_graphs_share_no_node() -> None:
    """The same document in two graphs has other nodes in each."""
    lines = frozenset({'_:n0 <http://p> "x" .'})

    assert stable(lines, GRAPH) != stable(lines, f"{GRAPH}2")


def test_nodes_that_look_alike_stay_two() -> None:
    """What cannot be told apart keeps the label it came with."""
    lines = frozenset({'_:n0 <http://p> "x" .', '_:n1 <http://p> "x" .'})

    assert stable(lines, GRAPH) == lines


def test_a_graph_made_to_be_hard_takes_no_longer() -> None:
    """Forty nodes that are all linked to one another, the worst case of canonicalisation, are done at once."""
    lines = frozenset(f"_:n{a} <http://p> _:n{b} ." for a in range(40) for b in range(40) if a != b)

    began = time.process_time()
    stable(lines, GRAPH)
    assert time.process_time() - began < 2
