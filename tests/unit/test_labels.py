"""Labels of blank nodes that follow from what is said of them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg.rdf import blank_nodes
from drumlin.kg.rdf.blank_nodes import skolemized, stable, stable_together
from drumlin.kg.rdf.syntax import Lines

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
    """Two nodes of which the same is said are two, with the same labels whenever the document is read."""
    lines = frozenset({'_:n0 <http://p> "x" .', '_:n1 <http://p> "x" .'})

    assert len(stable(lines, GRAPH)) == 2
    assert stable(_renamed(lines, [4, 5, 0, 1, 2, 3]), GRAPH) == stable(lines, GRAPH)


def _links(*pairs: tuple[int, int]) -> Lines:
    return frozenset(f"_:n{one} <http://p> _:n{other} ." for one, other in pairs)


ALIKE = {
    "a ring": _links(*((each, (each + 1) % 6) for each in range(6))),
    "two rings": _links((0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)),
    "all linked": _links(*((one, other) for one in range(5) for other in range(5) if one != other)),
    "leaves": _links(*((0, each) for each in range(1, 6))),
    "pairs": _links((0, 1), (1, 0), (2, 3), (3, 2), (4, 5)),
    "a triple term": frozenset({"<http://a> <http://p> <<( _:n0 <http://q> _:n1 )>> .", '_:n1 <http://p> "_:n0 x" .'}),
}


@pytest.mark.parametrize("lines", ALIKE.values(), ids=ALIKE.keys())
@given(order=st.permutations(range(6)))
def test_nodes_that_look_alike_have_labels_that_do_not_follow_from_labels(lines: Lines, order: list[int]) -> None:
    """A document with nodes that only their links tell apart, or nothing, gives the same lines whenever it is read."""
    assert stable(_renamed(lines, order), GRAPH) == stable(lines, GRAPH)


@given(lines=LINES, other=LINES, order=st.permutations(range(6)))
def test_graphs_keep_the_nodes_that_they_share(lines: Lines, other: Lines, order: list[int]) -> None:
    """A dataset stays isomorphic to what it was, and gives the same lines whatever its nodes were called."""
    given_ = {"http://one": lines, "http://other": other}
    found = stable_together(given_)

    assert _dataset(found) == _dataset(given_)
    assert stable_together({graph: _renamed(each, order) for graph, each in given_.items()}) == found


def _dataset(graphs: Mapping[str, Lines]) -> ox.Dataset:
    names = {graph: graph if graph.startswith("_:") else f"<{graph}>" for graph in graphs}
    text = "".join(f"{line[:-1]}{names[graph]} .\n" for graph, lines in graphs.items() for line in lines)
    dataset = ox.Dataset(ox.parse(text.encode(), format=ox.RdfFormat.N_QUADS))
    dataset.canonicalize(ox.CanonicalizationAlgorithm.UNSTABLE)
    return dataset


def test_a_graph_that_shares_no_node_has_the_labels_that_it_has_alone() -> None:
    """What stands in other graphs of a dataset changes no label of a graph that shares none with them."""
    lines, other = _links((0, 1), (1, 2)), frozenset({'_:n3 <http://p> "x" .'})

    assert stable_together({GRAPH: lines, "http://other": other})[GRAPH] == stable(lines, GRAPH)


def test_what_is_too_hard_keeps_its_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the steps are used up, nodes that are not told apart keep their labels, the same in all graphs."""
    monkeypatch.setattr(blank_nodes, "MAX_TRIED_STEPS", 10)
    ring, shared = ALIKE["a ring"], frozenset({'_:n0 <http://q> "x" .', '_:n3 <http://q> "x" .'})

    assert stable_together({"http://one": ring, "http://other": shared}) == {"http://one": ring, "http://other": shared}


HARD = {
    "rings": [
        f"_:n{40 * ring + at} <http://p> _:n{40 * ring + (at + 1) % 40} ." for ring in range(50) for at in range(40)
    ],
    "a long ring": [f"_:n{at} <http://p> _:n{(at + 1) % 5000} ." for at in range(5000)],
    "a torus": [
        f"_:n{12 * row + at} <http://p> _:n{each} ."
        for row in range(12)
        for at in range(12)
        for each in (12 * ((row + 1) % 12) + at, 12 * row + (at + 1) % 12)
    ],
    "a list of one value": [
        line for at in range(2000) for line in (f'_:n{at} <http://first> "x" .', f"_:n{at} <http://rest> _:n{at + 1} .")
    ],
    "deep triple terms": [
        "<http://a> <http://p> " + f"<<( _:n{row} <http://p> " * 90 + "<http://b>" + " )>>" * 90 + " ."
        for row in range(500)
    ],
}


@pytest.mark.parametrize("lines", HARD.values(), ids=HARD.keys())
def test_steps_are_bounded(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """However alike the nodes of a document are, only so many nodes of statements are looked at."""
    looked_at = 0
    said = blank_nodes._said

    def counted(statement: blank_nodes._Statement, node: str, seen: Mapping[str, str]) -> str:
        nonlocal looked_at
        looked_at += len(statement.nodes)
        return said(statement, node, seen)

    monkeypatch.setattr(blank_nodes, "_said", counted)
    stable(frozenset(lines), GRAPH)

    assert looked_at <= blank_nodes.MAX_STEPS + blank_nodes.MAX_TRIED_STEPS


@pytest.mark.timeout(30)
def test_a_graph_made_to_be_hard_takes_no_longer() -> None:
    """Forty nodes that are all linked to one another, the worst case of canonicalisation, come to an end."""
    lines = frozenset(f"_:n{a} <http://p> _:n{b} ." for a in range(40) for b in range(40) if a != b)

    assert len(stable(lines, GRAPH)) == len(lines)


@given(lines=LINES, other=LINES.filter(bool), order=st.permutations(range(6)))
def test_a_blank_node_that_names_a_graph_becomes_an_iri(lines: Lines, other: Lines, order: list[int]) -> None:
    """A dataset is what it was but for that node, which is an IRI wherever it stands; the label does not follow from labels."""
    given_ = {"http://one": lines, "_:n0": other}
    found = skolemized(stable_together(given_), "http://kg/")
    (name,) = found.keys() - {"http://one"}

    assert re.fullmatch(r"http://kg/\w+", name)
    node = f"<{name}>"
    back = {graph: frozenset(line.replace(node, "_:named") for line in each) for graph, each in found.items()}
    assert _dataset({"http://one": back["http://one"], "_:named": back[name]}) == _dataset(given_)
    renamed = {f"_:m{order[0]}" if graph == "_:n0" else graph: _renamed(each, order) for graph, each in given_.items()}
    assert skolemized(stable_together(renamed), "http://kg/") == found
